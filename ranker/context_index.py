"""A large catalogue by what a context offers, so that a request looks at few of its actions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from features.events import Context
from ranker.compiled import CompiledCatalogue, Rows, lot
from ranker.judges import Refusals

MAX_SITUATIONS = 16
WINDOW = 512

Situation = tuple[str | None, frozenset[str]]
"""The trigger and the entity types of a context."""


class ContextIndex:
    """Actions that suit a trigger and entity types; the last few such situations are kept.

    Among equals the lot of an action's name decides and a request starts at the lot of its id: in a large
    catalogue none waits for ever, and the same id finds the same actions in every process.
    """

    def __init__(self, catalogue: CompiledCatalogue) -> None:
        self._catalogue = catalogue
        self._version = -1
        self._by_lot: Rows = np.zeros(0, np.int64)
        self._tiers: dict[Situation, tuple[Rows, ...]] = {}

    def offered(self, context: Context, request_id: str, now_s: float) -> Iterator[str]:
        """Actions whose needs the context meets: those for its trigger, those about its entities, the rest."""
        trigger = context.trigger.type if context.trigger is not None else None
        start = lot(request_id)
        for tier in self._tiers_of((trigger, frozenset(entity.type for entity in context.entities))):
            first = start * len(tier) >> 64
            for part in (tier[first:], tier[:first]):
                for begin in range(0, len(part), WINDOW):
                    rows = offered_here(self._catalogue, part[begin : begin + WINDOW], context, now_s)
                    yield from map(self._catalogue.name, rows.tolist())

    def _tiers_of(self, situation: Situation) -> tuple[Rows, ...]:
        if self._version != self._catalogue.version:
            self._version = self._catalogue.version
            rows = self._catalogue.all_rows()
            self._by_lot = rows[np.argsort(self._catalogue.column("lot", rows))]
            self._tiers.clear()
        if situation not in self._tiers:
            if len(self._tiers) >= MAX_SITUATIONS:
                del self._tiers[next(iter(self._tiers))]
            self._tiers[situation] = self._sorted(situation)
        return self._tiers[situation]

    def _sorted(self, situation: Situation) -> tuple[Rows, ...]:
        trigger, types = situation
        catalogue, rows = self._catalogue, self._by_lot
        possible = catalogue.holds("entity", rows, types)
        about = possible & (catalogue.column("entity", rows) > 0)
        wanted = possible & (catalogue.column("trigger", rows) > 0) & catalogue.holds("trigger", rows, trigger)
        return rows[wanted], rows[about & ~wanted], rows[possible & ~about & ~wanted]


def offered_here(catalogue: CompiledCatalogue, rows: Rows, context: Context, now_s: float) -> Rows:
    """Those of the rows whose needs the context meets, an entity for each that is about one included."""
    refusals = Refusals(len(rows))
    catalogue.refuse(refusals, rows, context, now_s)
    types = frozenset(entity.type for entity in context.entities)
    refusals.add(~catalogue.holds("entity", rows, types), "target_missing")
    return rows[refusals.kept]
