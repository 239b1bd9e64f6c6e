"""Ranking metrics against published figures, brute force over tie orders, and ir-measures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.metrics import (
    METRICS,
    RankMetrics,
    auc,
    average_precision,
    calibration_error,
    coverage,
    hit_rate,
    intra_list_diversity,
    ndcg,
    query_metrics,
    reciprocal_rank,
)

GAINS = [3.0, 2.0, 3.0, 0.0, 1.0, 2.0]
IN_ORDER = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_ndcg_gives_the_published_figures() -> None:
    assert ndcg(IN_ORDER, GAINS, 6, missed=[3, 2]) == pytest.approx(0.785002, abs=5e-7)
    assert ndcg(IN_ORDER, GAINS, 6, exponential=True, missed=[3, 2]) == pytest.approx(0.751083, abs=5e-7)


Metric = Callable[[list[int], list[int]], float]


def _dcg(gains: list[int], k: int) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:k], 1))


def _ndcg_of(gains: list[int], k: int) -> float:
    return _dcg(gains, k) / _dcg(sorted(gains, reverse=True), k)


def _mrr_of(gains: list[int]) -> float:
    return 1 / next(rank for rank, gain in enumerate(gains, 1) if gain > 0)


def _ap_of(gains: list[int]) -> float:
    hits = [rank for rank, gain in enumerate(gains, 1) if gain > 0]
    return sum(number / rank for number, rank in enumerate(hits, 1)) / len(hits)


def _brute(scores: list[int], gains: list[int], figure: Callable[[list[int]], float]) -> float:
    """The mean over every order that respects the scores."""
    orders = [
        order
        for order in itertools.permutations(range(len(scores)))
        if all(scores[left] >= scores[right] for left, right in itertools.pairwise(order))
    ]
    return sum(figure([gains[index] for index in order]) for order in orders) / len(orders)


queries = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 2), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any),
    )
)


@given(queries, st.integers(1, 7))
def test_ties_are_averaged_over_every_order(query: tuple[list[int], list[int]], k: int) -> None:
    scores, gains = query
    assert ndcg(scores, gains, k) == pytest.approx(_brute(scores, gains, lambda g: _ndcg_of(g, k)))
    assert reciprocal_rank(scores, gains) == pytest.approx(_brute(scores, gains, _mrr_of))
    assert hit_rate(scores, gains, k) == pytest.approx(_brute(scores, gains, lambda g: float(any(g[:k]))))
    assert average_precision(scores, gains) == pytest.approx(_brute(scores, gains, _ap_of))


@given(queries)
def test_auc_is_the_share_of_pairs_in_order(query: tuple[list[int], list[int]]) -> None:
    scores, labels = query
    pairs = [
        (p, n) for p, a in zip(scores, labels, strict=True) if a for n, b in zip(scores, labels, strict=True) if not b
    ]
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs]
    assert auc(scores, labels) == (pytest.approx(sum(wins) / len(wins)) if pairs else None)


@given(queries, st.randoms())
def test_the_order_in_which_candidates_come_never_matters(query: tuple[list[int], list[int]], random: object) -> None:
    scores, gains = query
    shuffled = list(zip(scores, gains, strict=True))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = query_metrics([score for score, _ in shuffled], [gain for _, gain in shuffled])
    assert again == pytest.approx(query_metrics(scores, gains))


def test_a_large_block_of_equal_scores_has_the_closed_form() -> None:
    n = 500
    gains = np.zeros(n)
    gains[7] = 1
    assert reciprocal_rank(np.zeros(n), gains) == pytest.approx(sum(1 / rank for rank in range(1, n + 1)) / n)
    assert hit_rate(np.zeros(n), gains, 5) == pytest.approx(5 / n)


def test_figures_agree_with_ir_measures_where_no_scores_are_equal() -> None:
    ir = pytest.importorskip("ir_measures")
    rng = np.random.default_rng(3)
    qrels, run = [], []
    ours: dict[str, list[float | None]] = {"ndcg": [], "rr": [], "hit": [], "ap": []}
    for query in range(40):
        n = int(rng.integers(2, 30))
        scores, gains = rng.permutation(n).astype(float), rng.integers(0, 4, n) * (rng.random(n) < 0.4)
        gains[int(rng.integers(n))] = 2
        qrels += [ir.Qrel(str(query), str(item), int(gain)) for item, gain in enumerate(gains)]
        run += [ir.ScoredDoc(str(query), str(item), float(score)) for item, score in enumerate(scores)]
        ours["ndcg"].append(ndcg(scores, gains, 10))
        ours["rr"].append(reciprocal_rank(scores, gains))
        ours["hit"].append(hit_rate(scores, gains, 3))
        ours["ap"].append(average_precision(scores, gains))
    theirs = {"ndcg": ir.nDCG @ 10, "rr": ir.RR, "hit": ir.Success @ 3, "ap": ir.AP}
    for name, measure in theirs.items():
        expected = {row.query_id: row.value for row in ir.iter_calc([measure], qrels, run)}
        assert ours[name] == pytest.approx([expected[str(query)] for query in range(40)], abs=1e-9), name


@pytest.mark.parametrize("gains", [[], [0.0, 0.0], [-1.0, 0.0]], ids=["empty", "zeros", "negative"])
def test_a_query_without_a_positive_is_excluded_and_counted(gains: list[float]) -> None:
    metrics = RankMetrics()
    assert not metrics.add(np.arange(len(gains)), gains)
    assert (metrics.queries, metrics.excluded) == (0, 1)
    assert metrics.means() == dict.fromkeys(METRICS)
    assert ndcg(np.arange(len(gains)), gains) is None


def test_means_are_taken_over_the_counted_queries_only() -> None:
    metrics = RankMetrics()
    metrics.add([2, 1], [1, 0])
    metrics.add([2, 1], [0, 1])
    metrics.add([2, 1], [0, 0])
    assert metrics.means() == pytest.approx(
        {"hr@1": 0.5, "hr@3": 1.0, "hr@5": 1.0, "mrr": 0.75, "ndcg@10": (1 + 1 / math.log2(3)) / 2}
    )
    assert metrics.array("mrr").tolist() == [1.0, 0.5]


def test_a_negative_gain_counts_as_nothing() -> None:
    assert ndcg([3, 2, 1], [-1, 1, 0]) == ndcg([3, 2, 1], [0, 1, 0])


@pytest.mark.parametrize("labels", [[1, 1], [0, 0], []])
def test_auc_of_a_single_class_is_undefined(labels: list[int]) -> None:
    assert auc(np.arange(len(labels)), labels) is None


@pytest.mark.parametrize(("scores", "gains"), [([1.0], [1.0, 2.0]), ([math.nan], [1.0]), ([1.0], [math.inf])])
def test_bad_shapes_and_values_that_are_not_finite_are_refused(scores: list[float], gains: list[float]) -> None:
    with pytest.raises(ValueError, match="scores"):
        query_metrics(scores, gains)


def test_calibration_error_is_the_weighted_gap_of_the_bins() -> None:
    # bin [.2,.3): mean .25, observed 1/2; bin [.9,1]: mean .95, observed 1: (2·.25 + 2·.05) / 4
    assert calibration_error([0.25, 0.25, 0.9, 1.0], [0, 1, 1, 1]) == pytest.approx(0.15)
    assert calibration_error([], []) is None
    with pytest.raises(ValueError, match="not in"):
        calibration_error([1.5], [1])


def test_coverage_counts_what_is_known_and_was_offered() -> None:
    assert coverage([["a", "b"], ["b", "x"]], "abcd") == 0.5
    assert coverage([], "ab") == 0.0
    assert coverage([["a"]], []) is None


def test_diversity_is_one_for_orthogonal_items_and_zero_for_equal_ones() -> None:
    assert intra_list_diversity(np.eye(3)) == pytest.approx(1.0)
    assert intra_list_diversity([[1, 2], [2, 4]]) == pytest.approx(0.0)
    assert intra_list_diversity([[1, 0], [1, 0], [0, 1]]) == pytest.approx(2 / 3)
    assert intra_list_diversity([[0, 0], [1, 0]]) == pytest.approx(1.0)
    assert intra_list_diversity([[1, 0]]) is None


@given(queries, st.integers(1, 7))
def test_exponential_gains_are_linear_ones_of_two_to_the_gain_less_one(
    query: tuple[list[int], list[int]], k: int
) -> None:
    scores, gains = query
    assert ndcg(scores, gains, k, exponential=True) == pytest.approx(ndcg(scores, [2**gain - 1 for gain in gains], k))


def test_a_missed_candidate_counts_in_the_ideal_only() -> None:
    # ideal 2 + 1/log2(3); found 1 at the first place
    assert ndcg([1.0], [1.0], missed=[2.0]) == pytest.approx(1.0 / (2.0 + 1.0 / math.log2(3)), abs=1e-12)


@given(queries)
def test_scores_that_are_all_equal_are_worth_what_chance_is(query: tuple[list[int], list[int]]) -> None:
    _, gains = query
    orders = list(itertools.permutations(gains))
    chance = sum(_ndcg_of(list(order), 10) for order in orders) / len(orders)
    assert ndcg(np.zeros(len(gains)), gains) == pytest.approx(chance)


def test_a_depth_below_one_no_bins_and_gains_that_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match="k 0 is below 1"):
        ndcg([1], [1], 0)
    with pytest.raises(ValueError, match="k -1 is below 1"):
        hit_rate([1], [1], -1)
    with pytest.raises(ValueError, match="bins 0 is below 1"):
        calibration_error([0.5], [1], 0)
    with pytest.raises(ValueError, match="overflow"):
        ndcg([1.0], [2000.0], exponential=True)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
def test_calibration_error_is_that_of_a_loop_over_bins(rows: list[tuple[float, bool]], bins: int) -> None:
    expected = 0.0
    for number in range(bins):
        held = [(p, y) for p, y in rows if min(int(p * bins), bins - 1) == number]
        expected += abs(sum(p for p, _ in held) - sum(y for _, y in held)) / len(rows)
    found = calibration_error([p for p, _ in rows], [float(y) for _, y in rows], bins)
    assert found == pytest.approx(expected)
