"""The situation an outcome happens in, as keys of population tables: from everything to the particular.

A key is `<family>:<hash>`. The same function gives the keys that a request reads and, when its ranking is
applied, the keys that its outcomes are credited to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from features.cells import USEFUL
from features.events import Context
from features.population import EVERYTHING
from features.rows import SessionRow

MAX_FIELDS = 8
MAX_VALUE_CHARS = 64
NO_ACTION = "-"

CONTEXT_FAMILIES = ("surface", "trigger", "entities", "fields")
ACTION_FAMILIES = ("last1", "last2", "last3")
TOKEN_FAMILIES = ("path1", "path2", "path3", "path4")
FAMILIES = (*CONTEXT_FAMILIES, *ACTION_FAMILIES, *TOKEN_FAMILIES)
PRIOR_CHAIN = ("surface", "trigger", "fields", "path1", "path2", "path3", "path4")
"""Families from general to specific along which priors back off; all but the first are within `fields`."""
_RATED = frozenset((EVERYTHING, *CONTEXT_FAMILIES))
_SEPARATOR = "\x00"


def scalar_fields(fields: Mapping[str, Any]) -> list[str]:
    """`name=value` of the app's short fields, by name; names that start with `_` are never features."""
    words: list[str] = []
    for name in sorted(fields)[: 4 * MAX_FIELDS]:
        value = fields[name]
        if not name.startswith("_") and isinstance(value, str | bool | int) and len(words) < MAX_FIELDS:
            words.append(f"{name[:MAX_VALUE_CHARS]}={str(value)[:MAX_VALUE_CHARS]}")
    return words


def list_fields(fields: Mapping[str, Any]) -> list[str]:
    """`name=element` of the app's lists of short strings."""
    return [
        f"{name[:MAX_VALUE_CHARS]}={element[:MAX_VALUE_CHARS]}"
        for name in sorted(fields)[: 4 * MAX_FIELDS]
        if not name.startswith("_") and isinstance(fields[name], list)
        for element in fields[name][:MAX_FIELDS]
        if isinstance(element, str)
    ]


def table_key(family: str, parts: Sequence[str]) -> str:
    """The key of one context of a family; parts are hashed with their lengths, so separators are harmless."""
    return _hashed(family, _SEPARATOR.join(map(_part, parts)))


@lru_cache(8192)
def _hashed(family: str, text: str) -> str:
    """A ranking asks for what is asked again when it is applied, and many share their contexts."""
    return f"{family}:{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def _part(part: str) -> str:
    return f"{len(part)}:{part}"


def credited_keys(keys: Sequence[str], kind: str) -> Sequence[str]:
    """The tables that an outcome of `kind` moves: what came before an action is asked only what was useful then."""
    if kind in USEFUL:
        return keys
    return [key for key in keys if key.partition(":")[0] in _RATED]


def situation_keys(context: Context, session: SessionRow | None) -> dict[str, str]:
    """Table keys by family, EVERYTHING first under its own name."""
    fields = scalar_fields(context.fields)
    actions = [done.action for done in session.actions[-3:]][::-1] if session else []
    words = [token.word for token in session.tokens[-4:]][::-1] if session else []
    actions += [NO_ACTION] * (3 - len(actions))
    words += [NO_ACTION] * (4 - len(words))
    surface = [context.surface or "", context.locale or ""]
    trigger = context.trigger.type if context.trigger else ""
    keys = {
        EVERYTHING: EVERYTHING,
        "surface": table_key("surface", surface),
        "trigger": table_key("trigger", [surface[0], trigger]),
        "entities": table_key("entities", sorted({entity.type for entity in context.entities})),
        "fields": table_key("fields", [trigger, *fields]),
    }
    shared = list(map(_part, fields))
    for families, past in ((ACTION_FAMILIES, actions), (TOKEN_FAMILIES, words)):
        text = _SEPARATOR.join(shared)
        for family, part in zip(families, past, strict=True):
            text = f"{text}{_SEPARATOR}{_part(part)}" if text else _part(part)
            keys[family] = _hashed(family, text)
    return keys
