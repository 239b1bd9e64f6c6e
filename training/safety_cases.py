"""Cases to calibrate a scorer by: labelled texts that it scores now, or labelled lines that carry a score."""

from __future__ import annotations

import hashlib
import math
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ranker.safety_text import TextScorer
from training.safety_labels import Bools, LabelError, read_labels


@dataclass(frozen=True)
class Cases:
    """What a labelled file holds.

    Args:
        scores: [cases], finite.
        unsafe: [cases].
        repeated: lines left out because their text had come before.
        conflicts: texts that came with both labels; they count as unsafe.
        sha256: of the file.
    """

    scores: NDArray[np.float64]
    unsafe: Bools
    repeated: int
    conflicts: int
    sha256: str


def scored_cases(path: Path, scorer: TextScorer) -> Cases:
    """The texts of a labelled file, each once, with the scores that the scorer gives them.

    Raises:
        LabelError: naming file, line and field.
    """
    labels = read_labels(path, least=0)
    return Cases(scorer.scores(labels.texts), labels.unsafe, labels.repeated, labels.conflicts, sha256_of(path))


def carried_cases(path: Path, field: str) -> Cases:
    """The lines of `{"unsafe": …, FIELD: score}`; where lines have a text, each text counts once.

    Raises:
        LabelError: naming file, line and field; also when one text comes with two scores.
    """
    scores: list[float] = []
    unsafe: list[bool] = []
    rows: dict[str, int] = {}
    repeated, conflicts = 0, set()
    for where, line in _lines(path):
        text, label, score = _parse(line, field, where)
        row = rows.setdefault(text, len(scores)) if text is not None else len(scores)
        if row == len(scores):
            scores.append(score)
            unsafe.append(label)
            continue
        repeated += 1
        if scores[row] != score:
            raise LabelError(f"{where}: the text has score {score} here and {scores[row]} before - at `$.{field}`")
        if unsafe[row] != label:
            conflicts.add(row)
        unsafe[row] = unsafe[row] or label
    columns = np.array(scores, np.float64), np.array(unsafe, np.bool_)
    return Cases(*columns, repeated, len(conflicts), sha256_of(path))


def sha256_of(path: Path) -> str:
    """The digest of a file's content, in hex. Raises LabelError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from error


def _lines(path: Path) -> list[tuple[str, bytes]]:
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from error
    found = enumerate(content.split(b"\n"), 1)
    return [(f"{path}:{number}", line) for number, line in found if line.strip()]


def _parse(line: bytes, field: str, where: str) -> tuple[str | None, bool, float]:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LabelError(f"{where}: {error}") from error
    text, label, score = row.get("text"), row.get("unsafe"), row.get(field)
    if not (text is None or isinstance(text, str)):
        raise LabelError(f"{where}: text {text!r} is not a text - at `$.text`")
    if not isinstance(label, bool):
        raise LabelError(f"{where}: {label!r} is neither true nor false - at `$.unsafe`")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise LabelError(f"{where}: {score!r} is not a finite score - at `$.{field}`")
    return text, label, float(score)
