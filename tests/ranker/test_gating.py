"""What lets a version become active: a gate against what serves, somebody's word, or having served before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranker.release.errors import NotGated, RegistryError, VersionCorrupt, VersionMissing
from ranker.release.gating import PRIORS, GateRecord, JudgedSpan, gate_file, read_activations, read_gate
from ranker.release.registry import Registry

NOON = 1_590_321_600.0  # 2020-05-24T12:00:00Z


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """With three versions, none of them active."""
    made = Registry(tmp_path / "models", clock=lambda: NOON)
    for number in range(3):
        made.publish({"light.txt": b"%d" % number}, schema="f00d")
    return made


def judged(registry: Registry, candidate: str, baseline: str = PRIORS, /, **changes: Any) -> GateRecord:
    """A record of a gate that lets ship, unless told otherwise."""
    fields: dict[str, Any] = {
        "candidate": candidate,
        "candidate_sha256": registry.manifest_sha256(candidate),
        "baseline": baseline,
        "baseline_sha256": None if baseline == PRIORS else registry.manifest_sha256(baseline),
        "verdict": "ship",
        "reasons": [],
        "created": "2020-05-24T11:00:00.000Z",
        "judged": JudgedSpan("2020-05-20T00:00:00.000Z", "2020-05-24T00:00:00.000Z", 10, 5),
    }
    return GateRecord(**{**fields, **changes})


def test_a_version_that_no_gate_has_judged_is_refused_and_nothing_moves(registry: Registry) -> None:
    with pytest.raises(NotGated, match=r"'1' .* no gate has judged it; `nextaction gate --candidate 1 --baseline pri"):
        registry.activate("1")
    assert (registry.active(), read_activations(registry.folder)) == (None, [])


def test_a_passing_gate_against_what_serves_lets_it_become_active(registry: Registry) -> None:
    registry.record_gate(judged(registry, "1"))
    registry.activate("1", by="ann")
    registry.record_gate(judged(registry, "2", "1"))
    registry.activate("2")
    assert (registry.active(), registry.previous()) == ("2", "1")
    first, second = read_activations(registry.folder)
    assert (first.version, first.previous, first.grounds, first.by) == ("1", None, "gate", "ann")
    assert (second.previous, second.time) == ("1", "2020-05-24T12:00:00.000Z")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "stop", "reasons": ["slice_regression"]}, r"the gate stops it \(slice_regression\)"),
        ({"verdict": "hold", "reasons": ["few_queries"]}, r"the gate holds it \(few_queries\)"),
        ({"candidate_sha256": "0" * 64}, "other files of the same name"),
        ({"baseline": "2"}, "compared it with 2, and 1 is what serves"),
        ({"baseline": PRIORS, "baseline_sha256": None}, "compared it with priors, and 1 is what serves"),
        ({"baseline_sha256": "0" * 64}, "other files of the same name"),
    ],
    ids=["stopped", "held", "other candidate", "other baseline", "priors", "changed baseline"],
)
def test_any_other_verdict_refuses_and_says_why(registry: Registry, changes: dict[str, Any], why: str) -> None:
    registry.activate("1", override="a test")
    registry.record_gate(judged(registry, "3", "1", **changes))
    with pytest.raises(NotGated, match=why):
        registry.activate("3")
    assert registry.active() == "1"


def test_an_override_is_recorded_with_what_it_overrides(registry: Registry) -> None:
    registry.activate("1", override="the first")
    registry.record_gate(judged(registry, "2", "1", verdict="stop", reasons=["quality_worse"]))
    registry.activate("2", override=" we know better ", by="bob")
    found = read_activations(registry.folder)[-1]
    assert (found.version, found.grounds, found.by) == ("2", "override", "bob")
    assert found.reason == "we know better; the gate stops it (quality_worse)"


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_an_override_needs_a_reason(registry: Registry, reason: str) -> None:
    with pytest.raises(NotGated, match="an override needs a reason"):
        registry.activate("1", override=reason)


def test_what_served_before_comes_back_once_without_a_gate(registry: Registry) -> None:
    registry.activate("1", override="a test")
    registry.activate("2", override="a test")
    registry.activate("1")
    assert read_activations(registry.folder)[-1].grounds == "rollback"
    with pytest.raises(NotGated):  # what was rolled back does not come back by itself
        registry.activate("2")
    assert registry.active() == "1"


def test_a_later_verdict_takes_the_place_of_an_earlier_one(registry: Registry) -> None:
    registry.record_gate(judged(registry, "1"))
    registry.record_gate(judged(registry, "1", verdict="stop", reasons=["memory_share"]))
    with pytest.raises(NotGated, match="memory_share"):
        registry.activate("1")


def test_records_are_no_versions_and_no_strays(registry: Registry) -> None:
    registry.record_gate(judged(registry, "1"))
    registry.activate("1")
    assert registry.versions() == ["1", "2", "3"]
    assert registry.verify("1") == []
    assert read_gate(registry.folder, "2") is None


def test_a_verdict_on_a_version_that_is_not_there_is_refused(registry: Registry) -> None:
    with pytest.raises(VersionMissing, match="no version '9'"):
        registry.record_gate(judged(registry, "1", candidate="9"))


@pytest.mark.parametrize("content", [b"", b"{", b'{"verdict": "ship"}'])
def test_a_broken_record_is_named_and_lets_nothing_pass(registry: Registry, content: bytes) -> None:
    gate_file(registry.folder, "1").write_bytes(content)
    with pytest.raises(VersionCorrupt, match=r"1\.gate\.json"):
        registry.activate("1")
    assert registry.active() is None


def test_an_activation_log_that_was_cut_loses_only_its_last_line(registry: Registry) -> None:
    registry.activate("1", override="a test")
    with (registry.folder / "activations.jsonl").open("ab") as file:
        file.write(b'{"version":"2","prev')
    registry.activate("3", override="a test")
    assert [each.version for each in read_activations(registry.folder)] == ["1", "3"]


def test_what_serves_but_is_broken_can_be_replaced_by_override_only(registry: Registry) -> None:
    registry.activate("1", override="a test")
    (registry.folder / "1" / "manifest.json").write_bytes(b"{")
    with pytest.raises(NotGated):
        registry.activate("2")
    registry.activate("2", override="1 is broken")
    assert registry.active() == "2"


def test_a_record_that_cannot_be_written_is_one_clear_error(registry: Registry) -> None:
    (registry.folder / "activations.jsonl").mkdir()
    with pytest.raises(RegistryError):
        registry.activate("1", override="a test")
