"""Resident memory over many requests, each by a user who was never seen before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from training.bench.load import ID_MARK
from training.bench.material import Material
from training.bench.server import bench_server

PARTS = 10
WARM = 2000


def bench_soak(material: Material, requests: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Resident MiB of the service after each tenth of the requests."""
    with bench_server(material) as server:
        bodies = server.write(_churning(material))
        server.load(bodies, seconds=600.0, count=WARM)
        server.wait_applied()
        resident, answered = [server.usage().rss_bytes / 2**20], 0
        for part in range(PARTS):
            progress(f"{part * requests // PARTS:,} of {requests:,} requests, {resident[-1]:.1f} MiB")
            report = server.load(bodies, seconds=3600.0, count=requests // PARTS, seed=part + 2)
            server.wait_applied()
            answered += len(report.latencies_s)
            resident.append(server.usage().rss_bytes / 2**20)
        return {
            "requests": answered,
            "start_mib": resident[0],
            "middle_mib": resident[PARTS // 2],
            "end_mib": resident[-1],
            "all_mib": resident,
            "collections": server.usage().collections,
        }


def _churning(material: Material) -> Iterator[bytes]:
    """The usual bodies, with a new user and session each time they are sent."""
    for body in material.bodies(50):
        mark = ID_MARK.decode()
        yield json.dumps({**json.loads(body), "user": f"churn-{mark}", "session": mark, "id": mark}).encode()
