"""STAR by the protocol of its README: learn before 24 May 2020, judge the 24th; light must beat the linear model.

A smaller training than the default, so that it fits into the tests: fewer queries with vectors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from features.events import to_seconds
from ranker.config import SampleSettings, TrainConfig
from ranker.light_model import LightModel
from tests.training.logs import TrainedFiles, utc
from training.evaluate import EvaluateConfig, Evaluation, evaluate
from training.importers import import_log
from training.light import train_light

STAR = Path(__file__).parents[2] / ".." / "shared" / "data" / "star" / "star_dev.jsonl.gz"
MAY_24 = to_seconds(utc(2020, 5, 24))
CONFIG = TrainConfig(sample=SampleSettings(max_queries=6000, folds=3))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STAR.exists(), reason="the STAR file is not beside this clone"),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    logdir = tmp_path_factory.mktemp("star-quality") / "log"
    import_log("star", STAR, logdir)
    trained = train_light(logdir, MAY_24, config=CONFIG)
    light = LightModel.load(TrainedFiles(trained.files), "star", trained.schema, trained.files)
    return evaluate(logdir, light, EvaluateConfig(MAY_24))


def test_the_queries_are_those_of_the_protocol(judged: Evaluation) -> None:
    assert judged.queries == 3302


def test_light_reaches_what_is_asked_of_it(judged: Evaluation) -> None:
    means = judged.stages["light"].means()
    print({name: round(value or 0.0, 4) for name, value in means.items()})
    assert (means["hr@1"] or 0.0) >= 0.68
    assert (means["mrr"] or 0.0) >= 0.79


def test_light_is_above_the_linear_model_beyond_chance(judged: Evaluation) -> None:
    intervals = judged.to_json()["intervals"]["light-linear"]
    for metric in ("hr@1", "mrr"):
        assert intervals[metric]["low"] > 0.0, intervals[metric]


def test_the_linear_model_is_no_straw_man(judged: Evaluation) -> None:
    means = judged.stages["linear"].means()
    assert (means["hr@1"] or 0.0) >= 0.66
    assert (means["mrr"] or 0.0) >= 0.777
