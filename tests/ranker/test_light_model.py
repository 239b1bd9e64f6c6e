"""A trained version in serving: the set it chooses, scores of any moment, and broken files refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lightgbm
import numpy as np
import pytest

from features.events import Context
from features.known import Known, Moment
from features.population import Population
from features.registry import COLUMNS, FINGERPRINT, vectors
from features.rows import SessionRow, User
from features.text_model import TextModel
from ranker.errors import ConfigError
from ranker.light_model import HINT, PLAIN, LightModel, text_file, trees_file
from ranker.light_text import checked_model_text
from tests.training.logs import TrainedFiles


def trees(seed: int, columns: tuple[str, ...] = COLUMNS, rounds: int = 12) -> bytes:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(400, len(columns))).astype(np.float32)
    dataset = lightgbm.Dataset(features, (features[:, 0] > 0).astype(int), group=[10] * 40, feature_name=list(columns))
    parameters = {"objective": "lambdarank", "num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5, "seed": seed}
    text: str = lightgbm.train(parameters, dataset, rounds).model_to_string()
    return text.encode()


def text(bias: float = 0.0) -> bytes:
    weights = np.zeros((0, 2), np.float32)
    return TextModel(("a", "b"), np.zeros(0, np.uint32), weights, np.array([bias, 0.0], np.float32)).to_bytes()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {trees_file(PLAIN): trees(1), text_file(PLAIN): text(1.0)}


def load(files: Mapping[str, bytes], schema: str = FINGERPRINT) -> LightModel:
    return LightModel.load(TrainedFiles(files), "7", schema, files)


def moment(actions: str = "abz", **context: Any) -> Moment:
    names = tuple(actions)
    known = Known(Population().at(), User(), SessionRow())
    return Moment(1.7e9, "u", Context(**context), known, names, (None,) * len(names), (None,) * len(names))


def test_a_version_scores_every_candidate_of_a_moment(files: dict[str, bytes]) -> None:
    light = load(files)
    features, scores = light.score(moment())
    assert (light.version, light.schema, light.kinds) == ("7", FINGERPRINT, (PLAIN,))
    assert features.shape == (3, len(COLUMNS))
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    column = COLUMNS.index("text_log_probability")
    assert features[:2, column] == pytest.approx(np.log([np.e / (np.e + 1), 1 / (np.e + 1)]), rel=1e-3)
    assert np.isnan(features[2, column])


def test_scores_are_the_trees_own_on_the_features_it_gives(files: dict[str, bytes]) -> None:
    features, scores = load(files).score(moment())
    booster = lightgbm.Booster(model_str=files[trees_file(PLAIN)].decode())
    assert np.array_equal(scores, booster.predict(features, num_threads=1))


def test_no_candidates_have_no_scores_and_a_thousand_have_a_thousand(files: dict[str, bytes]) -> None:
    assert load(files).score(moment(""))[1].shape == (0,)
    assert load(files).score(moment("ab" * 500))[1].shape == (1000,)


def test_the_moment_itself_is_left_as_it_was(files: dict[str, bytes]) -> None:
    before = moment()
    load(files).score(before)
    assert before.text_scores is None
    assert np.isnan(vectors(before)[:, COLUMNS.index("text_rank")]).all()


def test_a_context_with_a_text_uses_the_set_that_learned_from_texts(files: dict[str, bytes]) -> None:
    both = {**files, trees_file(HINT): trees(2), text_file(HINT): text(-3.0)}
    light = load(both)
    assert light.kinds == (PLAIN, HINT)
    assert light.choose(True) is not light.choose(False)
    column = COLUMNS.index("text_rank")
    assert light.score(moment("ab", text="hello"))[0][:, column].tolist() == [1, 0]
    assert light.score(moment("ab", text=""))[0][:, column].tolist() == [0, 1]
    assert light.score(moment("ab"))[0][:, column].tolist() == [0, 1]
    assert load(files).choose(True) is not None


def damaged() -> dict[str, dict[str, bytes]]:
    good = trees(1)
    model = {trees_file(PLAIN): good, text_file(PLAIN): text()}
    middle = len(good) // 2
    changes: dict[str, bytes] = {
        "empty": b"",
        "garbage": b"hello",
        "not UTF-8": good.replace(b"tree\n", b"\xfftree\n", 1),
        "cut in the header": good[:300],
        "cut in a tree": good[:middle],
        "cut after a tree": good[: good.index(b"Tree=5")],
        "a NUL": good[:middle] + b"\0" + good[middle:],
        "a value too many": good.replace(b"split_feature=", b"split_feature=9999 ", 1),
        "a child that is not there": good.replace(b"left_child=", b"left_child=77777 ", 1),
        "sizes that are no numbers": good.replace(b"tree_sizes=", b"tree_sizes=x ", 1),
        "no sizes": good.replace(b"tree_sizes=", b"sizes=", 1),
        "another file's first tree": good.replace(b"Tree=0", b"Tree=1", 1),
        "features of another schema": trees(1, tuple(f"c{number}" for number in range(len(COLUMNS)))),
        "fewer features": trees(1, COLUMNS[:5]),
    }
    broken = {name: {**model, trees_file(PLAIN): value} for name, value in changes.items()}
    broken["a broken text model"] = {**model, text_file(PLAIN): text()[:-3]}
    broken["only a hint set"] = {trees_file(HINT): good, text_file(HINT): text()}
    return broken


DAMAGED = damaged()


@pytest.mark.parametrize("name", DAMAGED)
def test_a_broken_version_is_refused_by_name_and_does_not_take_the_process_with_it(name: str) -> None:
    with pytest.raises(ConfigError, match="model version '7'"):
        load(DAMAGED[name])


def test_a_version_of_another_schema_loads_so_that_its_mismatch_can_be_told() -> None:
    other = {trees_file(PLAIN): trees(1, COLUMNS[:5]), text_file(PLAIN): text()}
    assert load(other, "another").schema == "another"


def test_a_model_without_a_single_split_loads_too() -> None:
    dataset = lightgbm.Dataset(
        np.ones((4, len(COLUMNS)), np.float32), [0, 1, 0, 0], group=[4], feature_name=list(COLUMNS)
    )
    flat = lightgbm.train({"objective": "lambdarank", "verbosity": -1, "num_threads": 1}, dataset, 3).model_to_string()
    light = load({trees_file(PLAIN): flat.encode(), text_file(PLAIN): text()})
    assert len(set(light.score(moment())[1].tolist())) == 1


@pytest.fixture(scope="module")
def model_text() -> bytes:
    """A model with splits, as our training writes it."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 6)).astype(np.float32)
    grades = (vectors[:, 0] > 0).astype(int) + (vectors[:, 1] > 1)
    parameters = {"objective": "lambdarank", "num_leaves": 7, "verbosity": -1, "num_threads": 1}
    trees = lightgbm.train(parameters, lightgbm.Dataset(vectors, grades, group=[20] * 30), 3)
    return trees.model_to_string().encode()


