"""What features know at the moment of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec
from features.cells import Cells
from features.events import Context
from features.population import PopulationView
from features.rated_cells import RatedCells
from features.rows import SessionRow, User
from features.situation import situation_keys
from features.situation_cells import SituationCells

T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """State read for one request.

    Args:
        population: tables as of `seen_offset`.
        user, session: None when never seen, expired, or not read.
        seen_offset: number of log events whose effects were read; None when personal rows were not read.
    """

    population: PopulationView
    user: User | None = None
    session: SessionRow | None = None
    seen_offset: int | None = None


@dataclass(frozen=True)
class Moment:
    """A request as the features see it: what is known, the context, and the candidates in order.

    Args:
        now_s: Unix seconds, whole milliseconds.
        actions, targets, specs: one per candidate; a spec is None for an action outside the catalogue.
        text_scores: log-probability [candidates] of each action given what was said, NaN where the text
            model does not know it; None without a text model.
    """

    now_s: float
    user: str
    context: Context
    known: Known
    actions: tuple[str, ...]
    targets: tuple[str | None, ...]
    specs: tuple[ActionSpec | None, ...]
    text_scores: NDArray[np.float64] | None = None
    _gathered: dict[Callable[[Moment], Any], Any] = field(default_factory=dict, repr=False, compare=False)

    def with_text_scores(self, scores: NDArray[np.float64]) -> Moment:
        """The same with text scores; what was computed once stays so. dataclasses.replace costs five times as much."""
        changed = object.__new__(Moment)
        changed.__dict__.update(self.__dict__, text_scores=scores)
        return changed

    def once(self, make: Callable[[Moment], T]) -> T:
        """What `make` gives for this moment, computed for the first who asks; it must not read text scores."""
        found: T | None = self._gathered.get(make)
        if found is None:
            found = self._gathered[make] = make(self)
        return found

    @property
    def keys(self) -> Mapping[str, str]:
        """Population table keys by family."""
        return self.once(_keys)

    @property
    def tables(self) -> SituationCells:
        """What all the situation's tables say about the candidates."""
        return self.once(_tables)

    @property
    def rated(self) -> RatedCells:
        """What offers came to, by table."""
        return self.once(_rated)

    def population(self, family: str) -> Cells:
        """Cells [candidates, WIDTH] of the family's table."""
        return self.known.population.gather(self.keys[family], self.actions)

    @property
    def personal(self) -> Cells:
        """Cells [candidates, WIDTH] of the user's own counters."""
        return self.tables.personal


def _keys(moment: Moment) -> Mapping[str, str]:
    return situation_keys(moment.context, moment.known.session)


def _tables(moment: Moment) -> SituationCells:
    return SituationCells(moment.known.population, moment.keys, moment.actions, moment.known.user)


def _rated(moment: Moment) -> RatedCells:
    return RatedCells(moment.tables.rated, moment.now_s)
