"""Training of the text scorer: published bounds, the guarantee in expectation, and bad files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from ranker.safety_text import TextScorer
from training.safety import SafetySettings, TrainedSafety, bounds, risk_threshold, train_safety
from training.safety_labels import LabelError, read_labels, split_labels

SAFE = [
    "send",
    "photo",
    "family",
    "garden",
    "recipe",
    "weather",
    "music",
    "walk",
    "friend",
    "calendar",
    "lunch",
    "train",
]
UNSAFE = ["poison", "weapon", "gamble", "overdose", "stolen", "threat"]


def labelled(path: Path, rows: Iterable[tuple[str, object]]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "unsafe": unsafe}) + "\n" for text, unsafe in rows))
    return path


def synthetic(path: Path, n: int, seed: int = 0, unsafe_share: float = 0.5, noise: float = 0.05) -> Path:
    """Texts of common words; an unsafe one has an unsafe word, but for a share `noise` of both classes."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        unsafe = bool(rng.random() < unsafe_share)
        words = [*rng.choice(SAFE, 5), f"n{number}"]
        if unsafe != (rng.random() < noise):
            words.insert(int(rng.integers(5)), str(rng.choice(UNSAFE)))
        rows.append((" ".join(words), unsafe))
    return labelled(path, rows)


@pytest.mark.parametrize(
    ("misses", "of", "percent"),
    [(0, 598, 0.499706), (3, 2000, 0.387222)],
)
def test_upper_bounds_are_the_published_ones(misses: int, of: int, percent: float) -> None:
    upper = bounds(misses, of).upper
    assert upper is not None
    assert 100 * upper == pytest.approx(percent, abs=5e-7)


@pytest.mark.parametrize(
    ("misses", "limit", "needed"),
    [(0, 0.005, 598), (1, 0.005, 947), (2, 0.005, 1258), (3, 0.005, 1549), (5, 0.005, 2100), (0, 0.003, 998)],
)
def test_as_many_unsafe_cases_are_needed_as_published(misses: int, limit: float, needed: int) -> None:
    enough, short = bounds(misses, needed).upper, bounds(misses, needed - 1).upper
    assert enough is not None and short is not None
    assert enough <= limit < short


def test_bounds_at_the_ends_are_closed_and_empty_ones_unknown() -> None:
    assert bounds(0, 10).lower == 0.0
    assert bounds(10, 10).upper == 1.0
    assert bounds(10, 10).lower == pytest.approx(0.05 ** (1 / 10))
    assert bounds(0, 0).share is None


def test_the_threshold_is_the_order_statistic_of_risk_control() -> None:
    scores = np.arange(1, 400) / 400  # n = 399, alpha (n+1) = 2: k = 1, the second smallest
    assert risk_threshold(scores[::-1], 0.005) == pytest.approx(2 / 400)
    assert risk_threshold(scores[:199], 0.005) == pytest.approx(1 / 400)
    assert risk_threshold(scores[:198], 0.005) is None
    assert risk_threshold([], 0.005) is None


def test_misses_are_held_to_alpha_in_expectation() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(3000):
        threshold = risk_threshold(rng.random(50), 0.1)
        assert threshold is not None
        shares.append(threshold)  # scores uniform: the share below the threshold is the threshold
    mean, error = float(np.mean(shares)), float(np.std(shares)) / 3000**0.5
    assert mean == pytest.approx(5 / 51, abs=4 * error)  # E of the 5th smallest of 50
    assert mean <= 0.1


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedSafety:
    path = synthetic(tmp_path_factory.mktemp("labels") / "labels.jsonl", 1500)
    return train_safety(path, SafetySettings(alpha=0.1, bits=14))


def test_a_scorer_learns_which_words_are_unsafe(trained: TrainedSafety) -> None:
    scores = trained.scorer.scores(["walk in the garden with a friend", "send a weapon to the garden"])
    assert scores[0] < 0.5 < scores[1]
    assert trained.report.auc is not None and trained.report.auc > 0.9


def test_the_report_counts_the_judged_part_as_the_scorer_flags_it(trained: TrainedSafety) -> None:
    report = trained.report
    assert report.feasible
    assert report.missed.of + report.withheld.of == pytest.approx(0.2 * report.texts, abs=2)
    assert report.missed.share is not None and report.missed.lower is not None and report.missed.upper is not None
    assert report.missed.lower <= report.missed.share <= report.missed.upper
    assert report.missed.lower <= report.alpha
    assert "of safe text" in report.note


