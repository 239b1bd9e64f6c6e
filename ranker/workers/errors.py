"""Errors between the keeper and its followers.

RankerError
└── FeedError         what came over the feed is not what may come, or it has ended
"""

from __future__ import annotations

from ranker.errors import RankerError


class FeedError(RankerError):
    """The feed ended, or brought what it may not; whoever reads it gives it up and begins again."""
