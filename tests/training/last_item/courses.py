"""Small sets of sequences with a structure that can be learned, made from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from training.importers import import_log
from training.last_item.settings import FitSettings

SMALL = FitSettings(width=16, layers=1, heads=2, longest=8, dropout=0.1, batch_events=256, epochs=6, threads=1)


def circles(users: int = 60, items: int = 12, seed: int = 0, least: int = 3, most: int = 9) -> dict[str, list[str]]:
    """Everybody goes round the same circle of items, from a place of his own."""
    rng = np.random.default_rng(seed)
    rows = {}
    for user in range(users):
        start, length = int(rng.integers(items)), int(rng.integers(least, most + 1))
        rows[f"u{user}"] = [f"i{(start + step) % items}" for step in range(length)]
    return rows


def write_log(folder: Path, rows: Mapping[str, Sequence[str]]) -> Path:
    """The log that `nextaction import --format sequences` makes of them."""
    source = folder / "sequences.txt"
    source.write_text("".join(f"{user} {' '.join(items)}\n" for user, items in rows.items()))
    import_log("sequences", source, folder / "log")
    return folder / "log"
