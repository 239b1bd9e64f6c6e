"""How useful each offered action turned out: a grade per item, from the feedback that followed.

The same rules as the online counters (features/outcomes.py): an accident is not a success, and each outcome
counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from features import outcomes
from features.events import COUNTED_TRAFFIC, Event, FeedbackEvent, ForgetEvent, InteractionEvent, RankingEvent
from features.rows import OfferedItem, RankingRow

GRADE_IGNORED, GRADE_ACCEPTED, GRADE_COMPLETED = 0, 1, 2

Pair = tuple[str, str | None]


def grade(item: OfferedItem) -> int:
    """Usefulness of an item: completed 2, accepted and not taken back 1, else 0."""
    if item.bits & outcomes.COMPLETED:
        return GRADE_COMPLETED
    if item.bits & outcomes.ACCEPTED and not item.bits & (outcomes.UNDONE | outcomes.DISMISSED):
        return GRADE_ACCEPTED
    return GRADE_IGNORED


@dataclass
class Labels:
    """Grades by ranking, and what was counted on the way.

    Args:
        grades: per ranking id, (action, target) → grade; only what was offered.
    """

    grades: dict[str, dict[Pair, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def learn_from_own_actions(self) -> bool:
        """Whether what users did by themselves must serve as labels: nothing offered was ever useful."""
        return self.counts["useful_rankings"] == 0 and self.counts["own_actions"] > 0


def read_labels(events: Iterable[tuple[int, Event]]) -> Labels:
    """Grades of all counted rankings; feedback that names none of them is counted as `orphan_feedback`."""
    labels = Labels()
    open_rankings: dict[str, RankingRow] = {}
    seen: set[str] = set()
    for _, event in events:
        labels.counts["events"] += 1
        if event.id in seen:
            labels.counts["duplicate"] += 1
            continue
        seen.add(event.id)
        _take(event, open_rankings, labels)
    for ranking_id, row in open_rankings.items():
        labels.grades[ranking_id] = {(item.action, item.target): grade(item) for item in row.items}
        labels.counts["useful_rankings"] += any(labels.grades[ranking_id].values())
    labels.counts["rankings"] = len(open_rankings)
    return labels


def _take(event: Event, open_rankings: dict[str, RankingRow], labels: Labels) -> None:
    if isinstance(event, RankingEvent) and event.traffic in COUNTED_TRAFFIC:
        items = [OfferedItem(item.action, item.target) for item in event.items]
        open_rankings[event.id] = RankingRow(event.time_s, event.user, event.session, [], items)
    elif isinstance(event, FeedbackEvent):
        row = open_rankings.get(event.ranking)
        if row is None or row.user != event.user:
            labels.counts["orphan_feedback"] += 1
        elif not outcomes.settle(row, event):
            labels.counts["no_new_outcome"] += 1
    elif isinstance(event, InteractionEvent) and event.action is not None:
        labels.counts["own_actions"] += 1
    elif isinstance(event, ForgetEvent):
        for ranking_id in [key for key, row in open_rankings.items() if row.user == event.user]:
            del open_rankings[ranking_id]
