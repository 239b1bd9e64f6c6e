"""A scoped right to some bytes of the arena."""

from __future__ import annotations

from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from ranker.inference.arena import Bytes
from ranker.inference.memory_errors import LeaseError

if TYPE_CHECKING:
    import torch


class Lender(Protocol):
    """What a lease needs of its pool."""

    def take(self, lease: Lease) -> tuple[int, int]:
        """`(offset, bytes)` that are now the lease's."""
        ...

    def give(self, lease: Lease) -> None:
        """The lease's bytes are free again."""
        ...

    def array(self, offset: int, nbytes: int) -> Bytes:
        """A numpy view of the arena."""
        ...

    def tensor(self, offset: int, nbytes: int) -> torch.Tensor:
        """A tensor over the arena."""
        ...


class LeaseState(Enum):
    """A lease goes through these once, in this order."""

    NEW = "not taken yet"
    HELD = "held"
    RELEASED = "released"


class Lease:
    """Bytes for as long as a `with` block runs; nothing is taken before it is entered, so nothing can leak.

    Args:
        nbytes: what was asked for; a view has exactly these.
        part: who asks, and
        shape: for what, as the profile will name them.
    """

    def __init__(self, lender: Lender, nbytes: int, part: str, shape: str) -> None:
        self.nbytes = nbytes
        self.part = part
        self.shape = shape
        self.offset = -1
        self.taken = 0
        self._lender = lender
        self._state = LeaseState.NEW

    @property
    def held(self) -> bool:
        """True between taking and releasing."""
        return self._state is LeaseState.HELD

    def acquire(self) -> Lease:
        """Takes the bytes; for what lives as long as the pool. Prefer `with`.

        Raises:
            PoolExhausted: they do not fit any more.
            LeaseError: it was taken before.
        """
        self._check(LeaseState.NEW, "taken")
        self.offset, self.taken = self._lender.take(self)
        self._state = LeaseState.HELD
        return self

    def release(self) -> None:
        """Gives the bytes back.

        Raises:
            LeaseError: it is not held; a second release would free somebody else's bytes.
        """
        self._check(LeaseState.HELD, "released")
        self._state = LeaseState.RELEASED
        self._lender.give(self)

    def array(self) -> Bytes:
        """The bytes as a numpy view, host memory only; must not be used after the release."""
        self._check(LeaseState.HELD, "used")
        return self._lender.array(self.offset, self.nbytes)

    def tensor(self) -> torch.Tensor:
        """The bytes as a uint8 tensor; must not be used after the release."""
        self._check(LeaseState.HELD, "used")
        return self._lender.tensor(self.offset, self.nbytes)

    def _check(self, needed: LeaseState, what: str) -> None:
        if self._state is not needed:
            said = f"a lease of {self.nbytes} bytes for {self.part}"
            raise LeaseError(f"{said} cannot be {what}: it is {self._state.value}")

    def __enter__(self) -> Lease:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.held:  # an early release inside the block is fine
            self.release()
