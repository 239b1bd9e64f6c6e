"""The second stage's bench and soak, at their smallest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ranker.cli import main
from ranker.second.config import Sizes
from training.bench.second_cost import cost, pages, useful_flops
from training.bench.second_load import Load, throughput


def test_useful_work_is_of_real_rows_only() -> None:
    sizes = Sizes(dim=8, layers=1, heads=2, feed_forward=16, window=64)
    projections = 2 * (3 * 8 * 8 + 8 * 8 + 2 * 8 * 16)
    one, two = useful_flops(sizes, 10, 1, 0), useful_flops(sizes, 10, 2, 0)
    assert one == projections + 10 * 4 * 8
    assert two == 2 * projections + (9 + 10) * 4 * 8


def test_cost_and_pages_are_measured(tmp_path: Path) -> None:
    found = cost(64, 1, tmp_path)
    assert found["ratio"].median > 0.0
    assert 0.0 < found["cached_of_peak"].median < 1.0
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
