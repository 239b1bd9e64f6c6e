"""Putting one batch together: who is next until it is full, and who is passed over so that it can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

import msgspec

from ranker.inference.lane import Lane, Model
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.share import Share
from ranker.inference.waiting import Waiting

Place = tuple[float, int]
Given = tuple[int, int, int, int]


class Pick(msgspec.Struct, frozen=True, eq=False, gc=False):
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

    __slots__ = ("head", "rest")

    def __init__(self, lane: Lane | None) -> None:
        self.rest: Iterator[Waiting] = iter(lane.line if lane is not None else ())
        self.head = next(self.rest, None)


class Draft:
    """A batch of one model in the making, from a premium and a normal lane (or from one lane of any priority)."""

    def __init__(self, model: Model, first: Lane | None, second: Lane | None, moment: Moment) -> None:
        self._model, self._moment = model, moment
        self._first, self._second = Feed(first), Feed(second)
        rival = moment.rival
        self._rival_place: Place = (inf, 0) if rival is None else _place(rival)
        self._picks: list[Pick] = []
        self._members: dict[int, Pick] = {}
        self._held = 0
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
        # One loop over local names: it turns once for every request that is dispatched.
        first, second, picks, forced = self._first, self._second, self._picks, self._moment.forced
        rival_key, rival_number = self._rival_place
        given, normal_given, given_requests, normal_requests = self._given
        held, tokens, most_tokens = self._held, self._tokens, self._most_tokens
        while held < self._most_requests or not held:
            chosen, normal, pays = first.head, second.head, False
            if normal is not None:
                key = normal.key_ms
                pays = key < rival_key or (key == rival_key and normal.number < rival_number)
            if chosen is not None:
                if pays or forced:
                    after = (given + chosen.tokens, normal_given, given_requests + 1, normal_requests)
                    is_normals_turn = self._is_normals_turn(after, normal if pays else None)
                    if is_normals_turn and not pays:
                        break
                    if is_normals_turn or (held and tokens + chosen.tokens > most_tokens):
                        chosen = None
                elif held and tokens + chosen.tokens > most_tokens:
                    chosen = None
            if chosen is not None:
                first.head = next(first.rest, None)
                pick = Pick(chosen, False, False)
            elif normal is None or (held and tokens + normal.tokens > most_tokens):
                break
            else:
                chosen = normal
                second.head = next(second.rest, None)
                pick = Pick(normal, pays, not pays)
            picks.append(pick)
            held += 1
            tokens += chosen.tokens
            if not pick.rides:
                given += chosen.tokens
                given_requests += 1
                if pick.pays:
                    normal_given += chosen.tokens
                    normal_requests += 1
            if chosen.deadline_ms < self._earliest:
                self._earliest = chosen.deadline_ms
        self._held, self._tokens = held, tokens
        self._given = given, normal_given, given_requests, normal_requests

    def _is_normals_turn(self, after: Given, head: Waiting | None) -> bool:
        # `after` one more premium; `head` is normal's first in its class's order, if that is of this model.
        if head is not None and self._moment.forced and not after[3]:
            return True
        head = head or self._moment.rival
        return head is not None and self._moment.share.owes(after, head.tokens)

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
        self._members = dict(enumerate(self._picks))
        heap = [(pick.waiting.deadline_ms, index) for index, pick in self._members.items()]
        heapify(heap)
        while heap and heap[0][0] < self._ends(self._tokens):
            pick = self._members.pop(heappop(heap)[1])
            self._held -= 1
            self._tokens -= pick.waiting.tokens
            self._given = _given(self._given, pick, -1)
            passed.append(pick)
            known = len(self._picks)
            self._fill()
            for index in range(known, len(self._picks)):
                self._members[index] = self._picks[index]
                heappush(heap, (self._picks[index].waiting.deadline_ms, index))
        return passed

    def _planned(self, consumed: list[Pick], passed: Sequence[Pick]) -> Plan:
        members, tokens, given = consumed, self._tokens, self._given
        if passed or len(consumed) < len(self._picks):
            members, given = [pick for pick in consumed if pick not in passed], (0, 0, 0, 0)
            for pick in members:
                given = _given(given, pick, 1)
            tokens = sum(pick.waiting.tokens for pick in members)
        chosen = tuple([pick.waiting for pick in members])
        return Plan(
            self._model,
            chosen,
            chosen if members is consumed else tuple([pick.waiting for pick in consumed]),
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
    if pick.pays:
        return tokens + size, normal_tokens + size, requests + sign, normal + sign
    return tokens + size, normal_tokens, requests + sign, normal


def _worth(picks: Sequence[Pick]) -> tuple[int, int]:
    # Premium is never passed over to fit normal.
    return sum(not (pick.pays or pick.rides) for pick in picks), len(picks)
