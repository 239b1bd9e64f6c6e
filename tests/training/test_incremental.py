"""Going on from a version: which queries, what stays of it, what the new version says, and what is refused."""

from __future__ import annotations

from pathlib import Path

import lightgbm
import msgspec
import numpy as np
import pytest
from scipy import sparse

from features.registry import FINGERPRINT
from features.text_terms import BUCKETS
from ranker.config import IncrementalSettings, SampleSettings, TextSettings, TrainConfig, TreesSettings
from ranker.release.errors import VersionMissing
from ranker.release.registry import DataSpan, Registry
from tests.command_line import Nextaction
from tests.training.logs import START_S, write_log
from tests.training.test_light import spoken
from training.errors import TrainingError
from training.light import train_light
from training.parent import Parent
from training.publish import publish
from training.resume import Span
from training.text_fit import fit_text

CONFIG = TrainConfig(
    sample=SampleSettings(folds=2),
    text=TextSettings(epochs=4, batch=64, min_examples=2),
    trees=TreesSettings(rounds=8, min_data_in_leaf=5, threads=1),
    incremental=IncrementalSettings(rounds=4, max_rounds=12),
)
HALF_S = START_S + 100.0 * 75


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log", spoken(150))


@pytest.fixture
def registry(log: Path, tmp_path: Path) -> Registry:
    """A version that learned from the first half."""
    registry = Registry(tmp_path / "models")
    publish(registry, train_light(log, HALF_S, config=CONFIG), CONFIG)
    return registry


def trees_of(files: dict[str, bytes]) -> lightgbm.Booster:
    return lightgbm.Booster(model_str=files["light-plain.txt"].decode())


def test_a_version_goes_on_where_the_data_of_its_parent_ended(log: Path, registry: Registry) -> None:
    parent = Parent.load(registry, "latest")
    assert parent.until_s == HALF_S
    trained = train_light(log, config=CONFIG, parent=parent)
    assert trained.data["queries"] == 75
    assert trained.data["rankings"] == 150
    assert trained.data["since"] == registry.manifest("1").data.since
    lineage = trained.extra["lineage"]
    assert (lineage["parent"], lineage["generation"]) == ("1", 1)
    again = train_light(log, config=CONFIG, parent=parent)
    assert again.files == trained.files


def test_trees_of_the_parent_stay_and_all_are_bounded_over_generations(log: Path, registry: Registry) -> None:
    counts, first = [], trees_of(dict(Parent.load(registry, "1").files))
    for until in (90, 110, 130, 150):
        parent = Parent.load(registry, "latest")
        trained = train_light(log, START_S + 100.0 * until, config=CONFIG, parent=parent)
        publish(registry, trained, CONFIG)
        counts.append(trees_of(trained.files).num_trees())
    assert first.num_trees() == 8
    assert counts == [12, 12, 12, 12]
    assert registry.manifest("5").extra["lineage"]["generation"] == 4
    probe = np.random.default_rng(0).normal(size=(20, first.num_feature()))
    last = trees_of({"light-plain.txt": registry.read("5", "light-plain.txt")})
    np.testing.assert_allclose(last.predict(probe, num_iteration=8), first.predict(probe), atol=1e-12)


def test_a_text_model_keeps_what_it_knew_and_learns_what_is_new() -> None:
    settings = TextSettings(epochs=6, batch=8, min_examples=1, smoothing=0.0)
    one, two = (sparse.csr_matrix((np.ones(20), ([*range(20)], [bucket] * 20)), (20, BUCKETS)) for bucket in (3, 7))
    before = fit_text(sparse.vstack([one, two]).tocsr().astype(np.float32), ["a"] * 20 + ["b"] * 20, settings)
    new = sparse.csr_matrix((np.ones(20, np.float32), ([*range(20)], [11] * 20)), (20, BUCKETS))
    after = fit_text(new, ["c"] * 20, settings, start=before)
    assert after.actions == ("a", "b", "c")
    assert after.buckets.tolist() == [3, 7, 11]
    np.testing.assert_array_equal(after.weights[:2, :2], before.weights)
    assert int((after.weights[2] + after.bias).argmax()) == 2
    assert int((after.weights[0] + after.bias)[:2].argmax()) == 0


def test_what_cannot_be_gone_on_from_is_refused_by_name(log: Path, registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(VersionMissing, match="'7'"):
        Parent.load(registry, "7")
    with pytest.raises(TrainingError, match="no light version"):
        Parent.load(Registry(tmp_path / "empty"), "latest")
    files = {"light-plain.txt": b"x"}
    registry.publish(files, schema="older", data=DataSpan(until="2024-01-01T00:00:00.000Z"))
    with pytest.raises(TrainingError, match="'2' is of features older"):
        Parent.load(registry, "2")
    registry.publish(files, schema=FINGERPRINT)
    with pytest.raises(TrainingError, match="'3' does not say where its data ended"):
        Parent.load(registry, "3")
    registry.publish(files, schema=FINGERPRINT, data=DataSpan(until="2023-11-14T22:13:20.000Z"))
    with pytest.raises(TrainingError, match=r"'4': light-plain\.txt"):
        train_light(log, config=CONFIG, parent=Parent.load(registry, "4"))


def test_since_before_the_parents_end_or_after_the_logs_is_refused(log: Path, registry: Registry) -> None:
    parent = Parent.load(registry, "1")
    with pytest.raises(TrainingError, match="learn twice"):
        train_light(log, config=CONFIG, span=Span(HALF_S - 1.0), parent=parent)
    with pytest.raises(TrainingError, match=r"no useful outcome to learn from since .* its last event is of"):
        train_light(log, config=CONFIG, span=Span(START_S + 1e6))


def test_the_command_goes_on_from_the_newest_version_and_learns_anew_without_one(
    nextaction: Nextaction, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "train.yaml"
    config.write_bytes(msgspec.yaml.encode(msgspec.to_builtins(CONFIG)))
    command = ("train", "light", "--log", log, "--models", tmp_path / "models", "--config", config, "--json")
    started = (*command, "--since", "last", "--checkpoint", tmp_path / "kept")
    first = nextaction(*started, "--until", "2023-11-15T00:18:20Z")
    assert "has no version yet" in first.err
    assert first.json["extra"].get("lineage") is None
    second = nextaction(*started)
    assert second.json["version"] == "2"
    lineage = second.json["extra"]["lineage"]
    assert (lineage["parent"], lineage["since"]) == ("1", "2023-11-15T00:18:20.000Z")
    assert first.json["extra"]["queries"] + second.json["extra"]["queries"] == 150
    nothing = nextaction(*started)
    assert nothing.status == 1
    assert "its last event is of" in nothing.err
    assert "Traceback" not in nothing.err
    assert nextaction(*command, "--from", "9").status == 1
    assert nextaction(*command, "--since", "soon").status == 2
