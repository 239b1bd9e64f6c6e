"""What each route takes and gives, as rows for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
NDJSON = "application/x-ndjson"
BODY_PROBLEMS = (400, 408, 413, 415, 422)

RANK_EXAMPLE = {
    "user": "u1",
    "context": {
        "surface": "chat",
        "locale": "en-GB",
        "app_version": "3.2.0",
        "permissions": ["photos"],
        "text": "look at this",
        "entities": [{"id": "42", "type": "image"}],
        "trigger": {"type": "image_received"},
    },
    "k": 3,
    "budget_ms": 100,
}
ANSWER_EXAMPLE = {
    "id": "r1",
    "items": [{"action": "summarize_image", "target": "image:42", "position": 1, "score": 1.7, "propensity": 1.0}],
    "traffic": "live",
    "versions": {"schema": "5f3a", "light": "7"},
    "degraded": [],
    "timings_ms": {"light": 0.4, "total": 2.1},
}
EVENT_EXAMPLE = {
    "event": "feedback",
    "id": "e1",
    "time": "2024-05-24T09:30:00.125Z",
    "ranking": "r1",
    "user": "u1",
    "type": "accept",
    "action": "summarize_image",
    "target": "image:42",
}
EVENTS_ANSWER_EXAMPLE = {"results": [{"id": "e1", "status": "accepted"}], "accepted": 1, "duplicate": 0, "refused": 0}
SPEC_EXAMPLE = {"title": "Summarise {target}", "entity_types": ["image"], "cooldown_s": 3600.0}


@dataclass(frozen=True)
class Operation:
    """One method of one path. `body` and `answer` are OpenAPI objects; `problems` the statuses it may give."""

    method: str
    path: str
    name: str
    summary: str
    answer: Mapping[str, Any]
    status: str = "200"
    body: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[int, ...] = ()


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _media(schema: Mapping[str, Any], example: object = None) -> dict[str, Any]:
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _json(description: str, schema: Mapping[str, Any], example: object = None) -> dict[str, Any]:
    return {"description": description, "content": {JSON: _media(schema, example)}}


def _id(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 256}
    text = "URL-encoded, any characters"
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema}


_CALLER = {
    "name": "X-Caller",
    "in": "header",
    "description": "Who calls: request ids are scoped to it",
    "schema": {"type": "string", "maxLength": 256, "default": ""},
}
_EXPLAIN = {
    "name": "explain",
    "in": "query",
    "description": "Adds reasons per item and each stage's verdicts",
    "schema": {"type": "boolean", "default": False},
}
_WINDOW = {
    "name": "window_s",
    "in": "query",
    "description": "Seconds over which hot spots are counted",
    "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 300, "default": 60},
}
_OBJECT = {"type": "object", "additionalProperties": True}
_EVENT_BODY = {
    JSON: _media({"anyOf": [_ref("Event"), {"type": "array", "items": _ref("Event")}]}, EVENT_EXAMPLE),
    NDJSON: _media({"type": "string", "description": "One event a line"}),
}
_CATALOGUE_BODY = {
    NDJSON: _media({"type": "string", "description": "One ActionLine a line"}),
    JSON: _media({"anyOf": [_ref("ActionLine"), {"type": "array", "items": _ref("ActionLine")}]}),
}
_BATCH_ANSWER = {
    "description": (
        "Streamed while the body is read: whoever sends much at once has to read meanwhile. Traffic is `replay`, "
        "`context.time` (1970 to 9999) is the clock, there is no deadline, and `budget_ms` and `priority` are not "
        "looked at; what is known is what is known now. Nothing is logged or counted, and an `id` is only given back. "
        "Requests of people go first. A line that cannot be answered gets a Problem whose `field` starts with the "
        "line's number from 0, `$[3].context`; a body that stops arriving ends with the Problem `body-timeout`."
    ),
    "content": {NDJSON: _media({"type": "string", "description": "One RankAnswer or Problem a line"})},
}
_NOTHING = {"description": "Done, durable and in effect"}
_ACTION = "/v1/actions/{action}"
_USER = "/v1/users/{user}"

OPERATIONS = (
    Operation(
        "post",
        "/v1/rank",
        "rank",
        "Rank the next actions for a user in a context",
        _json("The actions to offer, best first", _ref("RankAnswer"), ANSWER_EXAMPLE),
        body={JSON: _media(_ref("RankBody"), RANK_EXAMPLE)},
        parameters=(_EXPLAIN, _CALLER),
        problems=(*BODY_PROBLEMS, 409, 503),
    ),
    Operation(
        "post",
        "/v1/rank/batch",
        "rank_batch",
        "Rank for an offline job: one RankBody a line, of any number; one RankAnswer or Problem a line, in order",
        _BATCH_ANSWER,
        body={NDJSON: _media({"type": "string", "description": "One RankBody a line"})},
        parameters=(_EXPLAIN,),
        problems=(400, 408, 415, 422),
    ),
    Operation(
        "post",
        "/v1/events",
        "events",
        "Tell what happened: one event, an array, or NDJSON",
        _json("What became of each; what was accepted is durable", _ref("EventsAnswer"), EVENTS_ANSWER_EXAMPLE),
        body=_EVENT_BODY,
        problems=(*BODY_PROBLEMS, 503),
    ),
    Operation(
        "get",
        "/v1/actions",
        "actions",
        "The catalogue",
        _json("Every entry", _ref("CatalogueAnswer")),
        problems=(422,),
    ),
    Operation(
        "put",
        "/v1/actions",
        "replace_actions",
        "Replace the whole catalogue, all lines or none; every action that is on no line is withdrawn",
        _json("How many were put, and how many were withdrawn", _ref("PutAnswer"), {"put": 2, "withdrawn": 1}),
        body=_CATALOGUE_BODY,
        problems=(*BODY_PROBLEMS, 503),
    ),
    Operation(
        "get",
        _ACTION,
        "action",
        "One entry of the catalogue",
        _json("The entry; fields at their default are left out", _ref("ActionSpec"), SPEC_EXAMPLE),
        parameters=(_id("action"),),
        problems=(400, 404, 422),
    ),
    Operation(
        "put",
        _ACTION,
        "put_action",
        "Add or replace an entry; `off` switches it off. 422 for a safety class that the policy does not have, a "
        "version that is not numbers with dots, and names of the entry itself inside `fields`",
        _json("The entry as it is now in effect", _ref("ActionSpec"), SPEC_EXAMPLE),
        body={JSON: _media(_ref("ActionSpec"), SPEC_EXAMPLE)},
        parameters=(_id("action"),),
        problems=(*BODY_PROBLEMS, 503),
    ),
    Operation(
        "delete",
        _ACTION,
        "delete_action",
        "Withdraw an entry",
        _NOTHING,
        "204",
        parameters=(_id("action"),),
        problems=(400, 404, 422, 503),
    ),
    Operation(
        "get",
        _USER,
        "user",
        "What is held about a user",
        _json("All of it", _OBJECT),
        parameters=(_id("user"),),
        problems=(400, 404, 422, 503),
    ),
    Operation(
        "delete",
        _USER,
        "forget",
        "Forget a user",
        _NOTHING,
        "204",
        parameters=(_id("user"),),
        problems=(400, 422, 503),
    ),
    Operation("get", "/v1/models", "models", "Versions, and what serves", _json("Versions", _OBJECT), problems=(422,)),
    Operation(
        "get",
        "/v1/memory",
        "memory",
        "Where the memory of this process is: pools, pages, fragmentation, hot spots",
        _json("The process, what the service holds, and every pool; none while no engine runs", _ref("MemoryReport")),
        parameters=(_WINDOW,),
        problems=(422,),
    ),
    Operation("get", "/healthz", "healthz", "The process is up", _json("Up", _ref("HealthAnswer"))),
    Operation("get", "/readyz", "readyz", "Able to rank", _json("Ready", _ref("ReadyAnswer")), problems=(503,)),
    Operation(
        "get",
        "/metrics",
        "metrics",
        "Prometheus text",
        {"description": "Metrics", "content": {"text/plain": _media({"type": "string"})}},
    ),
)
