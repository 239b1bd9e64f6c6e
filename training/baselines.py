"""What every model must beat, learned from the judged log's own past: popularity, Markov, a linear text model.

They are models: once fitted they do not move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from features.situation import scalar_fields
from features.text_model import TextModel
from features.text_terms import SituationTerms, simple_terms
from ranker.config import TextSettings
from training.queries import Query
from training.text_fit import fit_text, stack_terms

MARKOV_ORDER = 3
MARKOV_PARENT_WEIGHT = 2.0
LINEAR_FIT = TextSettings(epochs=4, min_examples=2, smoothing=0.0)

Scores = NDArray[np.float64]
Path = tuple[str, ...]


def path_of(query: Query, order: int) -> Path:
    """The app's fields and the last `order` actions of the session, the latest first."""
    session = query.moment.known.session
    actions = [done.action for done in session.actions[-order:]][::-1] if session and order else []
    return (*scalar_fields(query.moment.context.fields), f"order {order}", *actions)


@dataclass
class Popularity:
    """Share of the useful outcomes."""

    counts: Counter[str] = field(default_factory=Counter)

    def learn(self, action: str) -> None:
        """Takes in what was useful in a query."""
        self.counts[action] += 1

    def scores(self, query: Query) -> Scores:
        """Probability [candidates], smoothed with one outcome each."""
        actions = query.moment.actions
        counts = np.array([self.counts[action] + 1.0 for action in actions])
        return counts / (self.counts.total() + len(actions))


@dataclass
class Markov:
    """The next action given the fields and the last three actions, backing off to fewer."""

    popularity: Popularity
    paths: dict[Path, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def learn(self, query: Query, action: str) -> None:
        """Takes in what was useful in a query."""
        for order in range(MARKOV_ORDER + 1):
            self.paths[path_of(query, order)][action] += 1

    def scores(self, query: Query) -> Scores:
        """Probability [candidates]."""
        actions = query.moment.actions
        share = self.popularity.scores(query)
        for order in range(MARKOV_ORDER + 1):
            counts = self.paths.get(path_of(query, order))
            if counts:
                mine = np.array([counts[action] for action in actions], np.float64)
                share = (mine + MARKOV_PARENT_WEIGHT * share) / (counts.total() + MARKOV_PARENT_WEIGHT)
        return share


@dataclass
class Linear:
    """A linear model on the fields, the last four events and the last text (and the context's text)."""

    terms: list[SituationTerms] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    model: TextModel | None = None

    def learn(self, query: Query, action: str) -> None:
        """Takes in what was useful in a query."""
        self.terms.append(simple_terms(query.moment.context, query.moment.known.session))
        self.actions.append(action)

    def fit(self) -> None:
        """Ends learning."""
        if self.actions:
            self.model = fit_text(stack_terms(self.terms), self.actions, LINEAR_FIT)
        self.terms, self.actions = [], []

    def scores(self, query: Query) -> Scores:
        """Log-probability [candidates]; what it does not know comes last, equal among themselves."""
        actions = query.moment.actions
        if self.model is None:
            return np.zeros(len(actions))
        scores = self.model.scores(simple_terms(query.moment.context, query.moment.known.session), actions)
        return np.where(np.isnan(scores), -1e9, scores)


class Baselines:
    """The three of them, learning together until the first query that is judged."""

    def __init__(self) -> None:
        self.popularity = Popularity()
        self.markov = Markov(self.popularity)
        self.linear = Linear()
        self._fitted = False

    @property
    def examples(self) -> int:
        """How many queries they have learned from."""
        return self.popularity.counts.total()

    def learn(self, query: Query) -> None:
        """Takes in a query that came before those that are judged; one that comes late teaches nothing."""
        action = query.useful_action
        if action is None or self._fitted:
            return
        self.markov.learn(query, action)
        self.popularity.learn(action)
        self.linear.learn(query, action)

    def scores(self, query: Query) -> dict[str, Scores]:
        """Scores [candidates] by name; the first call ends learning."""
        if not self._fitted:
            self.linear.fit()
            self._fitted = True
        return {
            "popularity": self.popularity.scores(query),
            "markov": self.markov.scores(query),
            "linear": self.linear.scores(query),
        }


STAGES: Sequence[str] = ("popularity", "markov", "linear")
