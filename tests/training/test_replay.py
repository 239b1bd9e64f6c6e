"""Replay: each decision is met once, with what its features had read, and nothing that came later."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.events import COUNTED_TRAFFIC, Event, RankingEvent, encode_event
from features.log import LogWriter
from features.registry import vectors
from features.state import RowSet, State
from tests.features.streams import EventStream
from tests.training.logs import answered, catalogue, did, forget, ranked, write_log
from training import replay as module
from training.labels import Pair, read_labels
from training.queries import build_query, moment_of
from training.replay import Decision, Replay


def history(decision: Decision) -> list[str]:
    user = decision.known.user
    return [] if user is None else [done.action for done in user.row.history]


def met(logdir: Path, until_s: float | None = None, own_actions: bool = False) -> list[tuple[str, list[str]]]:
    return [(decision.event.id, history(decision)) for decision in Replay(logdir, until_s, own_actions)]


def test_a_ranking_is_met_before_its_own_effects(tmp_path: Path) -> None:
    write_log(tmp_path, [did("a", 0), ranked("r1", 1), answered("r1", "accept", 2, "b"), ranked("r2", 3)])
    assert met(tmp_path) == [("r1", ["a"]), ("r2", ["a", "b"])]


def test_a_ranking_is_met_at_what_it_had_read_not_at_its_place_in_the_log(tmp_path: Path) -> None:
    early: list[Event] = [did("a", 0), did("b", 1), did("c", 2)]
    behind = [ranked("r1", 3, seen_offset=1), ranked("r2", 3, seen_offset=0)]
    late = [ranked("r3", 5, seen_offset=5), ranked("r4", 6), ranked("r5", 7, seen_offset=99)]
    write_log(tmp_path, [*early, *behind, did("d", 4), *late])
    assert met(tmp_path) == [
        ("r2", []),
        ("r1", ["a"]),
        ("r3", ["a", "b", "c"]),
        ("r4", ["a", "b", "c", "d"]),
        ("r5", ["a", "b", "c", "d"]),
    ]


@pytest.mark.parametrize("lag", [1, 3, 7])
def test_lagging_rankings_see_the_same_bits_as_a_state_that_stopped_there(
    tmp_path: Path, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKAHEAD_EVENTS", 16)
    events: list[Event] = list(EventStream(lag, users=3).take(200))
    for offset, event in enumerate(events):
        if isinstance(event, RankingEvent):
            seen = max(offset - lag, 0)
            events[offset] = ranked(
                f"r{offset}", event.time_s - 1.7e9, "ab", event.user, session=event.session, seen_offset=seen
            )
    write_log(tmp_path, events)
    replay = Replay(tmp_path)
    count = 0
    for decision in replay:
        event = decision.event
        assert isinstance(event, RankingEvent)
        state, rowset = State(), RowSet()
        for offset, earlier in enumerate(events[: event.seen_offset]):
            state.apply(offset, earlier, rowset)
        alone = Replay(tmp_path)
        alone.state, alone.rowset = state, rowset
        expected = Decision(decision.offset, event, alone.known(event))
        pairs: list[Pair] = [(action, None) for action in ("summarize", "crop", "share", "a")]
        got = vectors(moment_of(decision, pairs, replay.state.catalogue))
        assert got.tobytes() == vectors(moment_of(expected, pairs, state.catalogue)).tobytes()
        count += 1
    assert count == sum(isinstance(event, RankingEvent) for event in events) > 30
    assert replay.counts["met_late"] == 0


def test_a_ranking_that_lagged_too_far_is_met_late_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKAHEAD_EVENTS", 4)
    write_log(tmp_path, [*(did(f"a{number}", number) for number in range(20)), ranked("r", 30, seen_offset=0)])
    replay = Replay(tmp_path)
    assert [len(history(decision)) < 20 for decision in replay] == [True]
    assert replay.counts["met_late"] == 1


@pytest.mark.parametrize("own_actions", [False, True])
def test_what_happened_at_or_after_until_is_neither_met_nor_known(tmp_path: Path, own_actions: bool) -> None:
    late = [did("late", 50), did("b", 2)]
    write_log(tmp_path, [did("a", 0), ranked("r1", 1), *late, ranked("r2", 10), ranked("r3", 9), did("c", 10)])
    found = dict(met(tmp_path, 1_700_000_010.0, own_actions))
    assert {name for name in found if name.startswith("r")} == {"r1", "r3"}
    assert found["r3"] == ["a", "b"]
    own = {name for name in found if not name.startswith("r")}
    assert own == ({"u did a at 0", "u did b at 2"} if own_actions else set())


def test_what_was_logged_twice_is_one_decision(tmp_path: Path) -> None:
    write_log(tmp_path, [ranked("r", 0), ranked("r", 0), ranked("r", 0, user="v"), did("a", 1), did("a", 1)])
    assert [name for name, _ in met(tmp_path, own_actions=True)] == ["r", "r", "u did a at 1"]


def test_only_traffic_that_people_saw_is_met(tmp_path: Path) -> None:
    traffic = ["live", "explore", "shadow", "holdout", "replay", "probe"]
    write_log(tmp_path, [ranked(name, 0, traffic=name) for name in traffic])
    assert {name for name, _ in met(tmp_path)} == COUNTED_TRAFFIC


def test_who_is_forgotten_is_unknown_afterwards_and_teaches_nothing_of_before(tmp_path: Path) -> None:
    events = [*catalogue("ab"), did("a", 0), ranked("r1", 1), answered("r1", "accept", 2), forget(3)]
    events += [ranked("r2", 4), did("b", 5)]
    write_log(tmp_path, events)
    assert met(tmp_path)[-1] == ("r2", [])
    labels = read_labels(enumerate(events))
    replay = Replay(tmp_path, own_actions=True)
    reasons = {decision.event.id: build_query(decision, labels, replay.state.catalogue) for decision in replay}
    assert reasons["u did a at 0"] == reasons["r1"] == "forgotten"
    assert not isinstance(reasons["u did b at 5"], str)


def test_an_unusable_line_is_passed_over_and_counted(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path) as writer:
        writer.append([encode_event(did("a", 0)), b'{"event":"wish"}', encode_event(ranked("r", 1, seen_offset=2))])
    replay = Replay(tmp_path)
    assert [history(decision) for decision in replay] == [["a"]]
    assert sum(replay.problems.counts.values()) == 1


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_comes_later_in_the_log_changes_a_decision(tmp_path: Path, seed: int) -> None:
    events = EventStream(seed, users=3).take(250)
    other = EventStream(seed + 100, users=3).take(250)
    cut = 150
    changed = [*events[:cut], *(event for event in other if event.id not in {known.id for known in events[:cut]})]
    write_log(tmp_path / "one", events)
    write_log(tmp_path / "other", changed)
    bits = []
    for name in ("one", "other"):
        replay = Replay(tmp_path / name)
        found = {}
        for decision in replay:
            if decision.offset < cut:
                pairs: list[Pair] = [(action, None) for action in ("summarize", "crop", "share")]
                found[decision.offset] = vectors(moment_of(decision, pairs, replay.state.catalogue)).tobytes()
        bits.append(found)
    assert len(bits[0]) > 10
    assert bits[0] == bits[1]
