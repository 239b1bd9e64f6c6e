"""A score as a probability of completion: learned on the first half of the offers, judged on the second.

Scores of a ranker are no probabilities. Shares of completions in bins of equal counts of the first half make them
so; what is judged is whether they still hold later, which is what exploration and every threshold on scores rest on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.gates.evidence import Evidence, Floats
from training.gates.finding import OK, Finding
from training.gates.settings import GateSettings
from training.metrics import calibration_error

RULE = "calibration"
BINS = 10


def calibration(evidence: Evidence, settings: GateSettings) -> Finding:
    """Stops when the error is beyond its limit, or above the baseline's by more than the margin for sure."""
    offers, limits = evidence.offers, settings.calibration
    size = len(offers.completed)
    if size < limits.min_offers or not offers.completed.any() or offers.completed.all():
        few = f"{size} offers of which {int(offers.completed.sum())} were completed, {limits.min_offers} are needed"
        return Finding(RULE, "hold", "few_offers", few, {"offers": size})
    half = size // 2
    clusters = offers.clusters[half:]
    ours, theirs = (
        _judged(scores, offers.completed, half) for scores in (offers.scores.candidate, offers.scores.baseline)
    )
    labels = offers.completed[half:]
    error, other = (calibration_error(each, labels, BINS) or 0.0 for each in (ours, theirs))
    low, high = _difference(ours, theirs, labels, clusters, settings)
    figures = {"offers": size, "error": error, "baseline_error": other, "difference": [error - other, low, high]}
    told = f"calibration error {error:.4f}, the baseline's {other:.4f} (difference {low:+.4f} … {high:+.4f})"
    if error > limits.max_error:
        return Finding(RULE, "stop", "calibration_error", f"{told}: over {limits.max_error:g}", figures)
    if low > limits.margin:
        return Finding(RULE, "stop", "calibration_worse", f"{told}: more than {limits.margin:g} worse", figures)
    return Finding(RULE, "ship", OK, told, figures)


def _judged(scores: Floats, completed: NDArray[np.bool_], half: int) -> Floats:
    """Probabilities of the second half by the shares of the first."""
    edges = np.unique(np.quantile(scores[:half], np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
    first, later = (np.searchsorted(edges, each, side="right") for each in (scores[:half], scores[half:]))
    counts = np.bincount(first, minlength=len(edges) + 1)
    done = np.bincount(first, completed[:half].astype(np.float64), len(edges) + 1)
    whole = float(completed[:half].mean())
    shares = (done + whole) / (counts + 1.0)  # one more offer like all the others, so that no bin is without
    return np.asarray(shares[later], np.float64)


def _difference(
    ours: Floats, theirs: Floats, labels: NDArray[np.bool_], clusters: NDArray[np.int64], settings: GateSettings
) -> tuple[float, float]:
    """Interval of the difference of the two errors, whole clusters drawn with replacement."""
    _, codes = np.unique(clusters, return_inverse=True)
    groups = int(codes.max()) + 1
    gaps = [_gaps(each, labels, codes, groups) for each in (ours, theirs)]
    sizes = np.bincount(codes, minlength=groups).astype(np.float64)
    rng = np.random.default_rng(settings.seed)
    counts = rng.multinomial(groups, np.full(groups, 1.0 / groups), settings.draws).astype(np.float64)
    errors = [np.abs(counts @ each).sum(axis=1) / (counts @ sizes) for each in gaps]
    low, high = np.quantile(errors[0] - errors[1], [(1.0 - settings.level) / 2.0, (1.0 + settings.level) / 2.0])
    return float(low), float(high)


def _gaps(probabilities: Floats, labels: NDArray[np.bool_], codes: NDArray[np.int64], groups: int) -> Floats:
    """[groups, bins], Σ(p − label), as the calibration error sums them."""
    bucket = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    cells = np.bincount(codes * BINS + bucket, probabilities - labels, groups * BINS)
    return np.asarray(cells.reshape(groups, BINS), np.float64)
