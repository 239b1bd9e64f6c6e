"""Errors of the second stage's model.

RankerError
└── SecondError           a version's second stage cannot be used
    ├── WeightsRefused    its files are broken, do not fit one another, or a weight is not finite
    └── SchemaRefused     it was made for another feature schema, or for other tokens
"""

from __future__ import annotations

from ranker.errors import ConfigError


class SecondError(ConfigError):
    """A version's second stage cannot be used; one line that names the file and the value."""


class WeightsRefused(SecondError):
    """A file is broken, misses a tensor, has one of another shape, or a weight is not finite."""


class SchemaRefused(SecondError):
    """Made for another feature schema, or for another way of turning events into tokens."""
