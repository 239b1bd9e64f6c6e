"""What a replay and the log agree and differ in: for all of it, by traffic type, and by slice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from features.registry import COLUMNS
from training.replaying.agreement import kendall_tau, overlap_at
from training.replaying.drift import column_drifts, drift
from training.replaying.played import Played

MAX_SLICES = 200
SHOWN_COLUMNS = 10
PERCENTILES = (50, 95, 99)
MAX_VECTORS = 200_000


@dataclass
class Group:
    """Figures of some rankings.

    Args:
        agreed: overlap at the logged list's length, and whether the first is the same.
    """

    rankings: int = 0
    errors: int = 0
    overlaps: list[float] = field(default_factory=list)
    same_first: int = 0
    taus: list[float] = field(default_factory=list)
    logged: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    degraded: Counter[str] = field(default_factory=Counter)
    logged_degraded: int = 0
    degraded_any: int = 0

    def add(self, played: Played) -> None:
        """Takes one in."""
        self.rankings += 1
        self.logged_degraded += bool(played.event.degraded)
        if played.error:
            self.errors += 1
            return
        self.degraded.update(played.degraded)
        self.degraded_any += bool(played.degraded)
        if np.isfinite(played.latency_ms):
            self.latency_ms.append(played.latency_ms)
        shown = played.shown
        found = overlap_at(shown, played.order, len(shown))
        if found is not None:
            self.overlaps.append(found)
            self.same_first += played.order[:1] == shown[:1]
        self._scores(played)

    def _scores(self, played: Played) -> None:
        before = played.logged_scores
        common = [pair for pair in before if pair in played.scores]
        old, new = [before[pair] for pair in common], [played.scores[pair] for pair in common]
        self.logged += old
        self.now += new
        tau = kendall_tau(old, new)
        if tau is not None:
            self.taus.append(tau)

    def to_json(self) -> dict[str, Any]:
        """Means, percentiles, shares; None where there is nothing to take them of."""
        answered = self.rankings - self.errors
        return {
            "rankings": self.rankings,
            "errors": self.errors,
            "overlap@k": _mean(self.overlaps),
            "same_first": self.same_first / len(self.overlaps) if self.overlaps else None,
            "kendall_tau": _mean(self.taus),
            "kendall_tau_of": len(self.taus),
            "score_drift": msgspec.to_builtins(drift(self.logged, self.now)),
            "latency_ms": _percentiles(self.latency_ms),
            "degraded_share": self.degraded_any / answered if answered else None,
            "degraded": dict(self.degraded),
            "logged_degraded_share": self.logged_degraded / self.rankings if self.rankings else None,
        }


@dataclass
class Comparison:
    """All groups, and the features."""

    whole: Group = field(default_factory=Group)
    traffic: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    slices: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    late_ms: list[float] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    _vectors: list[tuple[Any, Any]] = field(default_factory=list)
    _held: int = 0

    def add(self, played: Played) -> None:
        """Takes one in."""
        groups = [self.whole, self.traffic[played.event.traffic], *(self.slices[name] for name in played.slices)]
        for group in groups:
            group.add(played)
        self.late_ms.append(played.late_ms)
        self.versions[played.versions.get("light", "none")] += not played.error
        self.first_error = self.first_error or played.error
        if played.vectors is not None and self._held < MAX_VECTORS:
            self._vectors.append(played.vectors)
            self._held += len(played.vectors[0])

    def take(self, answers: Iterable[Played]) -> Iterable[Played]:
        """The same, taken in as they pass."""
        for played in answers:
            self.add(played)
            yield played

    def to_json(self) -> dict[str, Any]:
        """The report."""
        largest = sorted(self.slices.items(), key=lambda item: (-item[1].rankings, item[0]))[:MAX_SLICES]
        return {
            **self.whole.to_json(),
            "late_ms": _percentiles(self.late_ms),
            "answered_by": dict(self.versions),
            "first_error": self.first_error or None,
            "features": self._features(),
            "traffic": {name: group.to_json() for name, group in sorted(self.traffic.items())},
            "slices": {name: group.to_json() for name, group in sorted(largest)},
        }

    def _features(self) -> dict[str, Any]:
        """Logged vectors of explored traffic beside the recomputed ones."""
        if not self._vectors:
            return {"rows": 0, "exact_share": None, "drift": {}, "all_missing": [], "constant": []}
        logged = np.concatenate([each[0] for each in self._vectors])
        now = np.concatenate([each[1] for each in self._vectors])
        same = (logged == now) | (np.isnan(logged) & np.isnan(now))
        found = column_drifts(logged, now, COLUMNS)
        most = sorted(found, key=lambda name: -(found[name].kl or 0.0))[:SHOWN_COLUMNS]
        return {
            "rows": len(logged),
            "exact_share": float(same.all(axis=1).mean()),
            "drift": {name: msgspec.to_builtins(found[name]) for name in most},
            "all_missing": [
                name for name, each in found.items() if each.note == "all_missing" and each.reference_missing < 1.0
            ],
            "constant": [name for name, each in found.items() if each.note == "constant"],
        }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    found = np.percentile(np.array(values), PERCENTILES)
    return {f"p{name}": round(float(value), 3) for name, value in zip(PERCENTILES, found, strict=True)}
