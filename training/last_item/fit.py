"""Trains one network: epochs of packed windows, a running mean of the weights, stopped by the validation items."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.last_item.blend import inside, repeat_log_odds, repeated
from training.last_item.checkpoint import Checkpoints, Standing
from training.last_item.foretell import Foretell, foretell_with, in_parts
from training.last_item.loss import Negatives, Network, next_item_loss
from training.last_item.packing import batches, pack, windows
from training.last_item.ranks import figures, places
from training.last_item.sequences import UNKNOWN
from training.last_item.settings import FitSettings
from training.last_item.split import Queries, Split
from training.last_item.transitions import popularity

Report = Callable[["Epoch"], None]

_BETAS = (0.9, 0.98)
_LIKELIER = 0.002
"""Nats that count as better: with many items the likelihood grows for epochs before any ranking moves."""

_TINY = 1e-12


@dataclass(frozen=True)
class Epoch:
    """How an epoch went.

    Args:
        number, most: this one, and how many there may be.
        loss: mean over the events foretold.
        ndcg: NDCG@10 on the validation items.
        events_per_s: events read in training alone.
        left_s: seconds until the end if nothing gets better from here on.
    """

    number: int
    most: int
    loss: float
    ndcg: float
    events_per_s: float
    left_s: float


@dataclass(frozen=True)
class Fitted:
    """A trained network, with the weights of its best epoch."""

    network: Network
    items: int
    standing: Standing
    settings: FitSettings

    @property
    def ended(self) -> str:
        """Why there was no further epoch: `time`, `epochs` (all there may be), or `patience`."""
        if self.standing.taken_s >= 60.0 * self.settings.most_minutes:
            return "time"
        return "epochs" if self.standing.epoch >= self.settings.epochs else "patience"

    @property
    def foretell(self) -> Foretell:
        """Its probabilities."""
        return foretell_with(self.network, self.items, self.settings.longest)


def fit(
    network: Network,
    split: Split,
    settings: FitSettings,
    checkpoints: Checkpoints,
    report: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Fitted:
    """Trains until the validation items say that it is enough.

    The same seed, threads and machine give the same weights, interrupted or not, unless the time ran out.

    Raises:
        OSError: a checkpoint cannot be written.
    """
    with torch.random.fork_rng(devices=[]):
        training = _Training(network, split, settings, checkpoints, clock)
        training.resume()
        while not training.over:
            epoch = training.epoch()
            if report is not None:
                report(epoch)
        training.finish()
    return Fitted(network, len(split.vocabulary), training.standing, settings)


class _Training:
    def __init__(
        self, network: Network, split: Split, settings: FitSettings, checkpoints: Checkpoints,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._network, self._split, self._settings = network, split, settings
        self._checkpoints, self._clock = checkpoints, clock
        items = len(split.vocabulary)
        self._negatives = Negatives.by_popularity(popularity(split.train, items))
        self._validation = split.validation.first(max(1, settings.validation // (items + 1)), settings.seed)
        assert isinstance(network, nn.Module)
        self._module: nn.Module = network
        self._parameters = dict(self._module.named_parameters())
        self._optimizer = torch.optim.Adam(self._module.parameters(), settings.rate, _BETAS, fused=True)
        self._mean = {name: tensor.detach().clone() for name, tensor in self._parameters.items()}
        self._best = {name: tensor.clone() for name, tensor in self._mean.items()}
        self.standing = Standing(checkpoints.key)

    @property
    def over(self) -> bool:
        return self.standing.epoch >= self._end or self.standing.taken_s >= 60.0 * self._settings.most_minutes

    @property
    def _end(self) -> int:
        """The epoch after which it stops if nothing gets better from here on."""
        settings = self._settings
        better = max(self.standing.best_epoch, self.standing.likeliest_epoch)
        return min(max(better + settings.patience, settings.least_epochs), settings.epochs)

    def resume(self) -> None:
        found = self._checkpoints.load()
        if found is None:
            return
        self.standing, tensors = found
        with torch.no_grad():
            for part, into in (("now", self._parameters), ("mean", self._mean), ("best", self._best)):
                for name, tensor in into.items():
                    tensor.copy_(tensors[f"{part}.{name}"])
        for name, parameter in self._parameters.items():
            if f"step.{name}" in tensors:
                self._optimizer.state[parameter] = {
                    key: tensors[f"{key}.{name}"].clone() for key in ("step", "exp_avg", "exp_avg_sq")
                }

    def epoch(self) -> Epoch:
        """Every event once, then the validation items, then what is to be kept."""
        standing, started = self.standing, self._clock()
        loss, events = self._learn()
        learned = self._clock()
        ndcg, likelihood = self._judge()
        standing.epoch += 1
        standing.losses.append(loss)
        standing.curve.append(ndcg)
        if likelihood > standing.likeliest + _LIKELIER:
            standing.likeliest, standing.likeliest_epoch = likelihood, standing.epoch
        if ndcg > standing.best:
            standing.best, standing.best_epoch = ndcg, standing.epoch
            for name, tensor in self._mean.items():
                self._best[name].copy_(tensor)
        taken = self._clock() - started
        standing.taken_s += taken
        self._checkpoints.save(standing, self._tensors())
        least = self._end - standing.epoch
        rate = events / max(learned - started, 1e-9)
        left = max(0.0, min(least * taken, 60.0 * self._settings.most_minutes - standing.taken_s))
        return Epoch(standing.epoch, self._settings.epochs, loss, ndcg, rate, left)

    def finish(self) -> None:
        self._put(self._best)
        self._module.eval()

    def _learn(self) -> tuple[float, int]:
        settings, epoch = self._settings, self.standing.epoch
        rng = np.random.default_rng([settings.seed, epoch])
        torch.manual_seed(int(rng.integers(2**62)))
        parts = windows(self._split.train, settings.longest, rng)
        self._module.train()
        total, foretold = 0.0, 0
        for rows in batches(parts, settings.batch_events, rng):
            loss, events = next_item_loss(self._network, pack(parts, rows), self._negatives, settings)
            if not events:
                continue
            self._step(loss)
            total += float(loss.detach()) * events
            foretold += events
        return total / max(foretold, 1), len(parts.codes)

    def _step(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.standing.steps += 1
        steps = self.standing.steps
        decay = min(self._settings.average, (1 + steps) / (10 + steps))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._mean.values()), list(self._parameters.values()), 1.0 - decay)

    def _judge(self) -> tuple[float, float]:
        """`judge_validation` of the mean weights."""
        own = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        foretell = foretell_with(self._network, self._items, self._settings.longest)
        self._put(self._mean)
        found = judge_validation(foretell, self._validation, self._items)
        self._put(own)
        return found

    @torch.no_grad()
    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(tensors[name])

    @property
    def _items(self) -> int:
        return len(self._split.vocabulary)

    def _tensors(self) -> dict[str, Tensor]:
        parts: dict[str, Mapping[str, Tensor]] = {"now": self._parameters, "mean": self._mean, "best": self._best}
        found: dict[str, Tensor] = {}
        for part, named in parts.items():
            found |= {f"{part}.{name}": tensor for name, tensor in named.items()}
        for name, parameter in self._parameters.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                found[f"{key}.{name}"] = value
        return found


def judge_validation(model: Foretell, queries: Queries, items: int) -> tuple[float, float]:
    """NDCG@10 when the items of the histories are as likely as they turned out to be, and the mean log-likelihood."""
    raised = 0.0
    again = repeated(queries)
    above, level, own = (np.empty(len(queries)) for _ in range(3))
    for rows, part in in_parts(queries, items):
        shares = model(part.histories)
        row, code = inside(part.histories)
        if not rows[0]:  # the first part is some hundred users: enough to say how much a network repeats itself
            raised = repeat_log_odds(np.bincount(row, shares[row, code], len(rows)).astype(np.float64), again)
        own[rows] = shares[np.arange(len(rows)), part.answers]
        shares[row, code] *= np.float32(np.exp(raised))
        above[rows], level[rows] = places(shares, part.answers)
    known = own[queries.answers != UNKNOWN]
    likelihood = float(np.log(np.maximum(known, _TINY)).mean()) if len(known) else 0.0
    return float(figures(above, level)["ndcg@10"].mean()), likelihood
