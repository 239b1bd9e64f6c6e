"""`configs/second.yaml`: how large the second stage is, what it is worth, and how it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ranker.config import config_dir
from ranker.config_file import load

Weight = Annotated[float, Meta(ge=0, le=1000)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Rate = Annotated[float, Meta(gt=0, le=1)]
Whole = Annotated[int, Meta(ge=1, le=10_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]

HEADS = ("accept", "complete", "dismiss", "reuse")
"""What is foretold of an offered candidate, in the order of the model's outputs."""


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model's tensors and its window are made of; a version keeps them in its manifest.

    Args:
        dim: width, a multiple of 4 · heads.
        window: L, the most events of a history that are encoded; even.
        terms: hashed words kept of an event, and of a request.
        session_bits: of the code by which a request finds the events of its own session.
    """

    dim: Annotated[int, Meta(ge=8, le=4096)] = 128
    layers: Annotated[int, Meta(ge=1, le=64)] = 4
    heads: Annotated[int, Meta(ge=1, le=64)] = 4
    feed_forward: Annotated[int, Meta(ge=8, le=16384)] = 512
    window: Annotated[int, Meta(ge=2, le=16384)] = 256
    terms: Annotated[int, Meta(ge=1, le=256)] = 16
    session_bits: Annotated[int, Meta(ge=1, le=32)] = 16

    def __post_init__(self) -> None:
        if self.dim % (4 * self.heads):
            raise ValueError(f"Expected `dim` to be a multiple of 4 · heads = {4 * self.heads}")
        if self.window % 2:
            raise ValueError("Expected `window` to be even")

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.dim // self.heads


SMALL = Sizes(window=64)
BASE = Sizes(dim=256, layers=6, heads=8, feed_forward=1024)


class SizeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes to choose from."""

    small: Sizes = SMALL
    base: Sizes = BASE


class Utility(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each outcome is worth; a dismissal is a loss."""

    accept: Weight = 1.0
    complete: Weight = 3.0
    dismiss: Weight = 0.5
    reuse: Weight = 1.0

    @property
    def signed(self) -> tuple[float, ...]:
        """In the order of HEADS, a loss below 0."""
        return (self.accept, self.complete, -self.dismiss, self.reuse)


class LossWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much each part of the loss counts.

    Args:
        listwise: softmax over a query's candidates of the utility's logit.
        outcomes: one cross-entropy per head.
        answer: at every request, which action is useful, among all: what the request's own reading foretells.
        next_action: at every event of a history, which action comes next.
    """

    listwise: Weight = 1.0
    outcomes: Weight = 0.2
    answer: Weight = 1.0
    next_action: Weight = 0.2


class TrainSecond(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it learns; see configs/second.yaml."""

    pretrain: Annotated[int, Meta(ge=0, le=1000)] = 4
    epochs: Annotated[int, Meta(ge=1, le=1000)] = 4
    patience: Annotated[int, Meta(ge=1, le=1000)] = 2
    held_out: Annotated[float, Meta(gt=0, le=0.5)] = 0.1
    batch_tokens: Whole = 4096
    rate: Rate = 0.001
    warmup: Share = 0.1
    weight_decay: Weight = 0.05
    dropout: Share = 0.2
    token_dropout: Share = 0.1
    unknown: Share = 0.02
    negatives: Annotated[int, Meta(ge=1, le=1000)] = 40
    top: Annotated[int, Meta(ge=0, le=1000)] = 32
    others: Annotated[int, Meta(ge=0, le=1000)] = 8
    max_queries: Whole = 50_000
    folds: Annotated[int, Meta(ge=2, le=20)] = 4
    hint_share: Share = 0.3
    smoothing: Share = 0.1
    average: Share = 0.0
    full_softmax: Whole = 20_000
    sampled: Whole = 2048
    min_count: Whole = 3
    max_actions: Whole = 50_000
    max_words: Whole = 8192
    losses: LossWeights = LossWeights()
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    checkpoint_s: Annotated[float, Meta(gt=0, le=1e6)] = 60.0
    threads: Annotated[int, Meta(ge=1, le=256)] = 2
    seed: Seed = 0


class SecondConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configs/second.yaml`.

    Args:
        passed_on: candidates that the light stage passes on, the best by its score; the rest stay in its order.
    """

    size: Literal["small", "base"] = "small"
    sizes: SizeTable = SizeTable()
    utility: Utility = Utility()
    passed_on: Annotated[int, Meta(ge=1, le=1000)] = 50
    training: TrainSecond = TrainSecond()

    @property
    def chosen(self) -> Sizes:
        """The sizes named by `size`."""
        return self.sizes.small if self.size == "small" else self.sizes.base


def load_second(path: Path | None = None) -> SecondConfig:
    """How large, worth what, and how to learn. Raises ConfigError."""
    return load(path or config_dir() / "second.yaml", SecondConfig)
