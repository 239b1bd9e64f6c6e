"""What a ship gate said of a version, and who made which version the active one, why.

Beside the versions: MODELS/<version>.gate.json is the last verdict on a version, and MODELS/activations.jsonl has
one line per activation. A verdict holds for the very files that it was given on, both the candidate's and those of
the version that it was compared with: a manifest names its files by sha256.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ranker.release.durable import read_plain, replace_atomically, sync_folder
from ranker.release.errors import NotGated, VersionCorrupt

PRIORS = "priors"
"""What the first version of all is compared with: the order without a model."""
ACTIVATIONS = "activations.jsonl"
MAX_RECORD_BYTES = 16 << 20
MAX_REASON = 500

Verdict = Literal["ship", "stop", "hold"]
Grounds = Literal["gate", "override", "rollback"]


class JudgedSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a log that a gate judged by; times in ISO 8601 UTC."""

    since: str
    until: str
    rankings: int
    queries: int


class GateRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A verdict.

    Args:
        baseline: a version, or PRIORS.
        candidate_sha256, baseline_sha256: of the manifests; None for the priors.
        reasons: codes of the rules that stop or hold.
        report: the gate's whole report.
    """

    candidate: str
    candidate_sha256: str
    baseline: str
    baseline_sha256: str | None
    verdict: Verdict
    reasons: list[str]
    created: str
    judged: JudgedSpan
    report: dict[str, Any] = {}


class Activation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who made which version active.

    Args:
        grounds: `gate` passed it; `override` is somebody's word for it; `rollback` went back to what served before.
        reason: of an override, and what the gate had said if anything.
        by: who asked, as far as is known.
    """

    version: str
    previous: str | None
    time: str
    grounds: Grounds
    reason: str = ""
    by: str = ""


def gate_file(folder: Path, version: str) -> Path:
    """Where the last verdict on a version lies."""
    return folder / f"{version}.gate.json"


def write_gate(folder: Path, record: GateRecord) -> None:
    """Keeps a verdict in the place of an earlier one. One writer at a time."""
    replace_atomically(gate_file(folder, record.candidate), msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def read_gate(folder: Path, version: str) -> GateRecord | None:
    """The last verdict on a version; None where there was none.

    Raises:
        VersionCorrupt: the file is not what was written.
    """
    path = gate_file(folder, version)
    try:
        return msgspec.json.decode(read_plain(path, MAX_RECORD_BYTES), type=GateRecord)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise VersionCorrupt(f"{path}: {error}") from error


def read_activations(folder: Path) -> list[Activation]:
    """All activations so far, oldest first; a line cut by a crash is passed over.

    Raises:
        VersionCorrupt: the file cannot be read.
    """
    path = folder / ACTIVATIONS
    try:
        lines = read_plain(path, MAX_RECORD_BYTES).splitlines()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise VersionCorrupt(f"{path}: {error}") from error
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Activation))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


def add_activation(folder: Path, activation: Activation) -> None:
    """Appends a line and syncs it. One writer at a time."""
    path = folder / ACTIVATIONS
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "ab") as file:
        # A line of its own, whatever a crash has left before it.
        file.write(b"\n" * (file.tell() > 0 and not _ends_a_line(path)) + msgspec.json.encode(activation) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(folder)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def why_not(record: GateRecord | None, shas: tuple[str, str | None], baseline: str) -> str | None:
    """Why a verdict does not let a version become active; None where it does.

    Args:
        shas: of the candidate's manifest as it is now, and of the baseline's.
        baseline: the version that is active, or PRIORS.
    """
    if record is None:
        return "no gate has judged it"
    if record.verdict != "ship":
        verb = {"stop": "stops", "hold": "holds"}[record.verdict]
        return f"the gate {verb} it ({', '.join(record.reasons)})"
    if record.baseline != baseline:
        return f"the gate compared it with {record.baseline}, and {baseline} is what serves"
    if (record.candidate_sha256, record.baseline_sha256) != shas:
        return "the gate judged other files of the same name"
    return None


def grounds_for(version: str, baseline: str, refusal: str | None, override: str | None, back: bool) -> Grounds:
    """By what right a version may become active.

    Args:
        refusal: of `why_not`.
        override: somebody's reason to do without a gate.
        back: whether it is what served before.

    Raises:
        NotGated: by none.
    """
    if refusal is None:
        return "gate"
    if override is not None:
        if not override.strip() or len(override) > MAX_REASON:
            raise NotGated(f"version {version!r}: an override needs a reason of 1 to {MAX_REASON} characters")
        return "override"
    if back:
        return "rollback"
    way = f"`nextaction gate --candidate {version} --baseline {baseline} …`, or --override REASON"
    raise NotGated(f"version {version!r} may not become active: {refusal}; {way}")


@dataclass(frozen=True)
class Wish:
    """That a version become active.

    Args:
        override: a reason to do without a passing gate.
        by: who asks.
    """

    version: str
    override: str | None = None
    by: str = ""


@dataclass(frozen=True)
class Serving:
    """What serves, and what did before; None for nothing."""

    active: str | None
    previous: str | None


def answered_for(folder: Path, wish: Wish, serving: Serving, shas: tuple[str, str | None], time: str) -> Activation:
    """The activation that is wished for, with what it rests on.

    Args:
        shas: of the version's manifest, and of what serves.

    Raises:
        NotGated: it rests on nothing.
        VersionCorrupt: a record cannot be read.
    """
    baseline, before = serving.active or PRIORS, read_activations(folder)
    refusal = why_not(read_gate(folder, wish.version), shas, baseline)
    back = wish.version == serving.previous and not (before and before[-1].grounds == "rollback")
    grounds = grounds_for(wish.version, baseline, refusal, wish.override, back)
    said = [] if wish.override is None else [wish.override.strip()]
    said += [refusal] if grounds == "override" and refusal is not None else []
    return Activation(
        version=wish.version, previous=serving.active, time=time, grounds=grounds, reason="; ".join(said), by=wish.by
    )
