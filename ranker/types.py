"""What travels through the pipeline: the request, its candidates, and the state that stages replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import compress
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec
from features.events import MAX_CANDIDATES, Audit, Context, Entity, Id, Name, Target
from features.known import Known
from ranker.degraded import Degraded

MAX_K = 50
MAX_BUDGET_MS = 60_000.0
DEFAULT_BUDGETS_MS = {"premium": 60.0, "normal": 100.0}

Floats = NDArray[np.float64]


class CallerCandidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate that the caller names itself."""

    action: Name
    target: Target | None = None
    fields: dict[str, Any] = {}


class RankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/rank`."""

    user: Id
    context: Context
    id: Id | None = None
    session: Id | None = None
    candidates: Annotated[list[CallerCandidate], msgspec.Meta(min_length=1, max_length=MAX_CANDIDATES)] | None = None
    exclude: Annotated[list[Name], msgspec.Meta(max_length=MAX_CANDIDATES)] = []
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_K)] = 3
    budget_ms: Annotated[float, msgspec.Meta(ge=1.0, le=MAX_BUDGET_MS)] | None = None
    priority: Literal["normal", "premium"] = "normal"
    traffic: Literal["probe"] | None = None


@dataclass(frozen=True)
class Candidates:
    """(action, target) pairs in order, as parallel tuples; `sources` says where each came from."""

    actions: tuple[str, ...] = ()
    targets: tuple[str | None, ...] = ()
    specs: tuple[ActionSpec, ...] = ()
    sources: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.actions)

    def keep(self, mask: NDArray[np.bool_]) -> Candidates:
        """Those where the mask [candidates] is true, in order."""
        kept = mask.tolist()
        return Candidates(*(tuple(compress(column, kept)) for column in self._columns()))

    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        return self.actions, self.targets, self.specs, self.sources


@lru_cache(maxsize=256)
def everyone(size: int) -> NDArray[np.bool_]:
    """A mask [size] that is true throughout; shared, so not to be written to."""
    mask = np.ones(size, np.bool_)
    mask.flags.writeable = False
    return mask


@dataclass(frozen=True)
class Drop:
    """A candidate that a stage removed, and why."""

    stage: str
    action: str
    target: str | None
    reason: str


@dataclass(frozen=True)
class Item:
    """An offered action; `position` counts from 1."""

    action: str
    target: str | None
    position: int
    score: float
    propensity: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """All that the light stage scored, in its order: what a replay needs to compute the same vectors.

    Args:
        scores: [candidates].
        features: float32 [candidates, columns]; None where the priors ranked.
        drawn: [candidates], those that reached the draw; None while none has.
    """

    candidates: Candidates
    scores: Floats
    features: NDArray[np.float32] | None
    drawn: NDArray[np.bool_] | None = None

    def scored(self, scores: Floats) -> Pool:
        """With other scores."""
        return Pool(self.candidates, scores, self.features, self.drawn)

    def reached(self, left: Candidates) -> Pool:
        """With `left`, some of the candidates in their order, as those that reached the draw."""
        drawn = everyone(len(self.candidates))
        if len(left) < len(drawn):
            drawn = drawn.copy()
            rest = iter(zip(left.actions, left.targets, strict=True))
            wanted = next(rest, None)
            for row, pair in enumerate(zip(self.candidates.actions, self.candidates.targets, strict=True)):
                drawn[row] = pair == wanted
                wanted = next(rest, None) if drawn[row] else wanted
        return Pool(self.candidates, self.scores, self.features, drawn)


@dataclass(frozen=True)
class Ranking:
    """The state of one request; each stage gives a new one.

    Args:
        request_id: the caller's id, or one made for it.
        now_s: Unix seconds that features measure from.
        deadline_ms: monotonic instant after which an answer is late.
        known: what was read, once the `context` stage has run.
        candidates: those still in the running.
        features: float32 [candidates, columns], once light has run on the schema.
        prior, scores: [candidates]; the prior is always there from light on.
        order: candidate rows, best first, over all that reached explore; set by explore.
        greedy: the same rows in the order without exploration.
        items: the answer.
        pool: as it was right after light; set by ranker/scored_pool.py. Explore says what of it it drew from.
        explain: whether the caller wants to know why.
        notes: reasons that hold for every item.
        audit: what was drawn for people to judge; set by safety.
    """

    request: RankRequest
    request_id: str
    now_s: float
    deadline_ms: float
    known: Known | None = None
    candidates: Candidates = Candidates()
    features: NDArray[np.float32] | None = None
    prior: Floats | None = None
    scores: Floats | None = None
    order: tuple[int, ...] = ()
    greedy: tuple[int, ...] = ()
    items: tuple[Item, ...] = ()
    traffic: str = "live"
    versions: dict[str, str] = field(default_factory=dict)
    degraded: tuple[Degraded, ...] = ()
    drops: tuple[Drop, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)
    explain: bool = False
    pool: Pool | None = None
    notes: tuple[str, ...] = ()
    audit: Audit | None = None

    def but(self, **changes: Any) -> Ranking:
        """The same with some fields changed: dataclasses.replace costs ten times as much, and every stage does it."""
        assert changes.keys() <= _FIELDS, f"not fields of a ranking: {changes.keys() - _FIELDS}"
        changed = object.__new__(Ranking)
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    @cached_property
    def entities(self) -> Mapping[str, Entity]:
        """The context's entities by target; of the request alone, so that copies may share it."""
        return {entity.target: entity for entity in self.request.context.entities}

    @cached_property
    def targets_by_type(self) -> Mapping[str, list[str]]:
        """Targets in the context by entity type, in its order; of the request alone, too."""
        targets: dict[str, list[str]] = {}
        for entity in self.request.context.entities:
            targets.setdefault(entity.type, []).append(entity.target)
        return targets

    def because(self, *reasons: Degraded) -> Ranking:
        """The same, degraded for these reasons too; each is named once."""
        if not reasons:
            return self
        new = tuple(reason for reason in dict.fromkeys(reasons) if reason not in self.degraded)
        return self.but(degraded=self.degraded + new) if new else self

    def keep(self, mask: NDArray[np.bool_], stage: str, reasons: Sequence[str]) -> Ranking:
        """Only the candidates where the mask is true; `reasons` [candidates] say why the others left.

        Valid until explore has ordered them: rows are renumbered.
        """
        if mask is everyone(len(mask)) or np.count_nonzero(mask) == len(mask):
            return self
        lost = [
            Drop(stage, self.candidates.actions[row], self.candidates.targets[row], reasons[row])
            for row in np.flatnonzero(~mask).tolist()
        ]
        return self.but(
            candidates=self.candidates.keep(mask),
            features=None if self.features is None else self.features[mask],
            prior=None if self.prior is None else self.prior[mask],
            scores=None if self.scores is None else self.scores[mask],
            drops=(*self.drops, *lost),
        )

    def strike(self, mask: NDArray[np.bool_], stage: str, reasons: Sequence[str]) -> Ranking:
        """Like `keep` once they are ordered: rows keep their numbers, refused ones leave `order` and `greedy`."""
        if np.count_nonzero(mask) == len(mask):
            return self
        lost = [row for row in self.order if not mask[row]]
        drops = [Drop(stage, self.candidates.actions[row], self.candidates.targets[row], reasons[row]) for row in lost]
        return self.but(
            order=tuple(row for row in self.order if mask[row]),
            greedy=tuple(row for row in self.greedy if mask[row]),
            drops=(*self.drops, *drops),
        )


_FIELDS = frozenset(field.name for field in fields(Ranking))
