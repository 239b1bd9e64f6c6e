"""`POST /v1/rank`: what reaches the service, and what bad input gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.events import Context
from ranker.api.limits import Limits
from ranker.errors import Conflict, InvalidRequest
from ranker.types import RankRequest
from tests.ranker.api.fake_service import RANK, App, FakeService

GOOD = b'{"user":"u","context":{}'


@pytest.fixture
def app() -> App:
    return App()


def test_the_service_gets_the_request_the_raw_body_and_when_it_arrived(app: App) -> None:
    body = b'{ "user": "u1", "context": {"surface":"chat","entities":[{"id":"42","type":"image"}]}, "k": 2}'
    assert app.ask("POST", "/v1/rank", body, x_caller="phone").status_code == 200
    (call,) = app.service.rank_calls
    assert isinstance(call.request, RankRequest) and isinstance(call.request.context, Context)
    assert (call.request.user, call.request.k, call.request.context.entities[0].target) == ("u1", 2, "image:42")
    assert (call.body, call.caller, call.explain, call.arrived_ms) == (body, "phone", False, 1000.0)


def test_the_answer_is_the_services_as_json(app: App) -> None:
    answer = app.rank()
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "id": "r1",
        "items": [{"action": "summarize", "target": None, "position": 1, "score": 1.0, "propensity": 1.0}],
        "traffic": "live",
        "versions": {"schema": "s"},
        "degraded": [],
        "timings_ms": {"light": 0.3, "total": 120.0},
    }


@pytest.mark.parametrize(
    ("query", "explained"), [("explain=true", True), ("explain=1", True), ("explain=false", False)]
)
def test_explain_is_a_switch_of_the_query(app: App, query: str, explained: bool) -> None:
    answer = app.ask("POST", f"/v1/rank?{query}", RANK)
    assert app.service.rank_calls[0].explain is explained
    assert ("reasons" in answer.json()["items"][0]) is explained


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"k": 0}, "$.k", "0"),
        ({"k": 10_000}, "$.k", "10000"),
        ({"k": "3"}, "$.k", '"3"'),
        ({"k": None}, "$.k", "null"),
        ({"k": True}, "$.k", "true"),
        ({"k": 3.5}, "$.k", "3.5"),
        ({"budget_ms": 0}, "$.budget_ms", "0"),
        ({"user": ""}, "$.user", '""'),
        ({"user": 0}, "$.user", "0"),
        ({"user": None}, "$.user", "null"),
        ({"id": ""}, "$.id", '""'),
        ({"priority": "shadow"}, "$.priority", '"shadow"'),
        ({"traffic": "live"}, "$.traffic", '"live"'),
        ({"candidates": []}, "$.candidates", "an array of 0"),
        ({"candidates": [{"action": "a"}] * 5000}, "$.candidates", "an array of 5000"),
        ({"candidates": [{"action": "a", "tarjet": 1}]}, "$.candidates[0].tarjet", "1"),
        ({"exclude": ["a", 7]}, "$.exclude[1]", "7"),
        ({"colour": "red"}, "$.colour", '"red"'),
        ({"context": {"surfce": "chat"}}, "$.context.surfce", '"chat"'),
        ({"context": {"time": "yesterday"}}, "$.context.time", '"yesterday"'),
        ({"context": {"time": "2024-01-01T00:00:00"}}, "$.context.time", '"2024-01-01T00:00:00"'),
        (
            {"context": {"time": "9999-12-31T23:59:59.999999Z"}},
            "$.context.time",
            '"9999-12-31 23:59:59.999999+00:00"',
        ),
        (
            {"context": {"entities": [{"id": "1", "type": "i", "time": "0001-01-01T00:00:00+14:00"}]}},
            "$.context.entities[0].time",
            '"0001-01-01 00:00:00+14:00"',
        ),
        ({"context": {"text": "x" * 4097}}, "$.context.text", '"' + "x" * 198 + "…"),
        (
            {"context": {"entities": [{"id": "1", "type": "i"}, {"id": 0, "type": "i"}]}},
            "$.context.entities[1].id",
            "0",
        ),
        ({"context": {"fields": {"a": {"b": ["x" * 4097]}}}}, "$.context.fields.a.b[0]", '"' + "x" * 198 + "…"),
        ({"context": {"trigger": {"type": "t", "fields": {"n": "y" * 5000}}}}, "$.context.trigger.fields.n", None),
        ({"candidates": [{"action": "a", "fields": {"n": "y" * 5000}}]}, "$.candidates[0].fields.n", None),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_value(
    app: App, fields: dict[str, Any], field: str, value: str | None
) -> None:
    answer = app.rank(**fields)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (problem["type"], problem["status"], problem["field"]) == ("/problems/invalid", 422, field)
    assert value is None or problem["value"] == value
    assert app.service.rank_calls == []


def test_a_missing_field_is_named(app: App) -> None:
    problem = app.ask("POST", "/v1/rank", {"context": {}}).json()
    assert (problem["status"], problem["field"]) == (422, "$.user")
    assert "value" not in problem


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        (GOOD + b',"budget_ms":1e400}', "$.budget_ms", '"1e400"'),
        (b'{"user":"u","context":{"fields":{"n":18446744073709551616}}}', "$.context.fields.n", "18446744073709551616"),
        (b'{"user":"u","context":{"fields":{"n":1e400}}}', "$.context.fields.n", '"1e400"'),
        (b'{"user":"u","context":{"fields":{"a":[1,{"b":' + b"9" * 5000 + b"}]}}}", "$.context.fields.a[1].b", None),
        (GOOD + b',"k":' + b"9" * 5000 + b"}", "$.k", '"' + "9" * 198 + "…"),
        (b'{"user":"u","context":{"a.b":[0]}}', "$.context.a.b", "an array of 1"),
        (b'{"user":"u","context":{"fields":{"n":' + b"[" * 17 + b"]" * 17 + b"}}}", None, None),
        (b"null", "$", "null"),
        (b"[]", "$", "an array of 0"),
        (b'"text"', "$", '"text"'),
    ],
)
def test_json_that_does_not_fit_is_422(app: App, body: bytes, field: str | None, value: str | None) -> None:
    answer = app.ask("POST", "/v1/rank", body)
    assert answer.status_code == 422
    assert field is None or answer.json()["field"] == field
    assert value is None or answer.json()["value"] == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"{",
        GOOD,
        GOOD + b"} x",
        GOOD + b',"budget_ms":NaN}',
        GOOD + b',"budget_ms":Infinity}',
        b'{"user":"\xff","context":{}}',
        b'{"user":"\\ud800","context":{}}',
        '{"user":"u","context":{}}'.encode("utf-16"),
        b'{"user":"u","context":{"fields":{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}",
        b'{"context":{"fields":' + b'{"a":' * 40_000,
    ],
    ids=["empty", "blank", "open", "cut", "trailing", "nan", "infinity", "latin", "half", "utf16", "deep", "deep-cut"],
)
def test_a_body_that_is_not_json_is_400(app: App, body: bytes) -> None:
    answer = app.ask("POST", "/v1/rank", body)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")


@pytest.mark.parametrize(
    "media", ["", "text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded"]
)
def test_json_is_read_whatever_the_content_type_says(app: App, media: str) -> None:
    assert app.ask("POST", "/v1/rank", RANK, content_type=media).status_code == 200


@pytest.mark.parametrize("user", ["a/b", "a:b\n\t\"'", "\u202eevil", "🦊", "\x00", "0", "x" * 256])
def test_ids_may_hold_anything(app: App, user: str) -> None:
    assert app.rank(user=user).status_code == 200
    assert app.service.rank_calls[0].request.user == user


def test_of_a_key_that_comes_twice_the_last_value_counts(app: App) -> None:
    assert app.ask("POST", "/v1/rank", b'{"user":"a","user":"b","context":{}}').status_code == 200
    assert app.service.rank_calls[0].request.user == "b"


def test_absent_and_null_are_the_same_where_null_is_allowed(app: App) -> None:
    nothing = {"id": None, "session": None, "candidates": None, "budget_ms": None, "traffic": None}
    assert app.rank(**nothing).status_code == app.rank().status_code == 200
    first, second = (call.request for call in app.service.rank_calls)
    assert first == second


def test_a_context_of_another_year_is_accepted_and_unknown_keys_of_entities_are_ignored(app: App) -> None:
    entity = {"id": "1", "type": "image", "width": 10}
    for year in (1970, 2099):
        assert app.rank(context={"time": f"{year}-01-01T00:00:00Z", "entities": [entity]}).status_code == 200


def test_a_body_over_the_limit_is_refused_by_its_declared_length_before_it_is_read(app: App) -> None:
    read: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        read.append(1)
        yield b" " * 5_000_000

    answer = app.ask("POST", "/v1/rank", pieces(), content_length="5000000")
    assert (answer.status_code, read) == (413, [])
    assert "5000000" in answer.json()["detail"]


def test_a_body_of_unknown_length_is_cut_off_at_the_limit() -> None:
    app, read = App(limits=Limits(rank_bytes=1000)), []

    async def pieces() -> AsyncIterator[bytes]:
        for piece in range(1000):
            read.append(piece)
            yield b" " * 100

    assert app.ask("POST", "/v1/rank", pieces()).status_code == 413
    assert len(read) == 11


def test_a_body_of_exactly_the_limit_is_read(app: App) -> None:
    body = (GOOD + b"}").ljust(Limits().rank_bytes)
    assert app.ask("POST", "/v1/rank", body).status_code == 200
    assert app.ask("POST", "/v1/rank", body + b" ").status_code == 413


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    app = App(limits=Limits(body_s=0.01))

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.sleep(30)
        yield b""

    assert app.ask("POST", "/v1/rank", nothing()).status_code == 408


@pytest.mark.parametrize(
    ("path", "headers", "status", "field"),
    [
        ("/v1/rank", {"content_encoding": "gzip"}, 415, "Content-Encoding"),
        ("/v1/rank", {"x_caller": "c" * 257}, 422, "X-Caller"),
        ("/v1/rank?explain=maybe", {}, 422, "explain"),
        ("/v1/rank?explian=true", {}, 422, "explian"),
    ],
)
def test_a_header_or_parameter_that_cannot_be_is_named(
    app: App, path: str, headers: dict[str, str], status: int, field: str
) -> None:
    answer = app.ask("POST", path, RANK, **headers)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (Conflict("id 'a' came with another body", "$.id"), 409, "conflict"),
        (InvalidRequest("no", "$.k"), 422, "invalid"),
    ],
)
def test_what_the_service_refuses_keeps_its_field(error: Exception, status: int, slug: str) -> None:
    problem = App(FakeService(error=error)).rank().json()
    assert (problem["status"], problem["type"]) == (status, f"/problems/{slug}")
    assert (problem["field"], problem["detail"]) == (vars(error)["field"], str(error))