def test_a_whole_model_scores_as_it_did(model_text: bytes) -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 6))
    whole = lightgbm.Booster(model_str=model_text.decode())
    checked = lightgbm.Booster(model_str=checked_model_text(model_text))
    assert np.array_equal(np.asarray(checked.predict(vectors)), np.asarray(whole.predict(vectors)))
    assert checked.feature_name() == whole.feature_name()


# Each of these, but for the check, ends the process or scores from memory that is not the model's.
@pytest.mark.parametrize(
    ("field", "change"),
    [
        (b"left_child", lambda numbers: [b"9", *numbers[1:]]),
        (b"left_child", lambda numbers: [b"-9", *numbers[1:]]),
        (b"left_child", lambda numbers: [b"0", *numbers[1:]]),
        (b"right_child", lambda numbers: numbers[:-1]),
        (b"split_feature", lambda numbers: [b"6", *numbers[1:]]),
        (b"decision_type", lambda numbers: [b"1", *numbers[1:]]),
        (b"threshold", lambda numbers: [b"8_6", *numbers[1:]]),
        (b"internal_count", lambda numbers: [b"1A", *numbers[1:]]),
        (b"leaf_value", lambda numbers: [b"nan", *numbers[1:]]),
        (b"num_leaves", lambda _: [b"99999999"]),
        (b"num_cat", lambda _: [b"1"]),
    ],
)
def test_a_damaged_tree_is_refused_before_it_is_read(
    model_text: bytes, field: bytes, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    lines = model_text.split(b"\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(field + b"="))
    damaged = field + b"=" + b" ".join(change(lines[at].partition(b"=")[2].split()))
    longer = len(damaged) - len(lines[at])
    sizes = next(number for number, line in enumerate(lines) if line.startswith(b"tree_sizes="))
    first, *rest = lines[sizes].removeprefix(b"tree_sizes=").split()
    lines[at], lines[sizes] = damaged, b"tree_sizes=" + b" ".join([b"%d" % (int(first) + longer), *rest])
    with pytest.raises(ValueError, match="tree 0: "):
        checked_model_text(b"\n".join(lines))


def test_a_model_cut_anywhere_before_its_trees_end_is_refused(model_text: bytes) -> None:
    whole = model_text.index(b"end of trees\n") + len(b"end of trees\n")
    for end in range(0, whole, 7):
        with pytest.raises(ValueError):
            checked_model_text(model_text[:end])
    assert checked_model_text(model_text[:whole]) == checked_model_text(model_text)
