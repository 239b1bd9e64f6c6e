"""How long a batch takes: the slower of arithmetic and memory, pass by pass, plus what the devices exchange.

A phase is a number of equal passes. With N parameters on D devices, each of F FLOP/s and W bytes/s, and P bytes of
weights per device, a pass over t tokens whose attention meets p (token, key) pairs takes

    max( (2·N·t + 4·layers·heads·head_dim·p) / (D·F),  (P + K) / W )  +  exchange

- 2·N·t: a multiplication and an addition per parameter and token (Kaplan et al. 2020, section 2.1); the pairs cost as
  much again for query·key and for weight·value.
- The maximum is the roofline (Williams, Waterman and Patterson 2009). F and W are the data sheet's times an efficiency.
- K: keys and values of the histories in the pass (at most one more than fill it), read once. Activations stay in cache
  or are small beside the weights.
- exchange, for D > 1: two all-reduces a layer (Shoeybi et al. 2019), each of 2·(D−1)/D · t·hidden numbers by the ring
  algorithm (Patarasu and Yuan 2009), plus a fixed latency each.

Encode (prefill): the new tokens of the batch's histories in chunks; a history of n tokens of which c are cached has
n(n+1)/2 − c(c+1)/2 pairs. Score: ⌈candidates / micro-batch⌉ passes of batch · micro-batch tokens, each meeting the
whole history and itself. Decoding is scoring with a micro-batch of one.

Queueing is not in it: a request that has just missed a batch waits for that one too, so twice the time is given as
`behind_a_batch_ms`.
"""

from __future__ import annotations

import msgspec

from ranker.inference.plan_setup import EXACT_BITS, Setup
from ranker.inference.plan_sizes import divided, kv_bytes, weight_bytes


class Phase(msgspec.Struct, frozen=True):
    """A number of passes.

    Args:
        flops: of all passes, over all devices.
        bytes_per_device: read from memory.
        bound: `compute` or `memory`, whichever is slower.
    """

    passes: int
    tokens: int
    flops: float
    bytes_per_device: float
    compute_ms: float
    memory_ms: float
    exchange_ms: float
    total_ms: float
    bound: str


class Latency(msgspec.Struct, frozen=True):
    """Of one batch, and so of each request in it.

    Args:
        new_tokens: per history, that are encoded.
        behind_a_batch_ms: of a request that has just missed a batch of the same kind.
    """

    new_tokens: int
    encode: Phase
    score: Phase
    predicted_ms: float
    behind_a_batch_ms: float
    requests_per_s: float


def predict(setup: Setup) -> Latency:
    """Of a batch that is full."""
    encode, score = _encode(setup), _score(setup)
    total = encode.total_ms + score.total_ms
    flights = 1e3 * setup.load.batch / total if total else 0.0
    return Latency(setup.load.new, encode, score, total, 2.0 * total, flights)


def _encode(setup: Setup) -> Phase:
    load = setup.load
    tokens = load.batch * load.new
    passes = divided(tokens, load.chunk_tokens)
    cached = load.context - load.new
    pairs = load.batch * (load.context * (load.context + 1) - cached * (cached + 1)) // 2
    histories = min(load.batch, load.chunk_tokens / load.new + 1.0) if load.new else 0.0
    return _phase(setup, passes, tokens, pairs, histories)


def _score(setup: Setup) -> Phase:
    load = setup.load
    passes = divided(load.candidates, load.scored_at_once) if load.candidates else 0
    tokens = load.batch * load.candidates
    return _phase(setup, passes, tokens, tokens * (load.context + 1), load.batch)


def _phase(setup: Setup, passes: int, tokens: int, pairs: int, histories: float) -> Phase:
    model, devices = setup.model, setup.devices
    flops = 2.0 * model.params * tokens + 4.0 * model.layers * model.query_heads * model.head_dim * pairs
    kv = histories * setup.load.context * kv_bytes(setup).per_token_per_device
    moved = passes * (weight_bytes(setup).per_device + kv)
    compute = flops / (devices.devices * devices.rates.flops_per_ms)
    memory = moved / devices.rates.bytes_per_ms
    exchange = _exchange_ms(setup, passes, tokens)
    bound = "compute" if compute >= memory else "memory"
    return Phase(passes, tokens, flops, moved, compute, memory, exchange, max(compute, memory) + exchange, bound)


def _exchange_ms(setup: Setup, passes: int, tokens: int) -> float:
    count, rates = setup.devices.devices, setup.devices.rates
    if count == 1:
        return 0.0
    numbers = 2.0 * (count - 1) / count * tokens * setup.model.hidden
    moved = 2 * setup.model.layers * numbers * EXACT_BITS[setup.formats.activations] / 8
    return moved / rates.link_bytes_per_ms + passes * 2 * setup.model.layers * rates.link_latency_us / 1e3
