"""`nextaction labels`: what followed the offers, and which accepts were accidents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from features.events import FeedbackEvent, RankingEvent
from tests.command_line import Nextaction
from tests.training.logs import answered, did, ranked, write_log
from training.errors import TrainingError
from training.label_report import report_labels
from training.simulate import Simulator


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def chat(locale: str) -> dict[str, Any]:
    return {"context": {"surface": "chat", "locale": locale}}


def small_log(logdir: Path) -> Path:
    return write_log(
        logdir,
        [
            ranked("r1", 0, **chat("en")),
            *(answered("r1", "accept", 1), answered("r1", "undo", 3)),
            ranked("r2", 100, **chat("en")),
            *(answered("r2", "accept", 101, "b"), answered("r2", "complete", 102, "b"), did("b", 500)),
            ranked("r3", 200, user="v", **chat("de")),
            *(answered("r3", "dismiss", 201, user="v"), answered("r3", "accept", 2 * 86400.0, user="v")),
            answered("none", "accept", 300),
            answered("r2", "accept", 101, "b"),
        ],
    )


def test_the_report_counts_every_kind_and_the_accidents_by_slice(tmp_path: Path, nextaction: Nextaction) -> None:
    found = nextaction("labels", "--log", small_log(tmp_path / "log"), "--json").json
    counts = {name: count for name, count in found["counts"].items() if count}
    assert counts == {
        "events": 12, "rankings": 3, "offered": 6, "reused": 1, "own_actions": 1, "accepts": 2, "accidental": 1,
        "completions": 1, "dismissals": 1, "duplicate": 1, "late_feedback": 1, "orphan_feedback": 1,
    }  # fmt: skip
    assert found["accidental_share"] == 0.5
    assert found["gains"] == {"-1": 1, "0": 4, "3": 1}
    assert found["useful_by_position"] == {"2": 1}
    shares = {name: (of["accepts"], of["accidental_share"]) for name, of in found["slices"].items()}
    assert shares == {
        "surface=chat": (2, 0.5), "locale=en": (2, 0.5), "locale=de": (0, None), "user=new": (1, 1.0),
        "user=known": (1, 0.0), "traffic=live": (2, 0.5), "position=1": (1, 1.0), "position=2": (1, 0.0),
    }  # fmt: skip


def test_windows_and_gains_are_those_of_the_file(tmp_path: Path, nextaction: Nextaction) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("outcomes: {accidental_s: 1.0}\nlabels: {reuse_s: 100.0, gains: {completed: 5.0}}\n")
    log = small_log(tmp_path / "log")
    found = nextaction("labels", "--log", log, "--config", config, "--json").json
    assert (found["counts"]["accidental"], found["counts"]["reused"]) == (0, 0)
    assert found["gains"] == {"-1": 1, "0": 3, "1": 1, "5": 1}
    assert nextaction("labels", "--log", log).out.count("%") >= 4


def test_a_log_without_a_ranking_is_said_to_have_none(tmp_path: Path, nextaction: Nextaction) -> None:
    write_log(tmp_path / "log", [did("a", 1)])
    with pytest.raises(TrainingError, match="no ranking to label: 1 events"):
        report_labels(tmp_path / "log")
    done = nextaction("labels", "--log", tmp_path / "log")
    assert (done.status, done.err.count("\n")) == (1, 1)


def test_the_simulated_people_slip_as_often_as_they_are_made_to(tmp_path: Path) -> None:
    """Counted from the log without any of the rules: an accept that an undo or dismissal of the same item follows."""
    events = list(Simulator(5, users=40, days=5).events())
    accepts, slips = Counter[str](), Counter[str]()
    places = {
        (event.id, item.action, item.target): f"position={item.position}"
        for event in events if isinstance(event, RankingEvent) for item in event.items
    }  # fmt: skip
    accepted = set()
    for event in events:
        if isinstance(event, FeedbackEvent):
            key = (event.ranking, event.action, event.target)
            if event.type == "accept":
                accepts[places[key]] += 1
                accepted.add(key)
            elif event.type in ("undo", "dismiss") and key in accepted:
                slips[places[key]] += 1
    report = report_labels(write_log(tmp_path, events)).to_json()
    assert report["counts"]["accidental"] == slips.total() > 20
    for name, count in accepts.items():
        assert report["slices"][name]["accepts"] == count
        assert report["slices"][name]["accidental"] == slips[name]
