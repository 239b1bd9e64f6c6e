"""Which content may be a shard: what the safetensors library writes, LightGBM text, and nothing that could run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ranker.inference.shard_errors import FormatRefused
from ranker.inference.shard_format import check_format
from tests.ranker.inference.shard_fakes import key

WEIGHTS = save(
    {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(0, np.float16), "n": np.ones(3, np.int64)},
    metadata={"model": "m"},
)
SPAN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def check(content: bytes) -> None:
    check_format(key(), memoryview(content))


def raw(header: Any, body: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "content",
    [WEIGHTS, save({}), raw({"w": SPAN}), b"tree\nversion=v4\n", b"tree\r\nversion=v4\r\n"],
    ids=["library", "no-tensor", "by-hand", "lightgbm", "lightgbm-crlf"],
)
def test_safetensors_and_lightgbm_text_pass(content: bytes) -> None:
    check(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"tre",
        b"treenode",
        b"\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01w\x94]\x94G?\xf0\x00\x00",
        b"PK\x03\x04" + bytes(60),
        b'{"a": 1}',
        raw({"w": SPAN}, bytes(7)),
        raw({"w": SPAN}, bytes(9)),
        raw({"w": SPAN}, length=2**63),
        raw({"w": SPAN}, length=10_000),
        raw(b"[]"),
        raw(b"{" * 50_000),
        raw(b'{"w":' + b"[" * 50_000),
        raw({"w": {**SPAN, "dtype": "O"}}),
        raw({"w": {**SPAN, "shape": [-2]}}),
        raw({"w": {**SPAN, "shape": [3]}}),
        raw({"w": {**SPAN, "shape": [2**40, 2**40]}}),
        raw({"w": {**SPAN, "data_offsets": [8, 0]}}),
        raw({"w": {**SPAN, "data_offsets": [0, 1 << 70]}}),
        raw({"w": SPAN, "v": SPAN}),
        raw({"v": {**SPAN, "data_offsets": [4, 12]}}, bytes(12)),
        raw({"w": {**SPAN, "run": "me"}}),
        raw({"w": SPAN, "__metadata__": {"n": 1}}),
        raw(b"\xff\xfe"),
    ],
    ids=lambda value: repr(bytes(value[:24])),
)
def test_everything_else_is_refused_and_named(content: bytes) -> None:
    with pytest.raises(FormatRefused, match="m@1/0"):
        check(content)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WEIGHTS) - 1), st.integers(0, 255))
def test_what_passes_with_one_byte_changed_the_library_can_read_too(place: int, value: int) -> None:
    content = WEIGHTS[:place] + bytes([value]) + WEIGHTS[place + 1 :]
    try:
        check(content)
    except FormatRefused:
        return
    try:
        load(content)
    except (SafetensorError, KeyError) as error:
        # the library's numpy side knows fewer types than the format has
        assert isinstance(error, KeyError), f"passed although: {error}"
