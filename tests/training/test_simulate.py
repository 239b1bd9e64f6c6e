"""The simulated assistant: seeded to the byte, with propensities, biases and truths that the log bears out."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.catalogue import parse_spec
from features.events import (
    ActionEvent,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankingEvent,
    decode_event,
    encode_event,
)
from ranker.types import RankRequest
from training.metrics import RankMetrics, paired_interval
from training.simulate import START_S, Behaviour, Exploration, Oracle, Popularity, Shuffled, Simulator
from training.simulated.policies import LoggingPolicy, draw_slate, slot_propensities
from training.simulated.scenes import Scene
from training.simulated.world import truth_of


def small(seed: int, start_s: float = START_S, behaviour: Behaviour | None = None) -> Simulator:
    return Simulator(seed, users=20, days=3, start_s=start_s, behaviour=behaviour)


@dataclass
class Shown:
    """One offered item with everything that is known about it."""

    truth: float
    position: int
    feedback: list[FeedbackEvent] = field(default_factory=list)

    def has(self, kind: str) -> bool:
        return any(event.type == kind for event in self.feedback)


@dataclass
class Log:
    events: list[Event]
    scenes: list[tuple[Scene, RankingEvent]]
    shown: dict[tuple[str, str, str | None], Shown]

    def seen(self) -> list[Shown]:
        return [shown for shown in self.shown.values() if shown.has("seen")]


def record(simulator: Simulator, policy: LoggingPolicy | None = None, exploration: Exploration | None = None) -> Log:
    scenes: list[tuple[Scene, RankingEvent]] = []
    events = list(simulator.events(policy, exploration, watch=lambda scene, ranking: scenes.append((scene, ranking))))
    shown = {
        (ranking.id, item.action, item.target): Shown(truth_of(scene, item.action, item.target), item.position)
        for scene, ranking in scenes
        for item in ranking.items
    }
    for event in events:
        if isinstance(event, FeedbackEvent):
            shown[event.ranking, event.action, event.target].feedback.append(event)
    return Log(events, scenes, shown)


@pytest.fixture(scope="module")
def shuffled() -> Log:
    return record(Simulator(7, users=220, days=14), Shuffled(), Exploration(1.0))


@pytest.fixture(scope="module")
def popular() -> Log:
    return record(Simulator(7, users=100, days=7))


def digest(simulator: Simulator) -> str:
    return sha256(b"\n".join(map(encode_event, simulator.events()))).hexdigest()


def test_the_same_seed_gives_the_same_bytes() -> None:
    simulator = small(1)
    assert digest(simulator) == digest(simulator) == digest(small(1)) != digest(small(2))


def test_another_start_moves_the_days(popular: Log) -> None:
    first = next(iter(small(7, start_s=1_590_278_400.0).events()))
    assert encode_event(first).decode().count("2020-05-24T00:00:00.000Z") == 1


def test_every_event_comes_back_from_its_line(popular: Log) -> None:
    assert all(decode_event(encode_event(event)) == event for event in popular.events)


def test_times_never_go_back_and_ids_are_distinct(popular: Log) -> None:
    times = [event.time_s for event in popular.events]
    assert times == sorted(times)
    assert len({event.id for event in popular.events}) == len(popular.events)


def test_the_log_begins_with_a_catalogue_that_parses(popular: Log) -> None:
    specs = [parse_spec(event.fields or {}) for event in popular.events if isinstance(event, ActionEvent)]
    assert 20 <= len(specs) <= 40
    for name in ("entity_types", "surfaces", "regions", "permissions", "min_age", "consent", "exclusive_group"):
        assert any(getattr(spec, name) for spec in specs), name
    for name in ("cooldown_s", "max_target_age_s", "expires", "off", "needs_text_check", "min_app_version"):
        assert any(getattr(spec, name) for spec in specs), name


def test_nothing_is_offered_against_its_conditions(popular: Log) -> None:
    specs = {e.action: parse_spec(e.fields or {}) for e in popular.events if isinstance(e, ActionEvent)}
    for scene, ranking in popular.scenes:
        types = {entity.target: entity.type for entity in ranking.context.entities}
        for action, target, _ in ranking.pool or []:
            spec = specs[action]
            assert not spec.off
            assert (types[target] in spec.entity_types) if target else not spec.entity_types
            assert not spec.surfaces or ranking.context.surface in spec.surfaces
            assert set(spec.permissions) <= set(ranking.context.permissions)
            assert spec.min_age <= (scene.person.age or 0)
            assert spec.expires is None or ranking.time < spec.expires


def test_lists_come_from_the_pool_by_position_and_every_slot_has_a_propensity(popular: Log) -> None:
    for _, ranking in popular.scenes:
        pool = {(action, target): score for action, target, score in ranking.pool or []}
        assert [item.position for item in ranking.items] == list(range(1, len(ranking.items) + 1))
        assert len(ranking.items) == min(3, len(pool))
        for item in ranking.items:
            assert item.score == pool[item.action, item.target]
            assert item.propensity is not None and 0.0 < item.propensity <= 1.0
    share = np.mean([ranking.traffic == "explore" for _, ranking in popular.scenes])
    assert share == pytest.approx(0.3, abs=4 * math.sqrt(0.3 * 0.7 / len(popular.scenes)))


def _orders(scores: list[float], exploration: Exploration) -> dict[tuple[int, ...], float]:
    """Every full order and its probability under the mixture of both branches."""
    weights = [math.exp(score / exploration.temperature) for score in scores]
    greedy = tuple(sorted(range(len(scores)), key=lambda place: (-scores[place], place)))
    found = {}
    for order in itertools.permutations(range(len(scores))):
        drawn = math.prod(weights[order[i]] / sum(weights[p] for p in order[i:]) for i in range(len(order)))
        found[order] = exploration.share * drawn + (1 - exploration.share) * (order == greedy)
    return found


@given(
    st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(0, 1000),
)
def test_propensities_equal_brute_force_over_all_orders(
    scores: list[float], share: float, temperature: float, seed: int
) -> None:
    exploration = Exploration(share, temperature)
    slate = draw_slate(np.random.default_rng(seed), np.array(scores), exploration, 3)
    orders, offered = _orders(scores, exploration), tuple(slate.order.tolist())
    prefix = [sum(p for order, p in orders.items() if order[:n] == offered[:n]) for n in range(len(offered) + 1)]
    expected = [below / above for above, below in itertools.pairwise(prefix)]
    assert slate.propensities.tolist() == pytest.approx(expected)


def test_plackett_luce_gives_the_published_figures() -> None:
    scores, greedy = np.log([3.0, 2.0, 1.0]), np.arange(3)

    def chance(*order: int) -> float:
        return float(np.prod(slot_propensities(scores, np.array(order), greedy, Exploration(1.0))))

    assert chance(0, 1) == pytest.approx(1 / 3)
    assert chance(0, 1) + chance(2, 1) == pytest.approx(0.4)


def test_lists_are_drawn_as_often_as_their_propensities_say() -> None:
    rng, scores, exploration = np.random.default_rng(0), np.array([1.0, 0.5, 0.0, -1.0]), Exploration(0.5)
    drawn = Counter(tuple(draw_slate(rng, scores, exploration, 2).order.tolist()) for _ in range(8000))
    expected: dict[tuple[int, ...], float] = defaultdict(float)
    for order, chance in _orders(scores.tolist(), exploration).items():
        expected[order[:2]] += chance
    for pair, chance in expected.items():
        assert drawn[pair] / 8000 == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / 8000))


def test_shuffled_traffic_shows_the_position_bias(shuffled: Log) -> None:
    """With every order as likely, completions per offer fall off as examination does."""
    offered: Counter[int] = Counter(shown.position for shown in shuffled.shown.values())
    completed = Counter(shown.position for shown in shuffled.shown.values() if shown.has("complete"))
    rates = {position: completed[position] / offered[position] for position in (1, 2, 3)}
    for position, theta in zip((2, 3), (0.7, 0.5), strict=True):
        error = math.sqrt(1 / completed[1] + 1 / completed[position])
        assert math.log(rates[position] / rates[1]) == pytest.approx(math.log(theta / 0.95), abs=4 * error)


def test_offers_are_seen_as_often_as_examination_says(shuffled: Log) -> None:
    assert Simulator(7).examination == (0.95, 0.7, 0.5)
    for position, theta in enumerate((0.95, 0.7, 0.5), 1):
        here = [shown.has("seen") for shown in shuffled.shown.values() if shown.position == position]
        assert np.mean(here) == pytest.approx(theta, abs=4 * math.sqrt(theta * (1 - theta) / len(here)))


def test_nothing_happens_to_an_offer_that_was_not_seen(shuffled: Log) -> None:
    assert all(shown.has("seen") or not shown.feedback for shown in shuffled.shown.values())


@pytest.mark.parametrize(("positions", "chance"), [((1,), 0.08), ((2, 3), 0.03)])
def test_accidents_are_as_frequent_as_configured(shuffled: Log, positions: tuple[int, ...], chance: float) -> None:
    slips = []
    for shown in shuffled.seen():
        if shown.position in positions and not shown.has("complete"):
            accepts = [event.time_s for event in shown.feedback if event.type == "accept"]
            regrets = [event.time_s for event in shown.feedback if event.type in ("undo", "dismiss")]
            slips.append(bool(accepts and regrets))
            assert not slips[-1] or 0.0 < regrets[0] - accepts[0] <= 6.002
    assert np.mean(slips) == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / len(slips)))


@pytest.mark.parametrize("log", ["shuffled", "popular"])
def test_seen_offers_are_completed_as_often_as_their_truth_says(log: str, request: pytest.FixtureRequest) -> None:
    seen: list[Shown] = request.getfixturevalue(log).seen()
    for low, high in [(0.0, 0.05), (0.05, 0.2), (0.2, 0.6), (0.6, 1.0), (0.0, 1.0)]:
        here = [shown for shown in seen if low <= shown.truth < high]
        expected = sum(shown.truth for shown in here)
        error = math.sqrt(sum(shown.truth * (1 - shown.truth) for shown in here))
        assert abs(sum(shown.has("complete") for shown in here) - expected) <= 4 * error


def test_completed_actions_are_done_again_by_himself_as_often_as_configured(shuffled: Log) -> None:
    completed = sum(shown.has("complete") for shown in shuffled.shown.values())
    reused = sum(
        isinstance(e, InteractionEvent) and e.action is not None and e.session is None for e in shuffled.events
    )
    assert reused / completed == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / completed))


def test_the_same_people_come_at_the_same_times_under_another_policy(popular: Log) -> None:
    other = record(Simulator(7, users=100, days=7), Shuffled(), Exploration(1.0))
    assert [(e.user, e.time, e.context.surface) for _, e in other.scenes] == [
        (e.user, e.time, e.context.surface) for _, e in popular.scenes
    ]


def test_the_truth_ranks_far_better_than_popularity_and_that_better_than_chance(shuffled: Log) -> None:
    popularity = Popularity()
    for event in shuffled.events:
        popularity.observe(event)
    rankers: dict[str, LoggingPolicy] = {"oracle": Oracle(), "popularity": popularity, "random": Shuffled()}
    metrics = {name: RankMetrics() for name in rankers}
    for scene, ranking in shuffled.scenes:
        keys = [(ranking.id, candidate.action, candidate.target) for candidate in scene.candidates]
        gains = [float(key in shuffled.shown and shuffled.shown[key].has("complete")) for key in keys]
        for name, ranker in rankers.items():
            metrics[name].add(ranker.scores(scene), gains)
    first = {name: metric.array("hr@1") for name, metric in metrics.items()}
    queries = range(len(first["random"]))
    gap = paired_interval(first["oracle"], first["popularity"], queries, seed=0)
    assert gap.low is not None and gap.low > 0.3
    assert (paired_interval(first["popularity"], first["random"], queries, seed=0).low or 0.0) > 0.0


def test_what_is_said_speaks_for_what_is_useful(shuffled: Log) -> None:
    """A table from text to the most needed action, learned on one half, finds the need on the other."""
    half = len(shuffled.scenes) // 2
    needs: dict[str | None, Counter[str]] = defaultdict(Counter)
    for scene, ranking in shuffled.scenes[:half]:
        needs[ranking.context.text][scene.candidates[scene.need].action] += 1
    judged = [
        (scene, ranking.context.text) for scene, ranking in shuffled.scenes[half:] if ranking.context.text in needs
    ]
    hits = [scene.candidates[scene.need].action == needs[text].most_common(1)[0][0] for scene, text in judged]
    assert np.mean(hits) > 0.6


class Clock:
    """Ten seconds pass between two looks."""

    def __init__(self) -> None:
        self.now_s = 1_720_000_000.0

    def __call__(self) -> float:
        self.now_s += 10.0
        return self.now_s


def play(seed: int, count: int = 30, run: str = "live") -> tuple[list[dict[str, object]], list[Event]]:
    app = small(3).live(Clock(), run=run, seed=seed)
    bodies, events = [], []
    for body in app.interactions(count):
        assert app.scene is not None
        bodies.append(body)
        events += app.respond([{"action": c.action, "target": c.target} for c in app.scene.candidates[:3]])
    return bodies, events


def test_a_live_app_asks_with_bodies_that_the_service_takes() -> None:
    bodies, _ = play(0)
    for body in bodies:
        request = msgspec.json.decode(msgspec.json.encode(body), type=RankRequest)
        assert request.context.trigger is not None
        assert request.k == 3


def test_a_live_app_answers_with_events_about_its_own_rankings() -> None:
    bodies, events = play(0)
    asked = {body["id"] for body in bodies}
    assert all(decode_event(encode_event(event)) == event for event in events)
    assert {event.ranking for event in events if isinstance(event, FeedbackEvent)} <= asked
    assert len({event.id for event in events} | asked) == len(events) + len(asked)
    assert {"seen", "accept", "complete"} <= {event.type for event in events if isinstance(event, FeedbackEvent)}


def test_live_events_are_never_further_ahead_than_a_service_accepts() -> None:
    app = small(3, behaviour=Behaviour(reuse=1.0)).live(clock := Clock())
    for _ in app.interactions(50):
        assert app.scene is not None
        best = app.scene.candidates[app.scene.need]
        for event in app.respond([{"action": best.action, "target": best.target}]):
            assert 0.0 <= event.time_s - clock.now_s <= 240.0


def test_live_play_follows_the_seed_and_runs_share_no_ids() -> None:
    assert play(0) == play(0) != play(1)
    first, second = play(0, run="a")[1], play(0, run="b")[1]
    assert not {event.id for event in first} & {event.id for event in second}


def test_an_answer_names_the_ranking_that_the_service_gave() -> None:
    app = small(3).live(Clock())
    list(itertools.islice(app.interactions(), 1))
    assert app.scene is not None
    best = app.scene.candidates[app.scene.need]
    events = app.respond([{"action": best.action, "target": best.target}], ranking="r-1")
    assert {event.ranking for event in events if isinstance(event, FeedbackEvent)} == {"r-1"}
    assert app.truth(best.action, best.target) == max(app.scene.truth)


def test_an_empty_or_unknown_answer_is_never_completed() -> None:
    app = small(3).live(Clock())
    for _ in app.interactions(40):
        assert [type(event) for event in app.respond([])] == [InteractionEvent]
        events = app.respond([{"action": "unheard_of", "target": None}])
        assert "complete" not in {event.type for event in events if isinstance(event, FeedbackEvent)}
        assert app.truth("unheard_of", None) == 0.0


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="users 0"):
        Simulator(0, users=0)
    with pytest.raises(ValueError, match="outside"):
        Behaviour(examination=(1.5,))
    with pytest.raises(ValueError, match=r"share 2\.0"):
        Exploration(share=2.0)
    with pytest.raises(RuntimeError, match="interactions first"):
        small(0).live(Clock()).respond([])
