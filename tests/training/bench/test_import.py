"""`nextaction bench import`: a source that can be imported whole, and the figures of its import."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from features.events import decode_event, encode_event
from tests.command_line import Nextaction
from training.bench.import_source import made_up, write_source
from training.bench.importing import ImportPlan, bench_import
from training.importers import import_log
from training.labels import read_labels


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def test_every_line_of_the_source_is_an_event_and_its_feedback_finds_its_ranking(tmp_path: Path) -> None:
    write_source(tmp_path / "source.jsonl", 2000, seed=3)
    report = import_log("jsonl", tmp_path / "source.jsonl", tmp_path / "log")
    assert (report.total, report.skipped, report.duplicates) == (2000, Counter(), 0)
    counts = read_labels(enumerate(made_up(2000, seed=3))).counts
    assert counts["useful_rankings"] > 300
    assert counts["orphan_feedback"] == 0
    again = [decode_event(encode_event(event)).id for event in made_up(2000, seed=3)]
    assert len(set(again)) == 2000


def test_each_size_is_imported_by_a_process_of_its_own_which_tells_time_and_peak_memory() -> None:
    found = bench_import(ImportPlan((300, 600)))
    assert [size["events"] for size in found["sizes"]] == [300, 600]
    for size in found["sizes"]:
        assert size["peak_mib"] >= size["start_mib"] > 1.0
        assert size["events_per_s"] > 0.0
        assert size["cpu_s"] > 0.0
    assert found["peak_exponent"] < 0.5


def test_the_command_prints_its_json_and_refuses_sizes_that_are_none(nextaction: Nextaction, tmp_path: Path) -> None:
    done = nextaction("bench", "import", "--events", "200", "--folder", tmp_path, "--json")
    assert done.status == 0
    assert done.json["sizes"][0]["events"] == 200
    assert done.json["cpu_exponent"] is None
    assert list(tmp_path.iterdir()) == []
    for wrong in ("", "12", "1e5", "100,x"):
        assert nextaction("bench", "import", "--events", wrong).status == 2
