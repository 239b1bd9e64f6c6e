"""The one list of rules."""

from __future__ import annotations

from collections.abc import Callable

from training.gates.calibration import calibration
from training.gates.evidence import Evidence
from training.gates.facts import memory, safety, schema, training_data
from training.gates.finding import Finding
from training.gates.outcomes import outcomes
from training.gates.quality import quality_and_cost
from training.gates.settings import GateSettings
from training.gates.slices import slices

Rule = Callable[[Evidence, GateSettings], Finding]

RULES: tuple[Rule, ...] = (
    schema,
    training_data,
    quality_and_cost,
    slices,
    outcomes,
    calibration,
    safety,
    memory,
)
"""In the order of the report."""


def find_all(evidence: Evidence, settings: GateSettings) -> list[Finding]:
    """What each rule finds."""
    return [rule(evidence, settings) for rule in RULES]
