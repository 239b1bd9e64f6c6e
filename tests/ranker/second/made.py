"""Small second-stage models with random weights, and courses to feed them."""

from __future__ import annotations

import numpy as np
import torch

from features.events import Context, Entity, Trigger
from features.registry import COLUMNS
from ranker.second.config import Sizes
from ranker.second.happenings import Course, Happening
from ranker.second.network import SecondNet
from ranker.second.tokens import CandidateTokens
from ranker.second.vocabulary import Known, Vocabulary
from ranker.second.weights import SecondModel

SIZES = Sizes(dim=32, layers=2, heads=2, feed_forward=64, window=16, terms=4)
KNOWN = Known(
    actions=[f"a{number}" for number in range(20)],
    kinds=["accepted", "completed", "dismissed", "offered", "i:typed", "i:opened"],
    surfaces=["chat", "home"],
    targets=["image", "message"],
    words=list(range(100, 200)),
)
START_S = 1_700_000_000.0


def model(seed: int = 0, sizes: Sizes = SIZES, known: Known = KNOWN, version: str = "1") -> SecondModel:
    """A model whose every weight is random, so that everything reads everything."""
    torch.manual_seed(seed)
    vocabulary = Vocabulary(known)
    net = SecondNet(sizes, vocabulary.rows, len(COLUMNS)).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3 if "words" in name else 0.15)
                if name.split(".")[0] in ("actions", "kinds", "surfaces", "targets", "words"):
                    parameter[0] = 0.0
        net.outcomes.weight.normal_(std=0.5)
        net.light.opinion_out.weight.normal_(std=0.5)
        net.next_bias.normal_(std=0.5)
        net.next_scale.fill_(1.5)
        net.trust.copy_(torch.tensor([[0.9, 0.6, 0.8, 0.7], [1.1, 0.5, 0.3, 0.2]]))
    return SecondModel(version, net.requires_grad_(False), vocabulary, sizes, (1.0, 3.0, -0.5, 1.0), 50)


def course(count: int, seed: int = 0, gap_s: float = 100.0) -> Course:
    """A course of random happenings."""
    draw = np.random.default_rng(seed)
    made = Course()
    kinds = [*KNOWN.kinds, "i:never seen"]
    time_s = START_S
    for offset in range(count):
        time_s += float(draw.exponential(gap_s))
        terms = draw.integers(100, 220, draw.integers(0, 6)).astype("<u4").tobytes()
        action = f"a{draw.integers(0, 25)}" if draw.random() < 0.7 else None
        happening = Happening(
            time_s, offset, 0, kinds[draw.integers(len(kinds))], action, "chat", "image",
            int(draw.integers(1, 4)), terms,
        )  # fmt: skip
        made.add(happening, None)
    return made


def candidates(count: int, seed: int = 0) -> CandidateTokens:
    """Random candidates, some features unknown."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((count, len(COLUMNS))).astype(np.float32)
    features[draw.random(features.shape) < 0.1] = np.nan
    return CandidateTokens(
        draw.integers(1, 22, count).astype(np.int32),
        draw.integers(0, 4, count).astype(np.int32),
        features,
        draw.standard_normal(count).astype(np.float32),
    )


def context(text: str | None = None) -> Context:
    """A request's context."""
    return Context(surface="chat", trigger=Trigger(type="typed"), text=text, entities=[Entity(id="1", type="image")])
