"""STAR by the protocol of its README: what the second stage reaches beside light; long on two cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ranker.cli import main

STAR = Path(__file__).parents[2] / ".." / "shared" / "data" / "star" / "star_dev.jsonl.gz"
UNTIL = "2020-05-24"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not STAR.exists(), reason="the STAR file is not beside this clone"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("star-second")
    log, models = str(made / "log"), str(made / "models")
    assert main(["import", "--format", "star", str(STAR), "--to", log]) == 0
    assert main(["train", "light", "--log", log, "--models", models, "--until", UNTIL]) == 0
    assert main(["train", "second", "--log", log, "--models", models, "--until", UNTIL]) == 0
    return made


def judged(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    where = ["--log", str(folder / "log"), "--models", str(folder / "models")]
    assert main(["evaluate", *where, "--since", UNTIL, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.xfail(reason="measured: HR@1 .005 above light, an interval from -.0015 to .0123", strict=False)
def test_second_is_above_light_beyond_chance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = judged(folder, capsys)
    for metric in ("hr@1", "mrr"):
        assert report["intervals"]["second-light"][metric]["low"] > 0.0


def test_second_reaches_what_is_asked_of_it_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = judged(folder, capsys)
    assert report["queries"] == 3302
    assert report["stages"]["second"]["hr@1"] >= 0.72
    assert report["stages"]["second"]["mrr"] >= 0.82


def test_second_uses_what_was_typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(folder, capsys, "--hint")["stages"]["second"]["hr@1"] >= 0.95
