"""`nextaction evaluate --protocol last-item`: every stage ranks all items for the same users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.intervals import interval, paired_interval
from training.last_item.blend import repeated, sources
from training.last_item.foretell import Foretell, in_parts
from training.last_item.ranks import METRICS, TOP, Judged, Scores, exclude
from training.last_item.sequences import UNKNOWN, Ragged, Sequences, read_sequences
from training.last_item.split import Queries, Split, split_last
from training.last_item.transitions import Transitions
from training.last_item.version import SASREC, SECOND, Version

POPULARITY, NETWORK, TRANSITIONS = "popularity", "network", "transitions"
INTERVAL_METRICS = ("hr@1", "hr@10", "mrr", "ndcg@10")


@dataclass(frozen=True)
class JudgeConfig:
    """How to judge.

    Args:
        mask_history: items of a user's history are not ranked for him.
        draws: of the bootstrap, by user.
    """

    mask_history: bool = False
    seed: int = 0
    draws: int = 2000
    parts: bool = False


@dataclass
class Evaluation:
    """Figures of all stages over the same users."""

    sequences: Sequences
    split: Split
    config: JudgeConfig
    stages: dict[str, Judged] = field(default_factory=dict)
    excluded: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The shape of `nextaction evaluate --json`."""
        counts = self.sequences.problems.counts
        return {
            "protocol": "last-item",
            "mask_history": self.config.mask_history,
            "queries": len(self.split.test),
            "items": len(self.split.vocabulary),
            "excluded": dict(self.excluded),
            "answers": self._answers(),
            "stages": {name: judged.means() | self._coverage(judged) for name, judged in self.stages.items()},
            "stage_intervals": {name: self._own(judged) for name, judged in self.stages.items()},
            "intervals": self._differences(),
            "slices": self._slices(),
            "baselines_learned_from": len(self.split.train.codes),
            "unusable_lines": dict(counts),
            "unusable_examples": [str(problem) for problem in self.sequences.problems.examples],
            "hint": False,
            "warnings": self.warnings,
        }

    def _answers(self) -> dict[str, int]:
        test = self.split.test
        return {
            "never_seen_in_training": int((test.answers == UNKNOWN).sum()),
            "in_history": int((repeated(test) & (test.answers != UNKNOWN)).sum()),
        }

    def _coverage(self, judged: Judged) -> dict[str, float]:
        return {f"coverage@{TOP}": len(judged.shown) / max(len(self.split.vocabulary), 1)}

    def _own(self, judged: Judged) -> dict[str, Any]:
        return {
            name: _bounds(interval(judged.array(name), self.split.test.users, self.config.seed, self.config.draws))
            for name in INTERVAL_METRICS
        }

    def _differences(self) -> dict[str, Any]:
        best = SECOND if SECOND in self.stages else POPULARITY
        return {
            f"{best}-{name}": {metric: self._difference(best, name, metric) for metric in INTERVAL_METRICS}
            for name in self.stages
            if name != best
        }

    def _difference(self, first: str, second: str, metric: str) -> dict[str, float | None]:
        a, b = self.stages[first].array(metric), self.stages[second].array(metric)
        return _bounds(paired_interval(a, b, self.split.test.users, self.config.seed, self.config.draws))

    def _slices(self) -> dict[str, Any]:
        """By length of the history, and by how often the answer was learned from."""
        lengths = self.split.test.histories.lengths
        counts = np.bincount(self.split.train.codes, minlength=len(self.split.vocabulary) + 1)
        seen = np.where(self.split.test.answers == UNKNOWN, 0, counts[self.split.test.answers])
        named = {
            **{f"history={name}": _between(lengths, low, high) for name, low, high in _LENGTHS},
            **{f"answer={name}": _between(seen, low, high) for name, low, high in _COUNTS},
        }
        return {name: self._slice(rows) for name, rows in named.items() if len(rows)}

    def _slice(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
        return {
            "queries": len(rows),
            "thin": len(rows) < 30,
            "stages": {
                stage: {metric: float(judged.array(metric)[rows].mean()) for metric in METRICS}
                for stage, judged in self.stages.items()
            },
        }


_LENGTHS = (("2..4", 2, 5), ("5..9", 5, 10), ("10..49", 10, 50), ("50..", 50, 1 << 40))
_COUNTS = (("never seen", 0, 1), ("rare (1..9)", 1, 10), ("10..99", 10, 100), ("100..", 100, 1 << 40))


def judge_last_item(
    logdir: Path,
    version: Version | None,
    config: JudgeConfig,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """Judges popularity, and what a version has.

    Raises:
        LogError: there is no such log.
        NothingToJudge: no user has three interactions.
    """
    tell = progress or (lambda _what: None)
    tell("read")
    sequences = read_sequences(logdir)
    split = split_last(sequences, version.vocabulary if version is not None else None)
    found = Evaluation(sequences, split, config)
    found.excluded.update(train_only_users=split.train_only)
    if version is not None and version.about.fingerprint != split.fingerprint:
        found.warnings.append(
            f"version {version.name} learned from another log, or this one as it was then: "
            "answers judged here may be among what it learned"
        )
    for name, source in _sources(version, split, config).items():
        tell(name)
        found.stages[name] = judge(source, split.test, len(split.vocabulary), config.mask_history)
    return found


def judge(source: Foretell, queries: Queries, items: int, mask_history: bool) -> Judged:
    """One stage's figures, in the order of the queries."""
    judged = Judged()
    for _, part in in_parts(queries, items):
        scores = np.array(source(part.histories))
        if mask_history:
            exclude(scores, part.histories)
        judged.add(scores, part.answers)
    return judged


def popular(split: Split) -> Foretell:
    """The same for everybody: how often an item is in the training part; equal counts stay equal."""
    counts = np.bincount(split.train.codes, minlength=len(split.vocabulary) + 1).astype(np.float32)
    counts[UNKNOWN] = 0.0

    def foretell(histories: Ragged) -> Scores:
        return np.broadcast_to(counts, (len(histories), len(counts)))

    return foretell


def _sources(version: Version | None, split: Split, config: JudgeConfig) -> dict[str, Foretell]:
    found: dict[str, Foretell] = {POPULARITY: popular(split)}
    if version is None:
        return found
    if SASREC in version.networks:
        found[SASREC] = version.foretell(SASREC)
    if config.parts:
        found[NETWORK] = version.foretell(SECOND)
        found[TRANSITIONS] = _evidence(version.transitions)
    found[SECOND] = sources(version.foretell(SECOND), version.transitions, version.about.blend)
    return found


def _evidence(transitions: Transitions) -> Foretell:
    return transitions.probabilities


def _between(values: Any, low: int, high: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.flatnonzero((values >= low) & (values < high))


def _bounds(found: Any) -> dict[str, float | None]:
    return {"mean": found.mean, "low": found.low, "high": found.high}
