"""What ends a training or an export early: kill -9, a full disk, another trainer at the same time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ranker.release import durable
from ranker.release.errors import RegistryError
from ranker.release.registry import Manifest, Registry
from ranker.second.config import SecondConfig
from ranker.second.weights import to_files
from tests.ranker.second.made import KNOWN, model
from tests.training.second.interrupted import EAGER, packed
from tests.training.second.made import sequence_log
from tests.training.second.test_train_second import LIGHT
from training.errors import TrainingError
from training.light import train_light
from training.publish import publish
from training.second.checkpoint import LIFE_S, Keeper, load_checkpoint, remove_old
from training.second.job import Request, TrainedSecond, train_second
from training.second.publish import publish_second

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and a registry with a light version."""
    made = tmp_path_factory.mktemp("interrupted")
    logdir = sequence_log(made, users=12, steps=6)
    publish(Registry(made / "models"), train_light(logdir, config=LIGHT), LIGHT)
    return made


def started(folder: Path, checkpoint: str, out: str) -> subprocess.Popen[str]:
    names = [str(folder / "log"), str(folder / "models"), checkpoint, str(folder / out)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.second.interrupted", *names],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_a_run_that_was_killed_and_taken_up_ends_with_the_weights_of_one_that_was_not(folder: Path) -> None:
    checkpoint = str(folder / "checkpoint")
    with started(folder, checkpoint, "killed") as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):
            if number == 3:
                process.send_signal(signal.SIGKILL)
                break
    assert not (folder / "killed").exists()
    assert len(list(folder.glob("checkpoint-*"))) == 1
    with started(folder, checkpoint, "resumed") as resumed:
        told = resumed.communicate()[0].splitlines()
    assert told[-1] == "resumed"
    assert told[0] != "1 1"
    light = Registry(folder / "models").manifest("1")
    whole = train_second(Request(folder / "log", light, None, EAGER))
    assert (folder / "resumed").read_bytes() == packed(whole)


def test_two_trainers_at_once_keep_apart_what_they_keep(folder: Path) -> None:
    """Two of the very same run, each writing at every batch; those of another run have another name."""
    light = Registry(folder / "models").manifest("1")
    prefix = folder / "at-once"
    with started(folder, str(prefix), "one") as one:
        assert one.stdout is not None
        one.stdout.readline()
        mine = train_second(Request(folder / "log", light, None, EAGER, checkpoint=prefix, anew=True))
        assert one.wait(60) == 0
    assert (folder / "one").read_bytes() == packed(mine)
    assert [path.name for path in folder.glob("*at-once*")] == [mine.checkpoint.name if mine.checkpoint else ""]
    assert Keeper(prefix, "a" * 64).path != Keeper(prefix, "b" * 64).path


def test_a_disk_that_is_full_at_a_checkpoint_ends_no_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    light = Registry(folder / "models").manifest("1")

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("training.second.checkpoint.write_new", full)
    prefix = folder / "full"
    trained = train_second(Request(folder / "log", light, None, EAGER, checkpoint=prefix))
    assert trained.files == train_second(Request(folder / "log", light, None, EAGER)).files
    assert sum("cannot be taken up" in record.message for record in caplog.records) == 1
    assert list(folder.glob("*full*")) == []


def test_what_was_kept_is_not_taken_up_where_a_run_begins_anew_and_is_removed_after_a_while(folder: Path) -> None:
    light = Registry(folder / "models").manifest("1")
    prefix = folder / "anew"
    first = train_second(Request(folder / "log", light, None, EAGER, checkpoint=prefix))
    again = train_second(Request(folder / "log", light, None, EAGER, checkpoint=prefix))
    anew = train_second(Request(folder / "log", light, None, EAGER, checkpoint=prefix, anew=True))
    assert (first.resumed, again.resumed, anew.resumed) == (False, True, False)
    assert first.files == again.files == anew.files
    assert first.checkpoint is not None and first.checkpoint.exists()
    remove_old(prefix, time.time() + LIFE_S - 60)
    assert first.checkpoint.exists()
    remove_old(prefix, time.time() + LIFE_S + 60)
    assert not first.checkpoint.exists()


def test_a_checkpoint_of_something_else_is_not_taken_up_and_a_broken_one_is_named(tmp_path: Path) -> None:
    from safetensors.torch import save
    from torch import zeros

    path = tmp_path / "checkpoint"
    path.write_bytes(b"not at all")
    with pytest.raises(TrainingError, match="remove it to start anew"):
        load_checkpoint(path, None, "x")  # type: ignore[arg-type]
    path.write_bytes(save({"a": zeros(1)}))
    with pytest.raises(TrainingError, match="remove it to start anew"):
        load_checkpoint(path, None, "x")  # type: ignore[arg-type]
    assert load_checkpoint(tmp_path / "none", None, "x") is False  # type: ignore[arg-type]


def small() -> TrainedSecond:
    files, entry = to_files(model().net, KNOWN, SecondConfig(), {"accept": True}, "1")
    return TrainedSecond(files, entry, {"second_held_out_mrr": 0.5})


def light_version(folder: Path) -> tuple[Registry, Manifest]:
    registry = Registry(folder / "models")
    return registry, registry.publish({"light-plain.txt": b"trees"}, schema="f00d")


def test_two_trainers_that_export_at_once_get_different_versions(tmp_path: Path) -> None:
    registry, light = light_version(tmp_path)
    barrier, trained = threading.Barrier(2), small()

    def export(_: int) -> str:
        own = Registry(registry.folder)
        barrier.wait()
        return publish_second(own, light, trained).version

    with ThreadPoolExecutor(2) as pool:
        versions = sorted(pool.map(export, range(2)))
    assert versions == ["2", "3"]
    assert all(registry.verify(version) == [] for version in ("1", "2", "3"))


def test_a_disk_that_is_full_during_the_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, light = light_version(tmp_path)
    before = sorted(path.name for path in registry.folder.iterdir())
    real, written = durable.write_new, 0

    def full(path: Path, content: bytes) -> None:
        nonlocal written
        written += 1
        if written == 3:
            path.write_bytes(content[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr("ranker.release.registry.write_new", full)
    with pytest.raises(RegistryError, match="No space left"):
        publish_second(registry, light, small())
    assert sorted(path.name for path in registry.folder.iterdir()) == before
    monkeypatch.undo()
    assert publish_second(registry, light, small()).version == "2"
