"""The registry of versions: whole or absent, verified on every read, pointers that survive a kill."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ranker.release.errors import RegistryError, VersionCorrupt, VersionMissing, VersionRefused
from ranker.release.registry import DataSpan, Manifest, Registry

FILES = {"light.txt": b"tree\nversion=v4\n", "names.json": b'["a","b"]'}
NOON = 1_590_321_600.0  # 2020-05-24T12:00:00Z
ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "models", clock=lambda: NOON)


def publish(registry: Registry, **fields: Any) -> Manifest:
    return registry.publish(FILES, **{"schema": "f00d", **fields})


def test_a_published_version_reads_back_byte_for_byte(registry: Registry) -> None:
    manifest = publish(registry)
    assert [registry.read(manifest.version, name) for name in FILES] == list(FILES.values())
    assert registry.verify(manifest.version) == []


def test_the_manifest_on_disk_has_the_documented_fields(registry: Registry) -> None:
    span = DataSpan(since=None, until="2020-05-24T00:00:00.000Z", events=7, rankings=3)
    publish(registry, metrics={"mrr": 0.79}, data=span, extra={"seed": 1})
    assert json.loads((registry.folder / "1" / "manifest.json").read_bytes()) == {
        "version": "1",
        "kind": "light",
        "created": "2020-05-24T12:00:00.000Z",
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in FILES.items()
        },
        "schema": "f00d",
        "metrics": {"mrr": 0.79},
        "data": {"since": None, "until": "2020-05-24T00:00:00.000Z", "events": 7, "rankings": 3},
        "extra": {"seed": 1},
    }


def test_versions_are_numbered_and_sorted_as_numbers(registry: Registry) -> None:
    for _ in range(11):
        publish(registry)
    assert registry.versions() == [str(number) for number in range(1, 12)]


def test_a_folder_of_plain_files_can_be_published(registry: Registry, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "light.txt").write_bytes(b"x")
    assert registry.read(registry.publish(source, schema="s").version, "light.txt") == b"x"


def test_an_absent_folder_has_no_versions_and_no_pointers(registry: Registry) -> None:
    assert (registry.versions(), registry.active(), registry.previous()) == ([], None, None)
    with pytest.raises(VersionMissing, match="there is no version '1'"):
        registry.manifest("1")
    with pytest.raises(VersionMissing, match="no version was active before"):
        registry.rollback()
    assert not registry.folder.exists()


def test_activation_moves_the_old_version_to_previous_and_rollback_swaps_them(registry: Registry) -> None:
    for _ in range(3):
        registry.activate(publish(registry).version, override="a test")
    assert (registry.active(), registry.previous()) == ("3", "2")
    assert registry.rollback() == "2"
    assert (registry.active(), registry.previous()) == ("2", "3")


def test_activating_the_active_version_keeps_previous(registry: Registry) -> None:
    registry.activate(publish(registry).version, override="a test")
    registry.activate(publish(registry).version, override="a test")
    registry.activate("2", override="a test")
    assert (registry.active(), registry.previous()) == ("2", "1")


def test_a_number_that_a_pointer_still_names_is_not_given_again(registry: Registry) -> None:
    publish(registry)
    registry.activate(publish(registry).version, override="a test")
    for path in (registry.folder / "2").iterdir():
        path.unlink()
    (registry.folder / "2").rmdir()
    assert publish(registry).version == "3"


def _flip_a_byte(folder: Path) -> None:
    (folder / "light.txt").write_bytes(b"T" + FILES["light.txt"][1:])


def _truncate(folder: Path) -> None:
    (folder / "light.txt").write_bytes(FILES["light.txt"][:-1])


def _grow(folder: Path) -> None:
    (folder / "light.txt").write_bytes(FILES["light.txt"] + b"!")


def _remove(folder: Path) -> None:
    (folder / "light.txt").unlink()


def _link(folder: Path) -> None:
    (folder.parent / "elsewhere").write_bytes(FILES["light.txt"])
    (folder / "light.txt").unlink()
    (folder / "light.txt").symlink_to(folder.parent / "elsewhere")


def _folder(folder: Path) -> None:
    (folder / "light.txt").unlink()
    (folder / "light.txt").mkdir()


def _pipe(folder: Path) -> None:
    (folder / "light.txt").unlink()
    os.mkfifo(folder / "light.txt")


DAMAGES = [
    (_flip_a_byte, "sha256"),
    (_truncate, "has 15 bytes, not 16"),
    (_grow, "has 17 bytes"),
    (_remove, "is missing"),
    (_link, "symbolic link"),
    (_folder, "not a regular file|directory"),
    (_pipe, "not a regular file"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES, ids=[damage.__name__[1:] for damage, _ in DAMAGES])
def test_a_damaged_file_is_named_and_never_activated(registry: Registry, damage: Any, reason: str) -> None:
    registry.activate(publish(registry).version, override="a test")
    publish(registry)
    damage(registry.folder / "2")
    with pytest.raises(VersionCorrupt, match=f"light.txt: .*({reason})"):
        registry.read("2", "light.txt")
    assert len(registry.verify("2")) == 1
    with pytest.raises(VersionCorrupt, match=r"light\.txt"):
        registry.activate("2", override="a test")
    assert registry.active() == "1"


def _edited(registry: Registry, **changes: Any) -> None:
    path = registry.folder / "1" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


BROKEN_MANIFESTS: list[tuple[dict[str, Any], str]] = [
    ({"colour": "red"}, "colour"),
    ({"data": {"since": None, "until": None, "events": 1, "rankings": 1, "sum": 2}}, "sum.*data"),
    ({"schema": 5}, "schema"),
    ({"files": {"../secret": {"bytes": 1, "sha256": "0" * 64}}}, r"'\.\./secret'"),
    ({"files": {"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}}}, "'/etc/passwd'"),
    ({"files": {"a": {"bytes": -1, "sha256": "0" * 64}}}, "bytes"),
    ({"files": {"a": {"bytes": 1, "sha256": "0"}}}, "sha256"),
    ({"version": "7"}, "'7'"),
]


@pytest.mark.parametrize(("changes", "named"), BROKEN_MANIFESTS, ids=[named for _, named in BROKEN_MANIFESTS])
def test_a_broken_manifest_is_an_error_that_names_file_and_field(
    registry: Registry, changes: dict[str, Any], named: str
) -> None:
    publish(registry)
    _edited(registry, **changes)
    with pytest.raises(VersionCorrupt, match=f"(?s)manifest.json: .*{named}"):
        registry.manifest("1")
    assert registry.verify("1")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"version":"1"}'])
def test_a_manifest_that_is_not_one_is_corrupt(registry: Registry, raw: bytes) -> None:
    publish(registry)
    (registry.folder / "1" / "manifest.json").write_bytes(raw)
    with pytest.raises(VersionCorrupt, match=r"manifest\.json"):
        registry.manifest("1")


def test_a_missing_manifest_is_corrupt(registry: Registry) -> None:
    publish(registry)
    (registry.folder / "1" / "manifest.json").unlink()
    with pytest.raises(VersionCorrupt, match=r"manifest\.json: is missing"):
        registry.manifest("1")
    assert registry.versions() == ["1"]


def test_a_manifest_that_claims_more_than_the_limit_is_not_read(registry: Registry) -> None:
    publish(registry)
    _edited(registry, files={"light.txt": {"bytes": 1 << 60, "sha256": "0" * 64}})
    with pytest.raises(VersionCorrupt, match="more than"):
        registry.read("1", "light.txt")


def test_a_file_that_the_manifest_does_not_list_is_a_problem(registry: Registry) -> None:
    publish(registry)
    (registry.folder / "1" / "stray").write_bytes(b"")
    assert [problem.split(": ")[1] for problem in registry.verify("1")] == ["is not in the manifest"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a\0b", "manifest.json", "x" * 200])
def test_hostile_file_names_are_refused_and_leave_nothing(registry: Registry, name: str) -> None:
    with pytest.raises(VersionRefused, match="file name"):
        registry.publish({name: b"x"}, schema="s")
    assert registry.versions() == []


@pytest.mark.parametrize("version", ["", ".", "..", "../models/1", "1/..", "active", ".publishing", "1\n", "/etc"])
def test_hostile_version_names_are_missing(registry: Registry, version: str) -> None:
    registry.activate(publish(registry).version, override="a test")
    with pytest.raises(VersionMissing):
        registry.manifest(version)
    with pytest.raises(VersionMissing):
        registry.activate(version, override="a test")


def test_a_version_that_is_a_symbolic_link_is_corrupt(registry: Registry, tmp_path: Path) -> None:
    publish(registry)
    (registry.folder / "1").rename(tmp_path / "outside")
    (registry.folder / "1").symlink_to(tmp_path / "outside")
    with pytest.raises(VersionCorrupt, match="symbolic link"):
        registry.read("1", "light.txt")


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_source_folder_with_something_else_than_plain_files_is_refused(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").symlink_to("/etc/hostname") if kind == "link" else (source / "x").mkdir()
    with pytest.raises(VersionRefused):
        registry.publish(source, schema="s")


def test_files_over_the_limit_and_no_files_are_refused(tmp_path: Path) -> None:
    small = Registry(tmp_path, max_bytes=4)
    with pytest.raises(VersionRefused, match="'a' has 5 bytes, more than 4"):
        small.publish({"a": b"12345"}, schema="s")
    with pytest.raises(VersionRefused, match="0 files"):
        small.publish({}, schema="s")


def test_metrics_that_json_cannot_hold_are_refused(registry: Registry) -> None:
    with pytest.raises(VersionRefused, match="metrics or extra"):
        publish(registry, metrics={"x": object()})
    assert registry.versions() == []


@pytest.mark.parametrize("content", [b"", b"../1", b"a b", b"\xff", b"x" * 1000])
def test_a_broken_pointer_is_named(registry: Registry, content: bytes) -> None:
    publish(registry)
    (registry.folder / "active").write_bytes(content)
    with pytest.raises(VersionCorrupt, match="active"):
        registry.active()


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_bytes(b"a file")
    with pytest.raises(RegistryError, match="cannot be written"):
        Registry(tmp_path / "models").publish(FILES, schema="s")


KILLED_AT_EACH_STEP = """
import os, signal, sys
from pathlib import Path
from ranker.release.registry import Registry

