"""Training the light stage: it learns what can be known, out of fold, and nothing from after `until`."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from features.events import Event
from features.registry import FINGERPRINT
from features.text_terms import BUCKETS
from ranker.config import SampleSettings, TextSettings, TrainConfig, TreesSettings
from ranker.light_model import LightModel
from tests.training.logs import START_S, TrainedFiles, answered, catalogue, did, forget, ranked, write_log
from training.errors import TrainingError
from training.examples import TEXT_COLUMNS, TermRows, gather_examples
from training.light import text_out_of_fold, train_light
from training.text_fit import fit_text, stack_terms

SMALL = TrainConfig(
    sample=SampleSettings(folds=3),
    text=TextSettings(epochs=8, batch=64, min_examples=2),
    trees=TreesSettings(rounds=15, min_data_in_leaf=5, threads=1),
)
WORDS = {"a": "apple", "b": "banana", "c": "cherry", "d": "damson"}


def dialogue(number: int, said: str, useful: str, at_s: float, **more: Any) -> list[Event]:
    session = f"s{number}"
    return [
        did(None, at_s, session=session, text=said, id=f"i{number}"),
        ranked(f"r{number}", at_s + 1, "abcd", session=session, **more),
        answered(f"r{number}", "complete", at_s + 2, useful),
    ]


def spoken(count: int, seed: int = 0) -> list[Event]:
    """What is said names the useful action, in a thousand of other words."""
    draw = random.Random(seed)
    events = catalogue("abcd")
    for number in range(count):
        useful = draw.choice("abcd")
        noise = " ".join(f"w{chr(97 + draw.randrange(26))}" for _ in range(4))
        events += dialogue(number, f"{noise} {WORDS[useful]}", useful, 100.0 * number)
    return events


def test_it_learns_what_was_said_and_says_what_it_learned_from(tmp_path: Path) -> None:
    write_log(tmp_path, spoken(150))
    told: list[str] = []
    trained = train_light(tmp_path, config=SMALL, progress=lambda what, *_: told.append(what))
    assert set(trained.files) == {"text-plain.safetensors", "light-plain.txt"}
    assert trained.metrics["plain_text_hr@1_out_of_fold"] > 0.9
    assert trained.schema == FINGERPRINT
    assert trained.data["queries"] == trained.data["rankings"] == 150
    assert trained.data["since"] == "2023-11-14T22:13:21.000Z"
    assert {"replay", "plain text", "plain trees"} <= set(told)


def test_the_same_log_and_settings_give_the_same_files(tmp_path: Path) -> None:
    write_log(tmp_path, spoken(40))
    assert train_light(tmp_path, config=SMALL).files == train_light(tmp_path, config=SMALL).files


def test_nothing_at_or_after_until_is_learned(tmp_path: Path) -> None:
    early = spoken(40)
    write_log(tmp_path / "early", early)
    late = [event for number in range(40, 60) for event in dialogue(number, "apple", "b", 100.0 * number)]
    write_log(tmp_path / "all", [*early, *late])
    until_s = START_S + 4000.0
    one, other = (train_light(tmp_path / name, until_s, config=SMALL) for name in ("early", "all"))
    assert one.files == other.files
    assert one.data == other.data


def test_own_actions_after_until_are_not_learned_either(tmp_path: Path) -> None:
    events = [did("abcd"[number % 4], float(number), user=f"u{number % 5}") for number in range(100)]
    write_log(tmp_path, [*catalogue("abcd"), *events])
    trained = train_light(tmp_path, START_S + 60.0, config=SMALL)
    assert trained.data["queries"] == 60
    assert trained.data["last"] < trained.data["until"]


def test_who_asks_to_be_forgotten_is_not_learned_from_even_if_he_asked_after_until(tmp_path: Path) -> None:
    events = spoken(40)
    mine: list[Event] = [
        ranked("mine", 50.0, "abcd", user="me", session="m"),
        answered("mine", "complete", 51.0, "a", user="me"),
        forget(9000.0, user="me"),
    ]
    write_log(tmp_path, [*events, *mine])
    trained = train_light(tmp_path, START_S + 5000.0, config=SMALL)
    assert trained.data["queries"] == 40
    assert trained.data["skipped"] == {"forgotten": 1}


def test_a_log_without_anything_useful_is_refused_with_what_it_has(tmp_path: Path) -> None:
    write_log(tmp_path, [*catalogue("ab"), ranked("r", 0), answered("r", "dismiss", 1)])
    with pytest.raises(TrainingError, match=r"no useful outcome.*rankings.: 1"):
        train_light(tmp_path, config=SMALL)


def test_no_text_score_comes_from_a_model_that_saw_the_cluster(tmp_path: Path) -> None:
    """Each session has a word of its own, said with every query: only memorising could use it."""
    draw = random.Random(0)
    events, number = catalogue("abcd"), 0
    for session in range(60):
        useful = draw.choice("abcd")
        for _ in range(3):
            at_s = 10.0 * number
            word = "".join(chr(97 + int(digit)) for digit in f"{session:03d}")
            events += [
                did(None, at_s, session=f"s{session}", text=f"x{word}", id=f"i{number}", user=f"u{session}"),
                ranked(f"r{number}", at_s + 1, "abcd", session=f"s{session}", user=f"u{session}"),
                answered(f"r{number}", "complete", at_s + 2, useful, user=f"u{session}"),
            ]
            number += 1
    write_log(tmp_path, events)
    examples = gather_examples(tmp_path, None, SampleSettings(folds=3), False)
    # What happened in the session before gives the action away, so only the words are left.
    terms = TermRows(examples.plain.terms, examples.plain.actions, examples.plain.folds)
    for place, row in enumerate(terms.terms):
        words = np.array([zlib.crc32(b"%d" % (place // 3)) % BUCKETS], np.uint32)
        terms.terms[place] = type(row)(words, np.ones(1, np.float32))
    settings = msgspec.structs.replace(SMALL, text=TextSettings(epochs=40, batch=16, min_examples=1))
    model, scores = text_out_of_fold(terms, settings, lambda *_: None)
    hits = [model.actions[int(row.argmax())] == action for row, action in zip(scores, terms.actions, strict=True)]
    seen = fit_text(stack_terms(terms.terms), terms.actions, settings.text)
    memorised = [
        model.actions[int(seen.scores(row, model.actions).argmax())] == action
        for row, action in zip(terms.terms, terms.actions, strict=True)
    ]
    assert np.mean(memorised) > 0.9, "a model that saw them knows them by heart"
    assert np.mean(hits) < 0.45, "one that did not is no better than chance"


def test_queries_of_a_session_are_in_one_fold(tmp_path: Path) -> None:
    events = catalogue("abcd")
    for number in range(30):
        events += dialogue(number % 10 * 100 + number, "apple", "a", 10.0 * number)
    write_log(tmp_path, events)
    examples = gather_examples(tmp_path, None, SampleSettings(folds=4), False)
    assert len(examples.plain.folds) == 30
    columns = np.concatenate(examples.vectors.features)[:, TEXT_COLUMNS]
    assert np.isnan(columns).all(), "text columns wait for their fold"


def test_a_hint_makes_a_second_set_that_uses_it(tmp_path: Path) -> None:
    draw = random.Random(1)
    events = catalogue("abcd")
    for number in range(120):
        useful = draw.choice("abcd")
        context = {"fields": {"_hint": f"i want {WORDS[useful]}"}}
        events += dialogue(number, "hm", useful, 100.0 * number, context=context)
    write_log(tmp_path, events)
    plain = train_light(tmp_path, config=SMALL)
    assert LightModel.load(TrainedFiles(plain.files), "1", plain.schema, plain.files).kinds == ("plain",)
    trained = train_light(tmp_path, hint=True, config=SMALL)
    assert LightModel.load(TrainedFiles(trained.files), "1", trained.schema, trained.files).kinds == ("plain", "hint")
    assert trained.metrics["hint_text_hr@1_out_of_fold"] > 0.9 > trained.metrics["plain_text_hr@1_out_of_fold"]


def test_hints_that_are_older_than_what_is_sampled_make_no_set(tmp_path: Path) -> None:
    old = dialogue(0, "hm", "a", 0.0, context={"fields": {"_hint": "apple"}})
    write_log(tmp_path, [*catalogue("abcd"), *old, *spoken(30)[4:][3:]])
    few = msgspec.structs.replace(SMALL, sample=SampleSettings(max_queries=10, folds=3))
    assert set(train_light(tmp_path, hint=True, config=few).files) == {"text-plain.safetensors", "light-plain.txt"}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_handful_of_examples_is_enough_for_a_model_that_loads(tmp_path: Path, count: int) -> None:
    write_log(tmp_path, spoken(count))
    trained = train_light(tmp_path, config=TrainConfig())
    light = LightModel.load(TrainedFiles(trained.files), "1", trained.schema, trained.files)
    assert light.kinds == ("plain",)
