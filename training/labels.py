"""How useful each offered action turned out: outcomes per item and their gain, from the feedback that followed.

The same rules as the online counters (features/outcomes.py), and the same memory: an accident is not a success,
each outcome counts once, feedback after the attribution window is late, a ranking beyond a user's last
MAX_RANKINGS takes no more. Reuse is derived here, from what users did by themselves.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress

from features import outcomes, rows
from features.events import COUNTED_TRAFFIC, Event, FeedbackEvent, ForgetEvent, InteractionEvent, RankingEvent
from features.label_config import Gains, LabelSettings, OutcomeWindows
from features.outcomes import ACCEPTED, COMPLETED, DISMISSED, SEEN, UNDONE, WINDOWS, Outcome
from features.rows import OfferedItem, RankingRow
from training.identity import identity

GRADE_IGNORED, GRADE_ACCEPTED, GRADE_COMPLETED = 0, 1, 2

REUSED = 1 << 8
"""Beside the bits of features.outcomes: known only afterwards."""

LABELS = LabelSettings()

Pair = tuple[str, str | None]
RankingName = tuple[str, str]
"""(user, id): a ranking's id belongs to its user."""

COUNTED = {"accepted": "accepts", "undone": "accidental", "completed": "completions", "dismissed": "dismissals"}
"""What is counted of each kind of outcome, beside `seen`."""


def seen(bits: int) -> bool:
    """Whether the app said that it was seen."""
    return bool(bits & SEEN)


def accepted(bits: int) -> bool:
    """Whether it was accepted on purpose: not taken back within the accidental window."""
    return bool(bits & ACCEPTED) and not bits & UNDONE


def accidental(bits: int) -> bool:
    """Whether it was accepted and taken back within the accidental window."""
    return bool(bits & UNDONE)


def completed(bits: int) -> bool:
    """Whether it was carried through."""
    return bool(bits & COMPLETED)


def dismissed(bits: int) -> bool:
    """Whether it was dismissed, other than to take an accident back."""
    return bool(bits & DISMISSED)


def reused(bits: int) -> bool:
    """Whether the user did the same by himself afterwards."""
    return bool(bits & REUSED)


def grade(item: OfferedItem) -> int:
    """What came of an item in three steps: completed 2, accepted and not taken back 1, else 0."""
    if completed(item.bits):
        return GRADE_COMPLETED
    return GRADE_ACCEPTED if accepted(item.bits) and not dismissed(item.bits) else GRADE_IGNORED


def gain_of(bits: int, gains: Gains) -> float:
    """Usefulness of an item by its outcomes; a dismissal counts beside an accept, not beside a completion."""
    if completed(bits):
        gain = gains.completed
    else:
        gain = gains.accepted * accepted(bits) + gains.accidental * accidental(bits) + gains.dismissed * dismissed(bits)
    return gain + gains.reused * reused(bits)


class _Grades(Mapping[RankingName, dict[Pair, float]]):
    """Gains by ranking, reckoned when asked for: the bits are all that is held."""

    def __init__(self, bits: Mapping[RankingName, Mapping[Pair, int]], gains: Gains) -> None:
        self._bits, self._gains = bits, gains

    def __getitem__(self, name: RankingName) -> dict[Pair, float]:
        return {pair: gain_of(bits, self._gains) if bits else 0.0 for pair, bits in self._bits[name].items()}

    def __iter__(self) -> Iterator[RankingName]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)


