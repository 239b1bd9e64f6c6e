"""Tokens: bytes that say all the model reads, and the unknown where something is not known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from features.registry import COLUMNS
from features.tokens import hash_terms
from ranker.second.config import Sizes
from ranker.second.direct import score_direct, see
from ranker.second.happenings import Course, Happening
from ranker.second.tokens import encode_candidates, encode_events, encode_request, pack_events, unpack_events
from ranker.second.vocabulary import FIRST, UNKNOWN, Known, Vocabulary, learn_vocabulary
from tests.ranker.second.made import KNOWN, SIZES, context, course, model

VOCABULARY = Vocabulary(KNOWN)


def test_packed_events_are_all_that_the_model_reads() -> None:
    tokens = encode_events(course(20).kept, None, VOCABULARY, SIZES)
    packed = pack_events(tokens)
    assert len({len(each) for each in packed}) == 1
    assert (unpack_events(packed, SIZES) == tokens).all()


def test_appending_to_what_was_encoded_is_encoding_all() -> None:
    kept = course(20).kept
    whole = encode_events(kept, 5.0, VOCABULARY, SIZES)
    parts = [encode_events(kept[:7], 5.0, VOCABULARY, SIZES), encode_events(kept[7:], kept[6], VOCABULARY, SIZES)]
    assert (np.concatenate(parts) == whole).all()


def test_a_token_says_nothing_of_the_request_that_reads_it() -> None:
    now, made = course(9), model()
    early = see(made, now, now.kept[-1].time_s, "u", "s", context())
    late = see(made, now, now.kept[-1].time_s + 1e6, "u", None, context("typed"))
    assert (early.tokens == late.tokens).all()


def test_unknown_and_deleted_actions_types_and_words_become_trained_unknowns() -> None:
    happening = Happening(
        1e9, 0, 0, "i:nobody heard of it", "withdrawn", "moon", "ghost", 1, hash_terms(["xyzzy"]).tobytes()
    )
    tokens = encode_events([happening], None, VOCABULARY, SIZES)
    assert [int(tokens[name][0]) for name in ("action", "kind", "surface", "target")] == [UNKNOWN] * 4
    assert tokens["terms"][0].tolist() == [UNKNOWN, 0, 0, 0]
    made, strange = model(), Course()
    strange.add(happening, None)
    seen = see(made, strange, 1e9 + 1, "u", "s", context("qwertz"))
    offered = encode_candidates(
        ["withdrawn", "a1"], ["ghost:1", None], np.zeros((2, len(COLUMNS)), np.float32), np.zeros(2), VOCABULARY
    )
    assert offered.actions.tolist() == [UNKNOWN, FIRST + KNOWN.actions.index("a1")]
    assert bool(torch.isfinite(score_direct(made, seen, offered)).all())


def test_a_vocabulary_of_nothing_knows_nothing_and_does_not_fail() -> None:
    empty = Vocabulary(Known())
    tokens = encode_events(course(5).kept, None, empty, SIZES)
    assert set(tokens["action"].tolist()) <= {0, UNKNOWN}
    assert set(tokens["terms"].ravel().tolist()) <= {0, UNKNOWN}


def test_vectors_that_do_not_fit_the_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="for 1 candidates"):
        encode_candidates(["a1"], [None], np.zeros((2, len(COLUMNS)), np.float32), np.zeros(1), VOCABULARY)


def test_more_terms_than_are_kept_are_cut() -> None:
    sizes = Sizes(dim=8, heads=1, terms=2)
    terms = np.array([100, 101, 102], "<u4").tobytes()
    tokens = encode_events([Happening(0.0, 0, 0, "i:typed", terms=terms)], None, VOCABULARY, sizes)
    assert tokens["terms"].tolist() == [[FIRST, FIRST + 1]]


def test_a_request_knows_whether_the_history_ends_in_its_session() -> None:
    last = Happening(1e9, 0, 0, "i:typed", session=0)
    named = encode_request(1e9 + 60, "u", "s", context(), last, VOCABULARY, SIZES)
    unnamed = encode_request(1e9 + 60, "u", None, context(), last, VOCABULARY, SIZES)
    assert (named.fresh, unnamed.fresh, named.gap_s) == (1, 0, 60.0)


def test_what_happened_often_enough_is_known_and_the_catalogue_is_too() -> None:
    often = [Happening(0.0, n, 0, "i:typed", "x", "chat", "image", 0, hash_terms(["hi"]).tobytes()) for n in range(3)]
    once = [Happening(9.0, 9, 0, "i:rare", "y", "moon", "ghost", 0, hash_terms(["once"]).tobytes())]
    known = learn_vocabulary([*often, *once], ["listed"], 3, 100, 100)
    assert known.actions == ["listed", "x"]
    assert known.kinds == ["accepted", "completed", "dismissed", "offered", "i:typed"]
    assert (known.surfaces, known.targets) == (["chat"], ["image"])
    assert known.words == hash_terms(["hi"]).tolist()
