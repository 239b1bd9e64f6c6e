"""`nextaction bench core`: the engine against the floor, both behind the same bare front, in one run, in turns.

latency    a 1 ms model at 300, 600 and 1,200 requests a second: what each server adds
overload   20 ms a batch of 16, twice and four times what it can do, deadlines of 50 ms: answers in time, recovery
premium    the same at 1.5 times what it can do, four in five premium: what normal requests get
leaving    64 clients that leave while a model of 200 ms runs: what is computed all the same
scheduler  requests that the scheduler alone takes and gives a second of processor time, by how many are queued
"""

from __future__ import annotations

import json
import math
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ranker.inference.scheduler import Request, Scheduler, SchedulerConfig
from training.bench.core_figures import added_ms, goodput, recovery_ms, share_in_time
from training.bench.core_load import Phase, Plan, Record, message
from training.bench.figures import Spread, spread

MODEL_MS, MOST = 1.0, 16
SLOW_MS, DEADLINE_MS = 20.0, 50.0
CAPACITY = MOST / SLOW_MS * 1000.0
LEAVING, LONG_MS = 64, 200.0
WARM_S, AFTER_S = 1.0, 2.0
LIGHT = 0.25
"""The load after an overload, as a share of what the model can do."""


@dataclass(frozen=True)
class Size:
    """How long the bench takes: each figure is measured `rounds` times over so many seconds."""

    rounds: int = 5
    seconds: float = 4.0
    rates: tuple[float, ...] = (300.0, 600.0, 1200.0)
    factors: tuple[float, ...] = (2.0, 4.0)
    depths: tuple[int, ...] = (1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Kind:
    """A server to measure: what it is called and how it is started."""

    name: str
    arguments: tuple[str, ...]


ENGINE = Kind("engine", ("engine",))
FLOORS = (Kind("floor, window 0", ("floor",)), Kind("floor, window 2 ms", ("floor", "--window-ms", "2")))

Report = dict[str, Any]


def measure(size: Size, tell: Callable[[str], None]) -> Report:
    """All figures; `tell` is told what is being measured."""
    return {
        "latency": [latency(size, rate, tell) for rate in size.rates],
        "overload": [overload(size, factor, tell) for factor in size.factors],
        "premium": premium(size, tell),
        "leaving": leaving(size, tell),
        "scheduler": scheduler(size, tell),
    }


def latency(size: Size, rate: float, tell: Callable[[str], None]) -> Report:
    """Added milliseconds of each server, and the engine's over the floor's, round by round."""
    p50: dict[str, list[float]] = {kind.name: [] for kind in (ENGINE, *FLOORS)}
    p99: dict[str, list[float]] = {kind.name: [] for kind in (ENGINE, *FLOORS)}
    for number in range(size.rounds):
        for kind in (ENGINE, *FLOORS):
            tell(f"latency at {rate:g}/s, round {number + 1}: {kind.name}")
            with served(kind, MODEL_MS) as port:
                records = sent(Plan(port, (Phase(rate, WARM_S + size.seconds),), 1000.0, seed=number))
            records = [record for record in records if record.due_s >= WARM_S]
            p50[kind.name].append(added_ms(records, 0.5, MODEL_MS))
            p99[kind.name].append(added_ms(records, 0.99, MODEL_MS))
    return {
        "rate": rate,
        "added_p50_ms": {name: spread(values) for name, values in p50.items()},
        "added_p99_ms": {name: spread(values) for name, values in p99.items()},
        "p50_ratio": _ratio(p50),
        "p99_ratio": _ratio(p99),
    }


def overload(size: Size, factor: float, tell: Callable[[str], None]) -> Report:
    """Answers in time against the most that the model can give, and how long the overload is felt after it."""
    plan = (Phase(LIGHT * CAPACITY, WARM_S), Phase(factor * CAPACITY, size.seconds), Phase(LIGHT * CAPACITY, AFTER_S))
    shares, recoveries, lates, best = [], [], [], []
    for number in range(size.rounds):
        tell(f"overload of {factor:g} times, round {number + 1}")
        with served(ENGINE, SLOW_MS) as port:
            warm(port)
            records = sent(Plan(port, plan, DEADLINE_MS, seed=number))
            figures = asked(port)
        end_s = WARM_S + size.seconds
        during = [record for record in records if WARM_S <= record.due_s < end_s]
        # A sleep takes longer than it was told to: the best is the batches' true time, always full.
        best.append(MOST / figures["model_ms"] * 1000.0)
        shares.append(goodput(during, DEADLINE_MS, size.seconds) / best[-1])
        recoveries.append(recovery_ms(records, (WARM_S, end_s), DEADLINE_MS))
        lates.append(figures["late_share"])
    return {
        "factor": factor,
        "offered": factor * CAPACITY,
        "best": spread(best),
        "goodput_share": spread(shares),
        "recovery_ms": spread(recoveries),
        "late_share": spread(lates),
    }


def premium(size: Size, tell: Callable[[str], None]) -> Report:
    """What normal requests get beside more premium than the model can do."""
    phases = (Phase(LIGHT * CAPACITY, WARM_S), Phase(1.5 * CAPACITY, size.seconds, premium=0.8))
    normal, other, waits, owed = [], [], [], []
    for number in range(size.rounds):
        tell(f"premium at 1.5 times, round {number + 1}")
        with served(ENGINE, SLOW_MS) as port:
            warm(port)
            records = sent(Plan(port, phases, 100.0, seed=number))
            figures = asked(port)
        during = [record for record in records if record.due_s >= WARM_S]
        normal.append(share_in_time(during, "normal", 100.0))
        other.append(share_in_time(during, "premium", 100.0))
        waits.append(figures["wait_ms"]["normal"]["max"])
        least = SchedulerConfig().normal_share * MOST / figures["model_ms"] * 1000.0
        got = [record for record in during if record.priority == "normal"]
        owed.append(goodput(got, 100.0, size.seconds) / least)
    return {
        "normal_over_its_share": spread(owed),
        "normal_in_time": spread(normal),
        "premium_in_time": spread(other),
        "normal_wait_max_ms": spread(waits),
        "budget_ms": 100.0,
    }


def leaving(size: Size, tell: Callable[[str], None]) -> Report:
    """Requests computed of 64 whose clients left while the model ran, beside the one that kept it busy."""
    executed: dict[str, list[float]] = {ENGINE.name: [], FLOORS[0].name: []}
    for kind in (ENGINE, FLOORS[0]):
        for number in range(size.rounds):
            tell(f"clients that leave, round {number + 1}: {kind.name}")
            with served(kind, LONG_MS) as port:
                executed[kind.name].append(float(_executed(port)))
    return {name: spread(values) for name, values in executed.items()}


def scheduler(size: Size, tell: Callable[[str], None]) -> list[Report]:
    """Requests a second of processor time through the scheduler, one offered for each dispatched, by queue length.

    `growth` is how much longer one takes than at the first depth, `log_growth` how much log n has grown. The depths
    take turns, so that what else the machine does meets all of them.
    """
    per_s: dict[int, list[float]] = {depth: [] for depth in size.depths}
    for number in range(size.rounds):
        for depth in size.depths:
            tell(f"scheduler with {depth} queued, round {number + 1}")
            per_s[depth].append(_scheduled(depth))
    first = size.depths[0]
    return [
        {
            "queued": depth,
            "per_s": spread(found),
            "growth": spread([base / each for base, each in zip(per_s[first], found, strict=True)]),
            "log_growth": math.log(depth) / math.log(first),
        }
        for depth, found in per_s.items()
    ]


def _scheduled(depth: int, count: int = 20_000) -> float:
    queue = Scheduler(SchedulerConfig(max_queue_requests=2 * depth, max_queue_tokens=200 * depth))
    queue.seed_cost("m@1", fixed_ms=1.0, per_token_ms=0.001)
    draw, now = random.Random(1), 0.0
    requests = iter(
        [
            Request(
                f"r{number}",
                "m@1",
                draw.randint(1, 100),
                0.0,
                draw.uniform(1e6, 2e6),
                "normal" if number % 4 else "premium",
            )
            for number in range(depth + 2 * count)
        ]
    )
    for _ in range(depth):
        queue.offer(next(requests), now)
    done, started_s = 0, time.process_time()
    while done < count:
        batch = queue.poll(now)
        assert batch is not None, "nothing runs although much is queued"
        queue.done(batch, now, now + 2.0)
        now += 2.0
        for _ in batch.requests:
            queue.offer(next(requests), now)
        done += len(batch.requests)
    return done / (time.process_time() - started_s)


def _executed(port: int) -> int:
    """One client stays, 64 leave after 50 ms; how many of the 64 were computed."""
    stays = _call(port)
    time.sleep(0.02)
    calls = [_call(port) for _ in range(LEAVING)]
    time.sleep(0.05)
    for call in calls:
        call.close()
    stays.recv(4096)
    stays.close()
    time.sleep(LONG_MS / 1000.0 * (LEAVING / MOST + 1))
    found: int = asked(port)["executed"]
    return found - 1


def _call(port: int) -> socket.socket:
    call = socket.create_connection(("127.0.0.1", port))
    call.sendall(message("normal", 5000.0))
    return call


@contextmanager
def served(kind: Kind, model_ms: float) -> Iterator[int]:
    """A server of its own process; gives its port."""
    command = [sys.executable, "-m", "training.bench.core_server", *kind.arguments, "--sleep-ms", str(model_ms)]
    command += ["--most", str(MOST), "--until-stdin-ends"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            port: int = json.loads(server.stdout.readline())["port"]
            yield port
        finally:
            server.stdin.close()
            server.wait(30.0)


def warm(port: int) -> None:
    """Light traffic with time to spare, from which a server learns what its batches cost."""
    sent(Plan(port, (Phase(LIGHT * CAPACITY, WARM_S),), 1000.0))


def sent(plan: Plan) -> Sequence[Record]:
    """Sends it from a process of its own."""
    command = [sys.executable, "-m", "training.bench.core_load"]
    found = subprocess.run(command, input=json.dumps(asdict(plan)), capture_output=True, check=True, text=True)
    return [Record(*fields) for fields in json.loads(found.stdout)]


def asked(port: int) -> Report:
    """A server's figures."""
    with socket.create_connection(("127.0.0.1", port)) as call:
        call.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = b""
        while not (answer.endswith(b"}") and b"\r\n\r\n" in answer):
            answer += call.recv(1 << 16)
    figures: Report = json.loads(answer.partition(b"\r\n\r\n")[2])
    return figures


def _ratio(values: dict[str, list[float]]) -> Spread:
    floor = values[FLOORS[0].name]
    return spread([ours / theirs for ours, theirs in zip(values[ENGINE.name], floor, strict=True)])
