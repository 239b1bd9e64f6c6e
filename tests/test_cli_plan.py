"""`nextaction plan`: what it prints, what it exits with, and what it says to numbers that cannot be."""

from __future__ import annotations

import uuid
from dataclasses import fields
from datetime import UTC, datetime

import msgspec
import pytest

from features.events import (
    Context,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    encode_event,
)
from ranker.answers import AnswerItem, RankAnswer
from ranker.api.operations import RANK_EXAMPLE
from ranker.commands.options.plan import GROUPS
from ranker.inference.plan_fleet import Traffic
from ranker.inference.plan_rates import DEVICE_CLASSES, Rates
from ranker.inference.plan_setup import Devices, Formats, Load
from tests.command_line import Done, Nextaction

LARGE = {
    "params": "70e9", "layers": "80", "hidden": "8192", "kv-heads": "8", "head-dim": "128", "context": "4096",
    "batch": "4", "weights": "int4", "kv": "int4", "device-gib": "80", "devices": "2", "share": "0.85",
}  # fmt: skip


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def planned(nextaction: Nextaction, *switches: str, **changes: str | None) -> Done:
    options = {**LARGE, **{name.replace("_", "-"): value for name, value in changes.items()}}
    given = [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]
    return nextaction("plan", *given, *switches)


def test_the_json_has_all_figures_of_a_device(nextaction: Nextaction) -> None:
    done = planned(nextaction, "--json", sla_ms="150", rps="1e6", pool_gib_per_batch="32")
    assert (done.status, done.err) == (0, "")
    found = done.json
    assert found["fits"] is True and found["meets_sla"] is False
    device = found["per_device"]
    # 70e9 weights of 4.25 bits on two devices, and norms of 2,637,824 bytes on each
    assert device["weights_bytes"] == (69_998_681_088 * 4.25 / 8) // 2 + 2_637_824
    assert device["pool_bytes"] == 32 << 30
    assert found["kv"]["bits_per_number"] == 5.0 and found["kv"]["per_token"] == 102_400
    assert found["largest_batch"] >= 4 and found["largest_context"] >= 4096
    assert found["fleet"]["network_in_bytes_per_s"] == 1e6 * (450 + 1550)
    assert found["fleet"]["log_bytes_per_s"] == 4.8e9
    assert found["to_meet_sla"][0]["options"].keys() == {"--new-tokens"}


def test_the_table_says_what_fits_and_which_knob_to_turn(nextaction: Nextaction) -> None:
    done = planned(nextaction, weights="bf16", devices="1", rps="1000", sla_ms="150")
    assert done.status == 0
    for text in ("does not fit", "largest batch 0", "makes it fit, planned again: --weights int4", "SLA of 150 ms",
                 "fleet for 1,000 requests/s", "headroom", "workspace", "pages"):  # fmt: skip
        assert text in done.out


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, 0), ({"devices": "1", "weights": "bf16"}, 1), ({"sla_ms": "150"}, 1), ({"sla_ms": "1e5"}, 0)],
)
def test_a_plan_that_misses_is_a_failure_only_where_that_was_asked_for(
    nextaction: Nextaction, changes: dict[str, str], status: int
) -> None:
    assert planned(nextaction, "--json", **changes).status == 0
    assert planned(nextaction, "--json", "--require-fit", **changes).status == status


def test_classes_of_devices_give_what_is_not_given(nextaction: Nextaction) -> None:
    found = planned(nextaction, "--json", device_gib=None, device="h200", gb_per_s="1000").json["setup"]["devices"]
    assert (found["device_gib"], found["rates"]["gb_per_s"], found["rates"]["tflops"]) == (140.0, 1000.0, 989.0)


