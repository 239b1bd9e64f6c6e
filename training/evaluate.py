"""Replays a log and judges every stage on the queries from a date on: state moves on, models do not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.events import Context, Event
from features.label_config import LabelSettings, OutcomeWindows
from features.log import Problems, read_log
from features.outcomes import WINDOWS
from features.priors import back_off
from ranker.light_model import LightModel
from training.baselines import Baselines
from training.errors import TrainingError
from training.intervals import paired_interval
from training.labels import LABELS, read_labels
from training.metrics import METRICS, RankMetrics, query_metrics
from training.queries import Query, build_query
from training.replay import Replay

PRIMARY, SECOND = "light", "second"
INTERVAL_METRICS = ("hr@1", "mrr", "ndcg@10")
THIN_SLICE = 30
MAX_SLICES = 200
RARE = 10
"""An action that was useful fewer times before the judged queries is a rare one."""

Scores = NDArray[np.float64]


class SecondStage(Protocol):
    """The second stage as a replay meets it."""

    def follow(self, offset: int, event: Event) -> None:
        """Told of each event as it changes what is known."""
        ...

    def scores(self, query: Query, features: NDArray[np.float32], light: Scores) -> Scores:
        """Scores [candidates] in the order of both stages, from the light stage's vectors and scores."""
        ...

    def history(self, query: Query) -> str:
        """How much there is of the user's history."""
        ...


@dataclass(frozen=True)
class EvaluateConfig:
    """What to judge, and how.

    Args:
        since_s: queries before it only teach the baselines.
        hint: what users typed becomes the context's text.
        draws: of the bootstrap.
        labels, outcomes: what followed an offer counts as, and is worth.
    """

    since_s: float
    hint: bool = False
    seed: int = 0
    draws: int = 2000
    labels: LabelSettings = LABELS
    outcomes: OutcomeWindows = WINDOWS


@dataclass
class Evaluation:
    """Figures of all stages over the same queries."""

    stages: dict[str, RankMetrics] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)
    slices: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    excluded: Counter[str] = field(default_factory=Counter)
    learned_from: int = 0
    problems: Problems = field(default_factory=Problems)
    config: EvaluateConfig = EvaluateConfig(0.0)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def queries(self) -> int:
        """Queries judged."""
        return len(self.clusters)

    def to_json(self) -> dict[str, Any]:
        """The report of `nextaction evaluate --json`."""
        return {
            "queries": self.queries,
            "excluded": dict(self.excluded),
            "stages": {name: metrics.means() for name, metrics in self.stages.items()},
            "intervals": self._intervals(),
            "slices": self._slices(),
            "baselines_learned_from": self.learned_from,
            "unusable_lines": dict(self.problems.counts),
            "unusable_examples": [str(problem) for problem in self.problems.examples],
            "hint": self.config.hint,
            "versions": self.versions,
        }

    def _intervals(self) -> dict[str, Any]:
        """The best stage there is, and light, against each one before it, paired by query, clustered by session."""
        if not self.queries:
            return {}
        names = list(self.stages)
        tops = [name for name in (SECOND, PRIMARY) if name in self.stages] or ["priors"]
        pairs = [(top, name) for top in tops for name in names if name not in tops[: tops.index(top) + 1]]
        return {
            f"{top}-{name}": {metric: self._difference(top, name, metric) for metric in INTERVAL_METRICS}
            for top, name in pairs
        }

    def _difference(self, first: str, second: str, metric: str) -> dict[str, float | None]:
        found = paired_interval(
            self.stages[first].array(metric),
            self.stages[second].array(metric),
            self.clusters,
            self.config.seed,
            self.config.draws,
        )
        return {"mean": found.mean, "low": found.low, "high": found.high}

    def _slices(self) -> dict[str, Any]:
        """Per slice its size and each stage's figures; the largest MAX_SLICES."""
        largest = sorted(self.slices.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_SLICES]
        return {
            name: {
                "queries": len(rows),
                "thin": len(rows) < THIN_SLICE,
                "stages": {
                    stage: {metric: float(metrics.array(metric)[rows].mean()) for metric in METRICS}
                    for stage, metrics in self.stages.items()
                },
            }
            for name, rows in sorted(largest)
        }


