"""The demo: it ends by itself, shows what it promises, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import cast

import pytest

from features.events import Event, InteractionEvent, RankingEvent, decode_event, encode_event
from features.log import LogWriter, read_log
from ranker.answers import AnswerItem, RankAnswer
from ranker.commands import demo
from tests.command_line import ACTIONS, START_S, Nextaction, picks, process
from training.demo.history import copy_history, hold_back
from training.demo.play import percentiles
from training.demo.recorded import RecordedApp
from training.demo.service import ServiceProcess, Started
from training.errors import TrainingError

SMALL = ("--users", 25, "--days", 5, "--interactions", 30, "--shown", 2)
NOW_S = 1_700_000_000.0


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def write_log(folder: Path, events: list[Event]) -> Path:
    with LogWriter.open(folder) as writer:
        writer.append([encode_event(event) for event in events])
    return folder


def test_a_simulated_demo_shows_what_it_promises(nextaction: Nextaction, tmp_path: Path) -> None:
    done = nextaction("demo", "--data", tmp_path / "kept", *SMALL)
    assert done.status == 0, done.err
    for words in ("offered", "why", "trigger", "said", "popularity", "markov", "linear", "priors", "light", "HR@1",
                  "NDCG@10", "p99", "degraded answers", "30 rankings"):  # fmt: skip
        assert words in done.out, words
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"log", "models", "service"}


def test_a_demo_of_a_log_plays_what_was_held_back(nextaction: Nextaction, tmp_path: Path) -> None:
    source = tmp_path / "events.jsonl"
    source.write_bytes(b"\n".join(map(encode_event, picks(150, hint=True))))
    done = nextaction("demo", "--log", source, "--format", "jsonl", "--data", tmp_path / "kept", "--json")
    assert (done.status, done.json["ok"]) == (0, True), done.err
    played, held_back = done.json["played"], done.json["held_back"]
    assert played["answers"] == held_back["decisions"] == done.json["evaluation"]["queries"] == 30
    assert played["errors"] == []
    assert sum(played["deeds"].values()) == 30
    assert set(played["latency_ms"]) == {"p50", "p95", "p99"}
    # The service's log: what had happened before, moved to the present, then lists and what followed.
    kinds = [type(event) for _, event in read_log(tmp_path / "kept" / "service" / "log")]
    assert kinds.count(RankingEvent) == 150


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with process("demo", "--serve", "--json", *SMALL, folder=tmp_path) as started:
        wait_for(lambda: any(tmp_path.glob("nextaction-demo-*/service/service.txt")))
        started.send_signal(signal.SIGINT)
        assert started.wait(40) == 130
        assert started.stdout is not None and started.stderr is not None
        assert started.stdout.read() == b""
        assert b"Traceback" not in started.stderr.read()
    assert list(tmp_path.iterdir()) == []
    assert not processes_with(str(tmp_path))


def test_a_demo_that_is_left_running_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with process("demo", "--serve", *SMALL, folder=tmp_path) as started:
        assert started.stdout is not None
        line = next(line for line in iter(started.stdout.readline, b"") if line.startswith(b"still serving at"))
        assert b"http://127.0.0.1:" in line
        assert processes_with(str(tmp_path))
        started.send_signal(signal.SIGINT)
        assert started.wait(40) == 0
    assert list(tmp_path.iterdir()) == []
    assert not processes_with(str(tmp_path))


def test_ctrl_c_as_soon_as_it_says_that_it_serves_is_how_it_is_meant_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def print(self, _: object) -> None:
            raise KeyboardInterrupt

    class Serving:
        started = Started("http://127.0.0.1:1")
        running = True

    monkeypatch.setattr(demo, "stdout", Interrupted)
    demo._serve(cast(ServiceProcess, Serving()), quiet=False)


def wait_for(holds: object, seconds: float = 60.0) -> None:
    assert callable(holds)
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it did not come to that"
        time.sleep(0.02)


def processes_with(text: str) -> list[str]:
    """Command lines of running processes that name something; empty where /proc cannot say."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and entry.parent.name != str(os.getpid()):
            found.append(line)
    return found


