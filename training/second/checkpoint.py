"""A fit on disk: tensors as safetensors, the rest as JSON, replaced as a whole; no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as render
from torch import Tensor

from ranker.release.durable import read_plain, replace_atomically
from training.errors import TrainingError
from training.second.fit import Fit, State

MAX_BYTES = 1 << 34
_NET, _BEST, _AVERAGE, _OPTIMIZER = "net.", "best.", "average.", "optimizer."
_RANDOM, _CUDA, _STATE = "random", "random_cuda", "state"


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
    replace_atomically(path, render({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def load_checkpoint(path: Path, fit: Fit, of: str) -> bool:
    """Takes a fit up where it was left; False where there is no checkpoint, or one of something else.

    Raises:
        TrainingError: the checkpoint is broken.
    """
    if not path.exists():
        return False
    try:
        tensors = parse(read_plain(path, MAX_BYTES))
        kept = msgspec.json.decode(tensors.pop(_STATE).numpy().tobytes(), type=Kept)
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
