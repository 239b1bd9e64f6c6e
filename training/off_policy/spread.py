"""How far an estimate may be off: its linearised interval, and the bootstrap of its ratio, both by user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from training.intervals import clustered_se, resampled_ratios
from training.off_policy.estimate import Estimate
from training.off_policy.weights import WEIGHTS

MAX_DRAWN = 2e8
MIN_DRAWS = 200


class Shown(msgspec.Struct, frozen=True):
    """An estimate as it is reported, per slate.

    Args:
        se, low, high: linearised; None for the direct method, whose error is its model's, which nothing here measures.
        bootstrap: low and high of the bootstrap.
        limit, dropped: λ and the mass it drops, where there is one.
    """

    value: float
    se: float | None
    low: float | None
    high: float | None
    bootstrap: tuple[float, float] | None
    limit: float | None = None
    dropped: float | None = None


def spread(
    estimates: Mapping[str, Estimate], users: NDArray[Any], seed: int = 0, draws: int = 1000, level: float = 0.95
) -> dict[str, Shown]:
    """All estimates of the same slates with their intervals; the bootstrap draws the same users for each."""
    bounds = _bootstrap(
        {name: found for name, found in estimates.items() if _has_weights(name)}, users, seed, draws, level
    )
    z = float(ndtri((1.0 + level) / 2.0))
    return {name: _shown(name, found, users, z, bounds.get(name)) for name, found in estimates.items()}


def _has_weights(name: str) -> bool:
    return WEIGHTS[name].ratio is not None


def _shown(name: str, found: Estimate, users: NDArray[Any], z: float, bounds: tuple[float, float] | None) -> Shown:
    if not _has_weights(name):
        return Shown(found.value, None, None, None, None)
    se = clustered_se(found.influence, users, small=not WEIGHTS[name].normalised)
    low, high = found.value - z * se, found.value + z * se
    return Shown(found.value, se, low, high, bounds, found.limit, found.dropped)


def _bootstrap(
    estimates: Mapping[str, Estimate], users: NDArray[Any], seed: int, draws: int, level: float
) -> dict[str, tuple[float, float]]:
    if not estimates or not draws:
        return {}
    draws = max(MIN_DRAWS, min(draws, int(MAX_DRAWN / max(len(np.unique(users)), 1))))
    above = np.concatenate([found.numerators for found in estimates.values()], axis=1)
    below = np.concatenate([found.denominators for found in estimates.values()], axis=1)
    ratios = resampled_ratios(above, below, users, seed, draws)
    ends = np.cumsum([found.numerators.shape[1] for found in estimates.values()])[:-1]
    ranks = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    bounds = {}
    for name, columns in zip(estimates, np.split(ratios, ends, axis=1), strict=True):
        low, high = np.nanquantile(columns.sum(axis=1), ranks)
        bounds[name] = (float(low), float(high))
    return bounds
