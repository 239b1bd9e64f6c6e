"""What a shard is called, what its holder sees, and where shards come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ranker.inference.shard_errors import InvalidShardKey

_LONGEST_PART = 255


class State(StrEnum):
    """Where a shard is in its life."""

    LOADING = "loading"
    VERIFIED = "verified"
    RESIDENT = "resident"
    LEAVING = "leaving"


@dataclass(frozen=True, order=True, slots=True)
class ShardKey:
    """One file of a version; each part is a plain name, so that no key can be a path.

    Raises:
        InvalidShardKey: naming the part and its value.
    """

    model: str
    version: str
    shard: str

    def __post_init__(self) -> None:
        for part in ("model", "version", "shard"):
            _check_part(part, getattr(self, part))

    @property
    def model_key(self) -> str:
        """As requests name the version: `model@version`."""
        return f"{self.model}@{self.version}"

    def __str__(self) -> str:
        return f"{self.model}@{self.version}/{self.shard}"


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A verified shard; usable until its pin is released.

    Args:
        data: its content, read-only. A view kept after the pin keeps memory that the cache no longer counts.
        path: its file when the cache has a folder.
    """

    key: ShardKey
    data: memoryview
    path: Path | None = None

    @property
    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return self.data.nbytes


class ShardSource(Protocol):
    """Where shards are read from. `size` and `sha256` come from the manifest and must not block."""

    def size(self, key: ShardKey) -> int:
        """Bytes of the shard.

        Raises:
            LookupError: there is no such shard; `UnknownShard` says the same.
        """

    def sha256(self, key: ShardKey) -> str:
        """Checksum of the content, 64 hexadecimal digits."""

    def chunks(self, key: ShardKey) -> AsyncIterator[bytes]:
        """The content from its first byte on, in pieces of any size; always a fresh read."""


Check = Callable[[ShardKey, memoryview], None]
"""Raises `FormatRefused` for verified content that may not be used; a source may bring its own as `check`."""


def _check_part(part: str, name: object) -> None:
    if not isinstance(name, str):
        raise InvalidShardKey(f"{part} {name!r} is not a string")
    if not 0 < len(name) <= _LONGEST_PART:
        raise InvalidShardKey(f"{part} {name[:32]!r} has {len(name)} characters, not 1 to {_LONGEST_PART}")
    if name in (".", "..") or not name.isprintable() or not {"/", "\\"}.isdisjoint(name):
        raise InvalidShardKey(f"{part} {name!r} is not a plain name")
