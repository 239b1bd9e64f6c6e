"""What `nextaction bench second --service` serves: long histories in a simulated log, and a version for them."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from features.events import InteractionEvent, encode_event, from_seconds
from features.log import LogWriter
from features.registry import FINGERPRINT
from ranker.inference.kv_pages import KvPages, TailPages
from ranker.inference.sizes import align_up
from ranker.release.registry import Registry
from ranker.second.buffers import TOGETHER, Shapes, workspace_bytes
from ranker.second.config import HEADS, SecondConfig, Sizes
from ranker.second.device import GROUP
from ranker.second.paged import kv_spec
from ranker.second.vocabulary import Known
from ranker.second.weights import is_second_file, to_files
from training.bench.material import Material, prepare
from training.bench.material import Size as MaterialSize
from training.bench.second_rig import MIB, PAGE_TOKENS, random_net
from training.errors import TrainingError

HEADROOM = 256
"""Events that a history grows before half of it leaves the window: two a turn, the event and what was offered."""
KINDS = ("typed", "opened", "sent", "searched")
USED = 0.85
"""Of a pool's limit."""


def service_material(folder: Path, sizes: Sizes, length: int, users: int) -> Material:
    """A small simulated log and its light stage, so many users with so long histories, and a version for them."""
    now_s = time.time()
    made = prepare(folder, MaterialSize(users=60, days=3, rounds=20), now_s)
    log = folder / f"log-{length}-{users}"
    if not log.exists():
        shutil.copytree(made.log, log)
        with LogWriter.open(log) as writer:
            for number in range(users):
                writer.append([encode_event(event) for event in _history(number, length, now_s)])
        _publish(made, sizes)
    sessions = tuple((f"long-{number}", f"long-{number}-s") for number in range(users))
    return replace(made, log=log, sessions=sessions)


def _history(number: int, length: int, now_s: float) -> Iterator[InteractionEvent]:
    user, draw = f"long-{number}", random.Random(number)
    for place in range(length):
        at_s = now_s - 60.0 - 30.0 * (length - place)
        yield InteractionEvent(
            id=f"{user}-{place}", time=from_seconds(at_s), user=user, session=f"{user}-s",
            type=draw.choice(KINDS), text="some words that were typed" if place % 4 == 0 else None,
        )  # fmt: skip


def _publish(made: Material, sizes: Sizes) -> None:
    """Makes active what is active, with a second stage of random weights."""
    registry = Registry(made.models)
    active = registry.active()
    if active is None:
        raise TrainingError("there is no light stage to put the second over")
    manifest = registry.manifest(active)
    light = {name: registry.read(active, name) for name in manifest.files if not is_second_file(name)}
    kinds = ["accepted", "completed", "dismissed", "offered", *(f"i:{kind}" for kind in KINDS)]
    known = Known(sorted(made.actions), kinds, ["chat"], ["image", "message"], list(range(1, 4001)))
    files, entry = to_files(
        random_net(sizes, known=known), known, SecondConfig(), dict.fromkeys(HEADS, True), light=active
    )
    version = registry.publish({**light, **files}, schema=FINGERPRINT, kind="second", second=entry).version
    registry.activate(version, override="made for a measurement")


def memory_for(sizes: Sizes, length: int, users: float) -> int:
    """A pool that holds so many users' pages beside one batch's workspace."""
    spec = kv_spec("int8", sizes, PAGE_TOKENS, GROUP)
    pages = math.ceil(users * math.ceil((length + HEADROOM / 4) / PAGE_TOKENS))
    full = align_up(KvPages.bytes_needed(spec, pages))
    tails = max(full / 3, TailPages.bytes_needed(spec, math.ceil(users)))
    workspace = workspace_bytes(sizes, Shapes(sizes.window, PAGE_TOKENS, 64, TOGETHER))
    return max(16, math.ceil((full + tails + workspace) / USED / MIB))
