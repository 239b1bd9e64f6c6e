"""The client against a real server on a free port."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import ranker.client
from features.catalogue import ActionSpec
from features.events import Context, Entity, InteractionEvent
from ranker.client import EVENTS_PER_POST, ApiError, Client, NotReady, Unreachable
from ranker.clock import ManualClock
from ranker.errors import ServiceUnavailable
from ranker.server import listen, url_of
from ranker.types import RankRequest
from tests.ranker.api.fake_service import FakeService
from tests.ranker.api.running import running

NOON = datetime(2024, 5, 24, 12, tzinfo=UTC)
REQUEST = RankRequest(user="u1", context=Context(surface="chat", entities=[Entity(id="42", type="image")]))


@pytest.fixture(scope="module")
def url_and_service() -> Iterator[tuple[str, FakeService]]:
    service = FakeService()
    with running(service) as url:
        yield url, service


@pytest.fixture
def service(url_and_service: tuple[str, FakeService]) -> FakeService:
    service = url_and_service[1]
    service.reset()
    return service


@pytest.fixture
def client(url_and_service: tuple[str, FakeService], service: FakeService) -> Iterator[Client]:
    with Client(url_and_service[0], caller="test") as client:
        yield client


def test_a_ranking_arrives_typed(client: Client, service: FakeService) -> None:
    answer = client.rank(REQUEST, explain=True)
    assert (answer.id, answer.items[0].action, answer.items[0].position) == ("r1", "summarize", 1)
    assert answer.items[0].reasons == ["prior"]
    (call,) = service.rank_calls
    assert (call.caller, call.explain, call.request.user) == ("test", True, "u1")
    assert call.request.context.entities == REQUEST.context.entities


def test_the_example_of_the_docstring_runs(url_and_service: tuple[str, FakeService], service: FakeService) -> None:
    example = doctest.DocTestParser().get_doctest(
        ranker.client.__doc__ or "", {"url": url_and_service[0]}, "ranker.client", None, None
    )
    assert doctest.DocTestRunner(verbose=False).run(example) == (0, 10)
    assert len(service.event_ids) == 2


def test_feedback_names_ranking_user_and_item(url_and_service: tuple[str, FakeService], service: FakeService) -> None:
    ids = iter(["f1", "f2", "f3", "f4", "f5"])
    with Client(url_and_service[0], clock=ManualClock(), new_id=lambda: next(ids)) as client:
        answer = client.rank(REQUEST)
        tell = (client.accept, client.complete, client.dismiss, client.undo)
        assert [one("u1", answer, answer.items[0]).status for one in tell] == ["accepted"] * 4
        assert [result.id for result in client.seen("u1", answer)] == ["f5"]


def test_events_are_sent_in_posts_of_bounded_size_and_answered_in_order(client: Client, service: FakeService) -> None:
    count = EVENTS_PER_POST + 1
    events = [InteractionEvent(id=f"e{number}", time=NOON, user="u1", type="opened") for number in range(count)]
    results = client.events([*events, events[0], {"event": "nonsense"}])
    assert [result.id for result in results[:count]] == [event.id for event in events]
    assert [result.status for result in results[count:]] == ["duplicate", "refused"]
    assert client.events([]) == []


@pytest.mark.parametrize("action", ["a/b", "..", ".", "?x#y", "🦊", "line\nbreak", "\u202ex", "%2F", "a b+c"])
def test_actions_of_any_name_go_there_and_back(client: Client, action: str) -> None:
    spec = ActionSpec(title="T", expires=NOON, cooldown_s=60.0)
    assert client.put_action(action, spec) == spec
    assert client.action(action) == client.actions()[action] == spec
    client.delete_action(action)
    assert action not in client.actions()


def test_the_whole_catalogue_can_be_replaced_and_emptied(client: Client) -> None:
    specs = {"b": ActionSpec(off=True), "a": ActionSpec(title="A")}
    assert client.put_actions(specs) == 2
    assert list(client.actions().items()) == list(specs.items())
    assert client.put_actions({}) == 0
    assert client.actions() == {}


def test_a_user_is_shown_and_forgotten(client: Client, service: FakeService) -> None:
    service.users["a/🦊"] = {"locale": "de"}
    assert client.user("a/🦊") == {"locale": "de"}
    client.forget("a/🦊")
    with pytest.raises(ApiError, match="404") as error:
        client.user("a/🦊")
    assert error.value.problem["type"] == "/problems/not-found"


def test_a_refusal_carries_the_problem(client: Client) -> None:
    with pytest.raises(ApiError) as error:
        client.rank({"user": "u1", "context": {}, "k": 0})
    assert (error.value.status, error.value.problem["field"], error.value.problem["value"]) == (422, "$.k", "0")


def test_a_service_that_cannot_write_is_an_api_error(client: Client, service: FakeService) -> None:
    service.error = ServiceUnavailable("the disk is full")
    with pytest.raises(ApiError, match="the disk is full"):
        client.events([{"event": "forget"}])


def test_waiting_ends_when_the_service_is_ready(url_and_service: tuple[str, FakeService], service: FakeService) -> None:
    service.missing = {"store": "starting"}
    with Client(url_and_service[0], sleep=lambda _seconds: service.missing.clear()) as client:
        assert client.not_ready() == {"store": "starting"}
        client.wait_ready()
        assert client.not_ready() == {}


def test_waiting_gives_up_and_says_what_is_missing(
    url_and_service: tuple[str, FakeService], service: FakeService
) -> None:
    service.missing = {"store": "starting"}
    clock = ManualClock()
    with (
        Client(url_and_service[0], clock=clock, sleep=clock.advance) as client,
        pytest.raises(NotReady, match="store: starting"),
    ):
        client.wait_ready(timeout_s=3.0, every_s=1.0)
    assert clock.monotonic_ms() == 3000.0


def test_nobody_there_is_unreachable_and_not_ready() -> None:
    clock = ManualClock()
    with listen() as nobody, Client(url_of(nobody), clock=clock, sleep=clock.advance) as client:
        with pytest.raises(Unreachable, match="/v1/models"):
            client.models()
        with pytest.raises(NotReady, match="service"):
            client.wait_ready(timeout_s=1.0, every_s=1.0)
