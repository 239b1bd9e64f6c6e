"""What counts as a size, and how sizes are aligned."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ranker.inference.memory_errors import InvalidSize

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector register."""

LARGEST = 2**63 - 1

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element, by the name that numpy and torch share."""


def align_up(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


def whole(value: object, field: str, minimum: int = 1) -> int:
    """A whole number from `minimum` up to what 63 bits hold.

    Raises:
        InvalidSize: it is none.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what is no integer raises, which is the question
    except TypeError as error:
        raise InvalidSize(f"{field} must be a whole number, not {value!r}") from error
    if isinstance(value, bool) or not minimum <= number <= LARGEST:
        raise InvalidSize(f"{field} must be a whole number from {minimum} to 2^63-1, not {value!r}")
    return number


def tensor_bytes(shape: Sequence[int], dtype: str, field: str = "tensor") -> int:
    """Bytes of a dense tensor; an empty one has none.

    Raises:
        InvalidSize: a negative dimension, an unknown dtype, or more bytes than can be addressed.
    """
    if dtype not in ITEM_BYTES:
        raise InvalidSize(f"{field} has the unknown dtype {dtype!r}; known are {', '.join(ITEM_BYTES)}")
    nbytes = ITEM_BYTES[dtype]
    for size in shape:
        nbytes *= whole(size, f"a dimension of {field}", minimum=0)
    return whole(nbytes, f"bytes of {field}", minimum=0)
