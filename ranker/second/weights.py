"""A second stage as files of a version: shards of safetensors, its vocabularies, and what the manifest says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as render
from torch import Tensor

from features.registry import COLUMNS, FINGERPRINT
from ranker.release.manifest import Manifest, SecondEntry
from ranker.second.config import HEADS, SecondConfig, Sizes
from ranker.second.errors import SchemaRefused, WeightsRefused
from ranker.second.network import SecondNet
from ranker.second.tokens import TOKENS_VERSION
from ranker.second.vocabulary import Known, Vocabulary

VOCABULARY_FILE = "second-vocabulary.json"
SHARD_BYTES = 64 << 20

Floats = NDArray[np.float64]


def shard_file(number: int) -> str:
    """Name of a shard in a version."""
    return f"second-{number:03d}.safetensors"


def is_second_file(name: str) -> bool:
    """Whether a version's file belongs to its second stage."""
    return name.startswith("second-")


@dataclass(frozen=True)
class SecondModel:
    """One version's second stage.

    Args:
        worth: of each of HEADS; 0 where training saw no such outcome.
        passed_on: candidates that it was made to rank.
        without: what is left out of its tokens.
    """

    version: str
    net: SecondNet
    vocabulary: Vocabulary
    sizes: Sizes
    worth: tuple[float, ...]
    passed_on: int
    without: frozenset[str] = frozenset()

    def utility(self, logits: Tensor | NDArray[np.floating]) -> Floats:
        """Scores [...] of outcome logits [..., HEADS], on the scale of log-odds."""
        if isinstance(logits, Tensor):
            logits = logits.detach().double().cpu().numpy()
        return utility_of(np.asarray(logits, np.float64), self.worth)


def utility_of(logits: Floats, worth: tuple[float, ...]) -> Floats:
    """Log-odds of the expected worth Σ w·σ(z), taken as a share of the way from the least to the most there can be.

    With one outcome of worth this is its logit. In float64, since a small chance beside a possible loss would be lost.

    Args:
        logits: [..., HEADS].
    """
    weights = np.asarray(worth, np.float64)
    gains, losses = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
    won, lost = _sigmoid(logits), _sigmoid(-logits)
    # the share and its complement, each as a sum of positive parts: neither loses digits near 0
    upper = (won * gains + lost * losses).sum(axis=-1)
    lower = (lost * gains + won * losses).sum(axis=-1)
    score: Floats = np.log(np.maximum(upper, 1e-300)) - np.log(np.maximum(lower, 1e-300))
    return score


def _sigmoid(logits: Floats) -> Floats:
    found: Floats = np.exp(-np.logaddexp(0.0, -logits))
    return found


def to_files(
    net: SecondNet, known: Known, config: SecondConfig, trained: Mapping[str, bool], light: str,
    shard_bytes: int = SHARD_BYTES, without: Sequence[str] = (),
) -> tuple[dict[str, bytes], SecondEntry]:  # fmt: skip
    """Files by name, and the manifest's entry.

    Args:
        trained: per head, whether training saw such an outcome; the others are worth nothing.
        light: the version whose light stage it was trained over.
        without: what was left out of its tokens.
    """
    files = {shard_file(number): render(shard) for number, shard in enumerate(_shards(net.state_dict(), shard_bytes))}
    worth = {
        head: weight if trained.get(head, False) else 0.0
        for head, weight in zip(HEADS, config.utility.signed, strict=True)
    }
    entry = SecondEntry(
        tokens=TOKENS_VERSION,
        sizes=msgspec.to_builtins(net.sizes),
        vocabularies=known.counts,
        shards=list(files),
        worth=worth,
        passed_on=config.passed_on,
        light=light,
        without=list(without),
    )
    return {**files, VOCABULARY_FILE: msgspec.json.encode(known)}, entry


