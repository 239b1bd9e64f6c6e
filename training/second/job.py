"""`nextaction train second`: from a log and a version with a light stage to files that can be published."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from features.registry import COLUMNS, FINGERPRINT
from ranker.config import TrainConfig
from ranker.release.registry import Manifest, SecondEntry
from ranker.second.config import HEADS, SecondConfig
from ranker.second.network import SecondNet
from ranker.second.tokens import TOKENS_VERSION
from ranker.second.vocabulary import Known, Vocabulary
from ranker.second.weights import to_files
from training.errors import TrainingError
from training.light import Progress
from training.second.checkpoint import Keeper
from training.second.dataset import Encoding, Window, make_windows, vocabulary_of
from training.second.fit import Fit, Report
from training.second.gather import Gathered, gather_second
from training.second.out_of_fold import Scores, light_out_of_fold
from training.second.run import Run, decide_split, next_shares
from training.unbiased import make_unbiased

Tell = Callable[[Report], None]


@dataclass(frozen=True)
class Request:
    """What is to be trained.

    Args:
        light: the manifest of the version whose light stage it is trained over.
        hint: also ask questions with what was typed, where the log has it.
        without: parts of what is known to leave out, to see what they are worth: `text`, `time`, `feedback`.
        checkpoint: beginning of the name of the file in which the state is kept; None keeps none.
        anew: do not take up what was kept.
    """

    logdir: Path
    light: Manifest
    until_s: float | None
    config: SecondConfig
    hint: bool = True
    device: str = "auto"
    without: frozenset[str] = frozenset()
    checkpoint: Path | None = None
    anew: bool = False


@dataclass
class TrainedSecond:
    """What the second stage adds to a version.

    Args:
        resumed: whether a checkpoint was taken up.
        checkpoint: the file that is of no use any more once this is published.
    """

    files: dict[str, bytes]
    entry: SecondEntry
    metrics: dict[str, float]
    extra: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    checkpoint: Path | None = None


def light_config(manifest: Manifest, config: SecondConfig) -> TrainConfig:
    """How the version's light stage was trained, with the second stage's own sample."""
    try:
        found = msgspec.convert(manifest.extra.get("config", {}), TrainConfig)
    except msgspec.ValidationError:
        found = TrainConfig()
    training = config.training
    replace = msgspec.structs.replace
    sample = replace(
        found.sample, max_queries=training.max_queries, top=training.top, others=training.others, folds=training.folds
    )
    return replace(found, sample=sample, trees=replace(found.trees, threads=training.threads))


def choose_device(name: str) -> torch.device:
    """`auto` is the first GPU, or else the CPU.

    Raises:
        TrainingError: there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise TrainingError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def train_second(request: Request, progress: Progress = lambda *_: None, tell: Tell = lambda _: None) -> TrainedSecond:
    """Learns from what happened before `until_s`.

    Raises:
        LogError: there is no such log.
        TrainingError: nothing useful happened in it, or the device cannot be used.
    """
    device = choose_device(request.device)
    torch.set_num_threads(request.config.training.threads)
    config = light_config(request.light, request.config)
    gathered = gather_second(request.logdir, request.until_s, config, request.hint, progress)
    if not gathered.asked:
        counts = gathered.examples.labels.counts if gathered.examples is not None else {}
        raise TrainingError(f"{request.logdir} has no useful outcome to learn from: {dict(counts)}")
    plain, hint = out_of_fold_scores(gathered, config, progress)
    known = vocabulary_of(gathered, request.config.training)
    encoding = Encoding(Vocabulary(known), request.config.chosen, request.without)
    windows = make_windows(gathered, plain, hint, encoding)
    return fit_second(request, windows, known, device, tell)


def out_of_fold_scores(gathered: Gathered, config: TrainConfig, progress: Progress) -> tuple[Scores, Scores]:
    """Of the plain vectors, and of those with what was typed."""
    examples = gathered.examples
    assert examples is not None, "gather_second sets it"
    unbiased = make_unbiased(examples.slots, examples.labels, config.position)
    plain = light_out_of_fold(examples.plain, examples.vectors, config, unbiased, _named(progress, "plain"))
    if not examples.hint_vectors.features:
        return plain, []
    return plain, light_out_of_fold(examples.hint, examples.hint_vectors, config, unbiased, _named(progress, "hint"))


def _named(progress: Progress, kind: str) -> Progress:
    return lambda what, done, of: progress(f"{kind} {what}", done, of)


