"""The simulated assistant: people with habits whose true needs are known, so that estimates can be checked.

Everything follows from the seed; the clock is simulated. What happens to people (scenes), what a policy
offers and how people react are drawn from three independent streams, so that under two policies the same
people come at the same times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from features.catalogue import ActionSpec
from features.events import ActionEvent, Event, RankingEvent, UserEvent, from_seconds
from training.simulated.actions import ACTIONS
from training.simulated.behaviour import Behaviour, react
from training.simulated.live import LiveApp
from training.simulated.people import Person
from training.simulated.policies import Exploration, LoggingPolicy, Oracle, Popularity, Shuffled, draw_slate
from training.simulated.scenes import Candidate, Scene
from training.simulated.world import LastActions, Usefulness, World, draw, truth_of
from training.simulated.writing import Writer

__all__ = ["START_S", "Behaviour", "Exploration", "Oracle", "Popularity", "Shuffled", "Simulator", "Usefulness"]

START_S = 1_717_200_000.0
"""2024-06-01T00:00:00Z."""
DAY_S = 86400.0
HABIT = 0.2
"""Probability that after a scene a person does one of his favourite actions by himself."""

Watch = Callable[[Scene, RankingEvent], None]


@dataclass(frozen=True)
class Visit:
    """A person opens the app, or something reaches him there; `remaining` more scenes follow in the session."""

    person: Person
    session: str
    remaining: int


@dataclass
class _Run:
    """One pass through the simulated days: a queue of visits and events by time, then by arrival."""

    writer: Writer
    scenes: np.random.Generator
    offers: np.random.Generator
    reactions: np.random.Generator
    habits: LastActions = field(default_factory=LastActions)
    queue: list[tuple[int, int, Visit | Event]] = field(default_factory=list)
    pushed: int = 0
    shown: int = 0

    def push(self, time_s: float, what: Visit | Event) -> None:
        self.pushed += 1
        heapq.heappush(self.queue, (round(time_s * 1000.0), self.pushed, what))

    def pop(self) -> tuple[float, Visit | Event]:
        time_ms, _, what = heapq.heappop(self.queue)
        return time_ms / 1000.0, what


@dataclass(frozen=True)
class _Offer:
    """What decides the lists of a run, and who is told of them."""

    policy: LoggingPolicy
    exploration: Exploration
    watch: Watch | None


class Simulator:
    """People, their app, and what they truly need.

    Args:
        days: how long visits go on; what follows from the last ones may come up to half a day later.
        start_s: Unix seconds at which the first day begins.
        k: length of the offered lists.
        run: prefix of all ids.
    """

    def __init__(
        self,
        seed: int,
        users: int = 225,
        days: int = 14,
        *,
        start_s: float = START_S,
        k: int = 3,
        behaviour: Behaviour | None = None,
        usefulness: Usefulness | None = None,
        run: str = "sim",
    ) -> None:
        if users < 1 or days < 1 or k < 1:
            raise ValueError(f"users {users}, days {days} and k {k} must be at least 1")
        self.seed, self.days, self.start_s, self.k, self.run = seed, days, start_s, k, run
        self.behaviour = behaviour or Behaviour()
        self._world = World(seed, users, start_s, usefulness or Usefulness())

    @property
    def people(self) -> list[Person]:
        """All users, with their latent habits."""
        return self._world.people

    @property
    def catalogue(self) -> Mapping[str, ActionSpec]:
        """The actions by name."""
        return self._world.catalogue

    @property
    def examination(self) -> tuple[float, ...]:
        """θ by position from 1: probability that an offer there is looked at."""
        return tuple(self.behaviour.examined(position) for position in range(1, self.k + 1))

    def truth(self, scene: Scene, action: str, target: str | None) -> float:
        """Probability that this offer is completed in this scene once it is seen; `scene.truth` has all."""
        return truth_of(scene, action, target)

    def setup(self, writer: Writer | None = None) -> Iterator[Event]:
        """The catalogue and the users' profiles, as events at the start."""
        writer, start = writer or Writer(f"{self.run}-setup"), from_seconds(self.start_s)
        for action, spec in self.catalogue.items():
            yield ActionEvent(id=writer.next_id(), time=start, action=action, fields=_as_json(spec))
        for person in self.people:
            fields = {"locale": person.locale, "age": person.age, "consents": list(person.consents)}
            known = {name: value for name, value in fields.items() if value is not None}
            yield UserEvent(id=writer.next_id(), time=start, user=person.id, fields=known)

    def events(
        self, policy: LoggingPolicy | None = None, exploration: Exploration | None = None, watch: Watch | None = None
    ) -> Iterator[Event]:
        """The canonical log in order of time, as a service with this policy would have written it.

        Args:
            policy: Popularity by default; it learns, so give a fresh one to each call.
            exploration: 30 % Plackett–Luce at temperature 1 by default.
            watch: called with each scene and its ranking, for the truth behind the log.
        """
        policy = policy or Popularity()
        offer = _Offer(policy, exploration or Exploration(), watch)
        scenes, offers, reactions = (np.random.default_rng([self.seed, stream]) for stream in (2, 3, 4))
        run = _Run(Writer(self.run), scenes, offers, reactions)
        self._schedule(run)
        for event in self.setup(run.writer):
            policy.observe(event)
            yield event
        while run.queue:
            time_s, what = run.pop()
            shown = self._visit(run, what, time_s, offer) if isinstance(what, Visit) else [what]
            for event in shown:
                run.habits.observe(event)
                policy.observe(event)
                yield event

    def live(
        self, clock: Callable[[], float], run: str = "live", seed: int = 0, longest_delay_s: float = 240.0
    ) -> LiveApp:
        """The same people in front of a running service.

        Args:
            clock: Unix seconds; of the service's own clock, which refuses what is too old or in the future.
            run: prefix of ids; a new one for each start against the same service.
            seed: of what happens, beside the simulator's own.
        """
        return LiveApp(self._world, self.behaviour, self.seed * 1_000_003 + seed, run, clock, longest_delay_s)

    def _schedule(self, run: _Run) -> None:
        sessions = 0
        for day in range(self.days):
            for person in self.people:
                for _ in range(int(run.scenes.poisson(person.sessions_per_day))):
                    sessions += 1
                    at_s = self.start_s + day * DAY_S + _hour_s(run.scenes, person, self.start_s + day * DAY_S)
                    visit = Visit(person, f"{self.run}-s{sessions}", int(run.scenes.geometric(0.45)) - 1)
                    run.push(at_s, visit)

    def _visit(self, run: _Run, visit: Visit, time_s: float, offer: _Offer) -> list[Event]:
        person = visit.person
        last = run.habits.last(person.id, time_s)
        scene = self._world.scene(run.scenes, person, visit.session, run.shown, time_s, last)
        run.shown += 1
        scores = offer.policy.scores(scene)
        slate = draw_slate(run.offers, scores, offer.exploration, self.k)
        trigger = run.writer.trigger(scene)
        ranking = run.writer.ranking(scene, scores, slate, offer.policy.name)
        if offer.watch is not None:
            offer.watch(scene, ranking)
        self._react(run, scene, ranking)
        self._go_on(run, visit, scene)
        return [trigger, ranking]

    def _react(self, run: _Run, scene: Scene, ranking: RankingEvent) -> None:
        offered = [Candidate(item.action, item.target) for item in ranking.items]
        truths = [truth_of(scene, candidate.action, candidate.target) for candidate in offered]
        deeds = react(run.reactions, truths, self.behaviour)
        for deed in sorted(deeds, key=lambda deed: deed.delay_s):
            event = run.writer.reaction(scene, ranking.id, offered, deed, scene.time_s)
            run.push(event.time_s, event)

    def _go_on(self, run: _Run, visit: Visit, scene: Scene) -> None:
        """Some people do what they like to do by themselves; some stay for another scene."""
        rng = run.scenes
        gap_s = 45.0 + float(rng.exponential(90.0))
        if rng.random() < HABIT:
            action = ACTIONS[draw(rng, 1.5 * visit.person.preference)].name
            at_s = scene.time_s + 0.8 * gap_s
            run.push(at_s, run.writer.self_started(visit.person.id, visit.session, action, None, at_s))
        if visit.remaining:
            run.push(scene.time_s + gap_s, Visit(visit.person, visit.session, visit.remaining - 1))


def _hour_s(rng: np.random.Generator, person: Person, day_s: float) -> float:
    """Seconds after the UTC midnight `day_s` at which a session begins, around the person's busiest local hour."""
    offset = from_seconds(day_s).astimezone(person.timezone).utcoffset()
    local_h = person.busiest_hour + float(rng.normal(0.0, 4.0))
    return (local_h * 3600.0 - (offset.total_seconds() if offset else 0.0)) % DAY_S


def _as_json(spec: ActionSpec) -> dict[str, object]:
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(spec))
    return fields