BAD = [
    *[(name, value) for name in ("params", "layers", "hidden", "kv-heads", "head-dim", "context", "batch", "devices",
                                 "device-gib", "share", "pool-gib-per-batch", "sla-ms", "rps", "tflops", "gb-per-s",
                                 "utilisation", "page-tokens", "heads", "ffn", "chunk-tokens")
      for value in ("0", "-1", "nan", "1e400", "inf", "many", "")],
    ("batch", "1.5"), ("batch", "1e-400"), ("batch", "1e400000000"), ("share", "1.2"), ("kv-heads", "7"),
    ("devices", "3"), ("weights", "int3"), ("kv", "q4"), ("device", "tpu"), ("kv-group", "48"),
    ("kv-metadata-bits", "8"), ("new-tokens", "4097"), ("candidates", "-1"), ("log-bytes", "0.5"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_cannot_be_is_one_line_that_names_option_and_value(nextaction: Nextaction, name: str, value: str) -> None:
    given = {"rps": "10"} if name in ("utilisation", "log-bytes") else {}
    done = planned(nextaction, **{**given, name: value})
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert f"--{name}" in done.err and value in done.err


def test_a_missing_option_is_named(nextaction: Nextaction) -> None:
    done = planned(nextaction, params=None)
    assert done.status == 2 and "--params" in done.err


def test_the_help_prints_the_defaults_that_hold() -> None:
    printed = {name.replace("-", "_"): default for _, options in GROUPS for name, default, _ in options}
    made = {each.name: each.default for kind in (Formats, Load, Devices, Rates, Traffic) for each in fields(kind)}
    for name, default in printed.items():
        if name in made and default is not None and default[0].isdigit():
            assert float(default) == float(str(made[name])), name
    h100 = DEVICE_CLASSES["h100"]
    assert (made["tflops"], made["gb_per_s"], made["device_gib"]) == (h100.tflops, h100.gb_per_s, h100.device_gib)


NOW = datetime(2026, 5, 24, 9, 30, 0, 125_000, tzinfo=UTC)
VERSIONS = {"schema": "a0fc15a55d38ec78", "light": "12", "policy": "7c4abb1c9252"}
POOL: list[tuple[str, str | None, float]] = [
    (f"summarize_image_{number:02}", f"image:{number}", 1.2345678901234567 - number / 7) for number in range(50)
]
STAGES = ("context", "candidates", "eligibility", "policy", "light", "explore", "safety", "freshness", "top actions")


def ids(number: int) -> str:
    return uuid.UUID(int=7**40 % 2**128 + number).hex


def logged() -> tuple[bytes, list[bytes]]:
    """A ranking of one entity, three items and a pool of fifty; three seen, an accept, a completion, what came next."""
    ranking = RankingEvent(
        id=ids(0),
        time=NOW,
        user="user-1234567",
        session="session-123",
        context=msgspec.convert(RANK_EXAMPLE["context"], Context),
        items=[
            RankedItem(action=action, target=target, position=place, score=score, propensity=1.0)
            for place, (action, target, score) in enumerate(POOL[:3], 1)
        ],
        pool=POOL,
        seen_offset=8_123_456,
        traffic="live",
        versions=VERSIONS,
    )
    feedback: list[Event] = [
        FeedbackEvent(
            id=ids(n), time=NOW, ranking=ids(0), user="user-1234567", type=kind, action=POOL[0][0], target="image:42"
        )
        for n, kind in enumerate(("seen", "seen", "seen", "accept", "complete"), 1)
    ]
    after = InteractionEvent(
        id=ids(6), time=NOW, user="user-1234567", session="session-123", type="image_received", target="image:42",
        text="look at this",
    )  # fmt: skip
    return encode_event(ranking), [encode_event(event) for event in (*feedback, after)]


def test_the_bytes_of_a_request_are_those_of_our_own_formats() -> None:
    ranking, posted = logged()
    items = [AnswerItem(action, target, n, score, 1.0) for n, (action, target, score) in enumerate(POOL[:3], 1)]
    answer = RankAnswer(ids(0), items, "live", VERSIONS, [], {**dict.fromkeys(STAGES, 0.123), "total": 2.345})
    headers, event_bytes = 200, sum(len(line) + 1 for line in posted)
    made = Traffic(1.0)
    assert made.log_bytes == pytest.approx(len(ranking) + 1 + event_bytes, rel=0.1)
    assert made.event_bytes == pytest.approx(event_bytes + headers, rel=0.1)
    assert made.answer_bytes == pytest.approx(len(msgspec.json.encode(answer)) + headers, rel=0.1)
    assert made.request_bytes == pytest.approx(len(msgspec.json.encode(RANK_EXAMPLE)) + headers, rel=0.1)
