"""Putting one batch together: who is next until it is full, and who is passed over so that it can be."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from ranker.inference.lane import Lane, Model
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.share import Share
from ranker.inference.waiting import Waiting

Place = tuple[float, int]
Given = tuple[int, int, int, int]


class Pick(NamedTuple):
    """One put into the draft; `pays` if it is normal in its class's own order and so pays normal's debt."""

    waiting: Waiting
    pays: bool
    rides: bool


class Moment(NamedTuple):
    """What a draft needs to know of the rest.

    Args:
        ready_ms: now + margin: a batch of n tokens counts as ended at ready_ms + T(n).
        rival: the head of normal among the other models, if any.
        forced: whether this batch pays normal's debt: its head goes first, and premium keeps within the share.
    """

    config: SchedulerConfig
    share: Share
    ready_ms: float
    rival: Waiting | None = None
    forced: bool = False


class Plan(NamedTuple):
    """A batch that could run now; nothing is done yet.

    Args:
        consumed: in order, those that leave the fronts of their lanes: the members and the passed.
        passed: those among them that would be late in it, and after it.
        given: (tokens, normal tokens, requests, normal requests) for the share's account.
        normal_left: who would then be the head of normal.
        full: whether one more like these would not have fitted.
    """

    model: Model
    members: tuple[Waiting, ...]
    consumed: tuple[Waiting, ...]
    passed: tuple[Waiting, ...]
    tokens: int
    given: Given
    normal_left: Waiting | None
    full: bool

    @property
    def deadline_ms(self) -> float:
        """The earliest deadline in it."""
        return min(member.deadline_ms for member in self.members)


def alone(waiting: Waiting, config: SchedulerConfig) -> Plan:
    """The plan when nobody else waits, which is what a `Draft` would find, at a fraction of the cost."""
    tokens, pays = waiting.tokens, waiting.lane.priority == "normal"
    full = config.max_batch_requests == 1 or 2 * tokens > config.max_batch_tokens
    return Plan(
        waiting.lane.model, (waiting,), (waiting,), (), tokens, (tokens, tokens * pays, 1, int(pays)), None, full
    )


class Feed:
    """The front of a lane, read in order; without a lane it is empty."""

    __slots__ = ("_entries", "head")

    def __init__(self, lane: Lane | None) -> None:
        self._entries = iter(lane.line if lane is not None else ())
        self.head: Waiting | None = None
        self.take()

    def take(self) -> None:
        """Moves on by one."""
        entry = next(self._entries, None)
        self.head = None if entry is None else entry[2]


class Draft:
    """A batch of one model in the making, from a premium and a normal lane (or from one lane of any priority)."""

    def __init__(self, model: Model, first: Lane | None, second: Lane | None, moment: Moment) -> None:
        self._model, self._moment = model, moment
        self._first, self._second = Feed(first), Feed(second)
        rival = moment.rival
        self._rival_place: Place = (inf, 0) if rival is None else _place(rival)
        self._picks: list[Pick] = []
        self._members: dict[int, Pick] = {}
        self._tokens = 0
        self._given: Given = (0, 0, 0, 0)
        self._earliest = inf
        self._most_tokens, self._most_requests = self._limits()

    def plan(self) -> Plan:
        """The batch: all that fits, if all of it is in time; else the better of two smaller ones."""
        self._fill()
        if self._ends(self._tokens) <= self._earliest:
            return self._planned(self._picks, ())
        picks, window = list(self._picks), self._tokens
        small, late = self._small(picks)
        if self._rest_can_wait(picks, small, window):
            return self._planned(small, late)
        passed = self._slide()
        if _worth([pick for pick in small if pick not in late]) >= _worth(list(self._members.values())):
            return self._planned(small, late)
        return self._planned(self._picks, passed)

    def _limits(self) -> tuple[float, int]:
        cost, config = self._model.cost, self._moment.config
        heads = [feed.head for feed in (self._first, self._second) if feed.head is not None]
        if not all(cost.knows(head.tokens) for head in heads):
            return config.max_batch_tokens, 1
        return min(config.max_batch_tokens, cost.reach), config.max_batch_requests

    def _fill(self) -> None:
        while (feed := self._next()) is not None:
            waiting = feed.head
            assert waiting is not None
            normal = feed is self._second
            pays = normal and _place(waiting) < self._rival_place
            self._add(Pick(waiting, pays, normal and not pays))
            feed.take()

    def _next(self) -> Feed | None:
        premium, normal = self._first.head, self._second.head
        if premium is None:
            return self._second if normal is not None and self._fits(normal) else None
        in_order = normal is not None and _place(normal) < self._rival_place
        if self._is_normals_turn(premium, normal if in_order else None):
            assert normal is not None or not in_order
            return self._second if in_order and normal is not None and self._fits(normal) else None
        if self._fits(premium):
            return self._first
        return self._second if normal is not None and self._fits(normal) else None

    def _is_normals_turn(self, premium: Waiting, head: Waiting | None) -> bool:
        moment = self._moment
        if head is None and not moment.forced:
            return False
        tokens, normal_tokens, requests, normal = self._given
        if head is not None and moment.forced and not normal:
            return True
        head = head or moment.rival
        after = (tokens + premium.tokens, normal_tokens, requests + 1, normal)
        return head is not None and moment.share.owes(after, head.tokens)

    def _fits(self, waiting: Waiting) -> bool:
        held = len(self._members)
        if not held:
            return True
        return held < self._most_requests and self._tokens + waiting.tokens <= self._most_tokens

    def _add(self, pick: Pick) -> None:
        self._members[len(self._picks)] = pick
        self._picks.append(pick)
        self._tokens += pick.waiting.tokens
        self._given = _given(self._given, pick, 1)
        if pick.waiting.deadline_ms < self._earliest:
            self._earliest = pick.waiting.deadline_ms

    def _ends(self, tokens: float) -> float:
        return self._moment.ready_ms + self._model.cost.predict(tokens)

    def _small(self, picks: list[Pick]) -> tuple[list[Pick], list[Pick]]:
        # The longest front of the full batch that is in time, and those in it that no batch can save.
        tokens, earliest, late = 0, inf, []
        for index, pick in enumerate(picks):
            waiting = pick.waiting
            if self._ends(waiting.tokens) > waiting.deadline_ms:
                late.append(pick)
                continue
            earliest = min(earliest, waiting.deadline_ms)
            if self._ends(tokens + waiting.tokens) > earliest:
                return picks[:index], late
            tokens += waiting.tokens
        return picks, late

    def _rest_can_wait(self, picks: list[Pick], small: list[Pick], window: int) -> bool:
        # Whether those behind the small batch can still run in a batch as full as this one after it.
        if len(small) == len(picks):
            return True
        tokens = sum(pick.waiting.tokens for pick in small)
        return self._ends(tokens) + self._model.cost.predict(window) <= picks[len(small)].waiting.deadline_ms

    def _slide(self) -> list[Pick]:
        # Passes over the tightest until what is left, filled up from behind, ends in time.
        passed: list[Pick] = []
        heap = [(pick.waiting.deadline_ms, index) for index, pick in self._members.items()]
        heapify(heap)
        while heap and heap[0][0] < self._ends(self._tokens):
            pick = self._members.pop(heappop(heap)[1])
            self._tokens -= pick.waiting.tokens
            self._given = _given(self._given, pick, -1)
            passed.append(pick)
            known = len(self._picks)
            self._fill()
            for index in range(known, len(self._picks)):
                heappush(heap, (self._picks[index].waiting.deadline_ms, index))
        return passed

    def _planned(self, consumed: list[Pick], passed: Sequence[Pick]) -> Plan:
        members, tokens, given = consumed, self._tokens, self._given
        if passed or len(consumed) < len(self._picks):
            members, given = [pick for pick in consumed if pick not in passed], (0, 0, 0, 0)
            for pick in members:
                given = _given(given, pick, 1)
            tokens = sum(pick.waiting.tokens for pick in members)
        return Plan(
            self._model,
            tuple([pick.waiting for pick in members]),
            tuple([pick.waiting for pick in consumed]),
            tuple([pick.waiting for pick in passed]),
            tokens,
            given,
            self._normal_left(len(consumed)),
            len(members) >= self._most_requests or tokens * (len(members) + 1) > self._most_tokens * len(members),
        )

    def _normal_left(self, consumed: int) -> Waiting | None:
        unused = [pick.waiting for pick in self._picks[consumed:] if pick.pays or pick.rides]
        left = [each for each in (*unused[:1], self._second.head, self._moment.rival) if each is not None]
        return min(left, key=_place) if left else None


def _place(waiting: Waiting) -> Place:
    return waiting.key_ms, waiting.number


def _given(given: Given, pick: Pick, sign: int) -> Given:
    if pick.rides:
        return given
    tokens, normal_tokens, requests, normal = given
    size = sign * pick.waiting.tokens
    return tokens + size, normal_tokens + size * pick.pays, requests + sign, normal + sign * pick.pays


def _worth(picks: Sequence[Pick]) -> tuple[int, int]:
    # Premium is never passed over to fit normal.
    return sum(not (pick.pays or pick.rides) for pick in picks), len(picks)
