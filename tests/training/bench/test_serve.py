"""`nextaction bench serve` and `features`, as small as they go: they run, and say what they are asked for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from training.bench.features import FeaturesPlan, bench_features
from training.bench.figures import growth, latencies, middle, percentile, ratio, spread
from training.bench.grow import Reach
from training.bench.load import Report
from training.bench.material import Size
from training.bench.plot import growth_svg
from training.bench.serve import Plan, bench_serve

TINY = Plan(
    Size(users=40, days=3, rounds=3, leaves=4),
    rounds=1,
    closed_s=0.1,
    open_s=0.2,
    warm=10,
    shares=(0.5,),
    grow=Reach(candidates=30, catalogue=10, history=10, users=10, count=5),
)


def test_one_run_gives_costs_latencies_overload_and_growth(tmp_path: Path) -> None:
    report = bench_serve(TINY, tmp_path)
    assert set(report["cpu_us"]) == {"echo", "rank", "rank with id"}
    assert set(report["times_echo"]) == {"rank", "rank with id"}
    assert {"context", "light", "explore", "total"} <= set(report["stages_us"])
    (load,) = report["loads"]
    assert load["rank"]["statuses"].get("200", 0) > 0 and load["echo"]["lost"] == load["rank"]["lost"] == 0
    over = report["overload"]
    assert over["overloaded"]["rate"] == pytest.approx(2 * over["saturation"], rel=1e-3)
    assert over["goodput_of_peak"]["median"] > 0.0 and set(over["goodput"]) == {"0.9", "1", "1.1", "2"}
    assert set(report["growth"]) == {"candidates", "history", "users", "catalogue"}
    assert [n for n, _ in report["growth"]["candidates"]["points"]] == [10, 30]
    assert "<polyline" in growth_svg(report["growth"])


def test_reading_a_field_at_a_time_gives_the_same_numbers() -> None:
    report = bench_features(FeaturesPlan(rows=3, rounds=1, reads=2))
    assert list(report["ways"]) == ["one MGET", "HMGET per row, one pipeline", "HGET per field, one pipeline"]
    assert report["ways"]["one MGET"]["times_mget"]["median"] == 1.0


def test_an_exponent_is_the_power_of_a_power_law() -> None:
    assert growth([(n, 3.0 * n**1.5) for n in (10, 100, 1000)]).exponent == pytest.approx(1.5)
    assert math.isnan(growth([(10, 1.0)]).exponent)


def test_percentiles_are_values_that_were_there() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.01)] == [3.0, 5.0, 1.0]
    assert math.isnan(percentile([], 0.5))


def test_a_ratio_is_taken_round_by_round() -> None:
    assert ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == spread([2.0, 3.0, 1.0])


def test_the_middle_of_rounds_has_the_median_of_figures_and_the_sum_of_counts() -> None:
    rounds = [
        latencies(Report(latencies_s=[took_s] * 2, statuses={"200": 2, "503": refused}), 2.0, 1.0, 100.0)
        for took_s, refused in ((0.001, 0), (0.004, 5), (0.002, 1))
    ]
    found = middle(rounds)
    assert (found.p50_ms, found.p99_ms, found.goodput, found.lost) == (2.0, 2.0, 2.0, 0)
    assert found.statuses == {"200": 6, "503": 6}


def test_goodput_is_what_came_in_time_and_what_is_lost_is_said() -> None:
    report = Report(sent=4, latencies_s=[0.01, 0.02, 0.3], statuses={"200": 3, "0": 1})
    found = latencies(report, rate=2.0, seconds=2.0, deadline_ms=100.0)
    assert (found.answered, found.goodput, found.lost) == (1.5, 1.0, 1)
