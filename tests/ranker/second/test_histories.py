"""Histories follow the log, within bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from features.events import Event, FeedbackEvent, ForgetEvent, InteractionEvent, encode_event, from_seconds
from features.log import LogWriter, read_log
from ranker.second.happenings import Courses
from ranker.second.histories import Histories
from tests.ranker.inference.loops import in_loop

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
async def test_the_users_seen_longest_ago_leave_when_there_is_too_much(tmp_path: Path) -> None:
    log = written(tmp_path, [interaction(number, f"u{number // 10}") for number in range(100)])
    histories = Histories(tmp_path / "log", lambda: log.end, keep=100, max_happenings=35)
    task = await until_caught_up(histories)
    assert histories.happenings <= 35 and histories.left == 7 and len(histories) == 3
    assert (gone := histories.of("u0")) is not None and gone.total == 0
    assert (kept := histories.of("u9")) is not None and kept.total == 10
    task.cancel()
    histories.close()
    log.close()


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
