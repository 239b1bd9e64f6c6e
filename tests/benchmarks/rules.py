"""What all rules cost on 1,000 candidates: `python -m tests.benchmarks.rules`.

Every rule has something to do: each action has needs, a cap, a cooldown, a consent, an age, a class; the user
has a history with a third of them; it is night; a sensitive context matches.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from ranker.compiled import CompiledCatalogue
from ranker.policy_config import PolicyConfig
from ranker.stages.eligibility import Eligibility
from ranker.stages.policy import Policy
from ranker.types import Ranking
from tests.fakes import NOON_S, catalogue, known, ranking, user

CANDIDATES = 1000
ROUNDS = 300

SENSITIVE = {
    "name": "health",
    "triggers": ["symptom"],
    "fields": {"topic": ["grief"]},
    "profile": {"minor": [True]},
    "withhold_classes": ["adult"],
    "withhold_actions": ["action 5"],
}
CONTEXT = {
    "surface": "chat", "locale": "en-GB", "region": "GB", "timezone": "Europe/London", "app_version": "3.2.0",
    "permissions": ["photos", "phone"], "trigger": {"type": "symptom"}, "fields": {"topic": "grief"},
    "entities": [{"id": str(number), "type": "image"} for number in range(8)],
}  # fmt: skip


def spec(number: int) -> dict[str, Any]:
    """An action that asks for everything, a little different from its neighbours."""
    return {
        "surfaces": ["chat"] if number % 7 else ["home"],
        "locales": ["en", "de"] if number % 5 else ["fr"],
        "regions": ["GB", f"R{number % 20}"],
        "permissions": ["photos"],
        "min_app_version": f"{number % 4}.{number % 9}",
        "entity_types": ["image"] if number % 2 else [],
        "min_age": number % 30,
        "consent": f"consent {number % 3}",
        "safety_class": ("none", "promotion", "adult")[number % 3],
        "cooldown_s": 60.0 * (number % 10),
        "max_offers_per_day": number % 5,
        "expires": "2031-01-01T00:00:00Z",
        "fields": {"interrupting": number % 4 == 0},
    }


def scene() -> tuple[CompiledCatalogue, Ranking]:
    """A catalogue of 1,000 such actions and a request for all of them."""
    compiled = catalogue({f"action {number}": spec(number) for number in range(CANDIDATES)})
    person = user({"age": 25, "consents": {"consent 0": True, "consent 1": True}})
    for number in range(0, CANDIDATES, 9):
        person.offered(f"action {number}", NOON_S - number)
        person.counters.credit("dismissed", (f"action {number}",), NOON_S - number)
    pairs = [(f"action {number}", f"image:{number % 8}" if number % 2 else None) for number in range(CANDIDATES)]
    return compiled, ranking(compiled, pairs, what=known(person), context=CONTEXT)


def timed_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile of a call."""
    work()
    gc.collect()
    took = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        took.append((time.perf_counter() - started) * 1000.0)
    return float(np.median(took)), float(np.percentile(took, 99))


def main() -> None:
    """Prints the figures."""
    compiled, state = scene()
    config = msgspec.convert({"offers_per_day": 3, "cooldown_s": 30.0, "sensitive": [SENSITIVE]}, PolicyConfig)
    eligibility, policy = Eligibility(compiled), Policy(compiled, config)
    for name, work in (
        ("eligibility", lambda: eligibility.judge(state)),
        ("policy", lambda: policy.judge(state)),
        ("all rules", lambda: (eligibility.judge(state), policy.judge(state))),
    ):
        middle, slow = timed_ms(work)
        print(f"{name:12} {CANDIDATES:,} candidates: {middle:.3f} ms (p99 {slow:.3f})")


if __name__ == "__main__":
    main()
