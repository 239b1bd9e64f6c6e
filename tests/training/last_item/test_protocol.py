"""`--protocol last-item` from end to end: train, publish, judge, and what it says to bad input."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ranker.commands.evaluate import newest
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from tests.command_line import Nextaction
from tests.training.last_item.courses import SMALL, circles, write_log
from tests.training.logs import did
from tests.training.logs import write_log as write_events
from training.last_item.errors import BrokenVersion, NothingToJudge, WrongProtocol
from training.last_item.evaluate import JudgeConfig, judge_last_item
from training.last_item.train import (
    Job,
    Trained,
    checkpoints_of,
    clear_checkpoints,
    publish_last_item,
    train_last_item,
)
from training.last_item.version import PROTOCOL, load_version, to_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of people who go round in circles, two who have hardly begun, and one who ends with something new."""
    folder = tmp_path_factory.mktemp("circles")
    rows = {**circles(), "short": ["i0", "i1"], "once": ["i5"], "surprised": ["i1", "i2", "i3", "never-seen"]}
    write_log(folder, rows)
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> Trained:
    job = Job(msgspec.structs.replace(SMALL, epochs=25, rate=0.01), baselines=True)
    found = train_last_item(folder / "log", job)
    publish_last_item(Registry(folder / "models"), found)
    return found


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def test_a_version_says_what_it_is_and_never_becomes_active(folder: Path, trained: Trained) -> None:
    registry = Registry(folder / "models")
    manifest = registry.manifest("1")
    assert (manifest.kind, registry.active()) == (PROTOCOL, None)
    assert manifest.extra["protocol"] == PROTOCOL
    assert manifest.extra["vocabulary"] == len(trained.split.vocabulary)
    assert manifest.extra["counts"]["train_only_users"] == 2
    assert registry.verify("1") == []
    assert newest(registry) is None


def test_what_is_read_back_says_what_was_trained(folder: Path, trained: Trained) -> None:
    version = load_version(Registry(folder / "models"), "1")
    histories = trained.split.test.histories
    for name, fitted in trained.fitted.items():
        assert (version.foretell(name)(histories) == fitted.foretell(histories)).all()
    evidence = version.transitions.probabilities(histories)
    assert (evidence == trained.transitions.probabilities(histories)).all()


def test_large_tensors_go_into_several_shards(trained: Trained) -> None:
    networks = {name: fitted.network for name, fitted in trained.fitted.items()}
    files, shards = to_files(networks, trained.transitions, trained.split.vocabulary, shard_bytes=2000)
    assert len(shards["second"]) > 1
    assert {shard for of_network in shards.values() for shard in of_network} < set(files)


def test_all_stages_are_judged_on_the_same_users_and_second_is_ahead(folder: Path, trained: Trained) -> None:
    evaluation = judge_last_item(folder / "log", load_version(Registry(folder / "models"), "1"), JudgeConfig())
    report = evaluation.to_json()
    assert list(report["stages"]) == ["popularity", "sasrec", "second"]
    assert report["queries"] == 61
    assert report["stages"]["second"]["ndcg@10"] > report["stages"]["popularity"]["ndcg@10"]
    assert report["intervals"]["second-popularity"]["ndcg@10"]["low"] > 0.0
    assert report["stage_intervals"]["second"]["ndcg@10"]["low"] <= report["stages"]["second"]["ndcg@10"]
    assert report["excluded"] == {"train_only_users": 2}
    assert report["warnings"] == []


def test_an_answer_that_was_never_learned_is_a_miss_and_is_counted(folder: Path, trained: Trained) -> None:
    evaluation = judge_last_item(folder / "log", load_version(Registry(folder / "models"), "1"), JudgeConfig())
    assert evaluation.to_json()["answers"]["never_seen_in_training"] == 1
    last = evaluation.sequences.users.index("surprised")
    place = evaluation.split.test.users.tolist().index(last)
    assert all(judged.array("mrr")[place] == 0.0 for judged in evaluation.stages.values())


def test_with_the_history_masked_what_comes_again_is_a_miss(tmp_path: Path) -> None:
    rows = {f"u{n}": ["a", "b", "c", "a"] for n in range(4)}
    report = judge_last_item(write_log(tmp_path, rows), None, JudgeConfig(mask_history=True)).to_json()
    assert report["answers"] == {"never_seen_in_training": 0, "in_history": 4}
    assert report["stages"]["popularity"]["mrr"] == 0.0


def test_a_log_that_has_gone_on_is_judged_with_a_warning(folder: Path, trained: Trained, tmp_path: Path) -> None:
    other = write_log(tmp_path, circles(seed=4))
    report = judge_last_item(other, load_version(Registry(folder / "models"), "1"), JudgeConfig()).to_json()
    assert "learned from another log" in report["warnings"][0]


def test_users_with_equal_times_duplicates_and_one_event_are_taken_as_they_are(tmp_path: Path) -> None:
    events = [did(item, 1.0, user=f"u{n}", id=f"{n}{item}") for n in range(6) for item in "abcd"]
    events += [events[0], did("a", 2.0, user="once")]
    trained = train_last_item(write_events(tmp_path, events), Job(msgspec.structs.replace(SMALL, epochs=1)))
    counts = publish_last_item(Registry(tmp_path / "models"), trained).extra["counts"]
    assert (counts["duplicate"], counts["train_only_users"], counts["judged_users"]) == (1, 1, 6)


