"""What a check of a log found: counts by kind, and the first examples with their place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from features.log import Problem

Severity = Literal["info", "warning", "error"]

_KEPT_EXAMPLES = 20
_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass
class Finding:
    """All that was found of one kind; its severity is that of the worst."""

    severity: Severity
    count: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class ValidationReport:
    """The outcome of a check.

    Args:
        events: number of usable events by type.
        findings: by kind.
    """

    events: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return all(finding.severity != "error" for finding in self.findings.values())

    def add(self, severity: Severity, problem: Problem) -> None:
        """Counts one more of `problem.kind`."""
        finding = self.findings.setdefault(problem.kind, Finding(severity))
        finding.severity = max(finding.severity, severity, key=_RANKS.__getitem__)
        finding.count += 1
        if len(finding.examples) < _KEPT_EXAMPLES:
            place = {"segment": problem.segment, "line": problem.line, "offset": problem.offset}
            finding.examples.append({**place, "detail": problem.reason})

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        findings = {
            kind: {"severity": finding.severity, "count": finding.count, "examples": finding.examples}
            for kind, finding in sorted(self.findings.items())
        }
        return {"ok": self.ok, "events": dict(self.events), "findings": findings}
