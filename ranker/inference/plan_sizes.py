"""Bytes of weights, pages and workspaces on each device, in closed form.

Weights. A number of b bits, and for int8 and int4 a scale and a minimum of 16 bits each per group of g weights:
b + 32/g bits. Matrices and embeddings are split evenly over the devices; the norms, (2 · layers + 1) · hidden numbers
of 16 bits, lie on each.

Keys and values, as in `kv_spec`. Of a page with T tokens and the C channels that a device has, per layer 2·T·C codes,
and for int8 and int4 4·T·C/g scales and minima of m bits: b + 2·m/g bits per number. int4 with groups of 32 and
m = 16 is 5 bits, with groups of 64 it is 4.5; m = 32, as on the CPU, 6 and 5. A device that shares its heads with
others (more devices than heads) has a whole copy of them.

Workspace of a batch, for the t tokens of its largest pass: the residual and its norm, 2·t·hidden; queries, attention's
output, keys and values, 2·t·(heads + kv heads)·head_dim / devices; gate and product of the feed-forward block,
2·t·ffn / devices; and one layer of the batch's history, dequantised, 2·batch·context·C.
"""

from __future__ import annotations

from dataclasses import dataclass

from ranker.inference.kv_formats import KvCodec
from ranker.inference.kv_spec import LEVELS, SCHEMES
from ranker.inference.page_store import ROWS
from ranker.inference.plan_setup import EXACT_BITS, WEIGHT_BITS, Setup
from ranker.inference.sizes import align_up

KV_BITS = dict(zip(SCHEMES, (32, 16, 8, 4), strict=True))
NORM_BYTES = 2
WEIGHT_METADATA_BITS = 32
ID_BYTES = 8
TAILS_OF_A_HISTORY = 2
"""A history that goes on reads one exact page while it writes another."""


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of the weights.

    Args:
        codes: the numbers, over all devices, and
        metadata: their scales and minima.
        replicated: norms, on each device.
        per_device: what one device holds.
        bytes: over all devices.
    """

    bits_per_weight: float
    codes: int
    metadata: int
    replicated: int
    per_device: int
    bytes: int


@dataclass(frozen=True)
class KvBytes:
    """Bytes of keys and values.

    Args:
        bits_per_number: scales and minima included.
        per_token: over all devices, copies counted.
        page, tail_page: on one device.
        history: pages of one history at the full context, with its tail, on one device.
        scratch: what quantising takes, on one device.
    """

    bits_per_number: float
    per_token: float
    per_token_per_device: float
    page: int
    tail_page: int
    history: int
    scratch: int


def divided(number: int, by: int) -> int:
    """Rounded up."""
    return -(-number // by)


def weight_bytes(setup: Setup) -> WeightBytes:
    """Of the whole model and of one device."""
    model, formats = setup.model, setup.formats
    norms = min(model.params, (2 * model.layers + 1) * model.hidden)
    split = model.params - norms
    codes = divided(split * WEIGHT_BITS[formats.weights], 8)
    grouped = formats.weights in LEVELS
    metadata = divided(divided(split, formats.weight_group) * WEIGHT_METADATA_BITS, 8) if grouped else 0
    per_device = divided(codes + metadata, setup.devices.devices) + norms * NORM_BYTES
    bits = WEIGHT_BITS[formats.weights] + (WEIGHT_METADATA_BITS / formats.weight_group if grouped else 0.0)
    return WeightBytes(bits, codes, metadata, norms * NORM_BYTES, per_device, per_device * setup.devices.devices)


def kv_bytes(setup: Setup) -> KvBytes:
    """Of a token, a page and a history."""
    formats, spec = setup.formats, setup.kv_spec
    numbers = 2 * formats.page_tokens * spec.channels
    scales = 2 * (numbers // formats.kv_group) if spec.quantised else 0
    bits = numbers * KV_BITS[formats.kv] + scales * formats.kv_metadata_bits
    page = spec.layers * divided(bits, 8)
    tail = spec.layers * divided(numbers * EXACT_BITS[formats.tail], 8)
    full = setup.load.context // formats.page_tokens
    token = page / formats.page_tokens
    scratch = align_up(KvCodec.bytes_needed(spec, ROWS)) + ID_BYTES * ROWS
    everywhere = token * setup.devices.devices
    return KvBytes(bits / numbers, everywhere, token, page, tail, full * page + tail, scratch)


def pass_tokens(setup: Setup) -> int:
    """Tokens of the largest pass: a chunk of histories of which nothing is cached, or a micro-batch for each."""
    load = setup.load
    return max(min(load.batch * load.context, load.chunk_tokens), load.batch * load.scored_at_once, 1)


def workspace_bytes(setup: Setup) -> int:
    """Of one batch in flight, on one device."""
    model, load, tokens = setup.model, setup.load, pass_tokens(setup)
    split = 2 * tokens * ((model.query_heads + model.kv_heads) * model.head_dim + model.ffn_width)
    whole = 2 * tokens * model.hidden + 2 * load.batch * load.context * setup.channels_per_device
    numbers = whole + divided(split, setup.devices.devices)
    return align_up(divided(numbers * EXACT_BITS[setup.formats.activations], 8))
