"""Traits of actions as bits: what any of the candidates asks for at all.

Most candidates ask for little, and a rule that no candidate concerns is not worth an array: one `or` over the
candidates' bits says which rules have anything to look at.
"""

from __future__ import annotations

from features.catalogue import ActionSpec

(
    WITHDRAWN,
    OFF,
    EXPIRES,
    MIN_AGE,
    CONSENT,
    CLASS,
    INTERRUPTS,
    CAP,
    COOLDOWN,
    TARGET,
    TARGET_AGE,
    GROUP,
    TEXT_CHECK,
) = (1 << bit for bit in range(13))


def traits(spec: ActionSpec) -> int:
    """The bits of an action that is in the catalogue."""
    asked = {
        OFF: spec.off,
        EXPIRES: spec.expires is not None,
        MIN_AGE: spec.min_age > 0,
        CONSENT: bool(spec.consent),
        CLASS: spec.safety_class != "none",
        INTERRUPTS: spec.fields.get("interrupting") is True,
        CAP: spec.max_offers_per_day > 0,
        COOLDOWN: spec.cooldown_s > 0.0,
        TARGET: bool(spec.entity_types),
        TARGET_AGE: spec.max_target_age_s > 0.0,
        GROUP: bool(spec.exclusive_group),
        TEXT_CHECK: spec.needs_text_check,
    }
    return sum(bit for bit, is_asked in asked.items() if is_asked)
