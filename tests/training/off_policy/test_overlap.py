"""The four conditions, each by the case that only it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from training.off_policy.overlap import Overlap, overlap_of


def conditions(found: Overlap) -> list[str]:
    return [refusal.condition for refusal in found.refusals]


def one_per_user(w: np.ndarray) -> Overlap:
    return overlap_of(w[:, None], np.arange(len(w)))


def test_a_log_of_the_target_itself_is_enough() -> None:
    found = one_per_user(np.ones(200))
    assert found.enough and found.effective_sample_size == 200.0 and found.largest_share == pytest.approx(1 / 200)


def test_weights_that_do_not_average_one_are_refused() -> None:
    w = np.tile([0.1, 0.3], 5000)
    found = one_per_user(w)
    assert conditions(found) == ["mean_weight"]
    assert found.mean_weight == pytest.approx(0.2)
    assert found.mean_weight_se == pytest.approx(w.std(ddof=1) / 100)


def test_a_deterministic_log_against_a_uniform_target_is_refused_by_its_mean() -> None:
    assert "mean_weight" in conditions(one_per_user(np.full(1000, 1 / 34)))


def test_too_small_an_effective_sample_is_refused() -> None:
    found = one_per_user(np.ones(199))
    assert conditions(found) == ["effective_sample_size"]
    assert found.refusals[0].figure == 199.0


def test_one_weight_of_more_than_a_twentieth_is_refused() -> None:
    w = np.ones(2000)
    w[0] = 110.0
    found = one_per_user(w)
    assert "largest_weight" in conditions(found)
    assert found.largest_share == pytest.approx(110 / (1999 + 110))
    w[0] = 90.0
    assert "largest_weight" not in conditions(one_per_user(w))


def test_one_user_is_refused() -> None:
    assert conditions(overlap_of(np.ones((500, 1)), np.zeros(500))) == ["users"]


def test_weights_that_overflow_are_counted_and_refused() -> None:
    w = np.ones((300, 1))
    w[:2] = np.inf
    found = overlap_of(w, np.arange(300))
    assert conditions(found) == ["weights_finite"] and found.overflowed == 2


def test_weights_whose_squares_would_overflow_are_not_lost() -> None:
    found = one_per_user(np.concatenate([np.full(3, 1e280), np.ones(500)]))
    assert found.effective_sample_size == pytest.approx(3.0)
    assert {"effective_sample_size", "largest_weight"} <= set(conditions(found))


def test_no_slate_is_refused() -> None:
    assert conditions(overlap_of(np.ones((0, 1)), np.zeros(0))) == ["slates"]


def test_all_weights_zero_are_refused() -> None:
    assert {"mean_weight", "effective_sample_size"} <= set(conditions(one_per_user(np.zeros(300))))


def test_every_slot_must_hold() -> None:
    w = np.ones((400, 2))
    w[:, 1] = np.where(np.arange(400) < 10, 40.0, 0.0)
    found = overlap_of(w, np.arange(400))
    assert found.effective_sample_size == pytest.approx(10.0)
    assert "effective_sample_size" in conditions(found)


def test_users_who_come_often_count_as_one_in_the_error_of_the_mean() -> None:
    w = np.repeat(np.tile([0.8, 1.2], 10), 50)[:, None]
    by_user = overlap_of(w, np.repeat(np.arange(20), 50))
    assert by_user.mean_weight_se == pytest.approx(np.tile([0.8, 1.2], 10).std(ddof=1) / np.sqrt(20))
