"""A probe changes nothing anywhere: not the store, not the log, not what is in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis

from features.embedded_store import EmbeddedServer
from ranker.build import Running
from tests.ranker.faults.loaded import Load, applied, connect, rank, serving
from tests.ranker.online import run


def dump(server: EmbeddedServer) -> dict[bytes, tuple[object, int]]:
    """Everything a server holds, with when it expires."""
    with redis.Redis(unix_socket_path=str(server.socket_path), protocol=2) as raw:
        found: dict[bytes, Any] = {}
        for key in raw.keys("*"):
            value = raw.hgetall(key) if raw.type(key) == b"hash" else raw.get(key)
            found[key] = value, raw.execute_command("PEXPIRETIME", key)
    return found


def log_bytes(logdir: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in logdir.rglob("*.jsonl")}


def in_memory(running: Running) -> object:
    """Tables, remembered ids and offsets; what is counted about requests may move."""
    tables = running.applier.population.tables
    cells = {key: {action: cell.tobytes() for action in table if (cell := table.cell(action)) is not None}
             for key, table in tables.items()}  # fmt: skip
    owners = running.service.owners
    status = running.service.status()
    return cells, dict(owners.intake.recent._ends), dict(owners.answers._forgotten), status["log"], status["applier"]


def test_a_hundred_probes_change_nothing_with_and_without_ids(tmp_path: Path) -> None:
    async def work(server: EmbeddedServer) -> None:
        store = connect(server.url)
        try:
            async with serving(tmp_path, store) as running:
                await Load(running, 80.0).send(0.5)
                await applied(running)
                before = in_memory(running), log_bytes(tmp_path / "log"), await asyncio.to_thread(dump, server)
                for number in range(100):
                    named = {"id": f"r{number}"} if number % 2 else {}  # some of these were rankings' before
                    answer = await rank(running, traffic="probe", user=f"u{number % 7}", session="s", k=2, **named)
                    assert answer.items and answer.traffic == "probe" and not answer.degraded
                await asyncio.sleep(0.2)
                after = in_memory(running), log_bytes(tmp_path / "log"), await asyncio.to_thread(dump, server)
                assert after == before
                assert len(before[2]) > 20
        finally:
            await store.close()

    server = EmbeddedServer.start()
    try:
        run(work(server))
    finally:
        server.close()
