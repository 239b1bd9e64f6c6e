"""JSON in and out of the routes, and what is wrong with it in words: the field, by its path, and the value."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from features.events import MAX_STRING
from ranker.api.problems import InvalidField, Malformed, cut

MAX_VALUE = 200
MAX_DIGITS = 300
"""Python makes no number of more than 4,300 digits from text; the decoder takes few more than 300."""
T = TypeVar("T")

encode = msgspec.json.Encoder().encode

_UNKNOWN = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_BYTE = re.compile(r"\(byte (\d+)\)$")
ABSENT = object()


def decode(decoder: msgspec.json.Decoder[T], body: bytes, prefix: str = "$") -> T:
    """The body as the decoder's type. Of a key that comes twice, the last value counts.

    Args:
        prefix: stands for the body's root in the paths of errors, such as `$[3]` for the fourth line.

    Raises:
        Malformed: not JSON, not UTF-8, or nested too deeply to be read.
        InvalidField: JSON that does not fit; names the path and the value.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), body, prefix) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error), body, prefix) from None
    except RecursionError:
        raise Malformed("arrays and objects are nested too deeply", prefix) from None


def malformed(text: str, body: bytes, prefix: str = "$") -> Malformed:
    """The error of a body that is not JSON, with the place."""
    if not body.strip():
        return Malformed("the body is empty", prefix)
    at = _BYTE.search(text)
    near = body[max(int(at[1]) - 10, 0) : int(at[1]) + 30].decode(errors="replace") if at else ""
    return Malformed(f"{text}, near {near!r}" if near else text, prefix)


def fits(value: Any, depth: int) -> bool:
    """Whether free JSON is within limits: depth, strings of MAX_STRING, integers of 64 bits."""
    kind = type(value)
    if kind is str:
        return bool(len(value) <= MAX_STRING)
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is dict:
        return depth > 0 and all(len(key) <= MAX_STRING and fits(inner, depth - 1) for key, inner in value.items())
    if kind is list:
        return depth > 0 and all(fits(inner, depth - 1) for inner in value)
    return True


def misfit(value: Any, depth: int, path: str) -> InvalidField:
    """Names what made `fits` say no."""
    if isinstance(value, dict | list) and depth > 0:
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(step, str) and len(step) > MAX_STRING:
                return InvalidField(f"a name has {len(step)} characters, more than {MAX_STRING}", path, shown(step))
            if not fits(inner, depth - 1):
                return misfit(inner, depth - 1, f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}")
    if isinstance(value, str):
        return InvalidField(f"has {len(value)} characters, more than {MAX_STRING}", path, shown(value))
    if isinstance(value, int):
        return InvalidField("is an integer of more than 64 bits", path, shown(value))
    return InvalidField("is nested too deeply", path, shown(value))


def shown(value: Any) -> str:
    """A value as short JSON text; arrays and objects by their size."""
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    return cut(json.dumps(value, ensure_ascii=False), MAX_VALUE)


def _invalid(message: str, body: bytes, prefix: str) -> InvalidField:
    text, _, at = message.rpartition(" - at `")
    text, path = (text, at[:-1]) if text else (message, "$")
    named = _UNKNOWN.fullmatch(text)
    path, value = located(body, path)
    if named:
        path = f"{path}.{named[1]}"
        value = value.get(named[1], ABSENT) if isinstance(value, dict) else ABSENT
    field = cut(prefix + path[1:], MAX_VALUE)
    if value is ABSENT:
        return InvalidField(f"{field}: {cut(text, MAX_VALUE)}", field)
    return InvalidField(f"{field}: {cut(text, MAX_VALUE)}, got {shown(value)}", field, shown(value))


def located(body: bytes, path: str) -> tuple[str, Any]:
    """The path and the value that is there, or ABSENT; a path with a `[...]` is made exact where it can be.

    A second, lenient parse, on error paths only: it keeps a number that is too large as text.
    """
    try:
        value = json.loads(body, parse_float=_float_or_text, parse_int=_int_or_text)
        at = 1
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                return _out_of_range(value, path[:at]) or (path, ABSENT)
            value = value[int(step[2])] if step[2] else value[step[1]]
            at = step.end()
    except (ValueError, RecursionError, LookupError, TypeError):
        return path, ABSENT
    return path, value


def _out_of_range(value: Any, path: str) -> tuple[str, str] | None:
    """The first number inside free JSON that no decoder takes: the one thing that can be wrong there."""
    if isinstance(value, _TooLarge):
        return path, str(value)
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found = _out_of_range(inner, f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}")
            if found is not None:
                return found
    return None


class _TooLarge(str):
    """The text of a number that is too large."""

    __slots__ = ()


def _float_or_text(text: str) -> float | str:
    number = float(text)
    return number if abs(number) != float("inf") else _TooLarge(cut(text, MAX_VALUE))


def _int_or_text(text: str) -> int | str:
    return int(text) if len(text) <= MAX_DIGITS else _TooLarge(cut(text, MAX_VALUE))
