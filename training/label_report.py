"""What a log's labels come to: outcomes of every kind, and which share of accepts were accidents, by slice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.events import COUNTED_TRAFFIC, Event, FeedbackEvent, RankingEvent
from features.label_config import LabelSettings, OutcomeWindows
from features.log import Problems, read_log
from features.outcomes import WINDOWS
from training.errors import TrainingError
from training.labels import COUNTED, LABELS, LabelReader, Labels, RankingName
from training.off_policy.words import slice_names

MAX_SLICES = 200
THIN_ACCEPTS = 30
OUTCOMES = ("accepts", "accidental", "completions", "dismissals", "seen")
FEEDBACK = ("duplicate", "late_feedback", "orphan_feedback", "no_new_outcome", "feedback_not_offered")


@dataclass
class LabelReport:
    """What was counted over everything, and by slice.

    Args:
        slices: by name, counts of rankings, offers and OUTCOMES.
        gains: how many offers were worth how much.
    """

    labels: Labels
    slices: dict[str, Counter[str]]
    gains: Counter[float]
    problems: Problems = field(default_factory=Problems)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`; an accidental share of no accepts is null."""
        counts = self.labels.counts
        named = ("events", "rankings", "offered", "unseen", "reused", "own_actions", *OUTCOMES, *FEEDBACK)
        largest = sorted(self.slices, key=lambda name: (-self.slices[name]["rankings"], name))[:MAX_SLICES]
        return {
            "counts": {name: counts[name] for name in named},
            "accidental_share": _share(counts),
            "gains": {f"{gain:g}": count for gain, count in sorted(self.gains.items())},
            "useful_by_position": {str(at): count for at, count in sorted(self.labels.useful_at.items())},
            "explored_rankings": counts["explored"],
            "rankings_with_propensities": counts["drawn"],
            "forgotten_users": len(self.labels.forgotten),
            "slices": {name: _slice(self.slices[name]) for name in sorted(largest)},
            "slices_left_out": len(self.slices) - len(largest),
            "unusable_lines": dict(self.problems.counts),
            "unusable_examples": [str(problem) for problem in self.problems.examples],
        }


def report_labels(
    logdir: Path,
    settings: LabelSettings = LABELS,
    windows: OutcomeWindows = WINDOWS,
    progress: Callable[[int], None] = lambda _: None,
) -> LabelReport:
    """Labels a log in one pass and counts by slice.

    Raises:
        LogError: there is no such log.
        TrainingError: it has no ranking that people saw.
    """
    problems = Problems()
    tally = _Tally(LabelReader(settings, windows))
    tally.read(read_log(logdir, problems=problems), progress)
    labels = tally.reader.labels()
    if not labels.counts["rankings"]:
        raise TrainingError(f"{logdir} has no ranking to label: {labels.counts['events']} events")
    gains = Counter(gain for graded in labels.grades.values() for gain in graded.values())
    return LabelReport(labels, tally.slices, gains, problems)


class _Tally:
    """Outcomes by slice of the ranking that they followed."""

    def __init__(self, reader: LabelReader) -> None:
        self.reader = reader
        self.slices: dict[str, Counter[str]] = defaultdict(Counter)
        self._of: dict[RankingName, tuple[str, ...]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._users: set[str] = set()

    def read(self, events: Iterable[tuple[int, Event]], progress: Callable[[int], None]) -> None:
        for count, (offset, event) in enumerate(events, 1):
            known = len(self.reader.joined)
            for outcome in self.reader.take(offset, event):
                assert isinstance(event, FeedbackEvent), "only feedback has outcomes"
                for name in self._slices(event):
                    self.slices[name][COUNTED.get(outcome.kind, outcome.kind)] += 1
            if isinstance(event, RankingEvent) and len(self.reader.joined) > known:
                self._rank(event)
            if count % 1000 == 0:
                progress(count)

    def _slices(self, event: FeedbackEvent) -> tuple[str, ...]:
        ranking, item = self.reader.joined[event.user, event.ranking], self.reader.item_of(event)
        place = next(at for each, at in zip(ranking.row.items, ranking.positions, strict=True) if each is item)
        return (*self._of[event.user, event.ranking], f"position={place}")

    def _rank(self, event: RankingEvent) -> None:
        assert event.traffic in COUNTED_TRAFFIC, "the reader took it"
        names = (*slice_names(event, event.user in self._users), f"traffic={event.traffic}")
        names = self._of[event.user, event.id] = self._names.setdefault(names, names)
        self._users.add(event.user)
        for name in names:
            self.slices[name].update(rankings=1, offered=len(event.items))
        for item in event.items:
            self.slices[f"position={item.position}"].update(rankings=1, offered=1)


def _slice(counts: Counter[str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: counts[name] for name in ("rankings", "offered", *OUTCOMES)}
    return {**found, "accidental_share": _share(counts), "thin": counts["accepts"] < THIN_ACCEPTS}


def _share(counts: Counter[str]) -> float | None:
    return counts["accidental"] / counts["accepts"] if counts["accepts"] else None
