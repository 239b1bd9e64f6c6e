"""Training of the second stage on small logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from features.registry import FINGERPRINT
from ranker.config import SampleSettings, TrainConfig, TreesSettings
from ranker.light_model import LightModel
from ranker.release.registry import Manifest, Registry
from ranker.second.config import SecondConfig, Sizes, SizeTable, TrainSecond, load_second
from ranker.second.weights import is_second_file, load_second_model
from tests.training.logs import START_S
from tests.training.second.made import sequence_log
from training.errors import TrainingError
from training.evaluate import EvaluateConfig, Evaluation, evaluate
from training.light import train_light
from training.publish import publish
from training.second.job import Request, TrainedSecond, train_second
from training.second.judge import SecondJudge
from training.second.publish import publish_second

LIGHT = TrainConfig(
    trees=TreesSettings(rounds=5, min_data_in_leaf=5, threads=1), sample=SampleSettings(folds=2)
)  # fmt: skip
TINY = SecondConfig(
    sizes=SizeTable(small=Sizes(dim=32, layers=2, heads=2, feed_forward=64, window=16, terms=4)),
    training=TrainSecond(pretrain=2, epochs=4, batch_tokens=1024, folds=2, rate=0.005, threads=1, min_count=1),
)


@dataclass(frozen=True)
class Made:
    """A log, a registry with a light version, and its second stage."""

    logdir: Path
    registry: Registry
    light: Manifest
    trained: TrainedSecond
    until_s: float


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("second")
    logdir, registry = sequence_log(folder), Registry(folder / "models")
    until_s = START_S + 100.0 * 30 * 9
    light = publish(registry, train_light(logdir, until_s, config=LIGHT), LIGHT)
    trained = train_second(Request(logdir, light, until_s, TINY))
    return Made(logdir, registry, light, trained, until_s)


def judged(made: Made, trained: TrainedSecond) -> Evaluation:
    manifest = made.light.__class__(
        version="t", kind="second", created="", files={}, schema=FINGERPRINT, second=trained.entry
    )
    model = load_second_model(trained.files, manifest, to_judge=True)
    assert model is not None
    light = LightModel.load(made.registry, made.light.version, FINGERPRINT, made.light.files)
    return evaluate(made.logdir, light, EvaluateConfig(made.until_s), None, SecondJudge(model))


def test_it_beats_popularity_where_the_sequence_matters(made: Made) -> None:
    found = judged(made, made.trained)
    second, popular = found.stages["second"].means(), found.stages["popularity"].means()
    assert found.queries == 90
    assert (second["hr@1"] or 0.0) > 0.9 > 0.5 > (popular["hr@1"] or 0.0)


def test_the_report_compares_it_with_light_and_tells_cold_users_and_rare_actions_apart(made: Made) -> None:
    found = judged(made, made.trained).to_json()
    assert {"second-light", "second-popularity", "light-linear"} <= found["intervals"].keys()
    assert {"history=10 or more", "useful action=common"} <= found["slices"].keys()


def test_the_same_seed_gives_the_same_files(made: Made) -> None:
    again = train_second(Request(made.logdir, made.light, made.until_s, TINY))
    assert again.files == made.trained.files
    assert again.metrics == made.trained.metrics


def test_outcomes_that_were_never_seen_are_worth_nothing(made: Made) -> None:
    assert made.trained.entry.worth == {"accept": 1.0, "complete": 3.0, "dismiss": 0.0, "reuse": 0.0}


def test_a_version_holds_both_stages(made: Made) -> None:
    manifest = publish_second(made.registry, made.light, made.trained)
    assert set(made.light.files) | set(made.trained.files) == set(manifest.files)
    assert manifest.second is not None
    assert manifest.second.light == made.light.version
    assert manifest.version != made.light.version
    assert made.registry.verify(manifest.version) == []
    files = {name: made.registry.read(manifest.version, name) for name in manifest.files if is_second_file(name)}
    assert load_second_model(files, made.registry.manifest(manifest.version)) is not None
    light = LightModel.load(made.registry, manifest.version, manifest.schema, manifest.files)
    assert light.kinds == ("plain",)


@pytest.mark.parametrize("part", ["text", "time", "feedback"])
def test_a_part_that_is_left_out_is_left_out_when_judged_too(made: Made, part: str) -> None:
    config = SecondConfig(sizes=TINY.sizes, training=TrainSecond(pretrain=0, epochs=1, folds=2, threads=1, min_count=1))
    trained = train_second(Request(made.logdir, made.light, made.until_s, config, without=frozenset([part])))
    assert trained.entry.without == [part]
    assert judged(made, trained).queries == 90


def test_a_fit_whose_loss_is_no_number_any_more_ends_with_one_line_and_nothing_is_exported(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.second.fit.batch_loss", lambda net, *_: net.role.sum() * float("nan"))
    with pytest.raises(TrainingError, match="epoch 1, batch 1: the loss is nan"):
        train_second(Request(made.logdir, made.light, made.until_s, TINY))


@pytest.mark.parametrize("size", ["small", "base"])
def test_both_shipped_sizes_are_trained_exported_and_loaded(made: Made, size: str, tmp_path: Path) -> None:
    path = tmp_path / "second.yaml"
    path.write_text(f"size: {size}\ntraining: {{pretrain: 0, epochs: 1, folds: 2, threads: 1, min_count: 1}}\n")
    config = load_second(path)
    trained = train_second(Request(made.logdir, made.light, made.until_s, config))
    version = publish_second(made.registry, made.light, trained).version
    manifest = made.registry.manifest(version)
    files = {name: made.registry.read(version, name) for name in manifest.files if is_second_file(name)}
    model = load_second_model(files, manifest)
    assert model is not None
    wanted = {"small": (128, 4), "base": (256, 6)}[size]
    assert (model.sizes.dim, model.sizes.layers) == wanted == (config.chosen.dim, config.chosen.layers)
