"""The linear text model: logits by hand, the same bits after a file, and broken files refused."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save

from features.events import Context
from features.rows import SaidText, SessionRow, Token
from features.text_model import TextModel, TextModelError
from features.text_terms import BUCKETS, TERMS_VERSION, SituationTerms, simple_terms, situation_terms
from features.tokens import text_terms


def model() -> TextModel:
    """Weights that float16 holds exactly."""
    weights = np.array([[1.0, -2.0, 0.5], [0.25, 0.0, 3.0]], np.float32)
    return TextModel(("a", "b", "c"), np.array([3, 70], np.uint32), weights, np.array([0.5, 0.0, -1.0], np.float32))


def terms(**weights: float) -> SituationTerms:
    buckets = np.array([int(name[1:]) for name in weights], np.uint32)
    return SituationTerms(buckets, np.array(list(weights.values()), np.float32))


def test_scores_are_the_log_softmax_of_bias_and_weighted_rows() -> None:
    logits = np.array([0.5 + 2 * 1.0 - 0.25, 2 * -2.0, -1.0 + 2 * 0.5 - 3.0])
    expected = logits - np.log(np.exp(logits).sum())
    found = model().scores(terms(_3=2.0, _70=-1.0, _9=100.0), ("c", "x", "a", "b", "c"))
    assert found[[2, 3, 0]] == pytest.approx(expected)
    assert found[4] == found[0]
    assert np.isnan(found[1])


def test_a_bucket_that_comes_twice_counts_twice() -> None:
    twice = SituationTerms(np.array([3, 3], np.uint32), np.array([1.0, 0.5], np.float32))
    assert model().scores(twice, ("a", "b", "c")) == pytest.approx(model().scores(terms(_3=1.5), ("a", "b", "c")))


def test_without_terms_the_bias_speaks_and_extreme_logits_stay_finite() -> None:
    bias = np.array([0.5, 0.0, -1.0])
    assert model().scores(terms(), ("a", "b", "c")) == pytest.approx(bias - np.log(np.exp(bias).sum()))
    assert np.isfinite(model().scores(terms(_3=1e6), ("a", "b", "c"))).all()
    assert model().scores(terms(_3=1.0), ()).shape == (0,)


def test_a_file_gives_the_same_model() -> None:
    back = TextModel.from_bytes(model().to_bytes())
    some = terms(_3=0.3, _70=1.7)
    assert back.actions == ("a", "b", "c")
    assert np.array_equal(back.scores(some, "abc"), model().scores(some, "abc"))
    assert back.to_bytes() == model().to_bytes()


def rewritten(**changes: Any) -> bytes:
    tensors: dict[str, NDArray[Any]] = dict(load(model().to_bytes()))
    meta = json.loads(tensors["meta"].tobytes())
    for name, value in changes.items():
        if name in tensors:
            tensors[name] = value
        else:
            meta[name] = value
    if "meta" not in changes:
        tensors["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    return save(tensors)


NAN16 = np.full((2, 3), np.nan, np.float16)
BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "no safetensors": b"hello, world" * 20,
    "foreign tensors": save({"x": np.zeros(3, np.float32)}),
    "cut": model().to_bytes()[:-7],
    "a header that lies": b"\xff" * 8 + model().to_bytes()[8:],
    "NaN weights": rewritten(weights=NAN16),
    "infinite bias": rewritten(bias=np.array([np.inf, 0, 0], np.float32)),
    "terms of another version": rewritten(terms=TERMS_VERSION + 1),
    "other buckets": rewritten(buckets=np.array([3, BUCKETS], np.uint32)),
    "signed buckets": rewritten(buckets=np.array([3, -1], np.int64)),
    "a bucket twice": rewritten(buckets=np.array([3, 3], np.uint32)),
    "buckets in a square": rewritten(buckets=np.array([[3], [4]], np.uint32)),
    "too few weights": rewritten(weights=np.zeros((1, 3), np.float16)),
    "too long a bias": rewritten(bias=np.zeros(4, np.float32)),
    "no actions": rewritten(actions=[], weights=np.zeros((2, 0), np.float16), bias=np.zeros(0, np.float32)),
    "an action twice": rewritten(actions=["a", "a", "b"]),
    "actions that are numbers": rewritten(actions=[1, 2, 3]),
    "actions that are no list": rewritten(actions=5),
    "actions in lists": rewritten(actions=[["a"], ["b"], ["c"]]),
    "meta that is no JSON": rewritten(meta=np.frombuffer(b"\xff{", np.uint8)),
    "meta that is null": rewritten(meta=np.frombuffer(b"null", np.uint8)),
    "meta nested without end": rewritten(meta=np.frombuffer(b"[" * 100_000, np.uint8)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused(name: str) -> None:
    with pytest.raises(TextModelError, match="text model"):
        TextModel.from_bytes(BROKEN[name])


def test_flipped_bytes_are_refused_or_give_a_finite_model() -> None:
    draw, whole = random.Random(1), model().to_bytes()
    for _ in range(600):
        broken = bytearray(whole)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        try:
            scores = TextModel.from_bytes(bytes(broken)).scores(terms(_3=1.0), "abc")
        except TextModelError:
            continue
        assert len(scores) == 3


def said(text: str, time_s: float = 1.0) -> SaidText:
    words, pairs = text_terms(text)
    return SaidText(time_s, 1, "said", words.tobytes(), pairs.tobytes())


def test_the_same_situation_gives_the_same_terms_and_what_is_said_changes_them() -> None:
    session = SessionRow(tokens=[Token(1.0, 1, "said")], texts=[said("hello there")])
    one = situation_terms("u", Context(text="crop it"), session)
    again = situation_terms("u", Context(text="crop it"), session)
    assert np.array_equal(one.buckets, again.buckets)
    assert np.array_equal(one.weights, again.weights)
    for other in (
        situation_terms("v", Context(text="crop it"), session),
        situation_terms("u", Context(text="crop"), session),
        situation_terms("u", Context(text="crop it", surface="chat"), session),
        situation_terms("u", Context(text="crop it"), SessionRow(texts=[said("hello")])),
    ):
        assert not np.array_equal(one.buckets, other.buckets)


def test_each_group_has_the_length_of_its_weight_whatever_its_size() -> None:
    for text in ("one", "one two three four five six seven"):
        found = simple_terms(Context(), SessionRow(texts=[said(text)]))
        assert np.square(found.weights).sum() == pytest.approx(2.0), "the fields and the last text weigh 1 each"


def test_a_session_full_of_long_texts_gives_a_bounded_number_of_terms() -> None:
    long = " ".join(f"wörd{chr(97 + number % 26)}{number}" for number in range(400))
    session = SessionRow(
        tokens=[Token(float(i), i, "w" * 400) for i in range(48)], texts=[said(long, float(i)) for i in range(3)]
    )
    fields: dict[str, Any] = {f"list{number}": ["🦜" * 4096] * 100 for number in range(1000)}
    found = situation_terms("u" * 256, Context(text="🦜 " * 2048, fields=fields), session)
    assert len(found.buckets) == len(found.weights) < 8 * 1024
    assert int(found.buckets.max()) < BUCKETS
    assert len(situation_terms("u", Context(), None).buckets) > 0
