"""The catalogue: what can be offered, and what each action needs.

Part of the canonical log (`action` events), held whole in each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from features.errors import EventError
from features.events import ActionEvent, Name, Text, Timestamp

MAX_ACTIONS = 100_000
MAX_OFFER_TIMES = 32
Names = Annotated[list[Name], msgspec.Meta(max_length=256)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ActionSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An action and its conditions. An empty list asks for nothing.

    Args:
        title: the text shown; `{target}` is replaced by the target's `fields.title`, or its id.
        entity_types: it is about one entity of one of these types; empty: it needs no target.
        surfaces, locales, regions: where it may be shown; `en` covers `en-GB`.
        permissions: all of these must be granted.
        triggers: what it is offered after; a feature, not a condition.
        min_app_version, max_app_version: inclusive, compared number by number.
        min_age: the user's least age in years; an unknown age counts as too young.
        consent: name of a consent the user must have given.
        safety_class: `none`, or a class that policy.yaml and the safety stage know.
        exclusive_group: at most one action of a group is offered.
        cooldown_s: not offered for this long after the user dismissed it.
        max_offers_per_day: a user sees it at most this often in 24 hours; 0 is no cap.
        max_target_age_s: a target older than this is stale; 0 is no limit.
        expires: not offered from then on.
        off: switched off.
        needs_text_check: its rendered text must pass the text scorer.
    """

    title: Text = ""
    entity_types: Names = []
    surfaces: Names = []
    locales: Names = []
    regions: Names = []
    permissions: Names = []
    triggers: Names = []
    min_app_version: Name | None = None
    max_app_version: Name | None = None
    min_age: Annotated[int, msgspec.Meta(ge=0, le=150)] = 0
    consent: Name | None = None
    safety_class: Name = "none"
    exclusive_group: Name | None = None
    cooldown_s: Seconds = 0.0
    max_offers_per_day: Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFER_TIMES)] = 0
    max_target_age_s: Seconds = 0.0
    expires: Timestamp | None = None
    off: bool = False
    needs_text_check: bool = False
    fields: dict[str, Any] = {}


def parse_spec(fields: Mapping[str, Any]) -> ActionSpec:
    """An ActionSpec from JSON fields.

    Raises:
        EventError: reason `invalid`, naming the field.
    """
    try:
        return msgspec.convert(fields, ActionSpec)
    except msgspec.ValidationError as error:
        raise EventError("invalid", f"action fields: {error}") from error


class Catalogue:
    """The actions known now, in the order in which they arrived; `version` grows with every change."""

    def __init__(self, specs: Mapping[str, ActionSpec] | None = None) -> None:
        self._specs: dict[str, ActionSpec] = dict(specs or {})
        self.version = 0

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __contains__(self, action: object) -> bool:
        return action in self._specs

    def get(self, action: str) -> ActionSpec | None:
        """The entry, or None for an action that was never there or was withdrawn."""
        return self._specs.get(action)

    def items(self) -> Iterable[tuple[str, ActionSpec]]:
        """All entries in order."""
        return self._specs.items()

    def put(self, action: str, spec: ActionSpec) -> None:
        """Adds or replaces an entry.

        Raises:
            EventError: reason `catalogue_full` at MAX_ACTIONS.
        """
        if action not in self._specs and len(self._specs) >= MAX_ACTIONS:
            raise EventError("catalogue_full", f"action {action!r}: the catalogue holds {MAX_ACTIONS} already")
        self._specs[action] = spec
        self.version += 1

    def remove(self, action: str) -> bool:
        """Withdraws an entry; whether it was there."""
        found = self._specs.pop(action, None) is not None
        self.version += found
        return found

    def apply(self, event: ActionEvent) -> None:
        """Takes over what an `action` event says.

        Raises:
            EventError: reason `invalid` or `catalogue_full`.
        """
        if event.fields is None:
            self.remove(event.action)
        else:
            self.put(event.action, parse_spec(event.fields))
