"""`nextaction audit`: from a log to texts to label, and from labels to what passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from features.events import Audit, AuditedText, RankingEvent, encode_event, from_seconds
from features.log import LogWriter, Written
from tests.command_line import Nextaction


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def ranking(number: int, audit: Audit | None) -> RankingEvent:
    event = RankingEvent(id=f"r{number}", time=from_seconds(1.7e9 + number), user=f"u{number % 5}")
    return event if audit is None else RankingEvent(id=event.id, time=event.time, user=event.user, audit=audit)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Of 400 rankings 40 were drawn; each showed `hello`, a text of its own, and had one withheld."""
    writer = LogWriter.open(tmp_path / "log")
    for number in range(400):
        items = [
            AuditedText(action="a", text="hello", score=0.1, served=True),
            AuditedText(action="b", text=f"text {number}", score=0.2, served=True),
            AuditedText(action="c", text="horrid", score=0.9, passed=False),
        ]
        event = ranking(number, Audit(probability=0.1, items=items) if number % 10 == 0 else None)
        writer.append([Written(encode_event(event), event, True)])
    writer.close()
    return tmp_path / "log"


def test_from_a_log_to_labels_to_estimates_to_calibration(nextaction: Nextaction, log: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.jsonl"
    done = nextaction("audit", "--log", log, "--to", sheet, "--json")
    assert (done.status, done.err) == (0, "")
    found = done.json
    assert (found["rankings"], found["audited"], found["texts"], found["distinct"]) == (400, 40, 120, 42)
    assert (found["served"], found["withheld"], found["written"], found["estimates"]) == (80, 40, 42, None)
    rows = [json.loads(line) for line in sheet.read_text().splitlines()]
    assert [row["text"] for row in rows] != sorted(row["text"] for row in rows), "in an order of chance"
    horrid = next(row for row in rows if row["text"] == "horrid")
    assert horrid == {"text": "horrid", "unsafe": None, "score": 0.9, "passed": False, "drawn": 40, "weight": 400.0}
    for row in rows:
        row["unsafe"] = None if row["text"] == "text 10" else row["text"] in ("horrid", "text 0")
    sheet.write_text("\n".join(map(json.dumps, rows)))
    done = nextaction("audit", "--log", log, "--labels", sheet, "--to", tmp_path / "cases.jsonl", "--json")
    estimates = done.json["estimates"]
    assert estimates["served"]["share"] == pytest.approx(1 / 79)
    assert (estimates["served"]["total"], estimates["served"]["of_total"]) == (10.0, pytest.approx(790.0))
    assert estimates["missed"]["share"] == pytest.approx(1 / 41)
    assert (estimates["labelled"], estimates["unlabelled"], done.json["written"]) == (119, 1, 41)
    shown = nextaction("audit", "--log", log, "--labels", sheet)
    assert "shown texts that are unsafe" in shown.out and "no alarm" in shown.out
    # P(Bin(2, .7) <= 0) = .09, <= 1 = .51: none of the two may pass, so the lower score is the threshold
    cases = ("calibrate-safety", "--labelled", tmp_path / "cases.jsonl", "--scores", "score", "--limit", "0.7")
    done = nextaction(*cases, "--confidence", "0.5", "--json")
    assert (done.status, done.json["unsafe"], done.json["safe"], done.json["threshold"]) == (0, 2, 39, 0.2)


@pytest.mark.parametrize("command", ["audit", "calibrate-safety"])
def test_the_commands_explain_themselves(nextaction: Nextaction, command: str) -> None:
    done = nextaction(command, "--help")
    assert done.status == 0 and done.out.startswith(f"usage: nextaction {command}")


def test_labels_are_never_written_over(nextaction: Nextaction, log: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.jsonl"
    sheet.write_text("hours of work")
    done = nextaction("audit", "--log", log, "--to", sheet)
    assert done.status == 1 and "is there already" in done.err and sheet.read_text() == "hours of work"


def test_a_log_without_an_audit_says_how_to_get_one(nextaction: Nextaction, tmp_path: Path) -> None:
    writer = LogWriter.open(tmp_path / "log")
    event = ranking(1, None)
    writer.append([Written(encode_event(event), event, True)])
    writer.close()
    done = nextaction("audit", "--log", tmp_path / "log")
    assert done.status == 1 and "audit.probability" in done.err and len(done.err.splitlines()) == 1
    assert nextaction("audit", "--log", tmp_path / "none").status == 1
