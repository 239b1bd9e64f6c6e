"""How much more often the top of a list is looked at, and learning that does not take it for merit.

Position-based model: P(useful at k) = θₖ·γ(context, candidate). Under a uniformly shuffled list the candidates at
every position are alike, so θₖ/θ₁ = CTRₖ/CTR₁. A list drawn by other propensities is weighted to the shuffled
one: the slot at k by P(shuffled prefix) / P(logged prefix), the product over j ≤ k of 1/(n−j+1)/pⱼ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from features.events import RankingEvent
from training.errors import TrainingError
from training.labels import Pair

Floats = NDArray[np.float64]

MIN_EFFECTIVE = 200.0
MAX_WEIGHT_SHARE = 0.05
MAX_RELATIVE_ERROR = 0.25


class PositionError(TrainingError):
    """Positions that are none, or a log that cannot tell what they are worth."""


class PositionRate(msgspec.Struct, frozen=True):
    """θ of a position against that of the first.

    Args:
        ratio, error: θₖ/θ₁ and its standard error, clustered by user.
        rate: weighted share of useful slots.
        slots: how many it rests on; `effective` (Σw)²/Σw² of them.
    """

    position: int
    ratio: float
    error: float
    rate: float
    slots: int
    effective: float


class Propensities(msgspec.Struct, frozen=True):
    """θₖ/θ₁ by position from 1 on; the last one holds for all further positions.

    Args:
        excluded: rankings that could not be used, by reason.
    """

    rates: tuple[PositionRate, ...]
    excluded: dict[str, int] = {}

    @property
    def theta(self) -> Floats:
        """[positions], of those that were estimated."""
        return np.array([rate.ratio for rate in self.rates])

    def at(self, positions: ArrayLike) -> Floats:
        """θ [n] at positions [n] from 1 on."""
        return np.asarray(self.theta[np.minimum(position_ids(positions), len(self.rates) - 1)], np.float64)


class ItemWeights(msgspec.Struct, frozen=True):
    """Weights per offered item, and what clipping took away.

    Args:
        weights: [n], 1/θ of a useful item at most `clip`, 1 of any other.
        clipped: share of the useful items whose weight was clipped.
        clipped_mass: mean over all items of (w − clip)₊·gain, what clipping leaves out of the estimate.
    """

    weights: Floats
    clipped: float
    clipped_mass: float


def position_ids(positions: ArrayLike) -> NDArray[np.int32]:
    """Ids [n] from 0 on for positions from 1 on, as LightGBM wants them: it takes −1 or 1.5 for ids without a word.

    Raises:
        PositionError: one is not a whole number from 1 on.
    """
    given = np.asarray(positions)
    numbers = np.asarray(given, np.float64) if given.size else np.zeros(0)
    wrong = ~(np.isfinite(numbers) & (numbers >= 1.0) & (numbers == np.floor(numbers)) & (numbers < 2**31))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise PositionError(f"position {numbers[place]} of item {place} is not a whole number from 1 on")
    return (numbers - 1.0).astype(np.int32)


def item_weights(positions: ArrayLike, gains: ArrayLike, propensities: Propensities, clip: float) -> ItemWeights:
    """What each offered item weighs in training, for any stage's trainer: useful ones by one over θ.

    Args:
        positions, gains: [n], of offered items.
        clip: largest weight.

    Raises:
        PositionError: a position is none.
    """
    useful = np.asarray(gains, np.float64)
    exact = np.where(useful > 0.0, 1.0 / propensities.at(positions), 1.0)
    above = np.where(useful > 0.0, np.maximum(exact - clip, 0.0), 0.0)
    positives = max(int((useful > 0.0).sum()), 1)
    mass = float((above * useful).sum() / max(len(useful), 1))
    return ItemWeights(exact - above, float((above > 0.0).sum() / positives), mass)


class ShuffledSlots:
    """Gathers what lists, weighted to shuffled ones, say about positions; whatever was logged with propensities."""

    def __init__(self) -> None:
        self.excluded: Counter[str] = Counter()
        self._users: list[str] = []
        self._weights: dict[int, list[float]] = defaultdict(list)
        self._useful: dict[int, list[bool]] = defaultdict(list)
        self._rankings: dict[int, list[int]] = defaultdict(list)

    def add(self, event: RankingEvent, gains: Mapping[Pair, float]) -> bool:
        """Takes a ranking in; False (and counted in `excluded`) when its propensities cannot be used.

        Args:
            gains: of what it offered.
        """
        items = sorted(event.items, key=lambda item: item.position)
        reason = _unusable(event)
        if reason is not None:
            self.excluded[reason] += 1
            return False
        weight, left = 1.0, len(event.pool or ())
        useful = [gains.get((item.action, item.target), 0.0) > 0.0 for item in items]
        weights = []
        for item in items:
            assert item.propensity is not None, "else it is unusable"
            weight *= 1.0 / left / item.propensity
            weights.append(weight)
            left -= 1
        self._take(event.user, weights, useful)
        return True

    def add_shuffled(self, useful: Sequence[float], user: str | None = None) -> None:
        """Takes a list in that was in random order.

        Args:
            useful: per position from 1 on, above 0 where it was.
            user: whose it is; None makes it one of its own.
        """
        self._take(user or f"\x00{len(self._users)}", [1.0] * len(useful), [each > 0.0 for each in useful])

    def _take(self, user: str, weights: Sequence[float], useful: Sequence[bool]) -> None:
        self._users.append(user)
        for position, (weight, of_use) in enumerate(zip(weights, useful, strict=True), 1):
            self._weights[position].append(weight)
            self._useful[position].append(of_use)
            self._rankings[position].append(len(self._users) - 1)

    def estimate(self, min_effective: float = MIN_EFFECTIVE, max_error: float = MAX_RELATIVE_ERROR) -> Propensities:
        """θₖ/θ₁ for the first positions, up to where the log cannot tell any more.

        Args:
            min_effective: least effective number of shuffled slots of a position.
            max_error: largest standard error of a ratio, against the ratio.

        Raises:
            PositionError: not even the first two positions can be told apart.
        """
        users = np.unique(np.array(self._users, object), return_inverse=True)[1] if self._users else np.zeros(0, int)
        rates: list[PositionRate] = []
        first: _Slots | None = None
        why = f"no ranking has usable propensities ({dict(self.excluded)})"
        for position in range(1, max(self._weights, default=0) + 1):
            slots = self._slots(position, users)
            first = first or slots
            rate = slots.against(first)
            why = _too_few(rate, slots, min_effective, max_error)
            if why:
                break
            rates.append(rate)
        if len(rates) < 2:
            raise PositionError(f"not enough exploration to tell positions apart: {why or 'only one position'}")
        return Propensities(tuple(rates), dict(self.excluded))

    def _slots(self, position: int, users: NDArray[Any]) -> _Slots:
        rankings = np.array(self._rankings[position], np.int64)
        return _Slots(
            position,
            np.array(self._weights[position], np.float64),
            np.array(self._useful[position], np.float64),
            users[rankings] if len(rankings) else rankings,
            int(users.max(initial=-1)) + 1,
        )


class _Slots(msgspec.Struct, frozen=True):
    """All slots at one position: weights, whether useful, and the user of each [slots]."""

    position: int
    weights: Floats
    useful: Floats
    users: NDArray[np.int64]
    user_count: int

    @property
    def rate(self) -> float:
        total = float(self.weights.sum())
        return float((self.weights * self.useful).sum()) / total if total > 0.0 else 0.0

    def influence(self) -> Floats:
        """[users], the linear part of what each adds to the logarithm of the rate."""
        parts = self.weights * (self.useful - self.rate) / (self.weights.sum() * self.rate)
        return np.bincount(self.users, parts, self.user_count).astype(np.float64)

    def against(self, first: _Slots) -> PositionRate:
        weights, rate = self.weights, self.rate
        effective = float(weights.sum() ** 2 / np.square(weights).sum()) if len(weights) else 0.0
        ratio, error = 0.0, 0.0
        if rate > 0.0 and first.rate > 0.0:
            ratio = rate / first.rate
            error = 0.0 if self is first else ratio * float(np.linalg.norm(self.influence() - first.influence()))
        return PositionRate(self.position, ratio, error, rate, len(weights), effective)


def _unusable(event: RankingEvent) -> str | None:
    """Why a ranking says nothing about positions, None when it does."""
    chances = [item.propensity for item in event.items]
    if not chances:
        return "empty"
    if event.pool is None:
        return "pool_unknown"
    if any(chance is None for chance in chances):
        return "propensity_missing"
    if not all(chance is not None and 0.0 < chance <= 1.0 for chance in chances):  # also what is not a number
        return "propensity_out_of_range"
    positions = sorted(item.position for item in event.items)
    if positions != list(range(1, len(positions) + 1)) or len(positions) > len(event.pool):
        return "positions_not_drawn"
    return None


def _too_few(rate: PositionRate, slots: _Slots, min_effective: float, max_error: float) -> str:
    """Why a rate is not to be relied on; empty when it is."""
    if rate.effective < min_effective:
        return f"position {rate.position} has an effective {rate.effective:.0f} shuffled slots of {min_effective:.0f}"
    if slots.weights.max() > MAX_WEIGHT_SHARE * slots.weights.sum():
        return f"one of {rate.slots} slots at position {rate.position} has more than 5 % of the weight"
    if rate.rate <= 0.0:
        return f"nothing at position {rate.position} was useful in {rate.slots} slots"
    if rate.error > max_error * rate.ratio:
        return f"θ at position {rate.position} is {rate.ratio:.3f} ± {rate.error:.3f}"
    return ""
