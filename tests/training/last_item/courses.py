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


def sparse(users: int, items: int, mean: float, seed: int) -> dict[str, list[str]]:
    """Few events of many items: popularity, four small groups that each user likes, and what follows what.

    Args:
        mean: events of a user, at least five each; nobody has an item twice.
    """
    rng = np.random.default_rng(seed)
    shares = np.arange(1, items + 1) ** -0.8
    shares /= shares.sum()
    groups = rng.permutation(items)[: items // 12 * 12].reshape(-1, 12)
    followers = rng.choice(items, (items, 8), p=shares)
    preferred = rng.dirichlet(np.full(8, 0.5), items)
    rows = {}
    for user in range(users):
        liked, row = groups[rng.integers(len(groups), size=4)].ravel(), list[int]()
        while len(row) < min(5 + rng.geometric(1.0 / (mean - 4.0)) - 1, 100) or len(row) < 5:
            drawn = rng.random()
            if row and drawn < 0.3:
                item = rng.choice(followers[row[-1]], p=preferred[row[-1]])
            elif drawn < 0.6:
                item = rng.choice(liked)
            else:
                item = rng.choice(items, p=shares)
            if item not in row:
                row.append(int(item))
        rows[f"u{user}"] = [f"i{item}" for item in row]
    return rows
