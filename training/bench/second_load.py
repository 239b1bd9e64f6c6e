"""How many requests a second the second stage answers in time, with pages and batches and with neither.

The clock is processor time: the scheduler decides, the model computes, and a batch lasts as long as its thread worked.
So a busy machine does not blur the figures, and the event loop, which has the other core, is not in them. Arrivals are
an open loop; a rate is sustained when 99 of 100 requests are answered within 100 ms of when they were due, and what was
turned away was not answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ranker.inference.memory_errors import PagesBusy
from ranker.inference.model import Hold, Member
from ranker.inference.request import Request
from ranker.inference.scheduler import Scheduler
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.second.paged import Ask
from training.bench.figures import percentile, ratio, spread
from training.bench.second_rig import MIB, MOST_BATCH, Recomputing, Rig, Users, random_net, rig, small

DEADLINE_MS, SHARE = 100.0, 0.99
HEADROOM = 64
"""Events that a history grows before it begins anew."""
SKEW = 1.0
"""Exponent of how often users come back where memory is capped."""
MOST_USED = 0.85


@dataclass(frozen=True)
class Load:
    """How long each figure takes.

    Args:
        requests: of each try of a rate.
        steps: of the bisection.
        users: whose histories are asked about.
        alone: requests whose times stand for all of those that recompute.
    """

    rounds: int = 3
    requests: int = 300
    steps: int = 6
    users: int = 32
    alone: int = 20


class Server(Protocol):
    """One way to serve."""

    config: SchedulerConfig

    def cost(self) -> tuple[Ask | None, int]:
        """The next request, and its tokens."""
        ...

    def run(self, asks: Sequence[Ask | None]) -> tuple[float, list[bool]]:
        """CPU milliseconds of a batch, and who was answered: the others wait for pages."""
        ...


class WithPages:
    """Pages and batches on.

    Args:
        odds: of who asks next.
    """

    config = SchedulerConfig(max_batch_requests=MOST_BATCH)

    def __init__(self, found: Rig, users: Users, odds: Any) -> None:
        self._found, self._users, self._odds = found, users, odds
        self._draw = np.random.default_rng(7)
        self.busy = 0

    def cost(self) -> tuple[Ask | None, int]:
        """Somebody asks after one more event."""
        ask = self._users.ask(int(self._draw.choice(len(self._users), p=self._odds)))
        return ask, self._found.paged.cost(ask)

    def run(self, asks: Sequence[Ask | None]) -> tuple[float, list[bool]]:
        """As the engine's thread does."""
        paged, started_s = self._found.paged, time.thread_time()
        holds: list[Hold | None] = []
        for ask in asks:
            assert ask is not None, "made by cost"
            try:
                holds.append(paged.hold(ask))
            except PagesBusy:
                holds.append(None)
                self.busy += 1
        members = [Member(ask, hold) for ask, hold in zip(asks, holds, strict=True) if hold is not None]
        try:
            with self._found.workspaces.batch() as workspace:
                paged.run(members, workspace)
        finally:
            for member in reversed(members):
                member.hold.release()
        return (time.thread_time() - started_s) * 1e3, [hold is not None for hold in holds]


class WithNeither:
    """Every request alone, encoding its whole history: its time is one of those measured, by chance."""

    config = SchedulerConfig(max_batch_requests=1, max_wait_ms=0.0)

    def __init__(self, model: Recomputing, users: Users, count: int) -> None:
        self._draw = np.random.default_rng(7)
        self._tokens, self.times_ms = 0, []
        for number in range(count + 1):
            ask = users.ask(number % len(users))
            self._tokens = model.cost(ask)
            started_s = time.thread_time()
            model.answer(ask)
            if number:  # the first call is slow
                self.times_ms.append((time.thread_time() - started_s) * 1e3)

    times_ms: list[float]

    def cost(self) -> tuple[Ask | None, int]:
        """Its tokens are all of the window."""
        return None, self._tokens

    def run(self, asks: Sequence[Ask | None]) -> tuple[float, list[bool]]:
        """One at a time."""
        return float(self._draw.choice(self.times_ms, len(asks)).sum()), [True] * len(asks)


