"""What a rule found, and how findings make one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ranker.release.gating import Verdict

OK = "ok"


class Finding(msgspec.Struct, frozen=True):
    """Of one rule.

    Args:
        code: why it stops or holds; `ok` where it lets pass.
        detail: a sentence with the figures that decide.
        figures: all of them.
    """

    rule: str
    verdict: Verdict
    code: str
    detail: str
    figures: dict[str, Any] = {}


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Stop if any rule stops, else hold if any holds, else ship; without a finding, hold."""
    said = {finding.verdict for finding in findings}
    return "stop" if "stop" in said else "hold" if "hold" in said or not said else "ship"


def reasons_of(findings: Sequence[Finding]) -> list[str]:
    """Codes of what stops, then of what holds, each once."""
    codes = (finding.code for kind in ("stop", "hold") for finding in findings if finding.verdict == kind)
    return list(dict.fromkeys(codes))
