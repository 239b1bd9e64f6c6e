"""Small stand-ins for the parts around the pipeline, and builders of its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec, Catalogue
from features.events import Context
from features.known import Known, Moment
from features.population import Population
from features.rows import SessionRow, User, UserRow
from features.situation import situation_keys
from ranker.clock import ManualClock
from ranker.compiled import CompiledCatalogue
from ranker.degraded import Degraded
from ranker.exclusions import Exclusions
from ranker.pipeline import Observer, Pipeline, Unobserved
from ranker.policy_config import PolicyConfig
from ranker.propensity import GREEDY, Exploration
from ranker.stages.candidates import CandidateSources
from ranker.stages.context import Context as ContextStage
from ranker.stages.context import KnowledgeReader
from ranker.stages.eligibility import Eligibility
from ranker.stages.explore import Explore
from ranker.stages.freshness import Freshness, FreshnessJudge
from ranker.stages.light import Light, LightModel
from ranker.stages.policy import Policy
from ranker.stages.safety import Safety, SafetyJudge
from ranker.stages.second import NoSecond, Rescored, Second, SecondRanker
from ranker.stages.top_actions import TopActions
from ranker.text_check import TextScorer
from ranker.types import Candidates, Ranking, RankRequest

NOON_S = 1_700_000_000.0
"""ManualClock's wall time: 2023-11-14T22:13:20Z."""
SECRET = b"a secret of tests, not of anyone"
SCHEMA = "f00d"


def context(**fields: Any) -> Context:
    """A context from JSON fields."""
    return msgspec.convert(fields, Context)


def request(**fields: Any) -> RankRequest:
    """A request of u1 from JSON fields."""
    return msgspec.convert({"user": "u1", "context": {}, **fields}, RankRequest)


def catalogue(specs: Mapping[str, Mapping[str, Any]]) -> CompiledCatalogue:
    """A compiled catalogue from JSON fields by action."""
    return CompiledCatalogue(Catalogue({name: msgspec.convert(fields, ActionSpec) for name, fields in specs.items()}))


def known(user: User | None = None, population: Population | None = None, **fields: Any) -> Known:
    """What is known of a user who was read (and has never been seen, unless given)."""
    return Known((population or Population()).at(), user, **{"seen_offset": 7, **fields})


def unread(population: Population | None = None) -> Known:
    """What is known when personal rows were not read."""
    return Known((population or Population()).at())


def user(profile: Mapping[str, Any] | None = None) -> User:
    """A user with a profile and no history."""
    return User(UserRow(updated_s=NOON_S, profile=dict(profile or {})))


def popular(
    counts: Mapping[str, int],
    here: Context | None = None,
    session: SessionRow | None = None,
    families: Iterable[str] = (),
) -> Population:
    """Tables in which each action was useful so often, in a context's families and over everything."""
    population = Population()
    keys = situation_keys(here or Context(), session)
    chosen = [keys["g"], *(keys[family] for family in families or ("surface", "trigger"))]
    for action, count in counts.items():
        for _ in range(count):
            population.credit(chosen, "accepted", (action,), NOON_S - 60.0)
    return population


def ranking(
    compiled: CompiledCatalogue,
    pairs: Sequence[str | tuple[str, str | None]],
    scores: Sequence[float] | None = None,
    priors: Sequence[float] | None = None,
    *,
    what: Known | None = None,
    traffic: str = "live",
    request_id: str = "r1",
    now_s: float = NOON_S,
    explain: bool = False,
    **fields: Any,
) -> Ranking:
    """A ranking with these candidates (names, or (action, target)), scored; `fields` are the request's."""
    rows = [pair if isinstance(pair, tuple) else (pair, None) for pair in pairs]
    specs = [compiled.spec(row) for row in compiled.rows([action for action, _ in rows]).tolist()]
    columns = Candidates(
        tuple(action for action, _ in rows), tuple(target for _, target in rows), tuple(specs), ("caller",) * len(rows)
    )
    values = np.asarray(scores if scores is not None else np.zeros(len(rows)), np.float64)
    prior = np.asarray(priors if priors is not None else np.full(len(rows), 0.5), np.float64)
    return Ranking(
        request(**fields),
        request_id,
        now_s,
        1e9,
        what if what is not None else known(),
        columns,
        prior=prior,
        scores=values,
        traffic=traffic,
        explain=explain,
    )


