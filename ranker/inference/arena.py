"""One run of device bytes, taken and touched at start; everything else is a view of it."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ranker.inference.host_memory import available_bytes
from ranker.inference.memory_errors import DeviceMissing, InvalidSize, PoolExhausted

if TYPE_CHECKING:
    import torch

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
CUDA_SEGMENT = 2 << 20
"""Bytes to which the CUDA allocator rounds a large segment."""


class Arena(Protocol):
    """Bytes of one device by offset; whoever holds a view must hold the lease that it came from."""

    @property
    def nbytes(self) -> int:
        """Bytes there are."""
        ...

    def array(self, offset: int, nbytes: int) -> Bytes:
        """A writable numpy view; only where the host can address the bytes."""
        ...

    def tensor(self, offset: int, nbytes: int) -> torch.Tensor:
        """A writable uint8 tensor over the same bytes."""
        ...

    def fill(self, offset: int, nbytes: int, byte: int) -> None:
        """Overwrites a part."""
        ...


class HostArena:
    """Anonymous pages of the host, each written once so that the steady state faults none in."""

    def __init__(self, nbytes: int) -> None:
        available = available_bytes()
        if nbytes > available:
            raise PoolExhausted(nbytes, available, available, "the machine has no more memory available")
        try:
            self._bytes: Bytes = np.frombuffer(mmap.mmap(-1, nbytes), dtype=np.uint8)
        except (OSError, OverflowError, ValueError) as error:
            raise PoolExhausted(nbytes, available, available, str(error)) from error
        self._bytes.fill(0)
        self._tensor: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes there are."""
        return self._bytes.size

    def array(self, offset: int, nbytes: int) -> Bytes:
        """A numpy view."""
        return self._bytes[offset : offset + nbytes]

    def tensor(self, offset: int, nbytes: int) -> torch.Tensor:
        """A tensor over the same bytes; torch is imported at the first call."""
        if self._tensor is None:
            import torch

            self._tensor = torch.from_numpy(self._bytes)
        return self._tensor[offset : offset + nbytes]

    def fill(self, offset: int, nbytes: int, byte: int) -> None:
        """Overwrites a part."""
        self._bytes[offset : offset + nbytes] = byte


class CudaArena:
    """One segment of the CUDA allocator."""

    def __init__(self, nbytes: int, device: str) -> None:
        library = cuda(device)
        try:
            self._tensor: torch.Tensor = library.zeros(nbytes, dtype=library.uint8, device=device)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            free = library.cuda.mem_get_info(device)[0]
            raise PoolExhausted(nbytes, free, free, f"on {device}") from error

    @property
    def nbytes(self) -> int:
        """Bytes there are."""
        return self._tensor.numel()

    def array(self, offset: int, nbytes: int) -> Bytes:
        """There is none: the host cannot address these bytes."""
        raise DeviceMissing(f"numpy cannot see the {nbytes} bytes at {offset} on {self._tensor.device}; use tensor()")

    def tensor(self, offset: int, nbytes: int) -> torch.Tensor:
        """A tensor over the same bytes."""
        return self._tensor[offset : offset + nbytes]

    def fill(self, offset: int, nbytes: int, byte: int) -> None:
        """Overwrites a part."""
        self._tensor[offset : offset + nbytes].fill_(byte)


@dataclass(frozen=True)
class DeviceBytes:
    """What a pool may plan with.

    Args:
        limit: bytes of the device, or those it was told to count with.
        outside: of these, taken already by what is not the pool: context, weights, captured graphs, other processes.
    """

    limit: int
    outside: int = 0

    def arena(self, share: float) -> int:
        """Bytes under the share of the limit that are left for the arena.

        Raises:
            PoolExhausted: nothing is left.
        """
        allowed = int(share * self.limit)
        if allowed <= self.outside:
            why = f"{self.outside} of the {allowed} bytes under the share {share} are in use outside the pool"
            raise PoolExhausted(1, 0, 0, why)
        return allowed - self.outside


def measure(device: str, limit_bytes: int | None) -> DeviceBytes:
    """The bytes of a device now; on CUDA call it after warm-up, when weights and graphs are in place.

    Raises:
        InvalidSize: no limit was given for the CPU.
        DeviceMissing: there is no such device.
    """
    if device == "cpu":
        if limit_bytes is None:
            raise InvalidSize("limit_bytes is needed on the CPU, where other programs live in the same memory")
        return DeviceBytes(limit_bytes)
    library = cuda(device)
    library.cuda.synchronize(device)
    library.cuda.empty_cache()  # what the warm-up freed but the allocator kept is ours again
    free, total = library.cuda.mem_get_info(device)
    return DeviceBytes(limit_bytes or total, total - free)


def open_arena(device: str, nbytes: int) -> Arena:
    """Takes the bytes and touches them.

    Raises:
        PoolExhausted: the device does not have them.
        DeviceMissing: there is no such device.
    """
    if device == "cpu":
        return HostArena(nbytes)
    whole_segments = nbytes // CUDA_SEGMENT * CUDA_SEGMENT  # rounding up would pass the share
    return CudaArena(whole_segments or nbytes, device)


def cuda(device: str) -> Any:
    """torch, when it has the CUDA device.

    Raises:
        DeviceMissing: it has not, or there is no torch.
    """
    if device != "cuda" and not device.startswith("cuda:"):
        raise DeviceMissing(f"device must be cpu, cuda or cuda:N, not {device!r}")
    try:
        import torch
    except ImportError as error:
        raise DeviceMissing(f"device {device!r} needs torch, which is not installed") from error
    number = device.partition(":")[2] or "0"
    if not torch.cuda.is_available() or not number.isdecimal() or int(number) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        raise DeviceMissing(f"device {device!r} is not there: torch {torch.__version__} sees {seen} CUDA devices")
    return torch
