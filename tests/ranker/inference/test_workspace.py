"""A batch's buffers: views of one lease that go back together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ranker.inference.memory_errors import InvalidSize, LeaseError, PoolExhausted
from ranker.inference.pool import MemoryPool
from ranker.inference.workspace import Workspaces


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(limit_bytes=1 << 20, clock=lambda: 5.0)


@pytest.fixture
def workspaces(pool: MemoryPool) -> Workspaces:
    return Workspaces(pool, 4096)


def test_views_have_their_shape_and_dtype_and_do_not_overlap(workspaces: Workspaces) -> None:
    with workspaces.batch() as work:
        one, two = work.tensor("one", (3, 5)), work.tensor("two", [7], "int64")
        half, three = work.tensor("half", (2, 2), "bfloat16"), work.array("three", (4, 4), "int8")
        one.fill_(1.5), two.fill_(-2), half.fill_(0.5)
        three[:] = 9
        assert (tuple(one.shape), str(one.dtype), str(two.dtype), three.shape) == (
            (3, 5),
            "torch.float32",
            "torch.int64",
            (4, 4),
        )
        assert one.tolist() == [[1.5] * 5] * 3 and two.tolist() == [-2] * 7 and half.tolist() == [[0.5] * 2] * 2
        assert [view.data_ptr() % 64 for view in (one, two, half)] == [0, 0, 0]
        assert work.used_bytes == 64 + 64 + 64 + 16


def test_the_same_name_in_a_batch_is_the_same_view_and_cannot_change_its_shape(workspaces: Workspaces) -> None:
    with workspaces.batch() as work:
        work.array("x", (8,))[:] = 3.0
        assert work.array("x", (8,)).tolist() == [3.0] * 8
        with pytest.raises(InvalidSize, match=r"x is \(8,\) float32"):
            work.array("x", (9,))


def test_the_next_batch_reuses_the_same_bytes(workspaces: Workspaces) -> None:
    places = []
    for rows in (4, 100, 1):
        with workspaces.batch() as work:
            places.append(work.array("x", (rows,)).ctypes.data)
    assert len(set(places)) == 1


def test_a_full_workspace_refuses_by_name_and_keeps_what_it_gave(workspaces: Workspaces) -> None:
    with workspaces.batch() as work:
        work.array("half", (512,))
        with pytest.raises(PoolExhausted, match="full at logits") as caught:
            work.array("logits", (513,))
        assert (caught.value.wanted, caught.value.free) == (2052, 2048)
        assert work.array("rest", (512,)).shape == (512,)
        assert work.peak_bytes == 4096


@pytest.mark.parametrize(
    ("shape", "dtype"), [((-1,), "float32"), ((2.5,), "float32"), ((2**40, 2**40), "float32"), ((1,), "complex64")]
)
def test_a_shape_or_dtype_that_cannot_be_is_named(workspaces: Workspaces, shape: Any, dtype: str) -> None:
    with workspaces.batch() as work, pytest.raises(InvalidSize, match="x"):
        work.array("x", shape, dtype)


def test_an_empty_view_takes_no_room(workspaces: Workspaces) -> None:
    with workspaces.batch() as work:
        assert work.array("none", (0, 7)).shape == (0, 7) and work.used_bytes == 0


def test_as_many_batches_as_planned_are_in_flight_and_no_more(pool: MemoryPool) -> None:
    two = Workspaces(pool, 1000, batches=2)
    with two.batch() as first, two.batch() as second:
        first.array("x", (10,))[:] = 1.0
        second.array("x", (10,))[:] = 2.0
        assert first.array("x", (10,)).tolist() == [1.0] * 10
        with pytest.raises(PoolExhausted, match="all 2 workspaces are in use"), two.batch():
            pytest.fail("entered")
        with pytest.raises(LeaseError, match="2 batches"):
            two.close()
    two.close()
    assert pool.used_bytes == 0


def test_workspaces_that_do_not_all_fit_take_nothing(pool: MemoryPool) -> None:
    with pytest.raises(PoolExhausted):
        Workspaces(pool, pool.capacity_bytes // 2 + 64, batches=2)
    assert pool.used_bytes == 0


def test_a_batch_that_fails_gives_its_workspace_back_and_closes_it(workspaces: Workspaces) -> None:
    with pytest.raises(ZeroDivisionError), workspaces.batch() as work:
        raise ZeroDivisionError
    assert workspaces.idle == 1
    with pytest.raises(LeaseError, match="x was asked for when no batch"):
        work.array("x", (1,))


def test_what_a_batch_used_is_told_to_the_profile_by_part_and_shape(pool: MemoryPool, workspaces: Workspaces) -> None:
    for rows in (2, 4, 4):
        with workspaces.batch() as work:
            work.array("scores", (rows, 8))
            work.array("scores", (rows, 8))
    parts = {spot.name: spot for spot in pool.hot_spots.by_part(60.0)}
    assert (parts["scores"].takes, parts["scores"].total_bytes, parts["scores"].largest_bytes) == (3, 320, 128)
    shapes = {spot.name: spot.takes for spot in pool.hot_spots.by_shape(60.0)}
    assert shapes == {"2x8 float32": 1, "4x8 float32": 2}


def test_float_views_are_what_numpy_makes_of_the_bytes(workspaces: Workspaces) -> None:
    with workspaces.batch() as work:
        values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
        work.array("x", (3, 4))[:] = values
        assert work.tensor("x", (3, 4)).tolist() == values.tolist()
