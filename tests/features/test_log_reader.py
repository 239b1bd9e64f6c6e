"""The readers: order, tolerance, following a log that grows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.errors import LogError
from features.events import (
    ActionEvent,
    Context,
    Entity,
    Event,
    FeedbackEvent,
    ForgetEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    Trigger,
    UserEvent,
    encode_event,
    from_seconds,
)
from features.log import LogTail, LogWriter, Problems, last_lines, read_lines, read_log

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def event(number: int) -> Event:
    return InteractionEvent(id=f"e{number}", time=NOON, user="u", type="opened")


def fill(logdir: Path, events: Sequence[Event], segment_bytes: int = 350) -> None:
    with LogWriter.open(logdir, segment_bytes=segment_bytes) as writer:
        for one in events:
            writer.append([encode_event(one)])


def segments(logdir: Path) -> list[Path]:
    return sorted((logdir / "partition-0").glob("*.jsonl"))


def ids(read: Sequence[tuple[int, Event]]) -> list[tuple[int, str]]:
    return [(offset, one.id) for offset, one in read]


def numbered(*offsets: int) -> list[tuple[int, str]]:
    return [(offset, f"e{offset}") for offset in offsets]


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(0, None, range(10)), (3, 7, range(3, 7)), (9, 99, range(9, 10)), (10, None, [])]
)
def test_events_come_in_offset_order_across_segments(
    tmp_path: Path, start: int, stop: int | None, expected: Sequence[int]
) -> None:
    fill(tmp_path, [event(number) for number in range(10)])
    assert len(segments(tmp_path)) > 3
    assert ids(list(read_log(tmp_path, start, stop))) == numbered(*expected)


def test_raw_lines_say_where_they_stand(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path, segment_bytes=4) as writer:
        for line in (b"a", b"b", b"c"):
            writer.append([line])
    first, second = segments(tmp_path)
    assert list(read_lines(tmp_path)) == [(0, b"a", first, 1), (1, b"b", first, 2), (2, b"c", second, 1)]


def test_blank_lines_keep_their_ordinal_and_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, [event(number) for number in range(4)], segment_bytes=10_000)
    lines = segments(tmp_path)[0].read_bytes().split(b"\n")
    segments(tmp_path)[0].write_bytes(b"\n".join([lines[0], b"", b"", lines[3], b""]))
    problems = Problems()
    assert ids(list(read_log(tmp_path, problems=problems))) == numbered(0, 3)
    assert problems.total == 0


def test_an_unusable_line_is_named_and_passed_over(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path) as writer:
        writer.append([encode_event(event(0)), b'{"event":"interaction","id":"x"', b"\xff\x00", b"[1]", b"\r{}"])
        writer.append([b'{"event":"forget","id":"x","time":"2026-03-01T12:00:00Z","user":""}', encode_event(event(6))])
    problems = Problems(keep=4)
    assert ids(list(read_log(tmp_path, problems=problems))) == numbered(0, 6)
    assert problems.counts == {"torn_line": 1, "invalid_line": 4}
    assert [(found.line, found.offset) for found in problems.examples] == [(2, 1), (3, 2), (4, 3), (5, 4)]
    assert {found.segment for found in problems.examples} == {f"{0:020d}.jsonl"}


def test_a_torn_tail_is_not_read_and_is_named(tmp_path: Path) -> None:
    fill(tmp_path, [event(0)])
    segments(tmp_path)[0].write_bytes(segments(tmp_path)[0].read_bytes() + encode_event(event(1)))
    problems = Problems()
    assert ids(list(read_log(tmp_path, problems=problems))) == numbered(0)
    assert [(found.kind, found.line, found.offset) for found in problems.examples] == [("torn_line", 2, 1)]


def test_a_gap_between_segments_is_named_and_offsets_follow_the_names(tmp_path: Path) -> None:
    fill(tmp_path, [event(number) for number in range(9)])
    segments(tmp_path)[1].unlink()
    problems = Problems()
    read = list(read_log(tmp_path, problems=problems))
    assert ids(read) == numbered(*(offset for offset in range(9) if offset not in (2, 3)))
    assert problems.counts == {"segment_gap": 1}
    segments(tmp_path)[0].unlink()
    assert ids(list(read_log(tmp_path, problems=problems)))[0] == (4, "e4")
    assert "offsets 0 to 3 are missing" in problems.examples[-1].reason


def test_an_endless_line_is_passed_over_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.log_cursor.MAX_LINE_BYTES", 1000)
    fill(tmp_path, [event(0)])
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes() + b"x" * 12_345 + b"\n" + encode_event(event(2)) + b"\n" + b"y" * 5000)
    problems = Problems()
    assert ids(list(read_log(tmp_path, problems=problems))) == numbered(0, 2)
    assert [found.reason for found in problems.examples] == [
        "the line has 12346 bytes, more than 1000",
        "5000 bytes without a newline at the end",
    ]


def test_what_is_not_a_log_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "no-partition").mkdir()
    (tmp_path / "empty" / "partition-0").mkdir(parents=True)
    for name, reason in (
        ("missing", "does not exist"),
        ("file", "is not a folder"),
        ("no-partition", "no folder partition-0"),
        ("empty", "is an empty log"),
    ):
        with pytest.raises(LogError, match=f"{name} .*{reason}"):
            next(read_log(tmp_path / name))
        with pytest.raises(LogError, match=f"{name} .*{reason}"):
            LogTail(tmp_path / name)


def test_a_new_log_has_no_events(tmp_path: Path) -> None:
    fill(tmp_path, [])
    assert list(read_log(tmp_path)) == []


def test_a_tail_reads_each_line_once_across_rotations(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path, segment_bytes=350) as writer:
        tail = LogTail(tmp_path)
        assert tail.read(10) == []
        read: list[tuple[int, Event]] = []
        for number in range(20):
            writer.append([encode_event(event(number))])
            if number % 3 == 0:
                read += tail.read(2)
        assert ids(read) == numbered(*range(13))
        assert tail.offset == 13
        read += tail.read(100)
        assert ids(read) == numbered(*range(20))
        assert (tail.offset, tail.read(1)) == (20, [])
        tail.close()


def test_a_tail_starts_and_stops_where_it_is_told(tmp_path: Path) -> None:
    fill(tmp_path, [event(number) for number in range(10)])
    tail = LogTail(tmp_path, start=4)
    assert tail.offset == 4
    assert ids(tail.read(100, stop=6)) == numbered(4, 5)
    assert (tail.offset, tail.read(100, stop=6)) == (6, [])
    assert ids(tail.read(3)) == numbered(6, 7, 8)
    tail.close()


def test_a_tail_waits_for_the_rest_of_a_line(tmp_path: Path) -> None:
    fill(tmp_path, [])
    tail = LogTail(tmp_path)
    line = encode_event(event(0)) + b"\n"
    with segments(tmp_path)[0].open("ab", buffering=0) as file:
        for part in (line[:10], line[10:30], line[30:-1]):
            file.write(part)
            assert tail.read(1) == []
        file.write(b"\n")
    assert ids(tail.read(1)) == numbered(0)
    tail.close()


def test_a_tail_goes_past_lines_it_cannot_use(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path) as writer:
        writer.append([b"{}", b"nonsense"])
        tail = LogTail(tmp_path)
        assert (tail.read(1), tail.offset, tail.problems.total) == ([], 2, 2)
        tail.close()


def test_a_tail_notices_that_lines_it_has_read_are_gone(tmp_path: Path) -> None:
    fill(tmp_path, [event(0), event(1)], segment_bytes=10_000)
    tail = LogTail(tmp_path)
    tail.read(2)
    segments(tmp_path)[0].write_bytes(encode_event(event(0)) + b"\n")
    with pytest.raises(LogError, match="shrank"):
        tail.read(1)
    tail.close()


names = st.text(min_size=1, max_size=20)
texts = st.none() | st.text(max_size=40)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
fields = st.dictionaries(st.text(max_size=9), plain, max_size=3)
times = st.integers(0, 253_402_300_799_999).map(lambda milliseconds: from_seconds(milliseconds / 1000))
base = {"id": names, "time": times, "user": names}
contexts = st.builds(
    Context,
    locale=st.none() | names,
    text=texts,
    entities=st.lists(st.builds(Entity, id=names, type=names, fields=fields), max_size=2),
    trigger=st.none() | st.builds(Trigger, type=names, fields=fields),
    fields=fields,
)
items = st.lists(
    st.builds(RankedItem, action=names, position=st.integers(1, 1000), score=numbers, propensity=numbers), max_size=3
)
events = st.one_of(
    st.builds(ActionEvent, id=names, time=times, action=names, fields=st.none() | fields),
    st.builds(UserEvent, fields=fields, **base),
    st.builds(InteractionEvent, type=names, action=st.none() | names, text=texts, fields=fields, **base),
    st.builds(RankingEvent, context=contexts, items=items, degraded=st.lists(st.text(max_size=9)), **base),
    st.builds(FeedbackEvent, ranking=names, type=st.just("accept"), action=names, value=numbers, **base),
    st.builds(ForgetEvent, **base),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(events, max_size=5), segment_bytes=st.integers(1, 2000))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[Event], segment_bytes: int
) -> None:
    logdir = tmp_path_factory.mktemp("log")
    fill(logdir, written, segment_bytes)
    problems = Problems()
    assert list(read_log(logdir, problems=problems)) == list(enumerate(written))
    assert problems.total == 0


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12), max_bytes=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_the_last_lines_are_the_complete_ones_within_so_many_bytes_of_the_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_bytes: int
) -> None:
    logdir = tmp_path_factory.mktemp("log")
    lines = [b"%02d" % number * size for number, size in enumerate(sizes)]
    with LogWriter.open(logdir, segment_bytes=120) as writer:
        for line in lines:
            writer.append([line])
    expected, room = list[bytes](), max_bytes
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        expected.insert(0, line)
    assert list(last_lines(logdir, max_bytes)) == expected
    with segments(logdir)[-1].open("ab") as last:
        last.write(b"torn")
    assert b"torn" not in b"".join(last_lines(logdir, 10_000))
