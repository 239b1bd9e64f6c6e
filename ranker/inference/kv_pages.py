"""The bytes behind page ids: full pages in their format, tail pages exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ranker.inference.kv_formats import KvCodec, Tensors
from ranker.inference.kv_spec import KvSpec
from ranker.inference.lease import Lease
from ranker.inference.memory_errors import InvalidSize, NotFinite
from ranker.inference.page_table import TRASH
from ranker.inference.sizes import align_up

if TYPE_CHECKING:
    import torch


class KvPages:
    """Full pages, id 0 being the trash page, all zero, for padding to read.

    Args:
        lease: `bytes_needed` of them, held as long as the pages live.
        count: pages beside the trash page.
        rows: pages handled at once; more are taken in turns.
    """

    def __init__(self, lease: Lease, spec: KvSpec, count: int, rows: int = 32) -> None:
        self.spec = spec
        self.count = count
        base = lease.tensor()
        pages = base[: (count + 1) * spec.page_bytes].view(count + 1, spec.page_bytes)
        pages.zero_()
        scratch = base[(count + 1) * spec.page_bytes :]
        codec_bytes = align_up(KvCodec.bytes_needed(spec, rows))
        self._pages = pages
        self._fields = _fields_of(pages, spec)
        self._codec = KvCodec(spec, rows, scratch[:codec_bytes])
        self._ids = scratch[codec_bytes : codec_bytes + 8 * rows].view(_int64())

    @classmethod
    def bytes_needed(cls, spec: KvSpec, count: int, rows: int = 32) -> int:
        """Bytes of pages and scratch."""
        return (count + 1) * spec.page_bytes + align_up(KvCodec.bytes_needed(spec, rows)) + 8 * rows

    def write(
        self, ids: Sequence[int], layer: int, keys: torch.Tensor, values: torch.Tensor,
        as_kept: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Quantises whole pages of one layer.

        Args:
            ids: n pages that the caller has pinned and not published.
            keys, values: float32, `[n, tokens, channels]`.
            as_kept: the same shapes, filled with what `read` would find.

        Raises:
            NotFinite: NaN, an infinity, or a range too wide; the pages in turn before it are written.
            InvalidSize: a shape, or an id that is none or the trash page's.
        """
        self._check(ids, layer, least=TRASH + 1)
        for first, chosen in self._turns(ids, keys, values):
            block = self._codec.encode(keys[first : first + len(chosen)], values[first : first + len(chosen)])
            for name, part in block.items():
                self._fields[name][:, layer].index_copy_(0, chosen, part)
            if as_kept is not None:
                self._codec.decode(block, *(each[first : first + len(chosen)] for each in as_kept))

    def read(self, ids: Sequence[int], layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Dequantises pages of one layer into buffers of the caller.

        Args:
            ids: n pages; the trash page's reads as zeros.
            keys, values: float32, `[n, tokens, channels]`, overwritten.
        """
        import torch

        self._check(ids, layer, least=TRASH)
        for first, chosen in self._turns(ids, keys, values):
            block = self._codec.block(len(chosen))
            for name, part in block.items():
                torch.index_select(self._fields[name][:, layer], 0, chosen, out=part)
            self._codec.decode(block, keys[first : first + len(chosen)], values[first : first + len(chosen)])

    def read_layers(self, ids: Sequence[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Dequantises pages of all layers: the numbers of `read`, in fewer calls.

        Args:
            keys, values: float32, `[layers, n · tokens, channels]`, each layer contiguous, overwritten.
        """
        import torch

        self._check(ids, 0, least=TRASH)
        (tokens, channels), layers = self.spec.entries, self.spec.layers
        shape = (layers, len(ids) * tokens, channels)
        if tuple(keys.shape) != shape or tuple(values.shape) != shape:
            raise InvalidSize(f"keys and values must be {list(shape)}, not {list(keys.shape)} and {list(values.shape)}")
        some = max(self._codec.rows // layers, 1)
        for first in range(0, len(ids), some):
            chosen = self._ids[: len(ids[first : first + some])]
            chosen.copy_(torch.tensor(ids[first : first + some]))
            block = self._codec.block(len(chosen) * layers)
            for name, part in block.items():
                every = part.view(len(chosen), layers, *part.shape[1:])
                torch.index_select(self._fields[name], 0, chosen, out=every)
            here = slice(first * tokens, (first + len(chosen)) * tokens)
            self._codec.decode_layers(block, keys[:, here], values[:, here])

    def bytes_of(self, page: int) -> bytes:
        """A page as it lies in memory."""
        return bytes(self._pages[page].cpu().numpy())

    def erase(self, page: int) -> None:
        """Overwrites a page with zeros."""
        self._pages[page].zero_()

    def _turns(
        self, ids: Sequence[int], keys: torch.Tensor, values: torch.Tensor
    ) -> Iterator[tuple[int, torch.Tensor]]:
        import torch

        if not len(ids) == len(keys) == len(values):
            raise InvalidSize(f"{len(ids)} pages cannot hold keys of {len(keys)} and values of {len(values)}")
        for first in range(0, len(ids), self._codec.rows):
            some = ids[first : first + self._codec.rows]
            chosen = self._ids[: len(some)]
            chosen.copy_(torch.tensor(some))
            yield first, chosen

    def _check(self, ids: Sequence[int], layer: int, least: int) -> None:
        for page in ids:
            if not least <= page <= self.count:
                raise InvalidSize(f"page must be from {least} to {self.count}, not {page}")
        if not 0 <= layer < self.spec.layers:
            raise InvalidSize(f"layer must be from 0 to {self.spec.layers - 1}, not {layer}")


class TailPages:
    """Exact pages, float32, id 0 being the trash page.

    Args:
        lease: `bytes_needed` of them, held as long as the pages live.
        count: pages beside the trash page.
    """

    def __init__(self, lease: Lease, spec: KvSpec, count: int) -> None:
        self.spec = spec.exact
        self.count = count
        pages = lease.tensor()[: (count + 1) * self.spec.page_bytes].view(count + 1, self.spec.page_bytes)
        pages.zero_()
        self._pages = pages
        fields = _fields_of(pages, self.spec)
        self._keys, self._values = fields["key_codes"], fields["value_codes"]

    @classmethod
    def bytes_needed(cls, spec: KvSpec, count: int) -> int:
        """Bytes of the pages."""
        return (count + 1) * spec.tail_bytes

    def keys(self, page: int, layer: int) -> torch.Tensor:
        """A view, `[tokens, channels]`; to read."""
        return self._keys[page, layer]

    def values(self, page: int, layer: int) -> torch.Tensor:
        """A view, `[tokens, channels]`; to read."""
        return self._values[page, layer]

    def write(self, page: int, layer: int, at: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes entries from position `at` on.

        Args:
            keys, values: float32, `[entries, channels]`.

        Raises:
            NotFinite: NaN or an infinity; nothing was written.
            InvalidSize: they do not fit, or the page is the trash page.
        """
        import torch

        end = at + len(keys)
        if not TRASH < page <= self.count or not 0 <= at <= end <= self.spec.page_tokens:
            raise InvalidSize(f"entries {at} to {end} of tail page {page} are not there to be written")
        if keys.shape != values.shape or keys.shape[1:] != (self.spec.channels,):
            raise InvalidSize(f"keys {list(keys.shape)} and values {list(values.shape)} do not fill a tail's entries")
        for name, entries in (("keys", keys), ("values", values)):
            if not bool(torch.isfinite(entries).all()):
                raise NotFinite(f"{name} hold NaN or an infinity")
        self._keys[page, layer, at:end].copy_(keys)
        self._values[page, layer, at:end].copy_(values)

    def read_layers(self, page: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copies the first entries of all layers into `[layers, entries, channels]`."""
        keys.copy_(self._keys[page, :, : keys.shape[1]])
        values.copy_(self._values[page, :, : values.shape[1]])

    def write_layers(self, page: int, at: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """`write` of all layers at once.

        Args:
            keys, values: float32, `[layers, entries, channels]`.
        """
        end = at + keys.shape[1]
        if not TRASH < page <= self.count or not 0 <= at <= end <= self.spec.page_tokens:
            raise InvalidSize(f"entries {at} to {end} of tail page {page} are not there to be written")
        expected = (self.spec.layers, end - at, self.spec.channels)
        if tuple(keys.shape) != expected or tuple(values.shape) != expected:
            raise InvalidSize(f"keys {list(keys.shape)} and values {list(values.shape)} do not fill a tail's entries")
        for name, entries in (("keys", keys), ("values", values)):
            if not bool(entries.isfinite().all()):
                raise NotFinite(f"{name} hold NaN or an infinity")
        self._keys[page, :, at:end].copy_(keys)
        self._values[page, :, at:end].copy_(values)

    def copy(self, source: int, target: int, entries: int) -> None:
        """Copies the first entries of all layers from one page to another."""
        for part in (self._keys, self._values):
            part[target, :, :entries].copy_(part[source, :, :entries])

    def erase(self, page: int) -> None:
        """Overwrites a page with zeros."""
        self._pages[page].zero_()


def _fields_of(pages: torch.Tensor, spec: KvSpec) -> Tensors:
    """`[pages, layers, …]` views of each field across all pages."""
    import torch

    return {
        field.name: pages[:, field.offset : field.offset + field.nbytes]
        .view(getattr(torch, field.dtype))
        .view(len(pages), *field.shape)
        for field in spec.layout[0]
    }


def _int64() -> torch.dtype:
    import torch

    return torch.int64
