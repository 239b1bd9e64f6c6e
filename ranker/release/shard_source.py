"""The registry's folders as the source of the shard cache: a version's files are its shards."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ranker.inference.shard_errors import LoadFailed, UnknownShard
from ranker.inference.shard_format import check_format
from ranker.inference.shard_key import ShardKey
from ranker.release.errors import RegistryError, VersionMissing
from ranker.release.manifest import FileEntry, Manifest
from ranker.release.registry import Registry

_MOST_MANIFESTS = 64


class RegistrySource:
    """Reads shards from the folders of registries; it trusts the manifests and nothing else.

    Args:
        registries: by model name.
        chunk_bytes: read at a time, in a thread.
    """

    def __init__(self, registries: Mapping[str, Registry], *, chunk_bytes: int = 1 << 20) -> None:
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes {chunk_bytes!r} is less than one")
        self._registries = registries
        self._chunk_bytes = chunk_bytes
        self._manifests: OrderedDict[tuple[str, str], Manifest] = OrderedDict()

    check = staticmethod(check_format)

    def size(self, key: ShardKey) -> int:
        """Bytes, from the manifest.

        Raises:
            UnknownShard: no such model, version or file.
            LoadFailed: the manifest is broken.
        """
        return self._entry(key).bytes

    def sha256(self, key: ShardKey) -> str:
        """Checksum, from the manifest; errors as `size`."""
        return self._entry(key).sha256

    async def chunks(self, key: ShardKey) -> AsyncIterator[bytes]:
        """The file's content.

        Raises:
            LoadFailed: it cannot be read, is a symbolic link or not a regular file.
        """
        self._entry(key)
        path = self._registries[key.model].folder / key.version / key.shard
        try:
            with await asyncio.to_thread(_open_plain, path) as file:
                while chunk := await asyncio.to_thread(file.read, self._chunk_bytes):
                    yield chunk
        except (OSError, ValueError) as error:
            raise LoadFailed(f"{key}: {path}: {error}") from error

    def _entry(self, key: ShardKey) -> FileEntry:
        entry = self._manifest(key).files.get(key.shard)
        if entry is None:
            raise UnknownShard(f"{key}: version {key.version!r} of {key.model!r} has no file {key.shard!r}")
        return entry

    def _manifest(self, key: ShardKey) -> Manifest:
        """Versions are immutable, so a manifest once read is right for good."""
        known = self._manifests.get((key.model, key.version))
        if known is None:
            known = self._read_manifest(key)
            self._manifests[key.model, key.version] = known
            if len(self._manifests) > _MOST_MANIFESTS:
                self._manifests.popitem(last=False)
        return known

    def _read_manifest(self, key: ShardKey) -> Manifest:
        registry = self._registries.get(key.model)
        if registry is None:
            raise UnknownShard(f"{key}: there is no model {key.model!r}")
        try:
            return registry.manifest(key.version)
        except VersionMissing as error:
            raise UnknownShard(f"{key}: {error}") from error
        except RegistryError as error:
            raise LoadFailed(f"{key}: {error}") from error


def _open_plain(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("is not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)
