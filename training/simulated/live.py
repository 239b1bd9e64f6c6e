"""The simulated assistant's app, step by step: a body to rank, then what the person does with the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from features.events import Event
from training.simulated.behaviour import Behaviour, Deed, react
from training.simulated.scenes import Candidate, Scene
from training.simulated.world import LastActions, World, draw, truth_of
from training.simulated.writing import Writer

STAY = 0.5
"""Probability that the next scene is the same person's."""


class LiveApp:
    """People who use a running service, one request at a time.

    `for body in app.interactions(100): answer = post(body); post_events(app.respond(answer["items"]))`

    Args:
        clock: Unix seconds of each scene.
        longest_delay_s: reuse comes no later than this, so that a service does not refuse it as future.
    """

    def __init__(
        self,
        world: World,
        behaviour: Behaviour,
        seed: int,
        run: str,
        clock: Callable[[], float],
        longest_delay_s: float,
    ) -> None:
        self._world = world
        self._behaviour = behaviour
        self._rng = np.random.default_rng([seed, 5])
        self._writer = Writer(run)
        self._clock = clock
        self._longest_delay_s = longest_delay_s
        self._rates = np.log([person.sessions_per_day for person in world.people])
        self._habits = LastActions()
        self._scenes = 0
        self._sessions = 0
        self._ranking = ""
        self._told = False
        self.scene: Scene | None = None

    def interactions(self, count: int | None = None, k: int = 3) -> Iterator[dict[str, Any]]:
        """Bodies for `POST /v1/rank`, one scene each; `scene` is the one that was yielded last.

        Args:
            count: how many; None for no end.
        """
        while count is None or self._scenes < count:
            self.scene = self._next_scene()
            self._ranking = self._writer.next_id()
            self._told = False
            yield {
                "id": self._ranking,
                "user": self.scene.person.id,
                "session": self.scene.session,
                "context": msgspec.to_builtins(self.scene.context),
                "k": k,
            }

    def happened(self) -> Event:
        """What had happened, for an app that posts it before it asks; `respond` then leaves it out.

        Raises:
            RuntimeError: nothing was asked yet.
        """
        if self.scene is None:
            raise RuntimeError("happened needs a scene: take one from interactions first")
        self._told = True
        return self._writer.trigger(self.scene)

    def respond(self, items: Sequence[Mapping[str, Any]], ranking: str | None = None) -> list[Event]:
        """What the app posts after the answer: what had happened, then what the person did, by time.

        Args:
            items: of the answer, in order, each with `action` and perhaps `target`.
            ranking: the answer's id, where it is not the body's.

        Raises:
            RuntimeError: nothing was asked yet.
        """
        if self.scene is None:
            raise RuntimeError("respond needs a scene: take one from interactions first")
        scene, offered = self.scene, [Candidate(item["action"], item.get("target")) for item in items]
        truths = [truth_of(scene, candidate.action, candidate.target) for candidate in offered]
        deeds = [self._soon(deed) for deed in react(self._rng, truths, self._behaviour)]
        deeds.sort(key=lambda deed: deed.delay_s)
        events: list[Event] = [] if self._told else [self._writer.trigger(scene)]
        events += [
            self._writer.reaction(scene, ranking or self._ranking, offered, deed, scene.time_s) for deed in deeds
        ]
        for event in events:
            self._habits.observe(event)
        return events

    def truth(self, action: str, target: str | None) -> float:
        """Probability that this offer is completed in the current scene, once it is seen."""
        return 0.0 if self.scene is None else truth_of(self.scene, action, target)

    def _next_scene(self) -> Scene:
        rng, now_s = self._rng, self._clock()
        if self.scene is not None and rng.random() < STAY:
            person, session = self.scene.person, self.scene.session
        else:
            person = self._world.people[draw(rng, self._rates)]
            self._sessions += 1
            session = f"{self._writer.run}-s{self._sessions}"
        self._scenes += 1
        return self._world.scene(rng, person, session, self._scenes, now_s, self._habits.last(person.id, now_s))

    def _soon(self, deed: Deed) -> Deed:
        return replace(deed, delay_s=min(deed.delay_s, self._longest_delay_s))
