"""What is planned for: a model, its formats, the load and the devices; each is checked where it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from ranker.inference.kv_spec import LEVELS, SCHEMES, KvSpec
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.plan_numbers import GIB, PlanError, fraction, one_of, positive, whole
from ranker.inference.plan_rates import Rates

WEIGHT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
EXACT_BITS = {"fp32": 32, "bf16": 16}
MOST_DEVICES = 4096
MOST_TOKENS = 1 << 40
MOST_GIB = 1e6


@dataclass(frozen=True)
class Model:
    """A transformer with gated feed-forward blocks (three matrices) and grouped-query attention.

    Args:
        params: all of its parameters, embeddings included.
        hidden: width of the residual stream.
        kv_heads: heads of keys and values.
        heads: of queries; None is hidden / head_dim.
        ffn: width of the feed-forward blocks; None is what the parameters leave for it.
    """

    params: int
    layers: int
    hidden: int
    kv_heads: int
    head_dim: int
    heads: int | None = None
    ffn: int | None = None

    def __post_init__(self) -> None:
        whole("params", self.params, most=10**18)
        for name, most in (("layers", 10**5), ("hidden", 10**7), ("kv_heads", 10**5), ("head_dim", 10**5)):
            whole(name, getattr(self, name), most=most)
        if self.ffn is not None:
            whole("ffn", self.ffn, most=10**8)
        if self.heads is not None:
            whole("heads", self.heads, most=10**6)
        elif self.hidden % self.head_dim:
            must = f"must be a multiple of --head-dim {self.head_dim} unless --heads is given"
            raise PlanError("hidden", self.hidden, must)
        if self.query_heads % self.kv_heads:
            raise PlanError("kv_heads", self.kv_heads, f"must divide the {self.query_heads} heads of queries")

    @property
    def query_heads(self) -> int:
        """Heads of queries."""
        return self.heads if self.heads is not None else self.hidden // self.head_dim

    @property
    def ffn_width(self) -> int:
        """Given, or (parameters of a layer − those of attention) / (3 · hidden), at least hidden."""
        if self.ffn is not None:
            return self.ffn
        attention = 2 * self.hidden * self.head_dim * (self.query_heads + self.kv_heads)
        return max(self.hidden, (self.params // self.layers - attention) // (3 * self.hidden))


@dataclass(frozen=True)
class Formats:
    """How numbers lie in memory.

    Args:
        weights: `fp32`, `bf16`, `fp16`, `fp8`, `int8` or `int4`.
        weight_group: weights of int8 and int4 that share a scale and a minimum of 16 bits each.
        kv: of full pages: `fp32`, `bf16`, `int8` or `int4`.
        kv_group: keys, or values, that share a scale and a minimum.
        kv_metadata_bits: of a scale, and of a minimum: 16, or 32 as on the CPU.
        tail: of the exact pages at the end of each history, `fp32` or `bf16`.
        activations: of the workspace, `fp32` or `bf16`.
        page_tokens: entries of a page, a multiple of the group.
    """

    weights: str = "bf16"
    weight_group: int = 128
    kv: str = "bf16"
    kv_group: int = 32
    kv_metadata_bits: int = 16
    tail: str = "fp32"
    activations: str = "bf16"
    page_tokens: int = 32

    def __post_init__(self) -> None:
        one_of("weights", self.weights, tuple(WEIGHT_BITS))
        one_of("kv", self.kv, SCHEMES)
        one_of("tail", self.tail, tuple(EXACT_BITS))
        one_of("activations", self.activations, tuple(EXACT_BITS))
        for name in ("weight_group", "kv_group", "page_tokens"):
            whole(name, getattr(self, name), most=1 << 20)
        if self.kv_metadata_bits not in (16, 32):
            raise PlanError("kv_metadata_bits", self.kv_metadata_bits, "must be 16 or 32")
        if self.kv in LEVELS and self.page_tokens % self.kv_group:
            raise PlanError("page_tokens", self.page_tokens, f"must be a multiple of --kv-group {self.kv_group}")


@dataclass(frozen=True)
class Load:
    """What a batch is.

    Args:
        context: events of a history that are encoded, at most.
        batch: histories in a batch.
        batches_in_flight: batches that hold a workspace and pages at once.
        new_tokens: events per history that are not in pages yet; None is all of them, nothing is cached.
        candidates: scored per history, a token each. Decoding t tokens is `candidates` t with a `micro_batch` of 1.
        micro_batch: candidates per history that are scored at once; None is all.
        chunk_tokens: most tokens that are encoded at once.
    """

    context: int
    batch: int = 1
    batches_in_flight: int = 1
    new_tokens: int | None = None
    candidates: int = 50
    micro_batch: int | None = None
    chunk_tokens: int = 2048

    def __post_init__(self) -> None:
        whole("context", self.context, most=MOST_TOKENS)
        whole("batch", self.batch, most=MOST_TOKENS)
        whole("batches_in_flight", self.batches_in_flight, most=1024)
        whole("candidates", self.candidates, least=0, most=10**6)
        whole("chunk_tokens", self.chunk_tokens, most=1 << 24)
        if self.micro_batch is not None:
            whole("micro_batch", self.micro_batch, most=10**6)
        if self.new_tokens is not None and whole("new_tokens", self.new_tokens, least=0) > self.context:
            raise PlanError("new_tokens", self.new_tokens, f"must be at most --context {self.context}")

    @property
    def new(self) -> int:
        """Events per history that have to be encoded."""
        return self.context if self.new_tokens is None else self.new_tokens

    @property
    def scored_at_once(self) -> int:
        """Candidates per history in a pass."""
        return min(self.candidates, self.micro_batch or self.candidates)


@dataclass(frozen=True)
class Devices:
    """Equal devices that hold one model together, split by heads and by columns (tensor parallel).

    Args:
        devices: how many.
        device_gib: memory of each.
        share: of that memory which everything together may take.
        reserved_gib: of each, for context, libraries and captured graphs; measured after warm-up in a running service.
        pool_gib_per_batch: of each, set apart for every batch in flight; None gives a batch what is left.
    """

    devices: int = 1
    device_gib: float = 80.0
    share: float = 0.85
    reserved_gib: float = 1.0
    pool_gib_per_batch: float | None = None
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        whole("devices", self.devices, most=MOST_DEVICES)
        positive("device_gib", self.device_gib, MOST_GIB)
        fraction("share", self.share)
        if self.reserved_gib != 0:
            positive("reserved_gib", self.reserved_gib, MOST_GIB)
        if self.pool_gib_per_batch is not None:
            positive("pool_gib_per_batch", self.pool_gib_per_batch, MOST_GIB)

    @property
    def total_bytes(self) -> int:
        """Bytes of a device."""
        return int(self.device_gib * GIB)

    @property
    def reserved_bytes(self) -> int:
        """Bytes of a device that are neither weights nor pool."""
        return int(self.reserved_gib * GIB)


@dataclass(frozen=True)
class Setup:
    """All that a plan is made from.

    Raises:
        PlanError: heads do not divide among the devices, or a group does not fit the channels of a device.
    """

    model: Model
    formats: Formats
    load: Load
    devices: Devices

    def __post_init__(self) -> None:
        count, heads, kv_heads = self.devices.devices, self.model.query_heads, self.model.kv_heads
        if heads % count:
            raise PlanError("devices", count, f"must divide the {heads} heads of queries")
        if kv_heads % count and count % kv_heads:
            raise PlanError("devices", count, f"must divide --kv-heads {kv_heads}, or be a multiple of it")
        channels, group = self.channels_per_device, self.formats.kv_group
        if self.formats.kv in LEVELS and channels % group:
            text = f"must divide the {channels} channels (heads of keys × --head-dim) of a device"
            raise PlanError("kv_group", group, text)
        try:
            _ = self.kv_spec
        except InvalidSize as error:
            raise PlanError("head_dim", self.model.head_dim, f"gives no page of keys and values: {error}") from error

    @property
    def kv_copies(self) -> int:
        """Devices that hold the same heads of keys and values: more than one when there are fewer heads."""
        return max(1, self.devices.devices // self.model.kv_heads)

    @property
    def channels_per_device(self) -> int:
        """Channels of keys, and as many of values, on a device."""
        return max(1, self.model.kv_heads // self.devices.devices) * self.model.head_dim

    @property
    def kv_spec(self) -> KvSpec:
        """The pages of a device as our own code lays them out, metadata in float32."""
        formats = self.formats
        return KvSpec(formats.kv, self.model.layers, self.channels_per_device, formats.page_tokens, formats.kv_group)

    def but(self, **changes: Any) -> Setup:
        """The same with other options, each named as its field.

        Raises:
            PlanError: that cannot be.
        """
        parts = {}
        for part in ("model", "formats", "load", "devices"):
            old = getattr(self, part)
            known = {each.name for each in fields(old)}
            parts[part] = replace(old, **{name: value for name, value in changes.items() if name in known})
        return Setup(**parts)
