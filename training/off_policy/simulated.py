"""A compact logging policy with a known truth, for measuring how often intervals cover it.

Users come with a taste of their own, which moves all their rewards, and a number of visits; each visit has a
context and a list drawn by Plackett–Luce from the log's policy. A reward depends on context, action and slot (and
the user), so that all estimators of the table aim at the same truth, which is summed over all lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.off_policy.slates import Floats, Slates

REWARD = "usefulness"
CONTEXTS, ACTIONS = 3, 5


@dataclass(frozen=True)
class World:
    """What stays the same over all runs.

    Args:
        logged, target: utilities of either policy [contexts, actions].
        rates: mean reward [contexts, actions, slots].
        users, visits: users of a run, and the mean number of their visits.
        taste: spread of the users' own factor, whose mean is 1.
    """

    logged: Floats
    target: Floats
    rates: Floats
    users: int = 300
    visits: float = 5.0
    taste: float = 0.6

    @property
    def slots(self) -> int:
        """Length of the lists."""
        return int(self.rates.shape[2])

    def truth(self) -> float:
        """Reward per visit under the target: over all contexts, which are as likely, and all lists."""
        return float((in_slots_of(self.target, self.slots) * self.rates.transpose(0, 2, 1)).sum() / CONTEXTS)


def world(seed: int, slots: int) -> World:
    """A world from a seed; the target is more decided than the log, and wants other things."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 0.35, (CONTEXTS, ACTIONS, 1)) * (0.7 ** np.arange(slots))
    return World(rng.normal(0.0, 0.7, (CONTEXTS, ACTIONS)), rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS)), rates)


@dataclass(frozen=True)
class Visits:
    """One run.

    Args:
        contexts: [slates].
        shown: [slates, slots], actions.
        given, alone: the target's chances [slates, slots, actions].
    """

    slates: Slates
    contexts: NDArray[np.int64]
    shown: NDArray[np.int64]
    given: Floats
    alone: Floats

    @property
    def cells(self) -> int:
        """Numbers per slate of `pool`."""
        return int(self.given[0].size) * (CONTEXTS + ACTIONS + self.slates.slots)

    def shown_inputs(self, rows: NDArray[np.int64]) -> Floats:
        """One column per context, action and slot [rows, slots, columns]."""
        return self._columns(rows, self.shown[rows])

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        """The same of all actions [rows, slots, actions, columns]."""
        shape = (len(rows), self.slates.slots, ACTIONS)
        return self._columns(rows, np.broadcast_to(np.arange(ACTIONS), shape))

    def _columns(self, rows: NDArray[np.int64], actions: NDArray[np.int64]) -> Floats:
        lead = (len(rows), *([1] * (actions.ndim - 1)))
        slots = np.arange(self.slates.slots).reshape(1, -1, *([1] * (actions.ndim - 2)))
        contexts = np.broadcast_to(np.eye(CONTEXTS)[self.contexts[rows].reshape(lead)], (*actions.shape, CONTEXTS))
        places = np.broadcast_to(np.eye(self.slates.slots)[slots], (*actions.shape, self.slates.slots))
        return np.concatenate([contexts, np.eye(ACTIONS)[actions], places], axis=-1)


def draw_visits(world: World, seed: int) -> Visits:
    """One run's log."""
    rng = np.random.default_rng(seed)
    visits = 1 + rng.poisson(world.visits - 1.0, world.users)
    users = np.repeat(np.arange(world.users), visits)
    contexts = rng.integers(0, CONTEXTS, len(users))
    noisy = world.logged[contexts] + rng.gumbel(size=(len(users), ACTIONS))
    shown = np.argsort(-noisy, axis=1)[:, : world.slots]
    tastes = rng.uniform(1.0 - world.taste, 1.0 + world.taste, world.users)[users, None]
    rates = world.rates[contexts[:, None], shown, np.arange(world.slots)] * tastes
    rewards = (rng.random(rates.shape) < rates).astype(np.float64)
    given, alone = _given(world.target[contexts], shown), in_slots_of(world.target, world.slots)[contexts]
    logged_alone = in_slots_of(world.logged, world.slots)[contexts]
    each = shown[:, :, None]
    slates = Slates(
        users=users,
        logged=np.take_along_axis(_given(world.logged[contexts], shown), each, 2)[:, :, 0],
        target=np.take_along_axis(given, each, 2)[:, :, 0],
        shown=np.ones(shown.shape, np.bool_),
        rewards={REWARD: rewards},
        logged_alone=np.take_along_axis(logged_alone, each, 2)[:, :, 0],
        target_alone=np.take_along_axis(alone, each, 2)[:, :, 0],
    )
    return Visits(slates, contexts, shown, given, alone)


def _given(utilities: Floats, shown: NDArray[np.int64]) -> Floats:
    """P(action in this slot | those shown above) [slates, slots, actions]."""
    weights = np.exp(utilities)
    chances = np.empty((*shown.shape, utilities.shape[1]))
    for slot in range(shown.shape[1]):
        chances[:, slot] = weights / weights.sum(axis=1, keepdims=True)
        np.put_along_axis(weights, shown[:, slot : slot + 1], 0.0, axis=1)
    return chances


def in_slots_of(utilities: Floats, slots: int) -> Floats:
    """P(action in this slot) [contexts, slots, actions], summed over all lists above it."""
    weights = np.exp(utilities)
    chances = np.zeros((len(weights), slots, weights.shape[1]))
    for context, row in enumerate(weights):
        _spread(row, 1.0, chances[context], 0)
    return chances


def _spread(left: Floats, chance: float, chances: Floats, slot: int) -> None:
    """Adds the chances of a slot and those below it, given what is left to draw from."""
    if slot == len(chances):
        return
    shares = chance * left / left.sum()
    chances[slot] += shares
    for action in np.flatnonzero(left):
        rest = left.copy()
        rest[action] = 0.0
        _spread(rest, float(shares[action]), chances, slot + 1)
