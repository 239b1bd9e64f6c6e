"""Hostile input against the whole service: never a 5xx, never half an event, and every refusal names its field."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.events import Event, RankingEvent, format_time, from_seconds
from features.log import read_log
from ranker.api.app import create_app
from ranker.api.limits import Limits
from ranker.clock import ManualClock
from tests.ranker.online import Desk, service
from training.validate import validate_log

RANK = {"user": "u1", "context": {"surface": "chat"}}
NOW_S = ManualClock().now_s()


class Hostile:
    """The application over a real service in this process; every answer is looked at."""

    def __init__(self, desk: Desk, client: httpx.AsyncClient) -> None:
        self.desk, self.client = desk, client
        self.accepted: list[str] = []
        self.refused: list[str | None] = []

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = body if body is None or isinstance(body, bytes) else json_bytes(body)
        answer = await self.client.request(method, path, content=content, headers=headers)
        assert answer.status_code < 500, (answer.status_code, content, answer.text)
        if answer.status_code >= 400 and method != "HEAD":
            problem = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem["status"] == answer.status_code and problem["detail"]
            assert answer.status_code in (404, 405) or problem["field"], problem
        return answer

    async def rank(self, body: Any) -> httpx.Response:
        return await self.ask("POST", "/v1/rank", body)

    async def post(self, *events: Any) -> list[dict[str, Any]]:
        answer = await self.ask("POST", "/v1/events", list(events))
        results: list[dict[str, Any]] = answer.json()["results"] if answer.status_code == 200 else []
        for result in results:
            assert result["status"] != "refused" or (result["reason"] and result["detail"]), result
            if result["status"] == "accepted":
                self.accepted.append(result["id"])
            elif result["status"] == "refused":
                self.refused.append(result["id"])
        return results

    def check_log(self) -> None:
        """Every line is an event; what was accepted is there once, and of what was refused nothing."""
        found: Counter[str] = Counter()
        for _, event in read_log(self.desk.logdir):
            found[event.id] += not isinstance(event, RankingEvent)
        assert {id: found[id] for id in self.accepted} == dict.fromkeys(self.accepted, 1)
        assert not [id for id in self.refused if id is not None and id not in self.accepted and found[id]]
        report = validate_log(self.desk.logdir)
        allowed = {"orphan_feedback", "unknown_action", "feedback_not_offered", "late"}  # what apps may send
        assert not set(report.findings) - allowed, report.to_json()


def json_bytes(value: Any) -> bytes:
    """JSON that may say NaN, Infinity, lone surrogates and numbers of any size."""
    return json.dumps(value).encode()


@asynccontextmanager
async def hostile(folder: Path, **config: Any) -> AsyncIterator[Hostile]:
    async with service(folder, epsilon=0.3, **config) as desk:
        transport = httpx.ASGITransport(create_app(desk.running.service, Limits(), desk.clock))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            found = Hostile(desk, client)
            yield found
            await desk.applied()
            found.check_log()


ODD_TIMES = (
    "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z",
    "2024-02-30T00:00:00Z", "2016-12-31T23:59:60Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00",
    format_time(from_seconds(NOW_S + 365 * 86_400)), "now", "", 0,
)  # fmt: skip
ODD_NAMES = ("a/b", "a:b|c", 'a"b', "a'b", "a\nb", "\x00", "😀", "\u202eabc", " ", "%2F", "..", ".", "0", "x" * 256)
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 3.5, 2**53, 2**64, -(2**63) - 1, 10**400, math.nan, math.inf, "", "x", "\ud800", "x" * 5000,
    [], [[]], {}, {"": {}}, [None] * 5000, {"a": {"b": {"c": [{}]}}}, *ODD_TIMES, *ODD_NAMES,
)  # fmt: skip

values = st.recursive(
    st.sampled_from(ODD_VALUES) | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def mutated(known: Mapping[str, st.SearchStrategy[Any]], required: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Objects whose fields are mostly right: each may be absent, or anything at all; some are not known."""
    fields = {name: st.one_of(good, good, good, values) for name, good in known.items()}
    must = {name: fields.pop(name) for name in required}
    more = st.dictionaries(st.sampled_from(["colour", "", "id", "a.b", "a[0]"]), values, max_size=1)
    return st.builds(lambda plain, extra: {**plain, **extra}, st.fixed_dictionaries(must, optional=fields), more)


