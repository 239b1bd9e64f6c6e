"""What the trees' training does about positions: fit a bias for each, weigh what was useful, or believe the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ranker.config import PositionSettings
from training.evidence import Bias, choose_bias
from training.labels import Labels
from training.position import ItemWeights, PositionError, Propensities, ShuffledSlots, item_weights

NOT_OFFERED = 0
"""As a position: of a candidate that was in no list."""


@dataclass
class Unbiased:
    """One of the three ways, and what its log says about positions.

    Args:
        propensities: None where the log cannot tell; `why` says what it lacks.
        weighed: of the last `weights`.
    """

    bias: Bias
    settings: PositionSettings
    propensities: Propensities | None = None
    why: str | None = None
    weighed: ItemWeights | None = field(default=None, repr=False)

    def parameters(self) -> dict[str, Any]:
        """For LightGBM."""
        if self.bias != "model":
            return {}
        return {"lambdarank_position_bias_regularization": self.settings.regularization}

    def ids(self, positions: NDArray[np.int64]) -> NDArray[np.int32] | None:
        """Position ids [rows] for `Dataset(position=…)`, dense from 0 on; what was not offered has one of its own."""
        if self.bias != "model":
            return None
        return np.unique(positions, return_inverse=True)[1].astype(np.int32)

    def weights(self, positions: NDArray[np.int64], gains: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Weights [rows], 1 of what was not offered; None where all weigh the same."""
        if self.bias != "ips":
            return None
        assert self.propensities is not None, "make_unbiased would have refused"
        weights, offered = np.ones(len(positions)), positions != NOT_OFFERED
        self.weighed = item_weights(positions[offered], gains[offered], self.propensities, self.settings.clip)
        weights[offered] = self.weighed.weights
        return weights

    def report(self) -> dict[str, Any]:
        """For the manifest."""
        rates = [] if self.propensities is None else [msgspec.to_builtins(rate) for rate in self.propensities.rates]
        found: dict[str, Any] = {"bias": self.bias, "theta": rates}
        if self.why is not None:
            found["theta_unknown"] = self.why
        if self.weighed is not None:
            found |= {"clipped": self.weighed.clipped, "clipped_mass": self.weighed.clipped_mass}
        return found


def make_unbiased(slots: ShuffledSlots, labels: Labels, settings: PositionSettings) -> Unbiased:
    """The way that the settings, or the log, ask for.

    Raises:
        PositionError: weights are asked for and the log cannot tell positions apart.
    """
    unbiased = Unbiased(choose_bias(settings, labels), settings)
    try:
        unbiased.propensities = slots.estimate()
    except PositionError as error:
        if unbiased.bias == "ips":
            raise
        unbiased.why = str(error)
    return unbiased
