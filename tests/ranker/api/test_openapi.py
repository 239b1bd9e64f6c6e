"""The OpenAPI document: complete, sound, and true to what the routes do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from features.catalogue import ActionSpec
from features.events import decode_event
from ranker.answers import RankAnswer
from ranker.api.events import EventsAnswer
from ranker.api.operations import (
    ANSWER_EXAMPLE,
    EVENT_EXAMPLE,
    EVENTS_ANSWER_EXAMPLE,
    OPERATIONS,
    RANK_EXAMPLE,
    SPEC_EXAMPLE,
)
from tests.ranker.api.fake_service import App

METHODS = {
    "/v1/rank": {"post"},
    "/v1/events": {"post"},
    "/v1/actions": {"get", "put"},
    "/v1/actions/{action}": {"get", "put", "delete"},
    "/v1/rank/batch": {"post"},
    "/v1/users/{user}": {"get", "delete"},
    "/v1/models": {"get"},
    "/v1/memory": {"get"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    answer = App().ask("GET", "/openapi.json")
    found: dict[str, Any] = answer.json()
    return found


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def resolve(document: dict[str, Any], ref: str) -> Any:
    found: Any = document
    for step in ref.removeprefix("#/").split("/"):
        found = found[step]
    return found


def test_every_route_is_there_with_its_methods(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == METHODS
    assert document["openapi"].startswith("3.1")


def test_every_route_of_the_application_is_described() -> None:
    app = App()
    served = {path.replace(":path", "") for path in (getattr(route, "path", "") for route in app.asgi.routes)}
    assert served - {"/openapi.json"} == set(METHODS)


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    refs = [node["$ref"] for node in nodes(document) if "$ref" in node]
    assert len(refs) > 40
    assert all(isinstance(resolve(document, ref), dict) for ref in refs)


def test_every_schema_that_is_listed_is_used(document: dict[str, Any]) -> None:
    used = {node["$ref"].rpartition("/")[2] for node in nodes(document) if "$ref" in node}
    assert set(document["components"]["schemas"]) - used == set()


def test_operations_have_unique_names_and_path_parameters_that_exist(document: dict[str, Any]) -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    for path, methods in document["paths"].items():
        in_path = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for operation in methods.values():
            assert {p["name"] for p in operation["parameters"] if p["in"] == "path"} == in_path


def test_problems_are_problem_json_with_the_problem_schema(document: dict[str, Any]) -> None:
    for methods in document["paths"].values():
        for operation in methods.values():
            assert "500" in operation["responses"]
            for status, response in operation["responses"].items():
                if status >= "400":
                    content = resolve(document, response["$ref"])["content"]
                    assert content["application/problem+json"]["schema"]["$ref"].endswith("/Problem")


@pytest.mark.parametrize("limit", ["k ≤ 50", "candidates ≤ 1,000", "body ≤ 256 KB", "strings ≤ 4 KB"])
def test_limits_are_printed_for_people(document: dict[str, Any], limit: str) -> None:
    assert limit in document["info"]["description"]


def test_limits_are_printed_for_machines(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    body = schemas["RankBody"]["properties"]
    assert body["k"]["maximum"] == document["x-limits"]["k"] == 50
    assert body["candidates"]["anyOf"][0]["maxItems"] == document["x-limits"]["candidates"] == 1000
    assert document["x-limits"]["rank_body_bytes"] == 262_144
    assert schemas["RankBody"]["additionalProperties"] is False
    assert schemas["ContextBody"]["additionalProperties"] is False


def test_examples_are_accepted_by_the_routes_and_types_that_they_are_for() -> None:
    app = App()
    assert app.ask("POST", "/v1/rank", RANK_EXAMPLE).status_code == 200
    assert app.ask("PUT", "/v1/actions/a", SPEC_EXAMPLE).json() == SPEC_EXAMPLE
    decode_event(msgspec.json.encode(EVENT_EXAMPLE))
    msgspec.convert(SPEC_EXAMPLE, ActionSpec)
    for example, kind in ((ANSWER_EXAMPLE, RankAnswer), (EVENTS_ANSWER_EXAMPLE, EventsAnswer)):
        assert msgspec.to_builtins(msgspec.convert(example, kind)) == example
