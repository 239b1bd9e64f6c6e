"""The rule that binds a follower which does not answer: by the time nobody waits for it, it has fenced itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.workers.barrier import Barrier
from ranker.workers.lease import BEATS_PER_LIMIT, Fence, Member
from tests.ranker.online import run

LIMIT_MS = 100.0
PERIOD_MS = LIMIT_MS / BEATS_PER_LIMIT


def test_a_fence_is_closed_until_a_beat_and_again_a_limit_after_it_was_sent() -> None:
    now_ms = 0.0
    fence = Fence(lambda: now_ms, LIMIT_MS)
    assert fence.closed
    now_ms = 50.0
    fence.heard(10.0)
    assert not fence.closed
    fence.heard(5.0)  # an older one changes nothing
    now_ms = 10.0 + LIMIT_MS - 0.001
    assert not fence.closed
    now_ms = 10.0 + LIMIT_MS
    assert fence.closed and fence.age_ms == LIMIT_MS


def test_a_member_gets_a_beat_a_period_after_it_has_answered_the_last() -> None:
    member = Member(LIMIT_MS)
    assert member.wants_beat(0.0)
    member.count(0.0)
    member.beats(0.0)
    assert not member.wants_beat(10 * LIMIT_MS)
    member.acknowledge(1, 1.0)
    assert not member.wants_beat(PERIOD_MS - 0.1) and member.wants_beat(PERIOD_MS)


def test_a_count_that_cannot_be_is_not_believed_and_lag_is_measured_while_something_is_open() -> None:
    member = Member(LIMIT_MS)
    for at_ms in (1.0, 2.0, 3.0):
        member.count(at_ms)
    assert member.lag_ms(11.0) == 10.0
    member.acknowledge(2, 12.0)
    assert member.lag_ms(15.0) == 3.0
    member.acknowledge(99, 16.0)
    assert (member.acked, member.lag_ms(20.0)) == (3, 0.0)


class World:
    """One follower, its keeper and a clock: what is sent arrives when the follower looks."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.member = Member(LIMIT_MS, serving=True)
        self.fence = Fence(lambda: self.now_ms, LIMIT_MS)
        self.sent: list[tuple[str, float]] = []
        self.read = self.knows = self.changes = 0

    def pass_ms(self, ms: float) -> None:
        self.now_ms += ms

    def tick(self) -> None:
        if self.member.wants_beat(self.now_ms):
            self._send("beat")
            self.member.beats(self.now_ms)

    def change(self) -> None:
        self.changes += 1
        self._send("change")

    def look(self, most: int) -> None:
        """Reads some of what has arrived."""
        for kind, sent_ms in self.sent[self.read : self.read + most]:
            self.knows += kind == "change"
            if kind == "beat":
                self.fence.heard(sent_ms)
            self.read += 1

    def answer(self) -> None:
        self.member.acknowledge(self.read, self.now_ms)

    def _send(self, kind: str) -> None:
        self.sent.append((kind, self.now_ms))
        self.member.count(self.now_ms)


STEP: dict[str, Callable[[World, int], None]] = {
    "pass": lambda world, n: world.pass_ms(float(n)),
    "tick": lambda world, _: world.tick(),
    "look": lambda world, n: world.look(n),
    "answer": lambda world, _: world.answer(),
    "change": lambda world, _: world.change(),
}


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEP)), st.integers(1, 40)), max_size=80))
def test_whatever_happens_when_nobody_is_waited_for_who_does_not_know_is_fenced(steps: list[tuple[str, int]]) -> None:
    """The barrier's rule as a formula, against a follower that reads and answers whenever it likes."""
    world = World()
    waiting: list[tuple[int, int, float]] = []  # change, messages up to it, end of the lease before it
    for name, n in [*steps, ("change", 0), ("pass", 40), ("pass", 40), ("tick", 0), ("pass", 40), ("look", 1)]:
        STEP[name](world, n)
        if name == "change":
            live = world.member.live(world.now_ms)
            waiting.append((world.changes, world.member.sent, world.member.lease_ends_ms() if live else 0.0))
        for change, count, lease_ends_ms in waiting:
            done = world.member.has(count) or world.now_ms >= lease_ends_ms
            assert not done or world.knows >= change or world.fence.closed


def barrier_of(world: World) -> Barrier:
    return Barrier(lambda: [world.member], lambda: world.now_ms)


def test_a_barrier_waits_for_the_answer_the_end_of_the_lease_or_the_departure() -> None:
    async def work() -> None:
        for how in ("answer", "lease", "gone"):
            world = World()
            world.tick()
            world.change()
            barrier = barrier_of(world)
            waiting = asyncio.create_task(barrier.passed())
            await asyncio.sleep(0.005)
            assert not waiting.done()
            if how == "answer":
                world.look(9)
                world.answer()
            elif how == "lease":
                world.pass_ms(LIMIT_MS)
            else:
                world.member.gone = True
            barrier.moved()
            await asyncio.wait_for(waiting, 1.0)

    run(work())


def test_a_barrier_waits_for_nobody_who_may_not_rank_anyway() -> None:
    async def work() -> None:
        world = World()
        world.change()
        await asyncio.wait_for(barrier_of(world).passed(), 1.0)  # it never had a lease
        world.tick()
        world.member.serving = False
        await asyncio.wait_for(barrier_of(world).passed(), 1.0)

    run(work())
