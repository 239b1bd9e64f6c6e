"""What happened as words: events of a session, and terms of a text."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from features.events import InteractionEvent
from features.situation import scalar_fields

MAX_TEXT_CHARS = 600
MAX_TERMS = 256

Terms = NDArray[np.uint32]

_WORD = re.compile(r"[^\W\d_]+|\d+|[?!]")


def interaction_word(event: InteractionEvent) -> str:
    """`query api=weather`: the type and the short fields; an action the user did by himself is `+action`."""
    if event.action is not None:
        return done_word(event.action)
    return " ".join([event.type[:64], *scalar_fields(event.fields)[:3]])


def done_word(action: str) -> str:
    """An action that was accepted or done."""
    return f"+{action}"


def dismissed_word(action: str) -> str:
    """An action that was dismissed."""
    return f"!{action}"


def words_of(text: str) -> list[str]:
    """Lower-case words, numbers as their number of digits, and punctuation that ends a sentence."""
    found = _WORD.findall(text[:MAX_TEXT_CHARS].lower())
    return [f"#{min(len(word), 4)}" if word.isdigit() else word for word in found]


def text_terms(text: str) -> tuple[Terms, Terms]:
    """Hashes of the distinct words, and of the distinct pairs of neighbours, of a text."""
    words = words_of(text)
    pairs = [f"{first}_{second}" for first, second in itertools.pairwise(["^", *words, "$"])]
    return hash_terms(words), hash_terms(pairs)


def character_terms(text: str) -> Terms:
    """Hashes of the distinct runs of 3 and 4 characters of a text's words."""
    joined = f" {' '.join(words_of(text))} "
    return hash_terms([joined[i : i + n] for n in (3, 4) for i in range(len(joined) - n + 1)])


def hash_terms(terms: Iterable[str]) -> Terms:
    """CRC-32 of each distinct term in order of first appearance, at most MAX_TERMS."""
    return hash_distinct(list(dict.fromkeys(terms))[:MAX_TERMS])


def hash_distinct(terms: Sequence[str]) -> Terms:
    """CRC-32 of terms of which no two are the same, at most MAX_TERMS."""
    assert len(terms) <= MAX_TERMS, f"{len(terms)} terms"
    try:
        return np.fromiter(map(zlib.crc32, map(str.encode, terms)), np.uint32, len(terms))
    except UnicodeEncodeError:  # half a surrogate pair, as JSON may hold; naming a handler for it costs every term
        encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
    return np.fromiter(map(zlib.crc32, encoded), np.uint32, len(encoded))
