"""Why an item is offered, as short stable codes; only worked out when the caller asks.

`cold_start` (a user or an action never seen), `second:cold` (nothing of the user that the second stage could read),
`source:<where it came from>`, `done:<times the user did it>`, `trigger` (made for what has just happened),
`prior:<context family>:<useful outcomes seen in it>`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from features.known import Moment
from features.population import EVERYTHING
from features.priors import support, useful
from features.situation import PRIOR_CHAIN
from ranker.person import Person
from ranker.types import Ranking


def explain(ranking: Ranking, rows: Sequence[int]) -> list[tuple[str, ...]]:
    """Codes for each of the candidate rows."""
    if not rows or ranking.known is None:
        return [() for _ in rows]
    chosen = np.zeros(len(ranking.candidates), np.bool_)
    chosen[list(rows)] = True
    items = ranking.candidates.keep(chosen)
    request = ranking.request
    moment = Moment(
        ranking.now_s, request.user, request.context, ranking.known, items.actions, items.targets, items.specs
    )
    done = useful(moment.personal).tolist()
    seen = [bool(cell.any()) for cell in moment.population(EVERYTHING)]
    new_user = Person(ranking.known).was_read and ranking.known.user is None
    trigger = request.context.trigger.type if request.context.trigger is not None else None
    prior = _prior(moment)
    codes: dict[int, tuple[str, ...]] = {}
    for index, row in enumerate(np.flatnonzero(chosen).tolist()):
        cold = ("cold_start",) if new_user or not seen[index] else ()
        mine = (f"done:{int(done[index])}",) if done[index] > 0 else ()
        suits = ("trigger",) if trigger in items.specs[index].triggers else ()
        codes[row] = (*cold, *ranking.notes, f"source:{items.sources[index]}", *mine, *suits, prior)
    return [codes[row] for row in rows]


def _prior(moment: Moment) -> str:
    """The most specific context in which anything useful was seen."""
    for family in reversed(PRIOR_CHAIN):
        count = support(moment, family)
        if count > 0.0:
            return f"prior:{family}:{int(count)}"
    return f"prior:all:{int(support(moment, EVERYTHING))}"
