"""What of a log serves, and what is named, counted and left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from features.events import Event
from features.log import partition_folder
from features.registry import FINGERPRINT
from ranker.propensity import Exploration, slot_propensities
from tests.training.logs import answered, catalogue, forget, write_log
from tests.training.off_policy.small import accepted, drawn
from training.off_policy.errors import OffPolicyError
from training.off_policy.gather import gather, read_view
from training.off_policy.gathered import Gathered
from training.off_policy.targets import Uniform


def gathered(folder: Path, events: Sequence[Event], exploration: Exploration | None = None) -> Gathered:
    log = write_log(folder / "log", [*catalogue("abcd"), *events])
    return gather(log, Uniform(), exploration or Exploration())


@pytest.mark.parametrize(
    ("propensity", "reason"),
    [
        (None, "propensity_missing"),
        (0.0, "propensity_zero"),
        (1.5, "propensity_above_one"),
        (-0.1, "propensity_negative"),
    ],
    ids=str,
)
def test_a_propensity_that_is_none_rejects_its_ranking(propensity: float | None, reason: str, tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "a", [propensity]), drawn("2", 1, "b", [0.4])])
    assert found.rejected == {reason: 1} and len(found.slates) == 1


def test_nan_cannot_stand_in_a_log_but_is_rejected_where_it_does(tmp_path: Path) -> None:
    from training.off_policy.offers import wrong_propensity

    item = drawn("1", 0, "a", [float("nan")]).items[0]
    assert wrong_propensity(item) == "propensity_not_finite"
    # JSON has no NaN: the writer makes it null.
    assert gathered(tmp_path, [drawn("1", 0, "a", [float("nan")]), drawn("2", 1, "b", [0.4])]).rejected == {
        "propensity_missing": 1
    }


def test_one_bad_slot_rejects_the_whole_list(tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "ab", [0.5, None]), drawn("2", 1, "ab", [0.5, 0.4])])
    assert found.rejected == {"propensity_missing": 1}


def test_only_both_branches_of_the_draw_are_judged_and_the_rest_is_counted_by_type(tmp_path: Path) -> None:
    kinds = ("live", "explore", "holdout", "shadow", "replay", "probe", "probe")
    events = [drawn(str(number), number, "a", [0.4], traffic=kind) for number, kind in enumerate(kinds)]
    found = gathered(tmp_path, events)
    assert found.used == {"live": 1, "explore": 1}
    assert found.excluded == {"holdout": 1, "shadow": 1, "replay": 1, "probe": 2}


def test_lists_that_cannot_serve_are_named(tmp_path: Path) -> None:
    from features.events import RankedItem

    twice = drawn("6", 5, "a", [0.5], pool=[("a", None, 1.0), ("a", None, 0.5)])
    holes = drawn("4", 3, "a", [0.5])
    hole = RankedItem(action="b", position=3, propensity=0.5)
    events = [
        drawn("1", 0, "", []),
        drawn("2", 1, "a", [0.5], pool=None),
        drawn("3", 2, "z", [0.5]),
        msgspec.structs.replace(holes, items=[*holes.items, hole]),
        drawn("5", 4, "ab", [0.5, 0.5], first=2),
        twice,
        drawn("7", 6, "b", [0.5]),
    ]
    assert gathered(tmp_path, events).rejected == {
        "empty_list": 1,
        "pool_missing": 1,
        "shown_not_in_pool": 2,
        "positions_missing": 2,
    }


def test_what_was_deleted_after_the_draw_could_not_have_been_shown(tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "b", [0.5], deleted=[0, 3])])
    assert found.slates.target.tolist() == [[0.5]]


def test_a_single_action_may_stand_at_any_position(tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "b", [0.5], first=3)])
    assert found.slates.target.tolist() == [[0.25]] and found.pools.positions.tolist() == [3]


def test_rewards_are_those_of_the_labels(tmp_path: Path) -> None:
    events = [drawn(str(number), number, "ab", [0.5, 0.5]) for number in range(4)]
    then = [
        answered("0", "complete", 60, "a", "u-0"),
        answered("1", "accept", 61, "b", "u-1"),
        answered("2", "dismiss", 62, "a", "u-2"),
        answered("3", "accept", 63, "a", "u-3"),
        answered("3", "undo", 65, "a", "u-3"),
        answered("9", "accept", 66, "a", "u-9"),
    ]
    rewards = gathered(tmp_path, [*events, *then]).slates.rewards
    assert rewards["completions"].tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    assert rewards["accepts"].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]], "an accident is no accept"
    assert rewards["dismissals"].tolist() == [[0, 0], [0, 0], [1, 0], [0, 0]]
    assert rewards["usefulness"].tolist() == [[2, 0], [0, 1], [-1, 0], [0, 0]]
    view = read_view(tmp_path / "log")
    assert view.labels.counts["orphan_feedback"] == 1


def test_lists_of_different_length_are_padded_with_what_changes_nothing(tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "abc", [0.5, 0.4, 0.3]), drawn("2", 1, "d", [0.2])]).slates
    assert found.shown.tolist() == [[True] * 3, [True, False, False]]
    assert found.logged[1].tolist() == [0.2, 1.0, 1.0] and found.target[1].tolist() == [0.25, 1.0, 1.0]
    assert found.prefix[1] == pytest.approx([1.25] * 3)
    assert found.target[0] == pytest.approx([1 / 4, 1 / 3, 1 / 2])


def test_a_ranking_logged_twice_counts_once(tmp_path: Path) -> None:
    event = drawn("1", 0, "a", [0.5])
    assert len(gathered(tmp_path, [event, event]).slates) == 1


def test_nothing_is_known_of_whom_was_forgotten(tmp_path: Path) -> None:
    events: list[Event] = [drawn("1", 0, "a", [0.5]), drawn("2", 1, "b", [0.5]), forget(5.0, "u-1")]
    found = gathered(tmp_path, events)
    assert found.rejected == {"forgotten": 1} and len(found.slates) == 1


def test_of_several_schemas_only_this_programs_is_judged_and_the_rest_is_counted(tmp_path: Path) -> None:
    ours = drawn("1", 0, "a", [0.5], versions={"schema": FINGERPRINT})
    older = drawn("2", 1, "a", [0.5], versions={"schema": "0ld"})
    found = gathered(tmp_path, [ours, older])
    assert found.rejected == {"schema:0ld": 1} and len(found.slates) == 1


def test_several_schemas_of_which_none_is_this_programs_are_refused_by_name(tmp_path: Path) -> None:
    events = [drawn(name, 0, "a", [0.5], versions={"schema": name}) for name in ("one", "two")]
    with pytest.raises(OffPolicyError, match=r"1 of one, 1 of two"):
        gathered(tmp_path, events)


def test_a_line_cut_in_the_middle_is_counted_and_the_rest_serves(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", [*catalogue("abcd"), drawn("1", 0, "a", [0.5]), drawn("2", 1, "b", [0.5])])
    (segment,) = partition_folder(log).glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:-1], lines[-1][: len(lines[-1]) // 2]]))
    view = read_view(log)
    assert view.problems.counts["torn_line"] == 1
    assert len(gather(log, Uniform(), view=view).slates) == 1


def test_a_log_without_a_usable_ranking_says_why(tmp_path: Path) -> None:
    events = [drawn("1", 0, "a", [None]), drawn("2", 0, "a", [0.5], traffic="shadow")]
    with pytest.raises(OffPolicyError, match=r"no ranking to judge by.*propensity_missing': 1.*traffic shadow': 1"):
        gathered(tmp_path, events)


def test_slices_go_by_context_and_by_whether_the_user_was_seen(tmp_path: Path) -> None:
    from features.events import Context

    contexts = [Context(surface="chat", fields={"_domain": "bank", "mood": "good"}), Context(locale="en")]
    events = [drawn(str(place), place, "a", [0.5], user="u", context=each) for place, each in enumerate(contexts)]
    found = gathered(tmp_path, events)
    assert {name: rows.tolist() for name, rows in found.slices.items()} == {
        "surface=chat": [0],
        "user=new": [0],
        "domain=bank": [0],
        "locale=en": [1],
        "user=known": [1],
    }
    assert set(found.pools.words) == {"surface=chat", "mood=good", "locale=en"}


def test_the_log_of_a_known_draw_tells_the_chance_of_each_slot_by_itself(tmp_path: Path) -> None:
    exploration = Exploration(0.5, 2.0)
    utilities = exploration.utilities(np.array([4.0, 3.0, 2.0, 1.0]))
    greedy = drawn("1", 0, "ab", slot_propensities(utilities, 2, 0.5, 2).tolist(), traffic="live")
    other = drawn("2", 1, "ba", slot_propensities(utilities[[1, 0, 2, 3]], 0, 0.5, 2).tolist())
    found = gathered(tmp_path, [greedy, other], exploration)
    alone = found.slates.logged_alone
    assert alone is not None and alone[0, 0] > 0.5 > alone[1, 0]
    shares = np.exp(utilities) / np.exp(utilities).sum()
    second = sum(shares[above] * shares[0] / (1 - shares[above]) for above in (1, 2, 3))
    assert alone[1, 1] == pytest.approx(0.5 * second)
    assert found.notes["propensities_not_of_these_scores"] == 0


def test_where_propensities_follow_from_another_draw_that_chance_is_not_known(tmp_path: Path) -> None:
    found = gathered(tmp_path, [drawn("1", 0, "ab", [0.3, 0.3])], Exploration(0.5))
    assert found.slates.logged_alone is None and found.notes["propensities_not_of_these_scores"] == 1


def test_rankings_whose_feedback_may_still_come_are_counted(tmp_path: Path) -> None:
    days = 3 * 86400.0
    events = [drawn("1", 0, "a", [0.5]), drawn("2", days, "a", [0.5])]
    assert gathered(tmp_path, [*events, accepted(events[1], "a")]).notes["unsettled"] == 1


def test_the_uniform_target_ignores_the_scores() -> None:
    from training.off_policy.offers import offer_of

    offer = offer_of(drawn("1", 0, "ca", [0.5, 0.5]))
    assert not isinstance(offer, str)
    chances = Uniform().chances(offer)
    assert chances.given == pytest.approx(np.array([[0.25] * 4, [1 / 3, 1 / 3, 0.0, 1 / 3]]))
    assert chances.alone == pytest.approx(np.full((2, 4), 0.25))
    assert replace(Uniform(), name="x").name == "x"