def some(*given: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(given)


names = st.sampled_from(ODD_NAMES)
times = some(*ODD_TIMES, format_time(from_seconds(NOW_S)), format_time(from_seconds(NOW_S - 60)))
free = st.dictionaries(st.text(max_size=4), values, max_size=3)
entities = st.lists(mutated({"id": names, "type": some("image", "text"), "time": times, "fields": free}), max_size=4)
contexts = mutated(
    {
        "surface": some("chat", "home"), "locale": some("en-GB", "de"), "region": some("GB"),
        "timezone": some("Europe/London", "../../etc/passwd", "Nowhere", "America"), "time": times,
        "app_version": some("1.2", "x"), "permissions": st.lists(names, max_size=2), "text": st.text(max_size=20),
        "entities": entities, "trigger": mutated({"type": some("opened"), "fields": free}), "fields": free,
    }
)  # fmt: skip
candidates = st.lists(
    mutated({"action": some("summarize", "crop", "share", "nope"), "target": names, "fields": free}), max_size=6
)
rank_bodies = mutated(
    {
        "user": names, "context": contexts, "id": names, "session": names, "candidates": candidates,
        "exclude": st.lists(some("crop", "nope"), max_size=2), "k": some(1, 3, 50, 0, 51, 10_000),
        "budget_ms": some(1, 100, 0, 1e300), "priority": some("normal", "premium", "shadow"),
        "traffic": some("probe", "live", "replay"),
    },
    required=("user", "context"),
)  # fmt: skip
ids = st.uuids().map(str) | names
events = mutated(
    {
        "event": some("interaction", "feedback", "user", "ranking", "action", "forget", "party"), "id": ids,
        "time": times, "user": names, "session": names, "type": some("opened", "accept", "dismiss", "undo", "seen"),
        "action": some("crop", "share", "nope"), "target": names, "text": st.text(max_size=9), "fields": free,
        "ranking": names, "value": some(1.0, -0.0, 1e308, math.nan),
    },
    required=("event", "id", "time", "user"),
)  # fmt: skip

FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(st.lists(rank_bodies, min_size=1, max_size=12), st.lists(events, min_size=1, max_size=12))
def test_whatever_is_asked_and_told_the_log_holds_what_was_accepted_once(
    tmp_path_factory: pytest.TempPathFactory, asked: list[Any], told: list[Any]
) -> None:
    async def main() -> None:
        async with hostile(tmp_path_factory.mktemp("hostile")) as found:
            for body in asked:
                await found.rank(body)
            await found.post(*told)
            for event in told:
                await found.post(event)

    asyncio.run(main())


@FEW
@given(st.lists(st.binary(max_size=40) | values.map(json_bytes), max_size=8))
def test_any_bytes_are_answered(tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes]) -> None:
    async def main() -> None:
        async with hostile(tmp_path_factory.mktemp("bytes")) as found:
            for body in bodies:
                for path in ("/v1/rank", "/v1/events", "/v1/rank/batch"):
                    await found.ask("POST", path, body)
                await found.ask("PUT", "/v1/actions/a", body)

    asyncio.run(main())


