"""`nextaction evaluate --off-policy` and `nextaction bench coverage`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from features.events import Event
from ranker.cli import main
from tests.command_line import Nextaction
from tests.training.logs import catalogue, write_log
from tests.training.off_policy.small import accepted, drawn
from training.simulate import Simulator

QUICK = "trees: {rounds: 3, threads: 1}\ntext: {epochs: 1}\n"


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of single actions, drawn evenly, some useful."""
    rng = np.random.default_rng(0)
    events: list[Event] = []
    for number in range(800):
        action = "abcd"[rng.integers(4)]
        event = drawn(str(number), float(number), action, [0.25])
        events += [event, accepted(event, action)] if rng.random() < 0.3 else [event]
    events.append(drawn("shadow", 900.0, "a", [0.25], traffic="shadow"))
    events.append(drawn("bad", 900.0, "a", [None]))
    return write_log(tmp_path_factory.mktemp("explored") / "log", [*catalogue("abcd"), *events])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated log of lists of three and a version trained on it."""
    folder = tmp_path_factory.mktemp("simulated")
    write_log(folder / "log", list(Simulator(1, users=40, days=4).events()))
    (folder / "train.yaml").write_text(QUICK)
    (folder / "serve.yaml").write_text("epsilon: 0.3\ntemperature: 1.0\n")
    light = ["--log", folder / "log", "--models", folder / "models", "--config", folder / "train.yaml"]
    light += ["--until", "2024-06-03"]
    assert main(["train", "light", *map(str, light)]) == 0
    return folder


def test_a_number_is_shown_with_all_that_was_left_out(nextaction: Nextaction, explored: Path) -> None:
    done = nextaction("evaluate", "--off-policy", "--log", explored, "--target", "uniform", "--json")
    assert done.status == 0
    report = done.json
    assert report["verdict"] == "shown" and report["slates"] == 800
    assert report["traffic"] == {"explore": 800}
    assert report["excluded_traffic"] == {"shadow": 1} and report["rejected"] == {"propensity_missing": 1}
    assert set(report["rewards"]) == {"usefulness", "completions", "accepts", "dismissals"}
    assert report["rewards"]["accepts"]["estimates"]["ips"]["value"] == pytest.approx(0.3, abs=0.05)
    assert report["overlap"]["prefix"]["effective_sample_size"] == pytest.approx(800)
    text = nextaction("evaluate", "--off-policy", "--log", explored, "--target", "uniform")
    assert text.status == 0 and "usefulness per ranking" in text.out and "1 propensity_missing" in text.out


def test_no_overlap_is_exit_status_3_with_the_figures_and_no_number(nextaction: Nextaction, tmp_path: Path) -> None:
    events = [drawn(str(number), float(number), "a", [1.0], traffic="live") for number in range(300)]
    log = write_log(tmp_path / "log", [*catalogue("abcd"), *events, accepted(events[0], "a")])
    done = nextaction("evaluate", "--off-policy", "--log", log, "--target", "uniform", "--json")
    assert done.status == 3
    report = done.json
    assert report["verdict"] == "not enough overlap"
    assert all(found["estimates"] == {} for found in report["rewards"].values())
    assert report["overlap"]["prefix"]["mean_weight"] == pytest.approx(0.25)
    text = nextaction("evaluate", "--off-policy", "--log", log, "--target", "uniform")
    assert text.status == 3 and "not enough overlap" in text.out and "mean_weight" in text.out


def test_a_version_is_judged_behind_the_services_draw(nextaction: Nextaction, simulated: Path) -> None:
    paths = ("--log", simulated / "log", "--models", simulated / "models", "--config", simulated / "serve.yaml")
    done = nextaction("evaluate", "--off-policy", *paths, "--target", "1", "--json")
    assert done.status in (0, 3)
    report = done.json
    assert report["target"] == "1" and report["slots"] == 3 and set(report["overlap"]) == {"prefix", "joint", "alone"}
    assert report["notes"]["propensities_not_of_these_scores"] == 0
    assert report["exploration"] == {"epsilon": 0.3, "temperature": 1.0}
    assert report["since"] == "2024-06-03T00:00:00.000Z", "by default it is judged by what it did not learn from"
    assert report["notes"]["before_since"] > 0
    early = nextaction("evaluate", "--off-policy", *paths, "--target", "1", "--since", "2024-06-01", "--json")
    assert "some of what it is judged by" in early.err and early.json["slates"] > report["slates"]
    uniform = nextaction("evaluate", "--off-policy", *paths, "--target", "uniform", "--json").json
    assert uniform["overlap"]["prefix"]["mean_weight"] == pytest.approx(1.0, abs=0.3)
    assert "surface=chat" in uniform["slices"]


def test_another_logs_shares_may_be_the_target(nextaction: Nextaction, explored: Path) -> None:
    done = nextaction("evaluate", "--off-policy", "--log", explored, "--target", f"empirical:{explored}", "--json")
    assert done.status == 0 and done.json["overlap"]["prefix"]["mean_weight"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--target is needed"),
        (("--target", "7"), "--models is needed"),
        (("--target", "empirical:nowhere"), "nowhere"),
    ],
    ids=["no target", "no models", "no such log"],
)
def test_what_is_missing_is_said_in_one_line(
    nextaction: Nextaction, explored: Path, options: tuple[str, ...], said: str
) -> None:
    done = nextaction("evaluate", "--off-policy", "--log", explored, *options)
    assert done.status == 1 and said in done.err and done.err.count("\n") == 1


def test_without_off_policy_evaluate_still_asks_for_models(nextaction: Nextaction, explored: Path) -> None:
    done = nextaction("evaluate", "--log", explored)
    assert done.status == 1 and "--models is needed" in done.err


def test_coverage_is_reported_and_fails_outside_its_bounds(nextaction: Nextaction) -> None:
    done = nextaction("bench", "coverage", "--runs", "3", "--json")
    report = done.json
    assert report["runs"] == 3 and set(report["slots"]) == {"1", "2"}
    assert done.status == (0 if report["ok"] else 1)
    text = nextaction("bench", "coverage", "--runs", "2")
    assert "lists of 2" in text.out and "cascade-dr" in text.out
