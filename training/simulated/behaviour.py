"""What a person does with a list: sees, completes, slips, tries, dismisses, and later does it by himself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Behaviour:
    """Probabilities of the position-based model and of what follows a view.

    Args:
        examination: by position from 1, that it is looked at; the last one holds for all further positions.
        accidental: by position likewise, that a seen offer which is not completed is accepted by accident
            and undone or dismissed within `slip_s` seconds.
        trial: that one which is neither is accepted on purpose but not completed.
        dismissal: that one which is none of these is dismissed.
        reuse: that a completed action is done again by himself within `reuse_s` seconds.
    """

    examination: tuple[float, ...] = (0.95, 0.7, 0.5, 0.35)
    accidental: tuple[float, ...] = (0.08, 0.03)
    trial: float = 0.02
    dismissal: float = 0.06
    reuse: float = 0.25
    slip_s: float = 6.0
    reuse_s: float = 12 * 3600.0

    def __post_init__(self) -> None:
        chances = (*self.examination, *self.accidental, self.trial, self.dismissal, self.reuse)
        if not (self.examination and self.accidental and all(0.0 <= chance <= 1.0 for chance in chances)):
            raise ValueError(f"{self} has an empty list, or a probability outside [0, 1]")

    def examined(self, position: int) -> float:
        """Probability that the offer at this position (from 1) is looked at."""
        return self.examination[min(position, len(self.examination)) - 1]

    def slips(self, position: int) -> float:
        """Probability of an accidental accept, seen and not completed, at this position (from 1)."""
        return self.accidental[min(position, len(self.accidental)) - 1]


@dataclass(frozen=True)
class Deed:
    """One thing that a person does after an offer.

    Args:
        kind: a type of feedback, or `reuse`.
        slot: place in the list, from 0.
        delay_s: seconds after the ranking.
    """

    kind: str
    slot: int
    delay_s: float


def react(rng: np.random.Generator, truths: Sequence[float], behaviour: Behaviour) -> list[Deed]:
    """What follows a list, each slot for itself as in the position-based model.

    Args:
        truths: per slot, probability of completion given a view.
    """
    deeds: list[Deed] = []
    for slot, truth in enumerate(truths):
        if rng.random() < behaviour.examined(slot + 1):
            seen_s = 0.4 + 0.6 * slot + float(rng.exponential(0.5))
            deeds.append(Deed("seen", slot, seen_s))
            deeds += _after_view(rng, slot, seen_s, truth, behaviour)
    return deeds


def _after_view(rng: np.random.Generator, slot: int, seen_s: float, truth: float, behaviour: Behaviour) -> list[Deed]:
    accept_s = seen_s + 0.5 + float(rng.exponential(3.0))
    if rng.random() < truth:
        return _complete(rng, slot, accept_s, behaviour)
    if rng.random() < behaviour.slips(slot + 1):
        regret_s = accept_s + float(rng.uniform(0.5, behaviour.slip_s))
        return [Deed("accept", slot, accept_s), Deed("undo" if rng.random() < 0.5 else "dismiss", slot, regret_s)]
    if rng.random() < behaviour.trial:
        return [Deed("accept", slot, accept_s)]
    if rng.random() < behaviour.dismissal:
        return [Deed("dismiss", slot, accept_s)]
    return []


def _complete(rng: np.random.Generator, slot: int, accept_s: float, behaviour: Behaviour) -> list[Deed]:
    done_s = accept_s + 1.0 + float(rng.exponential(15.0))
    deeds = [Deed("accept", slot, accept_s), Deed("complete", slot, done_s)]
    if rng.random() < behaviour.reuse:
        deeds.append(Deed("reuse", slot, done_s + float(rng.uniform(0.05, 1.0)) * behaviour.reuse_s))
    return deeds
