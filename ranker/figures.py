"""Tables of what an evaluation found, from its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from ranker.terminal import plain

SHOWN_SLICES = 24


def stages_table(report: Mapping[str, Any]) -> Table:
    """Stages × metrics; the best of each metric is bold."""
    stages: Mapping[str, Mapping[str, float]] = report["stages"]
    metrics = list(next(iter(stages.values()))) if stages else []
    best = {metric: max(figures[metric] for figures in stages.values()) for metric in metrics}
    table = Table("stage", title=f"{report['queries']:,} queries", title_justify="left")
    for metric in metrics:
        table.add_column(metric.upper(), justify="right")
    for stage, figures in stages.items():
        table.add_row(plain(stage), *(_figure(figures[metric], best[metric]) for metric in metrics))
    return table


def intervals_table(report: Mapping[str, Any], by: str = "session") -> Table:
    """Paired differences with their 95 % intervals, clustered as `by` says; one that excludes 0 is marked."""
    intervals: Mapping[str, Mapping[str, Mapping[str, float | None]]] = report["intervals"]
    metrics = list(next(iter(intervals.values()))) if intervals else []
    table = Table("difference", title=f"95 % intervals, by {by}; * excludes 0", title_justify="left")
    for metric in metrics:
        table.add_column(metric.upper(), justify="right")
    for name, found in intervals.items():
        table.add_row(plain(name), *(_interval(found[metric]) for metric in metrics))
    return table


def slices_table(report: Mapping[str, Any], metric: str = "hr@1") -> Table:
    """The largest slices, by name, with one metric of every stage; `~` says that a slice is thin."""
    slices: Mapping[str, Mapping[str, Any]] = report["slices"]
    largest = sorted(slices, key=lambda name: (-slices[name]["queries"], name))[:SHOWN_SLICES]
    left = len(slices) - len(largest)
    title = f"{metric.upper()} by slice" + (f", the {len(largest)} largest; --json has {left} more" if left else "")
    table = Table("slice", title=title, title_justify="left")
    for heading in ("queries", *report["stages"]):
        table.add_column(heading, justify="right")
    for name in sorted(largest):
        found = slices[name]
        figures = (f"{found['stages'][stage][metric]:.3f}" for stage in report["stages"])
        table.add_row(plain(name), f"{'~' if found['thin'] else ''}{found['queries']:,}", *figures)
    return table


def counts_line(what: str, counts: Mapping[str, int]) -> str:
    """`excluded: 12 no_positive, 3 no_label`, or that there was none."""
    return plain(f"{what}: {_listed((count, name) for name, count in counts.items() if count) or 'none'}")


def unusable_lines(counts: Mapping[str, int], named: Iterable[str], shown: int = 3) -> list[str]:
    """How many lines of a log could not be used, and the first of them."""
    first = list(named)[:shown]
    more = sum(counts.values()) - len(first)
    rest = [f"  … and {more:,} more"] if first and more else []
    return [counts_line("unusable lines", counts), *(plain(f"  {line}") for line in first), *rest]


def _listed(found: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{count:,} {name}" for count, name in found)


def _figure(value: float, best: float) -> str:
    return f"[bold]{value:.3f}[/bold]" if value >= best else f"{value:.3f}"


def _interval(found: Mapping[str, float | None]) -> str:
    mean, low, high = found["mean"], found["low"], found["high"]
    if mean is None or low is None or high is None:
        return "—"
    return f"{_short(mean)} ({_short(low)} … {_short(high)}){'*' if low > 0 or high < 0 else ' '}"


def _short(difference: float) -> str:
    """`+.043`: three such columns fit a narrow terminal."""
    return f"{difference:+.3f}".replace("0.", ".", 1)
