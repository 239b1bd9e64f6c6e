"""`nextaction bench second --service`: what pages and batches are worth to the whole service, over HTTP.

A real `nextaction serve` whose version has a second stage of random weights, users with histories in its log, and an
open loop of turns: an event of a user's, and a quarter of a second later a ranking of 50 named candidates for him. An
answer counts if the second stage ranked it, within the bound of when it was due; a rate is sustained if 99 of 100 that
were sent count. The load has a process of its own; with two cores it shares them with the service's two threads.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.bench.figures import Spread, percentile, ratio, spread
from training.bench.load import ID_MARK, TIME_MARK, Report
from training.bench.material import Material
from training.bench.second_histories import HEADROOM, KINDS, memory_for, service_material
from training.bench.second_rig import small
from training.bench.server import Server, bench_server
from training.errors import TrainingError

BOUND_MS, SHARE, NEARLY = 100.0, 0.99, 0.95
LOOSER_MS = 400.0
LONG = 1024
"""Events from which on the looser bound is tried too."""
CANDIDATES = 50
MOST_USED, CAPPED = 0.85, 0.5
"""Of the limit; how many times the users' pages fit where memory is capped."""
MEMORY_MIB = 512
LOAD_S, MOST_S = 20.0, 20.0
DRAWN = 400
"""Turns of which users are drawn, by a share of one over their rank; then the same again."""
AGAIN = 2
"""Tries of a rate: one that fails for what else the machine did gets another."""
READY_S = 120.0


@dataclass(frozen=True)
class ServiceLoad:
    """How long each figure takes.

    Args:
        seconds: of each try of a rate.
        steps: rates that are tried after the first that is not sustained.
        highest: rate that is never exceeded.
        least: requests of each try, where they do not take too long.
    """

    users: int = 64
    rounds: int = 1
    seconds: float = 5.0
    steps: int = 5
    highest: float = 200.0
    least: int = 100


@dataclass(frozen=True)
class Way:
    """One way to serve.

    Args:
        memory_mib: of the second stage's pool.
    """

    name: str
    kept: bool
    memory_mib: int = MEMORY_MIB

    def config(self, folder: Path) -> Path:
        """Its `serve.yaml`."""
        switch = str(self.kept).lower()
        path = folder / f"{self.name}.yaml"
        second = f"second: {{memory_mib: {self.memory_mib}, pages: {switch}, batching: {switch}}}"
        path.write_text(f"{second}\nsecret_file: {folder.absolute() / 'secret'}\n")
        return path


def service(
    length: int, load: ServiceLoad, folder: Path, tell: Callable[[str], None], *, capped: bool = False
) -> dict[str, Any]:
    """The highest rates that the whole service sustains with pages and batches and with neither, and their multiple.

    Args:
        capped: memory for half of the users' pages instead of all.

    Raises:
        TrainingError: a service does not start, or never ranks by its second stage.
    """
    sizes = small(length + HEADROOM)
    material = service_material(folder / f"{length}", sizes, length, load.users)
    memory_mib = memory_for(sizes, length, load.users * CAPPED) if capped else MEMORY_MIB
    on, off = Way("on", kept=True, memory_mib=memory_mib), Way("off", kept=False)
    rates: dict[str, list[float]] = {"on": [], "off": []}
    looser: dict[str, list[float]] = {"on": [], "off": []}
    memory: dict[str, Any] = {}
    tries: list[dict[str, Any]] = []
    for number in range(load.rounds):
        for way in (on, off):
            with _served(material, way, folder, capped) as turns:
                found = _sustained(turns, BOUND_MS, load, number, tell)
                rates[way.name].append(found.rate)
                tries += found.tries
                # what cannot be answered in time without pages is compared at a looser bound too
                if length >= LONG:
                    looser[way.name].append(_sustained(turns, LOOSER_MS, load, number, tell).rate)
                if way is on:
                    memory = _memory(turns.server)
    return _row(length, load, capped, memory_mib, rates, looser, memory, tries)


