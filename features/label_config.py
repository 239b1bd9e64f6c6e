"""What an outcome counts as, and what it is worth: windows that counters and labels share, and the gains of labels.

The online counters, every rebuild and every replay for training take the same `OutcomeWindows`; a store remembers
by which its rows were counted, and is filled anew when they change.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from features.lives import RANKING_LIFE_S

YEAR_S = 366 * 86400.0


class OutcomeWindows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long after what something still counts, in seconds.

    Args:
        accidental_s: an accept that is undone or dismissed within it was an accident.
        attribution_s: feedback that comes longer than this after its own ranking is late: it is counted as such
            and changes nothing else. No ranking is remembered for more than RANKING_LIFE_S.
    """

    accidental_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    attribution_s: Annotated[float, Meta(gt=0, le=RANKING_LIFE_S)] = 86400.0


class Gains(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an offered candidate is worth by what followed; one that was ignored is worth 0.

    Args:
        dismissed: of a dismissal, also beside an accept that was no accident; not of what was completed.
        accidental: of an accept that was taken back within the accidental window.
        accepted, completed: of the one or the other, not of both.
        reused: on top, where the user did the same by himself within the reuse window.
    """

    dismissed: Annotated[float, Meta(ge=-100, le=0)] = -1.0
    accidental: Annotated[float, Meta(ge=-100, le=0)] = 0.0
    accepted: Annotated[float, Meta(ge=0, le=100)] = 1.0
    completed: Annotated[float, Meta(gt=0, le=100)] = 2.0
    reused: Annotated[float, Meta(ge=0, le=100)] = 1.0

    def __post_init__(self) -> None:
        if self.completed < self.accepted:
            raise ValueError(f"Expected `completed` {self.completed} to be at least `accepted` {self.accepted}")


class LabelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How outcomes become labels.

    Args:
        reuse_s: a user who does the same action by himself within it reuses what he accepted or completed.
        unseen: what an offered item is where the app says what was seen, and this was not: `unknown` leaves it
            out of what is learned from, `ignored` takes it for seen.
    """

    reuse_s: Annotated[float, Meta(ge=0, le=YEAR_S)] = 7 * 86400.0
    unseen: Literal["unknown", "ignored"] = "unknown"
    gains: Gains = Gains()
