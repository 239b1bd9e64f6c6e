"""Whether an idle device should hold a batch for one more request."""

from __future__ import annotations

import math

from ranker.inference.cost import CostModel

STEP = 1 / 16
LONGEST_GAP_MS = 1000.0


class Gaps:
    """The mean time between a model's arrivals, recent ones counting more."""

    __slots__ = ("last_ms", "mean_ms")

    def __init__(self) -> None:
        self.mean_ms = math.inf
        self.last_ms = -math.inf

    def seen(self, now_ms: float) -> None:
        """Told of an arrival."""
        gap, self.last_ms = now_ms - self.last_ms, now_ms
        if gap > LONGEST_GAP_MS:
            if gap == math.inf:
                return  # the first
            gap = LONGEST_GAP_MS  # a night without traffic says no more about the morning than a second does
        mean = self.mean_ms
        self.mean_ms = gap if mean == math.inf else mean + STEP * (gap - mean)


def hold_until(requests: int, tokens: int, cost: CostModel, gaps: Gaps) -> float:
    """The instant at which one more request is no longer worth waiting for.

    With a gap g to the next arrival, k requests at hand and m tokens each: run now, and the newcomer ends after both
    batches, (T(k·m) − g) + T(m) after it came; wait, and it ends T((k+1)·m) after, a − g earlier. For that each of the
    k ends g + b·m later. So it pays while a − g > k·(g + b·m). A gap that has lasted longer than the mean is taken to
    be as long as it has lasted.
    """
    worth = cost.fixed_ms - cost.per_token_ms * tokens
    if (requests + 1) * gaps.mean_ms >= worth:
        return -math.inf
    return gaps.last_ms + worth / (requests + 1)
