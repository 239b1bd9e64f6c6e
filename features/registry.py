"""The feature families; their order is the model's vector, and its fingerprint is in every manifest."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from features import cells
from features.definitions.action_stats import ActionStats
from features.definitions.context_action import CONTEXT_SHARES, PATHS, TRANSITIONS, ContextRates
from features.definitions.family import Family
from features.definitions.match import ContextMatch
from features.definitions.prior import Prior
from features.definitions.session_action import SessionAction
from features.definitions.text import TextScore
from features.definitions.user_action import UserAction
from features.known import Moment
from features.situation import FAMILIES as TABLES
from features.situation import PRIOR_CHAIN

SCHEMA_VERSION = 1
"""Raise it when a column of the same name comes to mean something else."""

FEATURES: tuple[Family, ...] = (
    ActionStats(),
    UserAction(),
    SessionAction(),
    CONTEXT_SHARES,
    ContextRates(),
    TRANSITIONS,
    PATHS,
    ContextMatch(),
    TextScore(),
    Prior(),
)

COLUMNS: tuple[str, ...] = tuple(column for family in FEATURES for column in family.columns)


def vectors(moment: Moment) -> NDArray[np.float32]:
    """The model's input [candidates, columns] for all candidates of a moment; each column is contiguous."""
    if not moment.actions:
        return np.zeros((0, len(COLUMNS)), np.float32)
    # Families give transposed blocks: joining them along contiguous columns is cheapest, and what the trees want.
    columns = np.concatenate([family.read(moment).T for family in FEATURES], dtype=np.float32, casting="same_kind")
    return columns.T


def fingerprint() -> str:
    """Names the schema: 16 hex digits of the columns, the tables they read, and the cells' layout."""
    parts = [str(SCHEMA_VERSION), *COLUMNS, *TABLES, *PRIOR_CHAIN, *cells.KINDS]
    parts += [str(cells.WIDTH), str(cells.FAST_HALF_LIFE_S), str(cells.SLOW_HALF_LIFE_S)]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


FINGERPRINT = fingerprint()
