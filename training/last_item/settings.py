"""`configs/last_item.yaml`: how the sequence models of the last-item protocol learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ranker.config import config_dir
from ranker.config_file import load

Share = Annotated[float, Meta(ge=0, lt=1)]
Whole = Annotated[int, Meta(ge=1, le=10_000_000)]


class FitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a network is and how it learns; the same for the second stage and for the plain baseline.

    Args:
        longest: events of a history that are read.
        start: spread of the second stage's item embeddings, which begin near each other for items that happen near
            the same others; 0 begins at random.
        rate: Adam's.
        average: decay of the weights' running mean, which is what is judged and kept.
        batch_events: padded events in a batch.
        least_epochs: before it may stop early: with many items nothing is to be seen in the first epochs.
        most_minutes: of training, after which the epoch under way is the last; what came of it says so.
        patience: epochs in which neither NDCG@10 nor the likelihood of the validation items gets better.
        full_softmax: the most items for which all are in the loss; beyond, `sampled` negatives a batch.
        validation: the most probabilities computed to judge an epoch: users are drawn where there are more.
    """

    width: Annotated[int, Meta(ge=8, le=1024)] = 64
    layers: Annotated[int, Meta(ge=1, le=16)] = 2
    heads: Annotated[int, Meta(ge=1, le=16)] = 2
    longest: Annotated[int, Meta(ge=2, le=4096)] = 50
    dropout: Share = 0.5
    start: Annotated[float, Meta(ge=0, le=1)] = 0.03
    rate: Annotated[float, Meta(gt=0, le=1)] = 0.002
    average: Share = 0.99
    batch_events: Whole = 2048
    epochs: Annotated[int, Meta(ge=1, le=100_000)] = 200
    least_epochs: Whole = 12
    patience: Whole = 8
    most_minutes: Annotated[float, Meta(gt=0, le=100_000)] = 20.0
    full_softmax: Annotated[int, Meta(ge=0)] = 20_000
    sampled: Whole = 2048
    validation: Annotated[int, Meta(ge=1)] = 50_000_000
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    threads: Annotated[int, Meta(ge=1, le=256)] = 1


def load_fit(path: Path | None = None) -> FitSettings:
    """How to learn, by `configs/last_item.yaml` or another file. Raises ConfigError."""
    return load(path or config_dir() / "last_item.yaml", FitSettings)
