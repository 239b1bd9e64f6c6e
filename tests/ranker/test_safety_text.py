"""The text scorer: same text, same score; a file that is not one of ours never loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from ranker.safety_text import FORMAT, TextScorer, TextScorerError, buckets, load_text_scorer


def scorer(threshold: float = 0.5, bits: int = 10) -> TextScorer:
    weights = np.random.default_rng(0).normal(0.0, 3.0, 1 << bits).astype(np.float32)
    return TextScorer(weights, -0.25, threshold)


@given(st.lists(st.text(max_size=60), max_size=6))
def test_scores_lie_in_the_unit_interval_and_do_not_depend_on_the_batch(texts: list[str]) -> None:
    model = scorer()
    scores = model.scores(texts)
    assert ((scores >= 0.0) & (scores <= 1.0)).all()
    assert scores.tolist() == [float(model.scores([text])[0]) for text in texts]


@given(st.text(max_size=80))
def test_features_are_distinct_ascending_and_in_range(text: str) -> None:
    found = buckets(text, 12)
    assert (np.diff(found) > 0).all()
    assert not found.size or (found[0] >= 0 and found[-1] < 1 << 12)


def test_the_score_is_the_logistic_of_the_normalised_sum() -> None:
    model = scorer()
    found = buckets("Pay the bill", 10)
    logit = float(model.weights[found].astype(np.float64).sum()) / len(found) ** 0.5 - 0.25
    assert model.scores(["Pay the bill"]) == pytest.approx([1 / (1 + np.exp(-logit))])


@pytest.mark.parametrize("other", ["PAY  the\tBill", "pay the bi\u200bll", "Ｐay the bill", " pay the bill\n"])
def test_case_width_spaces_and_invisible_characters_make_no_difference(other: str) -> None:
    assert buckets(other, 16).tolist() == buckets("pay the bill", 16).tolist()


def test_different_words_share_few_features() -> None:
    one, other = set(buckets("summarize image", 20).tolist()), set(buckets("call mother back", 20).tolist())
    assert len(one & other) <= 1


def test_an_empty_text_scores_by_the_bias_alone() -> None:
    assert scorer().scores(["", " "]) == pytest.approx([1 / (1 + np.exp(0.25))] * 2)


def test_a_text_at_the_threshold_is_flagged_and_zero_flags_everything() -> None:
    texts = ["a", "some longer text", ""]
    exact = float(scorer().scores(texts)[1])
    assert scorer(exact).flags([texts[1]]).tolist() == [True]
    assert scorer(float(np.nextafter(exact, 1.0))).flags([texts[1]]).tolist() == [False]
    assert scorer(0.0).flags(texts).all()


def test_the_file_gives_the_same_scores_and_threshold_to_the_bit(tmp_path: Path) -> None:
    model = scorer(0.1 + 0.2)
    (tmp_path / "safety.safetensors").write_bytes(model.to_bytes())
    again = load_text_scorer(tmp_path / "safety.safetensors")
    assert again.scores(["x y z"]).tobytes() == model.scores(["x y z"]).tobytes()
    assert (again.threshold, again.bias, again.bits) == (model.threshold, model.bias, 10)


def _saved(metadata: dict[str, str], **tensors: np.ndarray) -> bytes:
    return save(tensors, metadata)


OURS = {"format": FORMAT}
ONE = np.array([0.5])
BROKEN = {
    "empty": (b"", "too short"),
    "not safetensors": (b"tree\nversion=v4\nnum_class=1\n", "too short"),
    "header not json": ((4).to_bytes(8, "little") + b"nope", "not a safetensors"),
    "truncated": (scorer().to_bytes()[:-10], "not a safetensors"),
    "another model": (_saved({"format": "pt"}, weights=ONE), "format 'pt'"),
    "no metadata": (save({"weights": ONE}), "format None"),
    "another layout": (_saved({"format": "nextaction-text-scorer/0"}, weights=ONE), "scorer/0' is not"),
    "missing weights": (_saved(OURS, bias=ONE, threshold=ONE), "'weights' is missing"),
    "other type": (_saved(OURS, weights=np.zeros(1024), bias=ONE, threshold=ONE), "float64, not float32"),
    "odd size": (_saved(OURS, weights=np.zeros(1000, np.float32), bias=ONE, threshold=ONE), "shape"),
    "two biases": (_saved(OURS, weights=np.zeros(1024, np.float32), bias=np.zeros(2), threshold=ONE), "'bias'"),
    "nan": (_saved(OURS, weights=np.full(1024, np.nan, np.float32), bias=ONE, threshold=ONE), "finite"),
    "threshold": (_saved(OURS, weights=np.zeros(1024, np.float32), bias=ONE, threshold=ONE + 1), "threshold 1.5"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_foreign_file_is_one_clear_error_that_names_it(tmp_path: Path, name: str) -> None:
    raw, reason = BROKEN[name]
    path = tmp_path / "scorer"
    path.write_bytes(raw)
    with pytest.raises(TextScorerError, match=reason) as caught:
        load_text_scorer(path)
    assert str(caught.value).startswith(str(path))


def test_a_header_that_is_not_an_object_is_refused() -> None:
    header = json.dumps([1]).encode()
    with pytest.raises(TextScorerError, match="format None"):
        TextScorer.from_bytes(len(header).to_bytes(8, "little") + header)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_error(raw: bytes) -> None:
    with pytest.raises(TextScorerError):
        TextScorer.from_bytes(raw)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextScorerError, match="nowhere: cannot be read"):
        load_text_scorer(tmp_path / "nowhere")
