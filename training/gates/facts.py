"""What a version is made of and for: schema, training data, safety, memory."""

from __future__ import annotations

from scipy.stats import beta

from training.gates.evidence import Evidence
from training.gates.finding import OK, Finding
from training.gates.settings import GateSettings

DAY_S = 86400.0


def schema(evidence: Evidence, _settings: GateSettings) -> Finding:
    """Stops a version that was made for other features than this program computes."""
    facts = evidence.facts
    figures = {"candidate": facts.schema, "program": facts.program, "log": dict(facts.log_schemas)}
    if facts.schema != facts.program:
        told = f"made for schema {facts.schema}, this program computes {facts.program}"
        return Finding("schema", "stop", "schema_mismatch", told, figures)
    others = sum(count for name, count in facts.log_schemas.items() if name not in (facts.program, "none"))
    if facts.log_schemas and others == sum(facts.log_schemas.values()):
        named = ", ".join(sorted(facts.log_schemas))
        told = f"all rankings of the log are of schema {named}: their features are computed anew"
        return Finding("schema", "ship", OK, told, figures)
    return Finding("schema", "ship", OK, f"schema {facts.schema}", figures)


def training_data(evidence: Evidence, settings: GateSettings) -> Finding:
    """Holds a version that learned from too little, from too long ago, or from what it is judged by."""
    facts, limits = evidence.facts, settings.data
    if facts.since_s is None or facts.until_s is None:
        told = "the manifest does not say what it learned from"
        return Finding("training_data", "hold", "span_unknown", told, {})
    days, age = (facts.until_s - facts.since_s) / DAY_S, (evidence.until_s - facts.until_s) / DAY_S
    figures = {"days": days, "rankings": facts.rankings, "age_days": age}
    told = f"{facts.rankings:,} rankings of {days:.1f} days, {max(age, 0.0):.1f} days before the log's end"
    if evidence.since_s < facts.until_s:
        return Finding(
            "training_data", "hold", "judged_by_training", f"{told}: it learned from what judges it", figures
        )
    if days < limits.min_days or facts.rankings < limits.min_rankings:
        least = f"{limits.min_days:g} days and {limits.min_rankings} rankings are needed"
        return Finding("training_data", "hold", "span_short", f"{told}: {least}", figures)
    if age > limits.max_age_days:
        told = f"{told}: older than {limits.max_age_days:g} days"
        return Finding("training_data", "hold", "training_stale", told, figures)
    return Finding("training_data", "ship", OK, told, figures)


def safety(evidence: Evidence, settings: GateSettings) -> Finding:
    """Stops where more unsafe text passes than allowed; holds where that is not known.

    Every version's lists go through the same judges. Without a text scorer the catalogue's rules alone decide.
    """
    found, limits = evidence.safety, settings.safety
    if found is None:
        return Finding("safety", "hold", "safety_unknown", "nothing is known of unsafe offers", {})
    figures: dict[str, float] = {"missed": found.missed, "of": found.of, "offers": found.offers}
    figures |= dict(zip(("wanted_withheld", "baseline_wanted_withheld"), found.wanted_withheld, strict=True))
    if not found.scorer and not found.of:
        told = "no text scorer is installed: the catalogue's rules decide, the same for every version"
        return Finding("safety", "ship", OK, told, figures)
    if not found.of:
        told = "a text scorer is installed and no labelled texts were given: --safety-labelled FILE"
        return Finding("safety", "hold", "misses_unknown", told, figures)
    high = 1.0 if found.missed == found.of else _upper(found.missed, found.of, limits.confidence)
    low = 0.0 if not found.missed else float(
        beta.ppf(1.0 - limits.confidence, found.missed, found.of - found.missed + 1)
    )  # fmt: skip
    figures |= {"low": low, "high": high}
    told = f"{found.missed} of {found.of} unsafe texts pass ({low:.3%} … {high:.3%})"
    if low > limits.max_missed:
        return Finding("safety", "stop", "safety_misses", f"{told}: over {limits.max_missed:.2%}", figures)
    if high > limits.max_missed:
        told = f"{told}: not shown to be within {limits.max_missed:.2%}; label more"
        return Finding("safety", "hold", "misses_unsure", told, figures)
    return Finding("safety", "ship", OK, told, figures)


def _upper(missed: int, of: int, confidence: float) -> float:
    """Clopper–Pearson, one-sided."""
    return float(beta.ppf(confidence, missed + 1, of - missed))


def memory(evidence: Evidence, settings: GateSettings) -> Finding:
    """Stops a version whose process takes more than its share."""
    found, limit = evidence.memory, settings.memory.max_share
    if found is None or not found.total_bytes:
        return Finding("memory", "hold", "memory_unknown", "this machine does not say what a process may have", {})
    share = found.used_bytes / found.total_bytes
    figures = {"used_bytes": found.used_bytes, "total_bytes": found.total_bytes, "share": share}
    told = f"{found.used_bytes / 2**20:,.0f} MiB at the peak are {share:.1%} of {found.total_bytes / 2**20:,.0f} MiB"
    if share > limit:
        return Finding("memory", "stop", "memory_share", f"{told}: over {limit:.0%}", figures)
    return Finding("memory", "ship", OK, told, figures)
