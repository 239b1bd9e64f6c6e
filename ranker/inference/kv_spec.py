"""How the keys and values of a page lie in its bytes, per format; no tensor in sight.

Per page and layer, with T tokens, C channels (heads × width of a head) and groups of g:

| format | keys and values | scales and minima, float32 | bits per number |
|---|---|---|---|
| fp32 | 2·T·C·4 | | 32 |
| bf16 | 2·T·C·2 | | 16 |
| int8 | 2·T·C | 4·(T·C/g)·4 | 8 + 64/g |
| int4 | 2·T·C/2 | 4·(T·C/g)·4 | 4 + 64/g |

Keys have a range per channel over g tokens, because a key's channels differ in size and stay so from token to token;
values one per token over g channels (KIVI, Liu et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ranker.inference.memory_errors import InvalidSize
from ranker.inference.sizes import align_up, tensor_bytes, whole

SCHEMES = ("fp32", "bf16", "int8", "int4")
LEVELS = {"int8": 255, "int4": 15}
"""Steps between the least and the greatest code."""


@dataclass(frozen=True)
class Field:
    """A tensor in a run of bytes.

    Args:
        offset: in bytes, aligned.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


def lay_out(tensors: list[tuple[str, tuple[int, ...], str]]) -> tuple[tuple[Field, ...], int]:
    """Fields one after the other, each aligned, and the bytes of all."""
    fields, end = [], 0
    for name, shape, dtype in tensors:
        nbytes = tensor_bytes(shape, dtype, name)
        fields.append(Field(name, shape, dtype, end, nbytes))
        end += align_up(nbytes)
    return tuple(fields), end


@dataclass(frozen=True)
class KvSpec:
    """What a page holds.

    Args:
        scheme: `fp32`, `bf16`, `int8` or `int4`.
        layers: of the model.
        channels: heads × width of a head, for keys and as many for values; a multiple of the group.
        page_tokens: entries of a page; a multiple of the group.
        group: numbers that share a scale and a minimum; 32 or 64 by custom. Only int8 and int4 have groups.

    Raises:
        InvalidSize: names the field.
    """

    scheme: str
    layers: int
    channels: int
    page_tokens: int = 32
    group: int = 32

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise InvalidSize(f"scheme must be one of {', '.join(SCHEMES)}, not {self.scheme!r}")
        for field in ("layers", "channels", "page_tokens", "group"):
            whole(getattr(self, field), field)
        if self.quantised:
            for field in ("channels", "page_tokens"):
                number = getattr(self, field)
                if number % self.group:
                    raise InvalidSize(f"{field} must be a multiple of the group {self.group}, not {number}")
            if self.channels % 2:
                raise InvalidSize(f"channels must be even, since two codes share a byte, not {self.channels}")
        tensor_bytes((self.layers, 2, self.page_tokens, self.channels), "float64", "a page")

    @property
    def quantised(self) -> bool:
        """Whether the format has codes, scales and minima."""
        return self.scheme in LEVELS

    @property
    def entries(self) -> tuple[int, int]:
        """Shape of the keys, and of the values, of one layer of a page: `[tokens, channels]`."""
        return self.page_tokens, self.channels

    @cached_property
    def block(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Name, shape and dtype of the parts of one layer of a page."""
        tokens, channels = self.entries
        if not self.quantised:
            dtype = {"fp32": "float32", "bf16": "bfloat16"}[self.scheme]
            return [("key_codes", self.entries, dtype), ("value_codes", self.entries, dtype)]
        codes = (tokens, channels // 2 if self.scheme == "int4" else channels)
        by_channel, by_token = (tokens // self.group, channels), (tokens, channels // self.group)
        return [
            ("key_codes", codes, "uint8"),
            ("value_codes", codes, "uint8"),
            ("key_scale", by_channel, "float32"),
            ("key_least", by_channel, "float32"),
            ("value_scale", by_token, "float32"),
            ("value_least", by_token, "float32"),
        ]

    @cached_property
    def layout(self) -> tuple[tuple[Field, ...], int]:
        """Fields of a page, `[layers, …]` each, and the bytes of the page, a multiple of the alignment."""
        return lay_out([(name, (self.layers, *shape), dtype) for name, shape, dtype in self.block])

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in the arena."""
        return self.layout[1]

    @property
    def payload_bytes(self) -> int:
        """The same before alignment: the table's formula."""
        return sum(field.nbytes for field in self.layout[0])

    @property
    def tail_bytes(self) -> int:
        """Bytes of an exact tail page in the arena."""
        return self.exact.page_bytes

    @property
    def exact(self) -> KvSpec:
        """The layout of tail pages, whatever the format of full ones."""
        return KvSpec("fp32", self.layers, self.channels, self.page_tokens, self.group)
