"""Where to put a text scorer's threshold so that few unsafe texts pass, and what that costs in good ones.

Conformal risk control holds the expected share of misses; Learn-then-Test holds it with a confidence. Both take
the scores of unsafe texts that the scorer did not learn from; methods.md, "Safety".
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from training.errors import TrainingError
from training.safety import Share, bounds, risk_threshold

Method = Literal["ltt", "conformal"]
METHODS: tuple[Method, ...] = ("ltt", "conformal")
SHOWN_MISSES = 6

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Threshold(msgspec.Struct, frozen=True):
    """A threshold, flagged being at or above it, and what it does to the cases that it was chosen by.

    Args:
        value: None where there are too few unsafe cases: then everything has to be flagged.
        allowed: unsafe cases that may lie below it; −1 where it is infeasible.
        needed: least number of unsafe cases with which the method can say anything at this limit.
        missed: unsafe cases below it (false negatives), with one-sided bounds, each at the confidence.
        withheld: safe cases at or above it (false positives), likewise.
    """

    method: Method
    value: float | None
    feasible: bool
    allowed: int
    needed: int
    missed: Share
    withheld: Share


class Calibration(msgspec.Struct, frozen=True):
    """Thresholds of both methods for one limit.

    Args:
        limit: largest share of unsafe texts that may pass.
        confidence: 1 − δ of Learn-then-Test, and of all bounds.
        needed_by_misses: unsafe cases that Learn-then-Test needs to allow 0, 1, 2, … misses.
    """

    limit: float
    confidence: float
    unsafe: int
    safe: int
    conformal: Threshold
    ltt: Threshold
    needed_by_misses: list[int]

    def by(self, method: Method) -> Threshold:
        """The one of a method."""
        return self.ltt if method == "ltt" else self.conformal


def calibrate(scores: ArrayLike, unsafe: ArrayLike, limit: float, confidence: float) -> Calibration:
    """Thresholds by both methods.

    Args:
        scores: [cases], the higher the likelier unsafe; of texts that the scorer did not learn from.
        unsafe: [cases], true or false.
        limit, confidence: between 0 and 1.

    Raises:
        TrainingError: a score is not finite, lengths differ, or limit or confidence is out of range.
    """
    figures, truth = np.asarray(scores, np.float64), np.asarray(unsafe, np.bool_)
    _check(figures, truth, limit, confidence)
    count = int(truth.sum())
    conformal = _chosen("conformal", figures, truth, risk_threshold(figures[truth], limit), (limit, confidence))
    ltt = _chosen("ltt", figures, truth, ltt_threshold(figures[truth], limit, confidence), (limit, confidence))
    needed = [needed_unsafe(misses, limit, confidence) for misses in range(SHOWN_MISSES)]
    return Calibration(limit, confidence, count, len(truth) - count, conformal, ltt, needed)


def conformal_misses(unsafe: int, limit: float) -> int:
    """k = ⌊α(n+1)⌋ − 1; −1 says infeasible. 1e-9 as in `risk_threshold`."""
    return int(np.floor(limit * (unsafe + 1) + 1e-9)) - 1


def allowed_misses(unsafe: int, limit: float, confidence: float) -> int:
    """The most misses k among n unsafe cases with P(Bin(n, limit) ≤ k) ≤ δ; −1 where not even none will do.

    Fixed-sequence testing from the strictest threshold on, each null tested at δ: it stops at the first that
    cannot be rejected, and p-values rise with k. The same as an upper Clopper–Pearson bound of at most `limit`.
    """
    # The 1e-12 is for δ = 1 − confidence, which is a rounding off the δ that was meant.
    delta = 1.0 - confidence + 1e-12
    k = int(binom.ppf(delta, unsafe, limit))
    while k >= 0 and binom.cdf(k, unsafe, limit) > delta:
        k -= 1
    return min(k, unsafe - 1)


def ltt_threshold(unsafe_scores: ArrayLike, limit: float, confidence: float) -> float | None:
    """Learn-then-Test: the highest threshold with P(share of misses > limit) ≤ 1 − confidence.

    The threshold is s₍ₖ₊₁₎ of the ascending scores, k = `allowed_misses`; of equal scores all are flagged, so
    ties only lower the misses. None: too few cases.

    Args:
        unsafe_scores: [n], of unsafe texts that were not learned from.
    """
    ordered = np.sort(np.asarray(unsafe_scores, np.float64))
    k = allowed_misses(len(ordered), limit, confidence)
    return None if k < 0 else float(ordered[k])


def needed_unsafe(misses: int, limit: float, confidence: float) -> int:
    """The least number of unsafe cases among which so many misses are allowed."""
    low, high = misses, 2 * misses + 2
    while allowed_misses(high, limit, confidence) < misses:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed_misses(middle, limit, confidence) >= misses else (middle, high)
    return high


def judge(scores: Floats, unsafe: Bools, threshold: float | None, confidence: float) -> tuple[Share, Share]:
    """Unsafe cases that a threshold lets pass, and safe ones that it withholds; None flags everything."""
    flagged = np.ones(len(scores), np.bool_) if threshold is None else scores >= threshold
    missed = bounds(int((unsafe & ~flagged).sum()), int(unsafe.sum()), confidence)
    withheld = bounds(int((~unsafe & flagged).sum()), int((~unsafe).sum()), confidence)
    return missed, withheld


def said(found: Calibration, method: Method) -> str:
    """One sentence: whether the limit can be held, and at what cost; or how many more cases it takes."""
    chosen = found.by(method)
    surely = f" with confidence {found.confidence:g}" if method == "ltt" else " in expectation"
    if not chosen.feasible:
        return (
            f"infeasible: {found.unsafe:,} unsafe cases cannot hold misses to {found.limit:.2%}{surely}; at least "
            f"{chosen.needed:,} are needed, {chosen.needed - found.unsafe:,} more; only flagging all would hold it"
        )
    cost = "an unknown share" if chosen.withheld.share is None else f"{chosen.withheld.share:.1%}"
    return (
        f"flagging from {chosen.value:.4f} on holds misses to {found.limit:.2%}{surely} and withholds {cost} of good "
        f"text; {chosen.missed.count:,} of {found.unsafe:,} unsafe cases pass"
    )


def _chosen(
    method: Method, scores: Floats, unsafe: Bools, value: float | None, asked: tuple[float, float]
) -> Threshold:
    limit, confidence = asked
    count = int(unsafe.sum())
    if method == "ltt":
        allowed, needed = allowed_misses(count, limit, confidence), needed_unsafe(0, limit, confidence)
    else:
        allowed, needed = conformal_misses(count, limit), int(np.ceil(1.0 / limit - 1e-9)) - 1
    return Threshold(method, value, value is not None, allowed, needed, *judge(scores, unsafe, value, confidence))


def _check(scores: Floats, unsafe: Bools, limit: float, confidence: float) -> None:
    for name, share in (("limit", limit), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise TrainingError(f"{name} {share} is not between 0 and 1")
    if scores.ndim != 1 or scores.shape != unsafe.shape:
        raise TrainingError(f"scores of shape {scores.shape} and labels of shape {unsafe.shape} are not one per case")
    if not np.isfinite(scores).all():
        at = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise TrainingError(f"score {scores[at]} of case {at + 1} is not finite")
