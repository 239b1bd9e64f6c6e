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
