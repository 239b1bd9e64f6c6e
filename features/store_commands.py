"""The server commands of the feature store, as tuples of bytes: pure, without a connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from features.store import Commit
from features.store_layout import Layout, cell_field

Command = tuple[bytes | int, ...]

SCAN_COUNT = 1000
ITEMS_PER_COMMAND = 5000


def read_rows(layout: Layout, keys: Sequence[str]) -> Command:
    """The applied offset, then the rows."""
    return (b"MGET", layout.applied, *map(layout.row, keys))


def set_row(layout: Layout, key: str, value: bytes, ttl_s: int, *, only_if_absent: bool = False) -> Command:
    """SET with a time to live; with `only_if_absent` it answers what was there (Redis 7, Valkey)."""
    condition = (b"NX", b"GET") if only_if_absent else ()
    return (b"SET", layout.row(key), value, *condition, b"EX", ttl_s)


def transaction(layout: Layout, commit: Commit, dead_fields: Sequence[bytes]) -> list[Command]:
    """MULTI … EXEC of a commit.

    Args:
        dead_fields: the fields of the tables that it deletes; they go before cells are set.
    """
    return [
        (b"MULTI",),
        *_row_commands(layout, commit),
        *_in_groups((b"HDEL", layout.population), dead_fields),
        *_cell_commands(layout, commit),
        (b"SET", layout.applied, commit.applied),
        (b"EXEC",),
    ]


def _row_commands(layout: Layout, commit: Commit) -> Iterator[Command]:
    for key, row in commit.rows.items():
        if row is not None:
            yield set_row(layout, key, row[0], row[1])
    yield from _in_groups((b"UNLINK",), [layout.row(key) for key, row in commit.rows.items() if row is None])


def _cell_commands(layout: Layout, commit: Commit) -> Iterator[Command]:
    pairs: list[bytes] = []
    gone: list[bytes] = []
    for (table, action), value in commit.cells.items():
        if value is None:
            gone.append(cell_field(table, action))
        else:
            pairs += (cell_field(table, action), value)
    yield from _in_groups((b"HSET", layout.population), pairs)
    yield from _in_groups((b"HDEL", layout.population), gone)


def _in_groups(start: Command, items: Sequence[bytes]) -> Iterator[Command]:
    """The command for so many items that no argument list grows without bound; an even number each."""
    remaining = iter(items)
    while group := tuple(islice(remaining, 2 * ITEMS_PER_COMMAND)):
        yield (*start, *group)
