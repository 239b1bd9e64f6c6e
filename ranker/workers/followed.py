"""What a follower knows: it moves by the keeper's messages just as the keeper's own state moves.

For the pipeline it is what the applier is in the keeper. Tables move by the same batches, each with the cells
as they were before, so that a request reads them as of the offset that its rows reflect.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from features.catalogue import ActionSpec
from features.catalogue_log import LiveCatalogue
from features.errors import EventError
from features.population import CellName, Population
from ranker.workers.errors import FeedError
from ranker.workers.lease import Fence
from ranker.workers.messages import (
    Beat,
    Cells,
    Changed,
    Committed,
    Lost,
    Sealed,
    TablesBegin,
    TablesWhole,
    ToldAny,
)

_spec = msgspec.json.Decoder(ActionSpec)


def _nothing() -> None:
    """Nobody is told."""


@dataclass
class Followed:
    """State of the keeper as far as its messages tell.

    Args:
        fence: whether it can be relied on.
        live: the catalogue.
        hurry, doubt: tell the keeper that somebody waits, and that the store is other than expected.
    """

    fence: Fence
    live: LiveCatalogue = field(default_factory=LiveCatalogue)
    hurry: Callable[[], None] = _nothing
    doubt: Callable[[], None] = _nothing
    population: Population = field(default_factory=Population, init=False)
    generation: str | None = field(default=None, init=False)
    applied: int = field(default=0, init=False)
    _beat: Beat = field(default=Beat(-math.inf, math.inf, 0), init=False)
    _cells: dict[CellName, bytes | None] = field(default_factory=dict, init=False)
    _loading: str | None = field(default=None, init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def take(self, message: ToldAny) -> None:
        """Lets a message have its effect; those that are not about state have none.

        Raises:
            FeedError: it cannot have one.
        """
        match message:
            case Beat():
                self._beat = message
                self.fence.heard(message.sent_ms)
            case Changed():
                self._change(message)
            case Cells():
                self._cells.update(((key, action), cell) for key, action, cell in message.cells)
            case Sealed():
                self._seal(message.offset)
            case Committed():
                self.applied = message.applied
                self._move()
            case TablesBegin():
                self._loading, self.generation, self.applied = message.generation, None, message.applied
                self._cells.clear()
            case TablesWhole() if self._loading is not None:
                await self._load(message.offset, self._loading)
            case Lost():
                self.generation = self._loading = None
                self._cells.clear()

    def lag_ms(self) -> float:
        """Age of the oldest event that is not in effect, as far as known; infinite when nothing is."""
        if self.fence.closed:
            return math.inf
        return 0.0 if self.applied >= self._beat.end else self._beat.lag_ms + self.fence.age_ms

    def suspect(self) -> None:
        """Says that a read found the store other than expected."""
        self.doubt()

    def notify(self) -> None:
        """Says that somebody waits for what was written."""
        self.hurry()

    async def wait_applied(self, offset: int, timeout_s: float) -> bool:
        """Whether everything below `offset` came to be in effect within the time."""
        return await self._until(lambda: self.generation is not None and self.applied >= offset, timeout_s)

    async def wait_tables(self, offset: int, timeout_s: float) -> bool:
        """Whether the tables came to include everything below `offset` within the time."""
        return await self._until(lambda: self.generation is not None and self.population.offset >= offset, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._moved.wait()
        return holds()

    def _change(self, message: Changed) -> None:
        try:
            for id, action, packed in message.changes:
                spec = None if packed is None else _spec.decode(packed)
                self.live.put(max(0, message.offset), id, action, spec)
        except (msgspec.DecodeError, UnicodeDecodeError, EventError) as error:
            raise FeedError(f"a change of the catalogue cannot be taken over: {error}") from error
        self.live.changed = self.live.scanned = message.offset + 1

    def _seal(self, offset: int) -> None:
        if self._loading is not None:
            return  # part of what is loaded
        if self.generation is not None:
            self.population.follow(self._cells, offset)
            self._move()
        self._cells.clear()

    async def _load(self, offset: int, generation: str) -> None:
        population = Population()
        cells = {name: cell for name, cell in self._cells.items() if cell is not None}
        # In a thread: large tables take long on the loop, and nobody else has these yet.
        await asyncio.to_thread(population.load, cells, offset)
        self.population, self.generation = population, generation
        self._loading, self._cells = None, {}
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
