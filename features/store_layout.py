"""Where a store keeps things: key names, cell names, and what a commit must fulfil.

    <prefix>:<row key>   one packed row; always with a time to live
    <prefix>:applied     the applied offset; one key
    <prefix>:pop         one hash with every population cell, field = table, 0x1f, action; one key,
                         bounded by the tables and actions that its writer keeps

Row keys start with a family and a colon (`u:…`), so none is called `applied` or `pop`. A prefix has no
colon, so that no store's keys start with another store's prefix and colon.
"""

from __future__ import annotations

import re
from functools import lru_cache

from features.store import ABSENT, Commit

SEPARATOR = b"\x1f"
MAX_TTL_S = 10 * 365 * 86_400
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_GLOB = re.compile(rb"([*?\[\]\\^])")


class Layout:
    """The names under one prefix.

    Raises:
        ValueError: the prefix holds anything but letters, digits, `_`, `.` and `-`.
    """

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"store prefix {prefix!r} is not 1 to 32 letters, digits, '_', '.' or '-'")
        self.prefix = prefix
        self.applied = f"{prefix}:applied".encode()
        self.population = f"{prefix}:pop".encode()
        self.pattern = f"{prefix}:*".encode()

    def row(self, key: str) -> bytes:
        """The store's key of a row."""
        return f"{self.prefix}:{key}".encode()


def cell_field(table: str, action: str) -> bytes:
    """The hash field of a population cell; an action may hold anything, lone surrogates included."""
    return table_start(table) + action.encode("utf-8", "surrogatepass")


@lru_cache(8192)
def table_start(table: str) -> bytes:
    """What the fields of all cells of a table start with, and no others."""
    start = table.encode("utf-8", "surrogatepass")
    if SEPARATOR in start:
        raise ValueError(f"population table {table!r} contains the separator 0x1f")
    return start + SEPARATOR


def split_field(field: bytes) -> tuple[str, str]:
    """(table, action) of a hash field: `cell_field` backwards."""
    table, _, action = field.partition(SEPARATOR)
    return table.decode("utf-8", "surrogatepass"), action.decode("utf-8", "surrogatepass")


def glob_of(start: bytes) -> bytes:
    """A MATCH pattern for everything that starts with `start`, taken literally."""
    return _GLOB.sub(rb"\\\1", start) + b"*"


def check_ttl(key: str, ttl_s: int) -> None:
    """Raises ValueError unless the time to live is a whole number of seconds in 1 … MAX_TTL_S."""
    if not isinstance(ttl_s, int) or not 1 <= ttl_s <= MAX_TTL_S:
        raise ValueError(f"key {key!r}: time to live {ttl_s!r} s is not a whole number in 1 … {MAX_TTL_S}")


def fits(commit: Commit, applied: int | None) -> bool:
    """Whether a store that has this many events in effect (None: never filled) may take a commit."""
    return commit.before is None or commit.before == (ABSENT if applied is None else applied)


def check_commit(commit: Commit) -> None:
    """Refuses before anything is sent what a server would refuse in the middle of a transaction.

    Raises:
        ValueError: names the key or table, and the value.
    """
    if commit.applied < 0:
        raise ValueError(f"applied {commit.applied} is negative")
    for key, row in commit.rows.items():
        if row is not None:
            check_ttl(key, row[1])
    for table in {*commit.tables, *(table for table, _ in commit.cells)}:
        table_start(table)