def test_an_empty_log_is_an_error_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(NothingToJudge, match="0 users"):
        train_last_item(write_events(tmp_path, []), Job(SMALL))


def test_versions_that_are_not_there_or_of_another_protocol_or_broken_are_told_apart(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.publish({"light-plain.txt": b"trees"}, schema="x")
    registry.publish({"a": b"b"}, schema="x", kind=PROTOCOL, extra={"protocol": PROTOCOL})
    with pytest.raises(RegistryError, match="no version '9'"):
        load_version(registry, "9")
    with pytest.raises(WrongProtocol, match="'light', not by the protocol 'last-item'"):
        load_version(registry, "1")
    with pytest.raises(BrokenVersion, match="version 2: extra"):
        load_version(registry, "2")


def test_weights_that_are_not_finite_are_refused(trained: Trained, tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    manifest = publish_last_item(registry, trained)
    files = {name: registry.read("1", name) for name in manifest.files}
    shard = manifest.extra["shards"]["second"][0]
    files[shard] = files[shard][:-4] + b"\x00\x00\xc0\x7f"
    registry.publish(files, schema=manifest.schema, kind=PROTOCOL, extra=manifest.extra)
    with pytest.raises(BrokenVersion, match="not finite"):
        load_version(registry, "2")


def test_checkpoints_are_gone_once_a_version_is_published(tmp_path: Path) -> None:
    job = Job(msgspec.structs.replace(SMALL, epochs=1), checkpoints=checkpoints_of(tmp_path / "models"))
    found = train_last_item(write_log(tmp_path, circles(users=9)), job)
    assert len(list((tmp_path / "models" / ".training").iterdir())) == 1
    clear_checkpoints(job, found)
    assert not list((tmp_path / "models" / ".training").iterdir())
    assert Registry(tmp_path / "models").versions() == []


def test_the_commands_train_judge_and_report(tmp_path: Path, nextaction: Nextaction) -> None:
    log, models = write_log(tmp_path, circles(users=12)), tmp_path / "models"
    here = ("--protocol", "last-item", "--log", log, "--models", models)
    assert nextaction("evaluate", *here, "--json").json["stages"].keys() == {"popularity"}
    done = nextaction("train", "second", *here, "--seed", 3, "--epochs", 2, "--json")
    assert (done.status, done.json["version"], done.json["active"]) == (0, "1", None)
    assert done.json["extra"]["settings"]["seed"] == 3
    assert "NDCG@10" in done.err
    report = nextaction("evaluate", *here, "--mask-history", "--parts", "--json").json
    assert list(report["stages"]) == ["popularity", "network", "transitions", "second"]
    assert report["mask_history"] and report["version"] == "1" and report["queries"] == 12
    shown = nextaction("evaluate", *here)
    assert shown.status == 0 and "95 % intervals, by user" in shown.out
    refused = nextaction("models", "activate", "1", "--models", models)
    assert refused.status == 1 and "never serves" in refused.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--version", "9"), "no version '9'"),
        (("--since", "2020-01-01"), "--since does not go with --protocol last-item"),
        (("--hint",), "--hint does not go with --protocol last-item"),
    ],
)
def test_what_cannot_be_judged_is_one_line(
    folder: Path, trained: Trained, nextaction: Nextaction, more: tuple[str, ...], says: str
) -> None:
    done = nextaction(
        "evaluate", "--protocol", "last-item", "--log", folder / "log", "--models", folder / "models", *more
    )
    assert done.status == 1
    assert done.err.count("\n") == 1 and says in done.err


def test_the_file_of_the_settings_is_obeyed_and_options_go_before_it(tmp_path: Path, nextaction: Nextaction) -> None:
    log, file = write_log(tmp_path, circles(users=9)), tmp_path / "learn.yaml"
    file.write_text("width: 16\nlayers: 1\nepochs: 3\nseed: 7\n")
    here = ("train", "second", "--protocol", "last-item", "--log", log, "--models", tmp_path / "models")
    done = nextaction(*here, "--config", file, "--epochs", 1, "--json")
    settings = done.json["extra"]["settings"]
    assert [settings[name] for name in ("width", "layers", "epochs", "seed")] == [16, 1, 1, 7]
    file.write_text("epoch: 3")
    refused = nextaction(*here, "--config", file)
    assert refused.status == 1 and "unknown key 'epoch'" in refused.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--until", "2020-01-01"), "--until does not go with --protocol last-item"),
        (("--device", "cuda"), "--device cuda: --protocol last-item learns on the CPU"),
        (("--seed", "-1"), "seed"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    folder: Path, nextaction: Nextaction, more: tuple[str, ...], says: str
) -> None:
    done = nextaction(
        "train", "second", "--protocol", "last-item", "--log", folder / "log", "--models", folder / "new", *more
    )
    assert done.status == 1
    assert done.err.count("\n") == 1 and says in done.err
    assert not (folder / "new").exists()


def test_a_protocol_that_does_not_exist_is_wrong_usage(nextaction: Nextaction) -> None:
    done = nextaction("evaluate", "--protocol", "first-item", "--log", "x", "--models", "y")
    assert done.status == 2
    assert "'first-item' is not one of log, last-item" in done.err
