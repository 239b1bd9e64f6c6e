"""The role of an app in front of the service, and the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from features.events import Event, FeedbackEvent
from ranker.answers import RankAnswer
from training.labels import Pair
from training.simulate import Simulator

DEEDS = {"complete": "completed", "undo": "taken back", "accept": "accepted", "dismiss": "dismissed"}
"""By type of feedback; the first that is there says what became of a list."""


@dataclass(frozen=True)
class Turn:
    """A moment at which the app asks for a ranking.

    Args:
        body: of `POST /v1/rank`.
        before: what the app posts first.
        said: the last that was said, where it is not the context's text.
    """

    body: dict[str, Any]
    before: Sequence[Event] = ()
    said: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What the person did with an answer.

    Args:
        after: what the app posts then.
        picked: what the person took of the list, None for nothing.
        wanted: what the person had come for, offered or not.
        deed: a word for what happened, such as `completed`.
    """

    after: Sequence[Event]
    picked: Pair | None
    wanted: Pair | None
    deed: str


class App(Protocol):
    """Somebody's app: asks, and reports what followed."""

    def turns(self) -> Iterator[Turn]:
        """The moments at which it asks, one at a time; `respond` comes between two of them."""
        ...

    def respond(self, answer: RankAnswer) -> Outcome:
        """What became of the answer to the last turn."""
        ...


@dataclass
class SimulatedApp:
    """The simulated people in front of a running service.

    Args:
        clock: Unix seconds.
        run: prefix of all ids.
    """

    simulator: Simulator
    clock: Callable[[], float]
    run: str
    k: int = 3

    def __post_init__(self) -> None:
        self._live = self.simulator.live(self.clock, run=self.run, seed=self.simulator.seed)

    def turns(self) -> Iterator[Turn]:
        """Scenes without end."""
        for body in self._live.interactions(k=self.k):
            yield Turn(body, (self._live.happened(),))

    def respond(self, answer: RankAnswer) -> Outcome:
        """What the person does with it, by the simulator's truth."""
        scene = self._live.scene
        assert scene is not None
        items = [{"action": item.action, "target": item.target} for item in answer.items]
        events = self._live.respond(items, answer.id)
        feedback = [event for event in events if isinstance(event, FeedbackEvent)]
        need = scene.candidates[scene.need]
        for kind, deed in DEEDS.items():
            found = next((event for event in feedback if event.type == kind), None)
            if found is not None:
                picked = None if kind == "dismiss" else (found.action, found.target)
                return Outcome(events, picked, (need.action, need.target), deed)
        return Outcome(events, None, (need.action, need.target), "seen" if feedback else "not seen")
