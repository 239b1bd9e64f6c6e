"""What is served while it is measured: a simulated assistant's log with more actions, and a model learned from it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from features.catalogue import ActionSpec, parse_spec
from features.events import (
    ActionEvent,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankingEvent,
    encode_event,
)
from features.log import LogWriter, read_log
from features.registry import FINGERPRINT
from ranker.config import TrainConfig, TreesSettings
from ranker.release.registry import Registry
from training.light import train_light
from training.publish import publish
from training.simulate import Simulator

VARIANTS = 3
"""Each person knows one of so many copies of every action, so that a list of 50 is of 50 actions."""

SEED = 11
WRITE_EVENTS = 2000
TEXTS = ("see you there tomorrow?", "look at this picture", "can you send me the invoice please", "so many messages")
TYPES = ("image", "message", "event", "document", "link")


@dataclass(frozen=True)
class Size:
    """Args:
    rounds: of the trees.
    """

    users: int = 400
    days: int = 7
    rounds: int = 30
    leaves: int = 15


@dataclass(frozen=True)
class Material:
    """Where it lies, and whom there is to ask for: (user, session) that the log has seen last."""

    log: Path
    models: Path
    sessions: tuple[tuple[str, str], ...]
    actions: Mapping[str, ActionSpec]

    def bodies(self, candidates: int | None, count: int = 200, **fields: Any) -> Iterator[bytes]:
        """Bodies for `/v1/rank`, each of another user in another context.

        Args:
            candidates: named by the caller; None asks for what the catalogue has.
            fields: go into every body.
        """
        draw = random.Random(SEED)
        for number in range(count):
            user, session = self.sessions[number % len(self.sessions)]
            yield json.dumps(
                {"user": user, "session": session, **fields, **_asked(self.actions, candidates, draw)}
            ).encode()


def prepare(folder: Path, size: Size, now_s: float) -> Material:
    """Makes what is not in the folder yet.

    Raises:
        LogError, TrainingError: it cannot be made.
    """
    # Sessions last a day, and a model is of one schema of features: neither outlives it.
    day = f"{size.users}-{size.days}-{now_s // 86400.0:.0f}"
    log, models = folder / f"log-{day}", folder / f"models-{day}-{size.rounds}-{size.leaves}-{FINGERPRINT}"
    simulator = Simulator(SEED, size.users, size.days, start_s=now_s - (size.days + 0.5) * 86400.0)
    fresh = not log.exists()
    if fresh:
        with LogWriter.open(log) as writer:
            events = _varied(simulator.events(), now_s)
            while batch := [encode_event(event) for event in islice(events, WRITE_EVENTS)]:
                writer.append(batch)
    registry = Registry(models)
    if registry.active() is None:
        config = TrainConfig(trees=TreesSettings(rounds=size.rounds, num_leaves=size.leaves))
        trained = train_light(log, None, hint=False, config=config)
        registry.activate(publish(registry, trained, config).version, override="made for a measurement")
    return Material(log, models, *_read(log))


def _varied(events: Iterator[Event], now_s: float) -> Iterator[Event]:
    for event in events:
        if event.time_s > now_s:
            return
        if isinstance(event, ActionEvent):
            fields = _lasting(event.fields)
            for variant in range(VARIANTS):
                yield msgspec.structs.replace(
                    event, id=f"{event.id}-{variant}", action=_name(event.action, variant), fields=fields
                )
        else:
            yield _of_variant(event)


def _lasting(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    """Without what would leave the list short: expiry, exclusion, caps, cooldowns, ages, consents."""
    kept = ("title", "entity_types", "surfaces", "triggers", "locales")
    return None if fields is None else {name: fields[name] for name in kept if name in fields}


def _of_variant(event: Event) -> Event:
    variant = sum(event.user.encode()) % VARIANTS if not isinstance(event, ActionEvent) else 0
    if isinstance(event, RankingEvent):
        items = [msgspec.structs.replace(item, action=_name(item.action, variant)) for item in event.items]
        pool = event.pool and [(_name(action, variant), target, score) for action, target, score in event.pool]
        withheld = [(place, _name(action, variant), target, score) for place, action, target, score in event.withheld]
        return msgspec.structs.replace(event, items=items, pool=pool, withheld=withheld, features=None)
    if isinstance(event, FeedbackEvent) or (isinstance(event, InteractionEvent) and event.action is not None):
        return msgspec.structs.replace(event, action=_name(event.action or "", variant))
    return event


def _name(action: str, variant: int) -> str:
    return f"{action}_{variant}" if variant else action


def _read(log: Path) -> tuple[tuple[tuple[str, str], ...], Mapping[str, ActionSpec]]:
    last: dict[str, str] = {}
    actions: dict[str, ActionSpec] = {}
    for _, event in read_log(log):
        if isinstance(event, ActionEvent) and event.fields is not None:
            actions[event.action] = parse_spec(event.fields)
        elif isinstance(event, InteractionEvent) and event.session is not None:
            last.pop(event.user, None)
            last[event.user] = event.session
    return tuple(reversed(last.items())), actions


def _asked(actions: Mapping[str, ActionSpec], candidates: int | None, draw: random.Random) -> dict[str, Any]:
    entities = [{"id": str(draw.randrange(1000)), "type": kind} for kind in TYPES]
    context: dict[str, Any] = {
        "surface": "chat",
        "locale": "en-GB",
        "region": "GB",
        "timezone": "Europe/London",
        "app_version": "3.4.0",
        "permissions": ["photos", "calendar"],
        "entities": entities,
        "trigger": {"type": "message_received"},
    }
    if draw.random() < 0.5:
        context["text"] = draw.choice(TEXTS)
    if candidates is None:
        return {"context": context}
    return {"context": context, "candidates": _named(actions, entities, candidates)}


def _named(
    actions: Mapping[str, ActionSpec], entities: Sequence[dict[str, str]], count: int
) -> list[dict[str, str | None]]:
    """Pairs that can be offered: every action, then every action about the next entity, and so on."""
    usable = [(name, spec) for name, spec in actions.items() if not spec.surfaces or "chat" in spec.surfaces]
    found: dict[tuple[str, str | None], None] = {}
    turn = 0
    while len(found) < count and turn < 1000:
        for name, spec in usable:
            about = [f"{entity['type']}:{entity['id']}" for entity in entities if entity["type"] in spec.entity_types]
            if not spec.entity_types:
                found[name, None if turn == 0 else f"thing:{turn}"] = None
            elif about:
                found[name, about[turn % len(about)]] = None
        turn += 1
    return [{"action": action, "target": target} for action, target in list(found)[:count]]
