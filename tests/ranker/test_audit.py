"""Audit: which rankings have their texts logged, with which probability, and what is in the line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from features.events import Audit, AuditedText, RankingEvent, decode_event, encode_event, from_seconds
from ranker.audit import MAX_TEXTS, AuditLot, audit_lot
from ranker.clock import ManualClock
from ranker.ranking_log import for_state, ranking_event
from ranker.stages.explore import cast_lot
from ranker.stages.safety import Safety, SafetyJudge
from ranker.types import Drop, Item, Ranking
from tests.fakes import SECRET, FakeScorer, catalogue, context, ranking
from tests.ranker.online import run, service

SPECS: dict[str, dict[str, Any]] = {
    "good": {"title": "All is well with {target}", "needs_text_check": True},
    "also": {"title": "This too", "needs_text_check": True},
    "free": {"title": "nobody asked"},
    "bad": {"title": "unsafe words", "needs_text_check": True},
}
ALL = AuditLot(1.0, SECRET)


def lot(probability: float) -> AuditLot:
    found = audit_lot(SECRET, probability)
    assert found is not None
    return found


def ranked(lot: AuditLot | None, scorer: FakeScorer | None = None, **fields: Any) -> Ranking:
    """After the last look: `bad` was withheld before the draw, and the others are in the order."""
    compiled = catalogue(SPECS)
    state = ranking(compiled, [("good", "image:7"), "also", "free"], **fields)
    state = state.but(order=(2, 0, 1), drops=(Drop("safety", "bad", None, "text"), Drop("policy", "also", "x", "cap")))
    judge = SafetyJudge(compiled, {}, ManualClock(), scorer or FakeScorer())
    return asyncio.run(Safety(judge, lot).run(state))


def text(number: int) -> AuditedText:
    return AuditedText(action="a", text=f"text {number}", score=0.0)


def test_what_was_checked_is_kept_with_its_text_score_and_verdict() -> None:
    entities = [{"id": "7", "type": "image", "fields": {"title": "Beach"}}]
    audit = ranked(ALL, context={"entities": entities}).audit
    assert audit is not None and audit.probability == 1.0
    assert [(each.action, each.target, each.text, each.score, each.passed) for each in audit.items] == [
        ("good", "image:7", "All is well with Beach", 0.0, True),
        ("also", None, "This too", 0.0, True),
        ("bad", None, "unsafe words", 1.0, False),
    ]


def test_the_line_says_which_texts_people_were_shown_and_gives_them_back() -> None:
    state = ranked(ALL)
    event = ranking_event(state.but(items=(Item("also", None, 1, 0.0, 1.0), Item("free", None, 2, 0.0, 1.0))))
    assert isinstance(event.audit, Audit)
    assert [each.served for each in event.audit.items] == [False, True, False]
    assert decode_event(encode_event(event)) == event
    assert for_state(event).audit is msgspec.UNSET


def test_a_line_without_an_audit_is_as_it_was_and_an_old_line_is_read() -> None:
    event = ranking_event(ranked(None))
    assert "audit" not in msgspec.json.decode(encode_event(event))
    old = decode_event(b'{"event":"ranking","id":"r","time":"2024-01-01T00:00:00Z","user":"u"}')
    assert isinstance(old, RankingEvent) and old.audit is msgspec.UNSET
    assert decode_event(encode_event(old)) == old


@pytest.mark.parametrize("traffic", ["probe", "replay", "shadow"])
def test_what_nobody_sees_is_not_audited(traffic: str) -> None:
    assert not ALL.draws(ranked(None).but(traffic=traffic))
    assert ALL.draws(ranked(None).but(traffic="explore"))


def test_off_is_off() -> None:
    assert audit_lot(SECRET, 0.0) is None
    assert ranked(None).audit is None
    assert ranked(AuditLot(1e-12, SECRET)).audit is None


def test_rankings_are_drawn_with_the_probability_and_whatever_they_explore() -> None:
    chosen = lot(0.1)
    state = ranked(None)
    drawn = {n for n in range(20_000) if chosen.draws(state.but(request_id=f"r{n}"))}
    assert len(drawn) == pytest.approx(2000, abs=4 * (20_000 * 0.1 * 0.9) ** 0.5)
    explored = {n for n in range(20_000) if cast_lot(SECRET, f"r{n}").share < 0.3}
    assert len(drawn & explored) == pytest.approx(600, abs=4 * (20_000 * 0.03 * 0.97) ** 0.5)
    assert {n for n in drawn if lot(0.05).draws(state.but(request_id=f"r{n}"))} < drawn, "the lot of an id stays"


def test_of_many_texts_some_are_drawn_and_the_probability_says_so() -> None:
    few = lot(0.5).among([text(n) for n in range(MAX_TEXTS)], "r")
    assert few is not None and (few.probability, len(few.items)) == (0.5, MAX_TEXTS)
    counts = [0] * (4 * MAX_TEXTS)
    for request in range(200):
        audit = lot(0.5).among([text(n) for n in range(4 * MAX_TEXTS)], f"r{request}")
        assert audit is not None and (audit.probability, len(audit.items)) == (0.125, MAX_TEXTS)
        for each in audit.items:
            counts[int(each.text.split()[1])] += 1
    assert sum(counts) == 200 * MAX_TEXTS
    assert 20 < min(counts) <= max(counts) < 85, "each about 50 times"
    assert lot(0.5).among([], "r") is None


def test_a_text_too_long_for_the_log_is_left_out() -> None:
    entities = [{"id": "7", "type": "image", "fields": {"title": "x" * 5000}}]
    audit = ranked(ALL, context={"entities": entities}).audit
    assert audit is not None and [each.action for each in audit.items] == ["also", "bad"]


def test_an_audit_that_fails_costs_nobody_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    compiled = catalogue(SPECS)
    judge = SafetyJudge(compiled, {}, ManualClock(), FakeScorer())
    state = ranking(compiled, ["good"]).but(order=(0,))
    judge.judge(state)
    judge.scorer, judge._check = FakeScorer(error=RuntimeError("gone")), None
    judge.judge = lambda ranking: SafetyJudge(compiled, {}, ManualClock()).judge(ranking)  # type: ignore[method-assign]
    result = asyncio.run(Safety(judge, ALL).run(state))
    assert (result.order, result.audit) == ((0,), None)
    assert "missing from the audit" in caplog.text


def test_a_running_service_logs_what_it_drew(tmp_path: Path) -> None:
    actions: dict[str, dict[str, Any]] = {
        "greet": {"title": "Hello", "needs_text_check": True},
        "share": {"title": "Share"},
    }

    async def work() -> None:
        async with service(tmp_path, actions=actions, audit={"probability": 0.5}) as desk:
            judge = next(stage.judge for stage in desk.running.pipeline.stages if isinstance(stage, Safety))
            judge.scorer = FakeScorer()
            for _ in range(60):
                await desk.rank(k=2)
            audits = [event.audit for event in desk.rankings() if isinstance(event.audit, Audit)]
            assert 15 < len(audits) < 45
            first = audits[0]
            assert first.probability == 0.5
            assert [(each.text, each.passed, each.served) for each in first.items] == [("Hello", True, True)]

    run(work())


def test_a_probability_that_is_none_is_refused() -> None:
    line = b'{"event":"ranking","id":"r","time":"2024-01-01T00:00:00Z","user":"u","audit":{"probability":%s}}'
    for bad in (b"0", b"1.5", b"null", b"-1"):
        with pytest.raises(Exception, match="audit"):
            decode_event(line % bad)


def test_times_of_entities_survive_beside_an_audit() -> None:
    here = context(entities=[{"id": "7", "type": "image", "time": "2024-01-01T00:00:00Z"}])
    audit = Audit(probability=0.5, items=[text(1)])
    event = RankingEvent(id="r", time=from_seconds(1e9), user="u", context=here, audit=audit)
    assert decode_event(encode_event(event)) == event
