"""The largest of something that still fits: doubling, then halving the gap."""

from __future__ import annotations

from collections.abc import Callable

from ranker.inference.plan_device import plan_device
from ranker.inference.plan_setup import MOST_TOKENS, Setup

Holds = Callable[[int], bool]


def largest(holds: Holds, most: int = MOST_TOKENS) -> int:
    """The largest number from 1 to `most` for which it holds, or 0.

    Args:
        holds: true up to some number and false after it.
    """
    if not holds(1):
        return 0
    low, high = 1, 2
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def largest_batch(setup: Setup) -> int:
    """Histories in a batch that fit at this context; 0 when not even one does."""
    return largest(lambda batch: plan_device(setup.but(batch=batch)).fits)


def largest_context(setup: Setup) -> int:
    """Events per history that fit at this batch; 0 when not even one does."""
    return largest(lambda context: plan_device(shortened(setup, context)).fits)


def shortened(setup: Setup, context: int) -> Setup:
    """With another context; what is new cannot be more."""
    new = setup.load.new_tokens
    return setup.but(context=context, new_tokens=None if new is None else min(new, context))
