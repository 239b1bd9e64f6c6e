"""The same event is taken once, also while the store that would know it is away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from features import rows
from features.errors import StoreUnavailable
from features.events import InteractionEvent, RankingEvent, encode_event, from_seconds
from features.log import read_log
from features.memory_store import MemoryStore
from features.store import Snapshot
from ranker.recent_ids import RecentIds, recent_ids
from tests.features.streams import START_S, EventStream
from tests.ranker.online import run, service


class AwayStore(MemoryStore):
    """Does not know ids when told."""

    away = False

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        if self.away:
            raise StoreUnavailable("away")
        return await super().read(keys, timeout_ms)


def interaction(number: int) -> InteractionEvent:
    return InteractionEvent(id=f"e{number}", time=from_seconds(START_S), user="u1", type="opened")


def test_after_a_restart_without_the_store_what_was_taken_before_is_a_duplicate(tmp_path: Path) -> None:
    async def work() -> None:
        store = AwayStore()
        async with service(tmp_path, store=store) as desk:
            event = desk.event(id="once")
            assert [answer.status for answer in await desk.post(event)] == ["accepted"]
        async with service(tmp_path, store=store, clock=desk.clock, ids="later") as desk:
            store.away = True
            assert [answer.status for answer in await desk.post(event)] == ["duplicate"]
            store.away = False
            assert [event.id for _, event in read_log(desk.logdir)].count("once") == 1

    run(work())


def test_ids_of_what_came_from_outside_are_found_in_the_lines_of_a_log() -> None:
    events = EventStream(3).take(500)
    found = recent_ids([*(encode_event(event) for event in events), b"no event", b""], 500)
    for event in events:
        ours = isinstance(event, RankingEvent) or event.__struct_config__.tag in ("action", "forget")
        assert (found.end_of(rows.id_key(event), event.time_s) is None) == ours


def test_an_id_is_forgotten_after_its_life_and_when_there_are_too_many() -> None:
    ids = RecentIds(limit=2)
    ids.add("i:1", START_S, 1)
    assert ids.end_of("i:1", START_S + rows.ID_LIFE_S) == 1
    assert ids.end_of("i:1", START_S + rows.ID_LIFE_S + 1.0) is None
    ids.add("i:2", START_S, 2)
    ids.add("i:3", START_S, 3)
    assert [ids.end_of(f"i:{number}", START_S) for number in (1, 2, 3)] == [None, 2, 3]
