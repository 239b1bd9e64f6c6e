"""Which files may be a shard: safetensors or LightGBM text, told by their content; nothing that could run."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from ranker.inference.shard_errors import FormatRefused
from ranker.inference.shard_key import ShardKey

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format itself."""

_PREFIX = 8
_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[_Count]
    data_offsets: tuple[_Count, _Count]


def check_format(key: ShardKey, content: memoryview) -> None:
    """Lets safetensors (its whole header is checked) and LightGBM text (by its first line) pass.

    Raises:
        FormatRefused: naming the shard and what is wrong with it.
    """
    if bytes(content[:5]) == b"tree\n" or bytes(content[:6]) == b"tree\r\n":
        return
    try:
        _check_safetensors(content)
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise FormatRefused(f"{key}: is neither LightGBM text nor safetensors: {error}") from error


def _check_safetensors(content: memoryview) -> None:
    if content.nbytes < _PREFIX:
        raise ValueError(f"{content.nbytes} bytes have no header")
    length = int.from_bytes(content[:_PREFIX], "little")
    if length > min(MAX_HEADER_BYTES, content.nbytes - _PREFIX):
        raise ValueError(f"a header of {length} bytes does not fit")
    header = content[_PREFIX : _PREFIX + length]
    if bytes(header[:1]) != b"{":
        raise ValueError("the header is not a JSON object")
    try:
        fields = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        _check_metadata(fields)
        tensors = {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in fields.items()}
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error
    _check_spans(tensors, content.nbytes - _PREFIX - length)


def _check_metadata(fields: dict[str, msgspec.Raw]) -> None:
    metadata = fields.pop("__metadata__", None)
    if metadata is not None:
        msgspec.json.decode(metadata, type=dict[str, str])


def _check_spans(tensors: dict[str, _Tensor], nbytes: int) -> None:
    """Every byte belongs to exactly one tensor, and to each as many as its shape and type need."""
    reached = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        start, end = tensor.data_offsets
        if start != reached or end < start:
            raise ValueError(f"tensor {name[:64]!r} spans {start} to {end}, the one before it ends at {reached}")
        width = _BYTES.get(tensor.dtype)
        if width is None:
            raise ValueError(f"tensor {name[:64]!r} has dtype {tensor.dtype[:32]!r}")
        if math.prod(tensor.shape) * width != end - start:
            raise ValueError(f"tensor {name[:64]!r} of shape {tensor.shape[:8]} {tensor.dtype} has {end - start} bytes")
        reached = end
    if reached != nbytes:
        raise ValueError(f"the tensors end at byte {reached} of {nbytes}")
