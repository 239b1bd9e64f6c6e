"""The benches that judge learning by a simulated truth: what they report, and that they come to an end."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ranker.config import SampleSettings, TextSettings, TrainConfig, TreesSettings
from tests.command_line import Nextaction
from training.bench.curve import CurvePlan, bench_curve
from training.bench.truth import World, shown_quality
from training.simulate import Exploration, Oracle, Shuffled, Simulator

SMALL = TrainConfig(
    sample=SampleSettings(folds=2),
    text=TextSettings(epochs=1),
    trees=TreesSettings(rounds=10, min_data_in_leaf=10, threads=1),
)


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def test_a_curve_has_a_cell_for_each_size_and_share_and_answers_by_the_last_doubling() -> None:
    plan = CurvePlan(users=25, shares=(0.3, 1.0), days=(1, 3), judged_days=1, config=SMALL)
    found = bench_curve(plan)
    assert [(cell["exploration"], cell["days"]) for cell in found["cells"]] == [(0.3, 1), (0.3, 3), (1.0, 1), (1.0, 3)]
    assert all(cell["events"] > 0 and 0.0 < cell["true_ndcg"] < 1.0 for cell in found["cells"])
    assert len(found["answers"]) == 2
    for step in found["steps"]:
        smaller, larger = step["events"]
        cells = {
            cell["events"]: cell["true_ndcg"] for cell in found["cells"] if cell["exploration"] == step["exploration"]
        }
        gain = (cells[larger] - cells[smaller]) / np.log2(larger / smaller)
        assert step["per_doubling"]["mean"] == pytest.approx(gain)
        assert step["per_doubling"]["low"] <= gain <= step["per_doubling"]["high"]
        verdict = step["worth_it"]
        assert verdict == "yes" if step["per_doubling"]["low"] >= plan.worth else verdict in ("no", "unclear")
    assert msgspec.json.encode(found)


def test_more_exploration_costs_those_who_see_it() -> None:
    worlds = [
        World.simulate(Simulator(2, users=15, days=2), Exploration(share), policy)
        for share, policy in ((0.0, Oracle()), (1.0, Shuffled()))
    ]
    best, random = map(shown_quality, worlds)
    assert best == pytest.approx(1.0)
    assert random < 0.6


@pytest.mark.parametrize("wrong", [{"days": (4, 2)}, {"days": ()}, {"shares": ()}, {"days": (0, 1)}])
def test_a_curve_without_rising_sizes_is_refused(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="days rise"):
        CurvePlan(**wrong)  # type: ignore[arg-type]


def test_the_position_bench_prints_its_table_and_its_json(nextaction: Nextaction) -> None:
    done = nextaction("bench", "position", "--slates", 400, "--shuffled", 0.6, "--json")
    assert done.status == 0
    assert set(done.json["ways"]) >= {"naive", "oracle", "position, regularisation 0"}
    assert done.json["ways"]["oracle"]["of_oracle"] == 1.0
    assert nextaction("bench", "curve", "--worth", 2).status == 2
    assert nextaction("bench", "position", "--slates", 0).status == 2
