"""The policy whose worth is asked for: what it would do with each logged list's candidates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.events import Event, RankingEvent
from features.known import Moment
from features.priors import prior_of
from features.scored import reached_draw
from ranker.greedy import greedy_order
from ranker.propensity import Exploration
from ranker.types import Candidates, Ranking, RankRequest
from training.labels import Pair
from training.off_policy.errors import OffPolicyError
from training.off_policy.offers import Offer
from training.off_policy.plackett_luce import given_above, in_slots
from training.off_policy.slates import Floats


@dataclass(frozen=True)
class Chances:
    """What a policy does with the candidates of an offer.

    Args:
        given: P(candidate in this slot | what the log shows above it) [slots, pool].
        alone: the same whatever is above [slots, pool]; None where it is not known.
        scores: [pool], the policy's own; None where it has none.
    """

    given: Floats
    alone: Floats | None
    scores: Floats | None = None


class Target(Protocol):
    """A policy that can be asked about logged decisions."""

    @property
    def name(self) -> str:
        """As it was asked for."""
        ...

    @property
    def replays(self) -> bool:
        """Whether it needs to know what was known at the time."""
        ...

    def chances(self, offer: Offer, moment: Moment | None, /) -> Chances:
        """What it would do.

        Args:
            moment: what was known, with all that was scored as candidates; None for a target that does not replay.
        """
        ...


@dataclass(frozen=True)
class Uniform:
    """Every candidate is as likely, without replacement down the slots."""

    name: str = "uniform"
    replays: bool = False

    def chances(self, offer: Offer, _moment: Moment | None = None, /) -> Chances:
        """1 / what is left, given the list above; 1 / pool otherwise."""
        size, slots = len(offer.pool), len(offer.shown)
        given = np.zeros((slots, size))
        left = np.ones(size, np.bool_)
        for slot, row in enumerate(offer.shown):
            given[slot, left] = 1.0 / (size - slot)
            left[row] = False
        return Chances(given, np.full((slots, size), 1.0 / size))


@dataclass(frozen=True)
class Empirical:
    """What another log showed, by position: its shares of actions stand for its policy.

    Args:
        shares: by position, P(action).
    """

    shares: Mapping[int, Mapping[str, float]]
    name: str = "empirical"
    replays: bool = False

    def chances(self, offer: Offer, _moment: Moment | None = None, /) -> Chances:
        """The shares over the candidates that are left, made to sum to 1; 0 everywhere where none was ever shown."""
        slots = len(offer.shown)
        given = np.zeros((slots, len(offer.pool)))
        left = np.ones(len(offer.pool), np.bool_)
        named = Counter(action for action, _, _ in offer.pool)
        for slot, row in enumerate(offer.shown):
            shares = self.shares.get(offer.position + slot, {})
            each = np.array([shares.get(action, 0.0) / named[action] for action, _, _ in offer.pool]) * left
            given[slot] = each / each.sum() if each.sum() > 0.0 else each
            left[row] = False
        return Chances(given, given if slots == 1 else None)


def empirical_of(events: Iterable[Event], name: str) -> Empirical:
    """Shares by position of all that a log's people were shown.

    Raises:
        OffPolicyError: it shows nothing.
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        if isinstance(event, RankingEvent):
            for item in event.items:
                counts[item.position][item.action] += 1
    if not counts:
        raise OffPolicyError(f"{name}: no ranking to take a distribution of actions from")
    shares = {
        position: {action: count / found.total() for action, count in found.items()}
        for position, found in counts.items()
    }
    return Empirical(shares, name)


class Scoring(Protocol):
    """A light model, as far as it is needed here."""

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], Floats]:
        """Vectors [candidates, columns] and scores [candidates]."""
        ...


@dataclass(frozen=True)
class Version:
    """A version's light model behind the service's own draw: greedy, or mixed with Plackett–Luce."""

    model: Scoring
    exploration: Exploration
    name: str
    replays: bool = True

    def chances(self, offer: Offer, moment: Moment | None = None, /) -> Chances:
        """All that was scored is scored again, beside what it was scored with; the draw is over the offer's pool."""
        assert moment is not None, "it replays"
        _, scores = self.model.score(moment)
        rows = np.flatnonzero(reached_draw(offer.event))[list(offer.kept)]
        priors = np.asarray(prior_of(moment), np.float64)[rows]
        return drawn(offer, np.asarray(scores, np.float64)[rows], priors, moment, self.exploration)


def drawn(offer: Offer, scores: Floats, priors: Floats, moment: Moment, exploration: Exploration) -> Chances:
    """The service's draw over an offer's pool with other scores [pool]."""
    if not np.isfinite(scores).all():
        raise OffPolicyError(f"ranking {offer.event.id!r}: the version gives a score that is not finite")
    greedy = service_order(offer.pairs, scores, priors, moment)
    return Chances(*chances_of(offer, scores, greedy, exploration), scores)


def chances_of(offer: Offer, scores: Floats, greedy: Sequence[int], exploration: Exploration) -> tuple[Floats, Floats]:
    """Of the draw over these scores [pool]: given the list above, and each slot alone, both [slots, pool]."""
    slots = len(offer.shown)
    alone = in_slots(scores, offer.position + slots - 1, greedy, exploration)[offer.position - 1 :]
    if offer.position > 1:
        return alone, alone
    given = given_above(scores, offer.shown, greedy, exploration)
    return given, alone if slots > 1 else given


def service_order(pairs: Sequence[Pair], scores: Floats, priors: Floats, moment: Moment) -> list[int]:
    """The greedy order as the service makes it, ties and all."""
    actions, targets = tuple(action for action, _ in pairs), tuple(target for _, target in pairs)
    request = RankRequest(user=moment.user, context=moment.context)
    candidates = Candidates(actions, targets)
    return greedy_order(Ranking(request, "", moment.now_s, 0.0, candidates=candidates, scores=scores, prior=priors))
