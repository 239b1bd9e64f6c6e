"""Audited texts: weights of one over the probability, intervals by ranking, and who was forgotten."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from features.events import Audit, AuditedText, Event, ForgetEvent, RankingEvent, from_seconds
from features.log import LogWriter, Written
from training.audit import Drawn, judge_sample, miss_evidence, read_sample, share_interval
from training.safety import bounds
from training.safety_labels import LabelError, read_judged

NOW_S = 1_700_000_000.0


def text(words: str, *, passed: bool = True, served: bool = True, action: str = "a") -> AuditedText:
    return AuditedText(action=action, text=words, score=0.1 if passed else 0.9, passed=passed, served=served)


def ranking(name: str, *texts: AuditedText, probability: float = 0.5, user: str = "u", **fields: object) -> Event:
    audit = Audit(probability=probability, items=list(texts))
    return RankingEvent(id=name, time=from_seconds(NOW_S), user=user, audit=audit, **fields)  # type: ignore[arg-type]


def write(logdir: Path, *events: Event) -> Path:
    from features.events import encode_event

    log = LogWriter.open(logdir)
    log.append([Written(encode_event(event), event, True) for event in events])
    log.close()
    return logdir


def test_each_miss_weighs_one_over_its_probability() -> None:
    drawn = [
        Drawn(0, text("bad"), 100.0),
        Drawn(1, text("good"), 100.0),
        Drawn(2, text("worse"), 10.0),
        Drawn(3, text("fine"), 10.0),
        Drawn(4, text("caught", passed=False, served=False), 10.0),
        Drawn(5, text("alas", passed=False, served=False), 10.0),
        Drawn(6, text("hidden", served=False), 10.0),
        Drawn(7, text("not judged"), 10.0),
    ]
    labels = {"bad": True, "good": False, "worse": True, "fine": False, "caught": True, "alas": False, "hidden": False}
    found = judge_sample(drawn, labels)
    assert (found.served.share, found.served.total, found.served.of_total) == (0.5, 110.0, 220.0)
    assert found.passed.share == pytest.approx(110 / 230)
    assert found.missed.share == pytest.approx(110 / 120)
    assert found.withheld.share == pytest.approx(10 / 130)
    assert (found.labelled, found.unlabelled) == (7, 1)
    assert found.served.effective == pytest.approx(220**2 / (2 * 100**2 + 2 * 10**2))


def test_with_one_text_a_ranking_and_even_weights_the_interval_is_clopper_pearsons() -> None:
    drawn = [Drawn(number, text(f"t{number}"), 50.0) for number in range(2000)]
    labels = {f"t{number}": number < 3 for number in range(2000)}
    found = judge_sample(drawn, labels, 0.9).served
    assert (found.count, found.of, found.total) == (3, 2000, 150.0)
    assert found.effective == pytest.approx(2000)
    # 3/2000 .387222 %, the published one-sided 95 % bound, is the upper end of the two-sided 90 % interval
    assert found.high is not None and 100 * found.high == pytest.approx(0.387222, abs=5e-7)
    assert found.low == pytest.approx(bounds(3, 2000).lower)


def test_texts_of_one_ranking_make_it_no_surer_than_one_would() -> None:
    drawn = [Drawn(number // 10, text(f"t{number}"), 7.0) for number in range(100)]
    found = judge_sample(drawn, {f"t{number}": False for number in range(100)}).served
    assert found.effective == pytest.approx(10.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 10)), "no miss in ten says as much"


def test_nothing_labelled_is_unknown_and_huge_weights_do_not_overflow() -> None:
    found = judge_sample([Drawn(0, text("a"), 1e300)], {})
    assert (found.served.share, found.missed.low, found.unlabelled, found.alarm) == (None, None, 1, 1.0)
    huge = judge_sample([Drawn(n, text(f"{n}"), 1e300) for n in range(4)], {"0": True, "1": False, "2": False}).served
    assert huge.share == pytest.approx(1 / 3) and huge.effective == pytest.approx(3.0)
    assert share_interval(1.0, 5.0, 0.95)[1] == 1.0


def test_the_weighted_estimate_is_right_on_average_and_its_interval_covers() -> None:
    # 2,000 served texts, 40 of them unsafe; rankings of the first half were drawn with .3, of the second with .1
    rng = np.random.default_rng(1)
    unsafe = np.arange(2000) % 50 == 0
    chance = np.where(np.arange(2000) < 1000, 0.3, 0.1)
    shares, covered = [], 0
    texts = [text(f"t{number}") for number in range(2000)]
    labels = {f"t{number}": bool(unsafe[number]) for number in range(2000)}
    for _ in range(200):
        rows = np.flatnonzero(rng.random(2000) < chance).tolist()
        found = judge_sample([Drawn(row, texts[row], 1.0 / chance[row]) for row in rows], labels).served
        assert found.share is not None and found.low is not None and found.high is not None
        shares.append(found.share)
        covered += found.low <= 0.02 <= found.high
    assert np.mean(shares) == pytest.approx(0.02, rel=0.08)
    assert covered >= 190


def test_a_sample_is_read_from_the_log_without_who_was_forgotten(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log",
        ranking("r1", text("one")),
        ranking("r2", text("two"), text("three", passed=False, served=False), user="v", probability=0.1),
        ranking("r3", text("four"), user="w"),
        ForgetEvent(id="f", time=from_seconds(NOW_S), user="w"),
        ranking("r1", text("one")),
        ranking("r4", text("five"), traffic="replay"),
        RankingEvent(id="r5", time=from_seconds(NOW_S), user="u"),
        ranking("r6", text("six"), user="w"),
    )
    sample = read_sample(log)
    assert [each.text.text for each in sample.drawn] == ["one", "two", "three", "six"]
    assert [each.weight for each in sample.drawn] == [2.0, 10.0, 10.0, 2.0]
    assert [each.ranking for each in sample.drawn] == [0, 1, 1, 2]
    assert (sample.rankings, sample.audited, sample.forgotten, sample.repeated) == (6, 3, 1, 1)
    assert sample.uneven and dict(sample.probabilities) == {0.5: 2, 0.1: 2}
    assert read_sample(log, NOW_S + 1.0).drawn == []


def test_the_alarm_is_the_average_of_likelihood_ratios_at_its_highest() -> None:
    missed = [False] * 50 + [True] + [False] * 30 + [True, False]
    worse = (0.004, 0.005, 0.0075, 0.01, 0.02)

    def average(outcomes: list[bool]) -> float:
        odds = [math.prod((q / 0.003) if miss else (1 - q) / 0.997 for miss in outcomes) for q in worse]
        return sum(odds) / len(odds)

    expected = max(1.0, *(average(missed[:count]) for count in range(1, len(missed) + 1)))
    assert miss_evidence(missed) == pytest.approx(expected)
    assert miss_evidence([True] * 5) > 20.0 > miss_evidence([False] * 1000)
    assert math.isfinite(miss_evidence([True] * 10_000))


def test_labels_that_are_null_are_not_judged_and_one_that_is_both_is_unsafe(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        '{"text": "a", "unsafe": null}\n\n{"text": "b", "unsafe": false, "score": 1}\n'
        '{"text": "c", "unsafe": true}\n{"text": "c", "unsafe": false}\n'
    )
    assert read_judged(path) == {"b": False, "c": True}
    path.write_text('{"text": "a", "unsafe": null}')
    with pytest.raises(LabelError, match="no text has been judged"):
        read_judged(path)
    path.write_text('{"text": "a", "unsafe": true}\n{"text": "a"}')
    with pytest.raises(LabelError, match=r"labels\.jsonl:2"):
        read_judged(path)
