"""What a log can teach: whether its lists were drawn by a policy that says how, so that being shown is no merit.

Where rankings have propensities, what was not offered was only not drawn: it says nothing, and useful candidates
are compared with what stood beside them; and a position's bias can be told from merit. In imported records of
people who picked from a catalogue, what was not picked was not wanted: then all of it counts as useless, and
positions are believed.

On the simulated assistant (225 people, 14 days; NDCG@3 by true usefulness on 1,596 later scenes) learning from what
was offered gave .752 against .681 with all else as negatives at 30 % exploration, .696 against .624 at 5 %, .674
against .613 without any; by the log's own labels the second looks better. `nextaction bench curve` judges by the truth.
"""

from __future__ import annotations

from typing import Literal

from ranker.config import PositionSettings, SampleSettings
from training.labels import Labels

MIN_DRAWN_SHARE = 0.5

Negatives = Literal["offered", "pool"]
Bias = Literal["none", "model", "ips"]


def is_drawn(labels: Labels) -> bool:
    """Whether most of the log's lists have propensities, and something beside the first to compare with."""
    drawn = labels.counts["drawn"]
    return drawn > 0 and drawn >= MIN_DRAWN_SHARE * labels.counts["rankings"]


def choose_negatives(settings: SampleSettings, labels: Labels) -> Negatives:
    """What useful candidates are compared with: as configured, or by the log."""
    if settings.negatives != "auto":
        return settings.negatives
    return "offered" if is_drawn(labels) and not labels.learn_from_own_actions else "pool"


def choose_bias(settings: PositionSettings, labels: Labels) -> Bias:
    """What is done about positions: as configured, or by the log; one position alone has no bias to fit."""
    if settings.bias != "auto":
        return settings.bias
    return "model" if is_drawn(labels) and len(labels.useful_at) > 1 else "none"
