"""`nextaction gate` and `nextaction models activate` on a small log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from features.events import RankingEvent, encode_event, from_seconds
from features.log import LogWriter
from ranker.config import config_dir
from ranker.config_file import read_yaml
from ranker.errors import ConfigError
from ranker.release.gating import read_activations, read_gate
from tests.command_line import Nextaction
from tests.training.gates.conftest import DAY_S, Place
from training.gates.rules import RULES
from training.gates.settings import GateSettings, load_gates
from training.simulate import START_S

SINCE = "2024-06-05"


def arguments(place: Place, candidate: str, baseline: str | None = None) -> list[object]:
    chosen: list[object] = [] if baseline is None else ["--baseline", baseline]
    return ["gate", "--candidate", candidate, *chosen, "--log", place.log, "--models", place.models, "--since", SINCE]


@pytest.fixture
def place(small: Place, tmp_path: Path) -> Place:
    """A copy of the registry, so that records do not meet."""
    shutil.copytree(small.models, tmp_path / "models")
    return Place(small.log, tmp_path / "models", small.until_s)


def test_the_first_version_is_gated_against_the_priors_and_may_then_serve(
    nextaction: Nextaction, place: Place, easy: Path
) -> None:
    done = nextaction(*arguments(place, "1"), "--config", easy, "--no-off-policy", "--json")
    found = done.json
    assert (found["baseline"], [rule["rule"] for rule in found["rules"]]) == (
        "priors", [rule.__name__ for rule in RULES],
    )  # fmt: skip
    assert done.status == {"ship": 0, "stop": 4, "hold": 5}[found["verdict"]]
    record = read_gate(place.models, "1")
    assert record is not None and record.verdict == found["verdict"]
    assert record.candidate_sha256 == place.registry.manifest_sha256("1")
    assert (record.judged.since[:10], record.judged.queries > 30) == (SINCE, True)


def test_two_identical_versions_do_not_stop_each_other_and_their_quality_is_the_same(
    nextaction: Nextaction, place: Place, easy: Path
) -> None:
    done = nextaction(*arguments(place, "3", "1"), "--config", easy, "--json")
    quality = next(rule for rule in done.json["rules"] if rule["rule"] == "quality_and_cost")["figures"]["ndcg@10"]
    assert done.json["verdict"] in ("hold", "ship")
    assert (quality["low"], quality["difference"], quality["high"]) == (0.0, 0.0, 0.0)


def test_what_does_not_ship_is_refused_with_the_reason_and_an_override_is_kept(
    nextaction: Nextaction, place: Place
) -> None:
    done = nextaction(*arguments(place, "1", "priors"), "--limit", 20, "--no-off-policy")
    assert done.status == 5
    assert "few_queries" in done.out and "--override REASON" in done.out
    refused = nextaction("models", "activate", 1, "--models", place.models)
    assert (refused.status, "the gate holds it" in refused.err) == (1, True)
    done = nextaction("models", "activate", 1, "--models", place.models, "--override", "we watch it", "--json")
    assert (done.status, done.json["active"]) == (0, "1")
    (activation,) = read_activations(place.models)
    assert (activation.grounds, "we watch it; the gate holds it" in activation.reason) == ("override", True)


def test_a_passing_record_is_all_that_activation_asks_for(nextaction: Nextaction, place: Place) -> None:
    nextaction(*arguments(place, "1", "priors"), "--limit", 5, "--no-off-policy")
    path = place.models / "1.gate.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "verdict": "ship", "reasons": []}))
    assert nextaction("models", "activate", 1, "--models", place.models).status == 0
    assert read_activations(place.models)[0].grounds == "gate"


def test_nothing_after_the_date_holds(nextaction: Nextaction, place: Place) -> None:
    done = nextaction(*arguments(place, "1", "priors")[:-1], "2030-01-01", "--no-off-policy", "--json")
    assert (done.status, done.json["verdict"], "no_queries" in done.json["reasons"]) == (5, "hold", True)


def test_a_version_of_another_schema_stops_without_a_run(nextaction: Nextaction, place: Place) -> None:
    path = place.models / "2" / "manifest.json"
    path.write_text(path.read_text().replace(place.registry.manifest("2").schema, "0123456789abcdef"))
    done = nextaction(*arguments(place, "2", "1"), "--json")
    assert (done.status, done.json["reasons"]) == (4, ["schema_mismatch"])


def test_a_log_of_another_schema_is_judged_by_features_computed_anew(
    nextaction: Nextaction, place: Place, tmp_path: Path
) -> None:
    ranking = RankingEvent(
        id="r", time=from_seconds(START_S + 5 * DAY_S), user="u", versions={"schema": "feed"}, traffic="live"
    )
    with LogWriter.open(tmp_path / "log") as writer:
        writer.append([encode_event(ranking)])
    other = Place(tmp_path / "log", place.models, place.until_s)
    done = nextaction(*arguments(other, "1", "priors"), "--json")
    assert (done.status, done.json["verdict"]) == (5, "hold")


@pytest.mark.parametrize(
    ("candidate", "baseline", "complaint"),
    [
        ("9", "1", "there is no version '9'"),
        ("1", "9", "there is no version '9'"),
        ("1", "1", "candidate and baseline are both '1'"),
    ],
)
def test_versions_that_cannot_be_compared_are_one_clear_line(
    nextaction: Nextaction, place: Place, candidate: str, baseline: str, complaint: str
) -> None:
    done = nextaction(*arguments(place, candidate, baseline))
    assert (done.status, done.out) == (1, "")
    assert complaint in done.err.splitlines()[-1] and done.err.splitlines()[-1].startswith("nextaction: error: ")


def test_no_log_and_no_registry_are_one_clear_line(nextaction: Nextaction, place: Place, tmp_path: Path) -> None:
    done = nextaction("gate", "--candidate", "1", "--log", tmp_path / "none", "--models", place.models)
    assert (done.status, "none" in done.err) == (1, True)
    done = nextaction("gate", "--candidate", "1", "--log", place.log, "--models", tmp_path / "none")
    assert (done.status, "is not a folder" in done.err) == (1, True)


def test_the_file_says_the_defaults_and_an_unknown_key_is_refused(tmp_path: Path) -> None:
    assert load_gates() == GateSettings()
    lines = (config_dir() / "gates.yaml").read_text().splitlines()
    named = [line for line in lines if line.strip() and not line.lstrip().startswith("#") and not line.endswith(":")]
    assert all("#" in line for line in named)
    assert set(read_yaml(config_dir() / "gates.yaml")) == set(GateSettings.__struct_fields__)
    (tmp_path / "g.yaml").write_text("slices: {margins: 1}\n")
    with pytest.raises(ConfigError, match="margin"):
        load_gates(tmp_path / "g.yaml")