@dataclass
class Labels:
    """Outcomes and gains by ranking, and what was counted on the way.

    Args:
        bits: per ranking, (action, target) → outcome bits; all that was offered, and only that.
        unseen: per ranking, what was offered and not seen, where the app says what was seen.
        forgotten: per user, the offset of the last line that asked to forget what came before it.
        useful_at: useful items by position.
    """

    bits: dict[RankingName, dict[Pair, int]] = field(default_factory=dict)
    unseen: dict[RankingName, frozenset[Pair]] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    useful_at: Counter[int] = field(default_factory=Counter)
    settings: LabelSettings = LABELS

    @property
    def grades(self) -> Mapping[RankingName, dict[Pair, float]]:
        """Per ranking, (action, target) → gain."""
        return _Grades(self.bits, self.settings.gains)

    @property
    def learn_from_own_actions(self) -> bool:
        """Whether what users did by themselves must serve as labels: nothing offered was ever useful."""
        return self.counts["useful_rankings"] == 0 and self.counts["own_actions"] > 0


def read_labels(
    events: Iterable[tuple[int, Event]], settings: LabelSettings = LABELS, windows: OutcomeWindows = WINDOWS
) -> Labels:
    """Labels of all counted rankings; feedback that names none of them is counted as `orphan_feedback`."""
    reader = LabelReader(settings, windows)
    for offset, event in events:
        reader.take(offset, event)
    return reader.labels()


@dataclass
class Joined:
    """A ranking and what has followed.

    Args:
        surface: where it was shown.
        positions: per item.
        done_s: per item, when it was completed, or else accepted; NaN for neither.
    """

    row: RankingRow
    surface: str | None
    positions: tuple[int, ...]
    done_s: list[float]


