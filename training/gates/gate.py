"""A gate from the versions' names to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from features.events import format_time, from_seconds
from features.label_config import LabelSettings, OutcomeWindows
from features.registry import FINGERPRINT
from ranker.inference.process_memory import process_memory
from ranker.opening import SAFETY_FILE, load_scorer
from ranker.propensity import GREEDY, Exploration
from ranker.release.gating import PRIORS, GateRecord, JudgedSpan, Verdict
from ranker.release.manifest import Manifest, timestamp
from ranker.release.registry import Registry
from training.gates.arms import Arm, Priors, load_arm
from training.gates.collect import Collected, CollectPlan, collect
from training.gates.effects import OffPolicyPlan, effects
from training.gates.errors import GateError
from training.gates.evidence import CandidateFacts, Evidence, MemoryEvidence, OutcomeEvidence, SafetyEvidence
from training.gates.facts import schema
from training.gates.finding import Finding, reasons_of, verdict_of
from training.gates.rules import find_all
from training.gates.settings import GateSettings
from training.safety_labels import read_labels as read_unsafe

Progress = Callable[[str, int], None]
T = TypeVar("T", LabelSettings, OutcomeWindows)


@dataclass(frozen=True)
class GateRequest:
    """What is to be judged by what.

    Args:
        baseline: a version, or PRIORS.
        since_s: judged from then on; None takes where the candidate's training data ends.
        limit: no more decisions are judged.
        safety_labelled: labelled texts that the installed scorer did not learn from.
        exploration: how both versions would draw, for the off-policy part.
        off_policy: whether that is asked for: it plays the log twice more.
    """

    registry: Registry
    logdir: Path
    candidate: str
    baseline: str
    since_s: float | None = None
    limit: int | None = None
    safety_labelled: Path | None = None
    exploration: Exploration = GREEDY
    off_policy: bool = True
    settings: GateSettings = field(default_factory=GateSettings)


@dataclass(frozen=True)
class GateReport:
    """One verdict, with all that it rests on."""

    candidate: str
    baseline: str
    verdict: Verdict
    findings: list[Finding]
    judged: JudgedSpan
    notes: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report of `nextaction gate --json`."""
        return {
            "candidate": self.candidate,
            "baseline": self.baseline,
            "verdict": self.verdict,
            "reasons": reasons_of(self.findings),
            "rules": msgspec.to_builtins(self.findings),
            "judged": msgspec.to_builtins(self.judged),
            **self.notes,
        }


def gate(request: GateRequest, progress: Progress = lambda *_: None) -> GateReport:
    """Judges the candidate.

    Raises:
        LogError: there is no such log.
        RegistryError, ConfigError: a version is not there or broken.
        GateError: it cannot be judged by what was given.
    """
    if request.candidate == request.baseline:
        raise GateError(f"candidate and baseline are both {request.candidate!r}: there is nothing to compare")
    manifest = request.registry.manifest(request.candidate)
    if manifest.schema != FINGERPRINT:
        return _other_schema(request, manifest)
    candidate, _ = load_arm(request.registry, request.candidate)
    baseline, warnings = _baseline(request)
    return judge_arms(request, manifest, (candidate, baseline), warnings, progress)