def test_the_model_file_gives_the_scorer_back(trained: TrainedSafety) -> None:
    again = TextScorer.from_bytes(trained.model)
    assert again.threshold == trained.report.threshold
    assert again.scores(["a weapon"]).tolist() == trained.scorer.scores(["a weapon"]).tolist()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    path = synthetic(tmp_path / "labels", 200)
    first, again, other = (train_safety(path, SafetySettings(bits=10, seed=seed)) for seed in (1, 1, 2))
    assert first.model == again.model
    assert first.report == again.report
    assert first.model != other.model


def test_too_few_unsafe_texts_flag_everything_and_say_so(tmp_path: Path) -> None:
    found = train_safety(synthetic(tmp_path / "labels", 300), SafetySettings(bits=10))
    assert not found.report.feasible
    assert found.report.needed == 199
    assert "every text is flagged" in found.report.note
    assert found.scorer.flags(["", "walk", "weapon"]).all()
    assert (found.report.missed.share, found.report.withheld.share) == (0.0, 1.0)


def test_a_rare_class_weighs_as_much_as_the_common_one(tmp_path: Path) -> None:
    path = synthetic(tmp_path / "labels", 1500, unsafe_share=0.03, noise=0.0)
    scorer = train_safety(path, SafetySettings(bits=14)).scorer
    assert scorer.scores(["send a weapon", "send a photo"]).tolist() == sorted(
        scorer.scores(["send a weapon", "send a photo"]).tolist(), reverse=True
    )
    assert scorer.scores(["poison weapon"])[0] > 0.5


def test_repeated_texts_count_once_and_conflicting_ones_are_unsafe(tmp_path: Path) -> None:
    rows = [(f"good {number}", False) for number in range(6)] + [(f"bad {number}", True) for number in range(6)]
    labels = read_labels(labelled(tmp_path / "labels", [*rows, ("good 0", True), ("bad 1", True)]))
    assert (len(labels.texts), labels.repeated, labels.conflicts) == (12, 2, 1)
    assert labels.unsafe[labels.texts.index("good 0")]


def test_parts_are_disjoint_cover_all_and_hold_both_classes() -> None:
    unsafe = np.arange(100) < 5
    parts = split_labels(unsafe, (0.5, 0.3, 0.2), seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    assert all(unsafe[part].any() and not unsafe[part].all() for part in parts)


BAD_LINES = {
    "torn": ('{"text": "a", "uns', "malformed"),
    "not an object": ("[1]", "object"),
    "no text": ('{"unsafe": true}', "`text`"),
    "text not a string": ('{"text": 5, "unsafe": true}', "text"),
    "no label": ('{"text": "a"}', "`unsafe`"),
    "label not a boolean": ('{"text": "a", "unsafe": 1}', "unsafe"),
    "blank text": ('{"text": " ", "unsafe": true}', "text is empty"),
    "long text": (json.dumps({"text": "a" * 4097, "unsafe": True}), "4097 characters"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_with_its_number_and_field(tmp_path: Path, name: str) -> None:
    line, named = BAD_LINES[name]
    path = tmp_path / "labels.jsonl"
    path.write_text('{"text": "fine", "unsafe": false}\n\n' + line + "\n")
    with pytest.raises(LabelError, match=rf"labels\.jsonl:3: .*{named}"):
        train_safety(path)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b'{"text": "\xff", "unsafe": false}\n')
    with pytest.raises(LabelError, match=r"labels\.jsonl:1: "):
        train_safety(path)


@pytest.mark.parametrize("unsafe", [True, False])
def test_a_single_class_is_refused(tmp_path: Path, unsafe: bool) -> None:
    path = labelled(tmp_path / "labels", [(f"text {number}", unsafe) for number in range(20)])
    with pytest.raises(LabelError, match=f"0 texts have `unsafe: {str(not unsafe).lower()}`"):
        train_safety(path)


def test_an_empty_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="0 texts"):
        train_safety(labelled(tmp_path / "labels", []))
    with pytest.raises(LabelError, match="nowhere: cannot be read"):
        train_safety(tmp_path / "nowhere")


@pytest.mark.parametrize("alpha", [0.0, 1.0, float("nan")])
def test_a_limit_outside_zero_to_one_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        SafetySettings(alpha=alpha)
