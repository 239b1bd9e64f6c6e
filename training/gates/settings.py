"""`configs/gates.yaml`: thresholds of the rules, a section for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ranker.config import config_dir
from ranker.config_file import load

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Part = Annotated[float, Meta(ge=0, le=1)]
Inner = Annotated[float, Meta(gt=0, lt=1)]
Above = Annotated[float, Meta(gt=0, le=1e6)]


class QualitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NDCG@10, paired by query.

    Args:
        margin: so much worse is no loss where the version is also cheaper.
        min_queries: fewer say nothing.
    """

    margin: Part = 0.005
    min_queries: Annotated[int, Meta(ge=2)] = 200


class CostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time per request.

    Args:
        max_p99_ratio: upper bound of candidate over baseline.
        max_p99_ms: upper bound of the p99 itself, against the priors.
        min_requests, max_requests: fewer have no p99; more are not timed.
        repeats: of each request by each version; the shorter time counts.
        block: requests in a row that the bootstrap keeps together.
    """

    max_p99_ratio: Above = 1.05
    max_p99_ms: Above = 20.0
    min_requests: Count = 500
    max_requests: Count = 4000
    repeats: Annotated[int, Meta(ge=1, le=20)] = 2
    block: Count = 25


class SliceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Named parts of traffic.

    Args:
        margin: a slice may lose so much NDCG; one up to `small_share` of the queries `small_margin`.
        min_share: of the queries; smaller slices are named and not judged.
        thin: clusters; a slice with fewer holds.
        alpha: chance that any slice stops a version that harms none.
    """

    margin: Part = 0.03
    small_share: Part = 0.05
    small_margin: Part = 0.10
    min_share: Part = 0.01
    thin: Annotated[int, Meta(ge=2)] = 30
    alpha: Inner = 0.02


class OutcomeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clicks, completions, dismissals and reuse; `min_positive` completions are needed to say anything of them."""

    min_positive: Count = 20


class CalibrationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a score as a probability.

    Args:
        min_offers: fewer say nothing.
        max_error: largest expected calibration error.
        margin: so much above the baseline's it may be.
    """

    min_offers: Count = 500
    max_error: Part = 0.10
    margin: Part = 0.02


class SafetySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unsafe offers that pass: the upper bound of their share at `confidence`."""

    max_missed: Inner = 0.005
    confidence: Inner = 0.95


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Share of what the process may have."""

    max_share: Inner = 0.85


class TrainingDataSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the version learned from.

    Args:
        max_age_days: from its last event to the log's last.
    """

    min_days: Annotated[float, Meta(ge=0)] = 1.0
    min_rankings: Annotated[int, Meta(ge=0)] = 200
    max_age_days: Above = 30.0


class GateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All thresholds.

    Args:
        level: of every interval that is not one of many slices.
        draws, seed: of each bootstrap.
    """

    level: Inner = 0.95
    draws: Annotated[int, Meta(ge=100, le=1_000_000)] = 2000
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0
    quality: QualitySettings = QualitySettings()
    cost: CostSettings = CostSettings()
    slices: SliceSettings = SliceSettings()
    outcomes: OutcomeSettings = OutcomeSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    safety: SafetySettings = SafetySettings()
    memory: MemorySettings = MemorySettings()
    data: TrainingDataSettings = TrainingDataSettings()


def load_gates(path: Path | None = None) -> GateSettings:
    """The thresholds of a file.

    Raises:
        ConfigError: naming file, field and value.
    """
    return load(path or config_dir() / "gates.yaml", GateSettings)
