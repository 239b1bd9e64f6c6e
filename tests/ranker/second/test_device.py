"""How the second stage's device divides its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.inference.memory_errors import PoolExhausted
from ranker.release.registry import Registry
from ranker.second.config import Sizes
from ranker.second.device import MIB, open_device, together_in
from ranker.second_config import ServeSecond
from tests.ranker.inference.loops import in_loop


def test_requests_share_a_pass_where_memory_allows_and_never_more_than_a_batch_has() -> None:
    sizes = Sizes(window=256)
    assert together_in(256 * MIB, sizes, ServeSecond()) == 4
    assert together_in(256 * MIB, sizes, ServeSecond(max_batch_requests=2)) == 2
    assert together_in(256 * MIB, sizes, ServeSecond(batching=False)) == 1
    assert together_in(1 * MIB, sizes, ServeSecond()) == 1
    counts = [together_in(mib * MIB, Sizes(window=1024), ServeSecond()) for mib in range(8, 80, 4)]
    assert counts == sorted(counts) and {counts[0], counts[-1]} == {1, 4}


@pytest.mark.parametrize(("memory_mib", "window"), [(16, 1024), (32, 2048), (64, 4096), (256, 16384)])
@in_loop
async def test_long_windows_leave_room_for_pages(tmp_path: Path, memory_mib: int, window: int) -> None:
    device = open_device(Sizes(window=window), Registry(tmp_path), ServeSecond(memory_mib=memory_mib))
    assert device.together < 4
    assert device.store.pages.config.pages * device.store.full.spec.page_tokens >= window
    await device.close()


@in_loop
async def test_a_window_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolExhausted, match="one request with 16384 events"):
        open_device(Sizes(window=16384), Registry(tmp_path), ServeSecond(memory_mib=16))