class LabelReader:
    """Takes a log in, event by event in the order of offsets, and gives its labels at any time."""

    def __init__(self, settings: LabelSettings = LABELS, windows: OutcomeWindows = WINDOWS) -> None:
        self.counts: Counter[str] = Counter()
        self.joined: dict[RankingName, Joined] = {}
        self._settings, self._windows = settings, windows
        self._forgotten: dict[str, int] = {}
        self._known: dict[bytes, float] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._closed: dict[str, list[str]] = defaultdict(list)
        self._own: dict[str, dict[str, list[float]]] = {}
        self._sends_seen: dict[str | None, float] = {}

    def take(self, offset: int, event: Event) -> list[Outcome]:
        """Takes one event in; gives what newly counts because of it."""
        self.counts["events"] += 1
        if isinstance(event, RankingEvent) and event.traffic not in COUNTED_TRAFFIC:
            return []
        if self._is_known(event):
            self.counts["duplicate"] += 1
        elif isinstance(event, RankingEvent):
            self._rank(event)
        elif isinstance(event, FeedbackEvent):
            return self._join(event)
        elif isinstance(event, InteractionEvent) and event.action is not None:
            self._own.setdefault(event.user, {}).setdefault(event.action, []).append(event.time_s)
        elif isinstance(event, ForgetEvent):
            self._forget(offset, event.user)
        return []

    def item_of(self, event: FeedbackEvent) -> OfferedItem | None:
        """The offered item that a feedback is about."""
        joined = self.joined.get((event.user, event.ranking))
        return None if joined is None else outcomes.item_of(joined.row, event)

    def labels(self) -> Labels:
        """What is known of all rankings so far."""
        found = Labels(forgotten=dict(self._forgotten), counts=Counter(self.counts), settings=self._settings)
        own = {user: {action: sorted(times) for action, times in did.items()} for user, did in self._own.items()}
        for name, joined in self.joined.items():
            bits = self._bits_of(joined, own.get(name[0], {}))
            found.bits[name] = bits
            found.counts["offered"] += len(bits)
            found.counts["reused"] += sum(map(reused, bits.values()))
            useful = [gain_of(bits[item.action, item.target], self._settings.gains) > 0.0 for item in joined.row.items]
            found.counts["useful_rankings"] += any(useful)
            found.useful_at.update(compress(joined.positions, useful))
            self._note_unseen(found, name, joined)
        found.counts["rankings"] = len(found.bits)
        found.counts["own_actions"] = sum(len(times) for did in own.values() for times in did.values())
        return found

    def _is_known(self, event: Event) -> bool:
        """As the online state: an id is remembered for ID_LIFE_S; a ranking's, which names a label, for good."""
        key = identity(event)
        before_s = self._known.get(key)
        known = before_s is not None and (
            isinstance(event, RankingEvent) or event.time_s - before_s <= rows.life_s("i:")
        )
        if not known:
            self._known[key] = event.time_s
        return known

    def _rank(self, event: RankingEvent) -> None:
        items = [OfferedItem(item.action, item.target) for item in event.items]
        row = RankingRow(event.time_s, event.user, event.session, [], items)
        positions = tuple(item.position for item in event.items)
        self.joined[event.user, event.id] = Joined(row, event.context.surface, positions, [math.nan] * len(items))
        chances = [item.propensity for item in event.items if item.propensity is not None]
        self.counts["drawn"] += len(chances) == len(items) > 1
        self.counts["explored"] += any(chance < 1.0 for chance in chances)
        taking = self._open.setdefault(event.user, {})
        taking[event.id] = None
        if len(taking) > rows.MAX_RANKINGS:
            oldest = next(iter(taking))
            del taking[oldest]
            self._closed[event.user].append(oldest)

    def _join(self, event: FeedbackEvent) -> list[Outcome]:
        joined = self.joined.get((event.user, event.ranking))
        if joined is None or event.ranking not in self._open[event.user]:
            self.counts["orphan_feedback"] += 1
            return []
        if outcomes.is_late(joined.row, event, self._windows):
            self.counts["late_feedback"] += 1
            return []
        settled = outcomes.settle(joined.row, event, self._windows)
        if not settled:
            self.counts["no_new_outcome"] += 1
            self.counts["feedback_not_offered"] += outcomes.item_of(joined.row, event) is None
        self._note(joined, event, settled)
        return settled

    def _note(self, joined: Joined, event: FeedbackEvent, settled: list[Outcome]) -> None:
        for outcome in settled:
            self.counts[COUNTED.get(outcome.kind, outcome.kind)] += 1
            if outcome.kind in ("accepted", "completed"):
                item = outcomes.item_of(joined.row, event)
                place = next(place for place, each in enumerate(joined.row.items) if each is item)
                joined.done_s[place] = event.time_s
            elif outcome.kind == "seen":
                first_s = self._sends_seen.get(joined.surface, joined.row.updated_s)
                self._sends_seen[joined.surface] = min(first_s, joined.row.updated_s)

    def _forget(self, offset: int, user: str) -> None:
        self._forgotten[user] = offset
        self._own.pop(user, None)
        for ranking in [*self._open.pop(user, {}), *self._closed.pop(user, [])]:
            del self.joined[user, ranking]

    def _bits_of(self, joined: Joined, own: Mapping[str, list[float]]) -> dict[Pair, int]:
        bits: dict[Pair, int] = {}
        for item, done_s in zip(joined.row.items, joined.done_s, strict=True):
            reuse = REUSED if self._is_reused(item, done_s, own) else 0
            pair = (item.action, item.target)
            bits[pair] = bits.get(pair, 0) | item.bits | reuse
        return bits

    def _is_reused(self, item: OfferedItem, done_s: float, own: Mapping[str, list[float]]) -> bool:
        """Whether the user did the action by himself after he had accepted (on purpose) or completed it."""
        times = own.get(item.action)
        if not times or not (completed(item.bits) or accepted(item.bits)):
            return False
        place = bisect_right(times, done_s)
        return place < len(times) and times[place] - done_s <= self._settings.reuse_s

    def _note_unseen(self, found: Labels, name: RankingName, joined: Joined) -> None:
        """A surface says what was seen from the first ranking on for which it ever did."""
        since_s = self._sends_seen.get(joined.surface)
        if since_s is None or joined.row.updated_s < since_s:
            return
        unseen = frozenset(pair for pair, bits in found.bits[name].items() if not bits)
        found.counts["unseen"] += len(unseen)
        if unseen and self._settings.unseen == "unknown":
            found.unseen[name] = unseen
