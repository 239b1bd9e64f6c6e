"""What the keeper gives a follower at its start: one line of JSON, on a pipe that ends when the keeper does."""

from __future__ import annotations

import os

import msgspec

from ranker.config import ServeConfig
from ranker.policy_config import PolicyConfig
from ranker.workers.errors import FeedError

MAX_BYTES = 32 << 20


class Start(msgspec.Struct, frozen=True):
    """All that a follower has to know.

    Args:
        worker: its number, from 1.
        folder: where the keeper's private sockets are.
        store: URL of the keeper's store; may hold a password, so it is in no command line.
        listener: the descriptor of the public socket, inherited.
    """

    worker: int
    folder: str
    store: str
    listener: int
    config: ServeConfig
    policy: PolicyConfig

    def line(self) -> bytes:
        """As it is written to the follower."""
        return msgspec.json.encode(self) + b"\n"


def read_start(descriptor: int) -> Start:
    """Reads the line, and nothing after it. Raises FeedError."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1 << 16)
        if not piece or len(line) > MAX_BYTES:
            raise FeedError("the keeper has not said how to start")
        line += piece
    try:
        return msgspec.json.decode(line, type=Start)
    except msgspec.DecodeError as error:
        raise FeedError(f"the keeper's start cannot be read: {error}") from error
