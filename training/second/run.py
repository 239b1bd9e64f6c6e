"""What does not change while the second stage is fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranker.second.config import TrainSecond
from ranker.second.vocabulary import UNKNOWN
from training.second.dataset import Window


@dataclass(frozen=True)
class Run:
    """What does not change while fitting.

    Args:
        split_s: questions from here on are held out.
        trained: per head, whether such an outcome was seen.
        worth: of each head.
        shares: [1 + actions] how often each comes next, the unknown first.
    """

    windows: Sequence[Window]
    settings: TrainSecond
    split_s: float
    trained: tuple[bool, ...]
    worth: tuple[float, ...]
    shares: Tensor
    device: torch.device
    autocast: bool


def next_shares(windows: Sequence[Window], actions: int) -> Tensor:
    """[1 + actions] smoothed shares of what comes next; the unknown is the first."""
    counts = np.ones(1 + actions)
    for window in windows:
        numbers = window.next_action[window.next_action >= UNKNOWN] - UNKNOWN
        counts += np.bincount(numbers, minlength=1 + actions)
    return torch.from_numpy(counts / counts.sum())


def decide_split(windows: Sequence[Window], held_out: float) -> float:
    """The time from which questions are held out: the last share of them."""
    times = np.sort([question.now_s for window in windows for question in window.questions])
    return float(times[min(int(len(times) * (1.0 - held_out)), len(times) - 1)]) if len(times) else math.inf
