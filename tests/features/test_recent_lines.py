"""What a writer hands over instead of letting it be read again, and that state is the same either way."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.applier import Applier
from features.applier_settings import ApplierSettings
from features.events import InteractionEvent, encode_event, from_seconds
from features.log import LogWriter
from features.log_source import LogSource
from features.memory_store import MemoryStore
from features.recent_lines import RecentLines, Written
from tests.features import oracle
from tests.features.streams import EventStream

Step = tuple[str, int]


def lines(first: int, count: int) -> list[Written]:
    return [Written(b"%d" % offset) for offset in range(first, first + count)]


def test_lines_are_taken_in_order_up_to_a_limit_and_what_came_before_is_let_go() -> None:
    recent = RecentLines()
    recent.add(7, lines(7, 5))
    assert [each.line for each in recent.take(8, 2, 99)] == [b"8", b"9"]
    assert [each.line for each in recent.take(10, 9, 11)] == [b"10"]
    assert recent.take(8, 2, 99) == [], "the log has them"
    assert recent.take(12, 2, 99) == recent.take(11, 5, 11) == []


def test_a_gap_starts_anew() -> None:
    recent = RecentLines()
    recent.add(0, lines(0, 3))
    recent.add(5, lines(5, 1))
    assert recent.take(0, 9, 9) == []
    assert [each.line for each in recent.take(5, 9, 9)] == [b"5"]


@given(
    st.lists(st.tuples(st.sampled_from(["add", "take"]), st.integers(0, 9)), max_size=40),
    st.integers(1, 9),
    st.integers(1, 30),
)
def test_what_is_held_is_the_end_of_what_was_added_within_both_limits(steps: list[Step], most: int, size: int) -> None:
    recent, added, taken = RecentLines(most, size), 0, 0
    for kind, number in steps:
        if kind == "add":
            recent.add(added, lines(added, number))
            added += number
        else:
            found = recent.take(taken, number, added)
            assert found == lines(taken, len(found))
            taken += len(found)
        held = recent.take(taken, 999, added) or lines(added, 0)
        assert len(held) <= most and sum(len(each.line) for each in held) <= size


def test_a_line_that_is_no_event_is_passed_over_as_a_reader_does(tmp_path: Path) -> None:
    event = InteractionEvent(id="1", time=from_seconds(1e9), user="u", type="t")
    with LogWriter.open(tmp_path) as writer:
        writer.append([b"no event", Written(encode_event(event), event), b"{}", encode_event(event)])
        handed, read = LogSource(tmp_path, 0, writer.recent), LogSource(tmp_path, 0, None)
        assert handed.read(9, 4).events == read.read(9, 4).events == [(1, event), (3, event)]
        assert handed.read(9, 4).offset == read.read(9, 4).offset == 4
        read.close()
        handed.close()


@pytest.mark.parametrize(("seed", "held", "kept"), [(0, 4096, 1024), (1, 4096, 3), (2, 9, 1024), (3, 9, 0), (4, 40, 5)])
def test_events_that_were_handed_over_make_the_state_that_reading_them_makes(
    seed: int, held: int, kept: int, tmp_path: Path
) -> None:
    """Some lines come with their event, some without; some are held no longer; the store is lost in between."""
    events, draw = EventStream(seed).take(900), random.Random(seed)
    settings = ApplierSettings(batch_events=13, pause_s=0.0, gather_s=0.0, poll_s=0.005, kept_rows=kept)

    async def work() -> None:
        store = MemoryStore()
        with LogWriter.open(tmp_path) as writer:
            writer.recent = RecentLines(max_lines=held)
            applier = Applier(
                tmp_path, lambda: writer.end, store,
                monotonic_ms=lambda: 0.0, settings=settings, recent=writer.recent,
            )  # fmt: skip
            await applier.recover()
            following = asyncio.create_task(applier.run())
            waiting = list(events)
            while waiting:
                some = [waiting.pop(0) for _ in range(min(len(waiting), draw.randrange(1, 12)))]
                writer.append([Written(encode_event(each), each if draw.random() < 0.7 else None) for each in some])
                applier.notify()
                if draw.random() < 0.2:
                    await applier.wait_applied(writer.end, 5.0)
                if len(waiting) in range(440, 446):
                    await store.clear()
            assert await applier.wait_applied(900, 10.0)
            following.cancel()
            await asyncio.wait([following])
            applier.close()
            assert applier.counts.crashes == 0
        await oracle.assert_holds_the_log(store, tmp_path, set(store._rows))

    asyncio.run(work())


def test_ids_that_are_new_are_not_looked_for_and_remembered_all_the_same(tmp_path: Path) -> None:
    event = InteractionEvent(id="1", time=from_seconds(1e9), user="u", type="t")

    async def work() -> None:
        store = MemoryStore()
        with LogWriter.open(tmp_path) as writer:
            applier = Applier(tmp_path, lambda: writer.end, store, monotonic_ms=lambda: 0.0, recent=writer.recent)
            await applier.recover()
            writer.append([Written(encode_event(event), event, new=True)])
            await applier.recover()
            reads = store.health.reads
            writer.append([Written(encode_event(other), other, new=True) for other in [_with_id(event, "2")]])
            await applier.recover()
            assert store.health.reads == reads, "the user's rows were kept, and the id is new"
            writer.append([Written(encode_event(event), event)])
            await applier.recover()
            assert applier.skipped["duplicate"] == 1
            applier.close()

    asyncio.run(work())


def _with_id(event: InteractionEvent, id_: str) -> InteractionEvent:
    return InteractionEvent(id=id_, time=event.time, user=event.user, type=event.type)
