"""The second stage's bench and soak, at their smallest."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ranker.cli import main
from ranker.second.config import Sizes
from training.bench.load import Order
from training.bench.second_cost import cost, pages, useful_flops
from training.bench.second_load import Load, throughput
from training.bench.second_service import ServiceLoad, service
from training.bench.server import run_load


def test_useful_work_is_of_real_rows_only() -> None:
    sizes = Sizes(dim=8, layers=2, heads=2, feed_forward=16, window=64)
    projections = 2 * (3 * 8 * 8 + 8 * 8 + 2 * 8 * 16)
    one, two = useful_flops(sizes, 10, 1, 0), useful_flops(sizes, 10, 2, 0)
    kept = 2 * 2 * 8 * 8  # of the last layer nobody reads more of an event than its key and value
    assert one == projections + 10 * 4 * 8 + kept
    assert two == 2 * projections + (9 + 10) * 4 * 8 + 2 * kept


def test_cost_and_pages_are_measured(tmp_path: Path) -> None:
    found = cost(64, 1, tmp_path)
    assert found["ratio"].median > 0.0
    assert 0.0 < found["cached_of_peak"].median < 1.0
    assert 0.0 < found["batched_of_peak"].median < 1.0
    rows = {row["kv"]: row for row in pages(64, tmp_path)}
    assert rows["fp32"]["page_bytes"] == 32 * 2 * 4 * 128 * 4  # tokens × keys and values × layers × channels × bytes
    assert rows["fp32"]["logit_error_max"] < 1e-4
    assert rows["bf16"]["page_bytes"] * 2 == rows["fp32"]["page_bytes"]
    assert rows["int4"]["page_bytes"] < rows["int8"]["page_bytes"] < rows["bf16"]["page_bytes"]


def test_throughput_is_found_while_memory_stays_within_its_limit(tmp_path: Path) -> None:
    load = Load(rounds=1, requests=20, steps=2, users=4, alone=2)
    found = throughput(64, load, tmp_path, lambda _: None, fitting=0.5)
    assert found["memory_within"]
    assert found["per_s"].median >= 0.0
    assert found["per_s_off"].median < found["per_s_off_at_most"].median


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_short_soak_reports_faults_and_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("training.bench.second_soak.WARM", 16)
    assert main(["bench", "soak", "--requests", "80", "--length", "32", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["requests"] == 80
    assert report["pool_grown_bytes"] == 0
    assert len(report["resident_mib"]) == 11


@pytest.mark.parametrize("lengths", ["63", "8", "many", "64,"])
def test_a_length_that_cannot_be_is_refused(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "second", "--lengths", lengths])
    assert "even number" in capsys.readouterr().err


def test_a_version_is_judged_on_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "second", "--models", "somewhere"]) != 0
    assert "--log" in capsys.readouterr().err


class Answering(http.server.BaseHTTPRequestHandler):
    """Accepts events, and ranks by a second stage whoever had one since the last ranking."""

    protocol_version = "HTTP/1.1"
    waiting: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/events":
            assert body["time"].endswith("Z") and body["id"] != "@@ID@@"
            self.waiting.append(body["user"])
            answer: dict[str, Any] = {"results": [{"status": "accepted"}]}
        else:
            heard = body["user"] in self.waiting
            answer = {"degraded": [] if heard else ["second:budget"], "timings_ms": {}, "versions": {}}
            if heard:
                self.waiting.remove(body["user"])
                answer["versions"] = {"light": "1", "second": "2"}
        sent = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def test_each_ranking_comes_after_its_users_event_and_only_what_the_second_stage_ranked_is_listed(
    tmp_path: Path,
) -> None:
    events, bodies = tmp_path / "events", tmp_path / "bodies"
    users = [f"u{number}" for number in range(7)]
    event = {"event": "interaction", "id": "@@ID@@", "time": "@@TIME@@", "type": "typed"}
    events.write_text("\n".join(json.dumps({**event, "user": user}) for user in users))
    bodies.write_text("\n".join(json.dumps({"user": user}) for user in users))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    order = Order(server.server_port, "/v1/rank", str(bodies), seconds=0.6, rate=60.0, events=str(events), ahead_s=0.1)
    report = run_load(order)
    assert report.sent > 10 and report.statuses == {"200": report.sent}
    assert len(report.second_s) == report.sent and report.events_refused == 0 and not Answering.waiting
    without = run_load(replace(order, events="", seconds=0.2))
    assert without.sent == without.degraded["second:budget"] and not without.second_s
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_whole_service_is_measured_with_pages_and_without(tmp_path: Path) -> None:
    load = ServiceLoad(users=4, seconds=1.0, steps=0, highest=5.0, least=1)
    found = service(64, load, tmp_path, lambda _: None, capped=True)
    assert {one["way"] for one in found["tries"]} == {"on", "off"}
    assert max(one["ranked"] for one in found["tries"]) > 0.5
    assert found["memory"]["share"] <= 0.85 and found["failures"] == 0 and found["held"]
    assert (found["multiple"] is None) == (found["no_multiple"] is not None)
