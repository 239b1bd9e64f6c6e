"""Why p99 got worse although the hit rate got better: which change costs the most load time.

The time that loads cost a pin is loads per pin × bytes per load × ms per byte. A better hit rate lowers the
first factor only. Between two windows the change of a load's time splits exactly into

    Δ(b·r) = Δb·mean(r) + Δr·mean(b),   b bytes per load, r ms per byte,

larger shards and a slower source; two kinds of load are counted apart: those of shards that were evicted less
than a minute before (churn), and first loads of a version (cold). Each is put in ms per 1,000 pins, and the
largest is the likely cause, if it is a tenth of all load time or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ranker.inference.shard_stats import ShardStats

CauseName = Literal["larger shards", "slower transfer", "churn of hot shards", "cold version", "none"]

_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Cause:
    """The likely cause and the figures that it was told from.

    Args:
        effects: ms of load time per 1,000 pins that each cause added.
        figures: (before, after) by name; means are per load.
        version: that the cause is mostly about, `model@version`, when it is about one.
    """

    name: CauseName
    effects: Mapping[CauseName, float]
    figures: Mapping[str, tuple[float, float]]
    version: str | None = None

    def __str__(self) -> str:
        where = f" ({self.version})" if self.version else ""
        changes = ", ".join(f"{name} {old:.4g} → {new:.4g}" for name, (old, new) in self.figures.items())
        return f"{self.name}{where}: {changes}"


def diagnose(before: ShardStats, after: ShardStats) -> Cause:
    """Names what made the loads of the later window dearer.

    Args:
        before: a window with good latency: a difference made by `ShardStats.since`, or a cache's whole life so far.
        after: the window with bad latency, `later.since(earlier)`.
    """
    figures = {
        name: (old, new) for (name, old), new in zip(_figures(before).items(), _figures(after).values(), strict=True)
    }
    effects = _effects(before, after)
    name = max(effects, key=lambda each: effects[each])
    if not effects[name] > _LEAST_SHARE * _per_1000_pins(after.load_ms, after):
        return Cause("none", effects, figures)
    return Cause(name, effects, figures, _version_behind(name, after))


def _effects(before: ShardStats, after: ShardStats) -> dict[CauseName, float]:
    loads = _per_1000_pins(after.loads, after)
    size, old_size = _ratio(after.load_bytes, after.loads), _ratio(before.load_bytes, before.loads)
    rate, old_rate = _ratio(after.load_ms, after.load_bytes), _ratio(before.load_ms, before.load_bytes)
    pull, old_pull = _ratio(after.transfer_ms, after.load_bytes), _ratio(before.transfer_ms, before.load_bytes)
    comparable = before.loads > 0  # without loads before, sizes and rates have nothing to be compared with
    return {
        "larger shards": comparable * loads * (size - old_size) * (rate + old_rate) / 2,
        "slower transfer": comparable * loads * (pull - old_pull) * (size + old_size) / 2,
        "churn of hot shards": _growth(after.returned_ms, before.returned_ms, before, after),
        "cold version": _growth(after.cold_ms, before.cold_ms, before, after),
    }


def _figures(window: ShardStats) -> dict[str, float]:
    return {
        "hit rate": window.hit_rate,
        "loads per 1,000 pins": _per_1000_pins(window.loads, window),
        "KiB per load": _ratio(window.load_bytes, window.loads) / 1024,
        "ms per load": _ratio(window.load_ms, window.loads),
        "transfer ms per MiB": _ratio(window.transfer_ms, window.load_bytes) * 2**20,
        "share back within 60 s": _ratio(window.returned_within_60s, window.loads),
        "share of cold loads": _ratio(window.cold_loads, window.loads),
    }


def _version_behind(name: CauseName, window: ShardStats) -> str | None:
    if name == "cold version":
        counts: Mapping[str, float] = window.cold_by_version
    elif name == "larger shards":
        counts = {
            version: _ratio(nbytes, window.loads_by_version.get(version, 0))
            for version, nbytes in window.bytes_by_version.items()
        }
    else:
        return None
    return max(counts, key=lambda version: counts[version], default=None)


def _growth(new_ms: float, old_ms: float, before: ShardStats, after: ShardStats) -> float:
    return _per_1000_pins(new_ms, after) - _per_1000_pins(old_ms, before)


def _per_1000_pins(amount: float, window: ShardStats) -> float:
    return 1000 * _ratio(amount, window.pins)


def _ratio(amount: float, count: float) -> float:
    return amount / count if count else 0.0
