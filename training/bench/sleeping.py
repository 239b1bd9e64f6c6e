"""A model that takes a known time: it sleeps, then sums each request's numbers."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from ranker.inference.model import Member, NoHold
from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.workspace import Workspace

Numbers = Sequence[float]


@dataclass
class Sleeping:
    """Sleeps `sleep_ms` a batch, whatever its size.

    Args:
        batches: the size of each batch that ran, for reports, and
        took_s: how long they slept in truth, which is more than they were told to.
        log: gets a record a batch, (Unix seconds as a double, size as an unsigned int), for other load generators.
    """

    sleep_ms: float
    shards: Sequence[ShardKey] = ()
    batches: list[int] = field(default_factory=list)
    took_s: float = 0.0
    log: BinaryIO | None = None

    def compute(self, rows: Sequence[Numbers]) -> list[float]:
        """The sums."""
        numbers = np.asarray(rows, dtype=np.float32)
        started_s = time.perf_counter()
        time.sleep(self.sleep_ms / 1000.0)
        self.took_s += time.perf_counter() - started_s
        self.batches.append(len(rows))
        if self.log is not None:
            self.log.write(struct.pack("<dI", time.time(), len(rows)))
        sums: list[float] = numbers.sum(axis=-1).tolist()
        return sums

    def load(self, shards: Mapping[str, Shard]) -> None:
        """It has no weights."""

    def unload(self) -> None:
        """It has no weights."""

    def cost(self, payload: Numbers) -> int:  # noqa: ARG002  # the shape of a Model
        """Every request is one token."""
        return 1

    def hold(self, payload: Numbers) -> NoHold:  # noqa: ARG002
        """It pins nothing."""
        return NoHold(1)

    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[float]:  # noqa: ARG002
        """The sums of a batch."""
        return self.compute([member.payload for member in members])