def judge_arms(
    request: GateRequest,
    manifest: Manifest,
    arms: tuple[Arm, Arm],
    warnings: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> GateReport:
    """The same with candidate and baseline at hand.

    Args:
        manifest: of the candidate.

    Raises:
        LogError: there is no such log.
        GateError: the manifest does not say what is needed.
    """
    plan = _plan(request, manifest)
    found = collect(request.logdir, arms, plan, lambda done: progress("replay", done))
    evidence = _evidence(request, manifest, arms, found, plan)
    if request.off_policy:
        evidence = replace(evidence, outcomes=_off_policy(request, arms, found, plan, progress))
    progress("rules", 0)
    findings = find_all(evidence, request.settings)
    span, notes = _span(plan.since_s, found), _notes(found, list(warnings))
    return GateReport(request.candidate, request.baseline, verdict_of(findings), findings, span, notes)


def record_of(registry: Registry, report: GateReport, now_s: float) -> GateRecord:
    """The verdict as the registry keeps it.

    Raises:
        RegistryError: a version is not there any more.
    """
    known = report.baseline != PRIORS
    return GateRecord(
        candidate=report.candidate,
        candidate_sha256=registry.manifest_sha256(report.candidate),
        baseline=report.baseline,
        baseline_sha256=registry.manifest_sha256(report.baseline) if known else None,
        verdict=report.verdict,
        reasons=reasons_of(report.findings),
        created=timestamp(now_s),
        judged=report.judged,
        report=report.to_json(),
    )


def _baseline(request: GateRequest) -> tuple[Arm, list[str]]:
    """What is compared with; a version of another schema serves by the priors, and so it is judged."""
    if request.baseline == PRIORS:
        return Priors(), []
    schema_of = request.registry.manifest(request.baseline).schema
    if schema_of != FINGERPRINT:
        text = f"baseline {request.baseline} was made for schema {schema_of}: what serves with it are the priors"
        return Priors(), [text]
    return load_arm(request.registry, request.baseline)[0], []


def _plan(request: GateRequest, manifest: Manifest) -> CollectPlan:
    since_s = request.since_s if request.since_s is not None else _seconds(manifest, "until")
    if since_s is None:
        raise GateError(f"version {manifest.version} does not say where its training data ends: --since DATE is needed")
    return CollectPlan(
        since_s,
        request.limit,
        request.settings.cost.max_requests,
        request.settings.cost.repeats,
        _trained(manifest, "labels", LabelSettings),
        _trained(manifest, "outcomes", OutcomeWindows),
    )


def _seconds(manifest: Manifest, name: str) -> float | None:
    text = getattr(manifest.data, name)
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise GateError(f"version {manifest.version}: data.{name} {text!r} is not a time") from error


def _trained(manifest: Manifest, section: str, kind: type[T]) -> T:
    """A section of the configuration that the version was trained with, else the default."""
    recorded = manifest.extra.get("config")
    try:
        return msgspec.convert(recorded.get(section, {}) if isinstance(recorded, dict) else {}, kind)
    except msgspec.ValidationError as error:
        raise GateError(f"version {manifest.version}: config.{section}: {error}") from error


def _evidence(
    request: GateRequest, manifest: Manifest, arms: tuple[Arm, Arm], found: Collected, plan: CollectPlan
) -> Evidence:
    return Evidence(
        facts=_facts(manifest, found),
        baseline=arms[1].name,
        quality=found.judged_quality(),
        latency_ms=found.latency(),
        outcomes=found.outcome_evidence(),
        offers=found.offer_evidence(),
        safety=_safety(request, found),
        memory=_memory(),
        since_s=plan.since_s,
        until_s=found.view.last_s,
    )


def _facts(manifest: Manifest, found: Collected | None) -> CandidateFacts:
    data = manifest.data
    schemas = {} if found is None else dict(found.schemas)
    since_s, until_s = _seconds(manifest, "since"), _seconds(manifest, "until")
    return CandidateFacts(manifest.schema, FINGERPRINT, since_s, until_s, data.rankings or data.events, schemas)


def _safety(request: GateRequest, found: Collected) -> SafetyEvidence:
    scorer = load_scorer(request.registry.folder / SAFETY_FILE)
    missed = of = 0
    if request.safety_labelled is not None:
        labelled = read_unsafe(request.safety_labelled)
        texts = [text for text, unsafe in zip(labelled.texts, labelled.unsafe, strict=True) if unsafe]
        of = len(texts)
        missed = of if scorer is None else int((scorer.scores(texts) < scorer.threshold).sum())
    wanted = (found.wanted_withheld[0], found.wanted_withheld[1])
    return SafetyEvidence(scorer is not None, missed, of, wanted, found.offered)


def _memory() -> MemoryEvidence:
    memory = process_memory()
    total = None if memory.resident_bytes is None else memory.resident_bytes + memory.available_bytes
    return MemoryEvidence(memory.peak_resident_bytes, total)


def _off_policy(
    request: GateRequest, arms: tuple[Arm, Arm], found: Collected, plan: CollectPlan, progress: Progress
) -> OutcomeEvidence:
    asked = OffPolicyPlan(request.logdir, found.view, plan.since_s, request.exploration, request.settings.level)
    by_outcome, refused = effects(arms, asked, lambda done: progress("off-policy", done))
    return replace(found.outcome_evidence(), off_policy=by_outcome, refused=refused)


def _span(since_s: float, found: Collected) -> JudgedSpan:
    until = format_time(from_seconds(found.view.last_s))
    return JudgedSpan(format_time(from_seconds(since_s)), until, found.decisions, len(found.quality))


def _notes(found: Collected, warnings: list[str]) -> dict[str, Any]:
    return {
        "excluded": dict(found.excluded),
        "orphan_feedback": found.labels.counts["orphan_feedback"],
        "unusable_lines": dict(found.view.problems.counts),
        "unusable_examples": [str(problem) for problem in found.view.problems.examples],
        "warnings": warnings,
    }


def _other_schema(request: GateRequest, manifest: Manifest) -> GateReport:
    """It would not even be loaded: nothing is played."""
    found = schema(Evidence(_facts(manifest, None)), request.settings)
    day = format_time(from_seconds(request.since_s or 0.0))
    return GateReport(request.candidate, request.baseline, "stop", [found], JudgedSpan(day, day, 0, 0))
