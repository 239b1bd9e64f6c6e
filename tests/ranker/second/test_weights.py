"""A second stage as files: what is kept comes back the same, and what is broken is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load as parse
from safetensors.torch import save as render

from features.registry import FINGERPRINT
from ranker.release.manifest import Manifest, SecondEntry
from ranker.second.config import SecondConfig
from ranker.second.direct import score_direct, see
from ranker.second.errors import SchemaRefused, SecondError, WeightsRefused
from ranker.second.weights import VOCABULARY_FILE, cast, load_second_model, to_files, utility_of
from tests.ranker.second.made import KNOWN, candidates, context, course, model

ALL = {"accept": True, "complete": True, "dismiss": True, "reuse": True}


def packed(shard_bytes: int = 20_000) -> tuple[dict[str, bytes], SecondEntry]:
    return to_files(model().net, KNOWN, SecondConfig(), ALL, "7", shard_bytes)


def manifest(entry: SecondEntry, schema: str = FINGERPRINT) -> Manifest:
    return Manifest(version="8", kind="second", created="", files={}, schema=schema, second=entry)


def test_a_model_comes_back_from_its_shards_and_manifest_alone() -> None:
    files, entry = packed()
    assert len(entry.shards) > 2
    told = msgspec.json.decode(msgspec.json.encode(manifest(entry)), type=Manifest)
    found = load_second_model(files, told)
    made = model()
    assert found is not None
    assert found.worth == (1.0, 3.0, -0.5, 1.0)
    now = course(9)
    seen = see(made, now, now.kept[-1].time_s + 3, "u", "s", context("words"))
    assert torch.equal(score_direct(made, seen, candidates(6)), score_direct(found, seen, candidates(6)))


def test_a_version_without_a_second_stage_has_none() -> None:
    told = Manifest(version="1", kind="light", created="", files={}, schema=FINGERPRINT)
    assert load_second_model({}, told) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_refused(value: float) -> None:
    files, entry = packed()
    name = entry.shards[-1]
    tensors = parse(files[name])
    first = sorted(tensors)[0]
    tensors[first].view(-1)[0] = value
    with pytest.raises(WeightsRefused, match="not finite"):
        load_second_model({**files, name: render(tensors)}, manifest(entry))


def test_another_feature_schema_is_refused() -> None:
    files, entry = packed()
    with pytest.raises(SchemaRefused, match="made for feature schema 0123"):
        load_second_model(files, manifest(entry, "0123"))


def test_other_tokens_are_refused() -> None:
    files, entry = packed()
    with pytest.raises(SchemaRefused, match="made for tokens 99"):
        load_second_model(files, manifest(msgspec.structs.replace(entry, tokens=99)))


def broken(files: dict[str, bytes], entry: SecondEntry) -> list[tuple[str, dict[str, bytes], SecondEntry]]:
    shard = entry.shards[0]
    tensors = parse(files[shard])
    first = sorted(name for name, tensor in tensors.items() if tensor.ndim)[0]
    reshaped = {**tensors, first: tensors[first][:-1].clone()}
    less = {name: tensor for name, tensor in tensors.items() if name != first}
    replace = msgspec.structs.replace
    return [
        ("shard", {name: content for name, content in files.items() if name != shard}, entry),
        ("second-000", {**files, shard: files[shard][:100]}, entry),
        ("second-000", {**files, shard: b""}, entry),
        (first, {**files, shard: render(reshaped)}, entry),
        (first, {**files, shard: render(less)}, entry),
        ("strange", {**files, shard: render({**tensors, "strange": torch.zeros(1)})}, entry),
        (VOCABULARY_FILE, {name: content for name, content in files.items() if name != VOCABULARY_FILE}, entry),
        (VOCABULARY_FILE, {**files, VOCABULARY_FILE: b"{"}, entry),
        ("the manifest says", files, replace(entry, vocabularies={**entry.vocabularies, "actions": 1})),
        ("second.sizes", files, replace(entry, sizes={**entry.sizes, "dim": 7})),
        ("second.sizes", files, replace(entry, sizes={**entry.sizes, "depth": 7})),
    ]


@pytest.mark.parametrize("case", range(11))
def test_what_is_broken_is_refused_and_named(case: int) -> None:
    complaint, files, entry = broken(*packed())[case]
    with pytest.raises(SecondError, match=complaint):
        load_second_model(files, manifest(entry))


def test_an_outcome_that_training_never_saw_is_worth_nothing() -> None:
    _, entry = to_files(model().net, KNOWN, SecondConfig(), {"accept": True}, "1")
    assert entry.worth == {"accept": 1.0, "complete": 0.0, "dismiss": 0.0, "reuse": 0.0}


def test_the_utility_of_one_outcome_is_its_logit() -> None:
    logits = np.array([[-30.0, 5.0, 5.0, 5.0], [0.3, 0, 0, 0], [25.0, 1, 1, 1]])
    assert utility_of(logits, (2.0, 0.0, 0.0, 0.0)) == pytest.approx([-30.0, 0.3, 25.0])


def test_the_utility_orders_by_expected_worth() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(200, 4)) * 4
    worth = np.array([1.0, 3.0, -0.5, 1.0])
    expected = (1 / (1 + np.exp(-logits)) * worth).sum(axis=1)
    assert (np.argsort(expected) == np.argsort(utility_of(logits, tuple(worth)))).all()


def test_half_precision_moves_scores_little() -> None:
    made = model()
    now = course(9)
    seen = see(made, now, now.kept[-1].time_s + 3, "u", "s", context("words"))
    wanted = score_direct(made, seen, candidates(40))
    cast(made.net, torch.bfloat16)
    found = score_direct(made, seen, candidates(40))
    spread: Any = wanted.std(dim=0)
    assert float(((wanted - found).abs().mean(dim=0) / spread).max()) < 0.05
