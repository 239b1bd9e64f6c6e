"""What training does about positions and about what was not offered: as configured, or as the log allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from features.events import Event, RankedItem
from features.known import Moment
from ranker.config import PositionSettings, SampleSettings, TextSettings, TrainConfig, TreesSettings
from ranker.light_model import LightModel
from tests.training.logs import TrainedFiles, answered, catalogue, did, ranked, write_log
from training.bench.truth import World, true_quality
from training.errors import TrainingError
from training.evidence import choose_bias, choose_negatives
from training.examples import gather_examples
from training.gain_table import gain_table
from training.labels import Labels, read_labels
from training.light import train_light
from training.position import PositionError, ShuffledSlots
from training.simulate import START_S, Exploration, Shuffled, Simulator
from training.unbiased import Unbiased, make_unbiased

SMALL = TrainConfig(
    sample=SampleSettings(folds=2),
    text=TextSettings(epochs=1),
    trees=TreesSettings(rounds=5, min_data_in_leaf=5, threads=1),
)


def drawn(id: str, at_s: float, offered: str = "ab", **more: Any) -> Event:
    """A ranking with propensities."""
    event = ranked(id, at_s, offered, **more)
    items = [RankedItem(action=item.action, position=item.position, propensity=0.5, score=0.0) for item in event.items]
    return msgspec.structs.replace(event, items=items, pool=[(name, None, 0.0) for name in "abcdef"])


def labels_of(events: Sequence[Event]) -> Labels:
    return read_labels(enumerate(events))


def choices(events: Sequence[Event]) -> tuple[str, str]:
    labels = labels_of(events)
    return choose_negatives(SampleSettings(), labels), choose_bias(PositionSettings(), labels)


def test_the_log_decides_where_nobody_did() -> None:
    both = [answered("r", "accept", 1, "a"), answered("q", "accept", 1, "b")]
    assert choices([drawn("r", 0), drawn("q", 0), *both]) == ("offered", "model")
    assert choices([drawn("r", 0), drawn("q", 0), both[0]]) == ("offered", "none"), "one position has no bias to fit"
    assert choices([ranked("r", 0), ranked("q", 0), *both]) == ("pool", "none"), "an import has no propensities"
    assert choices([drawn("r", 0, "a"), both[0]]) == ("pool", "none"), "one item has nothing to compare with"
    assert choices([drawn("r", 0), did("a", 1)]) == ("pool", "none"), "nothing offered was ever useful"
    labels = labels_of([ranked("r", 0)])
    assert choose_negatives(SampleSettings(negatives="offered"), labels) == "offered"
    assert choose_bias(PositionSettings(bias="ips"), labels) == "ips"


def test_what_was_not_offered_or_not_seen_is_not_compared(tmp_path: Path) -> None:
    seen = [answered("r", "seen", 0.5, name) for name in "ab"]
    events = [*catalogue("abcdef"), drawn("r", 0, "abc"), *seen, answered("r", "complete", 1, "b")]
    write_log(tmp_path, events)
    for negatives, unseen, expected in (
        ("auto", "unknown", [0.0, 2.0]),
        ("auto", "ignored", [0.0, 2.0, 0.0]),
        ("pool", "unknown", [0.0, 2.0, 0.0, 0.0, 0.0, 0.0]),
    ):
        settings = msgspec.convert({"unseen": unseen}, type=type(SMALL.labels))
        sample = msgspec.convert({"negatives": negatives, "folds": 2}, type=SampleSettings)
        found = gather_examples(tmp_path, None, sample, False, label_settings=settings).vectors
        assert [grades.tolist() for grades in found.grades] == [expected]
        assert found.positions[0].tolist() == [1, 2, 3, 0, 0, 0][: len(expected)]


def test_a_list_in_which_nothing_differs_teaches_nothing_and_is_counted(tmp_path: Path) -> None:
    events = [*catalogue("ab"), drawn("r", 0), answered("r", "complete", 1), answered("r", "complete", 1, "b")]
    write_log(tmp_path, events)
    with pytest.raises(TrainingError, match=r"skipped \{'nothing_to_compare': 1\}"):
        train_light(tmp_path, config=SMALL)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), min_size=1), st.booleans())
def test_grades_keep_the_order_of_gains_and_their_worth_the_differences(gains: list[float], exponential: bool) -> None:
    table = gain_table(np.array(gains), exponential)
    assert table.worth[0] == 0.0
    assert table.worth == sorted(set(table.worth))
    worth = [table.worth[grade] for grade in table.grades]
    for gain, of_it in zip(gains, worth, strict=True):
        for other, of_other in zip(gains, worth, strict=True):
            expected = gain - other
            if exponential:
                expected = np.sign(gain) * (2 ** abs(gain) - 1) - np.sign(other) * (2 ** abs(other) - 1)
            assert of_it - of_other == pytest.approx(expected)


def test_without_a_dismissal_grades_are_those_that_were_shipped() -> None:
    table = gain_table(np.array([0.0, 1.0, 2.0, 0.0]), True)
    assert (table.grades.tolist(), table.worth) == ([0, 1, 2, 0], [0.0, 1.0, 3.0])
    assert gain_table(np.array([-1.0, 2.0]), True).worth == [0.0, 1.0, 4.0]
    with pytest.raises(ValueError, match="not finite"):
        gain_table(np.array([np.nan]), True)


def test_what_was_not_offered_has_a_position_of_its_own_and_weighs_one() -> None:
    positions, gains = np.array([3, 0, 1, 0]), np.array([1.0, 0.0, 0.0, 0.0])
    assert Unbiased("none", PositionSettings()).ids(positions) is None
    ids = Unbiased("model", PositionSettings()).ids(positions)
    assert ids is not None and ids.tolist() == [2, 0, 1, 0]
    slots = ShuffledSlots()
    for number in range(400):
        slots.add_shuffled([number < 200, number < 100, number < 50])
    weighed = make_unbiased(slots, Labels(), PositionSettings(bias="ips", clip=3.0))
    weights = weighed.weights(positions, gains)
    assert weights is not None and weights.tolist() == [3.0, 1.0, 1.0, 1.0]
    assert weighed.report()["clipped"] == 1.0
    assert weighed.report()["clipped_mass"] == pytest.approx((4.0 - 3.0) / 2)


def test_weights_are_refused_where_the_log_cannot_tell_positions_apart() -> None:
    with pytest.raises(PositionError, match="not enough exploration"):
        make_unbiased(ShuffledSlots(), Labels(), PositionSettings(bias="ips"))
    found = make_unbiased(ShuffledSlots(), Labels(), PositionSettings(bias="model")).report()
    assert (found["theta"], "not enough exploration" in found["theta_unknown"]) == ([], True)


@pytest.mark.parametrize("bias", ["auto", "none", "ips"])
def test_a_version_says_how_it_was_trained_and_what_positions_are_worth(tmp_path: Path, bias: str) -> None:
    simulator = Simulator(3, users=40, days=5)
    write_log(tmp_path, list(simulator.events(Shuffled(), Exploration(1.0))))
    config = msgspec.structs.replace(SMALL, position=msgspec.convert({"bias": bias}, PositionSettings))
    extra = train_light(tmp_path, config=config).extra
    assert extra["negatives"] == "offered"
    found = extra["position_bias"]
    assert found["bias"] == {"auto": "model"}.get(bias, bias)
    truth = simulator.examination
    for rate, looked_at in zip(found["theta"], truth, strict=False):
        assert abs(rate["ratio"] - looked_at / truth[0]) <= 4 * rate["error"] + 1e-9
    assert ("clipped_mass" in found) == (bias == "ips")


def scores_of(light: LightModel) -> Callable[[Moment], NDArray[np.float64]]:
    return lambda moment: light.score(moment)[1]


@pytest.mark.slow
def test_by_true_usefulness_what_was_offered_teaches_better_than_all_else_as_useless(tmp_path: Path) -> None:
    """The log's own labels say the opposite: what was not offered could not be useful."""
    since_s = START_S + 10 * 86400.0
    world = World.simulate(Simulator(3, users=150, days=13), Exploration(0.3))
    write_log(tmp_path, world.events)
    means: dict[str, float] = {}
    for negatives, bias in (("offered", "model"), ("offered", "none"), ("pool", "none")):
        sample, position = SampleSettings(negatives=negatives), PositionSettings(bias=bias)  # type: ignore[arg-type]
        trained = train_light(tmp_path, since_s, config=TrainConfig(sample=sample, position=position))
        light = LightModel.load(TrainedFiles(trained.files), "1", trained.schema, trained.files)
        means[f"{negatives} {bias}"] = true_quality(tmp_path, world.scenes, scores_of(light), since_s).mean
    assert means["offered model"] > means["pool none"] + 0.02
    assert means["offered none"] > means["pool none"]