def _row(
    length: int, load: ServiceLoad, capped: bool, memory_mib: int, rates: dict[str, list[float]],
    looser: dict[str, list[float]], memory: dict[str, Any], tries: list[dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    answers = all(rate > 0.0 for rate in rates["off"])
    reason = None if answers else f"without pages no rate is answered within {BOUND_MS:g} ms in 99 of 100"
    failed = {name: sum(one["degraded"].get(name, 0) for one in tries) for name in ("second:error",)}
    within = memory["share"] <= MOST_USED
    return {
        "length": length,
        "users": load.users,
        "capped": capped,
        "memory_mib": memory_mib,
        "bound_ms": BOUND_MS,
        "per_s": spread(rates["on"]),
        "per_s_off": spread(rates["off"]),
        "multiple": ratio(rates["on"], rates["off"]) if answers else None,
        "no_multiple": reason,
        "cpu_ms": _cpu(tries, "on"),
        "cpu_ms_off": _cpu(tries, "off"),
        "looser": _looser(looser),
        "memory": memory,
        "failures": failed["second:error"],
        "held": within and not failed["second:error"],
        "tries": tries,
    }


def _cpu(tries: list[dict[str, Any]], way: str) -> Spread | None:
    """Of the whole process for an event and a ranking, where nearly all were ranked: wall time is not in it."""
    found = [one["cpu_ms"] for one in tries if one["way"] == way and one["ranked"] >= NEARLY]
    return spread(found) if found else None


def _looser(looser: dict[str, list[float]]) -> dict[str, Any] | None:
    if not looser["off"]:
        return None
    found: dict[str, Any] = {"bound_ms": LOOSER_MS, "per_s": spread(looser["on"]), "per_s_off": spread(looser["off"])}
    found["multiple"] = ratio(looser["on"], looser["off"]) if all(looser["off"]) else None
    return found


# ---- load


@dataclass
class _Turns:
    """A running service and what is sent to it."""

    server: Server
    bodies: dict[float, Path]
    events: Path
    name: str

    def at(self, rate: float, bound_ms: float, seconds: float, seed: int) -> Report:
        """One open loop."""
        wait_s = bound_ms / 1e3 + 2.0
        return self.server.load(
            self.bodies[bound_ms], seconds=seconds, rate=rate, seed=seed, events=str(self.events), answer_s=wait_s
        )


@dataclass(frozen=True)
class _Sustained:
    rate: float
    tries: list[dict[str, Any]]


def _sustained(turns: _Turns, bound_ms: float, load: ServiceLoad, seed: int, tell: Callable[[str], None]) -> _Sustained:
    """The highest rate of a bisection that is sustained; 0 where none is."""
    low, high, tries, left = 0.0, 0.0, list[dict[str, Any]](), load.steps
    rate = _begin(turns, bound_ms, load)
    for step in itertools.count():
        seconds = min(max(load.seconds, load.least / rate), MOST_S)
        for again in range(AGAIN):
            before_s = turns.server.usage().cpu_s
            report = turns.at(rate, bound_ms, seconds, seed * 100 + step * AGAIN + again + 1)
            cpu_ms = (turns.server.usage().cpu_s - before_s) * 1e3
            tries.append({**_tried(turns.name, rate, bound_ms, report), "cpu_ms": cpu_ms / max(report.sent, 1)})
            tell(f"{turns.name}, {rate:.1f}/s: {tries[-1]['in_time']:.1%} ranked within {bound_ms:g} ms")
            if holds := tries[-1]["in_time"] >= SHARE:
                break
        low, high = (rate, high) if holds else (low, rate)
        # a first rate that was far too low is doubled until one fails; only then the steps are counted
        left -= bool(high)
        if left < 0 or (holds and not high and rate >= load.highest):
            break
        rate = min(load.highest, 2.0 * low) if not high else (low + high) / 2
    return _Sustained(low, tries)


def _tried(way: str, rate: float, bound_ms: float, report: Report) -> dict[str, Any]:
    """What came of one open loop; shares are of what was sent."""
    sent, took_ms = max(report.sent, 1), [took_s * 1e3 for took_s in report.second_s]
    return {
        "way": way,
        "bound_ms": bound_ms,
        "rate": rate,
        "sent": report.sent,
        "ranked": len(took_ms) / sent,
        "in_time": sum(each <= bound_ms for each in took_ms) / sent,
        "p99_ms": percentile(took_ms, SHARE),
        "degraded": report.degraded,
        "statuses": report.statuses,
        "events_refused": report.events_refused,
    }


def _begin(turns: _Turns, bound_ms: float, load: ServiceLoad) -> float:
    """The first rate to try: half of what one caller after the other gets."""
    report = turns.server.load(turns.bodies[bound_ms], seconds=load.seconds, connections=1, count=40)
    return min(load.highest, max(1.0, 0.5 * len(report.second_s) / report.elapsed_s))


@contextlib.contextmanager
def _served(material: Material, way: Way, folder: Path, skewed: bool) -> Iterator[_Turns]:
    with bench_server(material, options=["--config", str(way.config(folder))]) as server:
        users = _order(material.sessions, skewed)
        asked = replace(material, sessions=tuple(users))
        bodies = {
            bound_ms: server.write(asked.bodies(CANDIDATES, len(users), budget_ms=bound_ms))
            for bound_ms in (BOUND_MS, LOOSER_MS)
        }
        events = server.write(_event(user, session, number) for number, (user, session) in enumerate(users))
        every = len(material.sessions)
        warm = server.write(material.bodies(CANDIDATES, every, budget_ms=10_000.0))
        _wait_ready(server, warm, every)
        yield _Turns(server, bodies, events, way.name)


def _order(sessions: Sequence[tuple[str, str]], skewed: bool) -> list[tuple[str, str]]:
    """Who comes in turn: everybody, or, where not all fit into memory, some more often than others."""
    draw = random.Random(5)
    if skewed:
        return draw.choices(sessions, [1.0 / (place + 1) for place in range(len(sessions))], k=DRAWN)
    return draw.sample(sessions, len(sessions))


def _wait_ready(server: Server, bodies: Path, users: int) -> None:
    """Until every user was ranked by the second stage once: histories are read, and pages are there."""
    give_up_s = time.monotonic() + READY_S
    while time.monotonic() < give_up_s:
        report = server.load(bodies, seconds=LOAD_S, connections=1, count=users)
        if len(report.second_s) >= 0.9 * max(report.sent, 1):
            return
        time.sleep(0.5)
    raise TrainingError(f"the second stage does not rank: {report.degraded}, statuses {report.statuses}")


def _event(user: str, session: str, number: int) -> bytes:
    event = {
        "event": "interaction", "id": ID_MARK.decode(), "time": TIME_MARK.decode(), "user": user,
        "session": session, "type": KINDS[number % len(KINDS)],
    }  # fmt: skip
    return json.dumps(event).encode()


def _memory(server: Server) -> dict[str, Any]:
    """Of the second stage's pool: limit, bytes lent, and the share that must not exceed .85."""
    pools = [pool for pool in server.get("/v1/memory")["pools"] if pool["name"] == "second"]
    profile = pools[0]["profile"]
    names = ("limit_bytes", "used_bytes", "peak_bytes", "share", "share_limit")
    return {**{name: profile[name] for name in names}, "most": MOST_USED}
