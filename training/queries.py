"""From decisions of a replay to queries: which candidates there were, and how useful each turned out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.catalogue import Catalogue
from features.events import Context, InteractionEvent, RankingEvent
from features.known import Known, Moment
from features.population import EVERYTHING
from features.priors import useful
from features.scored import scored_set
from training.labels import Labels, Pair
from training.replay import Decision

MAX_QUERY_CANDIDATES = 1000
HINT_FIELD = "_hint"


@dataclass(frozen=True)
class Query:
    """A decision with the candidates to rank and what is known of their usefulness.

    Args:
        cluster: session, else user: queries of a cluster are not independent.
        grades: [candidates], gains; 0 for what was not offered.
        positions: [candidates], place in the list shown, from 1; 0 for what was not offered.
        unseen: [candidates], offered and not looked at, as the app says: its grade says nothing.
        missing: useful pairs that are not among the candidates; each counts as a miss.
    """

    decision: Decision
    moment: Moment
    grades: NDArray[np.float64]
    positions: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    missing: int

    @property
    def offered(self) -> NDArray[np.bool_]:
        """[candidates], whether it was in the list shown."""
        return self.positions > 0

    @property
    def cluster(self) -> str:
        """Session, else user."""
        event = self.decision.event
        return f"{event.user}\x1f{event.session}" if event.session else event.user

    @property
    def useful_action(self) -> str | None:
        """The most useful action, None when none was."""
        best = int(self.grades.argmax()) if len(self.grades) else 0
        return self.moment.actions[best] if len(self.grades) and self.grades[best] > 0 else None

    @property
    def hint(self) -> str | None:
        """What the user typed, where the log has it apart from the context."""
        hint = context_of(self.decision.event).fields.get(HINT_FIELD)
        return hint if isinstance(hint, str) and hint else None


def context_of(event: RankingEvent | InteractionEvent) -> Context:
    """A ranking's context; what a user did by himself has none."""
    return event.context if isinstance(event, RankingEvent) else Context()


def build_query(decision: Decision, labels: Labels, catalogue: Catalogue) -> Query | str:
    """The query of a decision, or the reason why it is none."""
    if decision.offset < labels.forgotten.get(decision.event.user, 0):
        return "forgotten"
    graded = _graded(decision.event, labels)
    if graded is None:
        return "no_label"
    if not graded:
        return "list_unknown"
    if not any(grade > 0.0 for grade in graded.values()):
        return "no_positive"
    pairs = candidate_pairs(decision, catalogue)
    if not pairs:
        return "no_candidates"
    known = set(pairs)
    places = positions_of(decision.event)
    unseen = labels.unseen.get((decision.event.user, decision.event.id), frozenset())
    return Query(
        decision,
        moment_of(decision, pairs, catalogue),
        grades=np.array([graded.get(pair, 0.0) for pair in pairs]),
        positions=np.array([places.get(pair, 0) for pair in pairs], np.int64),
        unseen=np.array([pair in unseen for pair in pairs]),
        missing=sum(grade > 0.0 for pair, grade in graded.items() if pair not in known),
    )


def positions_of(event: RankingEvent | InteractionEvent) -> dict[Pair, int]:
    """Where each pair of a list was shown; what a user did by himself is as if it had been first."""
    if isinstance(event, InteractionEvent):
        return {} if event.action is None else {(event.action, None): 1}
    return {(item.action, item.target): item.position for item in reversed(event.items)}


def moment_of(decision: Decision, pairs: list[Pair], catalogue: Catalogue) -> Moment:
    """The moment of a decision for given candidates."""
    event = decision.event
    actions = tuple(action for action, _ in pairs)
    return Moment(
        now_s=event.time_s,
        user=event.user,
        context=context_of(event),
        known=decision.known,
        actions=actions,
        targets=tuple(target for _, target in pairs),
        specs=tuple(map(catalogue.get, actions)),
    )


def candidate_pairs(decision: Decision, catalogue: Catalogue) -> list[Pair]:
    """What was scored, drawn from or not, as the log has it; else the list shown and the catalogue's most useful."""
    event = decision.event
    if isinstance(event, RankingEvent):
        scored = scored_set(event)
        if scored is not None:
            return list(dict.fromkeys((action, target) for action, target, _ in scored))
        shown: dict[Pair, None] = dict.fromkeys((item.action, item.target) for item in event.items)
    else:
        shown = {}
    named = {action for action, _ in shown}
    rest = [action for action in _common(decision.known, catalogue) if action not in named]
    return [*shown, *((action, None) for action in rest)]


def _common(known: Known, catalogue: Catalogue) -> list[str]:
    actions = list(catalogue)
    if len(actions) <= MAX_QUERY_CANDIDATES:
        return actions
    counts = useful(known.population.gather(EVERYTHING, actions))
    best = np.argsort(-counts, kind="stable")[:MAX_QUERY_CANDIDATES]
    return [actions[row] for row in best.tolist()]


def _graded(event: RankingEvent | InteractionEvent, labels: Labels) -> dict[Pair, float] | None:
    if isinstance(event, RankingEvent):
        return labels.grades.get((event.user, event.id))
    if not labels.learn_from_own_actions or event.action is None:
        return None
    return {(event.action, None): labels.settings.gains.accepted}


def fold_of(cluster: str, folds: int) -> int:
    """A cluster's fold in [0, folds), the same in every run."""
    return zlib.crc32(cluster.encode("utf-8", "surrogatepass")) % folds


def shown_rows(query: Query) -> NDArray[np.int64]:
    """Candidate rows that were offered and, as far as the app says, seen."""
    return np.flatnonzero(query.offered & ~query.unseen)


def sample_rows(query: Query, prior: NDArray[np.floating[Any]], top: int, others: int, seed: int) -> NDArray[np.int64]:
    """Candidate rows to learn from: what was offered or useful, the best by prior, and some at random; sorted."""
    size = len(query.grades)
    if size <= top + others:
        return np.arange(size)
    random = np.random.default_rng((seed, query.decision.offset))
    best = np.argpartition(-prior, top)[:top]
    chance = random.choice(size, others, replace=False)
    given = np.flatnonzero(query.offered | (query.grades > 0))
    return np.unique(np.concatenate([given, best, chance]))