root = Path(sys.argv[1])
FILES = {"light.txt": b"new", "names.json": b"new"}
left = 0

def kill_at_zero(event, arguments):
    global left
    if event in {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"} and str(root) in str(arguments):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def survived(folder, step):
    global left
    child = os.fork()
    if child == 0:
        sys.addaudithook(kill_at_zero)
        left = step
        registry = Registry(folder)
        registry.activate(registry.publish(FILES, schema="s").version, override="a test")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

for step in range(1, 200):
    folder = root / f"killed-at-{step}"
    registry = Registry(folder)
    registry.activate(registry.publish({"light.txt": b"old"}, schema="s").version, override="a test")
    done = survived(folder, step)
    for version in registry.versions():
        assert registry.verify(version) == [], (step, version)
    active = registry.active()
    assert active in registry.versions(), step
    assert registry.read(active, "light.txt") == (b"old" if active == "1" else b"new"), step
    again = registry.publish(FILES, schema="s").version
    registry.activate(again, override="a test")
    assert (registry.active(), registry.previous()) == (again, active), step
    left_behind = [p.name for p in folder.iterdir() if p.name.startswith(".") and p.name != ".lock"]
    assert left_behind == [], (step, left_behind)
    if done:
        print(step)
        break
"""


def test_a_kill_at_any_step_leaves_whole_versions_and_a_pointer_to_one_of_them(tmp_path: Path) -> None:
    steps = int(_python(KILLED_AT_EACH_STEP, str(tmp_path)))
    assert steps > 10


PUBLISH_FIVE = """
import sys
from pathlib import Path
from ranker.release.registry import Registry

registry = Registry(Path(sys.argv[1]))
print(*(registry.publish({"who": sys.argv[2].encode()}, schema="s").version for _ in range(5)))
"""


def test_processes_that_publish_at_once_get_distinct_versions(registry: Registry) -> None:
    given: dict[str, str] = {}

    def run(who: str) -> None:
        for version in _python(PUBLISH_FIVE, str(registry.folder), who).split():
            given[version] = who

    threads = [threading.Thread(target=run, args=(f"p{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given, key=int) == registry.versions() == [str(number) for number in range(1, 16)]
    assert all(registry.read(version, "who").decode() == who for version, who in given.items())


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
