"""A last-item training as files of a version, and back: safetensors, a list of names, and the manifest's `extra`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as render_arrays
from safetensors.torch import load as parse
from safetensors.torch import save as render
from scipy import sparse
from torch import Tensor, nn

from ranker.release.registry import Manifest, Registry
from training.last_item.blend import Blend
from training.last_item.errors import BrokenVersion, WrongProtocol
from training.last_item.foretell import Foretell, foretell_with
from training.last_item.loss import Network
from training.last_item.sasrec import SasRec
from training.last_item.second import ItemNet
from training.last_item.settings import FitSettings
from training.last_item.transitions import Transitions

PROTOCOL = "last-item"
"""The manifest's kind too: no other command takes such a version for one that could serve."""

SCHEMA = "last-item-1"
"""No fingerprint of a feature schema: the online service refuses it."""

SECOND, SASREC = "second", "sasrec"
SHARD_BYTES = 64 << 20

_VOCABULARY, _TRANSITIONS = "last-item-vocabulary.json", "last-item-transitions.safetensors"
_NETWORKS: Mapping[str, type[ItemNet] | type[SasRec]] = {SECOND: ItemNet, SASREC: SasRec}


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a manifest's `extra` says of a last-item version.

    Args:
        settings: of each network.
        vocabulary: items.
        shards: files with the tensors of each network, in order.
        fingerprint: of the vocabulary and the training part of the log.
        standings: epochs, the best of them, and the curve on the validation items, by network.
        tried: NDCG@10 on the validation items, by what was tried for the mixture.
    """

    protocol: str
    settings: FitSettings
    vocabulary: int
    shards: dict[str, list[str]]
    blend: Blend
    fingerprint: str
    standings: dict[str, dict[str, Any]] = {}
    tried: dict[str, float] = {}
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}


@dataclass(frozen=True)
class Version:
    """A version that can be judged.

    Args:
        networks: SECOND, and SASREC where it was trained beside.
    """

    name: str
    about: About
    vocabulary: tuple[str, ...]
    networks: Mapping[str, Network]
    transitions: Transitions

    def foretell(self, network: str) -> Foretell:
        """What one of its networks says."""
        return foretell_with(self.networks[network], len(self.vocabulary), self.about.settings.longest)


def build(network: str, items: int, settings: FitSettings) -> Network:
    """A network with random weights, by torch's generator."""
    return _NETWORKS[network](
        items, settings.width, settings.layers, settings.heads, settings.longest, settings.dropout
    )


def to_files(
    networks: Mapping[str, Network], transitions: Transitions, vocabulary: tuple[str, ...],
    shard_bytes: int = SHARD_BYTES,
) -> tuple[dict[str, bytes], dict[str, list[str]]]:  # fmt: skip
    """Files by name, and which are the shards of which network."""
    files = {_VOCABULARY: msgspec.json.encode(vocabulary), _TRANSITIONS: _render_transitions(transitions)}
    shards: dict[str, list[str]] = {}
    for name, network in networks.items():
        assert isinstance(network, nn.Module)
        for number, part in enumerate(_shards(network.state_dict(), shard_bytes)):
            file = f"last-item-{name}-{number:03d}.safetensors"
            files[file] = render(part)
            shards.setdefault(name, []).append(file)
    return files, shards


def about_version(manifest: Manifest) -> About:
    """What the manifest says, checked.

    Raises:
        WrongProtocol: the version was trained otherwise.
        BrokenVersion: `extra` is not what this program writes.
    """
    if manifest.kind != PROTOCOL:
        raise WrongProtocol(
            f"version {manifest.version} was trained as {manifest.kind!r}, not by the protocol {PROTOCOL!r}"
        )
    try:
        return msgspec.convert(manifest.extra, About)
    except msgspec.ValidationError as error:
        raise BrokenVersion(f"version {manifest.version}: extra: {error}") from error


def load_version(registry: Registry, name: str) -> Version:
    """Reads and verifies a version.

    Raises:
        RegistryError: there is no such version, or a file is not what was published.
        WrongProtocol, BrokenVersion: as `about_version`, and where the files do not fit the manifest.
    """
    manifest = registry.manifest(name)
    about = about_version(manifest)
    try:
        vocabulary = msgspec.json.decode(registry.read(name, _VOCABULARY), type=tuple[str, ...])
        if len(vocabulary) != about.vocabulary:
            raise BrokenVersion(f"version {name}: {_VOCABULARY} has {len(vocabulary)} items, not {about.vocabulary}")
        networks = {each: _network(registry, name, each, about) for each in about.shards}
        transitions = _parse_transitions(registry.read(name, _TRANSITIONS), about)
    except (SafetensorError, msgspec.DecodeError, KeyError, RuntimeError, ValueError) as error:
        raise BrokenVersion(f"version {name}: {' '.join(str(error).split())}") from error
    return Version(name, about, vocabulary, networks, transitions)


def _network(registry: Registry, version: str, name: str, about: About) -> Network:
    if name not in _NETWORKS:
        raise BrokenVersion(f"version {version}: shards name the network {name!r}, which is none of {list(_NETWORKS)}")
    tensors: dict[str, Tensor] = {}
    for shard in about.shards[name]:
        tensors |= parse(registry.read(version, shard))
    for key, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise BrokenVersion(f"version {version}: {key} of {name} holds what is not finite")
    network = build(name, about.vocabulary, about.settings)
    assert isinstance(network, nn.Module)
    network.load_state_dict(tensors)
    network.eval()
    return network


def _shards(tensors: Mapping[str, Tensor], limit: int) -> Iterator[dict[str, Tensor]]:
    """Tensors in their order, a new shard where the next would not fit."""
    shard: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if shard and sum(each.nbytes for each in shard.values()) + tensor.nbytes > limit:
            yield shard
            shard = {}
        shard[name] = tensor.detach().cpu().contiguous()
    yield shard


def _render_transitions(transitions: Transitions) -> bytes:
    matrix = transitions.matrix
    return render_arrays(
        {
            "starts": matrix.indptr.astype(np.int64),
            "columns": matrix.indices.astype(np.int32),
            "shares": matrix.data.astype(np.float32),
            "popularity": transitions.popularity,
        }
    )


def _parse_transitions(content: bytes, about: About) -> Transitions:
    arrays = parse_arrays(content)
    size = about.vocabulary + 1
    if arrays["popularity"].shape != (size,):
        raise BrokenVersion(f"{_TRANSITIONS}: popularity of {arrays['popularity'].shape}, not of {size} items")
    matrix = sparse.csr_array((arrays["shares"], arrays["columns"], arrays["starts"]), shape=(size, size))
    matrix.check_format()
    return Transitions(about.blend.transitions, matrix, arrays["popularity"])
