"""Who wants to know what the applier does: the roles of those that follow it, in this process and in others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from features.population import CellName, Population


class AppliedListener(Protocol):
    """Is told of each step of an applier, on its event loop and in order; must not raise and cannot wait."""

    def stood(self, population: Population, applied: int, generation: str) -> None:
        """The store holds the first `applied` events under a generation, and these tables go with it."""
        ...

    def sealed(self, offset: int, cells: Mapping[CellName, bytes | None]) -> None:
        """Events before `offset` are in the tables, which changed in these cells (None: left); not yet in the store."""
        ...

    def committed(self, applied: int) -> None:
        """Events before `applied` are in the store."""
        ...

    def lost(self) -> None:
        """What the store holds cannot be relied on until `stood` is called again."""
        ...
