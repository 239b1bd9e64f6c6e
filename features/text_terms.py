"""The situation as weighted hashed terms, the input of the linear text model.

Groups: who and where; the course of events (n-grams of words and actions, with and without the app's
fields); what happened at all; the last text, also crossed with the fields and the last event; the texts
before it; and the text of the context itself. Each group has the same length whatever its size:
every term of a group of n terms weighs weight/√n.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.events import Context
from features.rows import SaidText, SessionRow, Token
from features.situation import list_fields, scalar_fields
from features.tokens import character_terms, hash_distinct, hash_terms, text_terms

TERMS_VERSION = 1
BUCKET_BITS = 18
BUCKETS = 1 << BUCKET_BITS

WHERE_WEIGHT, COURSE_WEIGHT, BAG_WEIGHT, LAST_TEXT_WEIGHT, TEXT_WEIGHT = 1.0, 1.2, 1.0, 1.8, 0.8
CONTEXT_WORD_WEIGHT, CONTEXT_CHARACTER_WEIGHT = 2.0, 1.2

_GOLDEN, _SALT, _MIX = np.uint32(0x9E3779B1), 0x85EBCA6B, np.uint32(0xC2B2AE35)
_HALF = np.uint32(15)
_SHIFT = np.uint32(32 - BUCKET_BITS)
_EMPTY = SessionRow()


@dataclass(frozen=True)
class SituationTerms:
    """Buckets [terms] in [0, BUCKETS) and their weights [terms]; a bucket may come twice."""

    buckets: NDArray[np.uint32]
    weights: NDArray[np.float32]


Part = tuple[str, bytes]
"""Hashed terms (little-endian uint32) under a salt."""


class Group(NamedTuple):
    """Parts that share a weight."""

    weight: float
    parts: Sequence[Part]


def situation_terms(user: str, context: Context, session: SessionRow | None) -> SituationTerms:
    """All groups; an empty one contributes nothing."""
    session = session or _EMPTY
    fields = " ".join(scalar_fields(context.fields))
    groups = [
        Group(WHERE_WEIGHT, [("", hash_terms(_where(user, context, fields)).tobytes())]),
        Group(COURSE_WEIGHT, [("", hash_distinct(_course(user, fields, session)).tobytes())]),
        Group(BAG_WEIGHT, [("", hash_distinct(_bag(fields, session)).tobytes())]),
        Group(LAST_TEXT_WEIGHT, _last_text(fields, session)),
        *(Group(TEXT_WEIGHT, _recent(age, said)) for age, said in enumerate(reversed(session.texts))),
    ]
    if context.text:
        groups += _context_text(fields, context.text)
    return _join(groups)


def simple_terms(context: Context, session: SessionRow | None) -> SituationTerms:
    """The linear baseline's input: the fields, the last four events, the last text and the context's text."""
    session = session or _EMPTY
    words = [token.word for token in session.tokens[:-5:-1]]
    where = [" ".join(scalar_fields(context.fields)), *(f"{age}|{word}" for age, word in enumerate(words))]
    last = [Group(1.0, [("simple", said.words)]) for said in session.texts[-1:]]
    text = [Group(1.0, [("simple text", text_terms(context.text)[0].tobytes())])] if context.text else []
    return _join([Group(1.0, [("", hash_terms(where).tobytes())]), *last, *text])


def _join(groups: Sequence[Group]) -> SituationTerms:
    """Buckets of all groups' terms: the same word under two salts is two terms."""
    parts = [part for group in groups for part in group.parts]
    terms = np.frombuffer(b"".join([hashes for _, hashes in parts]), "<u4")
    sizes = [len(hashes) >> 2 for _, hashes in parts]
    salts = np.array([_offset(salt) for salt, _ in parts], np.uint32).repeat(sizes)
    mixed = (terms * _GOLDEN) ^ salts
    buckets = (mixed ^ (mixed >> _HALF)) * _MIX >> _SHIFT
    weights = np.array([weight for group in groups for weight in _part_weights(group)], np.float32)
    return SituationTerms(buckets, weights.repeat(sizes))


def _part_weights(group: Group) -> list[float]:
    size = sum([len(hashes) >> 2 for _, hashes in group.parts])
    return [group.weight / size**0.5 if size else 0.0] * len(group.parts)


def _offset(salt: str) -> int:
    return zlib.crc32(salt.encode("utf-8", "surrogatepass")) * _SALT & 0xFFFFFFFF


def _where(user: str, context: Context, fields: str) -> list[str]:
    lists = list_fields(context.fields)
    return [
        f"f {fields}",
        f"u {user}",
        f"s {context.surface} {context.locale}",
        f"t {context.trigger.type if context.trigger else ''}",
        f"l {' '.join(sorted(lists))}",
        *(f"i {element}" for element in lists),
        *(f"y {kind}" for kind in sorted({entity.type for entity in context.entities})),
    ]


def _course(user: str, fields: str, session: SessionRow) -> list[str]:
    """Each term begins with a letter and a number of its own."""
    words = [token.word for token in session.tokens[:-7:-1]] + ["^"]
    actions = [done.action for done in session.actions[:-4:-1]]
    terms = [f"e{age} {word}" for age, word in enumerate(words[:6])]
    for order in (1, 2, 3, 4):
        path = "|".join(words[:order])
        terms += [f"n{order} {path}", f"F{order} {fields} {path}"]
        if order <= 2:
            terms.append(f"U{order} {user} {path}")
    for order in (1, 2, 3):
        path = "|".join(actions[:order])
        terms += [f"p{order} {path}", f"P{order} {fields} {path}"]
    return terms


def _bag(fields: str, session: SessionRow) -> list[str]:
    """At most 4 terms per distinct word, and those of one kind begin with a letter of their own."""
    counts = Counter(token.word for token in session.tokens)
    stretch = _since_mention(fields.split(" "), session.tokens)
    terms = [f"b {word}" for word in counts]
    terms += [f"c {min(count, 3)} {word}" for word, count in counts.items()]
    terms += [f"s {word}" for word in stretch]
    terms += [f"S {fields} {word}" for word in stretch]
    sizes = (len(session.actions), session.events, len(stretch))
    return terms + [f"z{place} {min(size, 12)}" for place, size in enumerate(sizes)]


def _since_mention(fields: list[str], tokens: list[Token]) -> list[str]:
    """Distinct words since the last event that named one of the app's present fields (a task chosen, say)."""
    stretch: dict[str, None] = {}
    for token in reversed(tokens):
        stretch[token.word] = None
        if any(part in fields for part in token.word.split(" ")[1:]):
            break
    return list(stretch)


def _last_text(fields: str, session: SessionRow) -> list[Part]:
    if not session.texts:
        return []
    said = session.texts[-1]
    words, pairs = said.words, said.pairs
    event = session.tokens[-1].word if session.tokens else ""
    return [("lw", words), ("lp", pairs), (f"lf {fields}", words), (f"le {event}", words)]


def _recent(age: int, said: SaidText) -> list[Part]:
    salt = f"r{age} {said.label}"
    words = (salt, said.words)
    return [words] if age else [words, (salt + " 2", said.pairs)]


def _context_text(fields: str, text: str) -> list[Group]:
    words, pairs = (terms.tobytes() for terms in text_terms(text))
    whole = hash_distinct([text.strip().lower()]).tobytes()
    return [
        Group(CONTEXT_WORD_WEIGHT, [("xw", words), ("xp", pairs), ("x=", whole), (f"xf {fields}", words)]),
        Group(CONTEXT_CHARACTER_WEIGHT, [("xc", character_terms(text).tobytes())]),
    ]
