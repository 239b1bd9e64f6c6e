"""The OpenAPI document: schemas from the types that the routes decode and encode, limits printed."""

from __future__ import annotations

from typing import Any

import msgspec

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.events import MAX_CANDIDATES, MAX_STRING, Event
from ranker.answers import RankAnswer
from ranker.api.actions import ActionLine, CatalogueAnswer, PutAnswer
from ranker.api.events import EventsAnswer
from ranker.api.health import HealthAnswer, ReadyAnswer
from ranker.api.limits import MAX_DEPTH, MAX_EVENT_DEPTH, Limits
from ranker.api.operations import OPERATIONS, Operation
from ranker.api.problems import Problem
from ranker.api.rank import RankBody
from ranker.api.reading import MAX_ID
from ranker.inference.memory_report import MemoryReport
from ranker.types import MAX_BUDGET_MS, MAX_K

REF = "#/components/schemas/{name}"
_ROOTS = (RankBody, RankAnswer, EventsAnswer, ActionSpec, ActionLine, CatalogueAnswer, PutAnswer, HealthAnswer)
_PROBLEMS = {
    400: "Not JSON; a path that is not UTF-8",
    404: "There is no such thing",
    405: "The path does not know this method",
    408: "The body did not arrive in time",
    409: "The same id came with another body",
    413: "The body, or the number of documents in it, is over its limit",
    415: "The body is compressed",
    422: "A field, parameter or header has a value that it cannot have; the problem names it",
    500: "An error of the service; `error_id` finds its traceback in the log",
    503: "Cannot be done now; nothing was changed",
}


def describe(document: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The document with our routes merged in."""
    paths = dict(document.get("paths", {}))
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _rendered(operation)
    components = dict(document.get("components", {}))
    components["schemas"] = {**components.get("schemas", {}), **_schemas()}
    components["responses"] = {f"Problem{status}": _problem(text) for status, text in _PROBLEMS.items()}
    info = {**document["info"], "description": _description(limits)}
    return {**document, "info": info, "paths": paths, "components": components, "x-limits": printed(limits)}


def printed(limits: Limits) -> dict[str, int | float]:
    """Every limit by name, as the document prints it."""
    return {
        "k": MAX_K,
        "candidates": MAX_CANDIDATES,
        "budget_ms": MAX_BUDGET_MS,
        "rank_body_bytes": limits.rank_bytes,
        "batch_line_bytes": limits.rank_bytes,
        "batch_idle_seconds": limits.batch_idle_s,
        "events_body_bytes": limits.events_bytes,
        "events_per_post": limits.events,
        "action_body_bytes": limits.action_bytes,
        "catalogue_body_bytes": limits.catalogue_bytes,
        "catalogue_actions": MAX_ACTIONS,
        "string_characters": MAX_STRING,
        "id_characters": MAX_ID,
        "caller_characters": limits.caller_chars,
        "fields_depth": MAX_DEPTH,
        "event_depth": MAX_EVENT_DEPTH,
        "body_seconds": limits.body_s,
    }


def _description(limits: Limits) -> str:
    return (
        "Ranks the next actions that an app should offer.\n\n"
        f"Limits: k ≤ {MAX_K}, candidates ≤ {MAX_CANDIDATES:,}, body ≤ {limits.rank_bytes // 1024} KB "
        f"(events ≤ {limits.events_bytes >> 20} MB and {limits.events:,} in one post, catalogue ≤ "
        f"{limits.catalogue_bytes >> 20} MB; a batch of rankings may be endless, its lines ≤ "
        f"{limits.rank_bytes // 1024} KB), strings ≤ {MAX_STRING // 1024} KB, ids and names ≤ {MAX_ID} characters, "
        f"`fields` nested ≤ {MAX_DEPTH} deep, integers of 64 bits, no NaN and no Infinity.\n\n"
        "Of a key that comes twice in an object the last value counts. JSON is read whatever the content type says. "
        "Ids in paths are URL-encoded and may hold any character. Unknown fields of a rank request and of its context "
        "are refused; in `entities` and `trigger` they are ignored. Errors are `application/problem+json`."
    )


def _schemas() -> dict[str, Any]:
    roots = [*_ROOTS, ReadyAnswer, MemoryReport, Problem, Event]
    schemas, components = msgspec.json.schema_components(roots, ref_template=REF)
    return {**components, "Event": schemas[-1]}


def _problem(text: str) -> dict[str, Any]:
    schema = {"$ref": REF.format(name="Problem")}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


def _rendered(operation: Operation) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": list(operation.parameters),
        "responses": {operation.status: operation.answer} | _problem_refs(operation),
    }
    if operation.body:
        rendered["requestBody"] = {"required": True, "content": operation.body}
    return rendered


def _problem_refs(operation: Operation) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in (*operation.problems, 500)}
