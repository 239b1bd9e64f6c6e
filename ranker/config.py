"""Configuration: frozen, read once, checked when built. The YAML files in `configs/` document every key.

Each key is optional; what the files say is the default here, and a test holds the two together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from features.catalogue import MAX_ACTIONS, ActionSpec
from features.errors import StoreUnavailable
from features.events import MAX_CANDIDATES, Name
from features.label_config import LabelSettings, OutcomeWindows
from features.store_url import parse_store_url
from ranker.config_file import build, load, read_yaml
from ranker.errors import ConfigError
from ranker.policy_config import PolicyConfig
from ranker.second_config import ServeSecond

Ms = Annotated[float, Meta(gt=0, le=600_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=1000)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Threads = Annotated[int, Meta(ge=1, le=256)]
Workers = Annotated[int, Meta(ge=1, le=64)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Text = Annotated[str, Meta(min_length=1, max_length=4096)]

EMBEDDED = "embedded"


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a caller of each priority waits, in ms, when it does not say."""

    premium: Ms = 60.0
    normal: Ms = 100.0

    def by_priority(self) -> dict[str, float]:
        """As a mapping from the priority's name."""
        return {"premium": self.premium, "normal": self.normal}


class ServeAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rankings have the texts that the scorer checked logged, for people to judge.

    Args:
        probability: of each ranking; 0: none.
    """

    probability: Share = 0.0


class ServeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configs/serve.yaml`."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    store: Text = EMBEDDED
    store_timeout_ms: Ms = 15.0
    log_dir: Text = "nextaction-data/log"
    models_dir: Text = "nextaction-data/models"
    ranking_sync_ms: Ms = 1000.0
    lag_limit_ms: Ms = 2000.0
    catalogue_lag_limit_ms: Ms = 2000.0
    epsilon: Share = 0.0
    temperature: Annotated[float, Meta(ge=0.001, le=1000)] = 1.0
    secret_env: Text = "NEXTACTION_SECRET"
    secret_file: Text = "nextaction-data/secret"
    max_candidates: Annotated[int, Meta(ge=1, le=MAX_CANDIDATES)] = 200
    max_body_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 256 * 1024
    budgets_ms: Budgets = Budgets()
    outcomes: OutcomeWindows = OutcomeWindows()
    workers: Workers = 1
    threads: Threads = 1
    freeze_gc: bool = True
    audit: ServeAudit = ServeAudit()
    second: ServeSecond = ServeSecond()

    def __post_init__(self) -> None:
        if self.store == EMBEDDED:
            return
        try:
            parse_store_url(self.store)
        except StoreUnavailable as error:
            raise ValueError(f"Expected `store` to be {EMBEDDED!r} or a URL: {error}") from error


class SampleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to learn from.

    Args:
        negatives: `offered` compares only what was shown, `pool` takes all candidates that were not for useless;
            `auto` decides by the log (see training/evidence.py).
    """

    max_queries: Count = 20_000
    negatives: Literal["auto", "offered", "pool"] = "auto"
    top: Annotated[int, Meta(ge=0, le=MAX_CANDIDATES)] = 20
    others: Annotated[int, Meta(ge=0, le=MAX_CANDIDATES)] = 8
    folds: Annotated[int, Meta(ge=2, le=20)] = 4
    seed: Seed = 0


class TextSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text model: how much what was said speaks for each action."""

    epochs: Annotated[int, Meta(ge=1, le=1000)] = 4
    batch: Count = 512
    rate: Positive = 0.3
    min_examples: Count = 4
    smoothing: Share = 0.1
    max_actions: Annotated[int, Meta(ge=1, le=MAX_ACTIONS)] = 2_000
    seed: Seed = 0


class TreesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LightGBM's LambdaMART."""

    rounds: Annotated[int, Meta(ge=1, le=100_000)] = 30
    num_leaves: Annotated[int, Meta(ge=2, le=4096)] = 15
    learning_rate: Positive = 0.2
    min_data_in_leaf: Count = 200
    feature_fraction: Fraction = 0.6
    bagging_fraction: Fraction = 0.8
    lambda_l2: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    truncation_level: Count = 10
    max_bin: Annotated[int, Meta(ge=2, le=65_535)] = 127
    exponential: bool = True
    threads: Threads = 2
    seed: Seed = 0


class PositionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done about lists being looked at from the top.

    Args:
        bias: `model` lets the trees' training fit a bias per position, `ips` weighs what was useful by one over
            how often its position is looked at, `none` believes the log; `auto` decides by the log.
        regularization: of the fitted biases; more than 0 leaves some of them in the model.
        clip: largest weight of `ips`.
    """

    bias: Literal["auto", "none", "model", "ips"] = "auto"
    regularization: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    clip: Annotated[float, Meta(ge=1, le=1000)] = 10.0


class IncrementalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Going on from a version (`nextaction train light --from`).

    Args:
        rounds: new trees, fitted to what the trees before get wrong on the new queries.
        max_rounds: of all trees: the latest of the parent's make room, for later ones correct those before.
        text_rate, text_epochs: of the text model, from the parent's weights on.
    """

    rounds: Annotated[int, Meta(ge=1, le=100_000)] = 10
    max_rounds: Annotated[int, Meta(ge=2, le=100_000)] = 60
    text_rate: Positive = 0.1
    text_epochs: Annotated[int, Meta(ge=1, le=1000)] = 2


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configs/train.yaml`: a section for each part of the light stage's training."""

    outcomes: OutcomeWindows = OutcomeWindows()
    labels: LabelSettings = LabelSettings()
    position: PositionSettings = PositionSettings()
    sample: SampleSettings = SampleSettings()
    text: TextSettings = TextSettings()
    trees: TreesSettings = TreesSettings()
    incremental: IncrementalSettings = IncrementalSettings()


def config_dir() -> Path:
    """Where the YAML files lie: inside the installed package, or at the top of a clone."""
    installed = Path(__file__).parent / "configs"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "configs"


def load_serve(path: Path | None = None) -> ServeConfig:
    """How to serve. Raises ConfigError."""
    return load(path or config_dir() / "serve.yaml", ServeConfig)


def load_policy(path: Path | None = None) -> PolicyConfig:
    """What may be offered to whom, when. Raises ConfigError."""
    return load(path or config_dir() / "policy.yaml", PolicyConfig)


def load_train(path: Path | None = None) -> TrainConfig:
    """How to learn. Raises ConfigError."""
    return load(path or config_dir() / "train.yaml", TrainConfig)


def load_actions(path: Path | None = None) -> dict[str, ActionSpec]:
    """The catalogue of a file, by action in its order. Raises ConfigError."""
    path = path or config_dir() / "actions.yaml"
    tree = read_yaml(path)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: the file: expected a mapping from action to its fields, not {type(tree).__name__}")
    if len(tree) > MAX_ACTIONS:
        raise ConfigError(f"{path}: the file: {len(tree)} actions are more than {MAX_ACTIONS}")
    return {_name(path, action): build(path, fields or {}, ActionSpec, f"{action}") for action, fields in tree.items()}


def _name(path: Path, action: object) -> str:
    try:
        return msgspec.convert(action, Name)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: action {action!r}: {error}") from error
