"""`nextaction train second` and what `evaluate` and `models` make of its versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ranker.commands.second import Told
from ranker.release.registry import Registry
from ranker.terminal import Steps
from tests.command_line import Nextaction
from tests.training.logs import START_S
from tests.training.second.made import sequence_log
from tests.training.second.test_train_second import LIGHT
from training.light import train_light
from training.publish import publish
from training.second.fit import Report

CONFIG = """
sizes: {small: {dim: 32, layers: 2, heads: 2, feed_forward: 64, window: 16, terms: 4}}
training: {pretrain: 1, epochs: 2, batch_tokens: 1024, folds: 2, rate: 0.005, threads: 1, min_count: 1}
"""


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, a registry with a light version, and a configuration."""
    folder = tmp_path_factory.mktemp("command")
    logdir = sequence_log(folder)
    publish(Registry(folder / "models"), train_light(logdir, START_S + 27_000.0, config=LIGHT), LIGHT)
    (folder / "second.yaml").write_text(CONFIG)
    return folder


def arguments(folder: Path) -> list[object]:
    options = ["--log", folder / "log", "--models", folder / "models", "--config", folder / "second.yaml"]
    return ["train", "second", *options]


def test_a_second_stage_is_trained_published_and_judged(nextaction: Nextaction, light: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(light, folder)
    done = nextaction(*arguments(folder), "--json")
    assert done.status == 0, done.err
    assert (done.json["version"], done.json["over"], done.json["active"]) == ("2", "1", None)
    assert done.json["second"]["worth"]["accept"] == 1.0
    assert done.json["resumed"] is False
    assert "second_held_out_mrr" in done.json["metrics"]
    assert "epoch 3 of at most 3: loss" in done.err
    assert list((folder / "models").glob(".second-training*")) == []
    judged = nextaction("evaluate", "--log", folder / "log", "--models", folder / "models", "--json")
    assert judged.status == 0, judged.err
    assert judged.json["versions"]["second"] == "2"
    assert "second-light" in judged.json["intervals"]
    assert set(judged.json["stages"]) >= {"popularity", "light", "second"}
    told = nextaction("evaluate", "--log", folder / "log", "--models", folder / "models")
    assert "second" in told.out


def test_a_stage_that_misses_a_part_is_judged_and_never_serves(
    nextaction: Nextaction, light: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(light, folder)
    done = nextaction(*arguments(folder), "--ablate", "text", "--epochs", "1")
    assert done.status == 0, done.err
    assert "over light 1" in done.out
    judged = nextaction("evaluate", "--log", folder / "log", "--models", folder / "models", "--json")
    assert judged.status == 0
    assert any("without text" in text for text in judged.json["warnings"])
    refused = nextaction("models", "activate", "2", "--models", folder / "models")
    assert refused.status == 1
    assert "trained by --ablate" in refused.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--over", "7"], "there is no version '7'"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--until", "1999-01-01"], "no useful outcome to learn from"),
        (["--seed", "-1"], "Expected `int` >= 0"),
        (["--ablate", "text", "--activate"], "leave out --activate"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    nextaction: Nextaction, light: Path, options: list[str], complaint: str
) -> None:
    done = nextaction(*arguments(light), *options)
    assert done.status == 1
    assert complaint in done.err
    assert done.err.splitlines()[-1].startswith("nextaction: error: ")


def test_without_a_light_stage_there_is_nothing_to_train_over(
    nextaction: Nextaction, light: Path, tmp_path: Path
) -> None:
    done = nextaction("train", "second", "--log", light / "log", "--models", tmp_path / "none")
    assert done.status == 1
    assert "`nextaction train light` makes one" in done.err


def test_a_part_that_cannot_be_left_out_is_wrong_usage(nextaction: Nextaction, light: Path) -> None:
    assert nextaction(*arguments(light), "--ablate", "light").status == 2


def test_a_long_epoch_is_told_of_before_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = iter([0.0, 10.0, 29.0, 31.0, 31.0, 40.0])
    with Steps() as steps:
        told = Told(steps, every=1, clock=lambda: next(now_s))
        for batch in range(1, 5):
            told(Report(1, 4, batch, 1000, 0.5, 2500.0, 120.0))
    lines = [line for line in capsys.readouterr().err.splitlines() if "loss" in line]
    assert lines == ["epoch 1 of at most 4, batch 3 of 1000: loss 0.5000, 2,500 tokens/s, 120 s left at most"]
