"""The pipeline from its parts: the same in the process that writes the log and in those that follow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from features.catalogue_log import LiveCatalogue
from features.population import PopulationView
from ranker.audit import audit_lot
from ranker.clock import Clock
from ranker.compiled import CompiledCatalogue
from ranker.config import ServeConfig
from ranker.decisions import LookAgain
from ranker.exclusions import Exclusions
from ranker.pipeline import Pipeline
from ranker.policy_config import PolicyConfig
from ranker.propensity import Exploration
from ranker.scored_pool import ScoredPool
from ranker.stages.candidates import CandidateSources
from ranker.stages.context import Context, KnowledgeReader
from ranker.stages.eligibility import Eligibility
from ranker.stages.explore import Explore
from ranker.stages.freshness import Freshness, FreshnessJudge
from ranker.stages.light import Light
from ranker.stages.policy import Policy
from ranker.stages.safety import Safety, SafetyJudge
from ranker.stages.second import NoSecond, Second, SecondRanker
from ranker.stages.top_actions import TopActions
from ranker.text_check import TextScorer


@dataclass
class DropCounter:
    """Counts what the pipeline reports."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def timed(self, stage: str, ms: float) -> None:
        """Times are in the answers; HTTP counts those."""

    def dropped(self, stage: str, reason: str, count: int) -> None:
        """Adds to `stage:reason`."""
        self.counts[f"{stage}:{reason}"] += count

    def failed(self, stage: str, error: Exception) -> None:  # noqa: ARG002  # the pipeline logs it
        """Adds to the stage."""
        self.failures[stage] += 1

    def drops(self) -> Mapping[str, int]:
        """Candidates removed by `stage:reason`; a stage that failed is `stage:failed`."""
        return {**self.counts, **{f"{stage}:failed": count for stage, count in self.failures.items()}}


@dataclass(frozen=True)
class Parts:
    """What the stages stand on.

    Args:
        tables, caught_up: as in the context stage.
        lagging: whether this process may lag behind the catalogue; None where it cannot.
    """

    config: ServeConfig
    policy: PolicyConfig
    clock: Clock
    reader: KnowledgeReader
    tables: Callable[[], PopulationView]
    caught_up: Callable[[str, float], Awaitable[int]]
    live: LiveCatalogue
    light: Light
    scorer: TextScorer | None
    secret: bytes = field(repr=False)
    counter: DropCounter
    lagging: Callable[[], bool] | None = None
    second: SecondRanker = field(default_factory=NoSecond)


def pipelines(parts: Parts) -> tuple[Pipeline, Pipeline]:
    """The pipeline, and that for an answer which was given before."""
    config, clock = parts.config, parts.clock
    context = Context(parts.reader, clock, config.store_timeout_ms, parts.tables, parts.caught_up)
    compiled = CompiledCatalogue(parts.live.catalogue)
    safety = SafetyJudge(compiled, parts.policy.safety_classes, clock, parts.scorer, lagging=parts.lagging)
    freshness = FreshnessJudge(compiled, clock)
    exclusions = Exclusions(compiled, parts.policy.exclusions)
    exploration = Exploration(config.epsilon, config.temperature)
    pipeline = Pipeline(
        (
            context,
            CandidateSources(compiled, config.max_candidates),
            Eligibility(compiled),
            Policy(compiled, parts.policy),
            ScoredPool(parts.light, (safety, freshness)),
            Second(parts.second),
            Explore((safety, freshness, exclusions), parts.secret, exploration),
            Safety(safety, audit_lot(parts.secret, config.audit.probability)),
            Freshness(freshness),
            TopActions(exploration),
        ),
        clock,
        parts.counter,
    )
    return pipeline, Pipeline((context, LookAgain((safety, freshness))), clock, parts.counter)
