"""One replay of the log for the second stage: what each request knew, what was offered, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from features.events import ActionEvent, Context, Event, ForgetEvent, InteractionEvent, RankingEvent
from ranker.config import TrainConfig
from ranker.second.config import HEADS
from ranker.second.happenings import Courses, Happening
from training import labels as outcome
from training.examples import Examples, Watch, gather_examples
from training.labels import Labels, RankingName
from training.light import Progress
from training.queries import Query, context_of, fold_of


@dataclass(frozen=True)
class Asked:
    """A request with an outcome, as the second stage would have met it.

    Args:
        history: the user's course at the time; only its first `seen` belong to it, what follows came later.
        total: how many happenings there had been.
        row: of the light stage's vectors, and `hint_row` of those with what was typed, -1 for none.
        outcomes: bool [candidates, HEADS].
        offered: bool [candidates], whether its outcomes are known.
        gains: [candidates], what it was worth.
    """

    user: str
    session: str | None
    now_s: float
    context: Context
    hint: str | None
    history: list[Happening]
    seen: int
    total: int
    row: int
    hint_row: int
    actions: tuple[str, ...]
    targets: tuple[str | None, ...]
    outcomes: NDArray[np.bool_]
    offered: NDArray[np.bool_]
    gains: NDArray[np.float64]
    fold: int


@dataclass
class Gathered(Watch):
    """Collects requests and courses while the light stage's examples are gathered.

    Args:
        folds: into which requests are put by cluster.
    """

    folds: int
    courses: Courses
    asked: list[Asked] = field(default_factory=list)
    actions: dict[str, None] = field(default_factory=dict)
    histories: dict[int, list[Happening]] = field(default_factory=dict)
    examples: Examples | None = None
    _labels: Labels = field(default_factory=Labels)
    _users: dict[str, None] = field(default_factory=dict)

    def begin(self, labels: Labels) -> None:
        """Keeps the labels."""
        self._labels = labels

    def follow(self, offset: int, event: Event) -> None:
        """Feeds the courses; who asked to be forgotten, whenever, leaves nothing from before."""
        if isinstance(event, ActionEvent):
            if event.fields is not None:
                self.actions[event.action] = None
        elif not isinstance(event, ForgetEvent) and hasattr(event, "user"):
            if offset < self._labels.forgotten.get(event.user, 0):
                return
            self._users[event.user] = None
        self.courses.apply(offset, event)

    def met(self, query: Query, examples: Examples) -> None:
        """Notes a request."""
        event = query.decision.event
        course = self.courses.of(event.user)
        sampled = examples.vectors.sampled[-1]
        hint = query.hint
        has_hint = bool(examples.hint_vectors.sampled) and hint is not None
        self.asked.append(
            Asked(
                user=event.user, session=event.session, now_s=event.time_s, context=context_of(event),
                hint=hint if has_hint else None, history=course.kept, seen=len(course.kept), total=course.total,
                row=len(examples.vectors.features) - 1,
                hint_row=len(examples.hint_vectors.features) - 1 if has_hint else -1,
                actions=tuple(query.moment.actions[row] for row in sampled.tolist()),
                targets=tuple(query.moment.targets[row] for row in sampled.tolist()),
                outcomes=self._outcomes((event.user, event.id), query, sampled),
                offered=self._offered(event, query)[sampled], gains=query.grades[sampled],
                fold=fold_of(query.cluster, self.folds),
            )
        )  # fmt: skip

    @staticmethod
    def _offered(event: RankingEvent | InteractionEvent, query: Query) -> NDArray[np.bool_]:
        """Where outcomes are known; of what a user did by himself, that he did nothing else."""
        if isinstance(event, InteractionEvent):
            return np.ones(len(query.grades), np.bool_)
        return query.offered & ~query.unseen

    def _outcomes(self, name: RankingName, query: Query, sampled: NDArray[np.int64]) -> NDArray[np.bool_]:
        found = np.zeros((len(sampled), len(HEADS)), np.bool_)
        bits = self._labels.bits.get(name)
        for place, row in enumerate(sampled.tolist()):
            pair = (query.moment.actions[row], query.moment.targets[row])
            if bits is None:
                found[place, 0] = query.grades[row] > 0.0
            elif pair in bits:
                found[place] = outcomes_of(bits[pair])
        return found

    def sequences(self) -> Sequence[list[Happening]]:
        """All courses that were seen, each list once: those that requests saw, and what they have become."""
        lists = {id(asked.history): asked.history for asked in self.asked}
        for user in self._users:
            kept = self.courses.of(user).kept
            lists[id(kept)] = kept
        return list(lists.values())


def outcomes_of(bits: int) -> tuple[bool, bool, bool, bool]:
    """Accepted on purpose, completed, dismissed or taken back, reused: in the order of HEADS."""
    regretted = outcome.dismissed(bits) or outcome.accidental(bits)
    return outcome.accepted(bits), outcome.completed(bits), regretted, outcome.reused(bits)


def gather_second(
    logdir: Path, until_s: float | None, config: TrainConfig, with_hint: bool, progress: Progress
) -> Gathered:
    """Replays the log up to `until_s`.

    Raises:
        LogError: there is no such log.
    """
    gathered = Gathered(config.sample.folds, Courses(windows=config.outcomes))
    gathered.examples = gather_examples(
        logdir, until_s, config.sample, with_hint, lambda done: progress("replay", done, 0),
        config.labels, config.outcomes, gathered,
    )  # fmt: skip
    return gathered
