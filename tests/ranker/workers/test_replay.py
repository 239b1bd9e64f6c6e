"""What followers in other processes log can be rebuilt from the log to the bit."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import httpx

from features.embedded_store import EmbeddedServer
from features.redis_store import RedisStore
from ranker.api.app import create_app
from ranker.api.follower import named
from ranker.api.limits import Limits
from ranker.build import Surroundings, build
from ranker.policy_config import PolicyConfig
from ranker.server import listen, serve, url_of
from ranker.workers.opening import open_keeper
from tests.ranker.faults.loaded import CLOCK, EAGER, applied
from tests.ranker.online import ACTIONS, VectorModel, config_of, run, specs_of
from tests.ranker.test_replay_exact import assert_replays
from tests.ranker.workers.several import now

TIMEOUT_MS = 2000.0


async def live(url: str, seed: int, ranked: dict[int, int]) -> None:
    """A few users' worth of rankings and events, over connections that any worker may accept."""
    draw = random.Random(seed)
    for number in range(8):
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20.0) as http:
            for turn in range(3):
                user, name = f"u{draw.randrange(3)}", f"{seed}-{number}-{turn}"
                context: dict[str, Any] = {"surface": "chat", "locale": "en", "trigger": {"type": "opened"}}
                body = {"user": user, "session": "s", "context": context, "k": 3, "budget_ms": 5000}
                reply = await http.post("/v1/rank", json=body)
                worker = int(reply.headers["x-worker"])
                ranked[worker] = ranked.get(worker, 0) + 1
                answer = reply.json()
                usual = {"id": name, "time": now(), "user": user}
                event = {**usual, "event": "interaction", "session": "s", "type": "said", "action": "share"}
                if answer["items"] and draw.random() < 0.7:
                    item = answer["items"][0]
                    event = {**usual, "event": "feedback", "ranking": answer["id"], "type": "accept"}
                    event |= {"action": item["action"], "target": item["target"]}
                await http.post("/v1/events", json=event)


def test_rankings_of_three_processes_replay_to_the_bit(tmp_path: Path) -> None:
    async def work() -> None:
        server = EmbeddedServer.start()
        store = RedisStore.connect(server.url, timeout_ms=TIMEOUT_MS, on_close=server.close)
        settings = {"store": server.url, "store_timeout_ms": TIMEOUT_MS, "epsilon": 1.0, "workers": 3}
        config = config_of(tmp_path, **settings, lag_limit_ms=600_000.0, catalogue_lag_limit_ms=20_000.0)
        around = Surroundings(
            clock=CLOCK, environment={}, store=store, model=VectorModel(), actions=specs_of(ACTIONS), applier=EAGER
        )
        running = await build(config, PolicyConfig(), around)
        stop, listener, ranked = asyncio.Event(), listen(), dict[int, int]()
        try:
            async with open_keeper(running, PolicyConfig(), listener) as keeper:
                keeper.service.crew.command = (sys.executable, "-m", "tests.ranker.workers.member")
                app = create_app(keeper.service, Limits(), CLOCK, workers=keeper.service)
                await keeper.start(app)
                await keeper.joined(stop, 60.0)
                serving = asyncio.create_task(serve(named(app, 0), listener, stop))
                await asyncio.gather(*(live(url_of(listener), seed, ranked) for seed in range(3)))
                await applied(running)
                await keeper.service.crew.stop()
                stop.set()
                await serving
        finally:
            await running.close()
            await store.close()
        assert {1, 2} <= set(ranked), ranked

    run(work(), 150.0)
    assert_replays(tmp_path / "log", least=50)
