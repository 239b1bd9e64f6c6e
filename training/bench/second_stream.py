"""Users whose events go the way of the service: into a log, from there into histories, windows and requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np

from features.events import Context, ForgetEvent, InteractionEvent, Trigger, encode_event, from_seconds
from features.log import LogWriter
from ranker.second.config import Sizes
from ranker.second.histories import Histories
from ranker.second.paged import Ask, ask_of
from ranker.second.vocabulary import Vocabulary
from ranker.second.windows import Windows
from training.bench.second_rig import KNOWN, random_candidates

START_S = 1_700_000_000.0
SPARE = 1.5
"""Histories and windows in memory, by those of the users there are at a time: so both are full soon."""
ATTIC_BYTES = 2 << 20
MAX_IDS = 5000
WORDS = tuple(f"word{number}" for number in range(500))


class Stream:
    """Users that come, do something before each request, and leave.

    Args:
        count: users at a time.
        length: events of each when he comes.
        forgotten: told who asked to be forgotten.
    """

    def __init__(
        self, folder: Path, count: int, length: int, sizes: Sizes, forgotten: Callable[[str], object], seed: int = 0
    ) -> None:
        self.draw = np.random.default_rng(seed)
        self.joined = self._events = 0
        self._length, self._sizes = length, sizes
        self._vocabulary, self._forgotten = Vocabulary(KNOWN), forgotten
        self._log = LogWriter.open(folder / "log")
        most = int(SPARE * count * (length + 1))
        self.windows = Windows(self._vocabulary, sizes, max_events=most)
        self.histories = Histories(
            folder / "log", lambda: self._log.end, sizes.window + 1, attic_bytes=ATTIC_BYTES, forgotten=self._forget,
            max_happenings=most, max_ids=MAX_IDS,
        )  # fmt: skip
        self._candidates = [random_candidates(50, self.draw) for _ in range(16)]
        self._named = [self._join() for _ in range(count)]

    def __len__(self) -> int:
        return len(self._named)

    def ask(self, row: int) -> Ask:
        """What one of them asks after one more event."""
        user = self._named[row]
        self._log.append([self._did(user)])
        while (course := self.histories.of(user)) is None:
            pass  # of who has just come there is much to read
        now_s = START_S + self._events + 30.0
        chosen = self._candidates[int(self.draw.integers(len(self._candidates)))]
        context = Context(surface="s1", trigger=Trigger(type="3"), text="word1 word2")
        window = self.windows.of(user, course)
        return ask_of(user, "session", context, now_s, window, chosen, self._vocabulary, self._sizes)

    def leave(self, row: int, forget: bool) -> None:
        """Somebody else comes in one's place, who may have asked to be forgotten."""
        if forget:
            event_id, at = self._next()
            self._log.append([encode_event(ForgetEvent(id=event_id, time=at, user=self._named[row]))])
        self._named[row] = self._join()

    def close(self) -> None:
        """Closes log and histories."""
        self.histories.close()
        self._log.close()

    def _join(self) -> str:
        self.joined += 1
        user = f"u{self.joined}"
        self._log.append([self._did(user) for _ in range(self._length)])
        return user

    def _forget(self, user: str) -> None:
        self.windows.forget(user)
        self._forgotten(user)

    def _did(self, user: str) -> bytes:
        kind, action, surface, target, words = self.draw.integers(0, (20, 1000, 10, 20, 9)).tolist()
        text = " ".join(WORDS[word] for word in self.draw.integers(0, len(WORDS), words).tolist())
        event_id, at = self._next()
        return encode_event(
            InteractionEvent(
                id=event_id, time=at, user=user, session=f"s{self._events // 10}", type=str(kind),
                action=f"a{action}", target=f"t{target}:1", text=text or None, fields={"surface": f"s{surface}"},
            )
        )  # fmt: skip

    def _next(self) -> tuple[str, datetime]:
        """Id and time of the next event."""
        self._events += 1
        return f"e{self._events}", from_seconds(START_S + self._events)
