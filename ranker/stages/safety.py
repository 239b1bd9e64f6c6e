"""safety: the last look at the catalogue, the safety classes and the rendered text; it fails closed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from features.events import MAX_STRING, AuditedText
from ranker.audit import AuditLot
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

_log = logging.getLogger(__name__)


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
        targets = ranking.candidates.targets
        texts = [self._text(ranking, rows[row], targets[row]) for row in wanted]
        return self._checker().unsafe(texts, lambda: self.clock.monotonic_ms() >= ranking.deadline_ms)

    def checked(self, ranking: Ranking) -> list[AuditedText]:
        """What the scorer let pass of those still in the order, and what it withheld; not texts too long to log."""
        if self.scorer is None:
            return []
        candidates = ranking.candidates
        pairs = [(candidates.actions[row], candidates.targets[row], True) for row in ranking.order]
        pairs += [
            (drop.action, drop.target, False)
            for drop in ranking.drops
            if (drop.stage, drop.reason) == (self.name, "text")
        ]
        rows = self.catalogue.rows([action for action, _, _ in pairs])
        wanted = np.flatnonzero(self.catalogue.column("needs_text_check", rows)).tolist()
        texts = {row: self._text(ranking, rows[row], pairs[row][1]) for row in wanted}
        texts = {row: text for row, text in texts.items() if len(text) <= MAX_STRING}
        scores = self._checker().scores(list(texts.values()), lambda: False)
        return [
            AuditedText(action=pairs[row][0], target=pairs[row][1], text=text, score=score, passed=pairs[row][2])
            for (row, text), score in zip(texts.items(), scores, strict=True)
        ]

    def _checker(self) -> TextCheck:
        assert self.scorer is not None
        if self._check is None or self._check.scorer is not self.scorer:
            self._check = TextCheck(self.scorer)
        return self._check

    def _text(self, ranking: Ranking, row: int, target: str | None) -> str:
        return rendered(self.catalogue.spec(row).title, target, ranking.entities.get(target or ""))


@dataclass(frozen=True)
class Safety:
    """Asks the judge again after the draw, and deletes what it refuses now.

    Args:
        audit: draws rankings whose texts are logged for people to judge; None: none are.
    """

    judge: SafetyJudge
    audit: AuditLot | None = None
    name: str = "safety"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking without what has become unsafe."""
        ranking = apply_after_draw(self.judge, ranking)
        if self.audit is None or not self.audit.draws(ranking):
            return ranking
        try:
            return ranking.but(audit=self.audit.among(self.judge.checked(ranking), ranking.request_id))
        except Exception as error:  # an audit never costs anybody an answer
            _log.error("the texts of request %r are missing from the audit", ranking.request_id, exc_info=error)
            return ranking

    def recover(self, ranking: Ranking, _error: Exception) -> Ranking:
        """Nothing was checked, so nothing is offered."""
        return emptied(ranking, self.name).because(Degraded.SAFETY_WITHHELD)
