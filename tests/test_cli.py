"""The command line from end to end: what it prints, what it fails with, and that nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from features.events import encode_event
from features.log import partition_folder
from ranker import cli
from ranker.client import Client
from ranker.commands.options.logs import FORMATS
from ranker.commands.serve import config_of
from tests.command_line import ACTIONS, ROOT, Nextaction, picks, process
from training.importers import IMPORTERS
from training.metrics import METRICS

LATE = "2020-05-21"


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def write_picks(path: Path, count: int = 80, *, hint: bool = False) -> Path:
    path.write_bytes(b"\n".join(map(encode_event, picks(count, hint=hint))) + b"\n")
    return path


QUICK = "sample: {folds: 2}\ntext: {epochs: 1}\ntrees: {rounds: 10}\n"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """Options of a training that only has to come to its end."""
    path = tmp_path_factory.mktemp("quick") / "train.yaml"
    path.write_text(QUICK)
    return "--config", path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, quick: tuple[object, ...]) -> Path:
    """A folder with a log whose people type hints, and a registry with a version of each kind."""
    folder = tmp_path_factory.mktemp("trained")
    source = write_picks(folder / "events.jsonl", hint=True)
    log, models = str(folder / "log"), str(folder / "models")
    assert cli.main(["import", "--format", "jsonl", str(source), "--to", log]) == 0
    light = ["train", "light", "--log", log, "--models", models, "--until", LATE, *map(str, quick)]
    assert cli.main(light) == cli.main([*light, "--no-hint"]) == 0
    return folder


COMMANDS = (
    (), ("demo",), ("serve",), ("import",), ("validate",), ("rebuild",), ("train",), ("train", "light"),
    ("train", "safety"), ("evaluate",), ("models",), ("models", "list"), ("models", "show"), ("models", "activate"),
    ("models", "verify"), ("plan",), ("profile",), ("labels",),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(nextaction: Nextaction, command: tuple[str, ...]) -> None:
    done = nextaction(*command, "--help")
    assert done.status == 0
    assert done.out.startswith(" ".join(("usage: nextaction", *command)))


def test_help_needs_none_of_the_libraries() -> None:
    code = "import sys; from ranker.cli import parser; parser().format_help(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in found.stdout.split()}
    assert not loaded & {"numpy", "lightgbm", "rich", "msgspec", "redis", "uvicorn", "fastapi", "features", "training"}


def test_the_formats_are_those_of_the_importers() -> None:
    assert tuple(IMPORTERS) == FORMATS


def test_an_import_and_its_check_report_as_json(nextaction: Nextaction, tmp_path: Path) -> None:
    source = tmp_path / "s.txt"
    source.write_text("ann tea coffee\nbob tea\ncarl\n")
    done = nextaction("import", "--format", "sequences", source, "--to", tmp_path / "log", "--json")
    assert (done.status, done.json["events"]) == (0, {"action": 2, "interaction": 3})
    assert done.json["skipped"] == {"no_items": 1}
    done = nextaction("validate", tmp_path / "log", "--json")
    assert (done.status, done.json) == (0, {"ok": True, "events": {"action": 2, "interaction": 3}, "findings": {}})


def test_an_import_and_its_check_report_to_people(nextaction: Nextaction, tmp_path: Path) -> None:
    source = write_picks(tmp_path / "e.jsonl", 3)
    done = nextaction("import", "--format", "jsonl", source, "--to", tmp_path / "log")
    assert (done.status, "ranking" in done.out, "12" in done.out) == (0, True, True)
    done = nextaction("validate", tmp_path / "log")
    assert (done.status, done.out) == (0, f"{tmp_path / 'log'}: 6 action, 3 ranking, 3 feedback\nno errors\n")


def test_a_torn_log_fails_its_check_and_names_the_line(nextaction: Nextaction, tmp_path: Path) -> None:
    log = tmp_path / "log"
    nextaction("import", "--format", "jsonl", write_picks(tmp_path / "e.jsonl", 3), "--to", log)
    (segment,) = partition_folder(log).glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'{"event":"feedb')
    done = nextaction("validate", log, "--json")
    (example,) = done.json["findings"]["torn_line"]["examples"]
    assert (done.status, done.json["ok"], example["line"]) == (1, False, 13)
    done = nextaction("validate", log)
    assert (done.status, f"{segment.name}:13" in done.out) == (1, True)
    assert nextaction("rebuild", "--log", log, "--json").json["events"] == 12


def test_training_keeps_a_version_that_says_what_it_learned_from(nextaction: Nextaction, trained: Path) -> None:
    done = nextaction("models", "show", 1, "--models", trained / "models")
    manifest = done.json
    assert manifest["data"]["until"] == f"{LATE}T00:00:00.000Z"
    assert (manifest["extra"]["hint"], manifest["extra"]["queries"]) == (True, 31)
    assert {"light-plain.txt", "light-hint.txt", "text-plain.safetensors"} <= set(manifest["files"])
    manifest = nextaction("models", "show", 2, "--models", trained / "models").json
    assert (manifest["extra"]["hint"], "light-hint.txt" in manifest["files"]) == (False, False)


def test_training_reports_as_json(
    nextaction: Nextaction, trained: Path, tmp_path: Path, quick: tuple[object, ...]
) -> None:
    light = ("train", "light", "--log", trained / "log", "--models", tmp_path / "m", "--no-hint", "--json", *quick)
    done = nextaction(*light)
    assert (done.status, done.json["version"], done.json["active"], done.json["extra"]["queries"]) == (0, "1", "1", 80)
    assert done.json["data"]["until"] == "2020-05-21T08:00:00.001Z"  # the last list, and not a moment more
    judged = nextaction("evaluate", "--log", trained / "log", "--models", tmp_path / "m")
    assert (judged.status, "no query to judge" in judged.err, "--since DATE" in judged.err) == (1, True, True)
    done = nextaction(*light, "--activate")
    assert (done.status, done.json["version"], done.json["active"], done.json["gate"]) == (5, "2", "1", "hold")
    assert "nothing was held back" in done.json["activation"]
    done = nextaction(*light, "--override", "a test")
    assert (done.status, done.json["version"], done.json["active"]) == (0, "3", "3")


def test_asking_for_a_hint_set_where_nobody_typed_is_remarked(
    nextaction: Nextaction, tmp_path: Path, quick: tuple[object, ...]
) -> None:
    nextaction("import", "--format", "jsonl", write_picks(tmp_path / "e.jsonl", 20), "--to", tmp_path / "log")
    light = ("train", "light", "--log", tmp_path / "log", "--models", tmp_path / "m")
    done = nextaction(*light, "--hint", "--json", *quick)
    assert (done.status, done.json["extra"]["hint"]) == (0, False)
    assert "has no typed hints" in done.err


def test_the_first_version_is_active_and_later_ones_wait(nextaction: Nextaction, trained: Path) -> None:
    done = nextaction("models", "list", "--models", trained / "models", "--json")
    assert (done.json["active"], [row["version"] for row in done.json["versions"]]) == ("1", ["1", "2"])
    text = nextaction("models", "list", "--models", trained / "models").out
    assert "active" in text


def test_activating_moves_both_pointers(nextaction: Nextaction, trained: Path) -> None:
    models = trained / "models"
    refused = nextaction("models", "activate", 2, "--models", models)
    assert refused.status == 1
    assert "no gate has judged it; `nextaction gate --candidate 2 --baseline 1" in refused.err
    done = nextaction("models", "activate", 2, "--models", models, "--override", "a test", "--json")
    assert (done.status, done.json) == (0, {"active": "2", "previous": "1"})
    assert nextaction("models", "activate", 1, "--models", models).out == "active: 1, previous: 2\n"


def test_an_evaluation_has_every_stage_with_every_metric(nextaction: Nextaction, trained: Path) -> None:
    evaluate = ("evaluate", "--log", trained / "log", "--models", trained / "models", "--version", 1)
    done = nextaction(*evaluate, "--json")
    report = done.json
    assert (done.status, report["queries"], report["warnings"], report["since"][:10]) == (0, 49, [], LATE)
    assert list(report["stages"]) == ["popularity", "markov", "linear", "priors", "light"]
    assert all(tuple(figures) == METRICS for figures in report["stages"].values())
    assert set(report["intervals"]) == {f"light-{name}" for name in ("popularity", "markov", "linear", "priors")}
    assert {"excluded", "slices", "version", "versions"} <= set(report)
    text = nextaction(*evaluate).out
    assert all(word in text for word in ("49 queries", "HR@1", "light-linear", "surface=chat", "excluded"))


def test_judging_what_was_learned_from_is_remarked(nextaction: Nextaction, trained: Path) -> None:
    done = nextaction(
        "evaluate", "--log", trained / "log", "--models", trained / "models", "--since", "2020-05-20T20:00:00", "--json"
    )
    (warning,) = done.json["warnings"]
    assert (done.status, done.json["version"]) == (0, "2")  # the newest, though 1 is active
    assert "trained on" in warning and warning in done.err


def test_a_hint_needs_a_version_that_learned_from_hints(nextaction: Nextaction, trained: Path) -> None:
    evaluate = ("evaluate", "--log", trained / "log", "--models", trained / "models", "--hint", "--json")
    assert "has no hint set" in nextaction(*evaluate, "--version", 2).json["warnings"][0]
    report = nextaction(*evaluate, "--version", 1).json
    assert (report["warnings"], report["hint"]) == ([], True)


def test_a_version_that_learned_from_everything_says_how_to_get_something_to_judge(
    nextaction: Nextaction, trained: Path, tmp_path: Path, quick: tuple[object, ...]
) -> None:
    paths = ("--log", trained / "log", "--models", tmp_path / "m")
    assert nextaction("train", "light", *paths, *quick).status == 0
    done = nextaction("evaluate", *paths)
    *_, line = done.err.splitlines()
    assert done.status == 1 and "no query to judge" in line and "train light --until DATE" in line
    assert "train light --until DATE" in " ".join(nextaction("evaluate", "--help").out.split())
    assert nextaction("train", "light", *paths, *quick, "--until", LATE).status == 0
    assert nextaction("evaluate", *paths).status == 0


def test_the_same_log_has_the_same_secret_wherever_the_service_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "plain.yaml").write_text("port: 0\n")
    (tmp_path / "named.yaml").write_text("secret_file: mine\n")
    (tmp_path / "log.yaml").write_text(f"log_dir: {tmp_path}/kept/log\n")

    def secret(*argv: object) -> str:
        return config_of(cli.parser().parse_args(["serve", *map(str, argv)])).secret_file

    beside = str(tmp_path / "kept" / "secret")
    monkeypatch.chdir(tmp_path)
    assert secret() == str(tmp_path / "nextaction-data" / "secret")
    assert secret("--log", "kept/log") == secret("--log", "kept/log", "--config", "plain.yaml") == beside
    monkeypatch.chdir(tmp_path / "elsewhere")
    for log in (tmp_path / "kept" / "log", "../kept/log"):
        assert secret("--log", log) == secret("--log", log, "--config", "../plain.yaml") == beside
    assert secret("--config", "../log.yaml") == beside
    assert secret("--config", "../named.yaml", "--log", tmp_path / "kept" / "log") == "mine"


def test_without_a_version_the_rest_is_judged(nextaction: Nextaction, trained: Path, tmp_path: Path) -> None:
    done = nextaction("evaluate", "--log", trained / "log", "--models", tmp_path, "--since", LATE, "--json")
    assert (done.status, list(done.json["stages"])) == (0, ["popularity", "markov", "linear", "priors"])
    assert done.json["warnings"][0].startswith("light: missing")


def test_a_version_for_another_schema_is_not_judged_and_fails(
    nextaction: Nextaction, trained: Path, tmp_path: Path
) -> None:
    manifest = json.loads((trained / "models" / "1" / "manifest.json").read_text())
    for name in manifest["files"]:
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "1" / name).write_bytes((trained / "models" / "1" / name).read_bytes())
    (tmp_path / "1" / "manifest.json").write_text(json.dumps({**manifest, "schema": "0123"}))
    done = nextaction("evaluate", "--log", trained / "log", "--models", tmp_path, "--json")
    assert (done.status, "light" in done.json["stages"]) == (1, False)
    assert done.json["warnings"][0].startswith("light: schema 0123 of version 1")


def test_verify_names_what_is_damaged(nextaction: Nextaction, trained: Path, tmp_path: Path) -> None:
    assert nextaction("models", "verify", "--models", trained / "models").status == 0
    subprocess.run(["cp", "-r", trained / "models", tmp_path / "m"], check=True)
    with (tmp_path / "m" / "2" / "light-plain.txt").open("ab") as file:
        file.write(b"x")
    done = nextaction("models", "verify", "--models", tmp_path / "m", "--json")
    assert (done.status, done.json["versions"]["1"]) == (1, [])
    assert "light-plain.txt" in done.json["versions"]["2"][0]
    assert nextaction("models", "verify", 1, "--models", tmp_path / "m").status == 0
    assert nextaction("models", "activate", 2, "--models", tmp_path / "m").status == 1
    (tmp_path / "m" / "active").write_text("7\n")
    assert nextaction("models", "verify", "--models", tmp_path / "m", "--json").json["pointers"]


def test_a_scorer_is_kept_where_the_service_finds_it(nextaction: Nextaction, tmp_path: Path) -> None:
    rows = [{"text": f"{word} {number}", "unsafe": word == "kill"} for word in ("kill", "kiss") for number in range(40)]
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8-sig")
    train = ("train", "safety", "--labelled", labelled)
    done = nextaction(*train, "--models", tmp_path / "m", "--alpha", "0.1", "--json")  # 12 to calibrate on, 9 needed
    assert (done.status, done.json["texts"], done.json["unsafe"], done.json["feasible"]) == (0, 80, 40, True)
    assert done.json["file"] == str(tmp_path / "m" / "safety.safetensors")
    assert (tmp_path / "m" / "safety.safetensors").stat().st_size > 0
    assert "not kept" in nextaction(*train).out


def test_a_scorer_that_would_flag_everything_is_installed_only_when_that_is_wanted(
    nextaction: Nextaction, tmp_path: Path
) -> None:
    rows = [{"text": f"{word} {number}", "unsafe": word == "kill"} for word in ("kill", "kiss") for number in range(40)]
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text("\n".join(map(json.dumps, rows)))
    install = ("train", "safety", "--labelled", labelled, "--models", tmp_path / "m")
    done = nextaction(*install)
    *_, line = done.err.splitlines()
    assert (done.status, done.out, (tmp_path / "m").exists()) == (1, "", False)
    # 1/0.005 - 1, by the rule of risk control; 30 % of 40 are for calibration
    assert line.startswith("nextaction: error: 12 unsafe texts") and "at least 199 are needed" in line
    assert "--allow-infeasible" in line
    done = nextaction(*install, "--allow-infeasible", "--json")
    assert (done.status, done.json["threshold"], done.json["feasible"]) == (0, 0.0, False)
    assert (tmp_path / "m" / "safety.safetensors").exists()


def test_a_log_is_rebuilt_without_a_store(nextaction: Nextaction, trained: Path) -> None:
    done = nextaction("rebuild", "--log", trained / "log", "--json")
    assert (done.status, done.json["events"], done.json["applied"], done.json["store"]) == (0, 166, 166, None)
    assert min(done.json["rows"], done.json["cells"]) > 0
    assert "the log can be rebuilt" in nextaction("rebuild", "--log", trained / "log").out


Arguments = Callable[[Path, Path], tuple[object, ...]]

FAILURES: dict[str, tuple[Arguments, str]] = {
    "import a file that is not there": (
        lambda here, _: ("import", "--format", "star", here / "none", "--to", here / "log"), "none does not exist"),
    "import what is not the format": (
        lambda here, t: ("import", "--format", "star", t / "events.jsonl", "--to", here / "log"), "nothing that"),
    "import into a log": (
        lambda _, t: ("import", "--format", "jsonl", t / "events.jsonl", "--to", t / "log"), "is not empty"),
    "check what is not there": (lambda here, _: ("validate", here / "none"), "none does not exist"),
    "check what is no log": (lambda here, _: ("validate", here), "is not a log"),
    "check a file": (lambda _, t: ("validate", t / "events.jsonl"), "is not a folder"),
    "rebuild what is no log": (lambda here, _: ("rebuild", "--log", here), "is not a log"),
    "rebuild into nowhere": (
        lambda _, t: ("rebuild", "--log", t / "log", "--store", "redis://127.0.0.1:1"), "127.0.0.1:1"),
    "rebuild into no store": (
        lambda _, t: ("rebuild", "--log", t / "log", "--store", "http://x"), "scheme 'http'"),
    "learn from no log": (lambda here, _: ("train", "light", "--log", here, "--models", here / "m"), "is not a log"),
    "learn from nothing": (
        lambda here, t: ("train", "light", "--log", t / "log", "--models", here / "m", "--until", "2001-01-01"),
        "no useful outcome"),
    "learn into a file": (
        lambda _, t: ("train", "light", "--log", t / "log", "--models", t / "events.jsonl"), "is not a folder"),
    "learn by a broken file": (
        lambda here, t: ("train", "light", "--log", t / "log", "--models", here / "m", "--config", here / "none"),
        "none: cannot be read"),
    "learn from no texts": (lambda here, _: ("train", "safety", "--labelled", here / "none"), "none: cannot be read"),
    "learn from what is no text": (
        lambda _, t: ("train", "safety", "--labelled", t / "events.jsonl"), "events.jsonl:1"),
    "judge an unknown version": (
        lambda _, t: ("evaluate", "--log", t / "log", "--models", t / "models", "--version", 9), "no version '9'"),
    "judge from nowhere": (
        lambda here, t: ("evaluate", "--log", t / "log", "--models", here), "--since is needed"),
    "judge nothing": (
        lambda _, t: ("evaluate", "--log", t / "log", "--models", t / "models", "--since", "2033-03-03"),
        "at or after 2033-03-03T00:00:00.000Z: no query to judge"),
    "judge no log": (lambda here, t: ("evaluate", "--log", here, "--models", t / "models"), "is not a log"),
    "list what is not there": (lambda here, _: ("models", "list", "--models", here / "none"), "none is not a folder"),
    "show an unknown version": (lambda _, t: ("models", "show", 9, "--models", t / "models"), "no version '9'"),
    "show the active one of none": (lambda here, _: ("models", "show", "--models", here), "has no versions"),
    "activate an unknown version": (lambda _, t: ("models", "activate", 9, "--models", t / "models"), "no version '9'"),
    "verify an unknown version": (lambda _, t: ("models", "verify", "../1", "--models", t / "models"), "'../1'"),
    "show a log without its format": (lambda here, _: ("demo", "--log", here), "--format"),
    "show what is not there": (lambda here, _: ("demo", "--log", here / "none", "--format", "star"), "none does not"),
    "show in a folder that is in use": (lambda _, t: ("demo", "--data", t), "not a new or empty folder"),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "said"), FAILURES.values(), ids=FAILURES)
def test_what_cannot_be_done_is_one_clear_line(
    nextaction: Nextaction, trained: Path, tmp_path: Path, argv: Arguments, said: str
) -> None:
    done = nextaction(*argv(tmp_path, trained))
    assert (done.status, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert line.startswith("nextaction: error: ") and said in line
    assert sorted(path.name for path in tmp_path.iterdir()) == []


BAD_STARTS: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "a config that is not there": ({}, ("--config", "none.yaml"), "none.yaml: cannot be read"),
    "a policy that is not there": ({}, ("--policy", "none.yaml"), "none.yaml: cannot be read"),
    "a catalogue that is not there": ({}, ("--actions", "none.yaml"), "none.yaml: cannot be read"),
    "a config that is no YAML": ({"c.yaml": "port: [1"}, ("--config", "c.yaml"), "c.yaml: "),
    "an unknown key": ({"c.yaml": "prot: 80"}, ("--config", "c.yaml"), "nearest known one is 'port'"),
    "an unknown key of the policy": ({"p.yaml": "cooldown: 3"}, ("--policy", "p.yaml"), "'cooldown_s'"),
    "an action's wrong field": ({"a.yaml": "greet: {min_age: old}"}, ("--actions", "a.yaml"), "greet.min_age"),
    "a port that is none": ({}, ("--port", "99999"), "command line: port: "),
    "a store that is none": ({}, ("--store", "ftp://x"), "command line: "),
    "a store's address that is none": ({}, ("--store", "redis://127.0.0.1:port"), "command line: "),
    "an address that is not ours": ({}, ("--host", "192.0.2.7"), "192.0.2.7:0 cannot be bound"),
    "a log that is a file": ({"log": "x"}, (), "log cannot hold a log"),
    "a pointer to nowhere": ({"models/active": "3\n"}, (), "no version '3'"),
    "a broken scorer": ({"models/safety.safetensors": "x"}, (), "safety.safetensors: "),
}


@pytest.mark.parametrize(("files", "options", "said"), BAD_STARTS.values(), ids=BAD_STARTS)
def test_a_service_that_cannot_start_says_why(
    nextaction: Nextaction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str], options: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = nextaction("serve", "--port", 0, "--log", "log", "--models", "models", *options)
    lines = [line for line in done.err.splitlines() if line.startswith("nextaction: error: ")]
    assert (done.status, done.out, len(lines)) == (1, "", 1)
    assert said in lines[0] and "Traceback" not in done.err


def test_a_damaged_model_stops_the_start(nextaction: Nextaction, trained: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", trained / "models", tmp_path / "m"], check=True)
    (tmp_path / "m" / "1" / "light-plain.txt").write_text("tree")
    done = nextaction("serve", "--port", 0, "--log", tmp_path / "log", "--models", tmp_path / "m")
    assert (done.status, "light-plain.txt" in done.err.splitlines()[-1]) == (1, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("evaluate", "--log", "l", "--models", "m", "--since", "24 May"), "'24 May' is not a date"),
        (("train", "light", "--log", "l", "--models", "m", "--until", "2020-13-01"), "'2020-13-01' is not a date"),
        (("train", "light", "--log", "l", "--models", "m", "--until", "0001-01-01T00:00+05:00"), "0001-01-01"),
        (("import", "--format", "stars", "s", "--to", "l"), "invalid choice: 'stars'"),
        (("demo", "--users", "0"), "'0' is not a whole number"),
        (("rebuild",), "--log"),
        (("models", "activate", "--models", "m"), "VERSION"),
        (("train", "light", "--log", "l", "--models", "m", "--hint", "--no-hint"), "not allowed with"),
        (("train", "safety", "--labelled", "l", "--alpha", "1"), "'1' is not a share between 0 and 1"),
        (("train", "safety", "--labelled", "l", "--alpha", "nan"), "'nan' is not a share between 0 and 1"),
        (("fly",), "invalid choice: 'fly'"),
        ((), "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_exits_with_2(nextaction: Nextaction, argv: tuple[str, ...], said: str) -> None:
    done = nextaction(*argv)
    assert (done.status, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2020-05-24", 1590278400.0),
        ("2020-05-24T09:30:00Z", 1590312600.0),
        ("2020-05-24T11:30:00.5+02:00", 1590312600.5),
        ("2020-05-24 09:30", 1590312600.0),
    ],
)
def test_a_date_without_a_zone_is_in_utc(text: str, seconds: float) -> None:
    argv = ["evaluate", "--log", "l", "--models", "m", "--since", text]
    assert cli.parser().parse_args(argv).since == seconds


def test_ctrl_c_is_130_without_a_word(nextaction: Nextaction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("ranker.commands.models.run", interrupted)
    done = nextaction("models", "list", "--models", tmp_path)
    assert (done.status, done.out, done.err) == (130, "", "")


def test_a_reader_that_goes_away_is_no_traceback(trained: Path) -> None:
    with process("models", "list", "--json", "--models", trained / "models") as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        assert (started.wait(30), started.stderr.read()) == (141, b"")


def test_a_service_serves_until_it_is_told_to_stop(trained: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "actions.yaml"
    catalogue.write_text("greet: {title: Greet}\nask_day: {}\n")
    options = ("--port", 0, "--log", tmp_path / "log", "--models", trained / "models", "--actions", catalogue)
    with process("serve", "--json", *options) as started:
        assert started.stdout is not None
        said = json.loads(started.stdout.readline())
        assert (said["actions"], said["light"], said["log"]) == (2, "1", str(tmp_path / "log"))
        with Client(said["url"]) as client:
            client.wait_ready(30)
            answer = client.rank({"user": "u1", "context": {"surface": "chat"}, "k": 2})
        assert {item.action for item in answer.items} == {"greet", "ask_day"}
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) == 0
    assert (tmp_path / "secret").exists()


def test_ctrl_c_ends_a_service_as_a_success(trained: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", trained / "log", tmp_path / "log"], check=True)
    with process("serve", "--port", 0, "--log", tmp_path / "log", "--models", tmp_path / "none") as started:
        assert started.stdout is not None
        lines = [started.stdout.readline().decode() for _ in range(8)]
        assert lines[0].startswith("serving at http://127.0.0.1:") and lines[1].endswith("/v1/rank\n")
        assert f"none active, priors rank; {len(ACTIONS)} actions" in lines[7]
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 0


def test_lines_that_cannot_be_used_are_counted_and_named_and_nothing_else_changes(
    nextaction: Nextaction, trained: Path, tmp_path: Path, quick: tuple[object, ...]
) -> None:
    whole = next(partition_folder(trained / "log", 0).glob("*.jsonl")).read_bytes().splitlines(keepends=True)
    folder = partition_folder(tmp_path / "log", 0)
    folder.mkdir(parents=True)
    unusable = [b"no json\n", b'{"event":"user","id":"\xff"}\n', b"[" * 9000 + b"\n", b'{"event":"party","id":"1"}\n']
    (folder / "00000000000000000000.jsonl").write_bytes(b"".join(whole[:20] + unusable + whole[20:]))
    log = ("--log", tmp_path / "log")
    clean = nextaction("evaluate", "--log", trained / "log", "--models", trained / "models", "--since", LATE, "--json")
    found = nextaction("evaluate", *log, "--models", trained / "models", "--since", LATE, "--json").json
    light = ("train", "light", *log, "--models", tmp_path / "models", "--until", LATE, *quick)
    learned = nextaction(*light, "--json").json
    rebuilt = nextaction("rebuild", *log, "--json").json
    assert found["stages"] == clean.json["stages"]
    assert (found["unusable_lines"], rebuilt["problems"]) == (learned["unusable_lines"], {"invalid_line": 4})
    for report in (found, learned, rebuilt):
        assert [line.split(": ")[0] for line in report["unusable_examples"]] == [
            f"00000000000000000000.jsonl:{number}" for number in range(21, 25)
        ]
    said = nextaction("evaluate", *log, "--models", trained / "models", "--since", LATE).out
    assert "unusable lines: 4 invalid_line" in said and "00000000000000000000.jsonl:21: " in said
