"""A log played again: in this process, over HTTP, and by the command."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from features.events import RankingEvent
from features.log import partition_folder, read_log
from ranker.answers import AnswerItem, RankAnswer
from ranker.client import ApiError
from ranker.types import RankRequest
from tests.command_line import Nextaction
from tests.training.logs import answered, catalogue, ranked, write_log
from training.gates.arms import Priors
from training.replaying.compare import Comparison
from training.replaying.errors import ReplayError
from training.replaying.in_process import PlayPlan, play_here
from training.replaying.keep import check_target, keep
from training.replaying.over_http import play_over_http
from training.replaying.pace import Pace


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three rankings of which the first has a logged pool with something withheld."""
    pool = [("a", None, 3.0), ("b", None, 2.0)]
    first = ranked("r1", 1.0, "ab", pool=pool, withheld=[(1, "c", None, 2.5)], context={"surface": "chat"})
    rest = [ranked("r2", 10.0, "cb", traffic="explore"), ranked("r3", 20.0, "ba", user="v")]
    probe = ranked("p", 21.0, "ab", traffic="probe")
    return write_log(tmp_path / "log", [*catalogue("abc"), first, answered("r1", "complete", 2.0, "b"), *rest, probe])


@dataclass
class FakeService:
    """Answers with the same list, but for users it does not like."""

    refuses: str = ""
    asked: list[RankRequest] = field(default_factory=list)

    def rank(self, request: RankRequest, /) -> RankAnswer:
        self.asked.append(request)
        if request.user == self.refuses:
            raise ApiError(503, {"title": "overloaded"})
        items = [AnswerItem(name, None, place, 3.0 - place, 1.0) for place, name in enumerate("ba", 1)]
        return RankAnswer("x", items, request.traffic or "replay", {"light": "7"}, ["light:missing"], {"total": 4.0})

    def rank_batch(self, requests: Iterable[RankRequest], /) -> Iterator[RankAnswer | ApiError]:
        for request in requests:
            try:
                yield self.rank(request)
            except ApiError as error:
                yield error


def test_what_was_withheld_stays_withheld_and_the_rest_is_ranked_anew(log: Path) -> None:
    plan = PlayPlan(log, -math.inf)
    first, *_ = played = list(play_here(plan, Priors(), Pace()))
    assert [each.event.id for each in played] == ["r1", "r2", "r3"]
    assert sorted(first.order) == [("a", None), ("b", None)]
    assert "surface=chat" in first.slices and "traffic=explore" in played[1].slices
    # after b was completed it is what the priors put first
    assert played[2].order[0] == ("b", None)


def test_past_the_deadline_the_priors_answer_and_say_so(log: Path) -> None:
    ticks = iter(range(1000))
    plan = PlayPlan(log, -math.inf, budget_ms=100.0, clock=lambda: float(next(ticks)))
    assert all(each.degraded == ("light:missing",) for each in play_here(plan, Priors(), Pace()))


def test_a_date_and_a_limit_choose_what_is_played(log: Path) -> None:
    since_s = next(event.time_s for _, event in read_log(log) if isinstance(event, RankingEvent) and event.id == "r2")
    assert [each.event.id for each in play_here(PlayPlan(log, since_s), Priors(), Pace())] == ["r2", "r3"]
    assert [each.event.id for each in play_here(PlayPlan(log, -math.inf, 1), Priors(), Pace())] == ["r1"]


def test_a_comparison_counts_by_traffic_and_slice(log: Path) -> None:
    found = Comparison()
    for each in play_over_http(PlayPlan(log, -math.inf), FakeService(refuses="v"), Pace()):
        found.add(each)
    report = found.to_json()
    assert (report["rankings"], report["errors"], report["first_error"]) == (3, 1, "503: overloaded")
    # [a b] against [b a]: all the same, in another order; [c b] against [b a]: half
    assert (report["overlap@k"], report["same_first"], report["kendall_tau"]) == (0.75, 0.0, -1.0)
    assert (report["degraded_share"], report["degraded"]) == (1.0, {"light:missing": 2})
    assert report["latency_ms"]["p99"] == 4.0
    assert {name: group["rankings"] for name, group in report["traffic"].items()} == {"explore": 1, "live": 2}
    assert report["slices"]["surface=chat"]["rankings"] == 1
    assert report["answered_by"] == {"7": 2, "none": 0}


def test_without_a_pace_the_logs_time_is_the_clock_and_with_one_it_is_a_probe(log: Path) -> None:
    batch, paced = FakeService(), FakeService()
    list(play_over_http(PlayPlan(log, -math.inf), batch, Pace()))
    list(play_over_http(PlayPlan(log, -math.inf, budget_ms=80.0), paced, Pace(1e6)))
    assert [request.context.time is not None for request in batch.asked] == [True] * 3
    assert {(request.traffic, request.budget_ms) for request in paced.asked} == {("probe", 80.0)}


def test_answers_are_kept_as_replay_traffic_and_the_source_is_as_it_was(log: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in partition_folder(log).iterdir() if path.is_file()}
    assert keep(play_here(PlayPlan(log, -math.inf), Priors(), Pace()), tmp_path / "out") == 3
    kept = [event for _, event in read_log(tmp_path / "out") if isinstance(event, RankingEvent)]
    assert {event.traffic for event in kept} == {"replay"}
    assert [len(event.items) for event in kept] == [2, 2, 2]
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("where", ["", "inside", ".."])
def test_answers_never_go_into_the_log_that_is_played(log: Path, where: str) -> None:
    with pytest.raises(ReplayError, match="is the log that is played"):
        check_target(log, log / where)


def test_a_folder_that_holds_something_is_refused(log: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(ReplayError, match="not an empty folder"):
        check_target(log, tmp_path / "full")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--url", "ftp://x"), "neither in-process nor starts with http"),
        (("--url", "in-process", "--version", "9"), "there is no version '9'"),
        (("--url", "in-process"), "has no version to play against"),
    ],
)
def test_what_cannot_be_played_is_one_clear_line(
    nextaction: Nextaction, log: Path, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "models").mkdir()
    done = nextaction("replay", "--log", log, "--models", tmp_path / "models", *options)
    assert done.status == 1
    if "ftp" not in options[1]:
        assert complaint in done.err.splitlines()[-1]


def test_a_speed_that_is_none_is_wrong_usage(nextaction: Nextaction, log: Path, tmp_path: Path) -> None:
    done = nextaction("replay", "--log", log, "--models", tmp_path, "--url", "in-process", "--speed", "0")
    assert (done.status, "times real time" in done.err) == (2, True)
