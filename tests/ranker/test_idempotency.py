"""The same id asked twice is answered once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from features.errors import StoreTimeout, StoreUnavailable
from features.memory_store import MemoryStore
from ranker.answers import RankAnswer
from ranker.errors import Conflict
from ranker.idempotency import KEEP_S, Answers, Asked, _until
from tests.ranker.online import run


def answer(number: int) -> RankAnswer:
    return RankAnswer("r1", [], "live", {"schema": str(number)}, [], {})


def asked(body: bytes = b"{}", caller: str = "app", user: str = "u1", wait_s: float = 2.0) -> Asked:
    return Asked(caller, user, "r1", body, wait_s)


@dataclass
class Work:
    """Makes answers, slowly if told, and counts them."""

    verified: list[bool] = field(default_factory=list)
    go: asyncio.Event | None = None
    error: Exception | None = None

    async def __call__(self, verified: bool) -> RankAnswer:
        self.verified.append(verified)
        number = len(self.verified)
        if self.go is not None:
            await self.go.wait()
        if self.error is not None:
            raise self.error
        return answer(number)


class DownStore(MemoryStore):
    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        raise StoreTimeout("slow")

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        raise StoreUnavailable("down")


def test_the_same_body_gets_the_stored_answer_also_after_a_restart() -> None:
    async def work() -> None:
        store, job = MemoryStore(), Work()
        assert await Answers(store).give(asked(), job) == (answer(1), False)
        assert await Answers(store).give(asked(), job) == (answer(1), True)
        assert job.verified == [True]

    run(work())


def test_another_body_is_a_conflict_that_names_the_id() -> None:
    async def work() -> None:
        store, job = MemoryStore(), Work()
        await Answers(store).give(asked(b"one"), job)
        with pytest.raises(Conflict, match="'r1'"):
            await Answers(store).give(asked(b"other"), job)

    run(work())


@pytest.mark.parametrize("other", [asked(caller="web"), asked(user="u2")], ids=["caller", "user"])
def test_an_id_is_scoped_to_caller_and_user(other: Asked) -> None:
    async def work() -> None:
        answers, job = Answers(MemoryStore()), Work()
        await answers.give(asked(), job)
        assert await answers.give(other, job) == (answer(2), False)

    run(work())


def test_an_id_is_free_again_after_a_day() -> None:
    async def work() -> None:
        now_s = [0.0]
        store, job = MemoryStore(lambda: now_s[0]), Work()
        await Answers(store).give(asked(), job)
        now_s[0] = KEEP_S - 1.0
        assert (await Answers(store).give(asked(), job))[1]
        now_s[0] = KEEP_S + 1.0
        assert await Answers(store).give(asked(b"other"), job) == (answer(2), False)

    run(work())


@pytest.mark.parametrize("same_process", [True, False], ids=["in this process", "in another"])
def test_one_that_is_still_running_is_waited_for(same_process: bool) -> None:
    async def work() -> None:
        store, job = MemoryStore(), Work(go=asyncio.Event())
        first = Answers(store)
        second = first if same_process else Answers(store)
        one = asyncio.create_task(first.give(asked(), job))
        await asyncio.sleep(0)
        two = asyncio.create_task(second.give(asked(), job))
        with pytest.raises(Conflict):
            await second.give(asked(b"other"), job)
        await asyncio.sleep(0.02)
        assert not two.done()
        assert job.go is not None
        job.go.set()
        assert await one == (answer(1), False)
        assert await two == (answer(1), True)

    run(work())


@pytest.mark.parametrize("same_process", [True, False], ids=["in this process", "in another"])
def test_a_caller_that_cannot_wait_any_longer_gets_an_answer_of_its_own(same_process: bool) -> None:
    async def work() -> None:
        store, slow, quick = MemoryStore(), Work(go=asyncio.Event()), Work()
        first = Answers(store)
        one = asyncio.create_task(first.give(asked(), slow))
        await asyncio.sleep(0)
        second = first if same_process else Answers(store)
        assert await second.give(asked(wait_s=0.02), quick) == (answer(1), False)
        assert quick.verified == [False]
        assert slow.go is not None
        slow.go.set()
        await one

    run(work())


def test_a_store_that_is_down_means_computed_afresh_and_unverified() -> None:
    async def work() -> None:
        job = Work()
        answers = Answers(DownStore())
        assert await answers.give(asked(), job) == (answer(1), False)
        assert await answers.give(asked(), job) == (answer(2), False)
        assert job.verified == [False, False]

    run(work())


def test_one_that_failed_leaves_the_id_free() -> None:
    async def work() -> None:
        answers, job = Answers(MemoryStore()), Work(error=RuntimeError("broken"))
        with pytest.raises(RuntimeError):
            await answers.give(asked(), job)
        job.error = None
        assert await answers.give(asked(b"other"), job) == (answer(2), False)

    run(work())


def test_who_waits_for_one_that_was_cancelled_takes_its_place() -> None:
    async def work() -> None:
        answers, job = Answers(MemoryStore()), Work(go=asyncio.Event())
        one = asyncio.create_task(answers.give(asked(), job))
        await asyncio.sleep(0)
        two = asyncio.create_task(answers.give(asked(), job))
        await asyncio.sleep(0)
        one.cancel()
        assert job.go is not None
        job.go.set()
        assert await two == (answer(2), False)

    run(work())


@pytest.mark.parametrize("same_process", [True, False], ids=["in this process", "in another, or after a restart"])
def test_a_forgotten_user_has_no_remembered_answers(same_process: bool) -> None:
    async def work() -> None:
        now_s = [100.0]
        store, job = MemoryStore(), Work()
        answers = Answers(store, lambda: now_s[0])
        await answers.give(asked(), job)
        await answers.give(asked(user="u2"), job)
        other = answers if same_process else Answers(store, lambda: now_s[0])
        await other.forget("u1")
        now_s[0] += 1.0
        assert await answers.give(asked(b"other"), job) == (answer(3), False)
        assert await answers.give(asked(b"other"), job) == (answer(3), True), "what came after is remembered"
        assert await answers.give(asked(user="u2"), job) == (answer(2), True)

    run(work())


def test_an_answer_that_was_begun_before_its_user_was_forgotten_is_not_remembered() -> None:
    async def work() -> None:
        now_s = [100.0]
        answers, job = Answers(MemoryStore(), lambda: now_s[0]), Work(go=asyncio.Event())
        one = asyncio.create_task(answers.give(asked(), job))
        await asyncio.sleep(0.01)
        now_s[0] += 1.0
        await answers.forget("u1")
        assert job.go is not None
        job.go.set()
        assert await one == (answer(1), False)
        assert await answers.give(asked(), job) == (answer(2), False)

    run(work())


def test_a_user_who_is_forgotten_while_the_store_is_down_is_forgotten_here() -> None:
    async def work() -> None:
        store, job = StuckStore(), Work()
        answers = Answers(store)
        await answers.give(asked(), job)
        put, store.put = store.put, DownStore().put  # type: ignore[method-assign]
        await answers.forget("u1")
        store.put = put  # type: ignore[method-assign]
        assert await answers.give(asked(), job) == (answer(2), False)

    run(work())


def test_bytes_that_are_no_entry_are_replaced() -> None:
    async def work() -> None:
        store, job = MemoryStore(), Work()
        await store.put(asked().key, b"garbage", 1000)
        assert await Answers(store).give(asked(), job) == (answer(1), False)
        assert await Answers(store).give(asked(), job) == (answer(1), True)

    run(work())


class StuckStore(MemoryStore):
    """Never answers some calls."""

    def __init__(self, *stuck: str) -> None:
        super().__init__()
        self._stuck = stuck
        self.go = asyncio.Event()

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        if "claim" in self._stuck:
            await self.go.wait()
        return await super().claim(key, value, ttl_s)

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        if "put" in self._stuck:
            await self.go.wait()
        await super().put(key, value, ttl_s)


@pytest.mark.parametrize(("wait_s", "look_s"), [(1.0, 0.98), (0.03, 0.015), (0.0, 0.0)])
def test_looking_for_an_earlier_answer_leaves_time_to_make_one(wait_s: float, look_s: float) -> None:
    until = _until(asked(wait_s=wait_s), 100.0)
    assert until.look_s == pytest.approx(100.0 + look_s)
    assert until.keep_s < 100.0 + wait_s


def test_a_claim_that_is_not_answered_is_given_up() -> None:
    async def work() -> None:
        job = Work()
        assert await Answers(StuckStore("claim")).give(asked(wait_s=0.05), job) == (answer(1), False)
        assert job.verified == [False]

    run(work())


def test_waiting_for_a_running_one_and_then_for_the_store_is_one_wait() -> None:
    async def work() -> None:
        loop, store, slow = asyncio.get_running_loop(), StuckStore("claim"), Work(go=asyncio.Event())
        answers, quick = Answers(store), Work()
        one = asyncio.create_task(answers.give(asked(wait_s=60.0), slow))
        await asyncio.sleep(0.01)
        started_s = loop.time()
        two = asyncio.create_task(answers.give(asked(wait_s=1.0), quick))
        await asyncio.sleep(0.7)
        one.cancel()
        await asyncio.wait([one])
        assert (await two)[0] == answer(1)
        assert loop.time() - started_s < 1.5, "not 0.7 s and then another second"

    run(work())


def test_a_store_that_takes_long_to_keep_an_answer_does_not_keep_the_caller() -> None:
    async def work() -> None:
        store, job = StuckStore("put"), Work()
        answers = Answers(store)
        assert await answers.give(asked(wait_s=0.05), job) == (answer(1), False)
        again = asyncio.create_task(answers.give(asked(), job))
        await asyncio.sleep(0.05)
        assert not again.done(), "the id is still claimed"
        store.go.set()
        assert await again == (answer(1), True), "it was kept all the same"
        assert job.verified == [True]

    run(work())
