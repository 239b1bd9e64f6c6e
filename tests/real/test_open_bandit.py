"""The Open Bandit sample against the published figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.events import ActionEvent, FeedbackEvent, RankingEvent
from features.log import read_log
from tests.command_line import Nextaction
from training.importers import import_log
from training.off_policy.gather import gather
from training.off_policy.judge import JudgeConfig, Judgement, judge
from training.off_policy.targets import Target, Uniform, empirical_of
from training.validate import validate_log

SAMPLE = Path(__file__).parents[2] / ".." / "shared" / "data" / "open-bandit"

pytestmark = pytest.mark.skipif(not SAMPLE.exists(), reason="the Open Bandit sample is not beside this clone")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bts` and `random` of the campaign `men`, as logs."""
    folder = tmp_path_factory.mktemp("open-bandit")
    for policy in ("bts", "random"):
        report = import_log("open-bandit", SAMPLE / policy / "men", folder / policy)
        assert report.events["ranking"] == 10_000 and not report.skipped
    return folder


def whole(logdir: Path, target: Target) -> Judgement:
    return judge(gather(logdir, target), JudgeConfig(draws=0))[0]


@pytest.fixture(scope="module")
def uniform(logs: Path) -> Judgement:
    return whole(logs / "bts", Uniform())


def test_the_numbers_are_those_of_the_source(logs: Path) -> None:
    for policy, clicks in (("bts", 69), ("random", 46)):
        events = [event for _, event in read_log(logs / policy)]
        kinds = (ActionEvent, RankingEvent, FeedbackEvent)
        assert [sum(isinstance(event, kind) for event in events) for kind in kinds] == [34, 10_000, clicks]
        assert validate_log(logs / policy).ok


def test_from_bts_to_uniform_the_figures_are_those_published(uniform: Judgement) -> None:
    ips, snips = (uniform.rewards["usefulness"].estimates[name] for name in ("ips", "snips"))
    assert ips.value == pytest.approx(0.003008626327256483, abs=1e-15)
    assert snips.value == pytest.approx(0.0031894231622774, abs=1e-15)
    assert round(ips.se or 0.0, 8) == 0.00077394 and round(snips.se or 0.0, 8) == 0.00082782
    overlap = uniform.overlap["prefix"]
    assert round(overlap.effective_sample_size, 2) == 655.71
    assert round(overlap.largest_weight or 0.0, 2) == 178.25 and round(overlap.mean_weight or 0.0, 5) == 0.94331
    assert overlap.enough and uniform.enough, "all four conditions hold"


def test_the_snips_interval_covers_the_random_logs_rate_and_that_of_ips_just_misses(uniform: Judgement) -> None:
    ips, snips = (uniform.rewards["usefulness"].estimates[name] for name in ("ips", "snips"))
    assert None not in (ips.high, snips.low, snips.high)
    assert (snips.low or 0.0) < 0.0046 < (snips.high or 0.0)
    assert 0.9 * 0.0046 < (ips.high or 0.0) < 0.0046


def test_from_random_to_bts_by_the_shares_of_its_log_the_interval_covers_what_bts_got(logs: Path) -> None:
    bts = empirical_of((event for _, event in read_log(logs / "bts")), "empirical:bts")
    assert set(bts.shares) == {1, 2, 3}
    found = whole(logs / "random", bts)
    snips = found.rewards["usefulness"].estimates["snips"]
    assert snips.value == pytest.approx(0.005739864701951, abs=1e-12)
    assert snips.low is not None and snips.high is not None and snips.low < 0.0069 < snips.high
    assert found.overlap["prefix"].effective_sample_size == pytest.approx(2869.28, abs=0.01)


def test_a_log_of_the_target_itself_gets_its_own_rate(logs: Path) -> None:
    found = whole(logs / "random", Uniform()).rewards["accepts"]
    assert found.estimates["ips"].value == pytest.approx(0.0046, rel=1e-9)


def test_the_command_says_the_same(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Nextaction(capsys)("evaluate", "--off-policy", "--log", logs / "bts", "--target", "uniform", "--json")
    assert done.status == 0
    assert done.json["rewards"]["usefulness"]["estimates"]["ips"]["value"] == pytest.approx(0.003008626327256483)
    assert done.json["verdict"] == "shown" and done.json["rejected"] == {}
