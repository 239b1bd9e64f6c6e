"""A replay's state at an offset of the log, in one safe file, so that the next training reads on from there.

`training-replay.ckpt` is a line that names the format, the sha256 of what follows, and msgpack: rows and cells as the
stores pack them, the catalogue, and which decisions were met. Restored, a replay gives the same vectors to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from features.batch import pack_row, unpack_row
from features.catalogue import ActionSpec, Catalogue
from features.cells import CounterTable
from features.errors import FeatureError
from features.label_config import OutcomeWindows
from features.log import read_lines
from features.population import Population
from features.registry import FINGERPRINT
from features.state import RowSet, State
from ranker.release.durable import replace_atomically
from training.errors import TrainingError

FILE = "training-replay.ckpt"
_FORMAT = b"nextaction replay checkpoint 1\n"
_DIGEST_BYTES = 32
_WITNESSES = 8
"""Lines before the offset that must be the log's for the checkpoint to be of it."""


class CheckpointRefused(TrainingError):
    """A checkpoint that cannot be gone on from; names the file and what does not fit."""


class Head(msgspec.Struct, frozen=True):
    """What a checkpoint is of.

    Args:
        offset: the log's lines before it are in.
        ready_s: decisions at or after this time, Unix seconds, are met from here on as from the log's start.
        schema: fingerprint of the features.
        witness: sha256 of the log's first line and of the last before `offset`.
        counts: of labels so far, which say what a log can teach.
    """

    offset: int
    ready_s: float
    schema: str
    windows: OutcomeWindows
    witness: str
    counts: dict[str, int]


class _Body(msgspec.Struct, frozen=True, array_like=True):
    head: Head
    rows: dict[str, bytes]
    tables: dict[str, dict[str, bytes]]
    catalogue: dict[str, ActionSpec]
    skipped: dict[str, int]
    met: bytes


@dataclass(frozen=True)
class Checkpoint:
    """A state to go on from; it is the holder's own.

    Args:
        met: identities of the decisions before `head.offset`.
    """

    head: Head
    state: State
    rowset: RowSet
    met: set[bytes]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The file's content; the state is left as it was."""
    tables = checkpoint.state.population.tables
    body = msgspec.msgpack.encode(
        _Body(
            checkpoint.head,
            {key: pack_row(row) for key, row in checkpoint.rowset.rows.items()},
            {key: dict(_packed_cells(tables[key])) for key in tables},
            dict(checkpoint.state.catalogue.items()),
            dict(checkpoint.state.skipped),
            b"".join(sorted(checkpoint.met)),
        )
    )
    return _FORMAT + hashlib.sha256(body).digest() + body


def save_checkpoint(folder: Path, content: bytes) -> Path:
    """Writes it to a folder, whole or not at all.

    Raises:
        TrainingError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(folder / FILE, content)
    except OSError as error:
        raise TrainingError(f"{folder / FILE} cannot be written: {error.strerror or error}") from error
    return folder / FILE


def load_checkpoint(folder: Path, logdir: Path, windows: OutcomeWindows) -> Checkpoint | None:
    """The checkpoint of a folder; None where there is none yet.

    Args:
        windows: within which feedback counts now.

    Raises:
        CheckpointRefused: it is broken, or of another log, other features or other windows.
    """
    path = folder / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointRefused(f"{path} cannot be read: {error.strerror or error}") from error
    body = _decode(path, content)
    _check(path, body.head, logdir, windows)
    try:
        return _restored(body)
    except (FeatureError, ValueError) as error:
        raise CheckpointRefused(f"{path} is broken: {error}; remove it") from error


def witness_of(logdir: Path, offset: int) -> str:
    """What lines before `offset` look like: sha256 of the first and the last few.

    Raises:
        LogError: there is no such log.
    """
    digest = hashlib.sha256()
    first = (raw.line for raw in islice(read_lines(logdir), 1))
    last = (raw.line for raw in read_lines(logdir, max(0, offset - _WITNESSES), offset))
    lines = 0
    for line in (*first, *last):
        lines += 1
        digest.update(len(line).to_bytes(4, "little") + line)
    digest.update(lines.to_bytes(4, "little"))
    return digest.hexdigest()


def _decode(path: Path, content: bytes) -> _Body:
    if not content.startswith(_FORMAT):
        raise CheckpointRefused(f"{path} is no replay checkpoint of this format; remove it")
    digest, packed = content[len(_FORMAT) :][:_DIGEST_BYTES], content[len(_FORMAT) + _DIGEST_BYTES :]
    if hashlib.sha256(packed).digest() != digest:
        raise CheckpointRefused(f"{path} is broken: its sha256 is not what it says; remove it")
    try:
        return msgspec.msgpack.decode(packed, type=_Body)
    except (msgspec.DecodeError, ValueError) as error:
        raise CheckpointRefused(f"{path} is broken: {error}; remove it") from error


def _check(path: Path, head: Head, logdir: Path, windows: OutcomeWindows) -> None:
    if head.schema != FINGERPRINT:
        raise CheckpointRefused(f"{path} is of features {head.schema}, these are {FINGERPRINT}; remove it")
    if head.windows != windows:
        raise CheckpointRefused(f"{path} was counted by {head.windows}, the config has {windows}; remove it")
    if witness_of(logdir, head.offset) != head.witness:
        raise CheckpointRefused(f"{path} is not of the log {logdir}: the lines before {head.offset} differ; remove it")


def _restored(body: _Body) -> Checkpoint:
    population = Population()
    cells = {(key, name): cell for key, table in body.tables.items() for name, cell in table.items()}
    population.load(cells, body.head.offset)
    state = State(population, Catalogue(body.catalogue), body.head.windows)
    state.skipped.update(body.skipped)
    rowset = RowSet({key: unpack_row(key, packed) for key, packed in body.rows.items()})
    if len(body.met) % 8:
        raise ValueError(f"{len(body.met)} bytes of identities are not whole ones of 8")
    met = {body.met[start : start + 8] for start in range(0, len(body.met), 8)}
    return Checkpoint(body.head, state, rowset, met)


def _packed_cells(table: CounterTable) -> Iterator[tuple[str, bytes]]:
    for action in list(table):
        packed = table.packed(action)
        assert packed is not None, "a table has a cell for each of its actions"
        yield action, packed