def test_each_field_with_each_odd_value(tmp_path: Path) -> None:
    context_fields = ("surface", "timezone", "time", "permissions", "text", "entities", "trigger", "fields")
    rank_fields = ("user", "context", "id", "session", "candidates", "exclude", "k", "budget_ms", "priority", "traffic")

    async def main() -> None:
        async with hostile(tmp_path) as found:
            for value in ODD_VALUES:
                for name in rank_fields:
                    await found.rank({**RANK, name: value})
                for name in context_fields:
                    await found.rank({**RANK, "context": {name: value}})
                for name in ("id", "type", "time", "fields"):
                    entity = {"id": "1", "type": "image", name: value}
                    await found.rank({**RANK, "context": {"entities": [entity]}})
            assert len(found.desk.rankings()) > 200

    asyncio.run(main())


def odd_events() -> Iterator[dict[str, Any]]:
    good = {"event": "interaction", "time": format_time(from_seconds(NOW_S)), "user": "u1", "type": "opened"}
    number = 0
    for name in ("event", "id", "time", "user", "session", "type", "action", "target", "text", "fields"):
        for value in ODD_VALUES:
            number += 1
            yield {"id": f"e{number}", **good, name: value}


def test_each_field_of_an_event_with_each_odd_value(tmp_path: Path) -> None:
    async def main() -> None:
        async with hostile(tmp_path) as found:
            for event in odd_events():
                await found.post(event)
            posted = [event for event in odd_events() if "\ud800" not in map(str, event.values())]
            await found.post(*(event for event in posted if math.inf not in event.values()))
            assert found.accepted and found.refused

    asyncio.run(main())


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_action_and_a_user_may_have_any_name(tmp_path: Path, name: str) -> None:
    from urllib.parse import quote

    escaped = quote(name, safe="").replace(".", "%2E")

    async def main() -> None:
        async with hostile(tmp_path) as found:
            assert (await found.ask("PUT", f"/v1/actions/{escaped}", {"title": name})).status_code == 200
            assert (await found.ask("GET", f"/v1/actions/{escaped}")).json()["title"] == name
            answer = (await found.rank({**RANK, "user": name, "id": name, "candidates": [{"action": name}]})).json()
            assert [item["action"] for item in answer["items"]] == [name]
            accept = {"event": "feedback", "id": name, "type": "accept", "ranking": name, "action": name}
            (told,) = await found.post({**accept, "time": found.desk.time(), "user": name})
            assert told["status"] == "accepted"
            await found.desk.applied()
            held = (await found.ask("GET", f"/v1/users/{escaped}")).json()
            assert held["counters"][name] == {"offered": 1, "accepted": 1}
            assert (await found.ask("DELETE", f"/v1/users/{escaped}")).status_code == 204
            assert (await found.ask("DELETE", f"/v1/actions/{escaped}")).status_code == 204
            found.accepted.clear()  # forgotten, with the rest

    asyncio.run(main())


def test_a_value_that_is_refused_is_in_the_refusal(tmp_path: Path) -> None:
    async def main() -> None:
        async with hostile(tmp_path) as found:
            good = found.desk.event(id="e")
            refusals = await found.post({**good, "user": 0}, {**good, "time": "soon"}, {**good, "type": ["x"]})
            assert [result["detail"].rpartition(", got ")[2] for result in refusals] == [
                "0 - at `$.user`", '"soon" - at `$.time`', "an array of 1 - at `$.type`",
            ]  # fmt: skip

    asyncio.run(main())


def test_large_and_deep_bodies_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    event = b'{"event":"interaction","id":"deep","time":"%s","user":"u","type":"x","fields":{"a":%s}}'

    async def main() -> None:
        async with hostile(tmp_path) as found:
            time = found.desk.time().encode()
            assert (await found.rank(b" " * 5_000_000 + b"{}")).status_code == 413
            assert (await found.rank({**RANK, "candidates": [{"action": "crop"}] * 5000})).status_code == 422
            assert (await found.rank(b'{"user":"u","context":{"fields":{"a":%s}}}' % deep)).status_code == 400
            assert (await found.ask("POST", "/v1/events", event % (time, deep))).status_code == 400
            assert (await found.ask("POST", "/v1/events", [{}] * 10_001)).status_code == 413
            assert not [event for event in logged(found) if not event.id.startswith("n")]
            most = [{"action": name} for name in ("crop", "share", *map(str, range(998)))]
            assert (await found.rank({**RANK, "candidates": most, "k": 50})).json()["items"]

    asyncio.run(main())


