"""Run by a test as a process of its own: a fit with a checkpoint at every batch, killed from outside or left to end.

python -m tests.training.second.interrupted LOGDIR MODELS CHECKPOINT OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from ranker.release.registry import Registry
from tests.training.second.test_train_second import TINY
from training.second.job import Request, train_second


def main() -> None:
    """Trains, says every batch on stdout, and writes the weights at the end."""
    logdir, models, checkpoint, out = map(Path, sys.argv[1:5])
    registry = Registry(models)
    training = msgspec.structs.replace(TINY.training, checkpoint_s=1e-6)
    config = msgspec.structs.replace(TINY, training=training)
    light = registry.manifest(registry.versions()[0])
    request = Request(logdir, light, None, config, checkpoint=None if str(checkpoint) == "-" else checkpoint)
    trained = train_second(request, tell=lambda report: print(report.epoch, report.batch, flush=True))
    print("resumed" if trained.resumed else "anew", flush=True)
    out.write_bytes(b"".join(trained.files[name] for name in sorted(trained.files)))


if __name__ == "__main__":
    main()
