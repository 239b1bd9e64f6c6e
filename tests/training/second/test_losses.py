"""The losses against closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from features.registry import COLUMNS
from ranker.second.network import SecondNet
from ranker.second.vocabulary import FIRST
from ranker.second.weights import utility_of
from tests.ranker.second.made import KNOWN, SIZES, model
from training.second.losses import Truth, listwise, next_action_loss, outcome_loss, utility_logit

WORTH = (1.0, 3.0, -0.5, 1.0)


def truth(request: list[list[int]], share: list[list[float]], real: list[list[bool]]) -> Truth:
    shape = (len(request), len(request[0]))
    return Truth(
        torch.tensor(request), torch.tensor(real), torch.tensor(share), torch.zeros(*shape, 4),
        torch.ones(shape, dtype=torch.bool), torch.zeros(len(request), 3, dtype=torch.int64),
        torch.zeros(len(request), 1, dtype=torch.int64),
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-20, 20)] * 4), min_size=1, max_size=6))
def test_the_utility_in_training_is_the_utility_in_serving(rows: list[tuple[float, ...]]) -> None:
    found = utility_logit(torch.tensor(rows, dtype=torch.float64), WORTH)
    assert found.numpy() == pytest.approx(utility_of(np.array(rows), WORTH), abs=1e-9)


def test_a_worth_of_nothing_has_a_gradient_that_is_a_number() -> None:
    logits = torch.zeros(3, 4, requires_grad=True)
    utility_logit(logits, (1.0, 0.0, 0.0, 0.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 3


def test_the_listwise_loss_is_a_softmax_per_request_without_the_padding() -> None:
    scores = torch.tensor([[1.0, 2.0, 0.5, 9.0], [3.0, 3.0, 9.0, 9.0]])
    known = truth(
        [[0, 0, 1, 0], [2, 2, 0, 0]],
        [[1.0, 0.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.0]],
        [[True, True, True, False], [True, True, False, False]],
    )
    first = -math.log(math.e / (math.e + math.e**2))
    assert float(listwise(scores, known)) == pytest.approx((first + 0.0 + math.log(2)) / 3, abs=1e-6)


def test_outcomes_that_are_not_known_cost_nothing() -> None:
    logits = torch.randn(1, 3, 4, requires_grad=True)
    known = truth([[0, 0, 0]], [[1.0, 0.0, 0.0]], [[True] * 3])
    none = Truth(
        known.request, known.real, known.share, known.outcomes, known.offered & False, known.next_action, known.answer
    )
    assert float(outcome_loss(logits, none, torch.ones(4, dtype=torch.bool)).detach()) == 0.0
    trained = torch.tensor([True, False, False, False])
    found = outcome_loss(torch.zeros(1, 3, 4), known, trained)
    assert float(found) == pytest.approx(math.log(2))


def test_the_sampled_softmax_estimates_the_full_one() -> None:
    """With the correction, sampling by a skewed law comes close to the loss over all actions; without, it would not."""
    net = SecondNet(SIZES, model().vocabulary.rows, len(COLUMNS))
    torch.manual_seed(3)
    with torch.no_grad():
        net.actions.weight.normal_(std=0.5)
    hidden = torch.randn(1, 8, SIZES.dim)
    wanted = torch.randint(FIRST, FIRST + len(KNOWN.actions), (1, 8))
    shares = torch.arange(1.0, len(KNOWN.actions) + 2)
    shares = shares / shares.sum()
    generator = torch.Generator().manual_seed(0)
    full = next_action_loss(net, hidden, wanted, shares, 1000, 10, generator)
    drawn = [float(next_action_loss(net, hidden, wanted, shares, 1, 4000, generator).detach()) for _ in range(5)]
    assert float(np.mean(drawn)) == pytest.approx(float(full.detach()), abs=0.05)


def test_a_batch_that_asks_for_no_action_costs_nothing() -> None:
    net, generator = model().net, torch.Generator()
    found = next_action_loss(net, torch.randn(1, 3, SIZES.dim), torch.zeros(1, 3, dtype=torch.int64),
                             torch.ones(20) / 20, 100, 5, generator)  # fmt: skip
    assert float(found) == 0.0
