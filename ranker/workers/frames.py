"""Messages cut out of a stream of bytes: four bytes of length, most significant first, then so many bytes."""

from __future__ import annotations

from ranker.workers.errors import FeedError

MAX_FRAME_BYTES = 32 << 20
"""More than the longest line of the log, and than any part that a snapshot is sent in."""

_HEAD = 4


def framed(body: bytes) -> bytes:
    """A message as it goes over the stream.

    Raises:
        FeedError: it is longer than MAX_FRAME_BYTES.
    """
    if len(body) > MAX_FRAME_BYTES:
        raise FeedError(f"a message of {len(body)} bytes is longer than {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEAD, "big") + body


class Unframer:
    """Gives the whole messages in what has arrived, and keeps the rest."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, arrived: bytes) -> list[bytes]:
        """The messages that are whole now, in order.

        Raises:
            FeedError: one says that it is longer than MAX_FRAME_BYTES.
        """
        self._rest += arrived
        found, start = list[bytes](), 0
        while len(self._rest) - start >= _HEAD:
            length = int.from_bytes(self._rest[start : start + _HEAD], "big")
            if length > MAX_FRAME_BYTES:
                raise FeedError(f"a message of {length} bytes is longer than {MAX_FRAME_BYTES}")
            end = start + _HEAD + length
            if len(self._rest) < end:
                break
            found.append(bytes(self._rest[start + _HEAD : end]))
            start = end
        del self._rest[:start]
        return found
