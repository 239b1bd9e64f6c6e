"""Errors of the shard cache.

ShardError                what was asked of the cache cannot be had
├── InvalidShardKey       a part of a key that could not be a plain name
├── UnknownShard          the source has no such shard
├── VersionRetired        the version takes no new pins
├── CacheClosed           the cache takes no new pins
├── Busy                  everything is pinned or being loaded; nothing was evicted for it
│   └── ShardTooLarge     larger than the whole cache: no wait will help
└── LoadFailed            the source failed; the cause is chained
    ├── LoadTimedOut      the source did not end in time
    ├── ManifestRefused   a size that no shard can have
    ├── FormatRefused     neither safetensors nor LightGBM text
    └── ChecksumMismatch  the bytes are not the ones that were published
        ├── SizeMismatch  more or fewer bytes than the manifest says
        └── ChecksumKind  what the manifest gives is not a sha256, so nothing could verify
"""

from __future__ import annotations


class ShardError(Exception):
    """Root of what the shard cache raises on purpose; the only argument is the sentence."""


class InvalidShardKey(ShardError, ValueError):
    """A part of a key is empty, too long, a path, or not a string."""


class UnknownShard(ShardError):
    """The source has no shard of this key."""


class VersionRetired(ShardError):
    """The version was retired; `ShardCache.readmit` takes that back."""


class CacheClosed(ShardError):
    """The cache was closed."""


class Busy(ShardError):
    """The shard has no room beside what is pinned and what is being loaded."""


class ShardTooLarge(Busy):
    """The shard is larger than the whole cache; trying again will not help."""


class LoadFailed(ShardError):
    """A load ended without a shard; everyone who waited for it gets this."""


class LoadTimedOut(LoadFailed):
    """A load took longer than it may."""


class ManifestRefused(LoadFailed):
    """The source's size for a shard is not a number of bytes."""


class FormatRefused(LoadFailed):
    """The content verified but is neither safetensors nor LightGBM text."""


class ChecksumMismatch(LoadFailed):
    """The bytes that came are not the ones that were published."""


class SizeMismatch(ChecksumMismatch):
    """More or fewer bytes came than the manifest says."""


class ChecksumKind(ChecksumMismatch):
    """The manifest's checksum is not a sha256 in hexadecimal."""


def again(error: ShardError, more: str = "") -> ShardError:
    """The same error, raised anew for one more caller: a shared instance would gather everyone's traceback."""
    try:
        copy = type(error)(f"{error}{more}")
    except TypeError:  # a source's own subclass that wants other arguments
        copy = LoadFailed(f"{type(error).__name__}: {error}{more}")
    copy.__cause__ = error.__cause__
    return copy
