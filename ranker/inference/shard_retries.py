"""When a load that failed may be tried again: soon, then less and less often, and for corrupt bytes hardly at all."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from ranker.inference.shard_errors import ChecksumMismatch, FormatRefused, LoadFailed, again
from ranker.inference.shard_key import ShardKey


@dataclass(frozen=True)
class LoadRules:
    """How long a load may take and how often it is tried.

    Args:
        timeout_s: per load, None for no limit; zero is refused, since it reads as either.
        first_backoff_s: after the first failure in a row; doubles with each.
        longest_backoff_s: what doubling ends at: a source that is down costs one load in this time.
        corrupt_attempts: so many loads in a row that came corrupt put the shard into quarantine.
        quarantine_s: how long nobody reads it then, unless `ShardCache.readmit` says so.

    Raises:
        ValueError: naming field and value.
    """

    timeout_s: float | None = 60.0
    first_backoff_s: float = 0.2
    longest_backoff_s: float = 30.0
    corrupt_attempts: int = 3
    quarantine_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "first_backoff_s", "longest_backoff_s", "quarantine_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} {value!r} is not a time above zero")
        if self.corrupt_attempts < 1:
            raise ValueError(f"corrupt_attempts {self.corrupt_attempts!r} is less than one")


@dataclass(slots=True)
class _Failed:
    error: LoadFailed
    attempts: int
    corrupt: int
    until_s: float


class Failures:
    """Remembers which loads failed lately."""

    MOST = 4096
    """Keys remembered; the oldest is forgotten for a new one."""

    def __init__(self, rules: LoadRules) -> None:
        self._rules = rules
        self._failed: OrderedDict[ShardKey, _Failed] = OrderedDict()

    def standing(self, key: ShardKey, now_s: float) -> LoadFailed | None:
        """The error that still stands for a key, None when it may be loaded."""
        failed = self._failed.get(key)
        if failed is None or now_s >= failed.until_s:
            return None
        more = f" (failed {failed.attempts} times in a row, tried again in {failed.until_s - now_s:.1f} s)"
        error = again(failed.error, more)
        assert isinstance(error, LoadFailed)
        return error

    def record(self, key: ShardKey, error: LoadFailed, now_s: float) -> None:
        """A load failed."""
        last = self._failed.pop(key, None)
        attempts = 1 + (last.attempts if last else 0)
        corrupt = 1 + (last.corrupt if last else 0) if isinstance(error, ChecksumMismatch | FormatRefused) else 0
        self._failed[key] = _Failed(error, attempts, corrupt, now_s + self._pause_s(attempts, corrupt))
        if len(self._failed) > self.MOST:
            self._failed.popitem(last=False)

    def forget(self, key: ShardKey) -> None:
        """A load succeeded."""
        self._failed.pop(key, None)

    def forget_version(self, model: str, version: str) -> None:
        """All of a version may be tried at once."""
        for key in [key for key in self._failed if (key.model, key.version) == (model, version)]:
            del self._failed[key]

    def quarantined(self, now_s: float) -> tuple[ShardKey, ...]:
        """The shards that came corrupt too often to be read now."""
        most = self._rules.corrupt_attempts
        return tuple(key for key, each in self._failed.items() if each.corrupt >= most and now_s < each.until_s)

    def _pause_s(self, attempts: int, corrupt: int) -> float:
        rules = self._rules
        if corrupt >= rules.corrupt_attempts:
            return rules.quarantine_s
        return min(rules.longest_backoff_s, rules.first_backoff_s * 2.0 ** min(attempts - 1, 64))
