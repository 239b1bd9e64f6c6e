"""Encoded histories: what is reused, what is pinned, what leaves, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.inference.memory_errors import HistoryTooLong, InvalidSize, LeaseError
from ranker.inference.page_hash import Scope, chain, names, root, window_start
from ranker.inference.page_list import Page, PageList
from ranker.inference.pages import TRASH, History, PageConfig, Pages, PagesBusy

ANN = Scope("m@1", "f00d", "int8", "ann")
BOB = replace(ANN, user="bob")
CONFIG = PageConfig(pages=6, tails=4, page_tokens=4, longest=16)


def events(count: int, first: int = 0) -> list[bytes]:
    return [b"e%d" % number for number in range(first, first + count)]


@pytest.fixture
def erased() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def pages(erased: list[tuple[str, int]]) -> Iterator[Pages]:
    made = Pages(CONFIG, lambda kind, page: erased.append((kind, page)))
    yield made
    made.check_integrity()
    assert made.open_histories == 0
    assert {counts.pinned for counts in made.counts().values()} == {0}


def encode(pages: Pages, scope: Scope, history: list[bytes]) -> History:
    with pages.open(scope, history) as opened:
        opened.commit()
    return opened


def cached(pages: Pages, scope: Scope, history: list[bytes]) -> int:
    return len(history) - pages.new_tokens(scope, history)


def test_only_new_events_are_to_be_encoded(pages: Pages) -> None:
    assert list(encode(pages, ANN, events(10)).new) == events(10)
    again = encode(pages, ANN, events(11))
    assert list(again.new) == events(1, 10)
    assert (again.layout.cached, again.layout.fresh) == (10, 0)
    assert list(encode(pages, ANN, events(11)).new) == []


def test_the_layout_says_where_to_read_and_where_to_write(pages: Pages) -> None:
    first = encode(pages, ANN, events(10)).layout
    assert (len(first.full), first.fresh, first.tail_tokens, first.source) == (2, 2, 2, None)
    grown = encode(pages, ANN, events(11)).layout
    assert grown.full == first.full and grown.tail != first.tail
    assert (grown.source, grown.source_tokens, grown.tail_tokens) == (first.tail, 2, 3)
    filled = encode(pages, ANN, events(12)).layout
    assert (filled.full[:2], filled.fresh, filled.tail, filled.source_tokens) == (first.full, 1, None, 3)
    assert TRASH not in (*filled.full, first.tail, grown.tail)


def test_a_history_without_new_events_is_read_in_place(pages: Pages) -> None:
    encode(pages, ANN, events(10))
    with pages.open(ANN, events(10)) as one, pages.open(ANN, events(9)) as two:
        assert one.layout.tail == one.layout.source == two.layout.tail == two.layout.source
        assert (one.layout.tail_tokens, two.layout.tail_tokens) == (2, 1)
        assert (list(one.new), list(two.new)) == ([], [])


def test_an_empty_history_holds_nothing(pages: Pages) -> None:
    with pages.open(ANN, []) as history:
        assert (history.layout.full, history.layout.tail, list(history.new)) == ((), None, [])
        history.commit()


@pytest.mark.parametrize(
    ("changed", "reused"),
    [
        pytest.param([b"late", *events(10)], 0, id="late at the front"),
        pytest.param([*events(5), b"late", *events(5, 5)], 4, id="late in the second page"),
        pytest.param([*events(9), b"late", *events(1, 9)], 9, id="late in the tail"),
        pytest.param([*events(3), *events(6, 4)], 0, id="deleted from the first page"),
        pytest.param(events(9), 9, id="the last one deleted"),
        pytest.param(events(4), 4, id="cut to a page"),
        pytest.param(events(3), 0, id="cut within a page, whose exact entries are gone"),
    ],
)
def test_a_late_or_deleted_event_is_a_miss_from_there_on(pages: Pages, changed: list[bytes], reused: int) -> None:
    encode(pages, ANN, events(10))
    assert cached(pages, ANN, changed) == reused


@pytest.mark.parametrize("field", ["model", "schema", "scheme", "user"])
def test_scopes_share_nothing(pages: Pages, field: str) -> None:
    encode(pages, ANN, events(10))
    assert cached(pages, replace(ANN, **{field: "other"}), events(10)) == 0
    assert cached(pages, ANN, events(10)) == 10


def test_the_window_restarts_at_multiples_of_half_its_length(pages: Pages) -> None:
    assert [window_start(n, 16) for n in (0, 16, 17, 24, 25, 32, 33)] == [0, 0, 8, 8, 16, 16, 24]
    encode(pages, ANN, events(16))
    moved = encode(pages, ANN, events(17))
    assert (moved.layout.start, moved.layout.tokens, moved.layout.cached) == (8, 9, 0)
    assert encode(pages, ANN, events(18)).layout.cached == 9


@given(st.integers(0, 5000), st.integers(1, 300).map(lambda half: 2 * half))
def test_the_window_keeps_between_half_and_all_of_its_length(total: int, longest: int) -> None:
    start = window_start(total, longest)
    kept = total - start
    assert kept == total if total <= longest else longest // 2 <= kept <= longest
    assert window_start(total + 1, longest) in (start, start + longest // 2)


def test_only_the_window_has_to_be_given_when_the_total_is(pages: Pages) -> None:
    encode(pages, ANN, events(20))
    with pages.open(ANN, events(12, 8), total=20) as history:
        assert (history.layout.start, history.layout.cached) == (8, 12)
    with pytest.raises(InvalidSize, match="11 events do not cover the window 8 to 20"):
        pages.open(ANN, events(11, 9), total=20)
    with pytest.raises(InvalidSize, match="total"):
        pages.open(ANN, events(1), total=-1)


@pytest.mark.parametrize("bad", ["text", 7, None])
def test_an_event_that_is_not_bytes_is_named(pages: Pages, bad: Any) -> None:
    with pytest.raises(InvalidSize, match="must be bytes"):
        pages.open(ANN, [b"x", bad])


def test_what_was_not_committed_is_not_found(pages: Pages) -> None:
    with pytest.raises(RuntimeError), pages.open(ANN, events(10)):
        raise RuntimeError("the model failed")
    assert pages.counts()["full"].empty == CONFIG.pages and pages.counts()["tail"].empty == CONFIG.tails
    assert cached(pages, ANN, events(10)) == 0


def test_an_abort_keeps_what_was_there_before(pages: Pages) -> None:
    encode(pages, ANN, events(10))
    with pytest.raises(RuntimeError), pages.open(ANN, events(15)):
        raise RuntimeError("the model failed")
    assert cached(pages, ANN, events(15)) == 10


def test_twins_of_one_user_in_a_batch_neither_share_unwritten_pages_nor_leak(pages: Pages) -> None:
    with pages.open(ANN, events(6)) as one, pages.open(ANN, events(6)) as two:
        assert not set(one.layout.full) & set(two.layout.full) and one.layout.tail != two.layout.tail
        assert two.layout.cached == 0
        one.commit()
        two.commit()
    assert pages.counts()["full"].cached == 1 and pages.counts()["tail"].cached == 1
    assert cached(pages, ANN, events(6)) == 6


def test_the_least_recently_used_leaves_first_and_a_history_from_its_end(pages: Pages) -> None:
    encode(pages, ANN, events(12))
    encode(pages, BOB, events(12))
    encode(pages, ANN, events(12))
    encode(pages, replace(ANN, user="cid"), events(4))  # needs one page: bob's last
    assert (cached(pages, BOB, events(12)), cached(pages, ANN, events(12))) == (8, 12)


def test_pages_in_use_are_never_evicted_and_the_answer_is_busy(pages: Pages) -> None:
    encode(pages, BOB, events(16))
    with pages.open(ANN, events(12)) as history:
        history.commit()
        with pytest.raises(PagesBusy, match="4 full pages needed, 3 not in use") as caught:
            pages.open(replace(ANN, user="cid"), events(16))
        assert (caught.value.needed, caught.value.evictable) == (4, 3)
        pages.check_integrity()
        with pages.open(BOB, events(16)[:12]) as other:  # fits exactly: three found, none fresh
            assert other.layout.cached == 12
    assert pages.stats.busy == 1


def test_pages_found_do_not_count_as_evictable(pages: Pages) -> None:
    encode(pages, ANN, events(12))
    with pages.open(BOB, events(12)), pytest.raises(PagesBusy, match="1 full pages needed, 0 not in use"):
        pages.open(ANN, events(16))
    assert cached(pages, ANN, events(12)) == 12


def test_busy_for_want_of_a_tail_pins_nothing(pages: Pages) -> None:
    held = [pages.open(replace(ANN, user=name), events(1)) for name in ("a", "b", "c", "d")]
    with pytest.raises(PagesBusy, match="1 tail pages needed, 0 not in use"):
        pages.open(ANN, events(5))
    assert pages.counts()["full"].pinned == 0
    for history in held:
        history.release()


def test_a_history_longer_than_the_arena_is_refused_at_admission() -> None:
    small = Pages(PageConfig(pages=3, tails=2, page_tokens=4, longest=16))
    small.require(15)
    for total in (16, 24):
        with pytest.raises(HistoryTooLong, match="fills 4 pages, the arena has 3"):
            small.require(total)
    with pytest.raises(HistoryTooLong):
        small.open(ANN, events(16))
    small.require(17)  # the window moved: 9 events


def test_any_history_that_is_admitted_fits_when_nothing_else_is_in_use() -> None:
    small = Pages(PageConfig(pages=4, tails=2, page_tokens=4, longest=16))
    for total in [*range(40), *range(40, 0, -1)]:
        encode(small, ANN, events(total))
        small.check_integrity()


def test_a_forgotten_user_is_erased_at_once_and_shares_nothing_with_others(
    pages: Pages, erased: list[tuple[str, int]]
) -> None:
    ann = encode(pages, ANN, events(10)).layout
    encode(pages, BOB, events(10))
    assert pages.forget("ann") == 3
    assert sorted(erased) == sorted([*(("full", page) for page in ann.full), ("tail", ann.tail)])
    assert (cached(pages, ANN, events(10)), cached(pages, BOB, events(10))) == (0, 10)
    assert pages.forget("nobody") == 0


def test_a_user_forgotten_while_in_use_is_erased_at_the_release_and_not_published(
    pages: Pages, erased: list[tuple[str, int]]
) -> None:
    encode(pages, ANN, events(10))
    with pages.open(ANN, events(14)) as history:
        pages.forget("ann")
        assert erased == []
        history.commit()
    assert {("full", page) for page in history.layout.full} <= set(erased)
    assert {("tail", history.layout.tail), ("tail", history.layout.source)} <= set(erased)
    assert cached(pages, ANN, events(14)) == 0


def test_a_page_is_erased_before_it_goes_to_another_user(pages: Pages, erased: list[tuple[str, int]]) -> None:
    first = encode(pages, ANN, events(16)).layout
    encode(pages, BOB, events(16))
    assert len(erased) == 2 and {page for _, page in erased} <= set(first.full)


def test_a_retired_version_gives_its_pages_up_first(pages: Pages) -> None:
    new = replace(ANN, model="m@2")
    encode(pages, ANN, events(9))
    encode(pages, new, events(9))
    assert pages.retire("m@1") == 3
    assert pages.counts()["full"].empty == 4
    assert (cached(pages, ANN, events(9)), cached(pages, new, events(9))) == (0, 9)


def test_counts_are_by_state(pages: Pages) -> None:
    encode(pages, ANN, events(10))
    with pages.open(BOB, events(5)):
        full, tail = pages.counts()["full"], pages.counts()["tail"]
        assert (full.pinned, full.cached, full.empty, full.tokens) == (1, 2, 3, 12)
        assert (tail.pinned, tail.cached, tail.empty, tail.tokens) == (1, 1, 2, 3)


def test_a_history_is_released_once_and_not_committed_afterwards(pages: Pages) -> None:
    history = pages.open(ANN, events(3))
    history.release()
    for late in (history.release, history.commit):
        with pytest.raises(LeaseError):
            late()


@pytest.mark.parametrize(
    "fields",
    [{"pages": -1}, {"tails": 1}, {"page_tokens": 0}, {"longest": 15}, {"longest": 0}, {"pages": 2.5}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_config_that_cannot_be_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSize, match=next(iter(fields))):
        replace(CONFIG, **fields)


def test_names_tell_apart_what_joins_to_the_same_bytes() -> None:
    start = root(ANN, 0)
    assert chain(start, [b"ab", b"c"]) != chain(start, [b"a", b"bc"])
    assert root(Scope("a", "bc", "x", "y"), 0) != root(Scope("ab", "c", "x", "y"), 0)
    assert len({root(ANN, 0), root(ANN, 8), root(BOB, 0)}) == 3
    assert names(ANN, 0, events(9), 4) == [start, one := chain(start, events(4)), chain(one, events(4, 4))]


def test_the_free_list_finds_a_broken_link() -> None:
    listed, page = PageList(), Page(1)
    listed.push_last(page)
    listed.check_integrity()
    page.before = page
    with pytest.raises(AssertionError, match="broken link"):
        listed.check_integrity()
