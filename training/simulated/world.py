"""The world of the simulation: people, their latent needs, and how useful each offer truly is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.events import Event, FeedbackEvent, InteractionEvent, from_seconds
from training.simulated.actions import ACTIONS, INDEX, specs
from training.simulated.people import Person, draw_people
from training.simulated.scenes import (
    SITUATIONS,
    Candidate,
    Scene,
    candidates_of,
    draw_entities,
    make_context,
    write_text,
)

Floats = NDArray[np.float64]

RECENT_S = 2 * 3600.0
"""An action done longer ago no longer leads on to the next."""


@dataclass(frozen=True)
class Usefulness:
    """Strengths, as logits, of what makes a person need an action, and of what needing it does.

    Args:
        transition: added for the action that the person likes to do after his last one.
        older_target: added to a candidate about an older entity than the newest of its type.
        base, needed, same_action: logit of completion of any offer; added for the one that is needed,
            and for the same action about another target.
        liking: of the person's preference, on completion.
        evidence: probability that the text hints at the need.
    """

    transition: float = 2.5
    older_target: float = -1.5
    base: float = -3.2
    needed: float = 3.9
    same_action: float = 1.2
    liking: float = 0.35
    evidence: float = 0.7


class World:
    """Everything that a seed fixes before anyone is offered anything.

    Args:
        start_s: Unix seconds of the first day.
    """

    def __init__(self, seed: int, users: int, start_s: float, usefulness: Usefulness) -> None:
        rng = np.random.default_rng([seed, 1])
        self.catalogue = specs(start_s)
        self.people = draw_people(rng, users)
        self.usefulness = usefulness
        self._popularity = np.array([action.popularity for action in ACTIONS])
        self._affinity = rng.normal(0.0, 0.8, (len(SITUATIONS), len(ACTIONS)))
        self._peak_hour = rng.uniform(6.0, 23.0, len(ACTIONS))
        self._weights = np.cumsum([situation.weight for situation in SITUATIONS])

    def scene(
        self, rng: np.random.Generator, person: Person, session: str, number: int, time_s: float, last: int
    ) -> Scene:
        """Draws what happens to a person now.

        Args:
            number: how many scenes came before, for the ids of entities.
            last: place in ACTIONS of what he did within RECENT_S, or -1.
        """
        kind = int(np.searchsorted(self._weights, rng.random() * self._weights[-1], side="right"))
        situation = SITUATIONS[kind]
        surface = situation.surfaces[int(rng.integers(len(situation.surfaces)))]
        entities = draw_entities(rng, situation, 4 * number, time_s)
        candidates = candidates_of(person, self.catalogue, surface, entities, time_s)
        actions = np.array([INDEX[candidate.action] for candidate in candidates])
        newest = {entity.type: entity.target for entity in entities}
        older = np.array([c.target is not None and c.target != newest[c.target.split(":")[0]] for c in candidates])
        weights = self.need_weights(person, kind, actions, time_s, last) + self.usefulness.older_target * older
        need = draw(rng, weights)
        text = write_text(rng, situation, person.language, int(actions[need]), self.usefulness.evidence)
        context = make_context(person, situation, surface, entities, text, "wifi" if rng.random() < 0.6 else "mobile")
        truth = self._truth(person, actions, need)
        return Scene(person, time_s, session, context, kind, candidates, actions, need, truth)

    def need_weights(
        self, person: Person, situation: int, actions: NDArray[np.int64], time_s: float, last: int
    ) -> Floats:
        """Log weight [candidates] of each action being what is needed.

        Args:
            actions: [candidates], places in ACTIONS.
        """
        local = from_seconds(time_s).astimezone(person.timezone)
        hour = local.hour + local.minute / 60.0
        rhythm = np.cos((hour - self._peak_hour[actions]) * (2.0 * np.pi / 24.0))
        led_to = person.next_action[last] if last >= 0 else -1
        weights: Floats = (
            self._popularity[actions]
            + self._affinity[situation, actions]
            + person.preference[actions]
            + 0.7 * rhythm
            + self.usefulness.transition * (actions == led_to)
        )
        return weights

    def _truth(self, person: Person, actions: NDArray[np.int64], need: int) -> Floats:
        strength = self.usefulness
        same = actions == actions[need]
        logits = strength.base + strength.liking * person.preference[actions] + strength.same_action * same
        logits[need] += strength.needed - strength.same_action
        truth: Floats = 1.0 / (1.0 + np.exp(-logits))
        return truth


def draw(rng: np.random.Generator, log_weights: Floats) -> int:
    """A place with probability proportional to exp(log_weights)."""
    total = np.cumsum(np.exp(log_weights - log_weights.max()))
    return int(np.searchsorted(total, rng.random() * total[-1], side="right"))


def truth_of(scene: Scene, action: str, target: str | None) -> float:
    """Probability that this offer is completed once it is seen; 0 for what the scene does not allow."""
    wanted = Candidate(action, target)
    return float(scene.truth[scene.candidates.index(wanted)]) if wanted in scene.candidates else 0.0


class LastActions:
    """What each person did last, by an offer or by himself."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def observe(self, event: Event) -> None:
        """Takes completions and self-started actions over; in order of time."""
        if isinstance(event, InteractionEvent) or (isinstance(event, FeedbackEvent) and event.type == "complete"):
            place = -1 if event.action is None else INDEX.get(event.action, -1)
            if place >= 0:
                self._last[event.user] = (place, event.time_s)

    def last(self, user: str, now_s: float) -> int:
        """Place in ACTIONS of what he did within RECENT_S, or -1."""
        action, at_s = self._last.get(user, (-1, now_s))
        return action if now_s - at_s < RECENT_S else -1