def _shards(tensors: Mapping[str, Tensor], limit: int) -> Iterator[dict[str, Tensor]]:
    """Tensors in their order, a new shard where the next would not fit; float32."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().float().cpu().contiguous()
        if shard and size + tensor.nbytes > limit:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += tensor.nbytes
    yield shard


def known_from(packed: bytes, entry: SecondEntry, where: str) -> Known:
    """The vocabularies that a version keeps.

    Raises:
        WeightsRefused: broken, or not what the manifest says.
    """
    try:
        known = msgspec.json.decode(packed, type=Known)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WeightsRefused(f"{where}, {VOCABULARY_FILE}: {error}") from error
    if known.counts != entry.vocabularies:
        raise WeightsRefused(f"{where}, {VOCABULARY_FILE}: has {known.counts}, the manifest says {entry.vocabularies}")
    return known


def sizes_from(entry: SecondEntry, where: str) -> Sizes:
    """The sizes that a manifest says.

    Raises:
        SchemaRefused: made for other tokens.
        WeightsRefused: they cannot be.
    """
    if entry.tokens != TOKENS_VERSION:
        raise SchemaRefused(f"{where}: made for tokens {entry.tokens}, this program has {TOKENS_VERSION}")
    try:
        return msgspec.convert(entry.sizes, Sizes)
    except msgspec.ValidationError as error:
        raise WeightsRefused(f"{where}, manifest, second.sizes: {error}") from error


def net_from_shards(shards: Mapping[str, bytes], entry: SecondEntry, known: Known, where: str) -> SecondNet:
    """The network of verified shards, ready to score.

    Args:
        shards: bytes by file name, all of `entry.shards`.

    Raises:
        SchemaRefused: made for other tokens.
        WeightsRefused: a tensor is missing, strange, of another shape, or not finite.
    """
    net = SecondNet(sizes_from(entry, where), Vocabulary(known).rows, len(COLUMNS))
    wanted = net.state_dict()
    found: dict[str, Tensor] = {}
    for name in entry.shards:
        found.update(_parsed(shards, name, where))
    if wanted.keys() != found.keys():
        strange = sorted(wanted.keys() ^ found.keys())
        raise WeightsRefused(f"{where}: tensors missing or strange: {', '.join(strange[:5])}")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise WeightsRefused(f"{where}: {name} is {tuple(tensor.shape)}, not {tuple(wanted[name].shape)}")
        if not bool(torch.isfinite(tensor).all()):
            raise WeightsRefused(f"{where}: {name} has a weight that is not finite")
    net.load_state_dict(found)
    return net.eval().requires_grad_(False)


def _parsed(shards: Mapping[str, bytes], name: str, where: str) -> dict[str, Tensor]:
    if name not in shards:
        raise WeightsRefused(f"{where}: shard {name} is missing")
    try:
        return {key: tensor.float() for key, tensor in parse(bytes(shards[name])).items()}
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise WeightsRefused(f"{where}, {name}: {error}") from error


def servable(manifest: Manifest, to_judge: bool = False) -> SecondEntry | None:
    """A version's second stage as this program can use it; None where it has none.

    Raises:
        SchemaRefused: made for another feature schema, or only to be judged.
    """
    entry, where = manifest.second, f"model version {manifest.version!r}"
    if entry is None:
        return None
    if manifest.schema != FINGERPRINT:
        raise SchemaRefused(f"{where}: made for feature schema {manifest.schema}, this program has {FINGERPRINT}")
    if entry.without and not to_judge:
        raise SchemaRefused(f"{where}: made without {', '.join(entry.without)}, to be judged and not to serve")
    return entry


def load_second_model(files: Mapping[str, bytes], manifest: Manifest, to_judge: bool = False) -> SecondModel | None:
    """A version's second stage; None where it has none.

    Args:
        files: verified bytes of its second stage's files, by name.
        to_judge: also one that was trained without a part of what is known.

    Raises:
        SchemaRefused: made for another feature schema, for other tokens, or only to be judged.
        WeightsRefused: its files are broken.
    """
    entry, where = servable(manifest, to_judge), f"model version {manifest.version!r}"
    if entry is None:
        return None
    if VOCABULARY_FILE not in files:
        raise WeightsRefused(f"{where}: {VOCABULARY_FILE} is missing")
    known = known_from(files[VOCABULARY_FILE], entry, where)
    net = net_from_shards(files, entry, known, where)
    worth = tuple(entry.worth.get(head, 0.0) for head in HEADS)
    return SecondModel(
        manifest.version, net, Vocabulary(known), net.sizes, worth, entry.passed_on, frozenset(entry.without)
    )


def cast(net: SecondNet, dtype: torch.dtype) -> SecondNet:
    """The network with its parameters in another format; what rotates keys and scales features stays exact."""
    for parameter in net.parameters():
        parameter.data = parameter.data.to(dtype)
    return net
