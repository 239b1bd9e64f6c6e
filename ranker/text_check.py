"""What an action will say to the user, and whether the text scorer lets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.events import Entity
from ranker.errors import RankerError

MAX_REMEMBERED = 4096
BATCH_TEXTS = 16
PLACEHOLDER = "{target}"


class TextScorer(Protocol):
    """How likely each text is unsafe."""

    @property
    def threshold(self) -> float:
        """A text at or above it is withheld."""
        ...

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """One number in [0, 1] per text, in order; raises when it cannot."""
        ...


def rendered(title: str, target: str | None, entity: Entity | None) -> str:
    """The title with its target: the entity's `fields.title`, or else its id."""
    if PLACEHOLDER not in title:
        return title
    name = entity.fields.get("title") if entity is not None else None
    if not isinstance(name, str):
        name = entity.id if entity is not None else (target or "")
    return title.replace(PLACEHOLDER, name)


@dataclass
class TextCheck:
    """Scores each text once; the last few thousand are remembered, for one scorer.

    Args:
        scorer: the one to ask.
    """

    scorer: TextScorer
    _known: dict[str, float] = field(default_factory=dict, repr=False)

    def unsafe(self, texts: Sequence[str], too_late: Callable[[], bool]) -> list[bool]:
        """Whether each text is withheld. Raises as `scores` does."""
        return [score >= self.scorer.threshold for score in self.scores(texts, too_late)]

    def scores(self, texts: Sequence[str], too_late: Callable[[], bool]) -> list[float]:
        """The score of each text.

        Args:
            too_late: asked before each batch of texts; what was scored until then is remembered.

        Raises:
            TimeoutError: it became too late.
            RankerError: the scorer gave a wrong answer; whatever it raises itself goes through.
        """
        scores = {text: self._known[text] for text in texts if text in self._known}
        new = [text for text in dict.fromkeys(texts) if text not in scores]
        for start in range(0, len(new), BATCH_TEXTS):
            if too_late():
                raise TimeoutError("no time left for the text scorer")
            batch = new[start : start + BATCH_TEXTS]
            fresh = dict(zip(batch, self._scored(batch), strict=True))
            scores.update(fresh)
            self._remember(fresh)
        return [scores[text] for text in texts]

    def _scored(self, texts: list[str]) -> list[float]:
        scores = np.asarray(self.scorer.scores(texts), np.float64)
        if scores.shape != (len(texts),) or not np.isfinite(scores).all():
            raise RankerError(f"text scorer: {scores.shape} is not a finite score for each of {len(texts)} texts")
        return [float(score) for score in scores]

    def _remember(self, fresh: dict[str, float]) -> None:
        if len(self._known) + len(fresh) > MAX_REMEMBERED:
            self._known.clear()
        self._known.update(fresh)
