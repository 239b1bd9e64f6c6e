"""Keys and values to bytes and back, a whole page at a time, into buffers that exist already.

A page's bytes depend on its own entries only, so appending and recomputing give the same bits, and so do a batch of one
and a batch of many: a range over the batch would leak between requests.

For int8 and int4, per group: scale = (max − min) / levels, code = round((x − min) / scale), and x is read back as
code · scale + min, at most scale / 2 away (and a few units in the last place of float32). A group whose range is 0, or
so small that the scale would not be a normal float32, is constant: scale 0, code 0, read back as its minimum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ranker.inference.kv_spec import LEVELS, Field, KvSpec, lay_out
from ranker.inference.memory_errors import InvalidSize, NotFinite

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]

SMALLEST_SCALE = 2.0**-126
"""The least normal float32; below it a division would lose its precision."""


def carve(base: torch.Tensor, fields: tuple[Field, ...]) -> Tensors:
    """Named views of a run of bytes."""
    import torch

    return {
        field.name: base[field.offset : field.offset + field.nbytes].view(getattr(torch, field.dtype)).view(field.shape)
        for field in fields
    }


class KvCodec:
    """Quantises and dequantises up to `rows` pages of one layer at once; allocates no tensor after it is made.

    Args:
        base: uint8, `bytes_needed` of them; scratch, whose content does not matter between calls.
    """

    def __init__(self, spec: KvSpec, rows: int, base: torch.Tensor) -> None:
        self.spec = spec
        self.rows = rows
        self._block = carve(base, self._fields(spec, rows)[0])
        self._work = {name: self._block.pop(name) for name in ("work", "codes", "varies", "extremes")}

    @classmethod
    def bytes_needed(cls, spec: KvSpec, rows: int) -> int:
        """Bytes of scratch."""
        return cls._fields(spec, rows)[1]

    def block(self, rows: int) -> Tensors:
        """The scratch form of that many pages of one layer: what `encode` fills and `decode` reads."""
        return {name: tensor[:rows] for name, tensor in self._block.items()}

    def encode(self, keys: torch.Tensor, values: torch.Tensor) -> Tensors:
        """Fills the block.

        Args:
            keys, values: float32, `[pages, tokens, channels]`, at most `rows` pages.

        Returns:
            The block, valid until the next call.

        Raises:
            NotFinite: NaN, an infinity, or a range that the format cannot express. Nothing was written elsewhere.
            InvalidSize: another shape or dtype.
        """
        self._check(keys, "keys")
        self._check(values, "values")
        block = self.block(keys.shape[0])
        for name, entries in (("key", keys), ("value", values)):
            if self.spec.quantised:
                self._quantise(name, entries, block)
            else:
                codes = block[f"{name}_codes"]
                codes.copy_(entries)
                self._refuse_non_finite(codes, name)
        return block

    def decode(self, block: Tensors, keys: torch.Tensor, values: torch.Tensor) -> None:
        """The inverse, into float32 `[pages, tokens, channels]` that the caller owns."""
        self._check(keys, "keys")
        self._check(values, "values")
        for name, out in (("key", keys), ("value", values)):
            if self.spec.quantised:
                self._dequantise(name, block, out)
            else:
                out.copy_(block[f"{name}_codes"])

    def decode_layers(self, block: Tensors, keys: torch.Tensor, values: torch.Tensor) -> None:
        """`decode` of a block with the layers of each page side by side.

        Args:
            keys, values: float32 `[layers, pages · tokens, channels]`, each layer contiguous.
        """
        (tokens, channels), group, layers = self.spec.entries, self.spec.group, self.spec.layers
        for name, out in (("key", keys), ("value", values)):
            paged = out.view(layers, -1, tokens, channels).transpose(0, 1)
            codes = self._unpack(block[f"{name}_codes"]) if self.spec.quantised else block[f"{name}_codes"]
            paged.copy_(codes.view(paged.shape))
            if self.spec.quantised:
                parts = (tokens // group, group, channels) if name == "key" else (tokens, channels // group, group)
                scale, least = (block[f"{name}_{part}"] for part in ("scale", "least"))
                shape, axis = (*paged.shape[:2], *scale.shape[1:]), self._axis(name) + 1
                grouped = paged.view(*paged.shape[:2], *parts)
                grouped.mul_(scale.view(shape).unsqueeze(axis)).add_(least.view(shape).unsqueeze(axis))

    def _quantise(self, name: str, entries: torch.Tensor, block: Tensors) -> None:
        import torch

        levels, axis = LEVELS[self.spec.scheme], self._axis(name)
        scale, least = block[f"{name}_scale"], block[f"{name}_least"]
        grouped = self._grouped(name, entries)
        torch.amin(grouped, dim=axis, out=least)
        torch.amax(grouped, dim=axis, out=scale)
        scale.sub_(least)
        self._refuse_non_finite(scale, name)  # NaN and infinities survive min, max and their difference
        scale.div_(levels)
        varies = self._work["varies"][: scale.numel()].view(scale.shape)
        torch.ge(scale, SMALLEST_SCALE, out=varies)
        scale.mul_(varies)
        divisor = varies.neg_().add_(1.0).add_(scale)  # the scale, or 1 where the group is constant
        work = self._work["work"][: entries.shape[0]]
        steps = self._grouped(name, work)
        torch.sub(grouped, least.unsqueeze(axis), out=steps)
        steps.div_(divisor.unsqueeze(axis)).round_().clamp_(0, levels)
        self._pack(work, block[f"{name}_codes"])

    def _dequantise(self, name: str, block: Tensors, out: torch.Tensor) -> None:
        axis = self._axis(name)
        out.copy_(self._unpack(block[f"{name}_codes"]))
        grouped = self._grouped(name, out)
        # Two operations, not a fused one: those round differently in a vector's body and in its tail.
        grouped.mul_(block[f"{name}_scale"].unsqueeze(axis)).add_(block[f"{name}_least"].unsqueeze(axis))

    def _pack(self, steps: torch.Tensor, packed: torch.Tensor) -> None:
        import torch

        if self.spec.scheme == "int8":
            packed.copy_(steps)
            return
        codes = self._work["codes"][: steps.shape[0]]
        codes.copy_(steps)
        half = codes.shape[-1] // 2  # channel c shares a byte with c + half: both halves are runs, which is faster
        torch.bitwise_left_shift(codes[..., half:], 4, out=packed)
        packed.bitwise_or_(codes[..., :half])

    def _unpack(self, packed: torch.Tensor) -> torch.Tensor:
        import torch

        if self.spec.scheme == "int8":
            return packed
        codes = self._work["codes"][: packed.shape[0]]
        half = codes.shape[-1] // 2
        torch.bitwise_and(packed, 15, out=codes[..., :half])
        torch.bitwise_right_shift(packed, 4, out=codes[..., half:])
        return codes

    def _axis(self, name: str) -> int:
        return 2 if name == "key" else 3

    def _grouped(self, name: str, entries: torch.Tensor) -> torch.Tensor:
        """`[pages, groups, group, channels]` for keys, `[pages, tokens, groups, group]` for values."""
        (tokens, channels), group = self.spec.entries, self.spec.group
        if name == "key":
            return entries.view(-1, tokens // group, group, channels)
        return entries.view(-1, tokens, channels // group, group)

    def _refuse_non_finite(self, entries: torch.Tensor, name: str) -> None:
        import torch

        extremes = self._work["extremes"]
        flat = entries.flatten()  # contiguous: a view
        if not flat.numel():
            return
        least, greatest = extremes.view(flat.dtype)[0], extremes.view(flat.dtype)[1]
        torch.amin(flat, dim=0, out=least)
        torch.amax(flat, dim=0, out=greatest)
        if not (math.isfinite(float(least)) and math.isfinite(float(greatest))):
            raise NotFinite(f"{name}s hold NaN, an infinity, or a range that {self.spec.scheme} cannot express")

    def _check(self, entries: torch.Tensor, name: str) -> None:
        import torch

        expected = (entries.shape[0] if entries.dim() == 3 else 0, *self.spec.entries)
        if tuple(entries.shape) != expected or entries.shape[0] > self.rows or entries.dtype != torch.float32:
            shape = f"[up to {self.rows}, {expected[1]}, {expected[2]}] float32"
            raise InvalidSize(f"{name} must be {shape}, not {list(entries.shape)} {entries.dtype}")

    @staticmethod
    def _fields(spec: KvSpec, rows: int) -> tuple[tuple[Field, ...], int]:
        tokens, channels = spec.entries
        groups = rows * tokens * channels // spec.group if spec.quantised else 0
        work = rows if spec.quantised else 0
        return lay_out(
            [
                *((name, (rows, *shape), dtype) for name, shape, dtype in spec.block),
                ("work", (work, tokens, channels), "float32"),
                ("codes", (work if spec.scheme == "int4" else 0, tokens, channels), "uint8"),
                ("varies", (groups,), "float32"),
                ("extremes", (2,), "float32"),
            ]
        )
