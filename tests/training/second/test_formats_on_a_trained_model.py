"""What quantised pages cost a trained model that reads long histories: almost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from features.events import Event
from features.registry import FINGERPRINT
from ranker.config import SampleSettings, TrainConfig, TreesSettings
from ranker.inference.model import Member
from ranker.inference.workspace import Workspaces
from ranker.light_model import LightModel
from ranker.release.registry import Manifest, Registry
from ranker.second.buffers import workspace_bytes
from ranker.second.config import SecondConfig, Sizes, SizeTable, TrainSecond
from ranker.second.order import one_order, passed_on
from ranker.second.paged import ask_of
from ranker.second.tokens import encode_candidates
from ranker.second.weights import SecondModel, load_second_model
from tests.ranker.second.paging import Served
from tests.training.logs import START_S, answered, catalogue, did, ranked, write_log
from training.evaluate import EvaluateConfig, evaluate
from training.light import train_light
from training.publish import publish
from training.queries import Query
from training.second.job import Request, train_second
from training.second.judge import Scores, SecondJudge

ACTIONS = "abcdefghijklmnop"
USERS, STEPS, JUDGED, PLACES = 16, 90, 40, 6
PAGE_TOKENS = 32
LIGHT = TrainConfig(trees=TreesSettings(rounds=5, min_data_in_leaf=5, threads=1), sample=SampleSettings(folds=2))
TINY = SecondConfig(
    sizes=SizeTable(small=Sizes(dim=32, layers=2, heads=2, feed_forward=64, window=512, terms=4)),
    training=TrainSecond(
        pretrain=0,
        epochs=18,
        patience=18,
        batch_tokens=512,
        folds=2,
        rate=0.005,
        threads=1,
        min_count=1,
        dropout=0.0,
        token_dropout=0.0,
    ),
)
NDCG_OFF = {"int8": 0.001, "int4": 0.005}
OVERLAP = {"int8": 0.99, "int4": 0.90}


def events(seed: int = 0) -> Iterator[Event]:
    """What was looked at just before tells what is useful next, mostly; the light stage does not see what that was."""
    draw = np.random.default_rng(seed)
    yield from catalogue(ACTIONS)
    for step in range(STEPS):
        for number in range(USERS):
            user, at_s = f"u{number}", 100.0 * (step * USERS + number)
            place, session, by_chance = int(draw.integers(PLACES)), f"s{step}.{number}", draw.random() < 0.15
            yield did(None, at_s, user, session=session, type="looked", target=f"place{place}:1", id=f"i{session}")
            name, useful = f"r{session}", ACTIONS[int(draw.integers(len(ACTIONS))) if by_chance else 2 * place]
            yield ranked(name, at_s + 10, ACTIONS, user, session=session, context={"surface": "home"})
            yield answered(name, "accept", at_s + 12, useful, user)
            yield answered(name, "complete", at_s + 14, useful, user)


@dataclass
class Trained:
    logdir: Path
    light: LightModel
    model: SecondModel
    until_s: float


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("formats")
    logdir, registry = write_log(folder / "log", list(events())), Registry(folder / "models")
    until_s = START_S + 100.0 * USERS * (STEPS - JUDGED)
    light = publish(registry, train_light(logdir, until_s, config=LIGHT), LIGHT)
    second = train_second(Request(logdir, light, until_s, TINY))
    manifest = Manifest(version="t", kind="second", created="", files={}, schema=FINGERPRINT, second=second.entry)
    model = load_second_model(second.files, manifest)
    assert model is not None
    return Trained(logdir, LightModel.load(registry, light.version, FINGERPRINT, light.files), model, until_s)


@dataclass
class PagedJudge:
    """Judges by pages, and by everything encoded anew in float32 beside it."""

    served: Served
    exact: SecondJudge
    workspaces: Workspaces
    overlaps: list[float] = field(default_factory=list)
    quantised: list[float] = field(default_factory=list)

    def follow(self, offset: int, event: Event) -> None:
        self.exact.follow(offset, event)

    def scores(self, query: Query, features: np.ndarray, light: Scores) -> Scores:
        expected = self.exact.scores(query, features, light)
        found = self._paged(query, features, light)
        best = [set(np.argsort(-each, kind="stable")[:10].tolist()) for each in (expected, found)]
        self.overlaps.append(len(best[0] & best[1]) / 10)
        return found

    def history(self, query: Query) -> str:
        return self.exact.history(query)

    def _paged(self, query: Query, features: np.ndarray, light: Scores) -> Scores:
        served, moment, session = self.served, query.moment, query.decision.event.session
        model, paged = served.model, served.paged
        rows = passed_on(light, model.passed_on)
        candidates = encode_candidates(
            [moment.actions[row] for row in rows], [moment.targets[row] for row in rows],
            features[rows], light[rows], model.vocabulary,
        )  # fmt: skip
        window = served.windows.of(moment.user, self.exact.courses.of(moment.user))
        ask = ask_of(
            moment.user, session, moment.context, moment.now_s, window, candidates, model.vocabulary, model.sizes
        )
        self.quantised.append(len(window.tokens) // PAGE_TOKENS * PAGE_TOKENS / len(window.tokens))
        hold = paged.hold(ask)
        with self.workspaces.batch() as workspace:
            logits = paged.run([Member(ask, hold)], workspace)[0]
        hold.release()
        return one_order(light, rows, model.utility(logits))


def judge_by(scheme: str, trained: Trained, folder: Path) -> tuple[float, PagedJudge]:
    """NDCG@10 by pages, and what was seen on the way."""

    async def judged() -> tuple[float, PagedJudge]:
        pages = USERS * TINY.sizes.small.window // PAGE_TOKENS
        served = Served(folder, trained.model, scheme=scheme, pages=pages, tails=2 * USERS, page_tokens=PAGE_TOKENS)
        await served.load()
        nbytes = workspace_bytes(trained.model.sizes, served.paged.shapes)
        workspaces = Workspaces(served.pool, nbytes)
        judge = PagedJudge(served, SecondJudge(trained.model), workspaces)
        found = evaluate(trained.logdir, trained.light, EvaluateConfig(trained.until_s, draws=10), None, judge)
        workspaces.close()
        await served.close()
        return found.stages["second"].means()["ndcg@10"] or 0.0, judge

    return asyncio.run(judged())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_trained_model_ranks_the_same_by_quantised_pages(trained: Trained, tmp_path: Path, scheme: str) -> None:
    exact = evaluate(
        trained.logdir, trained.light, EvaluateConfig(trained.until_s, draws=10), None, SecondJudge(trained.model)
    )
    before, light = (exact.stages[name].means()["ndcg@10"] or 0.0 for name in ("second", "light"))
    found, judge = judge_by(scheme, trained, tmp_path)
    assert before > light + 0.2, "it has learned nothing from histories, which pages could spoil"
    assert np.mean(judge.quantised) >= 0.9
    assert np.mean(judge.overlaps) >= OVERLAP[scheme]
    assert abs(found - before) <= NDCG_OFF[scheme]
