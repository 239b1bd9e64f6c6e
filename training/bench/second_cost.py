"""What one request costs the second stage: cached against recomputed, of the machine's best, and bytes by format.

Processor time of the one thread that computes, as it serves; what a user's events become as tokens is in neither side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from features.registry import COLUMNS
from ranker.second.batches import candidate_batch, event_batch
from ranker.second.config import HEADS, Sizes
from ranker.second.device import GROUP
from ranker.second.light_reading import HIDDEN
from ranker.second.paged import Ask, Logits, kv_spec
from ranker.second.tokens import pack_events
from training.bench.figures import ratio, spread
from training.bench.second_rig import (
    PAGE_TOKENS,
    Recomputing,
    ask_of,
    random_candidates,
    random_events,
    random_net,
    rig,
    small,
)

CANDIDATES = 50
SCHEMES = ("fp32", "bf16", "int8", "int4")
PEAK_SIDE = 1024
BATCH = 8
"""Requests of as many users that one batch answers."""
POSITIONS = 16
"""Lengths that take turns, up to the one that is named: a request costs more where its event fills a page."""


@dataclass(frozen=True)
class Times:
    """CPU milliseconds of a request, by round.

    Args:
        cached: by pages, alone.
        batched: by pages, in a batch.
        blocks, network: recomputed.
    """

    cached: list[float]
    batched: list[float]
    blocks: list[float]
    network: list[float]

    @property
    def recomputed(self) -> list[float]:
        """Of the faster way, by its median."""
        return min((self.blocks, self.network), key=lambda times: spread(times).median)


def cost(length: int, rounds: int, folder: Path, scheme: str = "int8") -> dict[str, Any]:
    """One new event and the candidates after a history of this length, by pages and by encoding all of it once."""
    sizes = small(length)
    with rig(folder / f"{length}-{scheme}", sizes, scheme=scheme, fitting=2.0 * BATCH) as found:
        times, peaks = Times([], [], [], []), []
        alone, batched, dense = list[float](), list[float](), list[float]()
        net = random_net(sizes)
        again = Recomputing(net)
        for number in range(rounds + 1):
            here = length - number * 7 % POSITIONS
            draw = np.random.default_rng(number)
            asks = [_grown(f"u{number}-{user}", here, sizes, draw) for user in range(1 + BATCH)]
            peak = matmul_peak()
            for before, _ in asks:
                found.answer(before)
            first, *others = (ask for _, ask in asks)
            cached = _timed(partial(found.answer, first))
            together = _timed(partial(found.answers, others)) / BATCH
            blocks = _timed(partial(again.answer, first))
            network = _timed(partial(_by_network, net, first))
            if not number:  # first calls are slow
                continue
            times.cached.append(cached)
            times.batched.append(together)
            times.blocks.append(blocks)
            times.network.append(network)
            peaks.append(peak / 1e9)
            useful = useful_flops(sizes, here, 1, CANDIDATES) * 1e3 / peak
            alone.append(useful / cached)
            batched.append(useful / together)
            dense.append(useful_flops(sizes, here, here, CANDIDATES) / min(blocks, network) * 1e3 / peak)
    return {
        "length": length,
        "kv": scheme,
        "cached_ms": spread(times.cached),
        "batched_ms": spread(times.batched),
        "recomputed_ms": spread(times.recomputed),
        "recomputed_in_blocks_ms": spread(times.blocks),
        "recomputed_by_network_ms": spread(times.network),
        "ratio": ratio(times.recomputed, times.cached),
        "ratio_batched": ratio(times.recomputed, times.batched),
        "ratio_by_network": ratio(times.network, times.cached),
        "peak_gflops": spread(peaks),
        "cached_of_peak": spread(alone),
        "batched_of_peak": spread(batched),
        "recomputed_of_peak": spread(dense),
    }


def _grown(user: str, length: int, sizes: Sizes, draw: np.random.Generator) -> tuple[Ask, Ask]:
    """A user's request before an event, and after it."""
    tokens, candidates = random_events(length, sizes, draw), random_candidates(CANDIDATES, draw)
    before, after = (_ask(user, tokens[:end], candidates) for end in (length - 1, length))
    return before, after


