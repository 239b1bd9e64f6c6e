"""Changes of the catalogue: into the log, in effect at once, durable before they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.catalogue_log import LiveCatalogue
from features.events import ActionEvent, encode_event, from_seconds
from features.log import LogWriter
from ranker.clock import Clock
from ranker.errors import InvalidRequest, NotFound
from ranker.intake import append, durable


@dataclass
class CatalogueDesk:
    """The only one who changes the live catalogue while serving.

    Args:
        new_id: makes ids of events.
        on_durable: called once more events are durable.
    """

    live: LiveCatalogue
    log: LogWriter
    clock: Clock
    new_id: Callable[[], str]
    on_durable: Callable[[], None]

    async def put(self, specs: Mapping[str, ActionSpec], replace_all: bool) -> int:
        """Adds or replaces entries, and withdraws all others with `replace_all`; the number given.

        Raises:
            InvalidRequest: more than the catalogue can hold.
            ServiceUnavailable: the log cannot be written or made durable.
        """
        catalogue = self.live.catalogue
        gone = [action for action in catalogue if action not in specs] if replace_all else []
        size = len(catalogue) - len(gone) + sum(action not in catalogue for action in specs)
        if size > MAX_ACTIONS:
            raise InvalidRequest(f"{size} actions are more than the catalogue's {MAX_ACTIONS}")
        changes = {action: spec for action, spec in specs.items() if catalogue.get(action) != spec}
        await self._change([*((action, None) for action in gone), *changes.items()])
        return len(specs)

    async def delete(self, action: str) -> None:
        """Withdraws an entry.

        Raises:
            NotFound: it is not there.
            ServiceUnavailable: the log cannot be written or made durable.
        """
        self.get(action)
        await self._change([(action, None)])

    def get(self, action: str) -> ActionSpec:
        """One entry. Raises NotFound."""
        spec = self.live.catalogue.get(action)
        if spec is None:
            raise NotFound(f"there is no action {action!r}", "$.action")
        return spec

    async def _change(self, changes: list[tuple[str, ActionSpec | None]]) -> None:
        """Nothing is awaited between the log and the catalogue: its order is the log's."""
        time = from_seconds(self.clock.now_s())
        events = [
            ActionEvent(id=self.new_id(), time=time, action=action, fields=_fields(spec)) for action, spec in changes
        ]
        first = append(self.log, [encode_event(event) for event in events])
        for offset, event in enumerate(events, first):
            self.live.apply(offset, event)
        await durable(self.log, first + len(events))
        self.on_durable()


def _fields(spec: ActionSpec | None) -> dict[str, object] | None:
    return None if spec is None else msgspec.to_builtins(spec)
