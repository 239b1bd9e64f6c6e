"""Changes of the catalogue: at once for requests in flight, whole or not at all, durable, in the log's order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from features.catalogue import ActionSpec
from features.errors import LogUnavailable
from features.events import ActionEvent
from features.memory_store import MemoryStore
from features.store import Snapshot
from ranker.catalogue_desk import CHANGES_PER_TURN
from ranker.errors import ServiceUnavailable
from tests.ranker.online import Desk, run, service, specs_of


class HeldStore(MemoryStore):
    """Reads wait for a signal, so that a request can be held in the middle."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.go, self.reading = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        found = await super().read(keys, timeout_ms)
        self.reading.set()
        await self.go.wait()
        return found


@pytest.mark.parametrize("how", ["off", "delete", "replace"])
def test_what_is_switched_off_while_a_request_is_in_flight_is_not_in_its_answer(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        store = HeldStore()
        async with service(tmp_path, store=store, store_timeout_ms=5000.0) as desk:
            await desk.applied()
            assert "share" in offered((await desk.rank(k=50)).items)
            store.go.clear()
            store.reading.clear()
            asking = asyncio.create_task(desk.rank(k=50, budget_ms=60_000.0))
            await store.reading.wait()
            await change(desk, how)
            store.go.set()
            assert "share" not in offered((await asking).items)

    run(main())


async def change(desk: Desk, how: str) -> None:
    calls = desk.running.service
    if how == "off":
        await calls.put_actions({"share": ActionSpec(off=True)})
    elif how == "delete":
        await calls.delete_action("share")
    else:
        await calls.put_actions({"other": ActionSpec()}, replace_all=True)


def offered(items: Sequence[object]) -> set[str]:
    return {getattr(item, "action", "") for item in items}


def test_a_change_that_cannot_be_logged_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with service(tmp_path) as desk:
            calls, log = desk.running.service, desk.running.service.owners.log

            def full(lines: Sequence[bytes]) -> int:
                raise LogUnavailable("no space left")

            before, end = calls.actions(), log.end
            with monkeypatch.context() as patched:
                patched.setattr(log, "append", full)
                for work in (
                    calls.put_actions({"share": ActionSpec(off=True), "new": ActionSpec()}),
                    calls.put_actions({"new": ActionSpec()}, replace_all=True),
                    calls.delete_action("share"),
                ):
                    with pytest.raises(ServiceUnavailable, match="no space left"):
                        await work
            assert (calls.actions(), log.end) == (before, end)
            assert "share" in offered((await desk.rank(k=50)).items)
        async with service(tmp_path, actions={}) as desk:
            assert desk.running.service.actions() == before

    run(main())


def test_changes_during_a_large_replacement_are_neither_lost_nor_undone_out_of_order(tmp_path: Path) -> None:
    many = {f"action {number}": {"title": str(number)} for number in range(4 * CHANGES_PER_TURN)}

    async def main() -> None:
        async with service(tmp_path) as desk:
            calls = desk.running.service
            replacing = asyncio.create_task(calls.put_actions(specs_of(many), replace_all=True))
            turns = 0
            while not replacing.done():
                await calls.put_actions({"action 1": ActionSpec(title=f"now {turns}")})
                turns += 1
            await replacing
            assert turns > 1  # it let others have their turn
            await calls.put_actions({"share": ActionSpec(off=True)})
            held = calls.actions()
            assert set(held) >= set(many) and held["share"].off
            told = {event.action: event.fields for event in desk.logged() if isinstance(event, ActionEvent)}
            assert {action for action, fields in told.items() if fields is not None} == set(held)
        async with service(tmp_path, actions={}) as desk:
            assert desk.running.service.actions() == held

    run(main())


def test_actions_that_come_and_go_during_rankings_are_never_offered_once_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with service(tmp_path) as desk:
            calls = desk.running.service
            for number in range(20):
                await calls.put_actions({f"brief {number}": ActionSpec()})
                asked = [asyncio.create_task(desk.rank(k=50)) for _ in range(3)]
                await asyncio.sleep(0)
                await calls.delete_action(f"brief {number}")
                gone = asyncio.create_task(desk.rank(k=50))
                await asyncio.gather(*asked)
                assert f"brief {number}" not in offered((await gone).items)
        async with service(tmp_path, actions={}) as desk:
            assert not [action for action in desk.running.service.actions() if action.startswith("brief")]

    run(main())
