"""`nextaction calibrate-safety`: the threshold that is served from then on, with its evidence."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ranker.safety_text import TextScorer, load_text_scorer
from tests.command_line import Nextaction
from training.safety_cases import carried_cases
from training.safety_labels import LabelError
from training.safety_record import read_record, weights_sha256


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def words(path: Path, count: int, start: int = 0) -> Path:
    """As many unsafe as safe texts, told apart by a word."""
    rows = [
        {"text": f"{word} someone {number}", "unsafe": word == "kill"}
        for word in ("kill", "kiss")
        for number in range(start, start + count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def models(nextaction: Nextaction, tmp_path: Path) -> Path:
    train = ("train", "safety", "--labelled", words(tmp_path / "train.jsonl", 40), "--alpha", "0.1")
    assert nextaction(*train, "--models", tmp_path / "m").status == 0
    return tmp_path / "m"


def test_the_threshold_is_written_where_the_service_loads_it_with_its_evidence(
    nextaction: Nextaction, models: Path, tmp_path: Path
) -> None:
    before = load_text_scorer(models / "safety.safetensors")
    labelled = words(tmp_path / "held_out.jsonl", 120, start=1000)
    done = nextaction(
        "calibrate-safety",
        "--labelled",
        labelled,
        "--models",
        models,
        "--limit",
        ".05",
        "--confidence",
        ".95",
        "--json",
    )
    assert (done.status, done.err) == (0, "")
    found = done.json
    unsafe = np.sort(before.scores([f"kill someone {number}" for number in range(1000, 1120)]))
    # P(Bin(120, .05) <= 1) = .0155, <= 2 = .0575: one miss is allowed, and .05 · 121 = 6.05 gives k = 5
    assert found["threshold"] == found["methods"]["ltt"]["value"] == unsafe[1]
    assert found["methods"]["conformal"]["value"] == unsafe[5]
    assert (found["unsafe"], found["safe"], found["missed"]["count"], found["feasible"]) == (120, 120, 1, True)
    assert found["needed_by_misses"][:2] == [59, 93] and found["until_now"]["threshold"] == before.threshold
    after = load_text_scorer(Path(found["file"]))
    assert after.threshold == unsafe[1] and np.array_equal(after.weights, before.weights)
    record = read_record(models)
    assert record is not None and record.calibration is not None and Path(found["evidence"]).exists()
    assert record.scorer_sha256 == hashlib.sha256((models / "safety.safetensors").read_bytes()).hexdigest()
    assert record.weights_sha256 == weights_sha256(before)
    assert record.trained_on_sha256 == hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()
    assert record.calibration.labelled_sha256 == hashlib.sha256(labelled.read_bytes()).hexdigest()
    assert (record.calibration.limit, record.calibration.method, record.calibration.missed.count) == (0.05, "ltt", 1)
    shown = nextaction("calibrate-safety", "--labelled", labelled, "--models", models, "--limit", ".05", "--dry-run")
    assert "conformal" in shown.out and "nothing was written" in shown.out and "withholds" in shown.out


def test_too_few_unsafe_texts_change_nothing_unless_that_is_wanted(
    nextaction: Nextaction, models: Path, tmp_path: Path
) -> None:
    before = (models / "safety.safetensors").read_bytes()
    labelled = words(tmp_path / "held_out.jsonl", 30, start=1000)
    ask = ("calibrate-safety", "--labelled", labelled, "--models", models)
    done = nextaction(*ask, "--json")
    assert (done.status, done.json["feasible"], done.json["needed"], done.json["file"]) == (3, False, 598, None)
    assert "infeasible: 30 unsafe cases" in done.err and "568 more" in done.err
    assert (models / "safety.safetensors").read_bytes() == before
    done = nextaction(*ask, "--method", "conformal", "--allow-infeasible", "--json")
    assert (done.status, done.json["needed"], done.json["threshold"]) == (0, 199, 0.0)
    assert load_text_scorer(models / "safety.safetensors").threshold == 0.0
    assert done.json["withheld"]["share"] == 1.0


def test_a_scorer_calibrated_by_what_it_learned_from_is_warned_about(
    nextaction: Nextaction, models: Path, tmp_path: Path
) -> None:
    ask = ("calibrate-safety", "--models", models, "--limit", ".2", "--json", "--labelled")
    done = nextaction(*ask, tmp_path / "train.jsonl")
    assert done.status == 0 and "learned from" in done.err and len(done.json["warnings"]) == 1
    # the new threshold does not make it forget what it learned from
    assert "learned from" in nextaction(*ask, tmp_path / "train.jsonl").err
    assert nextaction(*ask, words(tmp_path / "other.jsonl", 40, start=500)).err == ""
    # nor is a scorer of other weights taken for the one that was trained
    scorer = load_text_scorer(models / "safety.safetensors")
    (models / "safety.safetensors").write_bytes(replace(scorer, bias=scorer.bias + 1.0).to_bytes())
    assert nextaction(*ask, tmp_path / "train.jsonl").err == ""


def test_lines_may_carry_their_scores(nextaction: Nextaction, tmp_path: Path) -> None:
    rows = [{"unsafe": True, "s": 3.0 + number} for number in range(600)] + [{"unsafe": False, "s": -4}] * 300
    (tmp_path / "scored.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = nextaction("calibrate-safety", "--labelled", tmp_path / "scored.jsonl", "--scores", "s", "--json")
    assert (done.status, done.json["threshold"], done.json["file"]) == (0, 3.0, None)
    assert done.json["withheld"]["count"] == 0 and done.json["safe"] == 300


def test_a_repeated_text_counts_once_and_as_unsafe_when_in_doubt(tmp_path: Path) -> None:
    rows = [{"text": "a", "unsafe": False, "s": 0.5}, {"text": "a", "unsafe": True, "s": 0.5}]
    (tmp_path / "twice.jsonl").write_text("\n".join(map(json.dumps, rows)))
    cases = carried_cases(tmp_path / "twice.jsonl", "s")
    assert (cases.scores.tolist(), cases.unsafe.tolist(), cases.repeated, cases.conflicts) == ([0.5], [True], 1, 1)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"unsafe": true, "s": NaN}', "one.jsonl:1"),
        ('{"unsafe": true, "s": null}', "None is not a finite score - at `$.s`"),
        ('{"unsafe": true, "s": "0.5"}', "'0.5' is not a finite score"),
        ('{"unsafe": true, "s": true}', "True is not a finite score"),
        ('{"unsafe": true}', "None is not a finite score"),
        ('{"unsafe": null, "s": 1}', "at `$.unsafe`"),
        ('{"text": 3, "unsafe": true, "s": 1}', "at `$.text`"),
        ("[]", "one.jsonl:1"),
        ('{"text": "a", "unsafe": true, "s": 1}\n{"text": "a", "unsafe": true, "s": 2}', "one.jsonl:2"),
    ],
)
def test_a_line_that_is_no_case_is_named(line: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(line)
    with pytest.raises(LabelError) as caught:
        carried_cases(tmp_path / "one.jsonl", "s")
    assert word in str(caught.value)


def test_what_is_missing_or_broken_is_one_line(nextaction: Nextaction, models: Path, tmp_path: Path) -> None:
    labelled = words(tmp_path / "held_out.jsonl", 30)
    ask = ("calibrate-safety", "--labelled", labelled, "--models")
    for folder, word in ((tmp_path / "none", "there is no scorer"), (models, "is no evidence")):
        (models / "safety.evidence.json").write_text("{")
        done = nextaction(*ask, folder)
        assert done.status == 1 and word in done.err and len(done.err.splitlines()) == 1
    assert nextaction("calibrate-safety", "--labelled", labelled).status == 2
    assert nextaction("calibrate-safety", "--labelled", tmp_path / "none", "--scores", "s").status == 1


def test_a_scorer_that_was_replaced_meanwhile_is_not_overwritten(models: Path) -> None:
    from training.errors import TrainingError
    from training.safety import bounds
    from training.safety_record import CalibrationRecord, install_threshold

    was = TextScorer(np.zeros(256, np.float32), 0.0, 0.5)
    none = bounds(0, 0)
    record = CalibrationRecord("now", "f", "0", "ltt", 0.1, 0.9, 0.4, True, 0, 0, none, none)
    with pytest.raises(TrainingError, match="replaced meanwhile"):
        install_threshold(models, was, record)