def evaluate(
    logdir: Path,
    light: LightModel | None,
    config: EvaluateConfig,
    progress: Callable[[int], None] | None = None,
    second: SecondStage | None = None,
) -> Evaluation:
    """Judges popularity, Markov, the linear model, the priors and (where there is one) light and second.

    Args:
        second: over `light`; without that it is not judged.

    Raises:
        LogError: there is no such log.
        TrainingError: no query can be judged.
    """
    labels = read_labels(read_log(logdir), config.labels, config.outcomes)
    second = second if light is not None else None
    replay = Replay(logdir, None, labels.learn_from_own_actions, progress, config.outcomes)
    if second is not None:
        replay.follow = second.follow
    result = Evaluation(config=config)
    baselines = Baselines()
    for decision in replay:
        judged = decision.event.time_s >= config.since_s
        query = build_query(decision, labels, replay.state.catalogue)
        if isinstance(query, str):
            result.excluded[query] += judged
            continue
        query = _with_hint(query) if config.hint else query
        if judged:
            _judge(result, query, baselines, light, second)
        else:
            baselines.learn(query)
    result.learned_from = baselines.examples
    result.excluded["orphan_feedback"] += labels.counts["orphan_feedback"]
    result.problems = replay.problems
    if not result.queries:
        raise TrainingError(f"no query to judge in {logdir}: {_why_none(result, labels.counts)}")
    return result


def _why_none(result: Evaluation, counts: Mapping[str, int]) -> str:
    excluded = {reason: count for reason, count in result.excluded.items() if count}
    return f"excluded {excluded}, of {counts['rankings']} rankings, {counts['useful_rankings']} with a useful item"


def _with_hint(query: Query) -> Query:
    if query.hint is None:
        return query
    context: Context = msgspec.structs.replace(query.moment.context, text=query.hint)
    return replace(query, moment=replace(query.moment, context=context, _gathered={}))


def _judge(
    result: Evaluation, query: Query, baselines: Baselines, light: LightModel | None, second: SecondStage | None
) -> None:
    scores = {**baselines.scores(query), "priors": np.log(back_off(query.moment))}
    if light is not None:
        features, scores[PRIMARY] = light.score(query.moment)
        if second is not None:
            scores[SECOND] = second.scores(query, features, scores[PRIMARY])
    figures = {name: _figures(query, values) for name, values in scores.items()}
    if any(found is None for found in figures.values()):
        result.excluded["no_positive"] += 1
        return
    own = _rarity(query, baselines)
    if second is not None:
        own.append(f"history={second.history(query)}")
    for name in (*slices_of(query), *own):
        result.slices[name].append(result.queries)
    for name, values in scores.items():
        result.stages.setdefault(name, RankMetrics()).add(*_with_misses(query, values))
    result.clusters.append(query.cluster)


def _rarity(query: Query, baselines: Baselines) -> list[str]:
    action = query.useful_action
    if action is None:
        return []
    return [f"useful action={'rare' if baselines.popularity.counts[action] < RARE else 'common'}"]


def _figures(query: Query, scores: Scores) -> dict[str, float] | None:
    return query_metrics(*_with_misses(query, scores))


def _with_misses(query: Query, scores: Scores) -> tuple[Scores, NDArray[np.float64]]:
    """Useful pairs that were no candidate are ranked last: nothing could have found them."""
    if not query.missing:
        return scores, query.grades
    last = np.full(query.missing, scores.min(initial=0.0) - 1.0)
    return np.concatenate([scores, last]), np.concatenate([query.grades, np.ones(query.missing)])


def slices_of(query: Query) -> list[str]:
    """`surface=chat`, `user=new` …: the named parts of traffic that a query belongs to."""
    context = query.moment.context
    user = query.moment.known.user
    named = {
        "surface": context.surface,
        "locale": context.locale,
        "region": context.region,
        "trigger": context.trigger.type if context.trigger else None,
        "user": "known" if user is not None and len(user.row.rankings) > 1 else "new",
        "traffic": getattr(query.decision.event, "traffic", None),
    }
    own = {name[1:]: value for name, value in context.fields.items() if name.startswith("_") and name != "_hint"}
    return [f"{name}={value}" for name, value in {**named, **own}.items() if isinstance(value, str) and len(value) < 65]
