"""Learns the text scorer of the safety stage from labelled texts, and says what it misses and costs.

Three parts of the file: one to fit, one to set the threshold by conformal risk control, one to judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.stats import beta

from ranker.safety_text import TextScorer, buckets
from training.metrics import auc
from training.safety_labels import Bools, LabelError, Labels, read_labels, split_labels

__all__ = ["LabelError", "SafetyReport", "SafetySettings", "Share", "TrainedSafety", "train_safety"]

MODEL_FILE = "safety.safetensors"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SafetySettings:
    """How the scorer is learned.

    Args:
        alpha: largest expected share of unsafe texts that pass.
        bits: log2 of the number of weights.
        strength: of the L2 penalty on the weights.
        shares: of the rows used to fit, to calibrate and to judge.
    """

    alpha: float = 0.005
    seed: int = 0
    bits: int = 16
    strength: float = 1e-4
    shares: tuple[float, float, float] = (0.5, 0.3, 0.2)

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha {self.alpha} is not between 0 and 1")
        if min(self.shares) <= 0.0 or abs(sum(self.shares) - 1.0) > 1e-9:
            raise ValueError(f"shares {self.shares} are not all above 0 with sum 1")


class Share(msgspec.Struct, frozen=True):
    """A share of cases with its one-sided 95 % Clopper–Pearson bounds; None without cases."""

    count: int
    of: int
    share: float | None
    lower: float | None
    upper: float | None


class SafetyReport(msgspec.Struct, frozen=True):
    """What was learned from how much, what it misses, and what that costs in good text.

    Args:
        feasible: whether there were enough unsafe texts for `alpha`; if not, everything is flagged.
        needed: unsafe texts that the calibration part must hold for `alpha`.
        missed: unsafe texts of the judged part that pass (false negatives).
        withheld: safe texts of the judged part that are flagged (false positives).
        auc: of the scores on the judged part.
    """

    texts: int
    unsafe: int
    repeated: int
    conflicts: int
    alpha: float
    threshold: float
    feasible: bool
    calibrated_on: int
    needed: int
    missed: Share
    withheld: Share
    auc: float | None
    note: str


@dataclass(frozen=True)
class TrainedSafety:
    """The scorer, its file's content (MODEL_FILE) and the report."""

    scorer: TextScorer
    model: bytes
    report: SafetyReport


def train_safety(labelled: Path, settings: SafetySettings | None = None) -> TrainedSafety:
    """Learns a text scorer from a labelled file.

    Raises:
        LabelError: naming file, line and field; or a class is missing.
    """
    settings = settings or SafetySettings()
    labels = read_labels(labelled)
    fit, calibrate, judge = split_labels(labels.unsafe, settings.shares, settings.seed)
    weights, bias = _fit([labels.texts[row] for row in fit], labels.unsafe[fit], settings)
    blind = TextScorer(weights, bias, 0.0)
    known = calibrate[labels.unsafe[calibrate]]
    threshold = risk_threshold(blind.scores([labels.texts[row] for row in known]), settings.alpha)
    scorer = TextScorer(weights, bias, 0.0 if threshold is None else threshold)
    report = _report(scorer, labels, judge, settings, len(known), threshold is not None)
    return TrainedSafety(scorer, scorer.to_bytes(), report)


def risk_threshold(unsafe_scores: ArrayLike, alpha: float) -> float | None:
    """Conformal risk control: the highest threshold whose expected share of misses is at most alpha.

    Scores ascending, k = ⌊α(n+1)⌋ − 1, the threshold is s₍ₖ₊₁₎ and a text is flagged at or above it;
    None when k < 0: too few cases, everything has to be flagged.

    Args:
        unsafe_scores: [n], of unsafe texts that were not learned from.
    """
    ordered = np.sort(np.asarray(unsafe_scores, np.float64))
    # 1e-9: α(n+1) that is whole in decimal may fall just short of it in binary
    k = int(np.floor(alpha * (len(ordered) + 1) + 1e-9)) - 1
    return None if k < 0 or k >= len(ordered) else float(ordered[k])


def bounds(count: int, of: int, confidence: float = 0.95) -> Share:
    """One-sided Clopper–Pearson bounds, each holding with `confidence`."""
    if of == 0:
        return Share(0, 0, None, None, None)
    lower = 0.0 if count == 0 else float(beta.ppf(1.0 - confidence, count, of - count + 1))
    upper = 1.0 if count == of else float(beta.ppf(confidence, count + 1, of - count))
    return Share(count, of, count / of, lower, upper)


def _fit(texts: list[str], unsafe: Bools, settings: SafetySettings) -> tuple[NDArray[np.float32], float]:
    """Logistic regression by L-BFGS, both classes weighing the same in sum."""
    rows = _matrix(texts, settings.bits)
    signs = np.where(unsafe, 1.0, -1.0)
    shares = np.where(unsafe, 0.5 / unsafe.sum(), 0.5 / (~unsafe).sum())

    def loss(theta: Floats) -> tuple[float, Floats]:
        margins = signs * (rows @ theta[:-1] + theta[-1])
        slopes = -shares * signs * np.exp(-np.logaddexp(0.0, margins))
        gradient = np.append(rows.T @ slopes + settings.strength * theta[:-1], slopes.sum())
        penalty = 0.5 * settings.strength * float(theta[:-1] @ theta[:-1])
        return float(shares @ np.logaddexp(0.0, -margins)) + penalty, gradient

    start = np.zeros(rows.shape[1] + 1)
    found: Any = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return found.x[:-1].astype(np.float32), float(found.x[-1])


def _matrix(texts: list[str], bits: int) -> Any:
    found = [buckets(text, bits) for text in texts]
    sizes = np.array([len(columns) for columns in found])
    values = np.repeat(1.0 / np.sqrt(np.maximum(sizes, 1)), sizes)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return csr_matrix((values, np.concatenate(found), ends), shape=(len(texts), 1 << bits))


def _report(
    scorer: TextScorer, labels: Labels, judge: NDArray[np.int64], settings: SafetySettings, known: int, feasible: bool
) -> SafetyReport:
    truth = labels.unsafe[judge]
    scores = scorer.scores([labels.texts[row] for row in judge])
    flagged = scores >= scorer.threshold
    missed = bounds(int((truth & ~flagged).sum()), int(truth.sum()))
    withheld = bounds(int((~truth & flagged).sum()), int((~truth).sum()))
    needed = int(np.ceil(1.0 / settings.alpha - 1e-9)) - 1
    return SafetyReport(
        texts=len(labels.texts),
        unsafe=int(labels.unsafe.sum()),
        repeated=labels.repeated,
        conflicts=labels.conflicts,
        alpha=settings.alpha,
        threshold=scorer.threshold,
        feasible=feasible,
        calibrated_on=known,
        needed=needed,
        missed=missed,
        withheld=withheld,
        auc=auc(scores, truth),
        note=_note(settings.alpha, known, needed, feasible, withheld),
    )


def _note(alpha: float, known: int, needed: int, feasible: bool, withheld: Share) -> str:
    if not feasible:
        return (
            f"{known} unsafe texts to calibrate on cannot hold misses to {alpha:.2%} (at least {needed} are needed): "
            "the threshold is 0 and every text is flagged"
        )
    cost = "unknown" if withheld.share is None else f"{withheld.share:.1%}"
    return f"holding expected misses to {alpha:.2%} withholds {cost} of safe text"
