"""What the held-out questions decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ranker.second.batches import candidate_batch, event_batch
from ranker.second.config import TrainSecond
from ranker.second.network import SecondNet
from tests.ranker.second.made import SIZES, model
from tests.training.second.test_batching import question, window
from training.second.dataset import Question, Window
from training.second.held_out import Trust, Trusts, answers, apply_trusts, bias_of, figures, find_trust, find_trusts
from training.second.run import Run, decide_split

COLUMNS = 3
ASKED_FIRST = Trust()


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


def judge(made: SecondNet, run: Run, trust: Trust = ASKED_FIRST) -> dict[str, float]:
    return figures(list(answers(made, run)), Trusts(trust, trust), bias_of(made), run)


def trust_in(made: SecondNet, run: Run) -> Trust:
    return find_trust(list(answers(made, run)), bias_of(made), run)


def test_a_correction_that_only_does_harm_is_taken_back_and_the_light_order_remains() -> None:
    made, run = net(), run_of(right_by_light(200))
    with torch.no_grad():
        made.outcomes.weight.normal_(std=2.0)
    assert judge(made, run)["hr@1"] < 1.0
    trust = trust_in(made, run)
    assert trust.correction <= 0.125
    assert judge(made, run, trust)["hr@1"] == 1.0


def test_what_the_request_foretells_is_trusted_where_it_is_right_and_light_is_not() -> None:
    made, run = net(), run_of([replace(each, questions=(flat(each.questions[0]),)) for each in right_by_light(200)])
    with torch.no_grad():
        made.next_bias[int(run.windows[0].questions[0].plain.candidates.actions[1])] = 3.0
    assert judge(made, run)["hr@1"] < 1.0
    trust = trust_in(made, run)
    assert trust.told > 0.5
    assert judge(made, run, trust)["hr@1"] == 1.0


def test_few_questions_change_less_than_many() -> None:
    def corrected(questions: int) -> float:
        made = net()
        with torch.no_grad():
            made.outcomes.weight.normal_(std=2.0)
        return trust_in(made, run_of(right_by_light(questions))).correction

    assert corrected(3) > corrected(60)


def test_without_questions_all_stays_as_it_was_learned() -> None:
    assert find_trust([], np.zeros(4), run_of([])) == ASKED_FIRST == Trust(1.0, 1.0, 1.0, 0.0)


def test_what_is_trusted_is_part_of_the_weights() -> None:
    made, run = net(), run_of(right_by_light(10))
    with torch.no_grad():
        made.outcomes.weight.normal_(std=0.1)
        made.light.opinion_out.weight.normal_(std=0.5)
    trusts = Trusts(Trust(0.9, 0.8, 0.5, 0.2), Trust(1.1, 0.3, 0.4, 0.1))
    asked = run.windows[0].questions[0]
    for typed in (0, 1):
        form = replace(asked.plain, request=replace(asked.plain.request, typed=typed))
        run = run_of([replace(run.windows[0], questions=(replace(asked, plain=form),))])
        (answer,) = answers(made, run)
        wanted = answer.logits((trusts.silent, trusts.typed)[typed], bias_of(made))
        assert trusts.of(answer) == (trusts.silent, trusts.typed)[typed]
        apply_trusts(made, trusts)
        batch, _ = candidate_batch([[(form.request, form.candidates, asked.index, 0.0)]])
        cache, _ = made.encode(event_batch([run.windows[0].tokens]))
        assert np.allclose(made.score(batch, cache, prefix=True)[0].detach().numpy(), wanted, atol=1e-5)


def test_what_is_typed_is_trusted_apart() -> None:
    """Light is right where nothing is typed, and what the history foretells where something is."""
    silent = right_by_light(100)
    made, run = net(), run_of(silent)
    with torch.no_grad():
        made.next_bias[int(silent[0].questions[0].plain.candidates.actions[1])] = -3.0
        made.next_bias[int(silent[0].questions[0].plain.candidates.actions[0])] = 3.0
        made.next_scale.fill_(0.0)
    typed = [replace(each, questions=(useful_first(typing(flat(each.questions[0]))),)) for each in right_by_light(100)]
    trusts = find_trusts(list(answers(made, run_of([*silent, *typed]))), bias_of(made), run)
    assert trusts.typed.told > 0.5 > trusts.silent.told
    alone = find_trusts(list(answers(made, run_of(silent))), bias_of(made), run)
    assert alone.typed == alone.silent == trusts.silent


def test_a_model_that_has_learned_nothing_has_the_figures_of_light() -> None:
    found = judge(net(), run_of(right_by_light(10)))
    assert (found["hr@1"], found["score"]) == (found["light_hr@1"], found["light_score"]) == (1.0, 1.0)


def test_the_last_share_of_the_questions_is_held_out() -> None:
    assert decide_split(right_by_light(40), 0.25) == pytest.approx(30.0)
    assert decide_split([], 0.25) == float("inf")


def test_a_light_stage_that_says_the_same_of_all_is_right_as_often_as_chance() -> None:
    same = [replace(each, questions=(flat(each.questions[0]),)) for each in right_by_light(10)]
    found = judge(net(), run_of(same))
    assert found["light_hr@1"] == pytest.approx(1 / 9)
    assert found["light_score"] == pytest.approx(sum(1 / place for place in range(1, 10)) / 9)


def typing(asked: Question) -> Question:
    """The same, while something is typed."""
    return replace(asked, plain=replace(asked.plain, request=replace(asked.plain.request, typed=1)))


def useful_first(asked: Question) -> Question:
    """The same, with the first candidate as the useful one."""
    gains = np.zeros_like(asked.gains)
    gains[0] = 1.0
    return replace(asked, gains=gains)


def flat(asked: Question) -> Question:
    """The same, with light scores that say nothing."""
    candidates = asked.plain.candidates
    form = replace(asked.plain, candidates=replace(candidates, light=np.zeros_like(candidates.light)))
    return replace(asked, plain=form)
