"""`/v1/actions` and `/v1/users`: ids of any characters, all lines or none."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import ActionSpec
from ranker.errors import ServiceUnavailable
from ranker.policy_config import SafetyClass
from tests.ranker.api.fake_service import App, FakeService

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
ODD = [
    "a/b",
    "//",
    "a?b#c",
    "a b",
    "%2F",
    "🦊",
    "\u202ex",
    "line\nbreak",
    "end\n",
    "\x00",
    "q\"'",
    "a+b",
    "0",
    "..",
    "é",
]


def action_path(action: str) -> str:
    return "/v1/actions/" + "".join(f"%{byte:02X}" for byte in action.encode())


@pytest.fixture
def app() -> App:
    return App()


def lines(*entries: dict[str, Any]) -> bytes:
    return b"\n".join(msgspec.json.encode(entry) for entry in entries)


@pytest.mark.parametrize("action", ODD)
def test_an_action_of_any_name_is_put_read_and_withdrawn(app: App, action: str) -> None:
    spec = {"title": "T", "entity_types": ["image"]}
    assert app.ask("PUT", action_path(action), spec).json() == spec
    assert app.service.catalogue[action] == ActionSpec(title="T", entity_types=["image"])
    assert app.ask("GET", action_path(action)).json() == spec
    gone = app.ask("DELETE", action_path(action))
    assert (gone.status_code, gone.content, "content-type" in gone.headers) == (204, b"", False)
    assert app.ask("GET", action_path(action)).status_code == 404


@settings(deadline=None)
@given(IDS)
def test_any_user_id_reaches_the_service_as_it_is(user: str) -> None:
    app = App(FakeService(users={user: {"n": 1}}))
    path = "/v1/users/" + quote(user, safe="").replace(".", "%2E")
    answer = app.ask("GET", path)
    assert (answer.status_code, answer.json()) == (200, {"n": 1})
    assert answer.headers["cache-control"] == "no-store"
    assert app.ask("DELETE", path).status_code == 204
    assert app.service.users == {}


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/users/", 422), ("/v1/actions/" + "x" * 257, 422), ("/v1/users/%FF", 400)]
)
def test_an_id_that_cannot_be_is_named(app: App, path: str, status: int) -> None:
    answer = app.ask("GET", path)
    assert (answer.status_code, answer.json()["field"]) == (status, path.split("/")[2][:-1])


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"titel": "x"}, "$.titel"),
        ({"min_age": -1}, "$.min_age"),
        ({"fields": {"n": "x" * 5000}}, "$.fields.n"),
        ({"fields": {"title": "a"}}, "$.fields.title"),
        ({"min_app_version": "abc"}, "$.min_app_version"),
        ({"max_app_version": "3.x"}, "$.max_app_version"),
        ([], "$"),
    ],
)
def test_a_broken_entry_is_refused_by_its_field(app: App, spec: Any, field: str) -> None:
    answer = app.ask("PUT", "/v1/actions/a", spec)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert "a" not in app.service.catalogue


def test_a_class_that_the_policy_does_not_have_is_refused_by_its_name() -> None:
    app = App(classes={"adult": SafetyClass()})
    answer = app.ask("PUT", "/v1/actions/a", {"safety_class": "adlut"})
    assert (answer.status_code, answer.json()["field"], answer.json()["value"]) == (422, "$.safety_class", "adlut")
    assert "adult" in answer.json()["detail"] and "a" not in app.service.catalogue
    body = lines({"action": "a", "safety_class": "adlut"})
    assert app.ask("PUT", "/v1/actions", body, content_type="application/x-ndjson").status_code == 422
    for known in ("adult", "none"):
        assert app.ask("PUT", "/v1/actions/a", {"safety_class": known}).status_code == 200


def test_lines_replace_the_whole_catalogue_in_their_order(app: App) -> None:
    entries = [{"action": name, "off": True} for name in ("b", "a", "c")]
    assert app.ask("PUT", "/v1/actions", lines(*entries), content_type="application/x-ndjson").json() == {
        "put": 3,
        "withdrawn": 1,  # `summarize`, which was there
    }
    assert list(app.service.catalogue) == ["b", "a", "c"]
    assert app.ask("GET", "/v1/actions").json() == {"actions": {name: {"off": True} for name in ("b", "a", "c")}}


def test_an_empty_array_empties_the_catalogue_but_an_empty_body_is_a_mistake(app: App) -> None:
    assert app.ask("PUT", "/v1/actions", b"").status_code == 400
    assert list(app.service.catalogue) == ["summarize"]
    assert app.ask("PUT", "/v1/actions", []).json() == {"put": 0, "withdrawn": 1}
    assert app.service.catalogue == {}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (lines({"action": "a"}, {"action": "b", "titel": 1}), 422, "$[1].titel"),
        (lines({"action": "a"}, {"title": "x"}), 422, "$[1].action"),
        (lines({"action": "a"}, {"action": "a"}), 422, "$[1].action"),
        (lines({"action": "a"}, {"action": ""}), 422, "$[1].action"),
        (lines({"action": "a"}, {"action": "b", "fields": {"n": "x" * 5000}}), 422, "$[1].fields.n"),
        (lines({"action": "a"}, {"action": "n1", "fields": {"title": "a"}}), 422, "$[1].fields.title"),
        (lines({"action": "a"}, {"action": "b", "min_app_version": "abc"}), 422, "$[1].min_app_version"),
        (b'{"action":"a"}\n{"act', 400, "$[1]"),
    ],
)
def test_one_wrong_line_and_nothing_is_changed(app: App, body: bytes, status: int, field: str) -> None:
    answer = app.ask("PUT", "/v1/actions", body, content_type="application/x-ndjson")
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert list(app.service.catalogue) == ["summarize"]


def test_a_large_catalogue_is_put_whole(app: App) -> None:
    body = lines(*({"action": f"a{number}"} for number in range(3000)))
    answer = app.ask("PUT", "/v1/actions", body, content_type="application/x-ndjson")
    assert answer.json() == {"put": 3000, "withdrawn": 1}
    assert app.ask("PUT", "/v1/actions", body, content_type="application/x-ndjson").json()["withdrawn"] == 0


def test_a_user_who_cannot_be_read_now_is_503() -> None:
    answer = App(FakeService(error=ServiceUnavailable("the store does not answer"))).ask("GET", "/v1/users/u1")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
