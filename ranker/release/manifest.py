"""The manifest: what a version holds, for which feature schema, and how good it was."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from features.events import format_time, from_seconds
from ranker.release.errors import VersionCorrupt, VersionRefused

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_FILES = 4096

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
POINTERS = ("active", "previous")

Count = Annotated[int, msgspec.Meta(ge=0)]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a version.

    Args:
        bytes: its exact size.
        sha256: of its content, lower-case hexadecimal.
    """

    bytes: Count
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class DataSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the log that a version learned from; times in ISO 8601 UTC, None for an open end."""

    since: str | None = None
    until: str | None = None
    events: Count = 0
    rankings: Count = 0


class SecondEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a version's second stage is made of: with its files it can be built again.

    Args:
        tokens: number of the way in which events become tokens.
        sizes: of the network, by name.
        vocabularies: how many values each knows, by name.
        shards: files with its tensors, in order.
        worth: of each outcome it foretells, a loss below 0.
        passed_on: candidates that it is made to rank.
        light: the version whose light stage it was trained over, which this one carries.
        without: what was left out of its tokens to see what it is worth; such a version is judged, and never serves.
    """

    tokens: Count
    sizes: dict[str, int]
    vocabularies: dict[str, int]
    shards: list[str]
    worth: dict[str, float]
    passed_on: Annotated[int, msgspec.Meta(ge=1)]
    light: str
    without: list[str] = []


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a version is.

    Args:
        schema: fingerprint of the feature schema that the model was made for.
        second: of its second stage, where it has one.
        extra: whatever the training job wants to say; never read by the service's own code.
    """

    version: str
    kind: str
    created: str
    files: dict[str, FileEntry]
    schema: str
    metrics: dict[str, Any] = {}
    data: DataSpan = DataSpan()
    second: SecondEntry | None = None
    extra: dict[str, Any] = {}


def timestamp(time_s: float) -> str:
    """Unix seconds as a manifest writes them."""
    return format_time(from_seconds(time_s))


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as indented JSON; a version without a second stage says nothing of one.

    Raises:
        VersionRefused: metrics or extra hold something that JSON cannot.
    """
    try:
        said = {name: value for name, value in msgspec.structs.asdict(manifest).items() if value is not None}
        return msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise VersionRefused(f"metrics or extra cannot be written as JSON: {error}") from error


def decode_manifest(raw: bytes, where: str) -> Manifest:
    """The manifest that `encode_manifest` wrote.

    Args:
        where: the file's name, for the message.

    Raises:
        VersionCorrupt: naming the file and the field.
    """
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise VersionCorrupt(f"{where}: {error}") from error
    for name in manifest.files:
        if not is_file_name(name):
            raise VersionCorrupt(f"{where}: files has {name!r}, which is not a plain file name")
    return manifest


def is_file_name(name: str) -> bool:
    """Whether a version may hold a file of this name: no separators, no leading dot, not the manifest's."""
    return name != MANIFEST and _FILE_NAME.fullmatch(name) is not None


def is_version_name(name: str) -> bool:
    """Whether a version may be called this: no separators, no leading dot, not a pointer's name."""
    return name not in POINTERS and _VERSION_NAME.fullmatch(name) is not None
