"""The memory pool: one arena under a share of the device, lent in aligned, scoped leases.

    with pool.lease(4096, part="scores") as lease:
        lease.array()[:] = 0

The static rule. The arena is taken and touched once; a workspace per batch in flight and the page arena are carved
from it at start; a batch reuses its workspace's buffers; pages of history leave least recently used. So what a batch
needs is known before it runs, and what does not fit is refused before anything runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ranker.inference.arena import Arena, Bytes, measure, open_arena
from ranker.inference.free_runs import FreeRuns
from ranker.inference.hot_spots import HotSpots
from ranker.inference.lease import Lease
from ranker.inference.memory_errors import InvalidSize, LeaseError, PoolExhausted
from ranker.inference.sizes import whole

if TYPE_CHECKING:
    import torch

__all__ = ["Lease", "LeaseError", "MemoryPool", "PoolExhausted"]

POISON = 0xFF
"""Every float made of these bytes is NaN, every signed integer −1: what reads released bytes shows at once."""


@dataclass(frozen=True)
class Space:
    """What is free, and how many leases are held."""

    free: int
    largest_run: int
    leases: int


class MemoryPool:
    """Bytes of one device, all taken at start. Safe to use from several threads.

    Args:
        limit_bytes: bytes of the device to count with; required on the CPU. On CUDA the device's total when None.
        share: of the limit that context, weights, graphs and this arena may take together, in (0, 1].
        device: `cpu`, `cuda` or `cuda:N`. On CUDA create the pool after warm-up with the largest shape: what is then in
            use on the device is measured, and the arena gets what the share leaves.
        poison: overwrite released bytes, so that tests see whoever uses them.
        clock: monotonic seconds, for the profile's window.

    Raises:
        InvalidSize: limit or share cannot be.
        PoolExhausted: the machine does not have the bytes.
        DeviceMissing: there is no such device.
    """

    def __init__(
        self,
        limit_bytes: int | None = None,
        share: float = 0.85,
        device: str = "cpu",
        *,
        poison: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0.0 < share <= 1.0:  # NaN fails too
            raise InvalidSize(f"share must be above 0 and at most 1, not {share!r}")
        measured = measure(device, limit_bytes if limit_bytes is None else whole(limit_bytes, "limit_bytes"))
        nbytes = measured.arena(share)
        self.device = device
        self.share = share
        self.limit_bytes = measured.limit
        self.outside_bytes = measured.outside
        self.hot_spots = HotSpots(clock)
        self._arena: Arena = open_arena(device, nbytes)
        self._runs = FreeRuns(self._arena.nbytes)
        self._leases: set[Lease] = set()
        self._peak = 0
        self._poison = poison
        self._lock = threading.Lock()

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena; fixed for the life of the pool."""
        return self._arena.nbytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the leases held now, each rounded up to the alignment."""
        with self._lock:
            return self.capacity_bytes - self._runs.free

    @property
    def reserved_bytes(self) -> int:
        """Bytes held from the device and not lent: used + reserved is the capacity."""
        with self._lock:
            return self._runs.free

    @property
    def peak_bytes(self) -> int:
        """The most that was ever used at once."""
        return self._peak

    @property
    def largest_run_bytes(self) -> int:
        """The largest lease that would fit now."""
        with self._lock:
            return self._runs.largest

    @property
    def leases(self) -> int:
        """Leases held now."""
        return len(self._leases)

    def space(self) -> Space:
        """The figures of one moment, which belong together."""
        with self._lock:
            return Space(self._runs.free, self._runs.largest, len(self._leases))

    def lease(self, nbytes: int, *, part: str = "lease", shape: str = "") -> Lease:
        """A lease to enter with `with`; refused at once when it would not fit now.

        Args:
            part: who asks, and
            shape: for what, as the profile names them.

        Raises:
            InvalidSize: not a whole number of at least 1.
            PoolExhausted: no free run is long enough.
        """
        nbytes = whole(nbytes, "nbytes")
        self.require(nbytes)
        return Lease(self, nbytes, part, shape)

    def require(self, nbytes: int) -> None:
        """Refuses what would not fit in one run now; takes nothing.

        Raises:
            PoolExhausted: names what was wanted, what is free, and the largest run.
        """
        with self._lock:
            if nbytes > self._runs.largest:
                raise PoolExhausted(nbytes, self._runs.free, self._runs.largest)

    def take(self, lease: Lease) -> tuple[int, int]:
        """For `Lease` only: `(offset, bytes)` that are now the lease's."""
        with self._lock:
            found = self._runs.take(lease.nbytes)
            if found is None:
                raise PoolExhausted(lease.nbytes, self._runs.free, self._runs.largest)
            self._leases.add(lease)
            self._peak = max(self._peak, self.capacity_bytes - self._runs.free)
        self.hot_spots.record(lease.part, lease.shape, found[1])
        return found

    def give(self, lease: Lease) -> None:
        """For `Lease` only: its bytes are free again."""
        if self._poison:
            self._arena.fill(lease.offset, lease.taken, POISON)
        with self._lock:
            self._leases.remove(lease)
            self._runs.give(lease.offset, lease.taken)

    def array(self, offset: int, nbytes: int) -> Bytes:
        """For `Lease` only: a numpy view of the arena."""
        return self._arena.array(offset, nbytes)

    def tensor(self, offset: int, nbytes: int) -> torch.Tensor:
        """For `Lease` only: a tensor over the arena."""
        return self._arena.tensor(offset, nbytes)

    def check_integrity(self) -> None:
        """Every byte is free or lent exactly once, at an aligned offset."""
        with self._lock:
            lent = [(lease.offset, lease.taken) for lease in self._leases]
            end = 0
            for offset, nbytes in sorted(lent + self._runs.runs()):
                assert offset == end, f"bytes {end} to {offset} are lent twice or lost"
                end += nbytes
            assert end == self.capacity_bytes, f"bytes from {end} on are lost"