def by_candidates(length: int, counts: Sequence[int], rounds: int, folder: Path) -> list[dict[str, Any]]:
    """CPU milliseconds of one new event and so many candidates passed on."""
    sizes = small(length)
    found: dict[int, list[float]] = {count: [] for count in counts}
    with rig(folder / "passed-on", sizes) as served:
        for number in range(rounds + 1):
            draw = np.random.default_rng(number)
            tokens = random_events(length - 1 - number % POSITIONS, sizes, draw)
            served.answer(_ask(f"u{number}", tokens[:-1], random_candidates(1, draw)))
            for count in counts:
                # another last event for each, or the second would find it
                last = tokens.copy()
                last["action"][-1] = 1 + count % 999
                ask = _ask(f"u{number}", last, random_candidates(count, draw))
                took = _timed(partial(served.answer, ask))
                if number:
                    found[count].append(took)
    return [{"passed_on": count, "cpu_ms": spread(times)} for count, times in found.items()]


def pages(length: int, folder: Path) -> list[dict[str, Any]]:
    """Pages and bytes of one user by format, and how far logits are off with the same random weights."""
    sizes, draw = small(length), np.random.default_rng(3)
    tokens, candidates = random_events(length, sizes, draw), random_candidates(CANDIDATES, draw)
    ask = _ask("u0", tokens, candidates)
    exact = _by_network(random_net(sizes), ask)
    rows = []
    for scheme in SCHEMES:
        spec = kv_spec(scheme, sizes, PAGE_TOKENS, GROUP)
        with rig(folder / f"pages-{scheme}", sizes, scheme=scheme) as found:
            logits = found.answer(ask)
        full, tail = divmod(length - 1, PAGE_TOKENS)
        rows.append({
            "kv": scheme,
            "length": length,
            "full_pages": length // PAGE_TOKENS,
            "page_bytes": spec.page_bytes,
            "bytes_per_event": spec.page_bytes / PAGE_TOKENS,
            "user_bytes_at_most": full * spec.page_bytes + (spec.tail_bytes if tail else 0),
            "logit_error_max": float(np.abs(logits - exact).max()),
            "logit_error_of_spread": float(np.sqrt(np.mean((logits - exact) ** 2)) / exact.std()),
        })  # fmt: skip
    return rows


def useful_flops(sizes: Sizes, length: int, new: int, candidates: int) -> float:
    """Multiplications and additions that the answer needs: no padding, causal attention only over what is seen, and of
    events no more than keys and values in the last layer.
    """
    asked = candidates + 1 if candidates else 0  # the request itself is a row, which foretells what comes next
    dim, rows = sizes.dim, new + asked
    per_row = 2 * dim * (4 * dim + 2 * sizes.feed_forward)
    before = sum(range(length - new + 1, length + 1))
    seen = asked * (length + 1) + before
    columns = 2 * len(COLUMNS) + 2
    light = candidates * 2 * (dim * (columns + dim) + HIDDEN * (columns + HIDDEN + len(HEADS)))
    unread = new * (per_row - 2 * dim * 2 * dim) + before * 4 * dim
    return float(sizes.layers * (rows * per_row + seen * 4 * dim) - unread + light)


def matmul_peak(repeats: int = 3) -> float:
    """FLOP per second of processor time of one large product on this thread, the best of a few."""
    left, right = torch.ones(PEAK_SIDE, PEAK_SIDE), torch.ones(PEAK_SIDE, PEAK_SIDE)
    out = torch.empty(PEAK_SIDE, PEAK_SIDE)
    best = min(_timed(lambda: torch.mm(left, right, out=out)) for _ in range(repeats))
    return 2.0 * PEAK_SIDE**3 / best * 1e3


def _ask(user: str, tokens: Any, candidates: Any) -> Ask:
    return ask_of(user, tokens, pack_events(tokens), len(tokens), candidates)


def _by_network(net: Any, ask: Ask) -> Logits:
    with torch.inference_mode():
        cache, _ = net.encode(event_batch([ask.tokens]))
        batch, _ = candidate_batch([[(ask.request, ask.candidates, len(ask.tokens), ask.origin_s)]])
        logits: Logits = net.score(batch, cache)[0].numpy()
        return logits


def _timed(job: Callable[[], Any]) -> float:
    start_s = time.thread_time()
    job()
    return (time.thread_time() - start_s) * 1e3
