"""Events: what is read can be written again, and what cannot be used says which field and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features import rows
from features.errors import EventError
from features.events import MAX_DEPTH, Entity, decode_event, encode_event, format_time, from_seconds, to_seconds
from tests.features.streams import EventStream


def line(kind: str = "interaction", **changes: Any) -> bytes:
    required: dict[str, dict[str, Any]] = {
        "interaction": {"user": "u1", "type": "said"},
        "user": {"user": "u1"},
        "action": {"action": "crop"},
        "ranking": {"user": "u1"},
        "feedback": {"ranking": "r1", "user": "u1", "type": "accept", "action": "crop"},
        "forget": {"user": "u1"},
    }
    return json.dumps({"event": kind, "id": "1", "time": "2024-05-01T10:00:00Z", **required[kind], **changes}).encode()


def refusal(text: bytes | str) -> str:
    with pytest.raises(EventError) as caught:
        decode_event(text)
    assert caught.value.reason == "invalid"
    return caught.value.detail


def nested(depth: int, kind: str = "list") -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"in": value}
    return value


@pytest.mark.parametrize("seed", [1, 2])
def test_every_event_that_is_written_is_read_back_the_same(seed: int) -> None:
    for event in EventStream(seed).take(300):
        assert decode_event(encode_event(event)) == event


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_target_of_the_longest_entity_can_be_offered_and_named() -> None:
    target = Entity(id="i" * 256, type="t" * 256).target
    for kind, named in (
        ("ranking", {"items": [{"action": "crop", "target": target, "position": 1}]}),
        ("feedback", {"target": target}),
        ("interaction", {"target": target}),
    ):
        assert decode_event(encode_event(decode_event(line(kind, **named)))) == decode_event(line(kind, **named))
    assert "513" in refusal(line("feedback", target=target + "x"))


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_any_json_in_fields_survives_the_log(fields: dict[str, Any]) -> None:
    try:
        text = line(fields=fields)
        event = decode_event(text)
    except EventError as error:
        # Lone surrogates are no UTF-8; hypothesis makes some.
        assert "surrogate" in error.detail or "truncated" in error.detail
        return
    assert decode_event(encode_event(event)) == event


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)), st.integers(-14, 14))
def test_times_are_kept_to_the_millisecond_in_utc(moment: datetime, hours: int) -> None:
    moment = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    text = format_time(moment)
    assert len(text) == 24
    assert text.endswith("Z")
    back = datetime.fromisoformat(text)
    assert abs(back - moment) <= timedelta(milliseconds=0.6)
    assert from_seconds(to_seconds(back)) == back


def test_early_years_are_written_with_four_digits() -> None:
    assert format_time(datetime(999, 1, 2, tzinfo=UTC)) == "0999-01-02T00:00:00.000Z"


@pytest.mark.parametrize(
    "time",
    ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001Z", "9999-12-31T23:59:59.999Z", "2024-02-29T12:00:00+05:45"],
)
def test_the_first_and_last_times_are_readable(time: str) -> None:
    event = decode_event(line(time=time))
    assert decode_event(encode_event(event)).time == event.time


@pytest.mark.parametrize(
    "time",
    ["1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59.9999Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-02:00"],
)
def test_a_time_outside_the_range_is_refused(time: str) -> None:
    assert "$.time" in refusal(line(time=time))


@pytest.mark.parametrize("time", ["2024-05-01T10:00:00", "yesterday", 5, None])
def test_a_time_without_zone_or_of_another_type_is_refused(time: Any) -> None:
    assert "$.time" in refusal(line(time=time))


def test_an_old_target_is_readable_but_not_one_whose_time_utc_cannot_express() -> None:
    def ranking(time: str) -> bytes:
        return line("ranking", context={"entities": [{"id": "1", "type": "painting", "time": time}]})

    event = decode_event(ranking("0800-12-25T00:00:00Z"))
    assert decode_event(encode_event(event)) == event
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-02:00"):
        assert "$.context.entities[0].time" in refusal(ranking(time))
        assert "$.context.time" in refusal(line("ranking", context={"time": time}))


FREE: dict[str, Any] = {
    "$.fields": lambda value: line(fields=value),
    "$.context.fields": lambda value: line("ranking", context={"fields": value}),
    "$.context.trigger.fields": lambda value: line("ranking", context={"trigger": {"type": "t", "fields": value}}),
    "$.context.entities[1].fields": lambda value: line(
        "ranking", context={"entities": [{"id": "1", "type": "t"}, {"id": "2", "type": "t", "fields": value}]}
    ),
}


@pytest.mark.parametrize("path", FREE)
@pytest.mark.parametrize("kind", ["list", "dict"])
def test_fields_nested_too_deeply_are_refused_before_they_cannot_be_written(path: str, kind: str) -> None:
    deepest = decode_event(FREE[path]({"a": nested(MAX_DEPTH - 1, kind)}))
    assert decode_event(encode_event(deepest)) == deepest
    assert f"{path}.a" in refusal(FREE[path]({"a": nested(MAX_DEPTH, kind)}))


@pytest.mark.parametrize("depth", [300, 900, 10_000])
def test_absurd_nesting_is_refused_like_any_other(depth: int) -> None:
    text = line(fields={"a": 0}).replace(b'"a": 0', b'"a": ' + b"[" * depth + b"]" * depth)
    assert "arrays and objects inside one another" in refusal(text)


@pytest.mark.parametrize("path", FREE)
@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**4000])
def test_an_integer_that_no_row_can_hold_is_refused(path: str, value: int) -> None:
    assert f"{path}.n[1]" in refusal(FREE[path]({"n": [0, value]}))


def test_integers_of_64_bits_pass_and_can_be_packed() -> None:
    event = decode_event(line("user", fields={"low": -(2**63), "high": 2**64 - 1}))
    assert rows.storable("high", 2**64 - 1)
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (line("feedback", type="liked"), "$.type"),
        (line("ranking", traffic="secret"), "$.traffic"),
        (line("ranking", items=[{"action": "a", "position": 0}]), "$.items[0].position"),
        (line("ranking", items=[{"action": "", "position": 1}]), "$.items[0].action"),
        (line("ranking", seen_offset=-1), "$.seen_offset"),
        (line(user=""), "$.user"),
        (line(user="x" * 257), "$.user"),
        (line(text="x" * 4097), "$.text"),
        (line(id=7), "$.id"),
        (line("feedback", value=0).replace(b'"value": 0', b'"value": 1e999'), "$.value"),
        (line("ranking", pool=[["a", None, 0]]).replace(b"0]]", b"1e999]]"), "$.pool[0][2]"),
        (line().replace(b"interaction", b"wish"), "$.event"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(text: bytes, path: str) -> None:
    assert path in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"event":"user"}',
        line().replace(b"said", b"\xed\xa0\x80"),
        line().replace(b'"said"', b'"\\ud800"'),
        line().replace(b'"said"', b"NaN"),
    ],
)
def test_what_is_no_event_is_refused(text: bytes) -> None:
    assert refusal(text)


def test_a_text_of_4096_emoji_and_ids_with_separators_pass() -> None:
    event = decode_event(line(text="🦜" * 4096, user="a:b\x00c\n", target="image:4:2"))
    assert decode_event(encode_event(event)) == event
    assert b"\n" not in encode_event(event)


PRINTED_KEYS = {
    "action": "action fields",
    "user": "user fields",
    "interaction": "user session type action target text fields",
    "ranking": "user session context items pool features seen_offset traffic versions degraded",
    "feedback": "ranking user type action target value",
    "forget": "user",
}


@pytest.mark.parametrize("kind", PRINTED_KEYS)
def test_a_line_has_every_printed_key_even_where_there_is_nothing_to_say(kind: str) -> None:
    written = json.loads(encode_event(decode_event(line(kind))))
    assert {"event", "id", "time", *PRINTED_KEYS[kind].split()} <= written.keys()


def test_an_item_has_every_printed_key() -> None:
    written = json.loads(encode_event(decode_event(line("ranking", items=[{"action": "a", "position": 1}]))))
    assert written["items"] == [{"action": "a", "target": None, "position": 1, "score": None, "propensity": None}]
