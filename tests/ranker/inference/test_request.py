"""The request: its JSON, its default budgets, and what it cannot be."""

from __future__ import annotations

import math

import pytest

from ranker.inference.request import DEFAULT_BUDGETS_MS, InvalidRequest, Request, fault

JSON = b'{"requestId":"r1","modelKey":"m@1","tokenBudget":120,"arrivalMs":10,"deadlineMs":90.5,"priority":"premium"}'


def request(**changes: object) -> Request:
    fields = {"request_id": "r1", "model_key": "m@1", "token_budget": 120, "arrival_ms": 0.0, "deadline_ms": 80.0}
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def test_camel_case_json_decodes_to_a_request() -> None:
    assert Request.from_json(JSON) == Request("r1", "m@1", 120, 10.0, 90.5, "premium")
    assert Request.from_json(JSON.decode()) == Request.from_json(JSON)


def test_a_mapping_decodes_as_its_json_does() -> None:
    raw = {"requestId": "r1", "modelKey": "m@1", "tokenBudget": 120, "arrivalMs": 10, "deadlineMs": 90.5}
    assert Request.from_json(raw) == Request("r1", "m@1", 120, 10.0, 90.5, "normal")


@pytest.mark.parametrize(("priority", "deadline"), [("premium", 70.0), ("normal", 110.0), ("shadow", math.inf)])
def test_without_a_deadline_the_default_budget_of_the_priority_counts_from_the_arrival(
    priority: str, deadline: float
) -> None:
    raw = {"requestId": "r", "modelKey": "m@1", "tokenBudget": 1, "arrivalMs": 10, "priority": priority}
    assert Request.from_json(raw).deadline_ms == deadline


def test_premium_has_the_shorter_default_budget() -> None:
    assert DEFAULT_BUDGETS_MS["premium"] < DEFAULT_BUDGETS_MS["normal"] < DEFAULT_BUDGETS_MS["shadow"]


def test_a_deadline_of_zero_is_a_deadline_and_not_a_missing_one() -> None:
    raw = {"requestId": "r", "modelKey": "m@1", "tokenBudget": 1, "arrivalMs": 0, "deadlineMs": 0}
    assert Request.from_json(raw).deadline_ms == 0.0


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"{", "not a request"),
        (JSON.replace(b"120", b"-1"), "token_budget is -1"),
        (JSON.replace(b"120", b"1.5"), "tokenBudget"),
        (JSON.replace(b"90.5", b"9"), "deadline_ms is 9.0"),
        (JSON.replace(b'"premium"', b'"vip"'), "priority"),
        (JSON.replace(b'"requestId":"r1",', b""), "requestId"),
        (JSON.replace(b"deadlineMs", b"deadlineMS"), "deadlineMS"),
    ],
)
def test_json_that_is_no_request_is_refused_by_the_name_of_its_field(raw: bytes, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        Request.from_json(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"token_budget": 0},
        {"token_budget": -5},
        {"token_budget": math.nan},
        {"token_budget": math.inf},
        {"token_budget": 1.5},
        {"token_budget": "12"},
        {"token_budget": None},
        {"token_budget": True},
        {"arrival_ms": math.nan},
        {"arrival_ms": math.inf},
        {"arrival_ms": -math.inf},
        {"arrival_ms": None},
        {"deadline_ms": math.nan},
        {"deadline_ms": -1.0},
        {"deadline_ms": "soon"},
        {"priority": "vip"},
        {"priority": None},
        {"priority": ["normal"]},
        {"request_id": ""},
        {"request_id": None},
        {"request_id": ["r"]},
        {"model_key": ""},
        {"model_key": 3},
    ],
    ids=str,
)
def test_a_field_that_cannot_be_is_named_with_its_value(changes: dict[str, object]) -> None:
    ((name, value),) = changes.items()
    problem = fault(request(**changes))
    assert problem is not None
    assert name in problem or "wrong type" in problem
    assert repr(value) in problem or "wrong type" in problem


@pytest.mark.parametrize("changes", [{}, {"deadline_ms": math.inf}, {"token_budget": 12.0}, {"deadline_ms": 0.0}])
def test_what_can_be_has_no_fault(changes: dict[str, object]) -> None:
    assert fault(request(**changes)) is None
