"""A fit on disk: tensors as safetensors, the rest as JSON, replaced as a whole; no pickle.

The file is named after the run, so that two trainers at once keep apart what they keep; two of the very same run write
the very same.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as render
from torch import Tensor

from ranker.release.durable import read_plain, sync_folder, write_new
from training.errors import TrainingError
from training.second.fit import Fit, State

MAX_BYTES = 1 << 34
LIFE_S = 14 * 86400.0
"""What was not taken up for so long is removed."""
_NET, _BEST, _AVERAGE, _OPTIMIZER = "net.", "best.", "average.", "optimizer."
_RANDOM, _CUDA, _STATE = "random", "random_cuda", "state"


_log = logging.getLogger(__name__)


class Keeper:
    """Keeps one run's state while it goes on.

    Args:
        prefix: of the files' names; the run's own follows.
        of: the run's identity.
    """

    def __init__(self, prefix: Path, of: str) -> None:
        self.path = prefix.with_name(f"{prefix.name}-{of[:16]}")
        self._prefix, self._of = prefix, of
        self._failed = False

    def take_up(self, fit: Fit) -> bool:
        """As `load_checkpoint`; removes what others left long ago."""
        remove_old(self._prefix, time.time())
        return load_checkpoint(self.path, fit, self._of)

    def save(self, fit: Fit) -> None:
        """Replaces what is kept; where that fails the fit goes on, with what was kept before."""
        try:
            save_checkpoint(self.path, fit, self._of)
        except OSError as error:
            if not self._failed:
                _log.warning("the training goes on, and cannot be taken up where it is now: %s", error)
            self._failed = True


def remove_old(prefix: Path, now_s: float) -> None:
    """Removes checkpoints of any run that are too old, and what a killed writer left of one."""
    for pattern in (f"{prefix.name}-*", f".{prefix.name}-*"):
        for path in prefix.parent.glob(pattern):
            with suppress(OSError):  # another trainer may have removed or replaced it
                if now_s - path.stat().st_mtime > LIFE_S:
                    path.unlink()


class Kept(msgspec.Struct, frozen=True):
    """What stands beside the tensors.

    Args:
        of: what is being fitted, from what, and how: a checkpoint of anything else is not taken up.
    """

    of: str
    state: State


def save_checkpoint(path: Path, fit: Fit, of: str) -> None:
    """Replaces the checkpoint, whole or not at all.

    Raises:
        OSError: it cannot be written; the one before stays.
    """
    tensors = {_NET + name: tensor for name, tensor in fit.net.state_dict().items()}
    tensors |= {_BEST + name: tensor for name, tensor in fit.best.items()}
    tensors |= {_AVERAGE + name: tensor for name, tensor in fit.average.items()}
    for number, values in fit.optimizer.state_dict()["state"].items():
        tensors |= {f"{_OPTIMIZER}{number}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors[_RANDOM] = torch.get_rng_state()
    if fit.run.device.type == "cuda":
        tensors[_CUDA] = torch.cuda.get_rng_state(fit.run.device)
    state = msgspec.json.encode(Kept(of, fit.state))
    tensors[_STATE] = torch.frombuffer(bytearray(state), dtype=torch.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, render({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def _replace(path: Path, content: bytes) -> None:
    """Sets the file's content, whole or not at all, whoever else does so at the same time."""
    sibling = path.with_name(f".{path.name}.{os.getpid()}")
    sibling.unlink(missing_ok=True)
    try:
        write_new(sibling, content)
        sibling.replace(path)
    except OSError:
        sibling.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def load_checkpoint(path: Path, fit: Fit, of: str) -> bool:
    """Takes a fit up where it was left; False where there is no checkpoint, or one of something else.

    Raises:
        TrainingError: the checkpoint is broken.
    """
    try:
        tensors = parse(read_plain(path, MAX_BYTES))
        kept = msgspec.json.decode(tensors.pop(_STATE).numpy().tobytes(), type=Kept)
    except FileNotFoundError:
        return False
    except (SafetensorError, msgspec.MsgspecError, KeyError, ValueError, OSError) as error:
        raise TrainingError(f"{path}: not a checkpoint: {error}; remove it to start anew") from error
    if kept.of != of:
        return False
    fit.take_up(
        kept.state, _named(tensors, _NET), _named(tensors, _BEST), _named(tensors, _AVERAGE),
        _optimizer(tensors, fit), tensors[_RANDOM], tensors.get(_CUDA),
    )  # fmt: skip
    return True


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _optimizer(tensors: dict[str, Tensor], fit: Fit) -> dict[str, Any]:
    values: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _named(tensors, _OPTIMIZER).items():
        number, _, what = name.partition(".")
        values.setdefault(int(number), {})[what] = tensor
    return {"state": values, "param_groups": fit.optimizer.state_dict()["param_groups"]}
