"""Words of events and terms of texts."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from features import tokens
from features.events import InteractionEvent

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def test_an_event_is_its_type_and_short_fields_and_an_own_action_is_the_action() -> None:
    said = InteractionEvent(id="1", time=NOW, user="u", type="query", fields={"z": 1, "api": "weather", "o": ["x"]})
    done = InteractionEvent(id="1", time=NOW, user="u", type="query", action="crop")
    assert tokens.interaction_word(said) == "query api=weather z=1"
    assert tokens.interaction_word(done) == tokens.done_word("crop") == "+crop"
    assert tokens.dismissed_word("crop") == "!crop"


def test_words_are_lower_case_with_numbers_by_their_length() -> None:
    assert tokens.words_of("Call ÄNNE at 17:30, room 12345678! Why_not?") == [
        "call", "änne", "at", "#2", "#2", "room", "#4", "!", "why", "not", "?",
    ]  # fmt: skip
    assert tokens.words_of("") == []


def test_terms_are_crc32_of_distinct_words_and_of_pairs_with_both_ends() -> None:
    words, pairs = tokens.text_terms("go go there")
    assert words.tolist() == [zlib.crc32(b"go"), zlib.crc32(b"there")]
    assert pairs.tolist() == [zlib.crc32(pair) for pair in (b"^_go", b"go_go", b"go_there", b"there_$")]


def test_characters_run_over_word_borders() -> None:
    assert tokens.character_terms("ab c").tolist() == [
        zlib.crc32(run) for run in (b" ab", b"ab ", b"b c", b" c ", b" ab ", b"ab c", b"b c ")
    ]


@given(st.text(max_size=3000))
def test_any_text_gives_a_bounded_number_of_terms(text: str) -> None:
    for terms in (*tokens.text_terms(text), tokens.character_terms(text)):
        assert terms.dtype == np.uint32
        assert len(terms) <= tokens.MAX_TERMS


def test_only_the_beginning_of_a_long_text_counts() -> None:
    assert tokens.words_of("a " * 5000) == ["a"] * 300
    assert len(tokens.text_terms(" ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(600)))[0]) <= 256
