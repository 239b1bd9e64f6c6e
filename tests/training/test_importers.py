"""Importers: what becomes what, what is passed over, and that a failed import leaves nothing."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from features.errors import LogError
from features.events import ActionEvent, Event, FeedbackEvent, InteractionEvent, RankingEvent
from features.log import LogWriter, read_log
from training.importers import IMPORTERS, ImportReport, SourceError, import_log


def write(path: Path, *lines: str | dict[str, Any], packed: bool = False) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def imported(tmp_path: Path, format: str, source: Path) -> tuple[list[Event], ImportReport]:
    report = import_log(format, source, tmp_path / "log")
    return [event for _, event in read_log(tmp_path / "log")], report


def forget(id: str, time: str = "2026-03-01T12:00:00Z") -> dict[str, Any]:
    return {"event": "forget", "id": id, "time": time, "user": "u"}


# Every format


SOURCES: dict[str, str | dict[str, Any]] = {
    "star": {"id": 1, "wiz": "w", "tasks": [], "ev": [{"t": 9, "a": "U", "k": "utter", "x": "Hi"}]},
    "sequences": "u a",
    "jsonl": forget("a"),
}


def test_every_format_has_a_source_here() -> None:
    # A folder is read by one format more: tests/training/off_policy/test_open_bandit.py.
    assert [*SOURCES, "open-bandit"] == list(IMPORTERS)


@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path, format: str, packed: bool) -> None:
    plain = write(tmp_path / "plain", SOURCES[format])
    marked = plain.read_bytes().decode().encode("utf-8-sig")
    (tmp_path / "marked").write_bytes(gzip.compress(marked) if packed else marked)
    events, report = imported(tmp_path, format, tmp_path / "marked")
    assert (report.skipped.total(), report.total) == (0, len(events))
    import_log(format, plain, tmp_path / "without")
    assert events == [event for _, event in read_log(tmp_path / "without")]


@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_plain_and_gzip_are_told_apart_by_content(tmp_path: Path, format: str, packed: bool) -> None:
    events, report = imported(tmp_path, format, write(tmp_path / "source", "", SOURCES[format], packed=packed))
    assert len(events) == report.total > 0
    assert report.to_json()["total"] == report.total


@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.parametrize("other", ["star", "sequences", "jsonl", "empty", "binary", "missing", "cut gzip"])
def test_a_source_of_another_kind_is_one_clear_error_and_leaves_no_log(tmp_path: Path, format: str, other: str) -> None:
    if format == other:
        return
    source = tmp_path / "source"
    if other == "binary":
        source.write_bytes(bytes(range(128, 256)) * 9)
    elif other == "cut gzip":
        source.write_bytes(gzip.compress(json.dumps(SOURCES[format]).encode() * 99)[:-20])
    elif other != "missing":
        write(source, SOURCES.get(other, ""))
    with pytest.raises(SourceError, match=r"source (does not exist|is broken gzip|has nothing that format)"):
        import_log(format, source, tmp_path / "log")
    assert {path.name for path in tmp_path.iterdir()} <= {"source"}


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"format 'sequence' is not one of .*did you mean sequences"):
        import_log("sequence", tmp_path, tmp_path / "log")


def test_a_log_that_is_there_is_not_touched(tmp_path: Path) -> None:
    source = write(tmp_path / "source", "u a")
    (tmp_path / "empty").mkdir()
    assert import_log("sequences", source, tmp_path / "empty").total == 2
    with pytest.raises(LogError, match="empty is not empty"):
        import_log("sequences", source, tmp_path / "empty")
    with pytest.raises(LogError, match="is not a folder"):
        import_log("sequences", source, source)
    assert len(list(read_log(tmp_path / "empty"))) == 2


def test_a_log_goes_on_after_an_import_and_parents_are_made(tmp_path: Path) -> None:
    logdir = tmp_path / "new" / "log"
    import_log("sequences", write(tmp_path / "source", "u a b"), logdir)
    with LogWriter.open(logdir) as writer:
        assert (writer.end, writer.cut_bytes) == (4, 0)


def test_an_interrupted_import_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(written: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_log("sequences", write(tmp_path / "source", "u a b"), tmp_path / "log", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_progress_counts_events(tmp_path: Path) -> None:
    seen: list[int] = []
    import_log("sequences", write(tmp_path / "source", "u " + "a " * 2500), tmp_path / "log", seen.append)
    assert seen == [1000, 2000, 2501]


# jsonl


def test_jsonl_keeps_the_order_counts_duplicates_and_names_invalid_lines(tmp_path: Path) -> None:
    lines: list[str | dict[str, Any]] = [
        forget("b"),
        "{nonsense",
        forget("a", "2025-01-01T00:00:00Z"),
        forget("b"),
        {"event": "other"},
    ]
    events, report = imported(tmp_path, "jsonl", write(tmp_path / "source", *lines))
    assert [event.id for event in events] == ["b", "a"]
    assert (report.duplicates, report.events, report.skipped) == (1, {"forget": 2}, {"invalid": 2})
    assert [(example["file"], example["line"]) for example in report.examples] == [("source", 2), ("source", 5)]


def test_rankings_of_two_users_may_share_an_id(tmp_path: Path) -> None:
    lines: list[str | dict[str, Any]] = [
        {"event": "ranking", "id": "r", "time": "2026-03-01T12:00:00Z", "user": user} for user in ("u", "v", "u")
    ]
    events, report = imported(tmp_path, "jsonl", write(tmp_path / "source", *lines))
    assert (len(events), report.duplicates) == (2, 1)


def test_a_folder_of_jsonl_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "2.jsonl", forget("second"))
    write(folder / "1.jsonl.gz", forget("first"), packed=True)
    write(folder / "notes.txt", "nothing")
    events, _ = imported(tmp_path, "jsonl", folder)
    assert [event.id for event in events] == ["first", "second"]
    assert import_log("jsonl", tmp_path / "log", tmp_path / "copy").total == 2
    with pytest.raises(SourceError, match=r"has no \*\.jsonl"):
        import_log("jsonl", tmp_path, tmp_path / "other")


# sequences


def test_sequences_become_a_catalogue_and_actions_a_minute_apart(tmp_path: Path) -> None:
    events, report = imported(tmp_path, "sequences", write(tmp_path / "s", "u1 open_mail reply", "", "u2\treply", "u3"))
    catalogue, interactions = events[:2], events[2:]
    assert [(event.action, event.fields) for event in catalogue if isinstance(event, ActionEvent)] == [
        ("open_mail", {"title": "open mail"}),
        ("reply", {"title": "reply"}),
    ]
    assert [
        (one.user, one.session, one.type, one.action, one.time)
        for one in interactions
        if isinstance(one, InteractionEvent)
    ] == [
        ("u1", "u1", "action", "open_mail", datetime(2020, 1, 1, 0, 0, tzinfo=UTC)),
        ("u1", "u1", "action", "reply", datetime(2020, 1, 1, 0, 1, tzinfo=UTC)),
        ("u2", "u2", "action", "reply", datetime(2020, 1, 1, 0, 2, tzinfo=UTC)),
    ]
    assert all(event.time < interactions[0].time for event in catalogue)
    assert report.skipped == {"no_items": 1}


def test_a_user_may_have_several_lines_and_a_name_that_is_too_long_costs_its_line(tmp_path: Path) -> None:
    events, report = imported(tmp_path, "sequences", write(tmp_path / "s", "u a", "u a", "v " + "x" * 257))
    assert [event.id for event in events] == ["sequences-action-0", "sequences-1-0", "sequences-2-0"]
    assert (report.skipped, report.duplicates) == ({"invalid": 1}, 0)


# star


def dialogue(id: int, *turns: dict[str, Any], tasks: tuple[str, ...] = ("bank_balance",)) -> dict[str, Any]:
    hidden = {"done": "Complete", "happy": False, "batch": "b", "usr": "someone", "t0": 1}
    return {"id": id, "wiz": "player", "multi": len(tasks) > 1, "tasks": list(tasks), "ev": list(turns), **hidden}


def turn(t: int | None, k: str, a: str = "W", **fields: Any) -> dict[str, Any]:
    return {"t": t, "a": a, "k": k, **fields}


def pick(t: int, l: str, o: list[str]) -> dict[str, Any]:  # noqa: E741
    return turn(t, "pick_suggestion", l=l, o=o, x="as sent")


def read_star(tmp_path: Path, *dialogues: dict[str, Any]) -> tuple[list[Event], ImportReport]:
    return imported(tmp_path, "star", write(tmp_path / "star", *dialogues))


def summary(events: list[Event]) -> list[tuple[str, str, int]]:
    return [
        (event.id, getattr(event, "type", "ranking"), round(event.time_s))
        for event in events
        if not isinstance(event, ActionEvent)
    ]


def test_the_last_request_before_a_pick_is_the_ranking_and_the_pick_its_accept(tmp_path: Path) -> None:
    events, _ = read_star(
        tmp_path,
        dialogue(
            7,
            turn(10, "utter", "U", x="Hello"),
            turn(11, "request_suggestions", x="first hint"),
            turn(12, "request_suggestions", x="second hint"),
            pick(15, "hello", ["goodbye", "hello"]),
            turn(20, "request_suggestions", x="third hint"),
            turn(21, "utter", x="my own text"),
            turn(22, "complete", "U"),
        ),
    )
    assert summary(events) == [
        ("star-7-0", "utter", 10),
        ("star-7-1", "ranking", 11),
        ("star-7-2", "ranking", 12),
        ("star-7-3", "accept", 15),
        ("star-7-4", "ranking", 20),
        ("star-7-5", "utter", 21),
        ("star-7-6", "complete", 22),
        ("star-7-6-feedback", "complete", 22),
    ]
    earlier, ranking, unanswered = (event for event in events if isinstance(event, RankingEvent))
    assert [len(unknown.items) for unknown in (earlier, unanswered)] == [0, 0]
    assert [(item.action, item.position, item.propensity) for item in ranking.items] == [("hello", 2, None)]
    assert (ranking.user, ranking.session, ranking.traffic) == ("player", "star-7", "live")
    assert ranking.versions == {"import": "star"}
    assert ranking.context.trigger is not None
    assert (ranking.context.trigger.type, ranking.context.text) == ("utter", None)
    assert ranking.context.fields == {
        "task": "bank_balance",
        "tasks": ["bank_balance"],
        "_domain": "bank",
        "_multi": "false",
        "_hint": "second hint",
    }
    feedback = [event for event in events if isinstance(event, FeedbackEvent)]
    assert [(event.type, event.ranking, event.action) for event in feedback] == [
        ("accept", "star-7-2", "hello"),
        ("complete", "star-7-2", "hello"),
    ]


def test_what_would_not_be_known_at_the_time_is_nowhere(tmp_path: Path) -> None:
    turns = (
        turn(10, "instruct", "U", x="SECRET"),
        turn(11, "request_suggestions", x="HINT"),
        turn(12, "utter", "U", x="hi"),
    )
    _, report = read_star(tmp_path, dialogue(1, *turns))
    text = b"".join(path.read_bytes() for path in (tmp_path / "log" / "partition-0").glob("*.jsonl"))
    assert not any(word in text for word in (b"SECRET", b"HINT", b"done", b"happy", b"batch", b"instruct", b"usr"))
    assert report.skipped == {"hidden_instruction": 1}


def test_results_without_a_time_take_the_one_before_and_times_never_go_back(tmp_path: Path) -> None:
    events, _ = read_star(
        tmp_path,
        dialogue(
            1,
            turn(None, "query", api="weather"),
            turn(30, "query", api="weather"),
            turn(None, "return_item", "K", api="weather", n=4),
            turn(20, "utter", "U", x="late"),
        ),
    )
    assert [event.time_s for event in events] == [30.0, 30.0, 30.0, 30.0]
    assert [event.fields for event in events if isinstance(event, InteractionEvent)] == [
        {"api": "weather"},
        {"api": "weather"},
        {"api": "weather", "n": "2-5"},
        {"by": "user"},
    ]


def test_dialogues_are_merged_by_time_and_at_equal_times_by_the_order_of_the_file(tmp_path: Path) -> None:
    def speak(*times: int) -> list[dict[str, Any]]:
        return [turn(time, "utter", "U", x="x") for time in times]

    events, _ = read_star(tmp_path, dialogue(1, *speak(10, 20, 20, 30)), dialogue(2, *speak(5, 20, 25)))
    expected = ["star-2-0", "star-1-0", "star-1-1", "star-1-2", "star-2-1", "star-2-2", "star-1-3"]
    assert [event.id for event in events] == expected


def test_the_catalogue_is_what_was_picked_and_stands_a_second_before_everything(tmp_path: Path) -> None:
    turns = (turn(10, "request_suggestions", x=""), pick(11, "ask_name", ["never", "ask_name", "ask_name"]))
    events, report = read_star(tmp_path, dialogue(1, *turns))
    first = events[0]
    assert isinstance(first, ActionEvent)
    assert (first.action, first.fields, first.time_s) == ("ask_name", {"title": "ask name"}, 9.0)
    ranking = events[1]
    assert isinstance(ranking, RankingEvent)
    assert [(item.action, item.position) for item in ranking.items] == [("ask_name", 2)]
    assert (report.notes["items_listed_twice"], report.notes["items_never_picked"]) == (1, 1)


def test_the_current_task_is_the_one_selected_last(tmp_path: Path) -> None:
    def ask(time: int) -> tuple[dict[str, Any], ...]:
        return turn(time, "request_suggestions", x=""), pick(time, "a", ["a"])

    turns = (*ask(1), turn(2, "select_task", task="ride_book"), *ask(3))
    events, _ = read_star(tmp_path, dialogue(1, *turns, tasks=("trip_plan", "ride_book")))
    contexts = [event.context.fields for event in events if isinstance(event, RankingEvent)]
    seen = [(fields["task"], fields["_domain"], fields["_multi"]) for fields in contexts]
    assert seen == [("trip_plan", "trip", "true"), ("ride_book", "ride", "true")]


def test_a_second_pick_from_a_list_is_a_query_of_its_own_and_one_without_any_list_is_skipped(tmp_path: Path) -> None:
    turns = (pick(1, "a", ["a"]), turn(2, "request_suggestions", x=""), pick(3, "a", ["a"]), pick(4, "b", ["a", "b"]))
    events, report = read_star(tmp_path, dialogue(1, *turns))
    accepts = [event for event in events if isinstance(event, FeedbackEvent)]
    assert [(event.ranking, event.action) for event in accepts] == [("star-1-1", "a"), ("star-1-1-again-1", "b")]
    rankings = [event for event in events if isinstance(event, RankingEvent)]
    assert [ranking.time_s for ranking in rankings] == [2.0, 2.0]
    assert (report.skipped["pick_without_request"], report.notes["picks_from_an_earlier_list"]) == (1, 1)


def test_a_dialogue_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    good = dialogue(1, turn(5, "utter", "U", x="x"))
    _, report = read_star(tmp_path, good, {"id": 2, "wiz": "w"}, dialogue(3, turn(None, "utter")), good)
    assert report.skipped == {"invalid": 1, "no_time": 1, "duplicate_dialogue": 1}
    assert [example["line"] for example in report.examples] == [2, 3, 4]
