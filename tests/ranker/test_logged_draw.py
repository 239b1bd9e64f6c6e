"""What reached the draw, what did not, and what left after it: all of it is in the line of the log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from features.events import RankingEvent
from features.known import Moment
from features.scored import reached_draw, scored_set
from ranker.judges import Verdicts
from ranker.stages.explore import Explore
from ranker.stages.safety import Safety
from ranker.types import Ranking
from tests.ranker.online import Desk, VectorModel, run, service

EPSILON, TEMPERATURE = 0.5, 40.0
ACTIONS = {"a": {"exclusive_group": "g"}, "b": {"exclusive_group": "g"}, "c": {}, "d": {}, "e": {}}
Pair = tuple[str, str | None]


@dataclass
class Refuses:
    """Refuses one action after the draw."""

    action: str
    name: str = "safety"

    def judge(self, ranking: Ranking) -> Verdicts:
        keep = np.array([action != self.action for action in ranking.candidates.actions], np.bool_)
        return Verdicts(keep, ["" if kept else "off" for kept in keep.tolist()])


def survivors(event: RankingEvent) -> dict[Pair, float]:
    """What could have been shown, with its score."""
    left = [entry for row, entry in enumerate(event.pool or ()) if row not in event.deleted]
    return {(action, target): score for action, target, score in left}


def greedy_order(event: RankingEvent) -> tuple[Pair, ...]:
    """By score, and as the line says where scores are equal."""
    left, pool = survivors(event), event.pool or []
    return tuple(pool[row][:2] for row in event.greedy) or tuple(sorted(left, key=lambda pair: -left[pair]))


def orders(left: dict[Pair, float], greedy: tuple[Pair, ...]) -> Iterator[tuple[tuple[Pair, ...], float]]:
    """Every order and its probability, by the definition of Plackett–Luce."""
    best = max(left.values())
    weights = {pair: math.exp((score - best) / TEMPERATURE) for pair, score in left.items()}
    for order in itertools.permutations(left):
        chance, rest = EPSILON, sum(weights.values())
        for pair in order:
            chance *= weights[pair] / rest
            rest -= weights[pair]
        yield order, chance + (1.0 - EPSILON) * (order == greedy)


def propensities(event: RankingEvent) -> list[float]:
    """Of the slots shown, from the line alone: P(prefix to it) / P(prefix above it)."""
    shown = tuple((item.action, item.target) for item in event.items)
    all_orders = list(orders(survivors(event), greedy_order(event)))
    chances = [sum(p for order, p in all_orders if order[:slots] == shown[:slots]) for slots in range(len(shown) + 1)]
    return [chances[slot + 1] / chances[slot] for slot in range(len(shown))]


def delete_after_the_draw(desk: Desk, action: str) -> None:
    decisions = desk.running.service.owners.decisions
    stages = (Safety(Refuses(action)) if isinstance(stage, Safety) else stage for stage in decisions.pipeline.stages)  # type: ignore[arg-type]
    decisions.pipeline = replace(decisions.pipeline, stages=tuple(stages))


@pytest.mark.parametrize("deleted", [None, "c"])
def test_every_propensity_of_explore_traffic_follows_from_its_line(deleted: str | None, tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions=ACTIONS, epsilon=EPSILON, temperature=TEMPERATURE) as desk:
            # Different histories, so that scores differ.
            events = [desk.event(action=name) for times, name in enumerate("cdeab") for _ in range(times + 1)]
            await desk.post(*events)
            if deleted is not None:
                delete_after_the_draw(desk, deleted)
            for _ in range(30):
                await desk.rank(k=3)
            explored = [event for event in desk.rankings() if event.traffic == "explore"]
            assert len(explored) > 5
            for event in explored:
                names = {action for action, _, _ in event.pool or ()}
                assert len(names) == 4 and len(names & {"a", "b"}) == 1, "the loser of a group never reaches the draw"
                assert [action for _, action, _, _ in event.withheld] == list({"a", "b"} - names)
                assert [(event.pool or [])[row][0] for row in event.deleted] == ([deleted] if deleted else [])
                assert event.greedy == [] and len(set(survivors(event).values())) == len(survivors(event)), "no ties"
                logged = [item.propensity for item in event.items]
                assert logged == pytest.approx(propensities(event), rel=1e-9)

    run(work())


class EvenModel(VectorModel):
    """Finds all alike, so that priors decide."""

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        columns, scores = super().score(moment)
        return columns, np.zeros_like(scores)


def test_propensities_follow_from_the_line_where_scores_are_equal(tmp_path: Path) -> None:
    async def work() -> None:
        model = EvenModel()
        async with service(tmp_path, actions=ACTIONS, model=model, epsilon=EPSILON, temperature=TEMPERATURE) as desk:
            await desk.post(*[desk.event(action=name) for name in "ddde"])
            for _ in range(40):
                await desk.rank(k=3)
            explored = [event for event in desk.rankings() if event.traffic == "explore"]
            firsts = [item.propensity or 0.0 for event in explored for item in event.items[:1]]
            assert min(firsts) < 0.2 and max(firsts) > 0.6, "the greedy best was among those shown first"
            for event in explored:
                assert [item.propensity for item in event.items] == pytest.approx(propensities(event), rel=1e-9)

    run(work())


def test_the_scored_set_is_restored_in_its_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions=ACTIONS) as desk:
            await desk.rank()
            moment, _ = desk.model.shown[-1]
            (event,) = desk.rankings()
            scored = scored_set(event) or []
            assert [action for action, _, _ in scored] == list(moment.actions)
            assert [entry for entry, there in zip(scored, reached_draw(event), strict=True) if there] == event.pool

    run(work())


def test_nothing_reached_a_draw_before_which_a_judge_failed(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions=ACTIONS) as desk:
            decisions = desk.running.service.owners.decisions
            stages = tuple(
                replace(stage, judges=(Broken(),)) if isinstance(stage, Explore) else stage
                for stage in decisions.pipeline.stages
            )
            decisions.pipeline = replace(decisions.pipeline, stages=stages)
            assert (await desk.rank()).items == []
            (event,) = desk.rankings()
            assert event.pool == [] and len(event.withheld) == 5 and event.deleted == []

    run(work())


class Broken:
    """A judge that fails."""

    name = "safety"

    def judge(self, ranking: Ranking) -> Verdicts:
        raise RuntimeError(f"no verdict on {ranking.request_id}")
