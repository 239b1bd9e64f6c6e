"""Which ids an import has met, exactly and in few bytes each: sorted runs of 8-byte digests.

A Python set of digests takes about 100 bytes each; a sorted run takes 8, and while two runs are merged 16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RECENT = 1 << 16
"""Digests in a plain set, before they become a run."""

Run = NDArray[np.uint64]


class IdRuns:
    """Runs by falling size, each at least twice as long as the next: a look-up asks few of them."""

    def __init__(self, recent: int = RECENT) -> None:
        self._limit = recent
        self._recent: set[int] = set()
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._runs))

    @property
    def run_bytes(self) -> int:
        """Of the sorted runs."""
        return sum(run.nbytes for run in self._runs)

    def add(self, digests: Sequence[bytes]) -> list[bool]:
        """Takes digests of 8 bytes in; whether each was new, also among those before it in the same call."""
        ids = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)
        settled = np.zeros(len(ids), np.bool_)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, ids), len(run) - 1)
            settled |= run[places] == ids
        fresh = [self._note(number, known) for number, known in zip(ids.tolist(), settled.tolist(), strict=True)]
        if len(self._recent) >= self._limit:
            self._settle()
        return fresh

    def _note(self, number: int, settled: bool) -> bool:
        if settled or number in self._recent:
            return False
        self._recent.add(number)
        return True

    def _settle(self) -> None:
        run = np.fromiter(self._recent, np.uint64, len(self._recent))
        run.sort()
        self._recent = set()
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            # Two runs one after the other: a stable sort merges them in linear time.
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")
        self._runs.append(run)
