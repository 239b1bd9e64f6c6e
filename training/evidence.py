"""What a log can teach: whether its lists were drawn in a way that tells merit from having been shown.

Where rankings explored, every candidate had a chance, so comparing only what was offered (and seen) is fair, and
a bias per position can be told from merit. Where a list was always the best one by some score, or is an
imported one that somebody picked from, neither is so: then what was not offered counts as useless, and
positions are believed. On the simulated assistant (14 days, 30 % explored) the first way ranks better by true
usefulness, although the log's own labels say the opposite: `nextaction bench curve` judges by the truth.
"""

from __future__ import annotations

from typing import Literal

from ranker.config import PositionSettings, SampleSettings
from training.labels import Labels

MIN_EXPLORED, MIN_EXPLORED_SHARE = 100, 0.01

Negatives = Literal["offered", "pool"]
Bias = Literal["none", "model", "ips"]


def has_explored(labels: Labels) -> bool:
    """Whether enough of the log's lists were drawn."""
    explored, rankings = labels.counts["explored"], labels.counts["rankings"]
    return explored >= MIN_EXPLORED and explored >= MIN_EXPLORED_SHARE * rankings


def choose_negatives(settings: SampleSettings, labels: Labels) -> Negatives:
    """What useful candidates are compared with: as configured, or by the log."""
    if settings.negatives != "auto":
        return settings.negatives
    return "offered" if has_explored(labels) else "pool"


def choose_bias(settings: PositionSettings, labels: Labels) -> Bias:
    """What is done about positions: as configured, or by the log; one position alone has no bias to fit."""
    if settings.bias != "auto":
        return settings.bias
    return "model" if has_explored(labels) and len(labels.useful_at) > 1 else "none"
