"""Who leaves memory: kept within bounds, and no byte of who is not there any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.second.attic import SLOT_BYTES, Attic


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ptf"), st.integers(0, 7), st.integers(1, 3 * SLOT_BYTES)), max_size=80))
def test_who_is_there_comes_back_to_the_byte_and_the_newest_are_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    attic, kept = Attic(tmp_path_factory.mktemp("attic"), 8 * SLOT_BYTES), dict[str, bytes]()
    for number, (what, who, size) in enumerate(steps):
        user = f"u{who}"
        if what == "p":
            packed = bytes([1 + number % 255]) * size
            assert attic.put(user, packed)
            kept[user] = packed
        elif what == "t":
            found = attic.take(user)
            assert found is None or found == kept[user]
            kept.pop(user, None)
        else:
            attic.forget(user)
            kept.pop(user, None)
        there = {user: packed for user, packed in kept.items() if user in attic}
        assert len(attic) == len(there)
        written = content(attic)
        assert sum(map(bool, written)) == sum(map(len, there.values()))
        assert len(written) <= 8 * SLOT_BYTES
    attic.close()


def content(attic: Attic) -> bytes:
    """All bytes of the file."""
    if attic._file is None:
        return b""
    return os.pread(attic._file.fileno(), 1 << 20, 0)


def test_the_oldest_make_room_and_are_counted(tmp_path: Path) -> None:
    attic = Attic(tmp_path, 4 * SLOT_BYTES)
    for number in range(6):
        attic.put(f"u{number}", b"x" * SLOT_BYTES)
    assert [f"u{number}" in attic for number in range(6)] == [False, False, True, True, True, True]
    assert attic.lost == 2
    assert not attic.put("large", b"x" * 5 * SLOT_BYTES)
    assert attic.lost == 3
    attic.close()
    assert attic.take("u5") is None and not attic.put("u6", b"x")


def test_nobody_sees_the_file(tmp_path: Path) -> None:
    attic = Attic(tmp_path, 1 << 20)
    attic.put("u", b"what u did")
    assert list(tmp_path.iterdir()) == []
    attic.close()


def test_a_full_disk_loses_who_leaves_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attic, real = Attic(tmp_path, 1 << 20), os.pwrite
    attic.put("before", b"there")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ranker.second.attic.os.pwrite", full)
    assert not attic.put("u", b"x") and not attic.put("v", b"x")
    assert attic.lost == 2 and attic.take("u") is None
    assert sum("cannot be kept" in record.message for record in caplog.records) == 1
    monkeypatch.setattr("ranker.second.attic.os.pwrite", real)
    assert attic.put("u", b"x") and attic.take("u") == b"x" and attic.take("before") == b"there"
    attic.close()


def test_where_no_file_can_be_made_everybody_who_leaves_is_lost(tmp_path: Path) -> None:
    attic = Attic(tmp_path / "none", 1 << 20)
    assert not attic.put("u", b"x") and attic.lost == 1
    attic.close()
