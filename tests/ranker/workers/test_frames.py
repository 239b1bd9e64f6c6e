"""Messages over a stream of bytes: whole ones come out however it was cut, and nothing unheard of is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.workers.errors import FeedError
from ranker.workers.frames import MAX_FRAME_BYTES, Unframer, framed
from ranker.workers.messages import (
    Acked,
    Append,
    Beat,
    Cells,
    Changed,
    Hello,
    Joined,
    Logged,
    Report,
    Said,
    Told,
    Wrote,
    packed,
    said,
    told,
)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 9)))
def test_a_stream_cut_anywhere_gives_the_same_messages(bodies: list[bytes], cuts: list[int]) -> None:
    stream, unframer, found = b"".join(map(framed, bodies)), Unframer(), list[bytes]()
    for cut in [*cuts, len(stream)]:
        found += unframer.feed(stream[:cut])
        stream = stream[cut:]
    assert found == bodies


def test_a_message_that_is_too_long_is_refused_on_both_sides() -> None:
    with pytest.raises(FeedError, match="longer"):
        framed(bytes(MAX_FRAME_BYTES + 1))
    with pytest.raises(FeedError, match="longer"):
        Unframer().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "message",
    [
        Beat(12.5, 0.0, 7),
        Cells([("g", "share", b"\0" * 112), ("g", "\ud7ff🙂\n", None)]),
        Changed(-1, []),
        Changed(8, [("e1", "share", b"{}"), ("e2", "learn", None)]),
        Wrote("", 3),
        Joined(0),
        Logged(4, "no space left"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_the_keeper_says_arrives_as_it_was(message: Told) -> None:
    assert told(packed(message)) == message


@pytest.mark.parametrize(
    "message",
    [Hello(1, 9), Acked(3), Append(0, "u1", b'{"event":"ranking"}', 5.0), Report(b"\x80")],
    ids=lambda message: type(message).__name__,
)
def test_what_a_follower_says_arrives_as_it_was(message: Said) -> None:
    assert said(packed(message)) == message


@given(st.binary(max_size=60))
def test_any_other_bytes_are_an_error_of_the_feed(body: bytes) -> None:
    for read in (told, said):
        try:
            read(body)
        except FeedError:
            continue


@pytest.mark.parametrize("wrong", [Hello(0, 1), Acked(-1), Hello("a", 1)])  # type: ignore[arg-type]
def test_values_out_of_range_are_refused(wrong: Said) -> None:
    with pytest.raises(FeedError):
        said(packed(wrong))
    with pytest.raises(FeedError):
        told(packed(wrong))