def test_a_last_day_is_held_back_where_it_has_enough(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", list(picks(150, hint=False)))  # 25 hours from 2020-05-20T18:50 on
    held_back = hold_back(log, whole_day=True)
    assert held_back.since_s == START_S + 600.0 * 121  # the last day would be 79 %: the last fifth instead
    assert (held_back.decisions, held_back.of) == (30, 150)
    log = write_log(tmp_path / "two", list(picks(50, hint=False)))
    held_back = hold_back(log, whole_day=True)
    assert (held_back.since_s, held_back.decisions) == (1590019200.0, 19)  # from 2020-05-21T00:00


def test_nothing_can_be_held_back_of_too_little(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="too few"):
        hold_back(write_log(tmp_path / "log", list(picks(1, hint=False))), whole_day=True)


def test_a_copied_history_is_the_same_but_later(tmp_path: Path) -> None:
    events = [
        decode_event(line)
        for line in (
            '{"event":"action","id":"a","time":"2020-05-20T10:00:00.000Z","action":"x","fields":{"expires":"2020-06-01T00:00:00Z"}}',
            '{"event":"ranking","id":"r","time":"2020-05-21T10:00:00.000Z","user":"u","context":{"time":"2020-05-21T10:00:00Z",'
            '"entities":[{"id":"1","type":"image","time":"2020-05-21T09:00:00Z"},{"id":"2","type":"image"}]}}',
            '{"event":"user","id":"u","time":"2020-05-22T10:00:00.000Z","user":"u"}',
        )
    ]
    log = write_log(tmp_path / "log", events)
    written = copy_history(log, tmp_path / "copy", until_s=events[2].time_s, shift_s=86400.5)
    copied = [encode_event(event).decode() for _, event in read_log(tmp_path / "copy")]
    assert written == len(copied) == 2
    assert '"time":"2020-05-21T10:00:00.500Z"' in copied[0] and '"2020-06-02T00:00:00.500Z"' in copied[0]
    assert copied[1].count("2020-05-22T10:00:00.500Z") == 2 and "2020-05-22T09:00:00.500Z" in copied[1]


def answer(number: int, *actions: str) -> RankAnswer:
    items = [AnswerItem(action, None, place, 1.0, 1.0) for place, action in enumerate(actions, 1)]
    return RankAnswer(f"answer-{number}", items, "live", {}, [], {})


def test_a_recorded_pick_is_accepted_where_it_is_offered_and_done_by_himself_where_not(tmp_path: Path) -> None:
    app = RecordedApp(write_log(tmp_path / "log", list(picks(2, hint=True))), 0.0, lambda: NOW_S, "again")
    turns = app.turns()
    turn = next(turns)
    assert turn.body["context"] == {"surface": "chat", "fields": {"step": f"before_{ACTIONS[0]}"}}  # no hint
    found = app.respond(answer(1, "book", ACTIONS[0]))
    assert found.picked == found.wanted == (ACTIONS[0], None)
    assert [getattr(event, "type", None) for event in found.after] == ["seen", "seen", "accept"]
    assert {event.time_s for event in found.after} == {NOW_S}
    next(turns)
    found = app.respond(answer(2, "book"))
    (_, own) = found.after
    assert isinstance(own, InteractionEvent)
    assert (found.picked, own.action, own.time_s) == (None, ACTIONS[1], NOW_S)
    assert next(turns, None) is None


def test_a_log_without_lists_asks_before_each_action_that_a_user_did_by_himself(tmp_path: Path) -> None:
    lines = [
        f'{{"event":"interaction","id":"i{n}","time":"2020-05-20T10:00:0{n}.000Z","user":"u","type":"action","action":"x{n}"}}'
        for n in range(3)
    ]
    log = write_log(tmp_path / "log", [decode_event(line) for line in lines])
    app = RecordedApp(log, 0.0, lambda: NOW_S, "again")
    outcomes = [app.respond(answer(number, "x1")) for number, _ in enumerate(app.turns())]
    assert [outcome.wanted for outcome in outcomes] == [("x0", None), ("x1", None), ("x2", None)]
    assert [outcome.deed for outcome in outcomes] == ["chosen by himself", "accepted", "chosen by himself"]


def test_percentiles_are_those_of_the_waiting_times() -> None:
    assert percentiles([float(value) for value in range(101)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles([]) == {}
