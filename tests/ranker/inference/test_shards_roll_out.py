"""A version that is retired takes no new pins and leaves at its last release; one shard of headroom is enough."""

from __future__ import annotations

import pytest

from ranker.inference.shard_errors import (
    VersionRetired,
)
from ranker.inference.shards import ShardCache
from tests.ranker.inference.shard_fakes import (
    Holder,
    ScriptedSource,
    at_rest,
    content_of,
    held,
    in_loop,
    key,
    read,
    turns,
)

A, B, C = key("a"), key("b"), key("c")


@in_loop
async def test_retire_lets_holders_finish_and_takes_no_new_pins() -> None:
    cache = ShardCache(capacity_bytes=30, source=ScriptedSource({A: 10, B: 10, key("a", "2"): 10}))
    await read(cache, B)
    holder = await held(cache, A)
    cache.retire("m", "1")
    assert cache.state(B) is None
    for name in (A, B):
        with pytest.raises(VersionRetired, match="m@1"):
            await read(cache, name)
    assert await read(cache, key("a", "2")) == content_of(key("a", "2"), 10)
    await holder.release()
    assert cache.state(A) is None and cache.stats().resident_bytes == 10
    at_rest(cache)


@in_loop
async def test_a_retired_version_comes_back_only_when_readmitted() -> None:
    source = ScriptedSource({A: 10})
    cache = ShardCache(capacity_bytes=30, source=source)
    cache.retire("m", "1")
    cache.retire("m", "1")
    with pytest.raises(VersionRetired):
        await read(cache, A)
    assert source.starts[A] == 0
    cache.readmit("m", "1")
    assert await read(cache, A) == content_of(A, 10)


@in_loop
async def test_headroom_for_one_shard_is_enough_to_switch_versions() -> None:
    old = [key(str(n), "1") for n in range(3)]
    new = [key(str(n), "2") for n in range(3)]
    source = ScriptedSource(dict.fromkeys([*old, *new], 10))
    cache = ShardCache(capacity_bytes=40, source=source)
    serving = [await held(cache, name) for name in old]
    first = await held(cache, new[0])
    cache.retire("m", "1")
    switched = [first]
    for leaving, coming in zip(serving, [*new[1:], None], strict=True):
        await leaving.release()
        switched += [await held(cache, coming)] if coming else []
    assert cache.stats().resident_by_version == {"m@2": 30}
    for each in switched:
        await each.release()
    at_rest(cache)


@in_loop
async def test_those_who_waited_when_their_version_was_retired_get_their_shard_and_it_leaves_after_them() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    holder = Holder(cache, A)
    await turns()
    cache.retire("m", "1")
    await source.feed_all(A)
    assert holder.holding
    await holder.release()
    assert cache.stats().resident_bytes == 0
    at_rest(cache)


@in_loop
async def test_a_load_that_nobody_waits_for_ends_when_its_version_is_retired() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    holder = Holder(cache, A)
    await turns()
    await holder.cancel()
    cache.retire("m", "1")
    await turns()
    assert (source.running[A], cache.stats().reserved_bytes, cache.stats().failures) == (0, 0, 0)


@in_loop
async def test_a_load_whose_waiter_left_after_the_retirement_is_not_kept() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    holder = Holder(cache, A)
    await turns()
    cache.retire("m", "1")
    await holder.cancel()
    await source.feed_all(A)
    assert cache.stats().resident_bytes == 0
    at_rest(cache)
