"""Validation: each kind of fault is counted and named with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from features.errors import LogError
from features.log import LogWriter
from training.validate import ValidationReport, validate_log

NOON = "2026-03-01T12:00:00.000Z"


def action(name: str = "share", **fields: Any) -> dict[str, Any]:
    return {"event": "action", "id": f"action-{name}", "time": NOON, "action": name, "fields": fields}


def ranking(id: str = "r", user: str = "u", propensity: Any = 1.0, **fields: Any) -> dict[str, Any]:
    item = {"action": "share", "position": 1, "propensity": propensity}
    return {"event": "ranking", "id": id, "time": NOON, "user": user, "items": [item], **fields}


def feedback(id: str = "f", ranking: str = "r", user: str = "u", action: str = "share") -> dict[str, Any]:
    same = {"event": "feedback", "time": NOON, "type": "accept"}
    return {"id": id, "ranking": ranking, "user": user, "action": action, **same}


def interaction(id: str = "i", **fields: Any) -> dict[str, Any]:
    return {"event": "interaction", "id": id, "time": NOON, "user": "u", "type": "opened", **fields}


def validated(tmp_path: Path, *lines: dict[str, Any] | bytes) -> ValidationReport:
    with LogWriter.open(tmp_path / "log") as writer:
        writer.append([line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines])
    return validate_log(tmp_path / "log")


def found(report: ValidationReport) -> dict[str, tuple[str, list[int]]]:
    """Severity and lines by kind."""
    return {kind: (one.severity, [e["line"] for e in one.examples]) for kind, one in report.findings.items()}


def test_a_sound_log_has_no_findings(tmp_path: Path) -> None:
    report = validated(tmp_path, action(), interaction(action="share"), ranking(), feedback())
    assert report.ok
    assert report.to_json() == {
        "ok": True,
        "events": {"action": 1, "interaction": 1, "ranking": 1, "feedback": 1},
        "findings": {},
    }


CASES: dict[str, tuple[list[dict[str, Any] | bytes], dict[str, tuple[str, list[int]]]]] = {
    "orphan feedback": ([action(), feedback()], {"orphan_feedback": ("error", [2])}),
    "feedback before its ranking": ([action(), feedback(), ranking()], {"orphan_feedback": ("error", [2])}),
    "feedback of another user": ([action(), ranking(), feedback(user="v")], {"orphan_feedback": ("error", [3])}),
    "feedback on what was not offered": (
        [action(), action("copy"), ranking(), feedback(action="copy")],
        {"feedback_not_offered": ("warning", [4])},
    ),
    "feedback on an unknown action": (
        [action(), ranking(), feedback(action="copy")],
        {"unknown_action": ("error", [3]), "feedback_not_offered": ("warning", [3])},
    ),
    "duplicate ids": (
        [interaction(), interaction(type="closed"), interaction("j"), interaction("j")],
        {"duplicate_id": ("error", [2, 4])},
    ),
    "two rankings of one user": ([action(), ranking(), ranking()], {"duplicate_id": ("error", [3])}),
    "rankings of two users with one id": ([action(), ranking(), ranking(user="v")], {}),
    "unknown action offered": ([ranking(), action()], {"unknown_action": ("error", [1])}),
    "unknown action in the pool": (
        [action(), ranking(pool=[["share", None, 1.0], ["copy", None, 0.5]])],
        {"unknown_action": ("error", [2])},
    ),
    "unknown action done by the user himself": ([interaction(action="x")], {"unknown_action": ("warning", [1])}),
    "a withdrawn action was known": ([action(), {**action(), "id": "w", "fields": None}, ranking()], {}),
    "missing propensity": (
        [action(), ranking("1", propensity=None), ranking("2", propensity=0.0), ranking("3", propensity=1.01)],
        {"missing_propensity": ("error", [2, 3, 4])},
    ),
    "missing propensity in an import": (
        [action(), ranking(propensity=None, versions={"import": "star"})],
        {"missing_propensity": ("warning", [2])},
    ),
    "cut JSON": ([b'{"event":"forget","id"'], {"torn_line": ("error", [1])}),
    "not an event": ([b"{}", b"\xff", b"null", interaction(type=3)], {"invalid_line": ("error", [1, 2, 3, 4])}),
    "an action that cannot be used": ([action(min_age=-1)], {"invalid_line": ("error", [1])}),
    "late": ([interaction(), {**interaction("j"), "time": "2026-03-01T11:00:00Z"}], {"late": ("info", [2])}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    lines, expected = CASES[name]
    report = validated(tmp_path, *lines)
    assert found(report) == expected
    assert report.ok == all(severity != "error" for severity, _ in expected.values())


def test_examples_say_segment_line_offset_and_what(tmp_path: Path) -> None:
    segment = tmp_path / "log" / "partition-0" / f"{5:020d}.jsonl"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"\n" + json.dumps(feedback()).encode() + b'\n{"event":"forget"')
    findings = validate_log(tmp_path / "log").to_json()["findings"]
    assert {kind: finding["count"] for kind, finding in findings.items()} == {
        "segment_gap": 1,
        "orphan_feedback": 1,
        "unknown_action": 1,
        "torn_line": 1,
    }
    assert findings["orphan_feedback"]["examples"] == [
        {
            "segment": segment.name,
            "line": 2,
            "offset": 6,
            "detail": "accept 'f' names ranking 'r', which user 'u' did not get",
        }
    ]
    assert findings["torn_line"]["examples"][0]["line"] == 3


def test_all_are_counted_and_twenty_are_shown(tmp_path: Path) -> None:
    report = validated(tmp_path, *(feedback(id=str(number)) for number in range(50)))
    finding = report.findings["orphan_feedback"]
    assert (finding.count, len(finding.examples)) == (50, 20)


def test_one_error_among_warnings_makes_the_finding_an_error(tmp_path: Path) -> None:
    report = validated(tmp_path, interaction(action="x"), ranking(), interaction("j", action="y"))
    assert (report.findings["unknown_action"].severity, report.ok) == ("error", False)


def test_progress_counts_lines(tmp_path: Path) -> None:
    validated(tmp_path, *(interaction(str(number)) for number in range(2500)))
    seen: list[int] = []
    validate_log(tmp_path / "log", seen.append)
    assert seen == [1000, 2000]


def test_no_log_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="nowhere does not exist"):
        validate_log(tmp_path / "nowhere")
