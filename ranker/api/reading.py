"""What is read from a call besides its JSON: the body within a limit, ids in paths, switches, the caller."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote_to_bytes

from ranker.api.limits import Limits
from ranker.api.problems import BodyTimeout, InvalidField, Malformed, UnsupportedEncoding, cut
from ranker.api.wire import Call
from ranker.errors import TooLarge

MAX_ID = 256
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


class Disconnected(Exception):
    """The client left before its body had arrived; nobody is there to be answered."""


async def read_body(call: Call, limit: int, limits: Limits) -> bytes:
    """The whole body, at most `limit` bytes; what is longer is refused as early as it is known.

    Raises:
        TooLarge, BodyTimeout, UnsupportedEncoding: as named.
        Disconnected: the client left.
    """
    check_encoding(call)
    _check_length(call, limit)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _receive_all(call, limit)
    except TimeoutError:
        raise BodyTimeout(f"the body did not arrive within {limits.body_s:g} s") from None


def path_id(call: Call, name: str) -> str:
    """The id that ends the path, whatever characters it is made of.

    Raises:
        InvalidField: empty, over MAX_ID characters, or not UTF-8.
    """
    value: str = call.scope["path_params"][name]
    if "\ufffd" in value:
        _check_utf8(call, name)
    if not 1 <= len(value) <= MAX_ID:
        raise InvalidField(f"{name} has {len(value)} characters, not 1 to {MAX_ID}", name, cut(value, 200))
    return value


def switches(call: Call, *known: str) -> dict[str, bool]:
    """The query's switches (`?explain=true`); those absent are not in it.

    Raises:
        InvalidField: an unknown parameter, or a value that is neither true nor false.
    """
    if not call.query:
        return {}
    found: dict[str, bool] = {}
    for name, value in parse_qsl(call.query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise InvalidField(f"there is no parameter {cut(name, 200)!r}", cut(name, 200), cut(value, 200))
        if value.lower() not in _SWITCHES:
            raise InvalidField(f"{name} is {cut(value, 200)!r}, not true or false", name, cut(value, 200))
        found[name] = _SWITCHES[value.lower()]
    return found


def caller_of(call: Call, limits: Limits) -> str:
    """Who calls, by the header `X-Caller`; request ids are scoped to it.

    Raises:
        InvalidField: it is too long.
    """
    caller = call.headers.get(b"x-caller", b"")
    if len(caller) > limits.caller_chars:
        raise InvalidField(f"X-Caller has {len(caller)} bytes, more than {limits.caller_chars}", "X-Caller")
    return caller.decode("latin-1")


def reflected(headers: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """The caller's request id, if it is harmless in a header and in a log."""
    request_id = headers.get(b"x-request-id")
    if request_id is None or not _SAFE_ID.fullmatch(request_id):
        return ()
    return ((b"x-request-id", request_id),)


def media_of(call: Call) -> str:
    """The content type without its parameters, lower case."""
    return call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def check_encoding(call: Call) -> None:
    """Returns for a body as it is. Raises UnsupportedEncoding."""
    encoding = call.headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        name = cut(encoding.decode("latin-1"), 50)
        raise UnsupportedEncoding(f"Content-Encoding is {name!r}, not identity", "Content-Encoding")


def _check_length(call: Call, limit: int) -> None:
    declared = call.headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise TooLarge(f"the body has {declared.decode()[:20]} bytes, more than {limit}", "Content-Length")


async def _receive_all(call: Call, limit: int) -> bytes:
    first = await next_chunk(call)
    body, more = first
    if not more and len(body) <= limit:
        return body
    gathered = bytearray(body)
    while more and len(gathered) <= limit:
        body, more = await next_chunk(call)
        gathered += body
    if len(gathered) > limit:
        raise TooLarge(f"the body has more than {limit} bytes")
    return bytes(gathered)


async def next_chunk(call: Call) -> tuple[bytes, bool]:
    """A piece of the body, and whether there is more.

    Raises:
        Disconnected: the client left.
    """
    message = await call.receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message.get("body", b""), message.get("more_body", False)


def _check_utf8(call: Call, name: str) -> None:
    raw: bytes = call.scope.get("raw_path", b"")
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Malformed(f"the path is not UTF-8: {cut(raw.decode('latin-1'), 200)}", name) from None
