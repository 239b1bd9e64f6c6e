"""The contract of every feature family, and what single columns say, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from features import registry, rows
from features.catalogue import ActionSpec
from features.definitions.family import Family, dense_rank
from features.definitions.match import local_clock
from features.definitions.text import text_columns
from features.events import Context
from features.known import Known, Moment
from features.population import Population
from features.registry import COLUMNS, FEATURES, FINGERPRINT, vectors
from features.rows import Done, SessionRow, Token, User
from features.situation import situation_keys
from features.state import RowSet, State
from tests.features.streams import ACTIONS, START_S, EventStream

YEARS_S = 10 * 365 * 86400.0
PAIRS = tuple((action, target) for action in (*ACTIONS, "unknown") for target in (None, "image:1", "gone:9"))


def context(**fields: Any) -> Context:
    return msgspec.convert(fields, Context)


BUSY = context(
    surface="chat",
    locale="en-GB",
    timezone="Europe/Berlin",
    text="share it",
    entities=[{"id": "1", "type": "image", "time": "2023-11-14T00:00:00Z"}, {"id": "2", "type": "link"}],
    trigger={"type": "said"},
    fields={"mood": "good", "list": ["x"]},
)


@cache
def history() -> tuple[State, RowSet]:
    state, rowset = State(), RowSet()
    for offset, event in enumerate(EventStream(11, users=2).take(800)):
        state.apply(offset, event, rowset)
    return state, rowset


def busy() -> Moment:
    """A user and a session with a past, in a context with everything."""
    state, rowset = history()
    user = next(row for row in rowset.rows.values() if isinstance(row, User))
    session = max((row for row in rowset.rows.values() if isinstance(row, SessionRow)), key=lambda row: row.events)
    scores = np.random.default_rng(0).normal(-3.0, 1.0, len(PAIRS))
    scores[::5] = np.nan
    return moment(Known(state.population.at(), user, session, 800), scores=scores)


def moment(
    known: Known | None = None,
    where: Context = BUSY,
    pairs: Sequence[tuple[str, str | None]] = PAIRS,
    now_s: float = START_S + 1e5,
    scores: Any = None,
) -> Moment:
    actions, targets = [action for action, _ in pairs], [target for _, target in pairs]
    specs = [history()[0].catalogue.get(action) for action in actions]
    known = known or Known(Population().at())
    return Moment(now_s, "u1", where, known, tuple(actions), tuple(targets), tuple(specs), scores)


def rearranged(source: Moment, order: Sequence[int]) -> Moment:
    return Moment(
        source.now_s,
        source.user,
        source.context,
        source.known,
        tuple(source.actions[row] for row in order),
        tuple(source.targets[row] for row in order),
        tuple(source.specs[row] for row in order),
        None if source.text_scores is None else source.text_scores[list(order)],
    )


SITUATIONS: dict[str, Moment] = {
    "a busy user": busy(),
    "nobody and nothing": moment(where=Context()),
    "an empty user and session": moment(Known(Population().at(), User(), SessionRow())),
    "ten years ahead": replace(busy(), now_s=START_S + YEARS_S, _gathered={}),
    "ten years ago": replace(busy(), now_s=START_S - YEARS_S, _gathered={}),
    "1970": replace(busy(), now_s=0.0, _gathered={}),
    "the end of 9999 in the east": replace(
        busy(), now_s=253_402_300_799.0, context=context(timezone="Pacific/Kiritimati"), _gathered={}
    ),
    "one candidate": rearranged(busy(), [3]),
    "candidates that come twice": rearranged(busy(), [0, 1, 0, 0, 2, 1]),
    "a thousand candidates": moment(
        busy().known, pairs=[(f"a{number % 700}", f"image:{number}") for number in range(1000)]
    ),
    "no text score at all": replace(busy(), text_scores=np.full(len(PAIRS), np.nan), _gathered={}),
}


@pytest.mark.parametrize("family", FEATURES, ids=lambda family: family.name)
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_family_gives_one_finite_or_missing_value_per_candidate_and_column(name: str, family: Family) -> None:
    found = family.read(SITUATIONS[name])
    assert found.shape == (len(SITUATIONS[name].actions), len(family.columns))
    assert not np.isinf(found).any()
    assert np.isfinite(found.astype(np.float32)[~np.isnan(found)]).all()


@pytest.mark.parametrize("family", FEATURES, ids=lambda family: family.name)
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_candidates_values_do_not_depend_on_its_place(name: str, family: Family) -> None:
    source = SITUATIONS[name]
    order = np.random.default_rng(1).permutation(len(source.actions)).tolist()
    assert np.array_equal(family.read(rearranged(source, order)), family.read(source)[order], equal_nan=True)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_same_moment_has_the_same_bits_and_the_same_after_its_rows_were_packed(name: str) -> None:
    source = SITUATIONS[name]
    user, session = source.known.user, source.known.session
    known = replace(
        source.known,
        user=None if user is None else User.unpack(user.pack()),
        session=None if session is None else rows.unpack_session(rows.pack(session)),
    )
    first = vectors(source)
    assert first.dtype == np.float32
    assert vectors(replace(source, _gathered={})).tobytes() == first.tobytes()
    assert vectors(replace(source, known=known, _gathered={})).tobytes() == first.tobytes()


def test_no_candidates_give_no_rows() -> None:
    assert vectors(moment(pairs=[])).shape == (0, len(COLUMNS))


def test_columns_have_names_of_their_own_and_families_too() -> None:
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert len({family.name for family in FEATURES}) == len(FEATURES)


@pytest.mark.parametrize(
    ("name", "value"),
    [("COLUMNS", (*COLUMNS, "one_more")), ("COLUMNS", COLUMNS[::-1]), ("SCHEMA_VERSION", 99), ("TABLES", ("surface",))],
)
def test_the_fingerprint_names_the_schema(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.fingerprint() == FINGERPRINT
    monkeypatch.setattr(registry, name, value)
    assert registry.fingerprint() != FINGERPRINT


def column(name: str, source: Moment) -> list[float]:
    found: list[float] = vectors(source)[:, COLUMNS.index(name)].astype(float).tolist()
    return found


def test_ranks_count_who_is_better() -> None:
    ranks = dense_rank(np.array([1.0, 3.0, np.nan, 3.0, 0.0]))
    assert ranks[[0, 1, 3, 4]].tolist() == [2.0, 0.0, 0.0, 3.0]
    assert np.isnan(ranks[2])


def test_text_columns_measure_against_the_best_known() -> None:
    found = text_columns(np.array([-1.0, np.nan, -3.0]), 3)
    expected = np.array([[-1, 0, 0], [np.nan] * 3, [-3, -2, 1]])
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isnan(text_columns(None, 4)).all()


def test_session_columns_by_hand() -> None:
    session = SessionRow(
        updated_s=90.0,
        events=3,
        actions=[Done(10.0, 0, "a"), Done(20.0, 1, "b"), Done(30.0, 2, "a")],
        tokens=[Token(10.0, 0, "+a"), Token(30.0, 2, "+a"), Token(30.0, 3, "said"), Token(90.0, 4, "said")],
    )
    source = moment(
        Known(Population().at(), None, session), pairs=[("a", None), ("b", None), ("c", None)], now_s=3690.0
    )
    assert column("session_done", source) == [2, 1, 0]
    assert column("session_steps_since_done", source)[:2] == [0, 1]
    assert math.isnan(column("session_steps_since_done", source)[2])
    assert column("session_hours_since_done", source)[:2] == pytest.approx(np.log1p([3660 / 3600, 3670 / 3600]))
    assert column("session_events_since_action", source) == [2, 2, 2]
    assert column("session_hours_since_event", source) == pytest.approx([math.log(2)] * 3)
    assert column("session_repeats_last", source) == [1, 0, 0]


def test_user_columns_by_hand() -> None:
    user = User()
    for kind, action in (("offered", "a"), ("offered", "a"), ("accepted", "a"), ("self", "b"), ("dismissed", "b")):
        user.counters.credit(kind, (action,), 7200.0)
    source = moment(
        Known(Population().at(), user), pairs=[("a", None), ("b", None), ("c", None)], now_s=7200.0 + 3600.0
    )
    assert column("user_offered", source) == pytest.approx([math.log(3), 0, 0])
    assert column("user_useful_share", source) == pytest.approx([1 / 3, 1 / 3, 0])
    assert column("user_accept_rate", source) == pytest.approx([1.5 / 7, 0.1, 0.1])
    assert column("user_useful_hour", source) == pytest.approx([math.log(1.5), math.log(1.5), 0])
    assert column("user_hours_since_offered", source)[0] == pytest.approx(math.log(2))
    assert math.isnan(column("user_hours_since_dismissed", source)[0])


def test_shares_of_a_context_by_hand() -> None:
    population = Population()
    for action, count in (("a", 3), ("b", 1)):
        for _ in range(count):
            population.credit([situation_keys(BUSY, None)["surface"]], "accepted", (action,), 1.0)
    source = moment(Known(population.at()), pairs=[("a", None), ("b", None)])
    assert column("surface_share", source) == pytest.approx(np.log([(3 + 1) / 6, (1 + 1) / 6]))
    assert column("surface_support", source) == pytest.approx([math.log(5)] * 2)
    assert all(map(math.isnan, column("trigger_share", source)))


def test_a_match_is_told_from_a_mismatch_and_from_nothing_asked() -> None:
    specs = (
        ActionSpec(surfaces=["chat"], locales=["en"], triggers=["said"], entity_types=["image", "link"]),
        ActionSpec(surfaces=["tv"], locales=["en-US", "e"], triggers=["x"], entity_types=["file"]),
        ActionSpec(),
        None,
    )
    source = replace(moment(pairs=[("a", None)] * 4), specs=specs, _gathered={})
    assert column("match_surface", source)[:2] == [1, 0]
    assert column("match_locale", source)[:2] == [1, 0]
    assert column("match_trigger", source)[:2] == [1, 0]
    assert column("match_entities", source)[:2] == [2, 0]
    assert column("match_needs_target", source) == [1, 1, 0, 0]
    assert np.isnan(
        vectors(source)[2:, [COLUMNS.index(f"match_{name}") for name in ("surface", "locale", "entities")]]
    ).all()


def test_the_clock_is_the_users_own_and_odd_zones_are_utc() -> None:
    saturday_noon_s = 1_717_243_200.0
    assert local_clock(saturday_noon_s, None) == pytest.approx((0.0, -1.0, 1.0), abs=1e-12)
    assert local_clock(saturday_noon_s, "Asia/Kolkata")[0] == pytest.approx(math.sin(2 * math.pi * 17.5 / 24))
    for odd in ("nowhere", "../../etc/passwd", "Europe", "a\x00b", "\ud800", "x" * 256, "/etc/localtime", ""):
        assert local_clock(saturday_noon_s, odd) == local_clock(saturday_noon_s, None)
