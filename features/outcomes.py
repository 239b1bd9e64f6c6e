"""From feedback to outcomes: what an accept, completion, dismissal or undo of an offered item counts as.

The one place that decides it, for the online counters and for labels alike. Each outcome of an item counts
once however often it is reported; only what was accepted again after it had been taken back counts again.
"""

from __future__ import annotations

from dataclasses import dataclass

from features.events import FeedbackEvent
from features.label_config import OutcomeWindows
from features.rows import OfferedItem, RankingRow

SEEN, ACCEPTED, COMPLETED, DISMISSED, UNDONE = (1 << bit for bit in range(5))


@dataclass(frozen=True)
class Outcome:
    """`kind` is a key of features.cells.KINDS."""

    kind: str
    action: str


WINDOWS = OutcomeWindows()
"""Those of an untouched configuration."""


def is_late(ranking: RankingRow, feedback: FeedbackEvent, windows: OutcomeWindows = WINDOWS) -> bool:
    """Whether a feedback comes after the attribution window of its own ranking: it changes nothing then."""
    return feedback.time_s - ranking.updated_s > windows.attribution_s


def settle(ranking: RankingRow, feedback: FeedbackEvent, windows: OutcomeWindows = WINDOWS) -> list[Outcome]:
    """Marks the item that a feedback names and gives what newly counts; nothing for one not offered, or when late."""
    item = item_of(ranking, feedback)
    if item is None or is_late(ranking, feedback, windows):
        return []
    return [Outcome(kind, item.action) for kind in _kinds(item, feedback, windows.accidental_s)]


def item_of(ranking: RankingRow, feedback: FeedbackEvent) -> OfferedItem | None:
    """The item that a feedback is about: by action and target, else the first of its action; None if not offered."""
    named = [item for item in ranking.items if item.action == feedback.action]
    if feedback.target is not None:
        named = [item for item in named if item.target == feedback.target] or named
    return named[0] if named else None


def _kinds(item: OfferedItem, feedback: FeedbackEvent, accidental_s: float) -> list[str]:
    if feedback.type == "seen":
        return _once(item, SEEN, "seen")
    if feedback.type == "accept":
        if feedback.time_s >= item.accepted_s:  # an accept that comes late was taken back already
            item.bits &= ~_taken_back(item)
        return _accept(item, feedback.time_s)
    if feedback.type == "complete":
        item.bits &= ~_taken_back(item)  # whenever it came: what was carried through was no accident
        return [*_accept(item, feedback.time_s), *_once(item, COMPLETED, "completed")]
    return _withdraw(item, feedback, accidental_s)


def _accept(item: OfferedItem, time_s: float) -> list[str]:
    kinds = _once(item, ACCEPTED, "accepted")
    if kinds:
        item.accepted_s = time_s
    return kinds


def _withdraw(item: OfferedItem, feedback: FeedbackEvent, accidental_s: float) -> list[str]:
    """A dismiss or undo: an accident when it follows the accept at once, else a dismissal (an undo is none)."""
    gap_s = feedback.time_s - item.accepted_s
    if item.bits & ACCEPTED and not item.bits & COMPLETED and 0.0 <= gap_s <= accidental_s:
        item.accepted_s = feedback.time_s
        return _once(item, UNDONE, "undone")
    return _once(item, DISMISSED, "dismissed") if feedback.type == "dismiss" else []


def _taken_back(item: OfferedItem) -> int:
    """The bits of an accident: without them the item is as it was before it."""
    return ACCEPTED | UNDONE if item.bits & UNDONE else 0


def _once(item: OfferedItem, bit: int, kind: str) -> list[str]:
    if item.bits & bit:
        return []
    item.bits |= bit
    return [kind]
