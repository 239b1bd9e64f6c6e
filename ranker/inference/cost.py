"""How long a batch takes: T(n) = a + b·n milliseconds for n tokens, learned from the batches that ran.

A least-squares line through the recent batches of every size, and the 99th percentile of what it missed by, less the
stalls of the machine (see `tail`). The recent batches are kept per octave of n, sixteen each, so that an hour of full
batches does not make it forget what a small one costs, and a constant n cannot tilt the line. Where only one size was
ever seen, a and b cannot be told apart, and the larger of the two lines that agree with it is used: a larger batch
costs in proportion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

PER_OCTAVE = 16
GROWTH = 4
FORGET_AFTER_MS = 1000.0
UNUSUAL = 1.1
OUTLIER = 2.0
BELIEVED = 3
GRACE_MS = 1.0
TAIL_OVER_90 = 3.0
TAIL_EVERY = 16

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
        self._sums = Sums()
        self._fit: Fit | None = None
        self._stale = False
        self._since_tail = 0
        self._stalls = 0
        self._newest: Point = (0.0, 0.0)
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

    @property
    def line(self) -> Point | None:
        """(a with its tail, b) of `predict`: k batches of n tokens in all take k·a + b·n. None unless sloped."""
        line = self._fit if not self._stale else self._fitted()
        return (line.fixed_ms + line.tail_ms, line.per_token_ms) if line is not None and line.sloped else None

    def seed(self, fixed_ms: float, per_token_ms: float, largest: int) -> None:
        """Takes a line as known for batches up to `largest` tokens, until batches of such sizes have run."""
        for name, value in (("fixed_ms", fixed_ms), ("per_token_ms", per_token_ms)):
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} is {value!r}; it must be finite and not negative")
        ends = (1.0, float(max(2, largest)))
        self._seeds = tuple((tokens, fixed_ms + per_token_ms * tokens) for tokens in ends)
        self._keep_seeds()

    def observe(self, tokens: int, took_ms: float, now_ms: float) -> None:
        """Learns from a batch; a time that cannot be is ignored.

        One far off counts as a tenth and a millisecond more than was expected, from the third in a row on as twice.
        """
        if not (math.isfinite(took_ms) and took_ms >= 0.0 and tokens > 0):
            return
        if self.knows(tokens):
            took_ms = self._believed(took_ms, self.predict(tokens))
        self._newest = (float(tokens), took_ms)
        self._keep(*self._newest)
        self._observed_ms = now_ms

    def distrust(self, now_ms: float) -> None:
        """Told that a request was refused which not even an idle device could serve in time.

        If nothing has run for a second, what was learned is forgotten, so that one slow start (or one bad clock)
        cannot refuse a model's traffic for ever. What an operator said is kept.
        """
        if not self._octaves or now_ms - self._observed_ms < FORGET_AFTER_MS:
            return
        if self._observed_ms > -math.inf:
            self._keep_seeds()

    def knows(self, tokens: float) -> bool:
        """Whether a batch of this size can be predicted; if not, one request runs first."""
        line = self._fitted()
        return line is not None and (line.sloped or 2.0 * tokens >= line.lowest)

    def predict(self, tokens: float) -> float:
        """T(n) that 99 of 100 batches keep to, in ms; 0 for a size that nothing is known about."""
        line = self._fit if not self._stale else self._fitted()
        if line is None:
            return 0.0
        if line.highest >= 2.0 * line.lowest:
            return line.fixed_ms + line.per_token_ms * tokens + line.tail_ms
        if 2.0 * tokens < line.lowest:
            return 0.0
        return line.fixed_ms * max(1.0, tokens / line.lowest) + line.tail_ms

    def _believed(self, took_ms: float, predicted_ms: float) -> float:
        # One stall of the machine must not turn away the traffic after it; a device that became slower stays so, and is
        # followed in a few steps.
        usual_ms = UNUSUAL * predicted_ms + GRACE_MS
        self._stalls = self._stalls + 1 if took_ms > usual_ms else 0
        return min(took_ms, usual_ms if self._stalls < BELIEVED else OUTLIER * predicted_ms + GRACE_MS)

    def _keep(self, size: float, took_ms: float) -> None:
        octave = self._octaves.setdefault(int(size).bit_length(), deque(maxlen=PER_OCTAVE))
        if len(octave) == PER_OCTAVE:
            self._sums.count(*octave[0], -1)
        octave.append((size, took_ms))
        self._sums.count(size, took_ms, 1)
        self._since_tail += 1
        self._stale = True

    def _keep_seeds(self) -> None:
        self._octaves.clear()
        self._sums = Sums()
        self._fit = None
        for point in self._seeds:
            self._keep(*point)
        self._observed_ms = -math.inf
        self._stale = True

    def _fitted(self) -> Fit | None:
        if self._stale:
            self._stale = False
            self._fit = self._refit() if self._octaves else None
        return self._fit

    def _refit(self) -> Fit:
        lowest = min(self._octaves[min(self._octaves)])[0]
        highest = max(self._octaves[max(self._octaves)])[0]
        fixed, slope = self._sums.line(highest >= 2.0 * lowest)
        old, newest = self._fit, self._newest
        # The tail is looked for again now and then, and at once when a batch took longer than it allows.
        if old is not None and self._since_tail < TAIL_EVERY and newest[1] <= fixed + slope * newest[0] + old.tail_ms:
            return Fit(fixed, slope, old.tail_ms, lowest, highest)
        self._since_tail = 0
        points = [point for octave in self._octaves.values() for point in octave]
        # Summed afresh, so that what rounding lost to a huge time that has since left does not stay lost.
        self._sums = Sums(points)
        fixed, slope = self._sums.line(highest >= 2.0 * lowest)
        return Fit(fixed, slope, tail(points, fixed, slope), lowest, highest)


class Sums:
    """What a least-squares line needs of its points."""

    __slots__ = ("_crossed", "_points", "_sizes", "_squares", "_took")

    def __init__(self, points: Sequence[Point] = ()) -> None:
        self._points = len(points)
        self._sizes = sum([size for size, _ in points])
        self._squares = sum([size * size for size, _ in points])
        self._took = sum([took for _, took in points])
        self._crossed = sum([size * took for size, took in points])

    def count(self, size: float, took_ms: float, sign: int) -> None:
        """Adds (1) or takes away (-1) a point."""
        self._points += sign
        self._sizes += sign * size
        self._squares += sign * size * size
        self._took += sign * took_ms
        self._crossed += sign * size * took_ms

    def line(self, sloped: bool) -> Point:
        """(fixed, slope) of the best line of which neither part is negative; a level one unless `sloped`."""
        points, mean_took = self._points, self._took / self._points
        fixed, slope = mean_took, 0.0
        if sloped:
            spread = points * self._squares - self._sizes * self._sizes
            slope = max(0.0, (points * self._crossed - self._sizes * self._took) / spread)
            fixed = mean_took - slope * self._sizes / points
            if fixed < 0.0:
                fixed, slope = 0.0, self._crossed / self._squares
        # A thousandth of a microsecond is noise of the arithmetic: an exact deadline must compare as exact.
        return max(0.0, round(fixed, 6)), round(slope, 9)


def tail(points: list[Point], fixed_ms: float, per_token_ms: float) -> float:
    """The 99th percentile of what points take beyond a line, in ms; not below 0.

    No more than three times the 90th: what a cost itself varies by keeps to that (for exponential noise it is 2.8 times
    above the mean), what does not is a stall of the machine. If all traffic had to allow for those, a few in a hundred
    would turn most of an overload away.
    """
    excess = sorted([took - fixed_ms - per_token_ms * size for size, took in points])
    # The largest of fewer than a hundred is no percentile: one stall would speak for all.
    count = len(excess)
    rank = count - 1 if count < PER_OCTAVE else count - 1 - math.ceil(count / 100)
    most = TAIL_OVER_90 * max(0.0, excess[count - 1 - math.ceil(count / 10)]) + GRACE_MS
    return max(0.0, round(min(excess[rank], most), 6))
