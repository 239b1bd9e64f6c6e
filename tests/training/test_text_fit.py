"""Fitting the text model: the minimum of its loss, by an independent optimiser, and toy problems it must solve."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import optimize, special

from features.text_terms import BUCKETS, SituationTerms
from ranker.config import TextSettings
from training.text_fit import fit_text, log_probabilities, stack_terms

TOY = TextSettings(epochs=30, batch=16, rate=0.5, min_examples=1, smoothing=0.0)


def with_(settings: TextSettings, **changes: object) -> TextSettings:
    return msgspec.structs.replace(settings, **changes)


def random_terms(seed: int, count: int, words: int = 6) -> list[SituationTerms]:
    draw = np.random.default_rng(seed)
    return [
        SituationTerms(
            draw.integers(0, words, 3).astype(np.uint32) * 1000, draw.uniform(0.2, 1.0, 3).astype(np.float32)
        )
        for _ in range(count)
    ]


def separable(count: int) -> tuple[list[SituationTerms], list[str]]:
    """The word says the action; noise words say nothing."""
    draw = np.random.default_rng(0)
    labels = [f"a{number % 3}" for number in range(count)]
    terms = [
        SituationTerms(
            np.array([10 + number % 3, 100 + int(draw.integers(20))], np.uint32), np.array([1.0, 1.0], np.float32)
        )
        for number in range(count)
    ]
    return terms, labels


def test_a_separable_problem_is_learned_and_only_what_is_known_has_a_score() -> None:
    terms, labels = separable(300)
    model = fit_text(stack_terms(terms), labels, TOY)
    assert model.actions == ("a0", "a1", "a2")
    for number in range(3):
        alone = SituationTerms(np.array([10 + number], np.uint32), np.ones(1, np.float32))
        scores = model.scores(alone, (*model.actions, "never"))
        assert int(np.nanargmax(scores)) == number
        assert scores[number] > np.log(0.9)
        assert np.isnan(scores[3])


def test_one_by_one_and_in_bulk_are_equal() -> None:
    terms, labels = separable(60)
    rows = stack_terms(terms)
    model = fit_text(rows, labels, TOY)
    single = np.stack([model.scores(row, model.actions) for row in terms])
    assert np.abs(log_probabilities(model, rows) - single).max() < 1e-4


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    terms, labels = separable(100)
    first, again, other = (fit_text(stack_terms(terms), labels, with_(TOY, seed=seed)).to_bytes() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_long_fitting_comes_to_the_minimum_that_another_optimiser_finds(smoothing: float) -> None:
    terms = random_terms(3, 60)
    labels = [f"a{number}" for number in np.random.default_rng(4).integers(0, 3, 60)]
    rows = stack_terms(terms)
    settings = TextSettings(epochs=800, batch=60, rate=1.0, min_examples=1, smoothing=smoothing)
    model = fit_text(rows, labels, settings)
    dense = rows[:, model.buckets.astype(int)].toarray().astype(np.float64)
    wanted = np.full((60, 3), smoothing / 3)
    wanted[np.arange(60), [model.actions.index(label) for label in labels]] += 1.0 - smoothing

    def loss(flat: np.ndarray) -> float:
        weights = flat.reshape(-1, 3)
        logits = dense @ weights[:-1] + weights[-1]
        return float(-(wanted * special.log_softmax(logits, axis=1)).sum())

    best = optimize.minimize(loss, np.zeros((dense.shape[1] + 1) * 3), method="BFGS")
    own = loss(np.concatenate([model.weights, model.bias[None, :]]).astype(np.float64).ravel())
    assert own <= best.fun * 1.002


def test_one_full_batch_step_is_the_gradient_by_finite_differences() -> None:
    terms = random_terms(5, 20)
    labels = [f"a{number % 2}" for number in range(20)]
    rows = stack_terms(terms)
    model = fit_text(rows, labels, TextSettings(epochs=1, batch=20, rate=0.5, min_examples=1, smoothing=0.1))
    dense = rows[:, model.buckets.astype(int)].toarray().astype(np.float64)
    wanted = np.full((20, 2), 0.05)
    wanted[np.arange(20), [number % 2 for number in range(20)]] += 0.9

    def loss(weights: np.ndarray) -> float:
        return float(-(wanted * special.log_softmax(dense @ weights, axis=1)).sum())

    zero = np.zeros((dense.shape[1], 2))
    gradient = np.zeros_like(zero)
    for place in np.ndindex(*zero.shape):
        step = zero.copy()
        step[place] = 1e-5
        gradient[place] = (loss(step) - loss(-step)) / 2e-5
    assert model.weights == pytest.approx(-0.5 * gradient / np.sqrt(1.0 + gradient**2), abs=1e-5)


def test_rare_terms_and_rare_actions_are_left_out() -> None:
    terms, labels = separable(90)
    terms += [SituationTerms(np.array([9999], np.uint32), np.ones(1, np.float32))]
    labels += ["rare"]
    model = fit_text(stack_terms(terms), labels, with_(TOY, min_examples=2, max_actions=3))
    assert model.actions == ("a0", "a1", "a2")
    assert 9999 not in model.buckets
    assert len(fit_text(stack_terms(terms), labels, TOY).actions) == 4


def test_odd_examples_are_no_failure() -> None:
    empty = SituationTerms(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    model = fit_text(stack_terms([empty, empty, empty]), ["a", "a", "b"], TOY)
    assert model.scores(empty, ("a",))[0] > model.scores(empty, ("b",))[0]
    assert fit_text(stack_terms([empty]), ["only"], TOY).scores(empty, ("only",)).tolist() == [0.0]
    assert stack_terms([]).shape == (0, BUCKETS)
    with pytest.raises(ValueError, match="no examples"):
        fit_text(stack_terms([]), [], TOY)


def test_progress_is_told_by_epoch() -> None:
    terms, labels = separable(10)
    told: list[int] = []
    fit_text(stack_terms(terms), labels, with_(TOY, epochs=3), told.append)
    assert told == [1, 2, 3]
