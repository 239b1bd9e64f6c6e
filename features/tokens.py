"""What happened as words: events of a session, and terms of a text."""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from features.events import InteractionEvent
from features.situation import scalar_fields

MAX_TEXT_CHARS = 600
MAX_TERMS = 256

Terms = NDArray[np.uint32]

_WORD = re.compile(r"[^\W_]+|[^\w\s]", re.UNICODE)


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


def text_terms(text: str) -> Terms:
    """Hashes of words, pairs of words and character 3- to 4-grams of a text, without repeats, at most MAX_TERMS."""
    words = _WORD.findall(text[:MAX_TEXT_CHARS].lower())
    terms = [f"w{word}" for word in words]
    terms += [f"b{first} {second}" for first, second in zip(words, words[1:], strict=False)]
    terms += [f"c{padded[i : i + n]}" for word in words for padded in (f" {word} ",) for n in (3, 4) for i in range(max(0, len(padded) - n + 1))]
    return hash_terms(terms)


def hash_terms(terms: list[str]) -> Terms:
    """CRC-32 of each distinct term, in order of first appearance."""
    distinct = list(dict.fromkeys(terms))[:MAX_TERMS]
    return np.fromiter((zlib.crc32(term.encode("utf-8", "surrogatepass")) for term in distinct), np.uint32, len(distinct))