@dataclass
class _Turn:
    """One open loop, of processor time."""

    server: Server
    rate: float
    count: int
    seed: int
    asks: dict[str, tuple[Ask | None, float]] = field(default_factory=dict)
    took_ms: list[float] = field(default_factory=list)

    def holds(self) -> bool:
        """Whether so many requests a second are answered in time."""
        due = np.cumsum(np.random.default_rng(self.seed).exponential(1e3 / self.rate, self.count)).tolist()
        queue = Scheduler(self.server.config)
        now, number = 0.0, 0
        while number < len(due) or queue.queued:
            while number < len(due) and due[number] <= now:
                self._offer(queue, due[number], now, number)
                number += 1
            batch = queue.poll(now)
            self.asks = {} if not queue.queued and batch is None else self.asks
            if batch is None:
                wake = queue.wake_at(now)
                upcoming = due[number] if number < len(due) else np.inf
                now = max(now, min(upcoming, wake if wake is not None else np.inf))
                if not np.isfinite(now):
                    break
                continue
            asked = [self.asks.pop(request.request_id) for request in batch.requests]
            took, answered = self.server.run([ask for ask, _ in asked])
            while number < len(due) and due[number] <= now + took:
                self._offer(queue, due[number], due[number], number)
                number += 1
            now, started = now + took, now
            queue.done(batch, started, now)
            for request, (ask, due_ms), done in zip(batch.requests, asked, answered, strict=True):
                if done:
                    self.took_ms.append(now - due_ms)
                elif not queue.offer(request, now):
                    self.asks[request.request_id] = ask, due_ms
        self.took_ms += [np.inf] * (self.count - len(self.took_ms))
        return percentile(self.took_ms, SHARE) <= DEADLINE_MS

    def _offer(self, queue: Scheduler, due_ms: float, now: float, number: int) -> None:
        ask, tokens = self.server.cost()
        request = Request(f"r{number}", "second@1", tokens, due_ms, due_ms + DEADLINE_MS)
        if not queue.offer(request, now):
            self.asks[request.request_id] = ask, due_ms


def sustained(server: Server, load: Load, seed: int) -> tuple[float, float]:
    """The highest rate of a bisection that is sustained, 0 where not even the lowest is; and the lowest that is not."""
    took, _ = server.run([server.cost()[0] for _ in range(4 if server.config.max_batch_requests > 1 else 1)])
    per_request = took / (4 if server.config.max_batch_requests > 1 else 1)
    low, high = 0.0, 1.25e3 / per_request
    for step in range(load.steps):
        rate = (low + high) / 2 if step else 0.8 * high
        if _Turn(server, rate, load.requests, seed * 100 + step).holds():
            low = rate
        else:
            high = rate
    return low, high


def throughput(
    length: int, load: Load, folder: Path, tell: Callable[[str], None], *, fitting: float = 1.5
) -> dict[str, Any]:
    """Requests a second with pages and batches on, and off, in turns.

    Args:
        fitting: how many times the users' pages fit into memory; below 1, some users come back more than others.
    """
    sizes = small(length + HEADROOM)
    odds = np.arange(1, load.users + 1) ** -SKEW if fitting < 1 else np.ones(load.users)
    rates: dict[str, list[float]] = {"on": [], "off": [], "off at most": []}
    with rig(folder / f"load-{length}-{fitting:g}", sizes, fitting=fitting * load.users) as found:
        users = Users(load.users, length, sizes)
        on = WithPages(found, users, odds / odds.sum())
        for row in reversed(range(load.users)):
            found.answer(users.ask(row, new=False))
        stats, model = found.store.pages.stats, Recomputing(random_net(sizes))
        before = stats.tokens_reused, stats.tokens_new
        for number in range(load.rounds):
            off = WithNeither(model, Users(load.users, length, sizes), load.alone)
            for name, server in (("on", on), ("off", off)):
                low, high = sustained(server, load, number)
                rates[name].append(low)
                if name == "off":
                    rates["off at most"].append(high)
                tell(f"{length} events, memory {fitting:g}, round {number + 1}, {name}: {rates[name][-1]:.1f}/s")
        reused, new = stats.tokens_reused - before[0], stats.tokens_new - before[1]
        used = found.pool.used_bytes / found.pool.limit_bytes
        found.store.pages.check_integrity()
    return {
        "length": length,
        "users": load.users,
        "users_that_fit": fitting * load.users,
        "memory_mib": found.pool.limit_bytes / MIB,
        "per_s": spread(rates["on"]),
        "per_s_off": spread(rates["off"]),
        "per_s_off_at_most": spread(rates["off at most"]),
        "multiple": ratio(rates["on"], rates["off at most"]),
        "tokens_found": reused / max(reused + new, 1),
        "memory_used": used,
        "memory_within": used <= MOST_USED,
        "waited_for_pages": on.busy,
    }
