"""Labelled texts for the safety scorer: JSON Lines of {"text": …, "unsafe": true|false}."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.events import MAX_STRING

Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]

LEAST_PER_CLASS = 5
"""Fewer cannot be split into three parts that each hold both classes."""


class LabelError(Exception):
    """The labelled file cannot be learned from; names file, line and field."""


class _Row(msgspec.Struct, frozen=True):
    text: str
    unsafe: bool


class _JudgedRow(msgspec.Struct, frozen=True):
    text: str
    unsafe: bool | None


@dataclass(frozen=True)
class Labels:
    """Distinct texts and whether each is unsafe.

    Args:
        texts: [rows].
        unsafe: [rows].
        repeated: rows left out because their text had come before.
        conflicts: texts that came with both labels; they count as unsafe.
    """

    texts: tuple[str, ...]
    unsafe: Bools
    repeated: int
    conflicts: int


def read_labels(path: Path, least: int = LEAST_PER_CLASS) -> Labels:
    """Reads a labelled file; an empty line is skipped.

    A repeated text is kept once: otherwise the same text would be learned from and judged.

    Args:
        least: rows that each class must have.

    Raises:
        LabelError: naming file, line and field; or a class has too few rows.
    """
    found: dict[str, bool] = {}
    repeated, conflicts = 0, set()
    try:
        with path.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                line = raw.removeprefix(BOM_UTF8) if number == 1 else raw
                if not line.strip():
                    continue
                row = _parse(line, f"{path}:{number}")
                if row.text in found:
                    repeated += 1
                    if found[row.text] != row.unsafe:
                        conflicts.add(row.text)
                found[row.text] = found.get(row.text, False) or row.unsafe
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from error
    labels = Labels(tuple(found), np.array(list(found.values()), np.bool_), repeated, len(conflicts))
    _check_classes(labels.unsafe, path, least)
    return labels


def read_judged(path: Path) -> dict[str, bool]:
    """What people said of texts, true for unsafe; one labelled both ways is unsafe, null is not judged yet.

    Raises:
        LabelError: naming file, line and field; or nothing has been judged.
    """
    found: dict[str, bool] = {}
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            row = msgspec.json.decode(line, type=_JudgedRow) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LabelError(f"{path}:{number}: {error}") from error
        if row is not None and row.unsafe is not None:
            found[row.text] = found.get(row.text, False) or row.unsafe
    if not found:
        raise LabelError(f"{path}: no text has been judged: every `unsafe` is null")
    return found


def split_labels(unsafe: Bools, shares: tuple[float, float, float], seed: int) -> tuple[Rows, Rows, Rows]:
    """Row numbers of three parts, each with both classes in proportion.

    Args:
        shares: of the parts, all above 0 and summing to 1.
    """
    rng = np.random.default_rng(seed)
    parts: list[list[Any]] = [[], [], []]
    for label in (False, True):
        rows = rng.permutation(np.flatnonzero(unsafe == label))
        first = min(max(1, round(shares[0] * len(rows))), len(rows) - 2)
        second = min(max(1, round(shares[1] * len(rows))), len(rows) - first - 1)
        for part, piece in zip(parts, np.split(rows, [first, first + second]), strict=True):
            part.append(piece)
    fit, calibrate, judge = (np.sort(np.concatenate(part)) for part in parts)
    return fit, calibrate, judge


def _parse(line: bytes, where: str) -> _Row:
    try:
        row = msgspec.json.decode(line, type=_Row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LabelError(f"{where}: {error}") from error
    if not row.text.strip():
        raise LabelError(f"{where}: text is empty - at `$.text`")
    if len(row.text) > MAX_STRING:
        raise LabelError(f"{where}: text has {len(row.text)} characters, more than {MAX_STRING} - at `$.text`")
    return row


def _check_classes(unsafe: Bools, path: Path, least: int) -> None:
    bad = int(unsafe.sum())
    for name, count in (("unsafe: true", bad), ("unsafe: false", len(unsafe) - bad)):
        if count < least:
            raise LabelError(f"{path}: {count} texts have `{name}`; both classes need at least {least}")
