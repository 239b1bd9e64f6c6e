"""How far two rankings of the same decision agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from training.labels import Pair


def overlap_at(first: Sequence[Pair], second: Sequence[Pair], k: int) -> float | None:
    """Share of the first list's top k that the second's top k has too; None for an empty list."""
    top = set(first[:k])
    return len(top & set(second[:k])) / len(top) if top else None


def kendall_tau(a: ArrayLike, b: ArrayLike) -> float | None:
    """Kendall's τ-b of two scores of the same things; None where one of them has nothing but ties.

    (concordant − discordant) / √((pairs − ties of a)(pairs − ties of b)).

    Args:
        a, b: [things].
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    above = np.triu_indices(len(first), 1)
    left = np.sign(first[above[0]] - first[above[1]])
    right = np.sign(second[above[0]] - second[above[1]])
    varied = float(np.count_nonzero(left)) * float(np.count_nonzero(right))
    return None if varied == 0.0 else float((left * right).sum() / np.sqrt(varied))
