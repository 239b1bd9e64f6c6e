"""Which bytes of an arena are free: runs sorted by offset, joined with their neighbours when given back."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from ranker.inference.sizes import align_up


@dataclass
class FreeRuns:
    """Offsets and lengths only. Runs never touch each other, and each starts at an aligned offset.

    Args:
        capacity: bytes in all; the last run may end off an alignment boundary, all others end on one.
    """

    capacity: int
    _starts: list[int] = field(init=False)
    _sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts, self._sizes = [0], [self.capacity]

    @property
    def free(self) -> int:
        """Bytes that are not taken."""
        return sum(self._sizes)

    @property
    def largest(self) -> int:
        """Bytes of the longest run."""
        return max(self._sizes, default=0)

    def runs(self) -> list[tuple[int, int]]:
        """`(offset, bytes)` of each free run, ascending."""
        return list(zip(self._starts, self._sizes, strict=True))

    def take(self, nbytes: int) -> tuple[int, int] | None:
        """`(offset, bytes taken)` from the smallest run that is long enough, or None.

        What is taken is rounded up to the alignment, but never beyond the end of the arena.
        """
        fitting = [(size, index) for index, size in enumerate(self._sizes) if size >= nbytes]
        if not fitting:
            return None
        size, index = min(fitting)
        offset, taken = self._starts[index], min(align_up(nbytes), size)
        if taken == size:
            del self._starts[index], self._sizes[index]
        else:
            self._starts[index], self._sizes[index] = offset + taken, size - taken
        return offset, taken

    def give(self, offset: int, nbytes: int) -> None:
        """Puts back exactly what `take` answered."""
        index = bisect_left(self._starts, offset)
        before_ends = self._starts[index - 1] + self._sizes[index - 1] if index else 0
        after_starts = self._starts[index] if index < len(self._starts) else self.capacity
        assert before_ends <= offset and offset + nbytes <= after_starts, "bytes given back that were not taken"
        self._starts.insert(index, offset)
        self._sizes.insert(index, nbytes)
        self._join(index)
        self._join(index - 1)

    def _join(self, index: int) -> None:
        if index < 0 or index + 1 >= len(self._starts):
            return
        if self._starts[index] + self._sizes[index] == self._starts[index + 1]:
            self._sizes[index] += self._sizes.pop(index + 1)
            del self._starts[index + 1]
