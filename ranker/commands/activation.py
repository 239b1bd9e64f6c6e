"""Whether a version that was just trained becomes active: by a gate on what was held back, or by somebody's word.

The first version of all has nothing that serves to be compared with: it is gated against the priors, and where the
gate has too little to go on (or nothing was held back) it becomes active all the same, which is recorded as an
override. What the gate stops stays out, the first version too.
"""

from __future__ import annotations

import getpass
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ranker.release.gating import PRIORS, Verdict
from ranker.release.registry import Registry

Progress = Callable[[str, int], None]
EXITS = {"ship": 0, "stop": 4, "hold": 5}
FIRST = "the first version"


@dataclass(frozen=True)
class Settled:
    """What became of it.

    Args:
        verdict: of the gate; None where none was asked.
        told: a sentence for people.
        asked: whether it was asked for by name.
    """

    active: bool
    verdict: Verdict | None
    told: str
    asked: bool

    @property
    def status(self) -> int:
        """The exit status: what was asked for and refused is no success."""
        return 0 if self.active or not self.asked else EXITS[self.verdict or "hold"]


def settle(
    registry: Registry,
    version: str,
    args: Namespace,
    until_s: float | None,
    progress: Progress = lambda *_: None,
    *,
    first: bool = True,
) -> Settled:
    """Makes a new version active where that was asked for, or where it is the first and `first` says so.

    Args:
        args: of a training: `log`, `models`, `activate`, `override`.
        until_s: where what was learned from ends; None where all of the log was.

    Raises:
        RegistryError: the registry cannot be written.
    """
    serving = registry.active()
    is_first, override = serving is None and first, args.override
    if not (args.activate or override is not None or is_first):
        way = f"`nextaction gate --candidate {version} --log {args.log} --models {args.models}` may let it ship"
        return Settled(False, None, f"is not active: {serving or 'no version'} is; {way}", False)
    asked = bool(args.activate or override is not None)
    if override is not None:
        registry.activate(version, override=override, by=who())
        return Settled(True, None, f"is active, by override: {override}", asked)
    verdict, why = _gated(registry, version, serving or PRIORS, (args.log, until_s), progress)
    if verdict == "ship":
        registry.activate(version, by=who())
        return Settled(True, verdict, f"is active: {why}", asked)
    if verdict == "hold" and serving is None:
        registry.activate(version, override=f"{FIRST}: {why}", by=who())
        return Settled(True, verdict, f"is active as {FIRST}, by a recorded override: {why}", asked)
    way = "--override REASON activates it all the same"
    return Settled(False, verdict, f"is not active ({serving or 'no version'} is): {why}; {way}", asked)


def _gated(
    registry: Registry, version: str, baseline: str, held_back: tuple[Path, float | None], progress: Progress
) -> tuple[Verdict, str]:
    """The verdict on what came after the training data's end, and why.

    Args:
        held_back: the log, and from when on.
    """
    from training.errors import TrainingError
    from training.gates.finding import reasons_of
    from training.gates.gate import GateRequest, gate, record_of
    from training.gates.settings import load_gates

    log, since_s = held_back
    if since_s is None:
        return "hold", "nothing was held back to gate on (--until DATE holds the end back)"
    request = GateRequest(registry, log, version, baseline, since_s, off_policy=False, settings=load_gates())
    try:
        report = gate(request, progress)
    except TrainingError as error:
        return "hold", f"the gate could not judge it: {error}"
    registry.record_gate(record_of(registry, report, time.time()))
    verb = {"ship": "lets it ship", "hold": "holds it", "stop": "stops it"}[report.verdict]
    reasons = ", ".join(reasons_of(report.findings))
    return report.verdict, f"the gate against {baseline} {verb}{f' ({reasons})' if reasons else ''}"


def who() -> str:
    """Who runs this, as far as the system says."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
