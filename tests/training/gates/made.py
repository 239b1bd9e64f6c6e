"""Evidence made by hand and by seed: rules are judged without a log, a model or a clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from training.gates.evidence import (
    CLICKS,
    COMPLETIONS,
    DISMISSALS,
    REUSE,
    CandidateFacts,
    Evidence,
    Judged,
    MemoryEvidence,
    OfferEvidence,
    OutcomeEvidence,
    Pair,
    SafetyEvidence,
)

DAY_S = 86400.0
QUERIES = 4000
SLICES = 20
"""Each of 5 % of the queries."""
GIB = 1 << 30


def facts(**changes: object) -> CandidateFacts:
    """Of a version that learned from ten days and 5,000 rankings."""
    return replace(CandidateFacts("s", "s", 0.0, 10 * DAY_S, 5000, {"s": QUERIES}), **changes)  # type: ignore[arg-type]


def quality(seed: int, *, gain: float = 0.0, hurt: float = 0.0, noise: float = 0.15, queries: int = QUERIES) -> Judged:
    """NDCG of two versions: `gain` everywhere, `hurt` lost in slice 0, and what a second training changes by chance."""
    rng = np.random.default_rng(seed)
    baseline = rng.beta(4.0, 1.5, queries)
    place = np.arange(queries) % SLICES
    candidate = baseline + gain + noise * rng.standard_normal(queries) - hurt * (place == 0)
    slices = {f"region={number}": np.flatnonzero(place == number) for number in range(SLICES)}
    return Judged(Pair(candidate, baseline), rng.integers(0, queries // 2, queries), slices)


def latency(seed: int, *, factor: float = 1.0, requests: int = 4000) -> Pair:
    """Lognormal times around a millisecond, drawn apart for each version."""
    rng = np.random.default_rng(seed + 10_000)
    times = np.exp(0.25 * rng.standard_normal((2, requests)))
    return Pair(factor * times[0], times[1])


def outcomes(seed: int, **means: float) -> OutcomeEvidence:
    """Per ranking, by outcome; `means` are differences."""
    rng = np.random.default_rng(seed + 20_000)
    weighed = {}
    for name in (CLICKS, COMPLETIONS, DISMISSALS, REUSE):
        baseline = rng.random(QUERIES)
        changed = baseline + means.get(name, 0.0) + 0.2 * rng.standard_normal(QUERIES)
        weighed[name] = Judged(Pair(changed, baseline), np.arange(QUERIES) // 2)
    return OutcomeEvidence(weighed, positives=800)


def offers(seed: int, *, shifted: float = 0.0) -> OfferEvidence:
    """Scores that tell how likely a completion is; the candidate's say something else in the second half."""
    rng = np.random.default_rng(seed + 30_000)
    scores = rng.standard_normal(QUERIES)
    completed = rng.random(QUERIES) < 1.0 / (1.0 + np.exp(1.0 - scores))
    later = np.arange(QUERIES) >= QUERIES // 2
    return OfferEvidence(Pair(scores + shifted * later, scores), completed, np.arange(QUERIES) // 3)


def evidence(seed: int = 0, **changes: object) -> Evidence:
    """Of a version that is better, as fast, and harms nobody."""
    made = Evidence(
        facts=facts(),
        baseline="1",
        quality=quality(seed, gain=0.05),
        latency_ms=latency(seed, factor=0.95),
        outcomes=outcomes(seed),
        offers=offers(seed),
        safety=SafetyEvidence(scorer=False),
        memory=MemoryEvidence(GIB, 8 * GIB),
        since_s=10 * DAY_S,
        until_s=14 * DAY_S,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
