"""policy: caps, cooldowns, quiet hours, sensitive contexts, consent and age, from `configs/policy.yaml`.

Mutual exclusions need scores and are judged right before the draw (see ranker/exclusions.py); their drops
are reported under this stage's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ranker.compiled import CompiledCatalogue
from ranker.degraded import Degraded
from ranker.judges import Refusals, Verdicts
from ranker.policy_config import PolicyConfig
from ranker.policy_rules import Case, Rule, rules
from ranker.types import Ranking


@dataclass(frozen=True)
class Policy:
    """Drops with the first reason that applies: `min_age`, `consent`, `sensitive`, `quiet_hours`, `cooldown`, `cap`."""

    catalogue: CompiledCatalogue
    config: PolicyConfig
    name: str = "policy"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with those that may be offered to this user now."""
        verdicts = self.judge(ranking)
        versions = {**ranking.versions, "policy": self.version}
        kept = ranking.keep(verdicts.keep, self.name, verdicts.reasons)
        return kept.but(versions=versions).because(*verdicts.degraded)

    def judge(self, ranking: Ranking) -> Verdicts:
        """A verdict per candidate."""
        case = Case(ranking, self.catalogue)
        refusals = Refusals(len(case.rows))
        for rule in self.rules:
            if rule.concerns(case.traits):
                refusals.add(rule.refuses(case), rule.reason)
        blind = not case.person.was_read and any(rule.wants_person(case) for rule in self.rules)
        return refusals.verdicts(*([Degraded.POLICY_UNAVAILABLE] if blind else []))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """In the order in which their reasons win."""
        return rules(self.config)

    @cached_property
    def version(self) -> str:
        """Of the policy file."""
        return self.config.version
