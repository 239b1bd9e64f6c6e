"""Ids that an import has met: as a set would say, in a fraction of its memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.importers.id_runs import IdRuns


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12), st.integers(1, 20))
def test_an_id_is_new_exactly_once_whatever_the_batches(batches: list[list[int]], recent: int) -> None:
    runs, known = IdRuns(recent), set[int]()
    for batch in batches:
        wanted = []
        for number in batch:
            wanted.append(number not in known)
            known.add(number)
        assert runs.add([(number * 2**58).to_bytes(8, "little") for number in batch]) == wanted
    assert len(runs) == len(known)


def test_ids_take_eight_to_sixteen_bytes_each_beside_the_recent_ones() -> None:
    draw = np.random.default_rng(0)
    digests = draw.bytes(8 * 300_000)
    tracemalloc.start()
    try:
        runs = IdRuns(recent=1000)
        for start in range(0, len(digests), 8000):
            runs.add([digests[place : place + 8] for place in range(start, start + 8000, 8)])
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(runs) == 300_000
    assert held < 9 * 300_000 + 200_000
    assert peak < 17 * 300_000 + 400_000
