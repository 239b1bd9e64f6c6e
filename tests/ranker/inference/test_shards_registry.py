"""Shards from a real registry's folder: verified against its manifest, refused when the disk says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from ranker.inference.shard_errors import FormatRefused, LoadFailed, SizeMismatch, UnknownShard
from ranker.inference.shards import ChecksumMismatch, LoadRules, ShardCache, ShardKey
from ranker.release.registry import Registry
from ranker.release.shard_source import RegistrySource
from tests.ranker.inference.loops import in_loop
from tests.ranker.inference.shard_fakes import ManualTime, at_rest, read, run

WEIGHTS = save({"w": np.arange(5000, dtype=np.float32)})
SHARD = ShardKey(model="second", version="1", shard="model.safetensors")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "models", clock=lambda: 0.0)
    registry.publish({SHARD.shard: WEIGHTS, "light.txt": b"tree\nversion=v4\n", "names.json": b"[]"}, schema="f00d")
    return registry


@pytest.fixture
def source(registry: Registry) -> RegistrySource:
    return RegistrySource({"second": registry}, chunk_bytes=4096)


def cache_of(source: RegistrySource, time: ManualTime, folder: Path | None = None) -> ShardCache:
    rules = LoadRules(corrupt_attempts=2)
    return ShardCache(
        capacity_bytes=1 << 20, source=source, folder=folder, rules=rules, clock=time.clock, sleep=time.sleep
    )


def flip_byte(registry: Registry) -> None:
    path = registry.folder / "1" / SHARD.shard
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def named(shard: str, version: str = "1", model: str = "second") -> ShardKey:
    return ShardKey(model=model, version=version, shard=shard)


@pytest.mark.parametrize("kept", ["memory", "folder"])
@in_loop
async def test_a_published_shard_is_read_in_pieces_and_its_tensors_are_the_published_ones(
    source: RegistrySource, tmp_path: Path, kept: str
) -> None:
    cache = cache_of(source, ManualTime(), tmp_path / "cache" if kept == "folder" else None)
    async with cache.pin(SHARD) as shard:
        np.testing.assert_array_equal(load(bytes(shard.data))["w"], np.arange(5000, dtype=np.float32))
    assert await read(cache, named("light.txt")) == b"tree\nversion=v4\n"
    at_rest(cache)
    await cache.aclose()


@in_loop
async def test_a_byte_flipped_on_disk_is_a_mismatch_and_then_quarantine_until_repaired_and_readmitted(
    registry: Registry, source: RegistrySource, tmp_path: Path
) -> None:
    time, folder = ManualTime(), tmp_path / "cache"
    cache = cache_of(source, time, folder)
    path = registry.folder / "1" / SHARD.shard
    flip_byte(registry)
    for _ in range(2):
        with pytest.raises(ChecksumMismatch, match=r"second@1/model\.safetensors: sha256"):
            await read(cache, SHARD)
        assert list(folder.iterdir()) == []
        await time.advance(5)
    assert cache.quarantined() == (SHARD,)
    path.write_bytes(WEIGHTS)
    with pytest.raises(ChecksumMismatch):
        await read(cache, SHARD)
    cache.readmit("second", "1")
    assert await read(cache, SHARD) == WEIGHTS
    at_rest(cache)
    await cache.aclose()


@pytest.mark.parametrize("change", [-1, 1, 10_000], ids=["shorter", "longer", "much-longer"])
def test_a_file_of_another_size_than_the_manifests_is_refused(
    registry: Registry, source: RegistrySource, change: int
) -> None:
    path = registry.folder / "1" / SHARD.shard
    path.write_bytes(WEIGHTS[:change] if change < 0 else WEIGHTS + bytes(change))

    async def test() -> None:
        cache = cache_of(source, ManualTime())
        with pytest.raises(SizeMismatch, match=str(len(WEIGHTS))):
            await read(cache, SHARD)
        at_rest(cache)

    run(test())


@pytest.mark.parametrize("instead", ["missing", "link", "folder", "pipe"])
def test_what_is_not_a_plain_file_is_refused_and_never_waited_for(
    registry: Registry, source: RegistrySource, instead: str
) -> None:
    path = registry.folder / "1" / SHARD.shard
    kept = path.rename(registry.folder / "kept")
    if instead == "link":
        path.symlink_to(kept)
    elif instead == "folder":
        path.mkdir()
    elif instead == "pipe":
        os.mkfifo(path)

    async def test() -> None:
        cache = cache_of(source, ManualTime())
        with pytest.raises(LoadFailed, match=r"second@1/model\.safetensors"):
            await read(cache, SHARD)
        at_rest(cache)

    run(test())


@pytest.mark.parametrize(
    "unknown",
    [named("no.such"), named("light.txt", "7"), named("light.txt", model="other"), named("manifest.json")],
    ids=str,
)
@in_loop
async def test_a_model_version_or_file_that_is_not_there_is_unknown(source: RegistrySource, unknown: ShardKey) -> None:
    with pytest.raises(UnknownShard, match=str(unknown)):
        await read(cache_of(source, ManualTime()), unknown)


@in_loop
async def test_a_file_of_a_version_that_is_no_model_is_refused_by_its_content(source: RegistrySource) -> None:
    with pytest.raises(FormatRefused, match=r"names\.json"):
        await read(cache_of(source, ManualTime()), named("names.json"))


def test_a_manifest_with_a_path_for_a_name_is_a_load_that_failed(registry: Registry, source: RegistrySource) -> None:
    manifest = registry.folder / "1" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("light.txt", "../light.txt"))

    async def test() -> None:
        with pytest.raises(LoadFailed, match="not a plain file name"):
            await read(cache_of(source, ManualTime()), SHARD)

    run(test())
