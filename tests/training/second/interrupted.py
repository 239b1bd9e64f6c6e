"""Run by a test as a process of its own: a fit with a checkpoint at every batch, killed from outside or left to end.

python -m tests.training.second.interrupted LOGDIR MODELS CHECKPOINT OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from ranker.release.registry import Registry
from tests.training.second.test_train_second import TINY
from training.second.job import Request, TrainedSecond, train_second

EAGER = msgspec.structs.replace(
    TINY, training=msgspec.structs.replace(TINY.training, checkpoint_s=1e-6, pretrain=1, epochs=2)
)


def packed(trained: TrainedSecond) -> bytes:
    """All files, one after the other."""
    return b"".join(trained.files[name] for name in sorted(trained.files))


def main() -> None:
    """Trains, says every batch on stdout, and writes the files at the end."""
    logdir, models, checkpoint, out = map(Path, sys.argv[1:5])
    registry = Registry(models)
    request = Request(logdir, registry.manifest("1"), None, EAGER, checkpoint=checkpoint)
    trained = train_second(request, tell=lambda report: print(report.epoch, report.batch, flush=True))
    print("resumed" if trained.resumed else "anew", flush=True)
    out.write_bytes(packed(trained))


if __name__ == "__main__":
    main()
