"""Whether a log can carry an estimate at all: four conditions, all needed, each with its figure.

Every propensity is finite and in (0, 1] (what is not was rejected and counted before); |mean w − 1| ≤ 4·SE;
effective sample size (Σw)²/Σw² ≥ 200; the largest weight ≤ 5 % of Σw. Where a slate has several slots each
must hold in every slot.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from training.intervals import clustered_se
from training.off_policy.slates import Floats

MAX_MEAN_ERRORS = 4.0
MIN_EFFECTIVE = 200.0
MAX_SHARE = 0.05
MIN_USERS = 2
TOO_LARGE = 1e290
"""The sum of such weights would be no number."""


class Refusal(msgspec.Struct, frozen=True):
    """A condition that does not hold.

    Args:
        figure: what was found; None where it is no finite number.
        needed: what would have done.
    """

    condition: str
    figure: float | None
    needed: str


class Overlap(msgspec.Struct, frozen=True):
    """How far the log covers the target; over several slots each figure is that of the worst.

    Args:
        mean_weight, mean_weight_se: 1 is expected; clustered by user.
        effective_sample_size: (Σw)² / Σw².
        largest_weight, largest_share: the largest w, and its share of Σw.
        overflowed: weights of TOO_LARGE or more, or no number at all.
    """

    slates: int
    users: int
    mean_weight: float | None
    mean_weight_se: float | None
    effective_sample_size: float
    largest_weight: float | None
    largest_share: float | None
    overflowed: int
    refusals: list[Refusal]

    @property
    def enough(self) -> bool:
        """Whether an estimate may be shown."""
        return not self.refusals


def overlap_of(w: Floats, users: NDArray[Any]) -> Overlap:
    """The conditions for weights w [slates, slots]."""
    people = len(np.unique(users))
    overflowed = int(np.count_nonzero(~(w < TOO_LARGE)))
    if not len(w) or overflowed:
        return _no_figures(w, people, overflowed)
    means = w.mean(axis=0)
    errors = np.array([clustered_se(column - column.mean(), users) for column in w.T])
    largest = w.max(axis=0)
    # Relative to the largest, so that no square overflows.
    scaled = w / np.where(largest > 0.0, largest, 1.0)
    squares = (scaled**2).sum(axis=0)
    effective = np.divide(scaled.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0.0)
    totals = w.sum(axis=0)
    shares = np.divide(largest, totals, out=np.ones_like(totals), where=totals > 0.0)
    worst = int(np.argmax(_in_errors(means, errors)))
    found = Overlap(
        len(w), people, float(means[worst]), float(errors[worst]), float(effective.min()), float(largest.max()),
        float(shares.max()), 0, [],
    )  # fmt: skip
    return msgspec.structs.replace(found, refusals=_refusals(found))


def _in_errors(means: Floats, errors: Floats) -> Floats:
    """|mean w − 1| in standard errors; a mean that does not vary is either right or infinitely far."""
    gaps = np.abs(means - 1.0)
    exact = np.where(gaps > 1e-9, np.inf, 0.0)
    return np.divide(gaps, errors, out=exact, where=errors > 0.0)


def _no_figures(w: Floats, users: int, overflowed: int) -> Overlap:
    refusals = [Refusal("slates", 0.0, "at least 1")] if not len(w) else []
    if overflowed:
        refusals.append(Refusal("weights_finite", float(overflowed), "no weight that overflows"))
    return Overlap(len(w), users, None, None, 0.0, None, None, overflowed, refusals)


def _refusals(found: Overlap) -> list[Refusal]:
    assert found.mean_weight is not None and found.mean_weight_se is not None and found.largest_share is not None
    errors = float(_in_errors(np.array([found.mean_weight]), np.array([found.mean_weight_se]))[0])
    mean = f"|mean weight - 1| at most {MAX_MEAN_ERRORS:g} standard errors"
    checks = (
        (errors <= MAX_MEAN_ERRORS, Refusal("mean_weight", errors if np.isfinite(errors) else None, mean)),
        (
            found.effective_sample_size >= MIN_EFFECTIVE,
            Refusal("effective_sample_size", found.effective_sample_size, f"at least {MIN_EFFECTIVE:g}"),
        ),
        (found.largest_share <= MAX_SHARE, Refusal("largest_weight", found.largest_share, f"at most {MAX_SHARE:g}")),
        (
            found.users >= MIN_USERS,
            Refusal("users", float(found.users), f"at least {MIN_USERS}: intervals are by user"),
        ),
    )
    return [refusal for holds, refusal in checks if not holds]
