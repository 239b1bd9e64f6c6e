"""`POST /v1/events`: one event, an array or lines; one result each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ranker.api.documents import depth_exceeds, split_documents
from ranker.api.limits import Limits
from ranker.api.problems import Malformed
from ranker.errors import ServiceUnavailable
from tests.ranker.api.fake_service import App, FakeService

TIME = "2024-05-24T09:30:00.125Z"


def event(event_id: str, **fields: Any) -> dict[str, Any]:
    return {"event": "interaction", "id": event_id, "time": TIME, "user": "u1", "type": "opened", **fields}


def lines(*events: Any) -> bytes:
    return b"\n".join(msgspec.json.encode(one) for one in events)


@pytest.fixture
def app() -> App:
    return App()


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (msgspec.json.encode([event("a"), event("b")]), "application/json"),
        (lines(event("a"), event("b")), "application/x-ndjson"),
        (lines(event("a"), event("b")), "application/json"),
        (b"\n\r\n" + lines(event("a")) + b"\r\n  \n" + lines(event("b")) + b"\n", "application/x-ndjson"),
        (lines(event("a"), event("b")), ""),
    ],
    ids=["array", "ndjson", "ndjson-unnamed", "blank-lines", "no-type"],
)
def test_every_form_gives_the_same_events(app: App, body: bytes, media: str) -> None:
    answer = app.ask("POST", "/v1/events", body, content_type=media)
    results = [{"id": "a", "status": "accepted"}, {"id": "b", "status": "accepted"}]
    assert answer.json() == {"results": results, "accepted": 2, "duplicate": 0, "refused": 0}
    assert app.service.event_ids == ["a", "b"]


def test_one_event_may_be_printed_over_several_lines(app: App) -> None:
    body = msgspec.json.format(msgspec.json.encode(event("a")), indent=2)
    assert app.ask("POST", "/v1/events", body).json()["accepted"] == 1


def test_each_event_has_its_own_result_in_order(app: App) -> None:
    posted = [event("a"), event("a"), {"event": "interaction"}, 7, event("b")]
    answer = app.ask("POST", "/v1/events", posted)
    assert answer.status_code == 200
    assert [result["status"] for result in answer.json()["results"]] == [
        "accepted",
        "duplicate",
        "refused",
        "refused",
        "accepted",
    ]
    assert answer.json()["results"][2]["reason"] == "invalid"
    assert [answer.json()[name] for name in ("accepted", "duplicate", "refused")] == [2, 1, 2]


def test_a_torn_line_is_refused_alone(app: App) -> None:
    body = lines(event("a")) + b'\n{"event":"inter\n' + lines(event("b"))
    assert app.ask("POST", "/v1/events", body, content_type="application/x-ndjson").json()["refused"] == 1
    assert app.service.event_ids == ["a", "b"]


def test_all_refused_is_still_200_with_the_reasons(app: App) -> None:
    answer = app.ask("POST", "/v1/events", [{}, {}])
    assert (answer.status_code, answer.json()["refused"]) == (200, 2)


@pytest.mark.parametrize("body", [b"", b" \n ", b"{", b"[1", b"nonsense", b'[{"event":NaN}]', b"[" * 50_000, b"{1}"])
def test_a_body_that_is_no_json_at_all_is_400_and_nothing_is_taken(app: App, body: bytes) -> None:
    answer = app.ask("POST", "/v1/events", body)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")
    assert app.service.event_ids == []


def test_an_empty_array_is_no_events(app: App) -> None:
    assert app.ask("POST", "/v1/events", []).json() == {"results": [], "accepted": 0, "duplicate": 0, "refused": 0}


def test_an_event_nested_too_deeply_is_refused_and_the_others_are_taken(app: App) -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    results = app.ask("POST", "/v1/events", [event("a"), event("x", fields={"deep": deep}), event("b")]).json()[
        "results"
    ]
    assert [result["status"] for result in results] == ["accepted", "refused", "accepted"]
    assert app.service.event_ids == ["a", "b"]


def test_nothing_is_acknowledged_when_the_log_cannot_be_written() -> None:
    app = App(FakeService(error=ServiceUnavailable("the disk is full")))
    answer = app.ask("POST", "/v1/events", event("a"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"] == "the disk is full"


def test_too_many_events_are_refused_as_a_whole() -> None:
    app = App(limits=Limits(events=3))
    assert app.ask("POST", "/v1/events", [event(str(number)) for number in range(4)]).status_code == 413
    assert app.service.event_ids == []


def test_too_many_bytes_are_refused() -> None:
    assert App(limits=Limits(events_bytes=100)).ask("POST", "/v1/events", event("a", text="x" * 100)).status_code == 413


def test_a_line_separator_inside_a_string_does_not_end_a_line() -> None:
    body = '{"a":"x\u2028y"}\n{"b":"\x85"}'.encode()
    assert split_documents(body, "application/x-ndjson") == body.split(b"\n")


def test_a_single_broken_line_sent_as_lines_is_left_to_the_service() -> None:
    assert split_documents(b"{", "application/x-ndjson") == [b"{"]
    with pytest.raises(Malformed):
        split_documents(b"{", "application/json")


@pytest.mark.parametrize(("document", "depth"), [(b"0", 0), (b"{}", 1), (b'{"a":[]}', 2), (b'[{"a":[0]},1]', 3)])
def test_depth_is_what_one_counts_by_hand(document: bytes, depth: int) -> None:
    assert not depth_exceeds(document, depth)
    assert depth == 0 or depth_exceeds(document, depth - 1)


def test_brackets_in_strings_are_not_depth() -> None:
    assert not depth_exceeds(b'{"a":"' + b"[" * 500 + b'"}', 10)
