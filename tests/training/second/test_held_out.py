"""What the held-out questions decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ranker.second.config import TrainSecond
from ranker.second.network import SecondNet
from ranker.second.tokens import CandidateTokens
from tests.ranker.second.made import SIZES, model
from tests.training.second.test_batching import question, window
from training.second.dataset import Window
from training.second.held_out import judge, temper
from training.second.run import Run, decide_split

COLUMNS = 3


def run_of(windows: list[Window]) -> Run:
    only_accept = (True, False, False, False)
    return Run(windows, TrainSecond(), 0.0, only_accept, (1.0, 0.0, 0.0, 0.0), torch.ones(20) / 20,
               torch.device("cpu"), False)  # fmt: skip


def right_by_light(count: int) -> list[Window]:
    """Questions whose useful candidate has the highest light score."""
    draw, made = np.random.default_rng(0), []
    for number in range(count):
        asked = question(9, float(number))
        light = draw.normal(size=9).astype(np.float32)
        light[1] = light.max() + 4.0
        form = replace(asked.plain, candidates=replace(asked.plain.candidates, light=light))
        made.append(replace(window(5, 0, float(number)), questions=(replace(asked, plain=form),)))
    return made


def net() -> SecondNet:
    torch.manual_seed(0)
    return SecondNet(SIZES, model().vocabulary.rows, COLUMNS).eval()


def test_a_correction_that_only_does_harm_is_taken_back_and_the_light_order_remains() -> None:
    made, run = net(), run_of(right_by_light(40))
    with torch.no_grad():
        made.outcomes.weight.normal_(std=2.0)
    assert judge(made, run)["hr@1"] < 1.0
    assert temper(made, run) <= 0.125
    assert judge(made, run)["hr@1"] == 1.0


def test_what_was_multiplied_is_part_of_the_weights() -> None:
    made, run = net(), run_of(right_by_light(10))
    with torch.no_grad():
        made.outcomes.weight.normal_(std=0.1)
    before = made.outcomes.weight.clone()
    strength = temper(made, run)
    assert torch.allclose(made.outcomes.weight, before * strength)


def test_a_model_that_has_learned_nothing_has_the_figures_of_light() -> None:
    found = judge(net(), run_of(right_by_light(10)))
    assert (found["hr@1"], found["score"]) == (found["light_hr@1"], found["light_score"]) == (1.0, 1.0)


def test_the_last_share_of_the_questions_is_held_out() -> None:
    assert decide_split(right_by_light(40), 0.25) == pytest.approx(30.0)
    assert decide_split([], 0.25) == float("inf")


def test_a_light_stage_that_says_the_same_of_all_is_right_as_often_as_chance() -> None:
    same = [
        replace(each, questions=(replace(asked, plain=replace(asked.plain, candidates=flat(asked.plain.candidates))),))
        for each in right_by_light(10)
        for asked in each.questions
    ]
    found = judge(net(), run_of(same))
    assert found["light_hr@1"] == pytest.approx(1 / 9)
    assert found["light_score"] == pytest.approx(sum(1 / place for place in range(1, 10)) / 9)


def flat(candidates: CandidateTokens) -> CandidateTokens:
    return replace(candidates, light=np.zeros_like(candidates.light))
