"""Plays an app's turns against a running service over HTTP, and keeps what is worth telling."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from features.events import Event
from ranker.answers import RankAnswer
from ranker.client import Client, ClientError
from training.demo.apps import App, Outcome, Turn

MAX_ERRORS = 20
"""So many failed calls, and the play is broken off."""
BETWEEN_SHOWN = 6
PERCENTILES = (50, 95, 99)

Show = Callable[[int, Turn, RankAnswer, Outcome], None]


@dataclass
class Played:
    """What was seen from the app's side.

    Args:
        rank_ms: of each ranking, as the app waited.
        service_ms: the same as the service measured it.
        positions: of what the person wanted, from 1; None where it was not offered.
        errors: calls that failed, and events that were refused.
    """

    rank_ms: list[float] = field(default_factory=list)
    service_ms: list[float] = field(default_factory=list)
    answers: int = 0
    positions: list[int | None] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)
    events: int = 0
    errors: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "answers": self.answers,
            "events": self.events,
            "latency_ms": percentiles(self.rank_ms),
            "service_ms": percentiles(self.service_ms),
            "wanted": {
                "known": len(self.positions),
                "first": sum(position == 1 for position in self.positions),
                "offered": sum(position is not None for position in self.positions),
            },
            "deeds": dict(self.deeds),
            "degraded": dict(self.degraded),
            "errors": self.errors,
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """`p50`, `p95` and `p99`; empty without values."""
    if not values:
        return {}
    found = np.percentile(np.array(values), PERCENTILES)
    return {f"p{name}": round(float(value), 3) for name, value in zip(PERCENTILES, found, strict=True)}


@dataclass
class Player:
    """Plays turn after turn.

    Args:
        clock: seconds, monotonic, for what the app waits.
    """

    client: Client
    app: App
    clock: Callable[[], float] = time.perf_counter
    played: Played = field(default_factory=Played)

    def __post_init__(self) -> None:
        self._turns = self.app.turns()

    def show(self, count: int, show: Show) -> None:
        """Plays a few, and shows one now and then with its reasons."""
        for number in range(1, count + 1):
            if not self._one(lambda *told, number=number: show(number, *told)):
                return
            if number < count:
                self.run(BETWEEN_SHOWN, measured=False)

    def run(self, count: int, progress: Callable[[int], None] = lambda _: None, *, measured: bool = True) -> None:
        """Plays `count` turns, or as many as there are."""
        for done in range(count):
            if not self._one(None, measured):
                return
            progress(done + 1)

    def _one(self, tell: Callable[[Turn, RankAnswer, Outcome], None] | None, measured: bool = False) -> bool:
        """Whether a turn was played."""
        turn = next(self._turns, None) if len(self.played.errors) < MAX_ERRORS else None
        if turn is None:
            return False
        try:
            self._post(turn.before)
            started_s = self.clock()
            answer = self.client.rank(turn.body, explain=tell is not None)
            waited_ms = (self.clock() - started_s) * 1000.0
            outcome = self.app.respond(answer)
            self._post(outcome.after)
        except ClientError as error:
            self.played.errors.append(str(error))
            return True
        if measured:
            self.played.rank_ms.append(waited_ms)
            self.played.service_ms.append(answer.timings_ms.get("total", waited_ms))
        self._note(answer, outcome)
        if tell is not None:
            tell(turn, answer, outcome)
        return True

    def _post(self, events: Sequence[Event]) -> None:
        for result in self.client.events(list(events)) if events else ():
            self.played.events += 1
            if result.status != "accepted":
                detail = result.detail or result.reason or "sent twice"
                self.played.errors.append(f"event {result.id} was {result.status}: {detail}")

    def _note(self, answer: RankAnswer, outcome: Outcome) -> None:
        played = self.played
        played.answers += 1
        played.deeds[outcome.deed] += 1
        played.degraded.update(answer.degraded)
        if outcome.wanted is not None:
            played.positions.append(position_of(outcome.wanted, answer))


def position_of(pair: tuple[str, str | None], answer: RankAnswer) -> int | None:
    """Where an answer offers this action and target, None where it does not."""
    found = (item.position for item in answer.items if (item.action, item.target) == pair)
    return next(found, None)
