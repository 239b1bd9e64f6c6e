"""The text scorer and the evidence of its threshold, beside each other where the service looks for the scorer."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from ranker.release.durable import exclusive, replace_atomically
from ranker.safety_text import TextScorer, load_text_scorer
from training.errors import TrainingError
from training.safety import MODEL_FILE, Share

RECORD_FILE = "safety.evidence.json"


class CalibrationRecord(msgspec.Struct, frozen=True):
    """Why the threshold is what it is.

    Args:
        date: ISO 8601, UTC.
        labelled, labelled_sha256: the file of held-out texts.
        limit, confidence, method: what was asked for; `conformal` holds in expectation, whatever the confidence.
        unsafe, safe: cases.
        missed, withheld: unsafe cases that pass and safe ones that are flagged, at the threshold.
    """

    date: str
    labelled: str
    labelled_sha256: str
    method: str
    limit: float
    confidence: float
    threshold: float
    feasible: bool
    unsafe: int
    safe: int
    missed: Share
    withheld: Share


class SafetyRecord(msgspec.Struct, frozen=True):
    """What is known of an installed scorer.

    Args:
        scorer_sha256: of the scorer's file that this is about.
        weights_sha256: of its weights and bias, which a new threshold leaves as they are.
        trained, trained_on_sha256: when, and the labelled file that it learned from; None where unknown.
        calibration: None while the threshold is the one of its training.
    """

    scorer_sha256: str
    weights_sha256: str
    trained: str | None = None
    trained_on_sha256: str | None = None
    calibration: CalibrationRecord | None = None


def read_record(models: Path) -> SafetyRecord | None:
    """The evidence in a folder of models, None where there is none.

    A crash between the two writes leaves evidence of an older threshold: `scorer_sha256` tells.

    Raises:
        TrainingError: it is broken.
    """
    path = models / RECORD_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SafetyRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: is no evidence of a scorer: {error}") from error


def was_trained_on(models: Path, scorer: TextScorer, labelled_sha256: str) -> bool:
    """Whether the evidence says that this scorer learned from that very file."""
    record = read_record(models)
    known = record is not None and record.weights_sha256 == weights_sha256(scorer)
    return known and record is not None and record.trained_on_sha256 == labelled_sha256


def install_trained(models: Path, scorer: TextScorer, trained: str, trained_on_sha256: str) -> Path:
    """Puts a scorer that was just trained where the service finds it, with what it learned from.

    Args:
        trained: ISO 8601, UTC.
    """
    models.mkdir(parents=True, exist_ok=True)
    with exclusive(models / ".lock"):
        return _write(models, scorer, SafetyRecord("", "", trained, trained_on_sha256))


def install_threshold(models: Path, was: TextScorer, calibration: CalibrationRecord) -> Path:
    """Gives the installed scorer the calibrated threshold, with its evidence.

    Args:
        was: the scorer that the threshold was found for.

    Raises:
        TrainingError: another one has been installed meanwhile.
    """
    with exclusive(models / ".lock"):
        path = models / MODEL_FILE
        if load_text_scorer(path).to_bytes() != was.to_bytes():
            raise TrainingError(f"{path}: has been replaced meanwhile; calibrate what is there now")
        old = read_record(models)
        known = old if old is not None and old.weights_sha256 == weights_sha256(was) else SafetyRecord("", "")
        scorer = replace(was, threshold=calibration.threshold)
        return _write(models, scorer, msgspec.structs.replace(known, calibration=calibration))


def weights_sha256(scorer: TextScorer) -> str:
    """What makes two scorers score alike."""
    digest = hashlib.sha256(np.ascontiguousarray(scorer.weights, "<f4").tobytes())
    digest.update(np.array([scorer.bias], "<f8").tobytes())
    return digest.hexdigest()


def _write(models: Path, scorer: TextScorer, record: SafetyRecord) -> Path:
    content = scorer.to_bytes()
    digest = hashlib.sha256(content).hexdigest()
    named = msgspec.structs.replace(record, scorer_sha256=digest, weights_sha256=weights_sha256(scorer))
    replace_atomically(models / MODEL_FILE, content)
    replace_atomically(models / RECORD_FILE, msgspec.json.format(msgspec.json.encode(named), indent=2) + b"\n")
    return models / MODEL_FILE
