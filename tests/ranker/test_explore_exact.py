"""What explore draws is what it logs, for everyone alike."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ranker.propensity import Exploration, draw_order
from ranker.stages.explore import Explore, cast_lot
from ranker.stages.top_actions import TopActions
from ranker.types import Ranking
from tests.command_line import ROOT
from tests.fakes import SECRET, catalogue, ranking

DRAWS = 200_000
NAMES = "abcd"
EXPLORATION = Exploration(epsilon=0.3, temperature=0.8)
STATE = ranking(catalogue({name: {} for name in NAMES}), NAMES, [0.4, 1.0, -0.3, 0.2], k=2)

LISTS = """
import asyncio, json, sys
from pathlib import Path
from tests.fakes import SECRET
from tests.ranker.online import service

async def main():
    folder = Path(sys.argv[1])
    (folder / "secret").write_bytes(SECRET)
    async with service(folder, epsilon=1.0) as desk:
        names = {}
        for number in range(40):
            answer = await desk.rank(id=f"r{number}", k=4, traffic="probe", user=f"u{number}")
            names[answer.id] = [[item.action, item.propensity] for item in answer.items]
        print(json.dumps(names))

asyncio.run(main())
"""


@cache
def orders() -> Counter[tuple[int, ...]]:
    """How often each order came, over the ids r0, r1, …"""
    assert STATE.scores is not None
    utilities = EXPLORATION.utilities(STATE.scores)
    greedy = asyncio.run(Explore((), SECRET).run(STATE)).order
    found: Counter[tuple[int, ...]] = Counter()
    for number in range(DRAWS):
        lot = cast_lot(SECRET, f"r{number}")
        explores = lot.share < EXPLORATION.epsilon
        found[tuple(draw_order(utilities, lot.seed)) if explores else greedy] += 1
    return found


def test_the_shares_are_drawn_as_the_stage_draws_them() -> None:
    stage = Explore((), SECRET, EXPLORATION)

    async def draw(count: int) -> Counter[tuple[int, ...]]:
        states = [await stage.run(replace(STATE, request_id=f"r{number}")) for number in range(count)]
        return Counter(state.order for state in states)

    assert STATE.scores is not None
    utilities, greedy = EXPLORATION.utilities(STATE.scores), asyncio.run(Explore((), SECRET).run(STATE)).order
    lots = [cast_lot(SECRET, f"r{number}") for number in range(500)]
    plain = [tuple(draw_order(utilities, lot.seed)) if lot.share < EXPLORATION.epsilon else greedy for lot in lots]
    assert asyncio.run(draw(500)) == Counter(plain)


def shown(order: tuple[int, ...], deleted: str) -> tuple[tuple[str, ...], float]:
    """What is shown of an order once safety has deleted something, and the probability that is logged for it."""
    greedy = asyncio.run(Explore((), SECRET).run(STATE)).order
    state: Ranking = replace(STATE, order=order, greedy=greedy)
    keep = np.array([name not in deleted for name in NAMES], np.bool_)
    left = asyncio.run(TopActions(EXPLORATION).run(state.strike(keep, "safety", ["off"] * len(NAMES))))
    chance = float(np.prod([item.propensity for item in left.items]))
    return tuple(item.action for item in left.items), chance


@pytest.mark.parametrize("deleted", ["", "b", "ad"], ids=["all safe", "the best deleted", "two deleted"])
def test_over_many_draws_the_shares_are_the_logged_propensities(deleted: str) -> None:
    """χ² over the lists of two; a list's probability is the product of its slots' propensities."""
    counts: Counter[tuple[str, ...]] = Counter()
    logged: dict[tuple[str, ...], float] = {}
    for order in itertools.permutations(range(len(NAMES))):
        items, chance = shown(order, deleted)
        counts[items] += orders()[order]
        assert logged.setdefault(items, chance) == pytest.approx(chance)
    assert sum(counts.values()) == DRAWS
    assert sum(logged.values()) == pytest.approx(1.0)
    lists = sorted(logged)
    observed, expected = [counts[items] for items in lists], [DRAWS * logged[items] for items in lists]
    assert stats.chisquare(observed, expected).pvalue > 0.001


def test_the_same_id_gives_the_same_list_in_every_process(tmp_path: Path) -> None:
    def lists(hash_seed: str) -> dict[str, list[tuple[str, float]]]:
        folder = tmp_path / hash_seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", LISTS, str(folder)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=60)
        found: dict[str, list[tuple[str, float]]] = json.loads(done.stdout)
        return found

    one, two = lists("1"), lists("2")
    assert one == two
    assert len({str([action for action, _ in items]) for items in one.values()}) == 6, "all orders of three are drawn"
