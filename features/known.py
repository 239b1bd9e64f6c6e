"""What features know at the moment of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec
from features.cells import WIDTH, Cells
from features.events import Context
from features.population import PopulationView
from features.rows import SessionRow, User
from features.situation import situation_keys


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
    _gathered: dict[str, Cells] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Population table keys by family."""
        return situation_keys(self.context, self.known.session)

    def population(self, family: str) -> Cells:
        """Cells [candidates, WIDTH] of the family's table; read once per request."""
        cells = self._gathered.get(family)
        if cells is None:
            cells = self._gathered[family] = self.known.population.gather(self.keys[family], self.actions)
        return cells

    def total(self, family: str) -> Cells:
        """The cell [WIDTH] over all actions of the family's table."""
        return self.known.population.total(self.keys[family])

    @cached_property
    def personal(self) -> Cells:
        """Cells [candidates, WIDTH] of the user's own counters."""
        if self.known.user is None:
            return np.zeros((len(self.actions), WIDTH))
        return self.known.user.counters.gather(self.actions)
