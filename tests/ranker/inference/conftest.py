"""After every test all that was made is at rest: no pin, page, workspace, flight or caller is left behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ranker.inference.engine import Engine
from ranker.inference.pages import Pages
from ranker.inference.shards import ShardCache
from ranker.inference.workspace import Workspaces

MOST = 64
"""A property's examples make thousands: the oldest are looked at and let go before the test ends."""


def _pages(pages: Pages) -> None:
    assert pages.open_histories == 0, f"{pages.open_histories} histories still hold pages"
    pages.check_integrity()


def _shards(cache: ShardCache) -> None:
    stats = cache.stats()
    assert (stats.pinned_bytes, stats.reserved_bytes) == (0, 0), "bytes are still pinned or reserved"
    cache.check_integrity()


def _workspaces(workspaces: Workspaces) -> None:
    assert workspaces.busy == 0, f"{workspaces.busy} batches still hold a workspace"


def _engine(engine: Engine) -> None:
    assert engine.open_requests == 0, f"{engine.open_requests} callers still wait"
    assert engine.metrics()["running"] == 0, "a batch still runs"


Look = Callable[[Any], None]

AT_REST: dict[type[Any], Look] = {
    Pages: _pages,
    ShardCache: _shards,
    Workspaces: _workspaces,
    Engine: _engine,
}


class Made:
    """What a test made, in order."""

    def __init__(self) -> None:
        self._made: deque[tuple[Any, Look]] = deque()

    def add(self, thing: Any, look: Look) -> None:
        self._made.append((thing, look))
        if len(self._made) > MOST:
            self._look_at_oldest()

    def look(self) -> None:
        """Fails for the first that is not at rest."""
        while self._made:
            self._look_at_oldest()

    def _look_at_oldest(self) -> None:
        thing, look = self._made.popleft()
        look(thing)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = Made()
    for kind, look in AT_REST.items():
        monkeypatch.setattr(kind, "__init__", _telling(kind.__init__, made, look))
    yield
    made.look()


def _telling(make: Callable[..., None], made: Made, look: Look) -> Callable[..., None]:
    def init(self: Any, *args: Any, **fields: Any) -> None:
        make(self, *args, **fields)
        made.add(self, look)

    return init


@pytest.fixture(params=["memory", "folder"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where a shard cache keeps its files, or None for one in memory."""
    return tmp_path / "cache" if request.param == "folder" else None