def asked(request_id: str = "r1", *, deadline_ms: float = 100.0, explain: bool = False, **fields: Any) -> Ranking:
    """A ranking before the first stage."""
    body = request(**fields)
    return Ranking(body, request_id, NOON_S, deadline_ms, traffic=body.traffic or "live", explain=explain)


@dataclass
class FakeReader:
    """Knows one thing about everybody; may be slow, or fail."""

    what: Known = field(default_factory=known)
    degraded: tuple[Degraded, ...] = ()
    error: Exception | None = None
    clock: ManualClock | None = None
    takes_ms: float = 0.0
    asked_ms: list[float] = field(default_factory=list)

    async def read(self, _request: RankRequest, _now_s: float, timeout_ms: float) -> tuple[Known, tuple[Degraded, ...]]:
        self.asked_ms.append(timeout_ms)
        if self.clock is not None:
            self.clock.elapsed_ms += self.takes_ms
        if self.error is not None:
            raise self.error
        return self.what, self.degraded


@dataclass
class FakeModel:
    """Scores by action; what it does not know gets 0."""

    by_action: Mapping[str, float] = field(default_factory=dict)
    version: str = "7"
    schema: str = SCHEMA
    error: Exception | None = None

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        if self.error is not None:
            raise self.error
        scores = np.array([self.by_action.get(action, 0.0) for action in moment.actions], np.float64)
        return scores.astype(np.float32).reshape(-1, 1), scores


@dataclass
class FakeScorer:
    """Unsafe by a word; counts the texts it was asked about."""

    word: str = "unsafe"
    threshold: float = 0.5
    error: Exception | None = None
    clock: ManualClock | None = None
    takes_ms: float = 0.0
    texts: list[str] = field(default_factory=list)

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        self.texts += texts
        if self.clock is not None:
            self.clock.elapsed_ms += self.takes_ms
        if self.error is not None:
            raise self.error
        return np.array([float(self.word in text) for text in texts])


@dataclass
class Tally:
    """An observer that keeps everything."""

    times: list[tuple[str, float]] = field(default_factory=list)
    drops: list[tuple[str, str, int]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def timed(self, stage: str, ms: float) -> None:
        self.times.append((stage, ms))

    def dropped(self, stage: str, reason: str, count: int) -> None:
        self.drops.append((stage, reason, count))

    def failed(self, stage: str, error: Exception) -> None:
        self.failures.append((stage, str(error)))


@dataclass
class FakeSecond:
    """A second stage that gives what it is told to."""

    found: Rescored | Degraded | str | None = None
    error: Exception | None = None
    asked: list[Ranking] = field(default_factory=list)

    async def rescore(self, ranking: Ranking) -> Rescored | Degraded | str | None:
        """What was given."""
        self.asked.append(ranking)
        if self.error is not None:
            raise self.error
        return self.found


@dataclass
class Parts:
    """A pipeline with what a test wants to have its hands on."""

    compiled: CompiledCatalogue
    reader: KnowledgeReader = field(default_factory=FakeReader)
    clock: ManualClock = field(default_factory=ManualClock)
    model: LightModel | None = field(default_factory=FakeModel)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    second: SecondRanker = field(default_factory=NoSecond)
    scorer: TextScorer | None = None
    exploration: Exploration = GREEDY
    observer: Observer = field(default_factory=Unobserved)
    max_candidates: int = 200

    def pipeline(self) -> Pipeline:
        """The stages in the arrow's order."""
        safety = SafetyJudge(self.compiled, self.policy.safety_classes, self.clock, self.scorer)
        freshness = FreshnessJudge(self.compiled, self.clock)
        exclusions = Exclusions(self.compiled, self.policy.exclusions)
        return Pipeline(
            (
                ContextStage(self.reader, self.clock),
                CandidateSources(self.compiled, self.max_candidates),
                Eligibility(self.compiled),
                Policy(self.compiled, self.policy),
                Light(SCHEMA, self.model),
                Second(self.second),
                Explore((safety, freshness, exclusions), SECRET, self.exploration),
                Safety(safety),
                Freshness(freshness),
                TopActions(self.exploration),
            ),
            self.clock,
            self.observer,
        )
