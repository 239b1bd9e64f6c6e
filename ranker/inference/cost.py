"""How long a batch takes: T(n) = a + b·n milliseconds for n tokens, learned from the batches that ran.

A least-squares line through the recent batches of every size, and the 99th percentile of what it missed by. The
recent batches are kept per octave of n, sixteen each, so that an hour of full batches does not make it forget what
a small one costs, and a constant n cannot tilt the line. Where only one size was ever seen, a and b cannot be told
apart, and the larger of the two lines that agree with it is used: a larger batch costs in proportion.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

PER_OCTAVE = 16
GROWTH = 4
FORGET_AFTER_MS = 1000.0
OUTLIER = 2.0
GRACE_MS = 1.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Fit:
    """T(n) = fixed_ms + per_token_ms·n, late by at most `tail_ms` in 99 of 100; `lowest` and `highest` n seen."""

    fixed_ms: float
    per_token_ms: float
    tail_ms: float
    lowest: float
    highest: float

    @property
    def sloped(self) -> bool:
        """Whether sizes far enough apart were seen to tell a from b."""
        return self.highest >= 2.0 * self.lowest


class CostModel:
    """What one model's batches cost, from what they did cost."""

    def __init__(self) -> None:
        self._octaves: dict[int, deque[Point]] = {}
        self._seeds: tuple[Point, ...] = ()
        self._line: Fit | None = None
        self._stale = False
        self._observed_ms = -math.inf

    @property
    def seeded(self) -> bool:
        """Whether an operator said what it costs."""
        return bool(self._seeds)

    @property
    def fixed_ms(self) -> float:
        """The cost that a batch has whatever its size; 0 while it cannot be told from the cost per token."""
        line = self._fitted()
        return line.fixed_ms if line is not None and line.sloped else 0.0

    @property
    def per_token_ms(self) -> float:
        """The cost that grows with the batch; 0 while it cannot be told."""
        line = self._fitted()
        return line.per_token_ms if line is not None and line.sloped else 0.0

    @property
    def reach(self) -> float:
        """The most tokens that the next batch may hold: four times the largest seen; 0 while nothing is known."""
        line = self._fitted()
        return 0.0 if line is None else line.highest * GROWTH

    def seed(self, fixed_ms: float, per_token_ms: float, largest: int) -> None:
        """Takes a line as known for batches up to `largest` tokens, until batches of such sizes have run."""
        for name, value in (("fixed_ms", fixed_ms), ("per_token_ms", per_token_ms)):
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} is {value!r}; it must be finite and not negative")
        ends = (1.0, float(max(2, largest)))
        self._seeds = tuple((tokens, fixed_ms + per_token_ms * tokens) for tokens in ends)
        self._octaves.clear()
        self._keep_seeds()

    def observe(self, tokens: int, took_ms: float, now_ms: float) -> None:
        """Learns from a batch; a time that cannot be is ignored, and one far off counts as twice what was expected."""
        if not (math.isfinite(took_ms) and took_ms >= 0.0 and tokens > 0):
            return
        if self.knows(tokens):
            # One stall of the machine must not turn away the traffic after it; a lasting one is learned in a few steps.
            took_ms = min(took_ms, OUTLIER * self.predict(tokens) + GRACE_MS)
        self._octave(tokens).append((float(tokens), took_ms))
        self._observed_ms = now_ms
        self._stale = True

    def distrust(self, now_ms: float) -> None:
        """Told that a request was refused which not even an idle device could serve in time.

        If nothing has run for a second, what was learned is forgotten, so that one slow start (or one bad clock)
        cannot refuse a model's traffic for ever. What an operator said is kept.
        """
        if not self._octaves or now_ms - self._observed_ms < FORGET_AFTER_MS:
            return
        if self._observed_ms > -math.inf:
            self._octaves.clear()
            self._keep_seeds()

    def knows(self, tokens: float) -> bool:
        """Whether a batch of this size can be predicted; if not, one request runs first."""
        line = self._fitted()
        return line is not None and (line.sloped or 2.0 * tokens >= line.lowest)

    def predict(self, tokens: float) -> float:
        """T(n) that 99 of 100 batches keep to, in ms; 0 for a size that nothing is known about."""
        line = self._line if not self._stale else self._fitted()
        if line is None:
            return 0.0
        if line.highest >= 2.0 * line.lowest:
            return line.fixed_ms + line.per_token_ms * tokens + line.tail_ms
        if 2.0 * tokens < line.lowest:
            return 0.0
        return line.fixed_ms * max(1.0, tokens / line.lowest) + line.tail_ms

    def _octave(self, tokens: float) -> deque[Point]:
        return self._octaves.setdefault(int(tokens).bit_length(), deque(maxlen=PER_OCTAVE))

    def _keep_seeds(self) -> None:
        for point in self._seeds:
            self._octave(point[0]).append(point)
        self._observed_ms = -math.inf
        self._stale = True

    def _fitted(self) -> Fit | None:
        if self._stale:
            self._stale = False
            self._line = fit([point for octave in self._octaves.values() for point in octave])
        return self._line


def fit(points: list[Point]) -> Fit | None:
    """The line through (tokens, ms) points, neither part below 0, and the 99th percentile of what exceeds it."""
    if not points:
        return None
    sizes = [point[0] for point in points]
    lowest, highest = min(sizes), max(sizes)
    fixed, slope = _least_squares(points) if highest >= 2.0 * lowest else (_mean([ms for _, ms in points]), 0.0)
    # A thousandth of a microsecond is noise of the arithmetic: an exact deadline must compare as exact.
    fixed, slope = round(fixed, 6), round(slope, 9)
    excess = sorted(ms - fixed - slope * size for size, ms in points)
    return Fit(fixed, slope, max(0.0, round(excess[_rank(len(excess))], 6)), lowest, highest)


def _rank(count: int) -> int:
    # The largest of fewer than a hundred is no percentile: one stall would speak for all.
    return count - 1 if count < PER_OCTAVE else count - 1 - math.ceil(count / 100)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _least_squares(points: list[Point]) -> Point:
    size, took = _mean([n for n, _ in points]), _mean([ms for _, ms in points])
    spread = math.fsum((n - size) ** 2 for n, _ in points)
    slope = math.fsum((n - size) * (ms - took) for n, ms in points) / spread
    if slope < 0.0:
        return took, 0.0
    fixed = took - slope * size
    if fixed < 0.0:
        return 0.0, math.fsum(n * ms for n, ms in points) / math.fsum(n * n for n, _ in points)
    return fixed, slope
