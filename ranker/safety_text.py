"""A small linear scorer of text: how likely it is unsafe, and from which score on it is withheld.

Hashed word and byte n-grams, binary, L2-normalised, into a logistic model. A text's score depends on
that text alone, so it is the same whatever batch it comes in.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Floats = NDArray[np.float64]

FORMAT = "nextaction-text-scorer/1"
"""The number changes whenever `buckets` does: weights are meaningless under another hashing."""
MIN_BITS, MAX_BITS = 8, 22
MAX_BYTES = 64 << 20

_BYTE_GRAMS = (3, 4, 5)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class TextScorerError(Exception):
    """A file of a text scorer is missing, broken, or made for another layout; names what and why."""


def buckets(text: str, bits: int) -> NDArray[np.int64]:
    """The distinct feature numbers of a text, ascending, each below 2^bits; empty for an empty text.

    Case, width, invisible characters and runs of spaces make no difference.
    """
    words = _plain(text).split()
    if not words:
        return np.zeros(0, np.int64)
    pairs = [f"{left} {right}" for left, right in pairwise(words)]
    word_hashes = np.array([crc32(gram.encode("utf-8", "replace")) for gram in (*words, *pairs)], np.uint64)
    raw = np.frombuffer(f" {' '.join(words)} ".encode("utf-8", "replace"), np.uint8).astype(np.uint64)
    hashes = np.concatenate([word_hashes + np.uint64(1 << 40), *(_grams(raw, n) for n in _BYTE_GRAMS)])
    # Fibonacci hashing: the top bits of the product are the well-mixed ones
    return np.unique((hashes * _MULTIPLIER) >> np.uint64(64 - bits)).astype(np.int64)


@dataclass(frozen=True)
class TextScorer:
    """Weights of the logistic model and the threshold from which on a text is flagged.

    Args:
        weights: float32 [2^bits].
        bias: added to every text's sum.
        threshold: in [0, 1]; 0 flags everything.
    """

    weights: NDArray[np.float32]
    bias: float
    threshold: float

    def __post_init__(self) -> None:
        bits = int(self.weights.size).bit_length() - 1
        if self.weights.ndim != 1 or self.weights.size != 1 << bits or not MIN_BITS <= bits <= MAX_BITS:
            raise TextScorerError(f"weights have shape {self.weights.shape}, not [2^{MIN_BITS}…2^{MAX_BITS}]")
        if not (np.isfinite(self.weights).all() and np.isfinite(self.bias)):
            raise TextScorerError("weights or bias hold a value that is not finite")
        if not 0.0 <= self.threshold <= 1.0:
            raise TextScorerError(f"threshold {self.threshold} is not in [0, 1]")

    @property
    def bits(self) -> int:
        """log2 of the number of weights."""
        return int(self.weights.size).bit_length() - 1

    def scores(self, texts: Sequence[str]) -> Floats:
        """How likely each text is unsafe [texts], in [0, 1]."""
        logits = np.fromiter((self._logit(text) for text in texts), np.float64, len(texts))
        # beyond ±60 the sigmoid is 0 or 1 to double precision; clipping avoids overflow in exp
        scores: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))
        return scores

    def flags(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are to be withheld [texts]: score at or above the threshold."""
        return self.scores(texts) >= self.threshold

    def to_bytes(self) -> bytes:
        """The model as safetensors."""
        tensors: dict[str, NDArray[Any]] = {
            "weights": np.ascontiguousarray(self.weights, np.float32),
            "bias": np.array([self.bias], np.float64),
            "threshold": np.array([self.threshold], np.float64),
        }
        # one key only: safetensors writes several in random order, and the same model must be the same bytes
        return save(tensors, {"format": FORMAT})

    @classmethod
    def from_bytes(cls, raw: bytes) -> TextScorer:
        """The model that `to_bytes` wrote.

        Raises:
            TextScorerError: it is broken, or of another format.
        """
        if (found := _format(raw)) != FORMAT:
            raise TextScorerError(f"format {found!r} is not {FORMAT!r}")
        try:
            tensors = load(raw)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise TextScorerError(f"not a safetensors file: {error}") from error
        weights = _tensor(tensors, "weights", np.float32)
        return cls(weights, _scalar(tensors, "bias"), _scalar(tensors, "threshold"))

    def _logit(self, text: str) -> float:
        found = buckets(text, self.bits)
        if not found.size:
            return self.bias
        return float(self.weights[found].sum(dtype=np.float64)) / float(np.sqrt(found.size)) + self.bias


def load_text_scorer(path: Path) -> TextScorer:
    """Reads a scorer from a file.

    Raises:
        TextScorerError: naming the file and why it cannot be used.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TextScorerError(f"{path}: has {path.stat().st_size} bytes, more than {MAX_BYTES}")
        raw = path.read_bytes()
    except OSError as error:
        raise TextScorerError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return TextScorer.from_bytes(raw)
    except TextScorerError as error:
        raise TextScorerError(f"{path}: {error}") from error


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # format characters (zero-width joiners, soft hyphens) would split a word unseen
    return folded if folded.isascii() else "".join(c for c in folded if unicodedata.category(c) != "Cf")


def _grams(raw: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Every run of n bytes as one number, with its length in the top byte."""
    count = max(0, len(raw) - n + 1)
    total = np.full(count, n << 56, np.uint64)
    for place in range(n):
        total += raw[place : place + count] << np.uint64(8 * place)
    return total


def _format(raw: bytes) -> Any:
    """What the header's metadata says; `safetensors.numpy.load` drops it."""
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise TextScorerError(f"not a safetensors file: {len(raw)} bytes are too short")
    try:
        header = json.loads(raw[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise TextScorerError(f"not a safetensors file: {error}") from error
    found = header.get("__metadata__") if isinstance(header, dict) else None
    return found.get("format") if isinstance(found, dict) else None


def _tensor(tensors: dict[str, NDArray[Any]], name: str, dtype: type[Any]) -> NDArray[Any]:
    found = tensors.get(name)
    if found is None or found.dtype != dtype:
        raise TextScorerError(f"tensor {name!r} is {'missing' if found is None else found.dtype}, not {dtype.__name__}")
    return found


def _scalar(tensors: dict[str, NDArray[Any]], name: str) -> float:
    found = _tensor(tensors, name, np.float64)
    if found.shape != (1,):
        raise TextScorerError(f"tensor {name!r} has shape {found.shape}, not (1,)")
    return float(found[0])
