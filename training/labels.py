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
from training.identity import identity

GRADE_IGNORED, GRADE_ACCEPTED, GRADE_COMPLETED = 0, 1, 2

Pair = tuple[str, str | None]
RankingName = tuple[str, str]
"""(user, id): a ranking's id belongs to its user."""


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
        grades: per ranking, (action, target) → grade; only what was offered.
        forgotten: per user, the offset of the last line that asked to forget what came before it.
    """

    grades: dict[RankingName, dict[Pair, int]] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def learn_from_own_actions(self) -> bool:
        """Whether what users did by themselves must serve as labels: nothing offered was ever useful."""
        return self.counts["useful_rankings"] == 0 and self.counts["own_actions"] > 0


def read_labels(events: Iterable[tuple[int, Event]]) -> Labels:
    """Grades of all counted rankings; feedback that names none of them is counted as `orphan_feedback`."""
    labels = Labels()
    open_rankings: dict[RankingName, RankingRow] = {}
    own_actions: Counter[str] = Counter()
    seen: set[bytes] = set()
    for offset, event in events:
        labels.counts["events"] += 1
        if isinstance(event, RankingEvent) and event.traffic not in COUNTED_TRAFFIC:
            continue
        if identity(event) in seen:
            labels.counts["duplicate"] += 1
            continue
        seen.add(identity(event))
        if isinstance(event, ForgetEvent):
            labels.forgotten[event.user] = offset
            own_actions.pop(event.user, None)
        elif isinstance(event, InteractionEvent) and event.action is not None:
            own_actions[event.user] += 1
        _take(event, open_rankings, labels)
    for name, row in open_rankings.items():
        labels.grades[name] = {(item.action, item.target): grade(item) for item in row.items}
        labels.counts["useful_rankings"] += any(labels.grades[name].values())
    labels.counts["rankings"] = len(open_rankings)
    labels.counts["own_actions"] = own_actions.total()
    return labels


def _take(event: Event, open_rankings: dict[RankingName, RankingRow], labels: Labels) -> None:
    if isinstance(event, RankingEvent):
        items = [OfferedItem(item.action, item.target) for item in event.items]
        open_rankings[event.user, event.id] = RankingRow(event.time_s, event.user, event.session, [], items)
    elif isinstance(event, FeedbackEvent):
        row = open_rankings.get((event.user, event.ranking))
        if row is None:
            labels.counts["orphan_feedback"] += 1
        elif not outcomes.settle(row, event):
            labels.counts["no_new_outcome"] += 1
    elif isinstance(event, ForgetEvent):
        for name in [name for name in open_rankings if name[0] == event.user]:
            del open_rankings[name]
