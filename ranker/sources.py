"""Where candidates of an open request come from, in the order in which they are preferred."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from features.cells import LAST_USEFUL
from features.events import Context
from features.known import Known
from features.population import PopulationView
from features.priors import useful
from features.rows import SessionRow, User
from features.situation import situation_keys
from ranker.compiled import CompiledCatalogue, Rows, lot
from ranker.judges import Refusals

CALLER, REPEAT, TRANSITION, POPULAR, CONTEXT = "caller", "repeat", "transition", "popular", "context"

Proposal = tuple[str, str]
"""An action and its source."""


def preferred(known: Known, context: Context, limit: int, within: Sequence[str] | None = None) -> list[Proposal]:
    """Actions that something speaks for, best first, each with its first source.

    Args:
        limit: most actions of one source.
        within: look at these actions only; None looks through whole tables.
    """
    keys = situation_keys(context, known.session)
    after = [keys[family] for family in _followed(known.session)]
    here = [keys["trigger"], keys["surface"]]
    sources = {
        REPEAT: repeated(known.user, limit),
        TRANSITION: most_useful(known.population, after, limit, within),
        POPULAR: most_useful(known.population, here, limit, within),
    }
    first: dict[str, str] = {}
    for source, actions in sources.items():
        for action in actions:
            first.setdefault(action, source)
    return list(first.items())


def repeated(user: User | None, limit: int) -> list[str]:
    """What the user found useful before, the latest first."""
    if user is None:
        return []
    actions = list(user.counters)
    cells = user.counters.gather(actions)
    found = np.flatnonzero(useful(cells) > 0.0).tolist()
    return [name for _, name in sorted((-cells[row, LAST_USEFUL], actions[row]) for row in found)[:limit]]


def most_useful(
    population: PopulationView, keys: Sequence[str], limit: int, within: Sequence[str] | None = None
) -> list[str]:
    """Actions with useful outcomes in the tables, the first table's before the next's, the most useful first."""
    chosen: dict[str, None] = {}
    for key in keys:
        actions = within if within is not None else population.actions(key)
        counts = useful(population.gather(key, actions))
        chosen.update(dict.fromkeys(_top(actions, counts, limit)))
    return list(chosen)[:limit]


def offered_here(catalogue: CompiledCatalogue, rows: Rows, context: Context, now_s: float) -> Rows:
    """Those of the rows whose conditions the context meets, an entity for each that needs one included."""
    refusals = Refusals(len(rows))
    catalogue.refuse(refusals, rows, context, now_s)
    types = frozenset(entity.type for entity in context.entities)
    refusals.add(~catalogue.holds("entity", rows, types), "target_missing")
    return rows[refusals.kept]


def by_context(catalogue: CompiledCatalogue, rows: Rows, context: Context, room: int, request_id: str) -> list[str]:
    """At most `room` of the rows' actions: those for this trigger, then those about an entity, then the rest.

    Among equals the request's id decides by lot, so that in a large catalogue none waits for ever; the same
    id chooses the same actions in every process.
    """
    triggered = catalogue.column("trigger", rows) > 0
    if context.trigger is not None:
        triggered &= catalogue.holds("trigger", rows, context.trigger.type)
    else:
        triggered[:] = False
    about = catalogue.column("entity", rows) > 0
    lots = catalogue.column("lot", rows) ^ np.uint32(lot(request_id))
    ranks = lots.astype(np.int64) - (2 * triggered.astype(np.int64) + about) * (1 << 32)
    if len(rows) > room:
        nearest = np.argpartition(ranks, room - 1)[:room] if room else np.zeros(0, np.int64)
        rows, ranks = rows[nearest], ranks[nearest]
    pairs = zip(ranks.tolist(), map(catalogue.name, rows.tolist()), strict=True)
    return [name for _, name in sorted(pairs)]


def _followed(session: SessionRow | None) -> list[str]:
    """Families of tables that say what follows; none at the start of a session."""
    if session is None:
        return []
    return ["last1"] * bool(session.actions) + ["path1"] * bool(session.tokens)


def _top(actions: Sequence[str], counts: NDArray[np.float64], limit: int) -> list[str]:
    """At most `limit` actions with a count, the largest first, equal ones by name."""
    found = np.flatnonzero(counts > 0.0)
    if len(found) > limit:
        least = np.partition(counts[found], len(found) - limit)[len(found) - limit]
        found = found[counts[found] >= least]
    return [name for _, name in sorted((-counts[row], actions[row]) for row in found.tolist())[:limit]]
