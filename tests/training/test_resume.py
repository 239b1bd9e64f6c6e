"""Learning from a part of a log: which queries that takes, and replays that go on from a checkpoint, to the bit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from features.events import Event, RankingEvent, encode_event, from_seconds
from features.label_config import OutcomeWindows
from features.log import LogWriter
from ranker.config import SampleSettings
from tests.training.logs import answered, catalogue, ranked, write_log
from training import replay_checkpoint
from training.bench.truth import World
from training.errors import TrainingError
from training.examples import Examples, gather_examples
from training.replay_checkpoint import FILE, CheckpointRefused, load_checkpoint
from training.resume import Span
from training.simulate import START_S, Exploration, Simulator

DAY_S = 86400.0
SINCE_S = START_S + 4 * DAY_S
SAMPLE = SampleSettings(folds=2)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(World.simulate(Simulator(1, users=60, days=6), Exploration(0.3)).events)


@pytest.fixture
def lookahead(monkeypatch: pytest.MonkeyPatch) -> int:
    """Short, so that a small log has checkpoints."""
    for module in ("training.replay", "training.resume"):
        monkeypatch.setattr(f"{module}.LOOKAHEAD_EVENTS", 256)
    return 256


@pytest.fixture
def log(tmp_path: Path, events: list[Event]) -> Path:
    return write_log(tmp_path / "log", events)


def gathered(log: Path, until_s: float | None, span: Span) -> Examples:
    return gather_examples(log, until_s, SAMPLE, False, span=span)


def bits(examples: Examples) -> list[bytes]:
    terms = [row.buckets.tobytes() + row.weights.tobytes() for row in examples.plain.terms]
    rows = examples.vectors
    return [*terms, *(of.tobytes() for column in (rows.features, rows.grades, rows.positions) for of in column)]


@pytest.mark.usefixtures("lookahead")
def test_from_a_checkpoint_there_are_the_same_examples_to_the_bit_as_from_the_start(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    gathered(log, SINCE_S, Span(None, folder))
    whole = gathered(log, None, Span(SINCE_S))
    resumed = gathered(log, None, Span(SINCE_S, folder))
    assert resumed.start > 300
    assert whole.start == 0
    assert len(whole.vectors.features) > 20
    assert bits(resumed) == bits(whole)
    assert resumed.rankings == whole.rankings


@pytest.mark.usefixtures("lookahead")
def test_a_chain_of_checkpoints_a_day_each_gives_the_same_as_one_replay(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    starts, found = [], []
    gathered(log, START_S + 2 * DAY_S, Span(None, folder))
    for day in (2, 3, 4, 5):
        span = Span(START_S + day * DAY_S, folder)
        examples = gathered(log, START_S + (day + 1) * DAY_S, span)
        starts.append(examples.start)
        found.append(bits(examples))
    assert starts == sorted(set(starts))
    assert starts[-1] > starts[0] > 0
    for day, resumed in zip((2, 3, 4, 5), found, strict=True):
        at_s = START_S + day * DAY_S
        assert resumed == bits(gathered(log, at_s + DAY_S, Span(at_s)))


@pytest.mark.usefixtures("lookahead")
def test_what_was_met_before_a_checkpoint_is_not_met_again_when_it_is_logged_again(
    log: Path, tmp_path: Path, events: list[Event]
) -> None:
    folder = tmp_path / "checkpoint"
    gathered(log, SINCE_S, Span(None, folder))
    kept = load_checkpoint(folder, log, OutcomeWindows())
    assert kept is not None
    first = next(event for event in events if isinstance(event, RankingEvent))
    late = msgspec.structs.replace(first, time=from_seconds(SINCE_S + 1.0))
    with LogWriter.open(log) as writer:
        writer.append([encode_event(late)])
    assert bits(gathered(log, None, Span(SINCE_S, folder))) == bits(gathered(log, None, Span(SINCE_S)))


def test_since_selects_exactly_the_queries_at_or_after_it(tmp_path: Path) -> None:
    events = catalogue("ab")
    for number in range(10):
        events += [ranked(f"r{number}", 10.0 * number), answered(f"r{number}", "complete", 10.0 * number + 1)]
    log = write_log(tmp_path, events)
    whole = gathered(log, None, Span())
    for wanted in range(10):
        first = from_seconds(1_700_000_000.0 + 10.0 * wanted).timestamp()
        some = gathered(log, None, Span(first))
        assert len(some.plain.terms) == 10 - wanted
        assert some.skipped["before_since"] == wanted
        assert bits(some) == [
            *bits(whole)[wanted:10],
            *(each for start in (10, 20, 30) for each in bits(whole)[start + wanted : start + 10]),
        ]


@pytest.mark.usefixtures("lookahead")
def test_a_checkpoint_that_is_too_late_for_the_queries_asked_for_is_not_gone_on_from(log: Path, tmp_path: Path) -> None:
    gathered(log, SINCE_S, Span(None, tmp_path / "checkpoint"))
    early = START_S + DAY_S
    found = gathered(log, SINCE_S, Span(early, tmp_path / "checkpoint"))
    assert found.start == 0
    assert bits(found) == bits(gathered(log, SINCE_S, Span(early)))


@pytest.mark.usefixtures("lookahead")
def test_a_checkpoint_of_another_log_schema_or_config_is_refused_by_name(
    log: Path, tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    gathered(log, SINCE_S, Span(None, folder))
    other = write_log(tmp_path / "other", events[1:])
    short = write_log(tmp_path / "short", events[:100])
    for wrong in (other, short):
        with pytest.raises(CheckpointRefused, match=f"{FILE} is not of the log {wrong}"):
            gathered(wrong, None, Span(SINCE_S, folder))
    windows = OutcomeWindows(accidental_s=5.0)
    with pytest.raises(CheckpointRefused, match=r"accidental_s=10\.0.*accidental_s=5\.0"):
        load_checkpoint(folder, log, windows)
    monkeypatch.setattr(replay_checkpoint, "FINGERPRINT", "another")
    with pytest.raises(CheckpointRefused, match="these are another"):
        gathered(log, None, Span(SINCE_S, folder))


@pytest.mark.usefixtures("lookahead")
def test_a_broken_checkpoint_is_refused_and_never_half_read(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    gathered(log, SINCE_S, Span(None, folder))
    content = (folder / FILE).read_bytes()
    middle = len(content) // 2
    for broken in (b"", content[:20], content[:-1], content[:middle] + b"\0" + content[middle + 1 :], b"x" + content):
        if broken != content:
            (folder / FILE).write_bytes(broken)
            with pytest.raises(CheckpointRefused, match=FILE):
                gathered(log, None, Span(SINCE_S, folder))


def test_a_folder_without_a_checkpoint_begins_with_the_log_and_one_that_is_a_file_is_refused(
    log: Path, tmp_path: Path
) -> None:
    assert gathered(log, None, Span(SINCE_S, tmp_path / "none")).start == 0
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TrainingError, match="file"):
        gathered(log, None, Span(SINCE_S, tmp_path / "file"))
