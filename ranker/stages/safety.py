"""safety: the last look at the catalogue, the safety classes and the rendered text; it fails closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ranker.clock import Clock
from ranker.compiled import CompiledCatalogue, Rows
from ranker.conditions import NO_CONDITION
from ranker.degraded import Degraded
from ranker.judges import LastVerdicts, Refusals, Verdicts, apply_after_draw, instant_s
from ranker.person import Person
from ranker.pipeline import emptied
from ranker.policy_config import SafetyClass
from ranker.text_check import TextCheck, TextScorer, rendered
from ranker.traits import CLASS, TEXT_CHECK
from ranker.types import Ranking

LAG = "catalogue_lag"


@dataclass
class SafetyJudge:
    """Refuses with the first reason that applies: `withdrawn`, `off`, `expired`, `class_unknown`,
    `class_<name>`, `catalogue_lag`, `text`, `text_unchecked`.

    Args:
        catalogue: read as it is now.
        classes: rules by safety class; an action of another class is withheld.
        scorer: of rendered texts; None: only the catalogue's rules. May be replaced while serving.
        restricted_withheld: set while this process may lag behind the catalogue.
        lagging: asked at every look whether it may; None in a process that cannot.
    """

    catalogue: CompiledCatalogue
    classes: Mapping[str, SafetyClass]
    clock: Clock
    scorer: TextScorer | None = None
    restricted_withheld: bool = False
    lagging: Callable[[], bool] | None = None
    name: str = "safety"
    _check: TextCheck | None = field(default=None, repr=False)
    _last: LastVerdicts = field(default_factory=LastVerdicts, repr=False)

    def judge(self, ranking: Ranking) -> Verdicts:
        """A verdict per candidate, by what is so now."""
        if self.lagging is not None:
            self.restricted_withheld = self.lagging()
        now_s, read = instant_s(ranking, self.clock), (self.catalogue.version, self.restricted_withheld, self.scorer)
        said = self._last.recall(ranking.candidates, now_s, *read)
        if said is not None:
            return said
        refusals = Refusals(len(ranking.candidates))
        rows = self.catalogue.rows(ranking.candidates.actions)
        self.catalogue.refuse_gone(refusals, rows, now_s)
        withheld = (*self._refuse_classes(refusals, rows, ranking), *self._refuse_texts(refusals, rows, ranking))
        said = refusals.verdicts(*withheld)
        return self._last.keep(said, self.catalogue.next_expiry_s(rows, now_s), ranking.candidates, *read)

    def _refuse_classes(self, refusals: Refusals, rows: Rows, ranking: Ranking) -> tuple[Degraded, ...]:
        if not self.catalogue.traits(rows) & CLASS:
            return ()
        codes = self.catalogue.column("safety_class", rows)
        person, lags = Person(ranking.known), False
        for code in sorted(set(codes.tolist()) - {NO_CONDITION}):
            name = self.catalogue.dimensions["safety_class"].conditions[code]
            reason = self._class_reason(name, person, ranking.request.context.region)
            if reason is not None:
                refusals.add(codes == code, reason)
                lags = lags or reason == LAG
        return (Degraded.SAFETY_WITHHELD,) if lags else ()

    def _class_reason(self, name: str, person: Person, region: str | None) -> str | None:
        """Why a class may not be offered to this person here; None when it may."""
        rule = self.classes.get(name)
        if rule is None:
            return "class_unknown"
        if rule.restricted and self.restricted_withheld:
            return LAG
        elsewhere = bool(rule.regions) and region not in rule.regions
        without = rule.consent is not None and rule.consent not in person.consents
        refused = rule.withhold or elsewhere or without or person.too_young(rule.min_age)
        return f"class_{name}" if refused else None

    def _refuse_texts(self, refusals: Refusals, rows: Rows, ranking: Ranking) -> tuple[Degraded, ...]:
        """Refuses texts at or above the threshold, and those that cannot be checked now."""
        if self.scorer is None or not self.catalogue.traits(rows) & TEXT_CHECK:
            return ()
        needed = self.catalogue.column("needs_text_check", rows) & refusals.kept
        wanted = np.flatnonzero(needed).tolist()
        if not wanted:
            return ()
        try:
            unsafe = self._unsafe(ranking, rows, wanted)
        except Exception:  # whatever happens in the scorer, what it should have checked is withheld
            refusals.add(needed, "text_unchecked")
            return (Degraded.SAFETY_WITHHELD,)
        found = np.zeros(len(rows), np.bool_)
        found[wanted] = unsafe
        refusals.add(found, "text")
        return ()

    def _unsafe(self, ranking: Ranking, rows: Rows, wanted: list[int]) -> list[bool]:
        """Verdicts of the scorer. Raises TimeoutError when there is something to score and no time."""
        assert self.scorer is not None
        if self._check is None or self._check.scorer is not self.scorer:
            self._check = TextCheck(self.scorer)
        entities = ranking.entities
        targets = ranking.candidates.targets
        titles = [self.catalogue.spec(rows[row]).title for row in wanted]
        about = [targets[row] for row in wanted]
        texts = [
            rendered(title, target, entities.get(target or "")) for title, target in zip(titles, about, strict=True)
        ]
        return self._check.unsafe(texts, lambda: self.clock.monotonic_ms() >= ranking.deadline_ms)


@dataclass(frozen=True)
class Safety:
    """Asks the judge again after the draw, and deletes what it refuses now."""

    judge: SafetyJudge
    name: str = "safety"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking without what has become unsafe."""
        return apply_after_draw(self.judge, ranking)

    def recover(self, ranking: Ranking, _error: Exception) -> Ranking:
        """Nothing was checked, so nothing is offered."""
        return emptied(ranking, self.name).because(Degraded.SAFETY_WITHHELD)
