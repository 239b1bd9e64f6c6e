"""A shard cache in a folder: what is used is what was hashed, whatever happens to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranker.inference.shard_errors import (
    LoadFailed,
)
from ranker.inference.shards import ShardCache
from tests.ranker.inference.shard_fakes import (
    ManualTime,
    ScriptedSource,
    at_rest,
    cache_of,
    content_of,
    held,
    in_loop,
    key,
    read,
    run,
)

A, B, C = key("a"), key("b"), key("c")
RIGHT = content_of(A, 10)
FLIPPED = bytes([RIGHT[0] ^ 1]) + RIGHT[1:]


@in_loop
async def test_a_partial_file_of_a_killed_run_is_deleted_not_resumed(tmp_path: Path) -> None:
    first = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), folder=tmp_path)
    async with first.pin(A) as shard:
        assert shard.path is not None
        name = shard.path
    await first.aclose()
    name.with_suffix(".partial").write_bytes(b"half a sha")
    name.write_bytes(b"left behind")
    (tmp_path / "README").write_text("not ours")
    cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}), folder=tmp_path)
    assert await read(cache, A) == RIGHT
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["README", name.name])
    await read(cache, B)
    name.with_suffix(".partial").write_bytes(b"half a sha")
    assert await read(cache, A) == RIGHT
    await cache.aclose()


@in_loop
async def test_what_is_used_is_what_was_hashed_even_if_the_file_is_replaced(tmp_path: Path) -> None:
    cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), folder=tmp_path)
    async with cache.pin(A) as shard:
        assert shard.path is not None
        other = tmp_path / "other"
        other.write_bytes(FLIPPED)
        other.replace(shard.path)
    assert await read(cache, A) == RIGHT
    await cache.aclose()


@in_loop
async def test_a_folder_that_vanishes_fails_the_load_and_nothing_else(tmp_path: Path) -> None:
    time, folder = ManualTime(), tmp_path / "cache"
    cache = cache_of(ScriptedSource({A: 10, B: 10}), time, 20, folder=folder)
    holder = await held(cache, A)
    folder.rename(tmp_path / "moved")
    with pytest.raises(LoadFailed, match="m@1/b: FileNotFoundError"):
        await read(cache, B)
    assert holder.holding
    await holder.release()
    folder.mkdir()
    await time.advance(1)
    assert await read(cache, B) == content_of(B, 10)
    await cache.aclose()
    at_rest(cache)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_fails_the_load_and_leaves_no_byte_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_open = Path.open

    def on_full_disk(path: Path, mode: str = "r", **fields: Any) -> Any:
        return plain_open(Path("/dev/full"), "wb") if path.suffix == ".partial" else plain_open(path, mode, **fields)

    async def test() -> None:
        size = 1 << 17
        cache = ShardCache(capacity_bytes=size, source=ScriptedSource({A: size}), folder=tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", on_full_disk)
            with pytest.raises(LoadFailed, match="No space left"):
                await read(cache, A)
        at_rest(cache)

    run(test())
