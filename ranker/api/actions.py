"""`/v1/actions`: the catalogue, one entry or all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.events import Name
from ranker.answers import Service
from ranker.api.codec import decode, encode, fits, misfit
from ranker.api.documents import split_documents
from ranker.api.limits import MAX_DEPTH, Limits
from ranker.api.problems import InvalidField, cut
from ranker.api.reading import media_of, path_id, read_body, switches
from ranker.api.wire import Call, Reply
from ranker.conditions import parse_version
from ranker.errors import TooLarge

LINES_PER_TURN = 500
"""So many lines are decoded before rankings get their turn."""


class ActionLine(ActionSpec, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A line of `PUT /v1/actions`: an entry with its name."""

    action: Name


class CatalogueAnswer(msgspec.Struct, frozen=True):
    """The whole catalogue, in order; fields at their default are left out."""

    actions: dict[str, ActionSpec]


class PutAnswer(msgspec.Struct, frozen=True):
    """How many entries were put, and how many others are withdrawn, being none of them."""

    put: int
    withdrawn: int


_spec = msgspec.json.Decoder(ActionSpec)
_line = msgspec.json.Decoder(ActionLine)


class ActionCalls:
    """The catalogue over HTTP.

    Args:
        classes: the policy's safety classes beside `none`; None takes any.
    """

    def __init__(self, service: Service, limits: Limits, classes: Collection[str] | None = None) -> None:
        self._service = service
        self._limits = limits
        self._classes = classes

    async def get_all(self, call: Call) -> Reply:
        """Every entry."""
        switches(call)
        return Reply(200, encode(CatalogueAnswer(dict(self._service.actions()))))

    async def put_all(self, call: Call) -> Reply:
        """Replaces the catalogue; one line that is wrong and nothing is changed."""
        switches(call)
        body = await read_body(call, self._limits.catalogue_bytes, self._limits)
        specs = await parse_catalogue(split_documents(body, media_of(call)), self._classes)
        withdrawn = sum(action not in specs for action in self._service.actions())
        put = await self._service.put_actions(specs, replace_all=True)
        return Reply(200, encode(PutAnswer(put, withdrawn)))

    async def get(self, call: Call) -> Reply:
        """One entry."""
        switches(call)
        return Reply(200, encode(self._service.action(path_id(call, "action"))))

    async def put(self, call: Call) -> Reply:
        """Adds or replaces one entry; in effect when it returns."""
        switches(call)
        action = path_id(call, "action")
        spec = decode(_spec, await read_body(call, self._limits.action_bytes, self._limits))
        _check_spec(spec, "$", self._classes)
        await self._service.put_actions({action: spec})
        return Reply(200, encode(spec))

    async def delete(self, call: Call) -> Reply:
        """Withdraws one entry."""
        switches(call)
        await self._service.delete_action(path_id(call, "action"))
        return Reply(204, None)


async def parse_catalogue(lines: list[bytes], classes: Collection[str] | None = None) -> dict[str, ActionSpec]:
    """The entries of a catalogue, in order.

    Args:
        classes: as in ActionCalls.

    Raises:
        InvalidField: names the line from 0 and the field, `$[3].title`; also when an action comes twice.
        TooLarge: over MAX_ACTIONS lines.
    """
    if len(lines) > MAX_ACTIONS:
        raise TooLarge(f"{len(lines)} actions are more than {MAX_ACTIONS}", "$")
    specs: dict[str, ActionSpec] = {}
    for row, line in enumerate(lines):
        action, spec = _parse_line(line, f"$[{row}]", classes)
        if action in specs:
            raise InvalidField(f"action {action!r} comes twice", f"$[{row}].action", action)
        specs[action] = spec
        if row % LINES_PER_TURN == LINES_PER_TURN - 1:
            await asyncio.sleep(0)
    return specs


def _parse_line(line: bytes, path: str, classes: Collection[str] | None) -> tuple[str, ActionSpec]:
    named = decode(_line, line, path)
    spec = ActionSpec(**{name: getattr(named, name) for name in ActionSpec.__struct_fields__})
    _check_spec(spec, path, classes)
    return named.action, spec


def _check_spec(spec: ActionSpec, path: str, classes: Collection[str] | None) -> None:
    if not fits(spec.fields, MAX_DEPTH):
        raise misfit(spec.fields, MAX_DEPTH, f"{path}.fields")
    for name in spec.fields:
        if name in ActionSpec.__struct_fields__:  # an `action` event of the log looks so
            text = f"`{name}` belongs beside `fields`, not into it"
            raise InvalidField(text, f"{path}.fields.{name}", cut(encode(spec.fields[name]).decode()))
    for name in ("min_app_version", "max_app_version"):
        version = getattr(spec, name)
        if version is not None and parse_version(version) is None:
            raise InvalidField("Expected numbers with dots, as `3.2.0`", f"{path}.{name}", version)
    if classes is not None and spec.safety_class != "none" and spec.safety_class not in classes:
        known = ", ".join(("none", *sorted(classes)))
        text = f"The policy has no such class, the action would never be offered; it has {known}"
        raise InvalidField(text, f"{path}.safety_class", spec.safety_class)
