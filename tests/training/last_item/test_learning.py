"""Packing, the loss, and a training from its first epoch to its files."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from tests.training.last_item.courses import SMALL, circles
from training.last_item.checkpoint import Checkpoints
from training.last_item.errors import LastItemError
from training.last_item.evaluate import judge, popular
from training.last_item.fit import Epoch, Fitted, fit
from training.last_item.foretell import foretell_with
from training.last_item.loss import Negatives, Network, Output, full_loss, sampled_loss
from training.last_item.packing import batches, pack, windows
from training.last_item.sequences import Ragged, from_lists
from training.last_item.settings import FitSettings
from training.last_item.split import Split, split_last
from training.last_item.version import SASREC, SECOND, build

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def lengths_of(lengths: list[int]) -> Ragged:
    starts = np.cumsum([0, *lengths]).astype(np.int64)
    return Ragged(starts, np.arange(1, starts[-1] + 1, dtype=np.int32), np.zeros(int(starts[-1])))


@given(LENGTHS, st.integers(2, 20), st.integers(0, 9))
def test_every_event_but_a_rows_first_is_foretold_once(lengths: list[int], longest: int, seed: int) -> None:
    train = lengths_of(lengths)
    cut = windows(train, longest, np.random.default_rng(seed))
    foretold = [code for row in cut.rows() for code in row[1:].tolist()]
    firsts = {int(train.codes[start]) for start in train.starts[:-1]}
    assert sorted(foretold) == sorted(set(train.codes.tolist()) - firsts)
    assert cut.lengths.max(initial=0) <= longest + 1


@given(LENGTHS, st.integers(30, 200))
def test_batches_hold_every_row_once_within_the_room(lengths: list[int], room: int) -> None:
    rows = lengths_of(lengths)
    found = batches(rows, room, np.random.default_rng(0))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert all(len(each) == 1 or pack(rows, each).codes.size <= room for each in found)


def test_next_to_nothing_of_an_epoch_is_padding() -> None:
    rng = np.random.default_rng(0)
    rows = lengths_of((2 + rng.geometric(0.15, 5000)).tolist())
    padded = sum(pack(rows, each).codes.size for each in batches(rows, 2048, rng))
    assert len(rows.codes) / padded > 0.9


@pytest.mark.parametrize("events", [1, 7, 300])
def test_the_loss_in_parts_is_the_cross_entropy_with_its_gradients(
    events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.last_item.loss.PART_LOGITS", 640)
    torch.manual_seed(0)
    parts = [torch.randn(events, 8), torch.randn(11, 8), torch.randn(11)]
    answers = torch.randint(11, (events,))
    found, wanted = ([part.clone().requires_grad_() for part in parts] for _ in range(2))
    torch.autograd.backward(3.0 * full_loss(Output(*found), answers))
    torch.autograd.backward(3.0 * functional.cross_entropy(Output(*wanted).logits(), answers))
    assert full_loss(Output(*parts), answers).item() == pytest.approx(
        functional.cross_entropy(Output(*parts).logits(), answers).item(), rel=1e-5
    )
    for one, other in zip(found, wanted, strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-6)


def test_the_sampled_loss_comes_to_the_full_one_with_many_negatives() -> None:
    torch.manual_seed(0)
    output = Output(torch.randn(50, 8), 0.5 * torch.randn(30, 8), torch.zeros(30))
    answers = torch.randint(30, (50,))
    shares = np.concatenate([[0.0], np.random.default_rng(0).dirichlet(np.ones(30))]).astype(np.float32)
    full = full_loss(output, answers).item()
    negatives = Negatives.by_popularity(shares)
    assert sampled_loss(output, answers, negatives, 40_000).item() == pytest.approx(full, abs=0.01)


@pytest.fixture(scope="module")
def split() -> Split:
    return split_last(from_lists(circles()))


def train(
    split: Split, settings: FitSettings = SMALL, path: Path | None = None, name: str = SECOND, stop: int | None = None
) -> Fitted:
    """Trains; `stop` ends it as a kill would, after so many epochs."""
    torch.manual_seed(settings.seed)
    network = build(name, len(split.vocabulary), settings)

    def report(epoch: Epoch) -> None:
        if epoch.number == stop:
            raise KeyboardInterrupt

    return fit(network, split, settings, Checkpoints(path, "key"), report)


def weights(fitted: Fitted) -> dict[str, Tensor]:
    assert isinstance(fitted.network, nn.Module)
    return dict(fitted.network.state_dict())


def same(one: Fitted, other: Fitted) -> bool:
    others = weights(other)
    return all(torch.equal(tensor, others[name]) for name, tensor in weights(one).items())


@pytest.mark.parametrize("name", [SECOND, SASREC])
def test_a_network_learns_what_follows_what(split: Split, name: str) -> None:
    items = len(split.vocabulary)
    fitted = train(split, msgspec.structs.replace(SMALL, epochs=25, rate=0.01), name=name)
    own = judge(fitted.foretell, split.test, items, False).means()["ndcg@10"]
    assert own > judge(popular(split), split.test, items, False).means()["ndcg@10"] + 0.2


def test_the_seed_gives_the_weights_and_another_seed_others(split: Split) -> None:
    first = train(split)
    assert same(first, train(split))
    assert not same(first, train(split, msgspec.structs.replace(SMALL, seed=1)))


def test_a_training_that_was_killed_goes_on_to_the_same_weights(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(split, path=path, stop=3)
    resumed = train(split, path=path)
    assert resumed.standing.epoch == SMALL.epochs
    assert same(resumed, train(split))


def test_a_checkpoint_of_another_training_is_not_taken_and_a_broken_one_is_an_error(
    split: Split, tmp_path: Path
) -> None:
    path = tmp_path / "kept.safetensors"
    train(split, path=path)
    assert Checkpoints(path, "another").load() is None
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(LastItemError, match="remove it to start anew"):
        Checkpoints(path, "key").load()


def test_it_stops_early_but_not_in_the_first_epochs(split: Split) -> None:
    settings = msgspec.structs.replace(SMALL, epochs=50, least_epochs=5, patience=2, rate=1e-9)
    assert train(split, settings).standing.epoch == 5


def test_it_ends_where_the_time_ends_and_says_so(split: Split) -> None:
    ticks = itertools.count(step=20.0)
    settings = msgspec.structs.replace(SMALL, epochs=50, most_minutes=2.0)
    network = build(SECOND, len(split.vocabulary), settings)
    fitted = fit(network, split, settings, Checkpoints(None, ""), clock=lambda: next(ticks))
    assert (fitted.standing.epoch, fitted.ended) == (3, "time")
    assert train(split).ended == "epochs"


def test_the_randomness_of_the_caller_is_left_alone(split: Split) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    network = build(SECOND, len(split.vocabulary), SMALL)
    torch.manual_seed(5)
    fit(network, split, SMALL, Checkpoints(None, ""))
    assert torch.equal(torch.rand(1), wanted)


def test_what_is_foretold_depends_neither_on_the_batch_nor_on_what_lies_beyond_the_window(split: Split) -> None:
    network: Network = train(split).network
    foretell = foretell_with(network, len(split.vocabulary), SMALL.longest)
    together = foretell(split.test.histories)
    for row in (0, 7, 30):
        alone = foretell(split.test.rows(np.array([row])).histories)
        assert np.allclose(alone[0], together[row], atol=1e-6)
    assert np.allclose(together.sum(axis=1), 1.0, atol=1e-5)


def test_more_items_than_the_full_softmax_takes_are_learned_by_sampling(split: Split) -> None:
    settings = msgspec.structs.replace(SMALL, full_softmax=5, sampled=64, epochs=25, rate=0.01)
    items = len(split.vocabulary)
    own = judge(train(split, settings).foretell, split.test, items, False).means()["ndcg@10"]
    assert own > judge(popular(split), split.test, items, False).means()["ndcg@10"] + 0.2
