"""The linear text model: log-probabilities of actions given the situation's terms.

softmax(b + Σ weight·W[bucket]); trained offline (training/text_fit.py), kept as safetensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import repeat

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from features.errors import FeatureError
from features.text_terms import BUCKETS, TERMS_VERSION, SituationTerms


class TextModelError(FeatureError):
    """A text model's file is broken, or made for other terms."""


class TextModel:
    """Scores actions by what was said and done.

    Args:
        actions: those it knows, in the order of columns.
        buckets: sorted buckets [rows] that have weights.
        weights: float32 [rows, actions].
        bias: float32 [actions].
    """

    def __init__(
        self,
        actions: Sequence[str],
        buckets: NDArray[np.uint32],
        weights: NDArray[np.float32],
        bias: NDArray[np.float32],
    ) -> None:
        self.actions = tuple(map(sys.intern, actions))
        self.buckets = buckets
        self.weights = weights
        self.bias = bias
        self._columns = {action: column for column, action in enumerate(self.actions)}
        self._rows = np.full(BUCKETS, -1, np.int32)
        self._rows[buckets] = np.arange(len(buckets), dtype=np.int32)

    def scores(self, terms: SituationTerms, actions: Sequence[str]) -> NDArray[np.float64]:
        """Log-probability [actions] among all that it knows; NaN for the unknown.

        The sum runs over rows in a fixed order, without BLAS, so that every process gets the same bits.
        """
        rows = self._rows[terms.buckets]
        known = rows >= 0
        weighted = self.weights.take(rows[known], axis=0)
        weighted *= terms.weights[known, None]
        # Row after row as sum(axis=0) does it, in half its time.
        logits = np.einsum("ta->a", weighted.astype(np.float64)) + self.bias
        logits -= logits.max()
        logits -= np.log(np.exp(logits).sum())
        columns = np.fromiter(map(self._columns.get, actions, repeat(-1)), np.int64, len(actions))
        return np.where(columns >= 0, logits[columns], np.nan)

    def to_bytes(self) -> bytes:
        """A safetensors file; weights as float16, which moves a score by less than the noise of training."""
        meta = {"actions": self.actions, "terms": TERMS_VERSION, "buckets": BUCKETS}
        packed = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        tensors = {
            "buckets": self.buckets,
            "weights": self.weights.astype(np.float16),
            "bias": self.bias,
            "meta": packed,
        }
        return save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})

    @classmethod
    def from_bytes(cls, packed: bytes) -> TextModel:
        """The model that `to_bytes` packed.

        Raises:
            TextModelError: not such a file, or made for other terms.
        """
        try:
            tensors = load(packed)
            meta = msgspec.json.decode(tensors["meta"].tobytes(), type=_Meta)
            buckets, bias = tensors["buckets"], tensors["bias"].astype(np.float32)
            weights = tensors["weights"].astype(np.float32)
        except (SafetensorError, msgspec.MsgspecError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise TextModelError(f"not a text model: {type(error).__name__}: {error}") from error
        if (meta.terms, meta.buckets) != (TERMS_VERSION, BUCKETS):
            raise TextModelError(f"text model of terms {meta.terms}, this service has {TERMS_VERSION}")
        _check_shapes(meta.actions, buckets, weights, bias)
        return cls(meta.actions, buckets, weights, bias)


class _Meta(msgspec.Struct):
    actions: list[str]
    terms: int
    buckets: int


def _check_shapes(
    actions: list[str], buckets: NDArray[np.uint32], weights: NDArray[np.float32], bias: NDArray[np.float32]
) -> None:
    shapes = ((len(buckets),), (len(buckets), len(actions)), (len(actions),)) if buckets.ndim == 1 else ()
    if (buckets.shape, weights.shape, bias.shape) != shapes or not actions or len(set(actions)) != len(actions):
        sizes = f"buckets {buckets.shape}, weights {weights.shape}, bias {bias.shape}"
        raise TextModelError(f"text model: {sizes} do not fit {len(actions)} distinct actions")
    if len(buckets) and (buckets.dtype != np.uint32 or int(buckets.max()) >= BUCKETS):
        raise TextModelError(f"text model: a bucket is outside 0 to {BUCKETS - 1}")
    if len(np.unique(buckets)) != len(buckets):
        raise TextModelError("text model: a bucket comes twice")
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise TextModelError("text model: a weight is not finite")
