"""Several JSON documents in one body: one object, an array, or NDJSON, told apart as late as possible."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ranker.api.codec import decode, malformed
from ranker.api.problems import Malformed

NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})

_whole = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])


def split_documents(body: bytes, media: str) -> list[bytes]:
    """The documents' raw bytes in order; blank lines are none.

    A body sent as NDJSON is split at line breaks whatever its lines are. Otherwise it is an array, one
    document, or, when it is neither and has several lines, NDJSON.

    Raises:
        Malformed: it is none of these, or empty.
    """
    start = body.lstrip()[:1]
    if not start:
        raise Malformed("the body is empty", "$")
    if media in NDJSON:
        return _lines(body)
    if start == b"[":
        return [bytes(document) for document in decode(_array, body)]
    return _one_or_lines(body)


def _one_or_lines(body: bytes) -> list[bytes]:
    try:
        _whole.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        lines = _lines(body)
        if len(lines) < 2:
            raise malformed(str(error), body) from None
        return lines
    return [body]


def _lines(body: bytes) -> list[bytes]:
    # Only LF ends a line: splitlines() would also cut at the other breaks that a JSON string may hold.
    return [line for line in (line.strip(b" \t\r") for line in body.split(b"\n")) if line]


def depth_exceeds(document: bytes, limit: int) -> bool:
    """Whether arrays and objects are nested deeper than `limit`; what is not JSON is not judged."""
    if document.count(b"[") + document.count(b"{") <= limit:
        return False
    try:
        level: Sequence[object] = [msgspec.json.decode(document)]
    except RecursionError:
        return True
    except (ValueError, UnicodeDecodeError):
        return False
    for _ in range(limit):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(value, dict | list) for value in level)


def _inside(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()
