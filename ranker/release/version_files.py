"""Files of versions, read whole and without surprises."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ranker.release.durable import read_plain
from ranker.release.errors import VersionCorrupt, VersionRefused


def read_file(path: Path, limit: int) -> bytes:
    """A published file's content.

    Raises:
        VersionCorrupt: it is missing, a symbolic link, no plain file, or larger than `limit` bytes.
    """
    try:
        return read_plain(path, limit)
    except FileNotFoundError as error:
        raise VersionCorrupt(f"{path}: is missing") from error
    except (OSError, ValueError) as error:
        reason = "is a symbolic link" if path.is_symlink() else str(error)
        raise VersionCorrupt(f"{path}: {reason}") from error


def read_folder(folder: Path, limit: int) -> dict[str, bytes]:
    """Content of a folder's plain files by name.

    Raises:
        VersionRefused: it holds something else, or a file larger than `limit` bytes.
    """
    contents = {}
    try:
        for path in sorted(folder.iterdir()):
            contents[path.name] = read_plain(path, limit)
    except (OSError, ValueError) as error:
        raise VersionRefused(f"{folder}: {error}") from error
    return contents


def sha256_of(content: bytes) -> str:
    """In lower-case hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def is_number(version: str) -> bool:
    """Whether a version has a number for a name."""
    return version.isdecimal() and len(version) <= 18


def by_number(version: str) -> tuple[bool, int, str]:
    """A key that sorts versions: numbers first and in their order."""
    return (not is_number(version), int(version) if is_number(version) else 0, version)
