"""The application as a whole: errors, health, metrics, and random input into every route."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from features.errors import EventError, LogUnavailable, StoreTimeout
from tests.ranker.api.fake_service import RANK, App, FakeService

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
KNOWN = [
    "user",
    "context",
    "k",
    "id",
    "candidates",
    "exclude",
    "budget_ms",
    "event",
    "time",
    "type",
    "action",
    "fields",
]
ROUTES = [
    ("POST", "/v1/rank"),
    ("POST", "/v1/events"),
    ("PUT", "/v1/actions"),
    ("PUT", "/v1/actions/a"),
    ("GET", "/v1/actions"),
    ("GET", "/v1/users/a"),
    ("DELETE", "/v1/users/a"),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
]


@pytest.fixture
def app() -> App:
    return App()


@pytest.mark.parametrize(("method", "path"), ROUTES)
@settings(max_examples=40, deadline=None)
@given(body=JSON | st.dictionaries(st.sampled_from(KNOWN), JSON) | st.binary(max_size=100))
def test_no_body_makes_any_route_fail(method: str, path: str, body: Any) -> None:
    answer = App().ask(method, path, body if isinstance(body, bytes) else msgspec.json.encode(body))
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code


@settings(deadline=None)
@given(fields=st.fixed_dictionaries({}, optional={"context": JSON, "k": JSON, "candidates": JSON, "exclude": JSON}))
def test_a_rank_request_with_anything_in_a_field_is_answered_or_refused_by_that_field(fields: dict[str, Any]) -> None:
    answer = App().rank(**fields)
    assert answer.status_code in (200, 422)
    if answer.status_code == 422:
        assert answer.json()["field"].removeprefix("$.").split(".")[0].split("[")[0] in fields


@settings(max_examples=40, deadline=None)
@given(
    path=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), method=st.sampled_from(["GET", "POST", "BREW"])
)
def test_no_path_fails(path: str, method: str) -> None:
    encoded = "/" + "".join(f"%{byte:02X}" for byte in path.encode())
    assert App().ask(method, encoded).status_code in (404, 405)


def test_an_unknown_path_is_a_problem(app: App) -> None:
    answer = app.ask("GET", "/v2/rank")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["type"] == "/problems/not-found"


def test_a_path_with_something_after_it_is_another_path(app: App) -> None:
    assert [app.ask("POST", path, RANK).status_code for path in ("/v1/rank/", "/v1/rank%0A", "/v1/rankx")] == [404] * 3


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/rank", "POST"),
        ("POST", "/v1/actions/a", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "/v1/events", "POST"),
        ("POST", "/openapi.json", None),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(app: App, method: str, path: str, allowed: str | None) -> None:
    answer = app.ask(method, path)
    assert (answer.status_code, answer.json()["status"]) == (405, 405)
    assert allowed is None or answer.headers["allow"] == allowed


def test_an_unexpected_error_is_logged_under_an_id_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    app = App(FakeService(error=RuntimeError("password=hunter2 at /etc/secret")))
    with caplog.at_level(logging.ERROR):
        answer = app.rank()
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (500, "/problems/internal")
    assert problem["error_id"] in caplog.text and "RuntimeError" in caplog.text
    assert "hunter2" not in answer.text and "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LogUnavailable("/var/log full"), 503),
        (StoreTimeout("unix:///s"), 503),
        (EventError("invalid", "x - at `$.y`"), 422),
    ],
)
def test_errors_of_features_have_a_status_and_keep_paths_to_themselves(error: Exception, status: int) -> None:
    answer = App(FakeService(error=error)).ask("GET", "/v1/actions/a")
    assert answer.status_code == status
    assert "/var" not in answer.text and "unix:" not in answer.text


@pytest.mark.parametrize(("sent", "given_back"), [("req-1", True), ("a b", False), ("x" * 129, False)])
def test_a_request_id_comes_back_only_if_it_is_harmless(app: App, sent: str, given_back: bool) -> None:
    answer = app.ask("POST", "/v1/rank", RANK, x_request_id=sent)
    assert answer.headers.get("x-request-id") == (sent if given_back else None)


def test_a_process_that_is_up_says_so_and_readiness_names_what_is_missing() -> None:
    app = App(FakeService(missing={"store": "does not answer"}))
    assert app.ask("GET", "/healthz").json() == {"status": "ok"}
    answer = app.ask("GET", "/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (503, {"store": "does not answer"})
    app.service.missing = {}
    assert (app.ask("GET", "/readyz").status_code, app.ask("GET", "/readyz").json()) == (200, {"ready": True})


def test_models_are_the_services(app: App) -> None:
    assert app.ask("GET", "/v1/models").json()["active"] == "7"


def samples(app: App) -> dict[tuple[str, frozenset[str]], float]:
    answer = app.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(one.name, frozenset(one.labels.values())): one.value for family in families for one in family.samples}


def labels(*values: str) -> frozenset[str]:
    return frozenset(values)


def test_metrics_count_what_was_answered() -> None:
    app = App(FakeService(degraded=["empty"], drops={"policy:cooldown": 3}))
    app.rank()
    app.rank(k=0)
    app.ask("GET", "/v1/users/who")
    app.ask("GET", "/nowhere")
    app.ask("POST", "/v1/events", [{}])
    found = samples(app)
    assert found["nextaction_http_requests_total", labels("/v1/rank", "200")] == 1
    assert found["nextaction_http_requests_total", labels("/v1/rank", "422")] == 1
    assert found["nextaction_http_requests_total", labels("/v1/users/{user}", "404")] == 1
    assert found["nextaction_http_requests_total", labels("unknown", "404")] == 1
    assert found["nextaction_events_total", labels("refused", "invalid")] == 1
    assert found["nextaction_degraded_total", labels("empty")] == 1
    assert found["nextaction_rankings_total", labels("live")] == 1
    assert found["nextaction_drops_total", labels("policy", "cooldown")] == 3
    assert found["nextaction_items_per_answer_bucket", labels("1")] == 1


def test_metrics_show_the_services_status() -> None:
    found = samples(App())
    assert found["nextaction_log_end", labels()] == 12
    assert found["nextaction_store_circuit", labels("open")] == 1
    assert found["nextaction_store_circuit", labels("closed")] == 0
    assert found["nextaction_ready", labels()] == 1


def test_a_latency_of_exactly_120_ms_is_within_the_promise() -> None:
    app = App()
    app.rank()  # the fake stage "total" takes 120 ms
    found = samples(app)
    assert found["nextaction_stage_seconds_bucket", labels("total", "0.06")] == 0
    assert found["nextaction_stage_seconds_bucket", labels("total", "0.12")] == 1
    assert found["nextaction_http_request_seconds_bucket", labels("/v1/rank", "0.12")] == 1


def test_ids_never_become_labels(app: App) -> None:
    for number in range(20):
        app.ask("GET", f"/v1/users/user-{number}")
        app.ask("GET", f"/wp-admin/{number}")
    assert "user-" not in app.ask("GET", "/metrics").text and "wp-admin" not in app.ask("GET", "/metrics").text


def test_there_is_no_page_that_loads_scripts_from_elsewhere(app: App) -> None:
    assert [app.ask("GET", path).status_code for path in ("/docs", "/redoc")] == [404, 404]
