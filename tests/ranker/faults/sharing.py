"""A service whose answers are in a store that it shares: `python -m tests.ranker.faults.sharing FOLDER URL OWN SLOW_S`.

Each has a log of its own, and so rows of its own, under the prefix OWN; ids are claimed under `shared`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from features.circuit import Circuit
from features.redis_store import RedisStore
from features.store import Commit, Snapshot
from ranker.api.app import create_app
from ranker.api.limits import Limits
from ranker.server import listen, serve
from tests.ranker.faults.loaded import CLOCK, serving

TIMEOUT_MS = 2000.0


@dataclass
class Sharing:
    """A FeatureStore with its own rows and shared answers.

    Args:
        slow_s: how long each request waits for its rows.
    """

    own: RedisStore
    shared: RedisStore
    slow_s: float

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        if any(key.startswith("u:") for key in keys):
            await asyncio.sleep(self.slow_s)
        return await self.own.read(keys, timeout_ms)

    async def commit(self, commit: Commit) -> None:
        await self.own.commit(commit)

    async def population(self) -> dict[tuple[str, str], bytes]:
        return await self.own.population()

    async def clear(self) -> None:
        await self.own.clear()

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        return await self.shared.claim(key, value, ttl_s)

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        await self.shared.put(key, value, ttl_s)

    async def ping(self) -> None:
        await self.own.ping()

    async def close(self) -> None:
        await self.own.close()
        await self.shared.close()


def connected(url: str, prefix: str) -> RedisStore:
    return RedisStore.connect(url, prefix=prefix, timeout_ms=TIMEOUT_MS, circuit=Circuit(open_s=0.2))


async def main(folder: Path, url: str, own: str, slow_s: float) -> None:
    """Serves until it is killed; prints where."""
    folder.mkdir(exist_ok=True)
    (folder / "secret").write_text("the same for both of them")
    store = Sharing(connected(url, own), connected(url, "shared"), slow_s)
    async with serving(folder, store, store_timeout_ms=TIMEOUT_MS) as running:
        app = create_app(running.service, Limits(), CLOCK)
        await serve(
            app, listen(), asyncio.Event(), on_started=lambda where: print(json.dumps({"url": where}), flush=True)
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
