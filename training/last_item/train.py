"""`nextaction train second --protocol last-item`: from a log to a version that is published and never serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from features.events import format_time, from_seconds
from ranker.release.registry import DataSpan, Manifest, Registry
from training.last_item.blend import Chosen, choose_blend
from training.last_item.checkpoint import Checkpoints, key_of
from training.last_item.fit import Epoch, Fitted, fit
from training.last_item.loss import Network
from training.last_item.second import ItemNet
from training.last_item.sequences import Sequences, read_sequences
from training.last_item.settings import FitSettings
from training.last_item.split import Split, split_last
from training.last_item.start import near_embeddings
from training.last_item.transitions import Transitions, count_transitions
from training.last_item.version import PROTOCOL, SASREC, SCHEMA, SECOND, About, build, to_files

DEFAULTS = FitSettings()

Progress = Callable[[str, Epoch | None], None]
"""What is being done, and in training how far it is."""


@dataclass(frozen=True)
class Trained:
    """All that a version is made of.

    Args:
        fitted: SECOND, and SASREC where it was asked for.
        chosen: how network and transitions are mixed.
        seconds: by step.
    """

    sequences: Sequences
    split: Split
    settings: FitSettings
    fitted: Mapping[str, Fitted]
    chosen: Chosen
    transitions: Transitions
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Job:
    """What to train.

    Args:
        baselines: the plain SASRec too, with the same loss, sizes and rate.
        checkpoints: folder of what a killed training goes on from; None keeps nothing.
        anew: what was kept of a killed training is not used.
    """

    settings: FitSettings = DEFAULTS
    baselines: bool = False
    checkpoints: Path | None = None
    anew: bool = False

    def kept(self, name: str, split: Split) -> Checkpoints:
        """Where the training of a network stands."""
        key = key_of(name, split.fingerprint, msgspec.to_builtins(self.settings))
        path = None if self.checkpoints is None else self.checkpoints / f"{PROTOCOL}-{name}-{key}.safetensors"
        return Checkpoints(path, key)


def train_last_item(logdir: Path, job: Job, progress: Progress | None = None) -> Trained:
    """Reads, splits, trains, and chooses the mixture.

    Raises:
        LogError: there is no such log.
        NothingToJudge: no user has three interactions.
        LastItemError: a checkpoint is broken.
    """
    tell = progress or (lambda _what, _epoch: None)
    watch = _Watch()
    tell("read", None)
    sequences = read_sequences(logdir)
    split = split_last(sequences)
    watch.lap("read")
    fitted = {}
    for name in (SECOND, SASREC) if job.baselines else (SECOND,):
        fitted[name] = _fit(name, split, job, tell)
        watch.lap(name)
    tell("mixture", None)
    items = len(split.vocabulary)
    judged = split.validation.first(max(1, job.settings.validation // (items + 1)), job.settings.seed)
    chosen = choose_blend(fitted[SECOND].foretell, split.train, judged, items)
    transitions = count_transitions(split.train, items, chosen.blend.transitions)
    watch.lap("mixture")
    return Trained(sequences, split, job.settings, fitted, chosen, transitions, watch.laps)


def publish_last_item(registry: Registry, trained: Trained) -> Manifest:
    """A new version that is not active, and of a kind that no service takes.

    Raises:
        RegistryError: the registry cannot be written.
    """
    split, rows = trained.split, trained.sequences.rows
    networks: dict[str, Network] = {name: fitted.network for name, fitted in trained.fitted.items()}
    files, shards = to_files(networks, trained.transitions, split.vocabulary)
    about = About(
        protocol=PROTOCOL,
        settings=trained.settings,
        vocabulary=len(split.vocabulary),
        shards=shards,
        blend=trained.chosen.blend,
        tried={name: round(value, 5) for name, value in trained.chosen.tried.items()},
        fingerprint=split.fingerprint,
        standings={name: standing_of(fitted) for name, fitted in trained.fitted.items()},
        counts=counts_of(trained.sequences, split),
        seconds={name: round(seconds, 3) for name, seconds in trained.seconds.items()},
    )
    span = DataSpan(
        since=format_time(from_seconds(float(rows.times_s.min()))),
        until=format_time(from_seconds(float(rows.times_s.max()))),
        events=len(split.train.codes),
    )
    metrics = {f"validation_ndcg@10_{name}": fitted.standing.best for name, fitted in trained.fitted.items()}
    return registry.publish(
        files, schema=SCHEMA, metrics=metrics, data=span, extra=msgspec.to_builtins(about), kind=PROTOCOL
    )


def counts_of(sequences: Sequences, split: Split) -> dict[str, int]:
    """What was read, and what became of it."""
    return {
        **sequences.counts,
        "users": len(sequences.users),
        "items": len(sequences.items),
        "vocabulary": len(split.vocabulary),
        "train_events": len(split.train.codes),
        "train_only_users": split.train_only,
        "judged_users": len(split.test),
        "unusable_lines": sequences.problems.total,
    }


def standing_of(fitted: Fitted) -> dict[str, float | int | str | list[float]]:
    """How a training went."""
    standing = fitted.standing
    return {
        "epochs": standing.epoch,
        "ended": fitted.ended,
        "best_epoch": standing.best_epoch,
        "ndcg@10": standing.best,
        "curve": [round(value, 5) for value in standing.curve],
        "losses": [round(value, 4) for value in standing.losses],
    }


def _fit(name: str, split: Split, job: Job, tell: Progress) -> Fitted:
    settings = job.settings
    kept = job.kept(name, split)
    if job.anew:
        kept.clear()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build(name, len(split.vocabulary), settings)
        if isinstance(network, ItemNet) and settings.start > 0.0:
            near = near_embeddings(split.train, len(split.vocabulary), settings.width, settings.start, settings.seed)
            network.begin(torch.from_numpy(near[1:]))
    tell(name, None)
    return fit(network, split, settings, kept, lambda epoch: tell(name, epoch))


def checkpoints_of(models: Path) -> Path:
    """Where a registry's trainings keep where they stand: no version has such a name."""
    return models / ".training"


def clear_checkpoints(job: Job, trained: Trained) -> None:
    """Removes what only a training that was not finished needs."""
    for name in trained.fitted:
        job.kept(name, trained.split).clear()


class _Watch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = now - self._last
        self._last = now
