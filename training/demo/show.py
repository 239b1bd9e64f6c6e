"""What the demo shows in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ranker.answers import RankAnswer
from ranker.figures import counts_line, intervals_table, stages_table
from ranker.terminal import plain
from training.demo.apps import Outcome, Turn
from training.demo.play import position_of
from training.labels import Pair

MAX_SAID = 200


def show_turn(console: Console, number: int, turn: Turn, answer: RankAnswer, outcome: Outcome) -> None:
    """One interaction: the context, what was offered and why, and what was picked."""
    body = turn.body
    console.print(
        Panel(
            Group(_context(turn), _offered(answer, outcome), _picked(answer, outcome)),
            title=plain(f"{number}: user {body['user']}"),
            title_align="left",
        )
    )


def _context(turn: Turn) -> Table:
    context: Mapping[str, Any] = turn.body["context"]
    trigger = context.get("trigger") or {}
    lines = {
        "surface": context.get("surface"),
        "trigger": trigger.get("type"),
        "entities": ", ".join(f"{entity['type']}:{entity['id']}" for entity in context.get("entities", ())),
        "said": _quoted(context.get("text") or turn.said),
        "fields": ", ".join(_field(name, value) for name, value in context.get("fields", {}).items())[:MAX_SAID],
    }
    grid = Table.grid(padding=(0, 2))
    for name, value in lines.items():
        if value:
            grid.add_row(f"[dim]{name}[/dim]", plain(value))
    return grid


def _field(name: str, value: object) -> str:
    return f"{name}={' '.join(map(str, value)) if isinstance(value, list) else value}"


def _quoted(text: str | None) -> str | None:
    if not text:
        return None
    return f"“{text if len(text) <= MAX_SAID else text[: MAX_SAID - 1] + '…'}”"


def _offered(answer: RankAnswer, outcome: Outcome) -> Table:
    table = Table("", "offered", "about", "score", "why", box=SIMPLE_HEAD)
    for item in answer.items:
        style = "bold green" if (item.action, item.target) == outcome.wanted else ""
        why = ", ".join(item.reasons or ())
        cells = (str(item.position), item.action, item.target or "", f"{item.score:.2f}", why)
        table.add_row(*map(plain, cells), style=style)
    return table


def _picked(answer: RankAnswer, outcome: Outcome) -> Text:
    if outcome.picked is not None:
        text = f"{outcome.deed}: {named(outcome.picked)}, {_place(answer, outcome.picked)}"
    else:
        text = f"nothing picked ({outcome.deed})"
    if outcome.wanted is not None and outcome.wanted != outcome.picked:
        text += f"; wanted {named(outcome.wanted)}, {_place(answer, outcome.wanted)}"
    if answer.degraded:
        text += f"; degraded: {', '.join(answer.degraded)}"
    return Text.from_markup(plain(text))


def _place(answer: RankAnswer, pair: Pair) -> str:
    position = position_of(pair, answer)
    return "which was not in the list" if position is None else f"number {position} of {len(answer.items)}"


def named(pair: Pair) -> str:
    """`summarize_image image:42`."""
    return " ".join(part for part in pair if part)


def show_figures(console: Console, report: Mapping[str, Any]) -> None:
    """The summary, from the demo's JSON."""
    evaluation, played = report["evaluation"], report["played"]
    console.rule(plain(f"Judged on the held-back part, from {report['held_back']['since']} on"))
    console.print(stages_table(evaluation))
    console.print(intervals_table(evaluation))
    console.rule("Played over HTTP")
    console.print(_latency(played))
    console.print(plain(_wanted(played)))
    console.print(counts_line("what followed", played["deeds"]))
    console.print(counts_line("degraded answers", played["degraded"]))
    for error in played["errors"][:5]:
        console.print(plain(f"failed: {error}"), style="red")
    if len(played["errors"]) > 5:
        console.print(f"failed: {len(played['errors']) - 5} more", style="red")


def _latency(played: Mapping[str, Any]) -> Table:
    table = Table("ms", "p50", "p95", "p99", title=f"{played['answers']:,} rankings", title_justify="left")
    for name, key in (("as the app waited", "latency_ms"), ("in the service", "service_ms")):
        table.add_row(name, *(f"{value:.1f}" for value in played[key].values()))
    return table


def _wanted(played: Mapping[str, Any]) -> str:
    wanted = played["wanted"]
    known = wanted["known"]
    if not known:
        return "what people wanted is not known"
    first, offered = wanted["first"] / known, wanted["offered"] / known
    return f"what the person wanted was offered in {offered:.1%} of {known:,} lists, as the first in {first:.1%}"
