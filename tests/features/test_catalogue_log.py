"""The catalogue at start: what the log says, with or without the snapshot beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.catalogue import ActionSpec
from features.catalogue_log import SNAPSHOT, load_catalogue, save_catalogue
from features.events import ActionEvent, Event, InteractionEvent, encode_event, from_seconds
from features.log import LogWriter
from tests.features.streams import START_S, write_log

TIME = from_seconds(START_S)


def action(number: int, name: str, **fields: object) -> ActionEvent:
    return ActionEvent(id=f"a{number}", time=TIME, action=name, fields=dict(fields))


def other(number: int) -> Event:
    return InteractionEvent(id=f"i{number}", time=TIME, user="u", type="opened", action="share")


EVENTS: list[Event] = [
    action(1, "crop", title="Crop"),
    other(1),
    action(2, "share"),
    action(3, "crop", title="Crop it"),
    action(3, "crop", title="the same id again"),
    action(4, "broken", min_age="old"),
    ActionEvent(id="a5", time=TIME, action="share", fields=None),
    other(2),
]
EXPECTED = {"crop": ActionSpec(title="Crop it")}


def test_the_log_alone_tells_it(tmp_path: Path) -> None:
    write_log(tmp_path, EVENTS)
    live = load_catalogue(tmp_path, len(EVENTS))
    assert dict(live.catalogue.items()) == EXPECTED
    assert (live.changed, live.scanned) == (7, 8)


def test_lines_of_another_writer_with_their_fields_in_another_order_are_read_too(tmp_path: Path) -> None:
    line = (
        b'{"id":"a1", "time":"2020-05-24T09:30:00Z", "action":"crop", "fields":{"title":"Crop it"}, "event": "action"}'
    )
    with LogWriter.open(tmp_path) as writer:
        writer.append([line, b"not json"])
    assert dict(load_catalogue(tmp_path, 2).catalogue.items()) == EXPECTED


def test_a_snapshot_spares_reading_what_came_before_it(tmp_path: Path) -> None:
    write_log(tmp_path, EVENTS)
    save_catalogue(tmp_path, load_catalogue(tmp_path, len(EVENTS)))
    write_log(tmp_path, [other(3), action(6, "new")])
    live = load_catalogue(tmp_path, len(EVENTS) + 2)
    assert dict(live.catalogue.items()) == {**EXPECTED, "new": ActionSpec()}
    assert live.read_lines == 2


@pytest.mark.parametrize("damage", ["another log", "shorter log", "broken file"])
def test_a_snapshot_that_does_not_fit_the_log_is_ignored(damage: str, tmp_path: Path) -> None:
    write_log(tmp_path / "one", EVENTS)
    save_catalogue(tmp_path / "one", load_catalogue(tmp_path / "one", len(EVENTS)))
    snapshot = (tmp_path / "one" / SNAPSHOT).read_bytes()
    events = {
        "another log": [action(9, "else"), *[other(number) for number in range(9)]],
        "shorter log": EVENTS[:3],
        "broken file": EVENTS,
    }[damage]
    write_log(tmp_path / "two", events)
    (tmp_path / "two" / SNAPSHOT).write_bytes(snapshot[:-9] if damage == "broken file" else snapshot)
    live = load_catalogue(tmp_path / "two", len(events))
    assert live.read_lines == len(events)
    (tmp_path / "two" / SNAPSHOT).unlink()
    assert dict(live.catalogue.items()) == dict(load_catalogue(tmp_path / "two", len(events)).catalogue.items())


def test_an_empty_log_has_an_empty_catalogue(tmp_path: Path) -> None:
    write_log(tmp_path, [])
    assert len(load_catalogue(tmp_path, 0).catalogue) == 0


def test_what_is_written_is_what_was_encoded() -> None:
    assert encode_event(action(1, "crop")).startswith(b'{"event":"action"'), "the scan looks for this"
