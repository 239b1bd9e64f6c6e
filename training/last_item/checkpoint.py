"""Where a training stands, in one file that is whole or not there: after a kill it goes on from the last epoch kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as render
from torch import Tensor

from ranker.release.durable import read_plain, replace_atomically
from training.last_item.errors import LastItemError

_MOST_BYTES = 1 << 34
_NUMBERS = "__numbers__"


class Standing(msgspec.Struct, forbid_unknown_fields=True):
    """The numbers of a training under way.

    Args:
        key: of what is trained on and how; a checkpoint of anything else is not used.
        epoch: epochs done.
        steps: updates done.
        best, best_epoch: NDCG@10 on the validation items, of the epoch whose weights are kept.
        likeliest, likeliest_epoch: their mean log-likelihood, of the epoch after which it grew no more.
        taken_s: time that the epochs took, seconds.
    """

    key: str
    epoch: int = 0
    steps: int = 0
    best: float = -1.0
    best_epoch: int = 0
    likeliest: float = -1e9
    likeliest_epoch: int = 0
    taken_s: float = 0.0
    curve: list[float] = []
    losses: list[float] = []


@dataclass(frozen=True)
class Checkpoints:
    """Keeps the standing of one training.

    Args:
        path: of the file; None keeps nothing.
    """

    path: Path | None
    key: str

    def load(self) -> tuple[Standing, dict[str, Tensor]] | None:
        """What was kept, None where nothing is, or another training's.

        Raises:
            LastItemError: the file is broken.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            tensors = parse(read_plain(self.path, _MOST_BYTES))
            standing = msgspec.json.decode(tensors.pop(_NUMBERS).numpy().tobytes(), type=Standing)
        except (OSError, ValueError, KeyError, SafetensorError, msgspec.MsgspecError) as error:
            raise LastItemError(f"{self.path}: not a checkpoint: {error}; remove it to start anew") from error
        return (standing, tensors) if standing.key == self.key else None

    def save(self, standing: Standing, tensors: Mapping[str, Tensor]) -> None:
        """Keeps it in place of what was kept before.

        Raises:
            OSError: it cannot be written.
        """
        if self.path is None:
            return
        numbers = torch.frombuffer(bytearray(msgspec.json.encode(standing)), dtype=torch.uint8)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(self.path, render({**_plain(tensors), _NUMBERS: numbers}))

    def clear(self) -> None:
        """Forgets it."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def key_of(*parts: Any) -> str:
    """A key that differs when any part does."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
