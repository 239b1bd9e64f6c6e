"""Counts and names what is wrong with a log, in one pass.

| kind | severity | what |
|---|---|---|
| `torn_line` | error | a line that ends before its JSON, or has no newline |
| `invalid_line` | error | not an event: broken JSON, or a field that does not fit |
| `segment_gap` | error | a segment does not follow on the one before |
| `duplicate_id` | error | an id that stands above already |
| `orphan_feedback` | error | feedback naming no earlier ranking of its user |
| `unknown_action` | error, on interactions a warning | no `action` event before has that action |
| `missing_propensity` | error, on imports a warning | an offered item without a propensity in (0, 1] |
| `feedback_not_offered` | warning | feedback about an action that its ranking did not offer |
| `late` | info | an event older than one before it: normal, only counted |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from features.catalogue import parse_spec
from features.errors import EventError
from features.events import ActionEvent, Event, FeedbackEvent, InteractionEvent, RankingEvent
from features.log import Problem, Problems, RawLine, decode_line, read_lines
from features.scored import scored_set
from training.findings import Severity, ValidationReport
from training.identity import identity, ranking_key

__all__ = ["ValidationReport", "validate_log"]


def validate_log(logdir: Path, progress: Callable[[int], None] | None = None) -> ValidationReport:
    """Checks every line; memory grows by some bytes per id and offered action.

    Args:
        progress: called now and then with the number of lines checked so far.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """
    report = ValidationReport()
    problems = _Reported(report)
    check = _Check(report)
    for count, raw in enumerate(read_lines(logdir, problems=problems), start=1):
        event = decode_line(raw, problems)
        if event is not None:
            check.see(raw, event)
        if progress is not None and count % 1000 == 0:
            progress(count)
    return report


class _Reported(Problems):
    """Hands on every unusable line at once, as an error."""

    def __init__(self, report: ValidationReport) -> None:
        super().__init__()
        self._report = report

    def add(self, problem: Problem) -> None:
        self._report.add("error", problem)


class _Check:
    """What has been seen so far, and what does not go with it."""

    def __init__(self, report: ValidationReport) -> None:
        self._report = report
        self._ids: set[bytes] = set()
        self._actions: dict[str, int] = {}
        self._offers: dict[bytes, tuple[int, ...]] = {}
        self._same_offers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._latest_s = 0.0

    def see(self, raw: RawLine, event: Event) -> None:
        """Checks one event against those before it."""
        self._report.events[str(event.__struct_config__.tag)] += 1
        self._see_time(raw, event)
        key = identity(event)
        if key in self._ids:
            self._add("error", "duplicate_id", raw, f"id {event.id!r} stands above already")
        self._ids.add(key)
        match event:
            case ActionEvent():
                self._see_action(raw, event)
            case InteractionEvent() if event.action is not None:
                self._see_names("warning", raw, "interaction", [event.action])
            case RankingEvent():
                self._see_ranking(raw, event)
            case FeedbackEvent():
                self._see_feedback(raw, event)

    def _see_time(self, raw: RawLine, event: Event) -> None:
        if event.time_s < self._latest_s:
            behind_s = self._latest_s - event.time_s
            self._add("info", "late", raw, f"id {event.id!r} is {behind_s:.3f} s older than an event before it")
        self._latest_s = max(self._latest_s, event.time_s)

    def _see_action(self, raw: RawLine, event: ActionEvent) -> None:
        self._actions.setdefault(event.action, len(self._actions))
        try:
            parse_spec(event.fields or {})
        except EventError as error:
            self._add("error", "invalid_line", raw, f"action {event.action!r}: {error.detail}")

    def _see_ranking(self, raw: RawLine, event: RankingEvent) -> None:
        offered = [item.action for item in event.items]
        self._see_names("error", raw, "ranking", [*offered, *(action for action, _, _ in scored_set(event) or ())])
        self._see_propensities(raw, event)
        places = tuple(sorted({self._actions.get(action, -1) for action in offered}))
        # Many rankings offer the same actions: one tuple serves them all.
        self._offers[ranking_key(event.user, event.id)] = self._same_offers.setdefault(places, places)

    def _see_propensities(self, raw: RawLine, event: RankingEvent) -> None:
        bad = [item for item in event.items if item.propensity is None or not 0.0 < item.propensity <= 1.0]
        if bad:
            severity: Severity = "warning" if "import" in event.versions else "error"
            first = f"{bad[0].action!r} has {bad[0].propensity}"
            detail = f"ranking {event.id!r}: {len(bad)} of {len(event.items)} items without a propensity, {first}"
            self._add(severity, "missing_propensity", raw, detail)

    def _see_feedback(self, raw: RawLine, event: FeedbackEvent) -> None:
        self._see_names("error", raw, "feedback", [event.action])
        offers = self._offers.get(ranking_key(event.user, event.ranking))
        if offers is None:
            detail = f"{event.type} {event.id!r} names ranking {event.ranking!r}, which user {event.user!r} did not get"
            self._add("error", "orphan_feedback", raw, detail)
        elif self._actions.get(event.action, -1) not in offers:
            detail = f"{event.type} {event.id!r}: ranking {event.ranking!r} did not offer {event.action!r}"
            self._add("warning", "feedback_not_offered", raw, detail)

    def _see_names(self, severity: Severity, raw: RawLine, what: str, actions: Iterable[str]) -> None:
        unknown = sorted({action for action in actions if action not in self._actions})
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            detail = f"{what} names {', '.join(map(repr, unknown[:3]))}{more}, which no action event before has"
            self._add(severity, "unknown_action", raw, detail)

    def _add(self, severity: Severity, kind: str, raw: RawLine, detail: str) -> None:
        self._report.add(severity, Problem(kind, raw.segment.name, raw.number, raw.offset, detail))