def fit_second(
    request: Request, windows: list[Window], known: Known, device: torch.device, tell: Tell
) -> TrainedSecond:
    """Fits, and packs what came of it."""
    run, net = prepare(request, windows, known, device)
    fit = Fit(net, run)
    of = identity_of(request, windows, known)
    keeper = Keeper(request.checkpoint, of) if request.checkpoint is not None else None
    resumed = keeper is not None and not request.anew and keeper.take_up(fit)
    started_s = time.monotonic()
    fit.go(tell, (lambda: keeper.save(fit)) if keeper is not None else lambda: None)
    trained = dict(zip(HEADS, run.trained, strict=True))
    files, entry = to_files(
        fit.net, known, request.config, trained, request.light.version, without=sorted(request.without)
    )
    figures = fit.state.history[fit.state.best_epoch]
    metrics = {f"second_held_out_{name.replace('score', 'mrr')}": value for name, value in figures.items()}
    extra = {
        "epochs": fit.state.epoch, "best_epoch": request.config.training.pretrain + fit.state.best_epoch + 1,
        "padding": round(fit.waste.share, 4),
        "parameters": sum(parameter.numel() for parameter in net.parameters()), "device": str(device),
        "trust": msgspec.to_builtins(fit.state.trusts),
        "config": msgspec.to_builtins(request.config), "seconds": round(time.monotonic() - started_s, 1),
    }  # fmt: skip
    return TrainedSecond(files, entry, metrics, extra, resumed, keeper.path if keeper is not None else None)


def prepare(request: Request, windows: list[Window], known: Known, device: torch.device) -> tuple[Run, SecondNet]:
    """What stays the same while fitting, and the network to begin with."""
    settings = request.config.training
    torch.manual_seed(settings.seed)
    vocabulary = Vocabulary(known)
    net = SecondNet(request.config.chosen, vocabulary.rows, len(COLUMNS), settings.dropout)
    split_s = decide_split(windows, settings.held_out)
    scale_light(net, windows, split_s)
    trained = seen_outcomes(windows, split_s)
    worth = tuple(w if seen else 0.0 for w, seen in zip(request.config.utility.signed, trained, strict=True))
    if not any(weight > 0.0 for weight in worth):
        raise TrainingError("no outcome that is worth something was seen: utility in configs/second.yaml gives none")
    autocast = settings.precision == "bf16" or (settings.precision == "auto" and device.type == "cuda")
    shares = next_shares(windows, len(known.actions))
    return Run(windows, settings, split_s, trained, worth, shares, device, autocast), net


def seen_outcomes(windows: list[Window], split_s: float) -> tuple[bool, ...]:
    """Per head, whether any question before the split had such an outcome."""
    seen = np.zeros(len(HEADS), np.bool_)
    for window in windows:
        for question in window.questions:
            if question.now_s < split_s:
                seen |= question.outcomes.any(axis=0)
    return tuple(seen.tolist())


def scale_light(net: SecondNet, windows: list[Window], split_s: float, most: int = 5000) -> None:
    """Sets by what the light stage's columns are scaled: mean and spread of their signed logarithms."""
    forms = [question.plain for window in windows for question in window.questions if question.now_s < split_s]
    forms = forms[:: max(1, len(forms) // most)]
    if not forms:
        raise TrainingError("too few questions: none is left to learn from when the last are held out")
    columns = np.concatenate(
        [np.concatenate([f.candidates.features, f.candidates.light[:, None]], axis=1) for f in forms]
    ).astype(np.float64)
    columns = np.sign(columns) * np.log1p(np.abs(columns))
    known = np.isfinite(columns)
    count = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, columns, 0.0)
    mean = filled.sum(axis=0) / count
    spread = np.sqrt((np.where(known, columns - mean, 0.0) ** 2).sum(axis=0) / count)
    net.light.mean.copy_(torch.from_numpy(mean))
    net.light.spread.copy_(torch.from_numpy(np.where(spread > 1e-6, spread, 1.0)))


def identity_of(request: Request, windows: list[Window], known: Known) -> str:
    """Names a run: what is fitted, from what, and how."""
    digest = sha256(f"{FINGERPRINT} {TOKENS_VERSION} {request.light.version} {sorted(request.without)}".encode())
    digest.update(msgspec.json.encode((request.config, known)))
    for window in windows:
        digest.update(window.tokens.tobytes())
        digest.update(window.next_action.tobytes())
        for question in window.questions:
            digest.update(question.plain.candidates.light.tobytes())
            digest.update(question.gains.tobytes())
    return digest.hexdigest()


def publishable(light_files: Mapping[str, bytes], trained: TrainedSecond) -> dict[str, bytes]:
    """All files of a version with both stages."""
    return {**light_files, **trained.files}
