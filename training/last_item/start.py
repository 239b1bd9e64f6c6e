"""Where the item embeddings begin: items that happen near the same others begin near each other.

The positive pointwise mutual information of the transitions, factorised (Levy and Goldberg, 2014). With many items and
few events each, a network that begins at random only learns how often items happen for its first ten epochs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackError, svds

from training.last_item.sequences import Ragged
from training.last_item.transitions import counted

Floats = NDArray[np.float64]

_NOTHING = 1e-9
_DENSE_ITEMS = 512
"""Up to here all factors are computed: where few items make the spaces degenerate, the sparse way begins at random."""

_REACH = 3


def near_embeddings(train: Ragged, items: int, width: int, spread: float, seed: int) -> NDArray[np.float32]:
    """Embeddings [1 + items, width] from what happened near what; random where nothing is known of an item.

    Args:
        spread: standard deviation of the entries, of those that are known and those that are not.
        seed: of what is not known, and of the factorisation's first guess.
    """
    rng = np.random.default_rng(seed)
    found = rng.normal(0.0, spread, (items + 1, width))
    vectors = _factors(_information(counted(train, items, _REACH, 1.0)), min(width, items - 1), rng)
    known = np.linalg.norm(vectors, axis=1) > _NOTHING
    if known.any():
        deviation = float(vectors[known].std())
        # Where all entries are the same, they deviate from nothing.
        size = deviation if deviation > _NOTHING else float(np.abs(vectors[known]).max())
        found[known, : vectors.shape[1]] = vectors[known] * (spread / size)
    return found.astype(np.float32)


def _factors(information: sparse.csr_array, rank: int, rng: np.random.Generator) -> Floats:
    """[1 + items, rank], or no columns where there is nothing to factorise."""
    size = information.shape[0]
    if rank < 1 or not information.nnz:
        return np.zeros((size, 0))
    guess = rng.normal(size=size)
    if size <= _DENSE_ITEMS:
        left, values = (part[..., :rank] for part in np.linalg.svd(information.toarray(), full_matrices=False)[:2])
    else:
        try:
            left, values, _ = svds(information, k=rank, v0=guess)
        except ArpackError:  # a start at random is slower, no worse
            return np.zeros((size, 0))
    # a rotation spreads what is large over all columns, and so over all heads
    turned: Floats = (left * np.sqrt(np.maximum(values, 0.0))) @ np.linalg.qr(rng.normal(size=(rank, rank)))[0]
    return turned


def _information(counts: sparse.csr_array) -> sparse.csr_array:
    """max(0, log(n·n_ij / (n_i·n_j))), sparse."""
    entries = counts.tocoo()
    sums = np.asarray(counts.sum(axis=1)).ravel()
    row, column = entries.coords
    mutual = np.log(np.maximum(entries.data * sums.sum() / (sums[row] * sums[column]), 1e-12))
    return sparse.csr_array((np.maximum(mutual, 0.0), (row, column)), shape=counts.shape)
