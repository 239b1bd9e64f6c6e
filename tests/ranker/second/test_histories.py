"""Histories follow the log, within bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from features import rows
from features.events import Event, FeedbackEvent, ForgetEvent, InteractionEvent, encode_event, from_seconds
from features.log import LogWriter, read_log
from ranker.second.happenings import OPEN_RANKING, Courses
from ranker.second.histories import Histories
from tests.ranker.inference.loops import in_loop
from tests.training.logs import answered, did, forget, ranked

START_S = 1_700_000_000.0


def interaction(number: int, user: str) -> Event:
    return InteractionEvent(id=f"i{number}", time=from_seconds(START_S + number), user=user, session="s", type="typed")


def written(tmp_path: Path, events: list[Event]) -> LogWriter:
    log = LogWriter.open(tmp_path / "log")
    log.append([encode_event(event) for event in events])
    return log


async def until_caught_up(histories: Histories) -> asyncio.Task[None]:
    task = asyncio.create_task(histories.run())
    while not histories.caught_up:
        await asyncio.sleep(0.005)
    return task


@in_loop
async def test_a_course_has_all_that_is_written_by_now(tmp_path: Path) -> None:
    log = written(tmp_path, [interaction(number, f"u{number % 3}") for number in range(30)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100)
    assert histories.of("u0") is None  # still being read
    task = await until_caught_up(histories)
    log.append([encode_event(interaction(30, "u0"))])
    course = histories.of("u0")  # nobody had to wait for a turn of the loop
    oracle = Courses()
    for offset, event in read_log(tmp_path / "log"):
        oracle.apply(offset, event)
    assert course is not None and course.kept == oracle.of("u0").kept and course.total == 11
    assert (empty := histories.of("never seen")) is not None and empty.total == 0
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_the_users_seen_longest_ago_leave_memory_and_come_back_as_they_were(tmp_path: Path) -> None:
    log = written(tmp_path, [interaction(number, f"u{number // 10}") for number in range(100)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, max_happenings=35)
    task = await until_caught_up(histories)
    assert histories.happenings <= 35 and histories.left == 7 and len(histories) == 3
    assert (back := histories.of("u0")) is not None and back.total == 10
    assert (histories.back, histories.away, histories.lost) == (1, 7, 0)
    assert histories.happenings <= 35
    log.append([encode_event(interaction(100, "u1"))])
    assert (more := histories.of("u1")) is not None and more.total == 11
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_without_an_attic_who_left_is_lost_and_that_is_counted(tmp_path: Path) -> None:
    log = written(tmp_path, [interaction(number, f"u{number // 10}") for number in range(100)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, max_happenings=35, attic_bytes=0)
    task = await until_caught_up(histories)
    assert (gone := histories.of("u0")) is not None and gone.total == 0
    assert (kept := histories.of("u9")) is not None and kept.total == 10
    assert (histories.left, histories.lost, histories.away) == (7, 7, 0)
    task.cancel()
    histories.close()
    log.close()


def random_events(draw: np.random.Generator, count: int) -> list[Event]:
    """Of few users, with rankings and what follows them, late events, ids that come twice, and some to be forgotten."""
    events: list[Event] = []
    for number in range(count):
        user, at_s = f"u{draw.integers(9)}", 10.0 * number - (300.0 if draw.random() < 0.1 else 0.0)
        kind = draw.random()
        if kind < 0.4:
            events.append(did("a", at_s, user, id=f"i{draw.integers(count)}"))
        elif kind < 0.65:
            events.append(ranked(f"{user}r{number // 20}", at_s, "abc", user))
        elif kind < 0.97:
            which = ("accept", "complete", "dismiss", "undo")[draw.integers(4)]
            events.append(answered(f"{user}r{number // 20}", which, at_s, "abc"[draw.integers(3)], user))
        else:
            events.append(forget(at_s, user))
    return events


@pytest.mark.parametrize("attic_bytes", [1 << 20, 6 << 10])
@pytest.mark.parametrize("seed", range(4))
@in_loop
async def test_a_course_is_as_if_nobody_had_ever_left_or_it_is_counted_as_lost(
    tmp_path: Path, seed: int, attic_bytes: int
) -> None:
    draw = np.random.default_rng(seed)
    events = random_events(draw, 400)
    log = written(tmp_path, events[:100])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=30, max_happenings=60, attic_bytes=attic_bytes)
    task = await until_caught_up(histories)
    differ = 0
    for start in range(100, 400, 10):
        log.append([encode_event(event) for event in events[start : start + 10]])
        oracle = Courses(30)
        for offset, event in read_log(tmp_path / "log"):
            oracle.apply(offset, event)
        for user in [f"u{number}" for number in draw.permutation(9)[:3].tolist()]:
            found = histories.of(user)
            assert found is not None
            same = (found.total, found.kept) == (oracle.of(user).total, oracle.of(user).kept)
            assert same or (histories.lost and found.total < oracle.of(user).total)
            differ += not same
        assert histories.happenings <= 60 or len(histories) == 1
    assert histories.back > 0 and (histories.lost == 0) == (differ == 0) == (attic_bytes == 1 << 20)
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_who_is_forgotten_while_away_does_not_come_back(tmp_path: Path) -> None:
    log = written(tmp_path, [interaction(number, f"u{number // 10}") for number in range(100)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, max_happenings=35)
    task = await until_caught_up(histories)
    log.append([encode_event(ForgetEvent(id="f", time=from_seconds(START_S + 999), user="u0"))])
    assert (gone := histories.of("u0")) is not None and gone.total == 0
    assert histories.away == 6 and histories.lost == 0
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_a_file_that_gives_something_else_than_it_was_given_loses_a_user_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, [interaction(number, f"u{number // 10}") for number in range(100)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, max_happenings=35)
    task = await until_caught_up(histories)
    monkeypatch.setattr("ranker.second.attic.os.pread", lambda _file, size, _at: b"\xc1" * size)
    log.append([encode_event(interaction(100, "u0"))])
    assert (rest := histories.of("u0")) is not None and rest.total == 1
    assert histories.lost == 1 and histories.back == 0
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_ids_and_rankings_that_are_remembered_do_not_grow_with_the_log(tmp_path: Path) -> None:
    courses = Courses(10, most_ids=50)
    for number in range(300):
        courses.apply(2 * number, did("a", number, "u", id=f"i{number}"))
        courses.apply(2 * number + 1, answered("none", "accept", number, "a", f"stranger{number}"))
    assert len(courses._ids) == 50
    assert len(courses) == 1  # of whom nothing can be read nothing is kept
    many = Courses(10)
    for number in range(500):
        many.apply(number, ranked(f"r{number}", number, "ab", "u"))
    assert len(many._open["u"]) == rows.MAX_RANKINGS
    many.apply(501, ranked("much later", 500 + rows.RANKING_LIFE_S + 1, "ab", "u"))
    assert list(many._open["u"]) == ["much later"]
    assert many.size("u") <= 2 * 10 + OPEN_RANKING


@in_loop
async def test_who_asked_to_be_forgotten_is_and_it_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    log = written(tmp_path, [interaction(number, "u") for number in range(5)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, forgotten=told.append)
    task = await until_caught_up(histories)
    log.append([encode_event(ForgetEvent(id="f", time=from_seconds(START_S + 9), user="u"))])
    assert (course := histories.of("u")) is not None and course.total == 0
    assert told == ["u"] and histories.happenings == 0
    task.cancel()
    histories.close()
    log.close()


@in_loop
async def test_feedback_that_names_no_ranking_is_no_happening(tmp_path: Path) -> None:
    orphan = FeedbackEvent(
        id="f", time=from_seconds(START_S), user="u", ranking="none", type="accept", action="a", target=None
    )
    log = written(tmp_path, [orphan])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=10)
    task = await until_caught_up(histories)
    assert (course := histories.of("u")) is not None and course.total == 0
    task.cancel()
    histories.close()
    log.close()
