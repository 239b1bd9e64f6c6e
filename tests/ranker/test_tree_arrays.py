"""Trees as arrays: the same score as LightGBM gives, to the bit, or no arrays at all."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ranker.light_text import checked_model_text
from ranker.tree_arrays import MAX_LEAVES, MAX_ROWS, NotAsArrays, TreeArrays, as_arrays

COLUMNS = 9
AWKWARD = [np.nan, 0.0, -0.0, 1e-45, -1e-38, 1e-30, 1.0, -1.0, 2.0**-24, 3.4e38, -3.4e38]


def model(seed: int, leaves: int = 15, missing: float = 0.2, **parameters: Any) -> str:
    """Trees on features with gaps, zeros and few distinct values."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(800, COLUMNS)).astype(np.float32)
    features[:, :3] = np.round(features[:, :3] * 2.0)
    features[draw.random(features.shape) < missing] = np.nan
    grades = (np.nan_to_num(features[:, 0]) > 0).astype(int) + (np.isnan(features[:, 1]) | (features[:, 2] > 1))
    asked = {"objective": "lambdarank", "num_leaves": leaves, "min_data_in_leaf": 3, "verbosity": -1, "seed": seed}
    dataset = lightgbm.Dataset(features, grades, group=[20] * 40)
    text = lightgbm.train({**asked, "num_threads": 1, **parameters}, dataset, 12).model_to_string()
    return checked_model_text(text.encode())


def predicted(text: str, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(lightgbm.Booster(model_str=text).predict(rows, num_threads=1), np.float64)


TEXTS = {
    "as trained": model(1),
    "without gaps": model(2, missing=0.0),
    "of two leaves": model(3, leaves=2),
    "of as many leaves as a mask has bits": model(4, leaves=MAX_LEAVES),
    "of none but gaps": model(5, missing=0.9),
}
ARRAYS = {name: TreeArrays.of(text) for name, text in TEXTS.items()}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("count", [1, 2, 50, MAX_ROWS, MAX_ROWS + 1, 1000])
def test_scores_are_those_of_lightgbm_to_the_bit(name: str, count: int) -> None:
    draw = np.random.default_rng(count)
    rows = draw.normal(size=(count, COLUMNS)).astype(np.float32)
    rows[draw.random(rows.shape) < 0.3] = np.nan
    rows[draw.random(rows.shape) < 0.2] = 0.0
    assert np.array_equal(ARRAYS[name].scores(rows), predicted(TEXTS[name], rows))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.lists(st.lists(st.sampled_from(AWKWARD), min_size=9, max_size=9), min_size=1))
def test_gaps_zeros_and_extremes_go_where_lightgbm_sends_them(name: str, rows: list[list[float]]) -> None:
    features = np.array(rows, np.float32)
    assert np.array_equal(ARRAYS[name].scores(features), predicted(TEXTS[name], features))


@pytest.mark.parametrize("name", TEXTS)
def test_a_value_on_a_threshold_goes_to_the_left(name: str) -> None:
    text = TEXTS[name]
    lines = [line.partition("=")[2] for line in text.splitlines() if line.startswith("threshold=")]
    thresholds = np.array(" ".join(lines).split(), np.float64)
    near = thresholds[np.isfinite(thresholds)].astype(np.float32)
    above, below = (np.nextafter(near, np.float32(end)) for end in (np.inf, -np.inf))
    rows = np.repeat(np.concatenate([near, above, below])[:, None], COLUMNS, axis=1)
    assert np.array_equal(ARRAYS[name].scores(rows), predicted(text, rows))


def test_a_score_does_not_depend_on_what_it_is_scored_with() -> None:
    rows = np.random.default_rng(0).normal(size=(300, COLUMNS)).astype(np.float32)
    together = ARRAYS["as trained"].scores(rows)
    assert [ARRAYS["as trained"].scores(rows[row : row + 1])[0] for row in range(20)] == together[:20].tolist()
    columns = np.asfortranarray(rows)
    assert np.array_equal(ARRAYS["as trained"].scores(columns), together)


@pytest.mark.parametrize(
    "text",
    [model(6, leaves=MAX_LEAVES + 1), model(7, zero_as_missing=True)],
    ids=["more leaves than bits", "zero counts as missing"],
)
def test_what_arrays_do_not_hold_is_left_to_lightgbm(text: str) -> None:
    with pytest.raises(NotAsArrays):
        TreeArrays.of(text)
    assert as_arrays(text) is None
