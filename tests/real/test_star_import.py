"""The whole STAR file against the numbers in its README."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from features.events import FeedbackEvent, InteractionEvent, RankingEvent
from features.log import read_log
from training.importers import ImportReport, import_log
from training.validate import validate_log

STAR = Path(__file__).parents[2] / ".." / "shared" / "data" / "star" / "star_dev.jsonl.gz"

pytestmark = pytest.mark.skipif(not STAR.exists(), reason="the STAR file is not beside this clone")


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ImportReport]:
    logdir = tmp_path_factory.mktemp("star") / "log"
    return logdir, import_log("star", STAR, logdir)


def test_the_numbers_are_those_of_the_readme(star: tuple[Path, ImportReport]) -> None:
    logdir, report = star
    kinds: Counter[str] = Counter()
    players, tasks = set(), set()
    for _, event in read_log(logdir):
        if isinstance(event, FeedbackEvent | InteractionEvent):
            kinds[event.type if isinstance(event, InteractionEvent) else f"feedback {event.type}"] += 1
            players.add(event.user)
        elif isinstance(event, RankingEvent):
            kinds["ranking"] += 1
            tasks.add(event.context.fields["task"])
    assert (report.notes["dialogues"], report.events["action"], len(players), len(tasks)) == (5079, 163, 115, 24)
    assert kinds["feedback accept"] == 34_930
    assert kinds["ranking"] - report.notes["lists_unknown"] == 34_930
    assert kinds["ranking"] == 44_321 + 38
    assert (report.notes["picks_not_in_their_list"], report.duplicates) == (0, 0)


def test_the_logged_suggester_has_the_pick_first_as_often_as_the_readme_says(star: tuple[Path, ImportReport]) -> None:
    logdir, _ = star
    first: dict[str, str] = {}
    hits = []
    for _, event in read_log(logdir):
        if isinstance(event, RankingEvent) and event.items and event.items[-1].position == 3:
            first[event.id] = event.items[0].action
        elif isinstance(event, FeedbackEvent) and event.type == "accept" and event.ranking in first:
            hits.append(first.pop(event.ranking) == event.action)
    assert sum(hits) / len(hits) == pytest.approx(0.865, abs=0.003)


def test_events_stand_in_order_of_time_and_nothing_is_wrong_but_the_propensities(
    star: tuple[Path, ImportReport],
) -> None:
    logdir, report = star
    times = [event.time for _, event in read_log(logdir)]
    assert times == sorted(times)
    validation = validate_log(logdir)
    assert validation.ok
    assert {kind: finding.count for kind, finding in validation.findings.items()} == {
        "missing_propensity": report.events["ranking"] - report.notes["lists_unknown"]
    }
