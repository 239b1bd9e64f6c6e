"""What the service's draw does in each slot: given the list above it, and whatever is above it.

The next item is a with probability e^u(a) / Σ e^u over those left in a share ε of orders, else the greedy one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranker.propensity import Exploration, agreement, slot_propensities
from training.off_policy.slates import Floats

LOWEST = -700.0
"""Utilities below the best by more than this are taken for this much: e⁻⁷⁰⁰ is the least that floats hold well."""
_STEP = 0.25
_LEFT = 36.0
_RIGHT = 4.5


def given_above(scores: Floats, shown: Sequence[int], greedy: Sequence[int], exploration: Exploration) -> Floats:
    """P(item in this slot | the items shown above it) [slots, items]; 0 below a list that is never shown.

    Args:
        scores: [items].
        shown: rows in the order shown; the list above each slot is what it shows there.
        greedy: all rows in the greedy order.
    """
    slots, epsilon = len(shown), exploration.epsilon
    chances = np.zeros((slots, len(scores)))
    utilities = exploration.utilities(scores)
    agreeing = agreement(shown, greedy[:slots])
    left = np.ones(len(scores), np.bool_)
    share = _drawn_shares(utilities, shown, agreeing, epsilon)
    for slot, row in enumerate(shown):
        drawn = np.where(left, np.exp(utilities - np.logaddexp.reduce(utilities[left])), 0.0)
        chances[slot] = share[slot] * drawn
        if slot <= agreeing and share[slot] < 1.0:
            chances[slot, greedy[slot]] += 1.0 - share[slot]
        left[row] = False
    return chances


def _drawn_shares(utilities: Floats, shown: Sequence[int], agreeing: int, epsilon: float) -> Floats:
    """P(the order is drawn | the list above each slot) [slots]; 0 everywhere without exploration.

    What is shown below the first difference from the greedy order can only have been drawn.
    """
    slots = len(shown)
    if epsilon <= 0.0:
        return np.zeros(slots)
    rest = [row for row in range(len(utilities)) if row not in set(shown)]
    order = utilities[[*shown, *rest]]
    drawn = np.cumprod(slot_propensities(order, 0, 1.0, slots))
    above = np.concatenate([[1.0], drawn[:-1]])
    fixed = np.where(np.arange(slots) <= agreeing, 1.0 - epsilon, 0.0)
    return epsilon * above / np.maximum(epsilon * above + fixed, np.finfo(np.float64).tiny)


def in_slots(scores: Floats, slots: int, greedy: Sequence[int], exploration: Exploration) -> Floats:
    """P(item in this slot), whatever is above it [slots, items]."""
    slots = min(slots, len(scores))
    chances = np.zeros((slots, len(scores)))
    if exploration.epsilon > 0.0:
        chances = exploration.epsilon * drawn_in_slots(exploration.utilities(scores), slots)
    chances[np.arange(slots), list(greedy[:slots])] += 1.0 - exploration.epsilon
    return chances


def drawn_in_slots(utilities: Floats, slots: int) -> Floats:
    """P(item in this slot) of a Plackett–Luce order [slots, items], to about 1e-13.

    Items arrive at exponential times of rate e^u, and the order is that of their arrival: item a is k-th with
    probability ∫ a's density at t × P(k − 1 of the others came before t) dt. In log t the integrand is analytic and
    dies off on both sides, so the trapezoidal rule converges exponentially.
    """
    rates = np.exp(np.maximum(utilities - utilities.max(), LOWEST))
    if slots == 1:
        return np.asarray((rates / rates.sum())[None, :], np.float64)
    last = np.sort(rates)[::-1][min(slots, len(rates)) - 1]
    start, end = -_LEFT - np.log(rates.sum()), _RIGHT - np.log(last)
    times = np.exp(np.arange(start, end, _STEP))
    gone = -np.expm1(-times[:, None] * rates)  # [nodes, items]
    others = _counts_without_each(gone, slots)
    density = _STEP * times[:, None] * rates * np.exp(-times[:, None] * rates)
    return np.asarray(np.einsum("ni,nik->ki", density, others), np.float64)


def _counts_without_each(gone: Floats, slots: int) -> Floats:
    """P(exactly j of the other items are gone), j < slots: [nodes, items, slots].

    Of those before and those after each item apart, then both together: dividing an item out would lose digits.
    """
    before, after = _running_counts(gone, slots), _running_counts(gone[:, ::-1], slots)[:, ::-1]
    both = np.zeros_like(before)
    for many in range(slots):
        for few in range(many + 1):
            both[:, :, many] += before[:, :, few] * after[:, :, many - few]
    return both


def _running_counts(gone: Floats, slots: int) -> Floats:
    """P(exactly j of the items left of each are gone), j < slots: [nodes, items, slots]."""
    nodes, items = gone.shape
    counts = np.zeros((nodes, items, slots))
    now = np.zeros((nodes, slots))
    now[:, 0] = 1.0
    for item in range(items):
        counts[:, item] = now
        moved = now * gone[:, item, None]
        now = now - moved
        now[:, 1:] += moved[:, :-1]
    return counts
