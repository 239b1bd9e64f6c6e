"""What the rules judge by: figures of one paired run, and what is known of the candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ranker.release.gating import PRIORS

Floats = NDArray[np.float64]

CLICKS, COMPLETIONS, DISMISSALS, REUSE = "clicks", "completions", "dismissals", "reuse"
OUTCOMES = (CLICKS, COMPLETIONS, DISMISSALS, REUSE)


@dataclass(frozen=True)
class Pair:
    """The same figure of candidate and baseline, [rows] each."""

    candidate: Floats
    baseline: Floats

    @property
    def difference(self) -> Floats:
        """Candidate less baseline."""
        return self.candidate - self.baseline


def no_pair() -> Pair:
    """Of no rows."""
    return Pair(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Judged:
    """A pair by row with the rows' clusters, which are not independent within: [rows].

    Args:
        slices: rows by the name of the slice.
    """

    pair: Pair
    clusters: NDArray[np.int64]
    slices: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


def nothing_judged() -> Judged:
    """Of no rows."""
    return Judged(no_pair(), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Effect:
    """An outcome's change per ranking with its interval, estimated off-policy."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class OutcomeEvidence:
    """Clicks, completions, dismissals and reuse.

    Args:
        weighed: by outcome, per ranking: what followed each offer, discounted by the place it would have had.
        positives: how many completions the log has among them.
        off_policy: by outcome, where the log can carry an estimate of both versions; reuse is not estimated.
        refused: why it cannot.
    """

    weighed: Mapping[str, Judged] = field(default_factory=dict)
    positives: int = 0
    off_policy: Mapping[str, Effect] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class OfferEvidence:
    """Offers that were seen, in the order of the log.

    Args:
        scores: of both versions, [offers].
        completed: [offers].
        clusters: [offers].
    """

    scores: Pair
    completed: NDArray[np.bool_]
    clusters: NDArray[np.int64]


def no_offers() -> OfferEvidence:
    """Of none."""
    return OfferEvidence(no_pair(), np.zeros(0, np.bool_), np.zeros(0, np.int64))


@dataclass(frozen=True)
class CandidateFacts:
    """What its manifest says, beside what is asked of it; times in Unix seconds, None where it does not say.

    Args:
        schema: it was made for; `program` is what this program computes.
        log_schemas: rankings of the judged log by the schema they name.
    """

    schema: str
    program: str
    since_s: float | None
    until_s: float | None
    rankings: int
    log_schemas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SafetyEvidence:
    """What is known of unsafe offers that pass.

    Args:
        scorer: whether a text scorer is installed: without one the catalogue's rules alone decide.
        missed, of: labelled unsafe texts that it lets pass; 0 of 0 where none was labelled.
        wanted_withheld: of candidate and baseline, places of the logged lists that they would have given to what was
            withheld in the end: how much the last net has to hold.
        offers: places in all.
    """

    scorer: bool
    missed: int = 0
    of: int = 0
    wanted_withheld: tuple[int, int] = (0, 0)
    offers: int = 0


@dataclass(frozen=True)
class MemoryEvidence:
    """Bytes of this process at its peak, and what it may have in all; None where the machine does not say."""

    used_bytes: int
    total_bytes: int | None


@dataclass(frozen=True)
class Evidence:
    """All of it.

    Args:
        baseline: a version, or PRIORS.
        quality: NDCG@10 per query that has something useful.
        latency_ms: per request, in the order of the log.
        since_s, until_s: of what was judged; `until_s` is where the log ends.
    """

    facts: CandidateFacts
    baseline: str = PRIORS
    quality: Judged = field(default_factory=nothing_judged)
    latency_ms: Pair = field(default_factory=no_pair)
    outcomes: OutcomeEvidence = field(default_factory=OutcomeEvidence)
    offers: OfferEvidence = field(default_factory=no_offers)
    safety: SafetyEvidence | None = None
    memory: MemoryEvidence | None = None
    since_s: float = 0.0
    until_s: float = 0.0
