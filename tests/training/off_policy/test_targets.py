"""Targets: another log's shares, and a version behind the service's own draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ranker.propensity import Exploration
from tests.ranker.online import run, service
from tests.training.off_policy.small import drawn
from training.off_policy.errors import OffPolicyError
from training.off_policy.gather import gather
from training.off_policy.offers import offer_of
from training.off_policy.targets import Chances, Empirical, Uniform, Version, empirical_of

ACTIONS = {"a": {"exclusive_group": "g"}, "b": {"exclusive_group": "g"}, "c": {}, "d": {}, "e": {}}


def chances(target: Empirical | Uniform, shown: str, first: int = 1) -> Chances:
    offer = offer_of(drawn("1", 0, shown, [0.5] * len(shown), first=first))
    assert not isinstance(offer, str)
    return target.chances(offer)


def test_another_logs_shares_are_taken_by_position() -> None:
    log = [drawn("1", 0, "ab", [1, 1]), drawn("2", 0, "ac", [1, 1]), drawn("3", 0, "bd", [1, 1])]
    target = empirical_of(log, "empirical:there")
    assert target.shares[1] == {"a": 2 / 3, "b": 1 / 3}
    assert chances(target, "c", first=2).given == pytest.approx(np.array([[0.0, 1 / 3, 1 / 3, 1 / 3]]))
    below_b = chances(target, "bd").given[1]
    assert below_b == pytest.approx([0.0, 0.0, 0.5, 0.5]), "what is left, made to sum to 1"
    assert chances(target, "bd").alone is None


def test_a_log_that_shows_nothing_has_no_shares() -> None:
    with pytest.raises(OffPolicyError, match="no ranking to take a distribution"):
        empirical_of([], "empirical:there")


def test_a_position_that_was_never_shown_has_no_chance() -> None:
    target = empirical_of([drawn("1", 0, "a", [1.0])], "there")
    assert not chances(target, "a", first=2).given.any()


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_version_that_served_has_the_propensities_that_it_logged(epsilon: float, tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions=ACTIONS, epsilon=epsilon, temperature=40.0) as desk:
            await desk.post(*[desk.event(action=name) for times, name in enumerate("cdeab") for _ in range(times + 1)])
            for _ in range(20):
                await desk.rank(k=3)
                await desk.post(desk.event(action="c"))
            await desk.applied()
            version = Version(desk.model, Exploration(epsilon, 40.0), "1")
            found = gather(tmp_path / "log", version, version.exploration)
            assert found.slates.target == pytest.approx(found.slates.logged, rel=1e-9)
            assert found.slates.target_alone == pytest.approx(found.slates.logged_alone, rel=1e-9)
            assert found.notes["propensities_not_of_these_scores"] == 0 and not found.rejected

    run(work())
