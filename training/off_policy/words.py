"""Words of a ranking's context: for its slices, and as what a reward model may know."""

from __future__ import annotations

from features.events import RankingEvent

MAX_WORD = 64
MAX_WORDS = 24


def slice_names(event: RankingEvent, known: bool) -> tuple[str, ...]:
    """`surface=chat`, `user=new` …: as `nextaction evaluate` names them; keys that start with `_` are for slices.

    Args:
        known: whether the user was seen before in this log.
    """
    context = event.context
    named = {
        "surface": context.surface,
        "locale": context.locale,
        "region": context.region,
        "trigger": context.trigger.type if context.trigger else None,
        "user": "known" if known else "new",
    }
    own = {name[1:]: value for name, value in context.fields.items() if name.startswith("_") and name != "_hint"}
    return _pairs({**named, **own})


def context_words(event: RankingEvent) -> tuple[str, ...]:
    """`surface=chat`, `mood=good` …: short strings of the context, at most MAX_WORDS."""
    context = event.context
    named = {
        "surface": context.surface,
        "locale": context.locale,
        "region": context.region,
        "trigger": context.trigger.type if context.trigger else None,
    }
    own = {name: value for name, value in context.fields.items() if not name.startswith("_")}
    return _pairs({**named, **own})[:MAX_WORDS]


def _pairs(named: dict[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{name}={value}" for name, value in named.items() if isinstance(value, str) and len(value) <= MAX_WORD
    )
