"""What a slot is worth, by name: usefulness (the labels' gain), and completions, accepts and dismissals apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from features.label_config import Gains
from training.labels import Labels, Pair, RankingName, accepted, completed, dismissed, gain_of
from training.off_policy.slates import Floats

USEFULNESS = "usefulness"

Reward = Callable[[int, Gains], float]
"""From the outcome bits of an item."""

REWARDS: Mapping[str, Reward] = {
    USEFULNESS: gain_of,
    "completions": lambda bits, _: float(completed(bits)),
    "accepts": lambda bits, _: float(accepted(bits)),
    "dismissals": lambda bits, _: float(dismissed(bits)),
}
"""An accident is no accept; completions count what was carried through."""


def rewards_of(labels: Labels, name: RankingName, pairs: Iterable[Pair]) -> dict[str, Floats] | None:
    """By reward, one number per pair; None for a ranking without labels."""
    bits = labels.bits.get(name)
    if bits is None:
        return None
    gains, found = labels.settings.gains, [bits.get(pair, 0) for pair in pairs]
    return {reward: np.array([of(each, gains) for each in found], np.float64) for reward, of in REWARDS.items()}
