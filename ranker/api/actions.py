"""`/v1/actions`: the catalogue, one entry or all of it."""

from __future__ import annotations

import asyncio

import msgspec

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.events import Name
from ranker.answers import Service
from ranker.api.codec import decode, encode, fits, misfit
from ranker.api.documents import split_documents
from ranker.api.limits import MAX_DEPTH, Limits
from ranker.api.problems import InvalidField
from ranker.api.reading import media_of, path_id, read_body, switches
from ranker.api.wire import Call, Reply
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
    """How many entries were put."""

    put: int


_spec = msgspec.json.Decoder(ActionSpec)
_line = msgspec.json.Decoder(ActionLine)


class ActionCalls:
    """The catalogue over HTTP."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits

    async def get_all(self, call: Call) -> Reply:
        """Every entry."""
        switches(call)
        return Reply(200, encode(CatalogueAnswer(dict(self._service.actions()))))

    async def put_all(self, call: Call) -> Reply:
        """Replaces the catalogue; one line that is wrong and nothing is changed."""
        switches(call)
        body = await read_body(call, self._limits.catalogue_bytes, self._limits)
        specs = await parse_catalogue(split_documents(body, media_of(call)))
        return Reply(200, encode(PutAnswer(await self._service.put_actions(specs, replace_all=True))))

    async def get(self, call: Call) -> Reply:
        """One entry."""
        switches(call)
        return Reply(200, encode(self._service.action(path_id(call, "action"))))

    async def put(self, call: Call) -> Reply:
        """Adds or replaces one entry; in effect when it returns."""
        switches(call)
        action = path_id(call, "action")
        spec = decode(_spec, await read_body(call, self._limits.action_bytes, self._limits))
        _check_fields(spec, "$.fields")
        await self._service.put_actions({action: spec})
        return Reply(200, encode(spec))

    async def delete(self, call: Call) -> Reply:
        """Withdraws one entry."""
        switches(call)
        await self._service.delete_action(path_id(call, "action"))
        return Reply(204, None)


async def parse_catalogue(lines: list[bytes]) -> dict[str, ActionSpec]:
    """The entries of a catalogue, in order.

    Raises:
        InvalidField: names the line from 0 and the field, `$[3].title`; also when an action comes twice.
        TooLarge: over MAX_ACTIONS lines.
    """
    if len(lines) > MAX_ACTIONS:
        raise TooLarge(f"{len(lines)} actions are more than {MAX_ACTIONS}", "$")
    specs: dict[str, ActionSpec] = {}
    for row, line in enumerate(lines):
        action, spec = _parse_line(line, f"$[{row}]")
        if action in specs:
            raise InvalidField(f"action {action!r} comes twice", f"$[{row}].action", action)
        specs[action] = spec
        if row % LINES_PER_TURN == LINES_PER_TURN - 1:
            await asyncio.sleep(0)
    return specs


def _parse_line(line: bytes, path: str) -> tuple[str, ActionSpec]:
    named = decode(_line, line, path)
    spec = ActionSpec(**{name: getattr(named, name) for name in ActionSpec.__struct_fields__})
    _check_fields(spec, f"{path}.fields")
    return named.action, spec


def _check_fields(spec: ActionSpec, path: str) -> None:
    if not fits(spec.fields, MAX_DEPTH):
        raise misfit(spec.fields, MAX_DEPTH, path)
