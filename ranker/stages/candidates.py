"""candidates: the caller's own list, or what the catalogue, the user's habits and everyone's suggest here.

The caller's list is taken as it is, in its order: an unknown action is not an error but dropped with the
reason `unknown_action`, so that an app may be ahead of the catalogue. An open request gets every action of a
catalogue that fits into `max_candidates`; of a larger one those that the context offers, preferring what the
user repeats, then what follows what has just happened, then what is popular here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice

import numpy as np

from features.known import Known
from ranker import sources
from ranker.compiled import ABSENT, CompiledCatalogue
from ranker.context_index import ContextIndex, offered_here
from ranker.sources import Proposal
from ranker.types import Candidates, Drop, Ranking

MAX_CANDIDATES = 200

Targets = Mapping[str, list[str]]
"""Targets in the context by entity type, in its order."""


@dataclass
class Chosen:
    """Candidates so far, each (action, target) once, and what was left out."""

    catalogue: CompiledCatalogue
    stage: str
    excluded: frozenset[str]
    pairs: dict[tuple[str, str | None], str] = field(default_factory=dict)
    drops: list[Drop] = field(default_factory=list)

    def add_all(self, pairs: Sequence[tuple[str, str | None]], source: str) -> None:
        """Takes candidates of one source, or says why not."""
        chosen = dict.fromkeys(pairs, source)
        if not self.excluded and not self.pairs and len(chosen) == len(pairs):
            self.pairs = chosen
            return
        for action, target in pairs:
            self.add(action, target, source)

    def add(self, action: str, target: str | None, source: str) -> None:
        """Takes a candidate, or says why not."""
        if action in self.excluded:
            self.drop(action, target, "excluded")
        elif (action, target) in self.pairs:
            self.drop(action, target, "duplicate")
        else:
            self.pairs[action, target] = source

    def drop(self, action: str, target: str | None, reason: str) -> None:
        """Leaves one out."""
        self.drops.append(Drop(self.stage, action, target, reason))

    def into(self, ranking: Ranking) -> Ranking:
        """The ranking with what was chosen; actions outside the catalogue leave here."""
        actions, targets = zip(*self.pairs, strict=True) if self.pairs else ((), ())
        rows = self.catalogue.rows(actions)
        names, specs = self.catalogue.names(rows), self.catalogue.specs(rows)
        columns = Candidates(names, targets, specs, tuple(self.pairs.values()))
        if np.count_nonzero(rows) < len(rows):  # ABSENT is 0
            for row in np.flatnonzero(rows == ABSENT).tolist():
                self.drop(actions[row], targets[row], "unknown_action")
            columns = columns.keep(rows != ABSENT)
        return ranking.but(candidates=columns, drops=(*ranking.drops, *self.drops))


@dataclass(frozen=True)
class CandidateSources:
    """Fills `candidates`.

    Args:
        max_candidates: most candidates of an open request; a caller's own list is bounded by the API.
    """

    catalogue: CompiledCatalogue
    max_candidates: int = MAX_CANDIDATES
    name: str = "candidates"

    @cached_property
    def index(self) -> ContextIndex:
        """Of a catalogue too large to look through."""
        return ContextIndex(self.catalogue)

    async def run(self, ranking: Ranking) -> Ranking:
        """The same request and state give the same candidates in the same order."""
        chosen = Chosen(self.catalogue, self.name, frozenset(ranking.request.exclude))
        if ranking.request.candidates is not None:
            pairs = [(candidate.action, candidate.target) for candidate in ranking.request.candidates]
            chosen.add_all(pairs, sources.CALLER)
            return chosen.into(ranking)
        targets = ranking.targets_by_type
        for action, target, source in self._spread(self._proposals(ranking, chosen, targets), targets):
            chosen.add(action, target, source)
        return chosen.into(ranking)

    def _proposals(self, ranking: Ranking, chosen: Chosen, targets: Targets) -> list[Proposal]:
        assert ranking.known is not None, "the context stage runs first"
        if len(self.catalogue) <= self.max_candidates:
            return self._everything(ranking, ranking.known, chosen)
        return self._offered(ranking, ranking.known, chosen.excluded, targets)

    def _everything(self, ranking: Ranking, known: Known, chosen: Chosen) -> list[Proposal]:
        """Every action, those that something speaks for first."""
        actions = list(self.catalogue.catalogue)
        for action in actions:
            if action in chosen.excluded:
                chosen.drop(action, None, "excluded")
        first = dict(sources.preferred(known, ranking.request.context, self.max_candidates, actions))
        proposals = {action: first[action] for action in first if action in self.catalogue.catalogue}
        for action in actions:
            proposals.setdefault(action, sources.CONTEXT)
        return [proposal for proposal in proposals.items() if proposal[0] not in chosen.excluded]

    def _offered(self, ranking: Ranking, known: Known, excluded: frozenset[str], targets: Targets) -> list[Proposal]:
        """What fits of a large catalogue: a quarter at most for each source, the rest by context."""
        context = ranking.request.context
        first = sources.preferred(known, context, self.max_candidates // 4)
        rows = self.catalogue.rows([action for action, _ in first if action not in excluded])
        rows = offered_here(self.catalogue, rows, context, ranking.now_s)
        kept = frozenset(map(self.catalogue.name, rows.tolist()))
        proposals = [proposal for proposal in first if proposal[0] in kept]
        further = sum(len(self._targets(row, targets)) - 1 for row in rows.tolist())
        room = self.max_candidates - len(proposals) - min(further, self.max_candidates // 8)
        names = self.index.offered(context, ranking.request_id, ranking.now_s)
        new = (name for name in names if name not in kept and name not in excluded)
        return [*proposals, *((name, sources.CONTEXT) for name in islice(new, room))]

    def _spread(self, proposals: Sequence[Proposal], targets: Targets) -> Iterator[tuple[str, str | None, str]]:
        """One candidate per action first, then the further entities in turn, until there is no more room."""
        rows = self.catalogue.rows([action for action, _ in proposals]).tolist()
        about = [self._targets(row, targets) for row in rows]
        waiting = list(zip(proposals, about, strict=True))
        room = self.max_candidates
        for turn in count():
            waiting = [(proposal, mine) for proposal, mine in waiting if len(mine) > turn]
            if not waiting or not room:
                return
            for (action, source), mine in waiting[:room]:
                yield action, mine[turn], source
            room -= min(room, len(waiting))

    def _targets(self, row: int, targets: Targets) -> Sequence[str | None]:
        """What an action can be about here; no entity of its types leaves it without a target."""
        types = self.catalogue.condition("entity", row)
        if types is None:
            return (None,)
        found = [target for kind in sorted(types) for target in targets.get(kind, ())]
        return list(dict.fromkeys(found)) or (None,)
