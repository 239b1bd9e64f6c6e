"""st-tech/zr-obp, the Open Bandit data: one campaign's folder, `NAME.csv[.gz]` with `item_context.csv[.gz]`.

What becomes what: items are the catalogue; their features stand in the title, the one free text that the
catalogue has. A row is a ranking of one item at its
position (1–3), with its propensity, out of all items of the campaign; a click is an accept, and nothing is
known of what came after, so that usefulness is the click. The source names no users (its hashed features are
shared by many visitors): each row is a user of its own. Rows are independent draws of the source's policy, so
the traffic is `explore`; the pool's scores are unknown and stand as 0. `user_feature_N` and the affinities that
are not 0 are fields of the context. A propensity that is no probability is kept as it is (NaN as missing), for
evaluation to reject and count.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from features.events import (
    MAX_CANDIDATES,
    MAX_STRING,
    ActionEvent,
    Context,
    Event,
    FeedbackEvent,
    RankedItem,
    RankingEvent,
    writable,
)
from training.importers.source import ImportReport, SourceError, read_source

ITEMS = "item_context"
REQUIRED = ("timestamp", "item_id", "position", "click", "propensity_score")
_AFFINITY = "user-item_affinity_"
_CLICK_AFTER = timedelta(seconds=1)
_SUFFIXES = (".csv", ".csv.gz")


class OpenBanditImporter:
    """Reads the items, then the rows one by one: nothing but the catalogue is held."""

    def events(self, source: Path, report: ImportReport) -> Iterator[Event]:
        """The catalogue, a second before the first row, then each row and, a second later, its click.

        Raises:
            SourceError: the folder has not one campaign's two files, a file is broken, or lacks a column.
        """
        items_path, rows_path = find_files(source)
        items = _read_items(items_path, report)
        pool: list[tuple[str, str | None, float]] = [(item, None, 0.0) for item in items]
        announced = False
        for number, fields in _read_csv(rows_path, report, REQUIRED):
            row = _parse(fields, items)
            if isinstance(row, str):
                report.skip("invalid", rows_path, number, row)
                continue
            if not announced:
                yield from _announce(items, row.time)
                announced = True
            yield _ranking(row, number, pool)
            if row.click:
                yield _click(row, number)


@dataclass(frozen=True)
class _Row:
    time: datetime
    item: str
    position: int
    click: bool
    propensity: float | None
    fields: Mapping[str, Any]


def find_files(source: Path) -> tuple[Path, Path]:
    """The items' file and the rows' file of a campaign's folder.

    Raises:
        SourceError: it is no folder, or has not just these two.
    """
    if not source.is_dir():
        raise SourceError(f"{source} is not a folder: open-bandit reads one campaign's folder")
    files = sorted(path for path in source.iterdir() if path.name.endswith(_SUFFIXES))
    items = [path for path in files if path.name.split(".")[0] == ITEMS]
    rows = [path for path in files if path not in items]
    if len(items) != 1:
        raise SourceError(f"{source} has {len(items)} files {ITEMS}.csv or .csv.gz, not one")
    if len(rows) != 1:
        raise SourceError(f"{source} has {len(rows)} files of rows beside {items[0].name}, not one campaign's")
    return items[0], rows[0]


def _read_items(path: Path, report: ImportReport) -> dict[str, dict[str, str]]:
    """Fields by item, in the file's order."""
    items: dict[str, dict[str, str]] = {}
    for number, fields in _read_csv(path, report, ("item_id",)):
        item = fields["item_id"]
        if not item or item in items:
            report.skip("invalid", path, number, f"item_id {item!r} is empty or stands above already")
            continue
        items[item] = {name: value for name, value in fields.items() if name.startswith("item_feature")}
    if not items or len(items) > MAX_CANDIDATES:
        raise SourceError(f"{path} has {len(items)} items; 1 to {MAX_CANDIDATES} can be a pool")
    return items


def _read_csv(path: Path, report: ImportReport, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows by column with their line number; a line with another number of columns is skipped and named."""
    header: list[str] | None = None
    for number, line in read_source(path, report):
        try:
            (cells,) = csv.reader([line.decode()])
        except (UnicodeDecodeError, csv.Error, ValueError) as error:
            report.skip("invalid", path, number, f"the line is not CSV: {error}")
            continue
        if header is None:
            header = cells
            if missing := [name for name in required if name not in header]:
                raise SourceError(f"{path}:{number}: the header lacks {', '.join(missing)}")
        elif len(cells) != len(header):
            report.skip("invalid", path, number, f"{len(cells)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, cells, strict=True))


def _parse(fields: Mapping[str, str], items: Mapping[str, Any]) -> _Row | str:
    """A row, or what is wrong with it."""
    item = fields["item_id"]
    if item not in items:
        return f"item_id {item!r} is not in {ITEMS}"
    try:
        time = datetime.fromisoformat(fields["timestamp"])
    except ValueError:
        return f"timestamp {fields['timestamp']!r} is not a time"
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if not writable(time, 1970):
        return f"timestamp {fields['timestamp']!r} is outside 1970 to 9999"
    position = fields["position"]
    if not (position.isascii() and position.isdecimal() and 1 <= int(position) <= MAX_CANDIDATES):
        return f"position {position!r} is not a whole number from 1 to {MAX_CANDIDATES}"
    if fields["click"] not in ("0", "1"):
        return f"click {fields['click']!r} is neither 0 nor 1"
    propensity = _propensity(fields["propensity_score"])
    if isinstance(propensity, str):
        return propensity
    return _Row(time, item, int(position), fields["click"] == "1", propensity, _context_fields(fields))


def _propensity(text: str) -> float | str | None:
    """The number; None for an empty cell, NaN and infinities, which JSON has not; or what is wrong."""
    if not text:
        return None
    try:
        float(text)
    except ValueError:
        return f"propensity_score {text!r} is not a number"
    return _number(text)


def _context_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: value for name, value in fields.items() if name.startswith("user_feature")}
    given = {name.removeprefix(_AFFINITY): value for name, value in fields.items() if name.startswith(_AFFINITY)}
    # Nearly all are 0: with those each line would be as long as the source's.
    affinity = {item: number for item, text in given.items() if (number := _number(text))}
    return {**found, "affinity": affinity} if affinity else found


def _number(text: str) -> float | None:
    """A finite number, else None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _announce(items: Mapping[str, Mapping[str, str]], first: datetime) -> Iterator[Event]:
    time = first - _CLICK_AFTER
    for item, features in items.items():
        told = ", ".join(f"{name}={value}" for name, value in features.items())
        title = f"item {item}: {told}" if told else f"item {item}"
        yield ActionEvent(id=f"open-bandit-item-{item}", time=time, action=item, fields={"title": title[:MAX_STRING]})


def _ranking(row: _Row, number: int, pool: list[tuple[str, str | None, float]]) -> Event:
    item = RankedItem(action=row.item, position=row.position, propensity=row.propensity)
    return RankingEvent(
        id=f"open-bandit-{number}",
        time=row.time,
        user=f"open-bandit-{number}",
        context=Context(fields=dict(row.fields)),
        items=[item],
        pool=pool,
        traffic="explore",
        versions={"import": "open-bandit"},
    )


def _click(row: _Row, number: int) -> Event:
    name = f"open-bandit-{number}"
    time = row.time + _CLICK_AFTER
    return FeedbackEvent(id=f"{name}-click", time=time, ranking=name, user=name, type="accept", action=row.item)
