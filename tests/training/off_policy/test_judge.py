"""When a number is shown, and what is said instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.events import Context, Event
from ranker.propensity import Exploration
from tests.training.logs import catalogue, write_log
from tests.training.off_policy.small import accepted, drawn
from training import simulate
from training.off_policy.errors import OffPolicyError
from training.off_policy.gather import gather
from training.off_policy.judge import NOT_ENOUGH, JudgeConfig, Judgement, judge
from training.off_policy.targets import Uniform
from training.simulate import Popularity, Shuffled, Simulator

CONFIG = JudgeConfig(draws=200)
SHARES = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
RATES = {"a": 0.5, "b": 0.2, "c": 0.6, "d": 0.3}
Users = Callable[[int], str]


def judged(
    folder: Path,
    rows: int = 1500,
    shares: dict[str, float] = SHARES,
    useful: bool | None = None,
    user: Users = "u{}".format,
) -> tuple[Judgement, dict[str, Judgement]]:
    """Single actions drawn by their shares; some are accepted by their rates, or all, or none."""
    rng = np.random.default_rng(0)
    events: list[Event] = []
    for number in range(rows):
        action = str(rng.choice(list(shares), p=list(shares.values())))
        surface = "chat" if number % 10 else "mail"
        context = Context(surface=surface)
        event = drawn(str(number), float(number), action, [shares[action]], user=user(number), context=context)
        events.append(event)
        if (rng.random() < RATES[action]) if useful is None else useful:
            events.append(accepted(event, action))
    log = write_log(folder / "log", [*catalogue("abcd"), *events])
    return judge(gather(log, Uniform()), CONFIG)


def test_every_estimator_finds_the_truth_and_every_reward_is_apart(tmp_path: Path) -> None:
    whole, _ = judged(tmp_path)
    assert whole.enough and (whole.slates, whole.users, whole.slots, whole.arms) == (1500, 1500, 1, 4)
    found = whole.rewards["usefulness"]
    assert list(found.estimates) == ["ips", "snips", "clipped", "dm", "dr", "dr-shrinkage"]
    truth = np.mean(list(RATES.values()))
    for name, shown in found.estimates.items():
        if name != "dm":
            assert shown.low is not None and shown.high is not None and shown.low < truth < shown.high
    assert found.logged is not None and found.logged.value == pytest.approx(0.41, abs=0.04)
    assert found.estimates == whole.rewards["accepts"].estimates
    assert not whole.rewards["completions"].estimates


def test_thin_slices_refuse_and_others_do_not(tmp_path: Path) -> None:
    _, slices = judged(tmp_path)
    assert slices["surface=chat"].enough and not slices["surface=mail"].enough
    thin = slices["surface=mail"].rewards["usefulness"]
    assert [refusal.condition for refusal in thin.refusals] == ["effective_sample_size"]
    assert thin.estimates == {} and thin.not_shown["dm"] == thin.not_shown["ips"]
    assert thin.not_shown["ips"] == f"{NOT_ENOUGH}: effective_sample_size"


@pytest.mark.parametrize("useful", [False, True], ids=["none useful", "all useful"])
def test_a_reward_that_never_varies_is_refused(useful: bool, tmp_path: Path) -> None:
    whole, _ = judged(tmp_path, 400, useful=useful)
    found = whole.rewards["usefulness"]
    assert whole.verdict == NOT_ENOUGH and found.estimates == {}
    assert [(each.condition, each.figure) for each in found.refusals] == [("reward_varies", float(useful))]
    assert found.logged is not None and (found.logged.value, found.logged.low) == (float(useful), None)
    assert whole.overlap["prefix"].enough, "it is the reward, not the overlap"


def test_a_log_of_a_single_arm_is_refused(tmp_path: Path) -> None:
    whole, _ = judged(tmp_path, 400, {"a": 1.0})
    assert whole.arms == 1 and not whole.enough
    assert [each.condition for each in whole.rewards["usefulness"].refusals] == ["mean_weight"]


def test_one_user_is_refused(tmp_path: Path) -> None:
    whole, _ = judged(tmp_path, 400, user=lambda _: "u")
    assert whole.users == 1 and [each.condition for each in whole.rewards["usefulness"].refusals] == ["users"]


def test_a_propensity_next_to_nothing_is_refused_for_its_weight(tmp_path: Path) -> None:
    events: list[Event] = [drawn(str(n), float(n), "ab"[n % 2], [0.5]) for n in range(600)]
    events += [drawn("x", 700.0, "c", [5e-324]), accepted(drawn("1", 1.0, "b", [0.5]), "b")]
    log = write_log(tmp_path / "log", [*catalogue("abcd"), *events])
    whole, _ = judge(gather(log, Uniform()), CONFIG)
    assert [each.condition for each in whole.rewards["usefulness"].refusals] == ["weights_finite"]
    assert whole.overlap["prefix"].overflowed == 1


def test_of_lists_what_rests_on_the_whole_list_may_be_refused_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    events: list[Event] = []
    for number in range(2000):
        order = [str(each) for each in rng.permutation(list("abcd"))[:2]]
        event = drawn(str(number), float(number), "".join(order), [1 / 4, 1 / 3])
        events.append(event)
        if rng.random() < 0.3:
            events.append(accepted(event, order[rng.integers(2)]))
    log = write_log(tmp_path / "log", [*catalogue("abcd"), *events])
    found = gather(log, Uniform())
    whole, _ = judge(found, CONFIG)
    # The log's own draw is not known, so neither is the chance of a slot by itself.
    assert set(whole.overlap) == {"prefix", "joint"}
    reward = whole.rewards["usefulness"]
    assert "whatever is above it" in reward.not_shown["iips"]
    assert list(reward.estimates) == ["snips", "clipped", "dm", "dr-shrinkage", "sips", "rips", "cascade-dr"]
    on_policy = reward.logged
    assert on_policy is not None
    for name in ("sips", "rips", "snips"):
        assert reward.estimates[name].value == pytest.approx(on_policy.value, rel=1e-9)


def test_trees_may_model_the_reward_and_an_unknown_model_is_named(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(400):
        event = drawn(str(number), float(number), "abcd"[number % 4], [0.25])
        events += [event, accepted(event, "abcd"[number % 4])] if number % 8 < 4 else [event]
    found = gather(write_log(tmp_path / "log", [*catalogue("abcd"), *events]), Uniform())
    whole, _ = judge(found, JudgeConfig("trees", draws=0))
    assert whole.rewards["usefulness"].estimates["dr"].value == pytest.approx(0.5, abs=0.02)
    with pytest.raises(OffPolicyError, match="reward model 'oracle' is not one of ridge, trees"):
        judge(found, JudgeConfig("oracle"))


def test_a_slice_without_a_row_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(300):
        event = drawn(str(number), float(number), "abcd"[number % 4], [0.25])
        events += [event, accepted(event, "abcd"[number % 4])] if number % 3 else [event]
    found = gather(write_log(tmp_path / "log", [*catalogue("abcd"), *events]), Uniform())
    whole, slices = judge(replace(found, slices={"region=none": np.zeros(0, np.int64)}), CONFIG)
    assert whole.enough
    empty = slices["region=none"]
    assert (empty.slates, empty.enough) == (0, False)
    assert empty.overlap["prefix"].refusals[0].condition == "slates"


@pytest.mark.slow
def test_on_the_simulated_assistant_the_uniform_targets_interval_covers_what_a_uniform_policy_gets(
    tmp_path: Path,
) -> None:
    for seed in (1, 2, 3):
        logs = {}
        for name, policy, share in (("uniform", Shuffled(), 1.0), ("log", Popularity(), 0.3)):
            events = list(Simulator(seed, users=225, days=7).events(policy, simulate.Exploration(share)))
            logs[name] = gather(write_log(tmp_path / f"{name}-{seed}", events), Uniform(), Exploration(share))
        truth = judge(logs["uniform"], CONFIG)[0].rewards["completions"].logged
        found = judge(logs["log"], CONFIG)[0].rewards["completions"].estimates
        assert truth is not None and truth.low is not None and truth.high is not None
        for name in ("snips", "rips", "cascade-dr"):
            low, high = found[name].low, found[name].high
            assert low is not None and high is not None and low < truth.high and truth.low < high
