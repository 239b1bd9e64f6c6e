"""Changes of the catalogue: into the log, in effect at once, durable before they are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.catalogue_log import LiveCatalogue
from features.events import ActionEvent, encode_event, from_seconds
from features.log import LogWriter
from ranker.clock import Clock
from ranker.errors import InvalidRequest, NotFound
from ranker.intake import append, durable
from ranker.own_writes import OwnWrites

CHANGES_PER_TURN = 250
"""So many changes are encoded before rankings get their turn."""

MAX_ATTEMPTS = 4
"""So often a large change begins again when others change the catalogue meanwhile; the last time nobody can."""

IN_EFFECT_S = 0.1
"""So long a change that is durable is waited for to be in effect for features; rankings obey it before."""

T = TypeVar("T")


class CatalogueChange(NamedTuple):
    """An entry on its way into the log; `spec` None withdraws it."""

    id: str
    action: str
    spec: ActionSpec | None
    line: bytes


@dataclass
class CatalogueDesk:
    """The only one who changes the live catalogue while serving.

    Args:
        new_id: makes ids of events.
        own: waits for what was written to be in effect.
        on_changed: is told, right after each change, the first one's offset and the changes; for other processes.
    """

    live: LiveCatalogue
    log: LogWriter
    clock: Clock
    new_id: Callable[[], str]
    own: OwnWrites
    on_changed: Callable[[int, Sequence[CatalogueChange]], None] | None = None

    async def put(self, specs: Mapping[str, ActionSpec], replace_all: bool) -> int:
        """Adds or replaces entries, and withdraws all others with `replace_all`; the number given.

        Raises:
            InvalidRequest: more than the catalogue can hold.
            ServiceUnavailable: the log cannot be written or made durable.
        """
        for attempt in range(MAX_ATTEMPTS):
            version = self.live.catalogue.version
            changes = [
                self._encoded(change)
                async for change in _with_pauses(self._changes(specs, replace_all), attempt < MAX_ATTEMPTS - 1)
            ]
            if self.live.catalogue.version == version:  # nobody was faster while others had their turn
                break
        await self._change(changes)
        return len(specs)

    async def delete(self, action: str) -> None:
        """Withdraws an entry.

        Raises:
            NotFound: it is not there.
            ServiceUnavailable: the log cannot be written or made durable.
        """
        self.get(action)
        await self._change([self._encoded((action, None))])

    def get(self, action: str) -> ActionSpec:
        """One entry. Raises NotFound."""
        spec = self.live.catalogue.get(action)
        if spec is None:
            raise NotFound(f"there is no action {action!r}", "$.action")
        return spec

    def _changes(self, specs: Mapping[str, ActionSpec], replace_all: bool) -> list[tuple[str, ActionSpec | None]]:
        """What is not yet as it should be."""
        catalogue = self.live.catalogue
        gone = [action for action in catalogue if action not in specs] if replace_all else []
        size = len(catalogue) - len(gone) + sum(action not in catalogue for action in specs)
        if size > MAX_ACTIONS:
            raise InvalidRequest(f"{size} actions are more than the catalogue's {MAX_ACTIONS}")
        changed = [(action, spec) for action, spec in specs.items() if catalogue.get(action) != spec]
        return [*((action, None) for action in gone), *changed]

    def _encoded(self, change: tuple[str, ActionSpec | None]) -> CatalogueChange:
        action, spec = change
        time = from_seconds(self.clock.now_s())
        event = ActionEvent(id=self.new_id(), time=time, action=action, fields=_fields(spec))
        return CatalogueChange(event.id, action, spec, encode_event(event))

    async def _change(self, changes: Sequence[CatalogueChange]) -> None:
        """Nothing is awaited between the log and the catalogue: its order is the log's."""
        first = append(self.log, [change.line for change in changes])
        for offset, change in enumerate(changes, first):
            self.live.put(offset, change.id, change.action, change.spec)
        if self.on_changed is not None:
            self.on_changed(first, changes)
        self.own.hurry()
        await durable(self.log, first + len(changes))
        await self.own.passed(first + len(changes), IN_EFFECT_S)


async def _with_pauses(changes: Sequence[T], pausing: bool) -> AsyncIterator[T]:
    """Each change, with a turn for everybody else now and then."""
    for number, change in enumerate(changes, 1):
        yield change
        if pausing and number % CHANGES_PER_TURN == 0:
            await asyncio.sleep(0)


def _fields(spec: ActionSpec | None) -> dict[str, object] | None:
    return None if spec is None else msgspec.to_builtins(spec)
