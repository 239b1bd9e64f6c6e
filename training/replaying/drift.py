"""Drift of a column against a reference: bins frozen from the reference, one for unknown and one for missing.

p̂ = (c + ½) / (n + ½K). What is reported is KL(p̂‖q) and PSI; whether that is much depends on how far the same
traffic differs from itself, which a fixed threshold does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BINS = 10
UNKNOWN, MISSING = "unknown", "missing"


class Drift(msgspec.Struct, frozen=True):
    """Of one column.

    Args:
        kl, psi: KL(now‖reference) and the symmetric sum; None without rows on either side.
        reference_rows, rows: how many each rests on.
        missing, reference_missing: shares that are no number.
        unknown: share beyond the reference's range.
        note: `constant` where the reference never varied, `all_missing` where nothing is a number now.
    """

    kl: float | None
    psi: float | None
    reference_rows: int
    rows: int
    missing: float
    reference_missing: float
    unknown: float
    note: str = ""


@dataclass(frozen=True)
class FrozenBins:
    """Edges between the bins of a reference, its range, and its counts.

    Args:
        counts: [bins + 2], the last two for unknown and missing.
    """

    edges: Floats
    low: float
    high: float
    counts: Floats

    @classmethod
    def of(cls, reference: ArrayLike, bins: int = BINS) -> FrozenBins:
        """Bins of equal counts of a reference's numbers; none are wider than what it held."""
        values = np.asarray(reference, np.float64)
        known = values[np.isfinite(values)]
        if not known.size:
            return cls(np.zeros(0), np.inf, -np.inf, np.array([0.0, 0.0, float(len(values))]))
        edges = np.unique(np.quantile(known, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
        edges = edges[edges > known.min()]
        frozen = cls(edges, float(known.min()), float(known.max()), np.zeros(0))
        return cls(edges, frozen.low, frozen.high, frozen.count(values))

    def count(self, values: ArrayLike) -> Floats:
        """How many fall into each bin [bins + 2]."""
        found = np.asarray(values, np.float64)
        size = len(self.edges) + 3
        place = np.searchsorted(self.edges, found, side="right")
        place = np.where((found < self.low) | (found > self.high), size - 2, place)
        place = np.where(np.isfinite(found), place, size - 1)
        return np.asarray(np.bincount(place, minlength=size), np.float64)


def shares(counts: Floats) -> Floats:
    """(c + ½) / (n + ½K)."""
    return np.asarray((counts + 0.5) / (counts.sum() + 0.5 * len(counts)), np.float64)


def kl(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p‖q) in nats, of shares above 0."""
    left, right = np.asarray(p, np.float64), np.asarray(q, np.float64)
    return float((left * np.log(left / right)).sum())


def psi(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p‖q) + KL(q‖p)."""
    return kl(p, q) + kl(q, p)


def drift(reference: ArrayLike, now: ArrayLike, bins: int = BINS) -> Drift:
    """How far a column has moved.

    Args:
        reference, now: [rows]; NaN is missing, and infinite is too.
    """
    before, after = np.asarray(reference, np.float64), np.asarray(now, np.float64)
    frozen = FrozenBins.of(before, bins)
    counts = frozen.count(after) if np.isfinite(frozen.low) else np.array([0.0, 0.0, float(len(after))])
    rows = max(len(after), 1)
    known = before[np.isfinite(before)]
    note = "constant" if known.size and np.ptp(known) == 0.0 else ""
    note = "all_missing" if len(after) and counts[-1] == len(after) else note
    p, q = shares(counts), shares(frozen.counts)
    enough = bool(len(before) and len(after))
    return Drift(
        kl=kl(p, q) if enough else None,
        psi=psi(p, q) if enough else None,
        reference_rows=len(before),
        rows=len(after),
        missing=float(counts[-1] / rows),
        reference_missing=float(frozen.counts[-1] / max(len(before), 1)),
        unknown=float(counts[-2] / rows),
        note=note,
    )


def column_drifts(reference: NDArray[Any], now: NDArray[Any], names: tuple[str, ...]) -> dict[str, Drift]:
    """Of each column of [rows, columns]."""
    return {name: drift(reference[:, place], now[:, place]) for place, name in enumerate(names)}
