"""How the cost of a ranking grows: with its candidates, the catalogue, a user's history, and users in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from features.catalogue import ActionSpec
from training.bench.server import Server

Points = list[tuple[int, float]]
Cost = Callable[[Path, int], float]
"""CPU ms per ranking of a file of bodies, over so many of them."""


@dataclass(frozen=True)
class Reach:
    """How far each is taken, in powers of ten from 10.

    Args:
        count: rankings per point.
    """

    candidates: int = 1000
    catalogue: int = 100_000
    history: int = 1000
    users: int = 100_000
    count: int = 200


def by_candidates(server: Server, reach: Reach, cost: Cost) -> Points:
    """The caller's own list."""
    found = []
    for size in (10, 30, 100, 300, 1000):
        if size <= reach.candidates:
            bodies = server.write(server.material.bodies(size, 50, budget_ms=10_000.0))
            cost(bodies, 20)
            found.append((size, cost(bodies, reach.count)))
    return found


def by_history(server: Server, reach: Reach, cost: Cost) -> Points:
    """Events of the user who asks, in one session."""
    found = []
    for size in _tens(reach.history):
        user = {"user": f"with-{size}", "session": "s"}
        server.post_events(_events(f"h{size}", [user] * size, server.material.actions))
        bodies = server.write(server.material.bodies(50, 50, budget_ms=10_000.0, **user))
        cost(bodies, 20)
        found.append((size, cost(bodies, reach.count)))
    return found


def by_users(server: Server, reach: Reach, cost: Cost) -> Points:
    """Users in the store beside those who ask."""
    found, known = [], 0
    bodies = server.write(server.material.bodies(50, budget_ms=10_000.0))
    for size in _tens(reach.users):
        users = [{"user": f"other-{number}", "session": "s"} for number in range(known, size)]
        server.post_events(_events(f"u{size}", users, server.material.actions))
        known = size
        found.append((size, cost(bodies, reach.count)))
    return found


def by_catalogue(server: Server, reach: Reach, cost: Cost) -> Points:
    """Actions in the catalogue, for requests that name no candidates; the list itself is bounded."""
    own = dict(server.material.actions)
    bodies = server.write(server.material.bodies(None, budget_ms=10_000.0))
    found = []
    for size in _tens(reach.catalogue):
        kept = dict(list(own.items())[:size])
        more = {f"more-{number}": _more(number) for number in range(size - len(kept))}
        server.put_catalogue({**kept, **more})
        cost(bodies, 20)
        found.append((size, cost(bodies, reach.count)))
    server.put_catalogue(own)
    return found


GROWTHS: Mapping[str, Callable[[Server, Reach, Cost], Points]] = {
    "candidates": by_candidates,
    "history": by_history,
    "users": by_users,
    "catalogue": by_catalogue,
}


def _tens(most: int) -> Iterator[int]:
    size = 10
    while size <= most:
        yield size
        size *= 10


def _more(number: int) -> ActionSpec:
    """An action like others: a third about images, a third after a message, a third for anything."""
    types, triggers = (["image"], []) if number % 3 == 0 else ([], ["message_received"] if number % 3 == 1 else [])
    return ActionSpec(title=f"Action {number}", entity_types=types, triggers=triggers)


def _events(prefix: str, by: list[dict[str, str]], actions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = list(actions)
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    for number, who in enumerate(by):
        action = names[number % len(names)] if number % 2 else None
        event = {"event": "interaction", "id": f"{prefix}-{number}", "time": time, "type": "said", **who}
        yield {**event, "action": action} if action else {**event, "text": f"words of event {number % 50}"}
