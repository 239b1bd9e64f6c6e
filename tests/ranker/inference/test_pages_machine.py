"""Pages against a reference of plain lists, and against a memory that knows what every entry should be."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ranker.inference.page_hash import Scope
from ranker.inference.page_table import PageTable
from ranker.inference.pages import TRASH, History, PageConfig, Pages, PagesBusy

SIZE, LONGEST = 3, 12
USERS, MODELS = ["ann", "bob"], ["m@1", "m@2"]

NEW = st.lists(st.sampled_from([b"x", b"y"]), max_size=3)
OUTCOME = st.sampled_from(["hold", "ok", "hold", "abort"])

Prefix = tuple[Scope, int, tuple[bytes, ...]]
"""What an entry depends on: whose it is, where the window starts, and all events up to it."""


@dataclass(eq=False)
class Slot:
    """A page of the reference: the prefix at its end, or None when it holds nothing."""

    key: Prefix | None = None
    tail: tuple[bytes, ...] = ()
    pins: int = 0
    dead: bool = False


class Reference:
    """The rules in lists: `free` is ordered, the next to leave first."""

    def __init__(self, count: int) -> None:
        self.all = [Slot() for _ in range(count)]
        self.free = list(self.all)

    def find(self, key: Prefix) -> Slot | None:
        return next((slot for slot in self.all if slot.key == key), None)

    def pin(self, slot: Slot) -> None:
        if slot.pins == 0:
            self.free.remove(slot)
        slot.pins += 1

    def take(self) -> Slot:
        slot = self.free.pop(0)
        slot.key, slot.tail, slot.pins, slot.dead = None, (), 1, False
        return slot

    def unpin(self, slot: Slot) -> None:
        slot.pins -= 1
        if slot.pins == 0:
            self.free.insert(len(self.free) if slot.key else 0, slot)

    def drop(self, slot: Slot) -> None:
        slot.key, slot.tail = None, ()
        if slot.pins == 0:
            self.free.remove(slot)
            self.free.insert(0, slot)


@dataclass(eq=False)
class Opened:
    history: History
    scope: Scope
    full: list[Slot]
    fresh: int
    tail: Slot | None
    source: Slot | None


class PagesMachine(RuleBasedStateMachine):
    @initialize(pages=st.integers(4, 6), tails=st.integers(2, 3))
    def build(self, pages: int, tails: int) -> None:
        self.bytes: dict[tuple[str, int], list[Prefix | None]] = {
            (kind, number): [None] * SIZE
            for kind, count in (("full", pages), ("tail", tails))
            for number in range(count + 1)
        }
        self.pages = Pages(PageConfig(pages, tails, SIZE, LONGEST), self.erase)
        self.full, self.tails = Reference(pages), Reference(tails)
        self.past: dict[str, list[bytes]] = {user: [] for user in USERS}
        self.opened: list[Opened] = []

    def erase(self, kind: str, page: int) -> None:
        self.bytes[kind, page] = [None] * SIZE

    @rule(user=st.sampled_from(USERS), new=NEW)
    def acts_and_is_served(self, user: str, new: list[bytes]) -> None:
        self.past[user] += new
        self.opens(user, "m@1", "ok")

    @rule(user=st.sampled_from(USERS), new=NEW, outcome=st.sampled_from(["hold", "abort"]))
    def acts_and_waits(self, user: str, new: list[bytes], outcome: str) -> None:
        self.past[user] += new
        if len(self.opened) == 3:
            self.finish(self.opened[0], writes=True)
        self.opens(user, "m@1", outcome)

    @rule(user=st.sampled_from(USERS), at=st.integers(0, 11), event=st.sampled_from([b"x", b"y", b""]))
    def comes_late_or_is_deleted(self, user: str, at: int, event: bytes) -> None:
        history = self.past[user]
        if event:
            history.insert(min(at, len(history)), event)
        elif at < len(history):
            del history[at]

    @rule(user=st.sampled_from(USERS), model=st.sampled_from(MODELS), outcome=OUTCOME)
    def opens(self, user: str, model: str, outcome: str) -> None:
        scope, events = Scope(model, "s", "int8", user), list(self.past[user])
        expected = self.reference_open(scope, events)
        try:
            history = self.pages.open(scope, events)
        except PagesBusy:
            assert expected is None
            return
        assert expected is not None
        full, fresh, tail, source, cached = expected
        assert history.layout.cached == cached and history.layout.fresh == fresh
        self.check_content(history, scope)
        opened = Opened(history, scope, full, fresh, tail, source)
        self.opened.append(opened)
        if outcome == "ok":
            self.finish(opened, writes=True)
        elif outcome == "abort":
            self.finish(opened, writes=False)

    @precondition(lambda self: len(self.opened) > 0)
    @rule(which=st.integers(0, 9), writes=st.sampled_from([True, True, False]))
    def ends(self, which: int, writes: bool) -> None:
        self.finish(self.opened[which % len(self.opened)], writes)

    @rule(user=st.sampled_from(USERS))
    def is_forgotten(self, user: str) -> None:
        self.pages.forget(user)
        for reference, held in ((self.full, "full"), (self.tails, "tails")):
            order = [page for page in getattr(self.pages, held).pages if page.user == user]
            assert all(page.pins and page.name is None for page in order)
            for slot in self.owned(reference, user):
                slot.dead = slot.pins > 0
        self.realign()

    @rule(model=st.sampled_from(MODELS))
    def is_retired(self, model: str) -> None:
        self.pages.retire(model)
        for reference in (self.full, self.tails):
            for slot in reference.all:
                if slot.key is not None and slot.key[0].model == model:
                    slot.key, slot.tail = None, ()
        self.realign()

    @invariant()
    def is_whole(self) -> None:
        self.pages.check_integrity()

    @invariant()
    def agrees_with_the_reference(self) -> None:
        assert self.found("full", self.pages.full) == [slot.key for slot in self.full.free]
        assert self.found("tail", self.pages.tails) == [slot.key for slot in self.tails.free]

    @invariant()
    def no_byte_of_a_user_lies_in_another_ones_page_and_the_trash_stays_empty(self) -> None:
        for kind, table in (("full", self.pages.full), ("tail", self.pages.tails)):
            assert self.bytes[kind, TRASH] == [None] * SIZE
            for page in table.pages:
                assert {entry[0].user for entry in self.bytes[kind, page.id] if entry} <= {page.user}

    def teardown(self) -> None:
        if not hasattr(self, "pages"):
            return
        for opened in list(self.opened):
            self.finish(opened, writes=False)
        for user in USERS:
            self.pages.forget(user)
        self.pages.check_integrity()
        assert all(counts.pinned == counts.cached == 0 for counts in self.pages.counts().values())
        assert all(entry is None for entries in self.bytes.values() for entry in entries)

    def reference_open(
        self, scope: Scope, events: list[bytes]
    ) -> tuple[list[Slot], int, Slot | None, Slot | None, int] | None:
        start = 0
        while len(events) - start > LONGEST:
            start += LONGEST // 2
        window = tuple(events[start:])
        ends = range(SIZE, len(window) + 1, SIZE)
        found: list[Slot] = []
        for end in ends:
            slot = self.full.find((scope, start, window[:end]))
            if slot is None:
                break
            found.append(slot)
        rest = window[len(found) * SIZE :]
        source = self.tails.find((scope, start, window[: len(found) * SIZE]))
        shared = 0
        while source and shared < min(len(source.tail), len(rest), SIZE) and source.tail[shared] == rest[shared]:
            shared += 1
        if not shared:
            source = None
        reads = len(rest) < SIZE and 0 < shared == len(rest)
        fresh, fresh_tail = len(ends) - len(found), int(len(window) % SIZE > 0 and not reads)
        if fresh > sum(slot not in found for slot in self.full.free):
            return None
        if fresh_tail > sum(slot is not source for slot in self.tails.free):
            return None
        for slot in found:
            self.full.pin(slot)
        if source:
            self.tails.pin(source)
        full = found + [self.full.take() for _ in range(fresh)]
        tail = self.tails.take() if fresh_tail else source if reads else None
        return full, fresh, tail, source, len(found) * SIZE + shared

    def expected(self, history: History, scope: Scope, index: int) -> Prefix:
        return scope, history.layout.start, tuple(history.window[: index + 1])

    def check_content(self, history: History, scope: Scope) -> None:
        layout = history.layout
        ready = (len(layout.full) - layout.fresh) * SIZE
        for index in range(layout.cached):
            place = ("full", layout.full[index // SIZE]) if index < ready else ("tail", layout.source or TRASH)
            assert self.bytes[place][index % SIZE] == self.expected(history, scope, index)

    def write(self, opened: Opened) -> None:
        layout = opened.history.layout
        for index in range((len(layout.full) - layout.fresh) * SIZE, layout.tokens):
            place = ("full", layout.full[index // SIZE]) if index // SIZE < len(layout.full) else ("tail", layout.tail)
            assert place[1] is not None
            self.bytes[place[0], place[1]][index % SIZE] = self.expected(opened.history, opened.scope, index)

    def finish(self, opened: Opened, writes: bool) -> None:
        self.opened.remove(opened)
        with opened.history as history:
            self.check_content(history, opened.scope) if not opened.history.committed else None
            if writes:
                self.write(opened)
                history.commit()
                self.reference_commit(opened)
        for slot in {id(slot): slot for slot in (opened.tail, opened.source) if slot}.values():
            self.tails.unpin(slot)
        for slot in reversed(opened.full):
            self.full.unpin(slot)

    def reference_commit(self, opened: Opened) -> None:
        history, scope = opened.history, opened.scope
        start, window = history.layout.start, tuple(history.window)
        for number in range(len(opened.full) - opened.fresh, len(opened.full)):
            key = (scope, start, window[: (number + 1) * SIZE])
            if not self.full.find(key) and not opened.full[number].dead:
                opened.full[number].key = key
            old = self.tails.find((scope, start, window[: number * SIZE]))
            if old and self.full.find(key):
                self.tails.drop(old)
        if opened.tail and opened.tail is not opened.source and not opened.tail.dead:
            key, events = (scope, start, window[: len(opened.full) * SIZE]), window[len(opened.full) * SIZE :]
            old = self.tails.find(key)
            if old and old.tail[: len(events)] != events:
                self.tails.drop(old)
            if not self.tails.find(key):
                opened.tail.key, opened.tail.tail = key, events

    def owned(self, reference: Reference, user: str) -> list[Slot]:
        mine = [slot for slot in reference.all if slot.key is not None and slot.key[0].user == user]
        for slot in mine:
            slot.key, slot.tail = None, ()
        in_use = [o for o in self.opened if o.scope.user == user]
        held = [slot for o in in_use for slot in (*o.full, o.tail, o.source) if slot is not None]
        return mine + [slot for slot in held if slot in reference.all]

    def realign(self) -> None:
        """Pages given up go to the head in any order among themselves; all that is left keeps its order."""
        for reference in (self.full, self.tails):
            reference.free.sort(key=lambda slot: slot.key is not None)

    def found(self, kind: str, table: PageTable) -> list[Prefix | None]:
        def key(page_id: int, tokens: int, named: bool) -> Prefix | None:
            entry = self.bytes[kind, page_id][tokens - 1]
            if not named or entry is None:
                return None
            return entry if kind == "full" else (entry[0], entry[1], entry[2][: len(entry[2]) // SIZE * SIZE])

        return [key(page.id, page.tokens, page.name is not None) for page in table.free]


PagesMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestPages = PagesMachine.TestCase
