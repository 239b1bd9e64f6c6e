"""Completions, dismissals and reuse against clicks: more clicks that come to nothing stop a launch.

Off-policy estimates of both versions decide where the log can carry them, paired by ranking and clustered by user.
Elsewhere it is what followed each offer of the log, discounted by the place at which each version would have put it:
that says nothing of what was never shown, and is the same for both.
"""

from __future__ import annotations

from typing import Any

from training.gates.evidence import CLICKS, COMPLETIONS, DISMISSALS, OUTCOMES, REUSE, Effect, Evidence
from training.gates.finding import OK, Finding
from training.gates.settings import GateSettings
from training.intervals import interval

RULE = "outcomes"


AGAINST_CLICKS = (
    ("ctr_up_completions_down", COMPLETIONS, -1),
    ("ctr_up_dismissals_up", DISMISSALS, 1),
    ("ctr_up_reuse_down", REUSE, -1),
)
"""Reason code, outcome, and the direction that is bad while clicks go up."""


def outcomes(evidence: Evidence, settings: GateSettings) -> Finding:
    """Stops when clicks are up for sure while completions or reuse are down for sure, or dismissals up."""
    found = evidence.outcomes
    if found.positives < settings.outcomes.min_positive:
        few = f"{found.positives} completions in the log, {settings.outcomes.min_positive} are needed"
        return Finding(RULE, "hold", "no_outcomes", few, {"completions": found.positives})
    effects = {name: effect for name in OUTCOMES if (effect := _effect(evidence, name, settings)) is not None}
    figures = {
        "completions": found.positives,
        "by": {name: "off-policy" if name in found.off_policy else "labels" for name in effects},
        "effects": {name: {"mean": each.mean, "low": each.low, "high": each.high} for name, each in effects.items()},
        "off_policy_refused": found.refused,
    }
    return _said(effects, figures)


def _said(effects: dict[str, Effect], figures: dict[str, Any]) -> Finding:
    clicks = effects.get(CLICKS)
    if clicks is None:
        return Finding(RULE, "hold", "no_outcomes", "one person alone has no interval", figures)
    for code, name, sign in AGAINST_CLICKS:
        effect = effects.get(name)
        if clicks.low > 0.0 and effect is not None and _is_certain(effect, sign):
            told = f"clicks {_shown(clicks)} while {name} {_shown(effect)} per ranking"
            return Finding(RULE, "stop", code, told, figures)
    told = ", ".join(f"{name} {_shown(each)}" for name, each in effects.items())
    return Finding(RULE, "ship", OK, told, figures)


def _effect(evidence: Evidence, name: str, settings: GateSettings) -> Effect | None:
    """Of an outcome, off-policy or by labels; None where there is no interval."""
    if name in evidence.outcomes.off_policy:
        return evidence.outcomes.off_policy[name]
    judged = evidence.outcomes.weighed.get(name)
    if judged is None:
        return None
    found = interval(judged.pair.difference, judged.clusters, settings.seed, settings.draws, settings.level)
    if found.mean is None or found.low is None or found.high is None:
        return None
    return Effect(found.mean, found.low, found.high)


def _shown(effect: Effect) -> str:
    return f"{effect.mean:+.4f} ({effect.low:+.4f} … {effect.high:+.4f})"


def _is_certain(effect: Effect, sign: int) -> bool:
    """Whether the whole interval lies on that side of 0."""
    return effect.high < 0.0 if sign < 0 else effect.low > 0.0
