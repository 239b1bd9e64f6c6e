"""What the engine knows of a model: what a request costs, what it pins, how a version loads, how a batch runs.

    loop        cost(payload)             when a request is made
    any thread  load(shards), unload()    once a version, before its first batch and after its last
    device      hold(payload)             for each request of a batch, then
    device      run(members, workspace)   once for the batch

The device's calls all come from its one thread; `cost` and `load` may run beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.workspace import Workspace

Payload = Any
"""What a request is about; the engine only carries it from the caller to the model."""

Result = Any
"""What the model answers; carried back."""


class Hold(Protocol):
    """What one request has pinned while its batch runs, such as the pages of its user's history."""

    @property
    def tokens(self) -> int:
        """What it costs now that its pages are pinned; more than `cost` said if some of them left meanwhile."""
        ...

    def release(self) -> None:
        """Unpins; called exactly once, however the batch ends."""
        ...


@dataclass(frozen=True)
class Member:
    """One request of a batch, as the model sees it."""

    payload: Payload
    hold: Hold


class Model(Protocol):
    """One version of a model on one device."""

    @property
    def shards(self) -> Sequence[ShardKey]:
        """The files it is made of; they stay pinned from before `load` until after `unload`."""
        ...

    def load(self, shards: Mapping[str, Shard]) -> None:
        """Takes its weights from verified shards, by shard name; may be slow. What it raises refuses the version."""
        ...

    def unload(self) -> None:
        """Lets go of every view of the shards; no batch follows."""
        ...

    def cost(self, payload: Payload) -> int:
        """Tokens that a request costs as things are now.

        Raises:
            HistoryTooLong, InvalidSize: it could never run.
        """
        ...

    def hold(self, payload: Payload) -> Hold:
        """Pins what a request reads and writes.

        Raises:
            PagesBusy: not now; the request goes back to the queue. Any other error is that request's own.
        """
        ...

    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Result]:
        """One result for each member, in order; nothing that is returned may be a view of the workspace.

        An error fails the batch, which is then run in parts to find out whose fault it was. So a run that failed must
        have published nothing.
        """
        ...


class NoHold:
    """The hold of a model that pins nothing.

    Args:
        tokens: what the request costs.
    """

    __slots__ = ("tokens",)

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def release(self) -> None:
        """There is nothing to unpin."""
