"""Judging by replay: figures against brute force, splits by date, misses, slices, and a report that is JSON."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.events import ActionEvent, Event
from ranker.config import SampleSettings, TextSettings, TrainConfig, TreesSettings
from ranker.light_model import LightModel
from tests.training.logs import START_S, TrainedFiles, answered, at, catalogue, did, forget, ranked, write_log
from training.errors import TrainingError
from training.evaluate import EvaluateConfig, Evaluation, evaluate
from training.light import train_light
from training.simulate import Simulator

TINY = TrainConfig(
    sample=SampleSettings(folds=2),
    text=TextSettings(epochs=2, min_examples=2),
    trees=TreesSettings(rounds=5, min_data_in_leaf=5, threads=1),
)


def judge(logdir: Path, since_s: float = 0.0, hint: bool = False, light: LightModel | None = None) -> Evaluation:
    return evaluate(logdir, light, EvaluateConfig(START_S + since_s, hint, draws=100))


def served(logdir: Path, until_s: float, hint: bool = False) -> LightModel:
    trained = train_light(logdir, START_S + until_s, hint, TINY)
    return LightModel.load(TrainedFiles(trained.files), "1", trained.schema, trained.files)


def accepted(seed: int, count: int) -> list[tuple[str, str]]:
    """(list offered, action taken)."""
    draw = random.Random(seed)
    return [(offered := "".join(draw.sample("abcdef", 3)), draw.choice(offered)) for _ in range(count)]


def as_log(choices: list[tuple[str, str]]) -> list[Event]:
    events = catalogue("abcdef")
    for number, (offered, taken) in enumerate(choices):
        events += [
            ranked(f"r{number}", 10.0 * number, offered),
            answered(f"r{number}", "accept", 10.0 * number + 1, taken),
        ]
    return events


@pytest.mark.parametrize("seed", range(4))
def test_popularity_is_what_ten_lines_of_counting_give(tmp_path: Path, seed: int) -> None:
    choices = accepted(seed, 40)
    write_log(tmp_path, as_log(choices))
    counts = Counter(taken for _, taken in choices[:25])
    first, reciprocal = [], []
    for _, taken in choices[25:]:
        better = sum(counts[action] > counts[taken] for action in "abcdef")
        ties = sum(counts[action] == counts[taken] for action in "abcdef")
        places = range(better + 1, better + ties + 1)
        first.append(sum(place == 1 for place in places) / ties)
        reciprocal.append(sum(1 / place for place in places) / ties)
    judged = judge(tmp_path, 250.0)
    means = judged.stages["popularity"].means()
    assert (judged.queries, judged.learned_from) == (15, 25)
    assert means["hr@1"] == pytest.approx(np.mean(first))
    assert means["mrr"] == pytest.approx(np.mean(reciprocal))


def test_all_stages_are_judged_on_the_same_queries_after_the_date_only(tmp_path: Path) -> None:
    write_log(tmp_path, as_log(accepted(1, 40)))
    judged = judge(tmp_path, 250.0, light=served(tmp_path, 250.0))
    assert list(judged.stages) == ["popularity", "markov", "linear", "priors", "light"]
    assert {metrics.queries for metrics in judged.stages.values()} == {15}
    assert set(judged.to_json()["intervals"]) == {
        f"light-{name}" for name in ("popularity", "markov", "linear", "priors")
    }
    assert set(judge(tmp_path, 250.0).to_json()["intervals"]) == {
        f"priors-{n}" for n in ("popularity", "markov", "linear")
    }


def test_state_moves_on_while_it_judges(tmp_path: Path) -> None:
    """What is taken changes for good on the day of judgement: priors learn of it, popularity does not."""
    events = catalogue("abcdef")
    for number in range(60):
        taken = "a" if number < 20 else "b"
        events += [
            ranked(f"r{number}", 10.0 * number, "abc"),
            answered(f"r{number}", "accept", 10.0 * number + 1, taken),
        ]
    write_log(tmp_path, events)
    judged = judge(tmp_path, 200.0)
    assert judged.stages["popularity"].means()["hr@1"] == 0.0
    assert judged.stages["priors"].array("hr@1")[-1] == 1.0


def test_a_useful_item_that_was_no_candidate_is_a_miss(tmp_path: Path) -> None:
    found = ranked("r1", 0, "ab", pool=[("a", None, 1.0), ("b", None, 0.5)])
    lost = ranked("r2", 10, "ab", pool=[("b", None, 1.0), ("c", None, 0.5)])
    write_log(tmp_path, [*catalogue("abc"), found, answered("r1", "accept", 1), lost, answered("r2", "accept", 11)])
    judged = judge(tmp_path)
    for metrics in judged.stages.values():
        assert metrics.array("hr@1")[1] == 0.0
        assert metrics.array("mrr")[1] == pytest.approx(1 / 3)


def test_why_a_ranking_was_not_judged_is_said(tmp_path: Path) -> None:
    events = [
        *catalogue("ab"),
        ranked("useless", 0),
        ranked("no list", 1, ""),
        ranked("p", 2, traffic="probe"),
        ranked("lost", 3, "ab", pool=[]),
        answered("lost", "accept", 4),
        answered("never", "accept", 4),
        ranked("gone", 5, user="v"),
        answered("gone", "accept", 6, user="v"),
        forget(7, "v"),
        ranked("good", 8),
        answered("good", "complete", 9),
    ]
    write_log(tmp_path, events)
    judged = judge(tmp_path)
    assert judged.queries == 1
    expected = {"no_positive": 1, "list_unknown": 1, "no_candidates": 1, "forgotten": 1, "orphan_feedback": 1}
    assert {reason: count for reason, count in judged.excluded.items() if count} == expected


def test_a_ranking_logged_twice_is_judged_once(tmp_path: Path) -> None:
    write_log(tmp_path, [*catalogue("ab"), ranked("r", 0), ranked("r", 0), answered("r", "accept", 1)])
    assert judge(tmp_path).queries == 1


def test_slices_have_their_own_figures_and_say_when_they_are_thin(tmp_path: Path) -> None:
    events = catalogue("ab")
    for number in range(40):
        surface, taken = ("chat", "a") if number < 35 else ("mail", "b")
        context: dict[str, Any] = {"surface": surface, "fields": {"_domain": "bank", "_hint": "x", "own": "y"}}
        events += [
            ranked(f"r{number}", 10.0 * number, "ab", context=context, user=f"u{number % 2}"),
            answered(f"r{number}", "accept", 10.0 * number + 1, taken, user=f"u{number % 2}"),
        ]
    write_log(tmp_path, events)
    slices = judge(tmp_path, 100.0).to_json()["slices"]
    own = {"useful action=common", "useful action=rare"}
    assert set(slices) - own == {"surface=chat", "surface=mail", "domain=bank", "user=known", "traffic=live"}
    assert [slices[name]["queries"] for name in ("surface=chat", "surface=mail", "domain=bank")] == [25, 5, 30]
    assert [slices[name]["thin"] for name in ("surface=chat", "surface=mail")] == [True, True]
    assert not slices["domain=bank"]["thin"]
    assert slices["surface=chat"]["stages"]["popularity"]["hr@1"] == 1.0
    assert slices["surface=mail"]["stages"]["popularity"]["hr@1"] == 0.0


def test_a_hint_becomes_the_contexts_text_for_those_who_may_see_it(tmp_path: Path) -> None:
    draw, words = random.Random(0), {"a": "apple", "b": "banana"}
    events = catalogue("ab")
    for number in range(120):
        taken = draw.choice("ab")
        context = {"fields": {"_hint": words[taken]}}
        events += [
            ranked(f"r{number}", 10.0 * number, "ab", context=context, session=f"s{number}"),
            answered(f"r{number}", "accept", 10.0 * number + 1, taken),
        ]
    write_log(tmp_path, events)
    light = served(tmp_path, 800.0, hint=True)
    without, with_hint = (judge(tmp_path, 800.0, hint, light) for hint in (False, True))
    assert with_hint.stages["light"].means()["hr@1"] == 1.0
    assert with_hint.stages["linear"].means()["hr@1"] == 1.0
    assert (without.stages["light"].means()["hr@1"] or 0.0) < 0.9
    assert with_hint.to_json()["hint"] is True


def test_a_log_without_positives_is_refused_with_what_it_has(tmp_path: Path) -> None:
    write_log(tmp_path, [*catalogue("ab"), ranked("r", 0), answered("r", "dismiss", 1)])
    with pytest.raises(TrainingError, match=r"no query to judge.*'no_positive': 1.*1 rankings, 0 with a useful item"):
        judge(tmp_path)
    with pytest.raises(TrainingError, match="no query to judge"):
        judge(tmp_path, 1e6)


def test_plain_sequences_are_judged_by_what_users_did_next(tmp_path: Path) -> None:
    steps = [did("abc"[number % 3], 10.0 * number + 5, session="s") for number in range(60)]
    write_log(tmp_path, [*catalogue("abcdef"), *steps])
    judged = judge(tmp_path, 300.0, light=served(tmp_path, 300.0))
    assert (judged.queries, judged.learned_from) == (30, 30)
    for stage in ("markov", "linear", "priors"):
        assert judged.stages[stage].means()["hr@1"] == 1.0, stage
    assert judged.stages["popularity"].means()["hr@3"] == pytest.approx(1.0)


def test_what_was_done_but_is_in_no_catalogue_is_a_miss(tmp_path: Path) -> None:
    events: list[Event] = [ActionEvent(id="a", time=at(0), action="a"), did("a", 1), did("never announced", 2)]
    write_log(tmp_path, events)
    judged = judge(tmp_path)
    assert judged.stages["priors"].array("hr@1").tolist() == [1.0, 0.0]


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return type(value) in (str, int, float, bool, type(None))


def test_the_report_is_plain_json_without_numpy_or_nan(tmp_path: Path) -> None:
    simulator = Simulator(3, users=6, days=2)
    write_log(tmp_path, list(simulator.events()))
    since_s = simulator.start_s + 86400.0 - START_S
    judged = judge(tmp_path, since_s, light=served(tmp_path, since_s))
    report = judged.to_json()
    assert plain(report)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["queries"] == judged.queries > 5
    assert {"region", "user", "surface", "locale", "trigger", "traffic", "useful action"} == {
        name.partition("=")[0] for name in report["slices"]
    }


def test_an_interval_of_one_cluster_has_no_bounds_and_is_json_too(tmp_path: Path) -> None:
    write_log(tmp_path, [*catalogue("ab"), ranked("r", 0), answered("r", "accept", 1)])
    report = judge(tmp_path).to_json()
    assert report["intervals"]["priors-popularity"]["hr@1"]["low"] is None
    json.dumps(report, allow_nan=False)
