"""The situation as weighted hashed terms, the input of the linear text model.

Groups: who and where; the course of events (n-grams of words and actions, with and without the app's
fields); what happened at all; the last text, also crossed with the fields and the last event; the texts
before it; and the text of the context itself. Each group has the same length whatever its size:
every term of a group of n terms weighs weight/√n.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.events import Context
from features.rows import SaidText, SessionRow, Token
from features.situation import list_fields, scalar_fields
from features.tokens import Terms, character_terms, hash_terms, text_terms

TERMS_VERSION = 1
BUCKET_BITS = 18
BUCKETS = 1 << BUCKET_BITS

WHERE_WEIGHT, COURSE_WEIGHT, BAG_WEIGHT, LAST_TEXT_WEIGHT, TEXT_WEIGHT = 1.0, 1.2, 1.0, 1.8, 0.8
CONTEXT_WORD_WEIGHT, CONTEXT_CHARACTER_WEIGHT = 2.0, 1.2

_GOLDEN, _SALT, _MIX = np.uint32(0x9E3779B1), 0x85EBCA6B, np.uint32(0xC2B2AE35)
_SHIFT = np.uint32(32 - BUCKET_BITS)
_EMPTY = SessionRow()


@dataclass(frozen=True)
class SituationTerms:
    """Buckets [terms] in [0, BUCKETS) and their weights [terms]; a bucket may come twice."""

    buckets: NDArray[np.uint32]
    weights: NDArray[np.float32]


def situation_terms(user: str, context: Context, session: SessionRow | None) -> SituationTerms:
    """All groups; an empty one contributes nothing."""
    session = session or _EMPTY
    fields = " ".join(scalar_fields(context.fields))
    groups = [
        (WHERE_WEIGHT, _bucket(_where(user, context, fields))),
        (COURSE_WEIGHT, _bucket(_course(user, fields, session))),
        (BAG_WEIGHT, _bucket(_bag(fields, session))),
        (LAST_TEXT_WEIGHT, _last_text(fields, session)),
        *((TEXT_WEIGHT, _recent(age, said)) for age, said in enumerate(reversed(session.texts))),
    ]
    if context.text:
        groups += _context_text(fields, context.text)
    groups = [(weight, buckets) for weight, buckets in groups if len(buckets)]
    return _join(groups)


def simple_terms(context: Context, session: SessionRow | None) -> SituationTerms:
    """The linear baseline's input: the fields, the last four events, the last text and the context's text."""
    session = session or _EMPTY
    words = [token.word for token in session.tokens[:-5:-1]]
    where = [" ".join(scalar_fields(context.fields)), *(f"{age}|{word}" for age, word in enumerate(words))]
    last = [_crossed("simple", np.frombuffer(said.words, "<u4")) for said in session.texts[-1:]]
    text = [_crossed("simple text", text_terms(context.text)[0])] if context.text else []
    return _join([(1.0, buckets) for buckets in (_bucket(where), *last, *text) if len(buckets)])


def _join(groups: list[tuple[float, NDArray[np.uint32]]]) -> SituationTerms:
    if not groups:
        return SituationTerms(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    weights = [np.full(len(buckets), weight / len(buckets) ** 0.5, np.float32) for weight, buckets in groups]
    return SituationTerms(np.concatenate([buckets for _, buckets in groups]), np.concatenate(weights))


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


def _last_text(fields: str, session: SessionRow) -> NDArray[np.uint32]:
    if not session.texts:
        return np.zeros(0, np.uint32)
    said = session.texts[-1]
    words, pairs = np.frombuffer(said.words, "<u4"), np.frombuffer(said.pairs, "<u4")
    event = session.tokens[-1].word if session.tokens else ""
    return np.concatenate(
        [
            _crossed("lw", words),
            _crossed("lp", pairs),
            _crossed(f"lf {fields}", words),
            _crossed(f"le {event}", words),
        ]
    )


def _recent(age: int, said: SaidText) -> NDArray[np.uint32]:
    salt = f"r{age} {said.label}"
    words = _crossed(salt, np.frombuffer(said.words, "<u4"))
    if age:
        return words
    return np.concatenate([words, _crossed(salt + " 2", np.frombuffer(said.pairs, "<u4"))])


def _context_text(fields: str, text: str) -> list[tuple[float, NDArray[np.uint32]]]:
    words, pairs = text_terms(text)
    whole = hash_terms([text.strip().lower()])
    crossed = [_crossed("xw", words), _crossed("xp", pairs), _crossed("x=", whole), _crossed(f"xf {fields}", words)]
    return [
        (CONTEXT_WORD_WEIGHT, np.concatenate(crossed)),
        (CONTEXT_CHARACTER_WEIGHT, _crossed("xc", character_terms(text))),
    ]


def _bucket(terms: list[str]) -> NDArray[np.uint32]:
    return _crossed("", hash_terms(terms))


def _crossed(salt: str, terms: Terms) -> NDArray[np.uint32]:
    """Buckets of terms under a salt: the same word in two places is two terms."""
    offset = np.uint32(zlib.crc32(salt.encode("utf-8", "surrogatepass")) * _SALT & 0xFFFFFFFF)
    mixed = (terms * _GOLDEN) ^ offset
    return (mixed ^ (mixed >> np.uint32(15))) * _MIX >> _SHIFT
