"""What a follower makes of the keeper's messages, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import math
import random

import msgspec
import numpy as np
import pytest

from features import population as tables
from features.catalogue import ActionSpec
from features.cells import WIDTH
from features.population import Population
from ranker.workers.errors import FeedError
from ranker.workers.followed import Followed
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

LIMIT_MS = 100.0
KINDS = ("offered", "accepted", "dismissed", "self", "undone")


class Now:
    """A clock."""

    ms = 0.0


def followed(now: Now) -> Followed:
    return Followed(Fence(lambda: now.ms, LIMIT_MS))


def take(it: Followed, *messages: ToldAny) -> None:
    async def work() -> None:
        for message in messages:
            await it.take(message)

    asyncio.run(work())


def cell(value: float) -> bytes:
    return np.full(WIDTH, value).tobytes()


def test_tables_are_there_once_they_are_whole_and_move_batch_by_batch() -> None:
    it = followed(Now())
    take(it, TablesBegin("g1", 4), Cells([("g", "a", cell(1.0)), ("g", "b", cell(2.0))]))
    assert not it.generation
    take(it, Cells([("g", "a", cell(3.0))]), Sealed(6), Cells([("g", "b", None)]), Sealed(7), TablesWhole(7))
    assert (it.generation, it.applied, it.population.offset) == ("g1", 4, 7)
    take(it, Committed(7), Cells([("g", "c", cell(5.0))]), Sealed(9))
    assert (it.applied, it.population.offset) == (7, 9)
    assert it.population.at(7).gather("g", ["a", "b", "c"])[:, 0].tolist() == [3.0, 0.0, 0.0]
    assert it.population.at(9).gather("g", ["a", "b", "c"])[:, 0].tolist() == [3.0, 0.0, 5.0]
    assert it.population.at(7).exact and not it.population.at(6).exact


def test_what_is_lost_is_not_relied_on_even_when_it_was_half_told() -> None:
    it = followed(Now())
    take(it, TablesBegin("g1", 0), Cells([("g", "a", cell(1.0))]), Lost(), TablesWhole(1))
    assert it.generation is None
    take(it, TablesBegin("g2", 0), TablesWhole(0))
    assert it.generation == "g2" and not it.population.tables
    take(it, Lost())
    assert it.generation is None


def test_lag_is_what_the_keeper_said_and_the_time_since_until_all_is_applied() -> None:
    now = Now()
    it = followed(now)
    assert it.lag_ms() == math.inf
    now.ms = 10.0
    take(it, Beat(5.0, 40.0, 8))
    assert it.lag_ms() == 45.0
    take(it, Committed(8))
    assert it.lag_ms() == 0.0
    now.ms = 5.0 + LIMIT_MS
    assert it.lag_ms() == math.inf


def test_the_catalogue_follows_and_knows_at_which_offset_it_is() -> None:
    it, spec = followed(Now()), msgspec.json.encode(ActionSpec(title="x"))
    take(it, Changed(-1, []))
    assert it.live.changed == 0
    take(it, Changed(8, [("e1", "a", spec), ("e2", "b", spec)]), Changed(9, [("e3", "a", None)]))
    assert dict(it.live.catalogue.items()) == {"b": ActionSpec(title="x")}
    assert (it.live.changed, it.live.last_id) == (10, "e3")
    with pytest.raises(FeedError, match="catalogue"):
        take(it, Changed(10, [("e4", "a", b"[]")]))


def test_waiting_ends_when_it_comes_and_when_time_is_up() -> None:
    async def work() -> None:
        it = followed(Now())
        await it.take(TablesBegin("g1", 0))
        await it.take(TablesWhole(0))
        applied = asyncio.create_task(it.wait_applied(3, 5.0))
        sealed = asyncio.create_task(it.wait_tables(3, 5.0))
        await asyncio.sleep(0)
        await it.take(Sealed(3))
        assert await sealed and not applied.done()
        await it.take(Committed(3))
        assert await applied
        assert not await it.wait_applied(4, 0.01) and not await it.wait_tables(4, 0.01)

    asyncio.run(work())


@pytest.mark.parametrize("seed", range(6))
def test_tables_that_follow_are_the_others_at_every_offset_that_is_kept(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small limits, so that actions and whole tables make room again and again."""
    monkeypatch.setattr(tables, "MAX_TABLE_ACTIONS", 4)
    draw, leader, follower = random.Random(seed), Population(max_tables=5), Population()
    follower.load({}, 0)
    keys, actions = [tables.EVERYTHING, *(f"k{number}" for number in range(9))], [f"a{number}" for number in range(7)]
    for offset in range(1, 120):
        for _ in range(draw.randrange(3)):
            wanted = draw.sample(keys, draw.randrange(1, 4))
            leader.credit(wanted, draw.choice(KINDS), draw.sample(actions, draw.randrange(1, 3)), draw.uniform(0, 1e6))
        follower.follow(leader.seal(offset), offset)
        for past in (offset, draw.randrange(offset + 1)):
            ours, theirs = leader.at(past), follower.at(past)
            assert ours.exact == theirs.exact
            for key in keys:
                assert np.array_equal(ours.gather(key, [*actions, ""]), theirs.gather(key, [*actions, ""]))
                assert sorted(ours.actions(key)) == sorted(theirs.actions(key))
    assert set(leader.tables) == set(follower.tables)