def logged(found: Hostile) -> list[Event]:
    return found.desk.logged()


def test_null_absent_and_zero_are_three_things(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("id", "session", "candidates", "budget_ms", "traffic"))

    async def main() -> None:
        async with hostile(tmp_path) as found:
            assert (await found.rank({**RANK, **nothing})).status_code == 200
            for name in ("exclude", "k", "priority", "user", "context"):
                assert (await found.rank({**RANK, name: None})).status_code == 422
            for name in ("id", "session", "user", "candidates", "budget_ms"):
                assert (await found.rank({**RANK, name: 0})).status_code == 422
            assert (await found.rank({**RANK, "id": "0", "user": "0", "session": "0"})).json()["id"] == "0"

    asyncio.run(main())


def test_of_a_key_that_comes_twice_the_last_counts_also_for_what_is_not_taken_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with hostile(tmp_path) as found:
            twice = b'{"user":"a","user":"b","context":{}}'
            assert (await found.rank(twice)).status_code == 200
            assert found.desk.rankings()[-1].user == "b"
            for first, last in (("interaction", "ranking"), ("ranking", "interaction"), ("forget", "user")):
                body = {"event": first, "id": first, "time": found.desk.time(), "user": "u", "type": "x"}
                raw = msgspec.json.encode(body)[:-1] + b',"event":"%s"}' % last.encode()
                answer = await found.ask("POST", "/v1/events", raw)
                assert answer.json()["refused"] == 1

    asyncio.run(main())


def test_a_batch_leaves_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with hostile(tmp_path) as found:
            await found.rank({**RANK, "id": "seen"})
            await found.desk.applied()
            before = found.desk.running.service.owners.log.end
            held = await found.desk.running.service.user("u1")
            old = {"time": "2020-01-01T00:00:00Z", "surface": "chat"}
            bodies = [{**RANK, "id": "seen", "k": 1}, {**RANK, "context": old}, {**RANK, "traffic": "probe"}, {}]
            answer = await found.ask("POST", "/v1/rank/batch", b"\n".join(map(json_bytes, bodies)))
            lines = [json.loads(line) for line in answer.content.split(b"\n") if line]
            assert [line.get("traffic") for line in lines] == ["replay", "replay", "replay", None]
            assert lines[0]["id"] == "seen" and len(lines[0]["items"]) == 1 and lines[3]["field"] == "$[3].user"
            assert found.desk.running.service.owners.log.end == before
            await found.desk.applied()
            assert await found.desk.running.service.user("u1") == held

    asyncio.run(main())


def test_in_a_batch_the_contexts_time_is_the_clock(tmp_path: Path) -> None:
    actions = {"early": {"expires": "2021-01-01T00:00:00Z"}, "late": {"expires": "2099-01-01T00:00:00Z"}}

    async def main() -> None:
        async with hostile(tmp_path, actions=actions) as found:
            bodies = [
                {"user": "u", "context": {"time": f"{year}-01-01T00:00:00Z"}} for year in (1970, 2020, 2050, 2199)
            ]
            answer = await found.ask("POST", "/v1/rank/batch", b"\n".join(map(json_bytes, bodies)))
            lines = [json.loads(line) for line in answer.content.split(b"\n") if line]
            offered = [{item["action"] for item in line["items"]} for line in lines]
            assert offered == [{"early", "late"}, {"early", "late"}, {"late"}, set()]
            live = await found.rank({"user": "u", "context": {"time": "2020-01-01T00:00:00Z"}})
            assert [item["action"] for item in live.json()["items"]] == ["late"]

    asyncio.run(main())
