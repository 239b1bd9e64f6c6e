"""The buffers of a batch: named views of one lease, handed out in order and all taken back when the batch ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ranker.inference.lease import Lease
from ranker.inference.memory_errors import InvalidSize, LeaseError, PoolExhausted
from ranker.inference.pool import MemoryPool
from ranker.inference.sizes import align_up, tensor_bytes, whole

if TYPE_CHECKING:
    import numpy as np
    import torch

Spot = tuple[int, int, tuple[int, ...], str]
"""Offset, bytes, shape, dtype."""


class Workspace:
    """Hands out aligned, uninitialised views; the same name in the same batch is the same view.

    Args:
        lease: held for as long as the workspace lives.
    """

    def __init__(self, lease: Lease, pool: MemoryPool) -> None:
        self._lease = lease
        self._hot_spots = pool.hot_spots
        self._spots: dict[str, Spot] = {}
        self._used = 0
        self.peak_bytes = 0
        self.open = False

    @property
    def capacity_bytes(self) -> int:
        """Bytes for one batch."""
        return self._lease.nbytes

    @property
    def used_bytes(self) -> int:
        """Bytes handed out in this batch."""
        return self._used

    def tensor(self, name: str, shape: Sequence[int], dtype: str | torch.dtype = "float32") -> torch.Tensor:
        """A view for this batch; its content is whatever was there.

        Raises:
            InvalidSize: the shape or dtype cannot be, or the name is in use with another one.
            PoolExhausted: the workspace is full.
            LeaseError: no batch is open.
        """
        import torch

        kind = str(dtype).removeprefix("torch.")
        offset, nbytes = self._place(name, tuple(shape), kind)
        return self._lease.tensor()[offset : offset + nbytes].view(getattr(torch, kind)).view(tuple(shape))

    def array(self, name: str, shape: Sequence[int], dtype: str = "float32") -> np.ndarray[Any, np.dtype[Any]]:
        """The same for numpy, on the host; there is no bfloat16."""
        if dtype == "bfloat16":
            raise InvalidSize(f"numpy has no bfloat16 for {name}; use tensor()")
        offset, nbytes = self._place(name, tuple(shape), dtype)
        return self._lease.array()[offset : offset + nbytes].view(dtype).reshape(tuple(shape))

    def reset(self) -> None:
        """Takes all views back; what the batch used goes to the profile."""
        for name, (_, nbytes, shape, dtype) in self._spots.items():
            self._hot_spots.record(name, f"{'x'.join(map(str, shape))} {dtype}", nbytes)
        self._spots.clear()
        self._used = 0

    def _place(self, name: str, shape: tuple[int, ...], dtype: str) -> tuple[int, int]:
        if not self.open:
            raise LeaseError(f"{name} was asked for when no batch holds this workspace")
        known = self._spots.get(name)
        if known is None:
            known = self._spots[name] = self._bump(name, shape, dtype)
        if known[2:] != (shape, dtype):
            raise InvalidSize(f"{name} is {known[2]} {known[3]} in this batch and cannot be {shape} {dtype} too")
        return known[:2]

    def _bump(self, name: str, shape: tuple[int, ...], dtype: str) -> Spot:
        nbytes = tensor_bytes(shape, dtype, name)
        offset = align_up(self._used)
        if offset + nbytes > self.capacity_bytes:
            left = max(0, self.capacity_bytes - offset)
            raise PoolExhausted(nbytes, left, left, f"the workspace of {self.capacity_bytes} bytes is full at {name}")
        self._used = offset + nbytes
        self.peak_bytes = max(self.peak_bytes, self._used)
        return offset, nbytes, shape, dtype


class Workspaces:
    """One workspace per batch in flight, carved from the pool at start.

    Args:
        nbytes: of each; what the largest batch needs.
        batches: in flight at once.

    Raises:
        PoolExhausted: they do not all fit; none is taken.
    """

    def __init__(self, pool: MemoryPool, nbytes: int, batches: int = 1) -> None:
        nbytes, batches = whole(nbytes, "workspace bytes"), whole(batches, "batches in flight")
        pool.require(align_up(nbytes) * (batches - 1) + nbytes)
        leases = [pool.lease(nbytes, part="workspace").acquire() for _ in range(batches)]
        self._idle = [Workspace(lease, pool) for lease in leases]
        self._leases = leases
        self._nbytes = nbytes

    @property
    def idle(self) -> int:
        """Workspaces that no batch holds."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Workspaces that a batch holds."""
        return len(self._leases) - len(self._idle)

    @contextmanager
    def batch(self) -> Iterator[Workspace]:
        """A workspace until the block ends, however it ends.

        Raises:
            PoolExhausted: as many batches as were planned are in flight.
        """
        if not self._idle:
            raise PoolExhausted(self._nbytes, 0, 0, f"all {len(self._leases)} workspaces are in use")
        workspace = self._idle.pop()
        workspace.open = True
        try:
            yield workspace
        finally:
            workspace.open = False
            workspace.reset()
            self._idle.append(workspace)

    def close(self) -> None:
        """Gives the bytes back to the pool.

        Raises:
            LeaseError: a batch is still in flight.
        """
        if self.busy:
            raise LeaseError(f"{self.busy} batches still hold a workspace")
        for lease in self._leases:
            lease.release()
        self._idle, self._leases = [], []
