"""RasaHQ/STAR: people who played an assistant, asked for suggestions, and picked one.

What becomes what: the player is the user and the dialogue the session. The last request before a pick
is the ranking, with the list as it was shown; the pick is an accept at its own time. Earlier requests,
and those followed by the player's own text, are rankings with an empty list: what was shown is not known.
A second pick from the same list gets a ranking of its own. Utterances, queries, results and selections
are interactions. The catalogue is what was ever picked; the very few other actions in
lists are left out of them, their positions stay free.

The hidden instructions, and whether a dialogue went well, would not be known at the time: they appear
nowhere. Keys of `context.fields` that start with `_` are for slices and `--hint`, never features.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from features.events import (
    MAX_STRING,
    ActionEvent,
    Context,
    Event,
    FeedbackEvent,
    InteractionEvent,
    Name,
    RankedItem,
    RankingEvent,
    Trigger,
    from_seconds,
)
from training.importers.source import ImportReport, read_source

_SPEAKERS = {"U": "user", "W": "player"}
_INTERACTIONS = frozenset(
    {"utter", "query", "return_item", "select_task", "select_primary", "select_secondary", "complete"}
)
_LAST_SECOND = 253_402_300_799.0
Seconds = Annotated[float, msgspec.Meta(ge=1, le=_LAST_SECOND)]


class Turn(msgspec.Struct, frozen=True):
    """An entry of a dialogue's `ev`; see the source's README."""

    k: str
    a: str = ""
    t: Seconds | None = None
    x: str | None = None
    l: Name | None = None  # noqa: E741 (the source's name)
    o: list[Name] = []
    api: str | None = None
    n: int | None = None
    task: Name | None = None


class Dialogue(msgspec.Struct, frozen=True):
    """A line of the source. Only what a player could know at the time is read."""

    id: int | Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    wiz: Name
    ev: list[Turn]
    tasks: list[Name] = []
    multi: bool = False


_decoder = msgspec.json.Decoder(Dialogue)


class StarImporter:
    """Merges all dialogues in order of time; at equal times the file's order decides."""

    def events(self, source: Path, report: ImportReport) -> Iterator[Event]:
        """The catalogue, a second before everything else, then all dialogues merged.

        Raises:
            SourceError: the source is missing or broken gzip.
        """
        dialogues = list(_read(source, report))
        if not dialogues:
            return
        report.notes["dialogues"] = len(dialogues)
        earliest = min(_times(dialogue)[0] for dialogue in dialogues)
        catalogue = _catalogue(dialogues)
        yield from _announce(catalogue, earliest)
        streams = (_Translation(dialogue, catalogue, report).events() for dialogue in dialogues)
        # A stable merge: at equal times what comes from the earlier line goes first.
        yield from heapq.merge(*streams, key=lambda event: event.time)


def _read(source: Path, report: ImportReport) -> Iterator[Dialogue]:
    known: set[str] = set()
    for number, line in read_source(source, report):
        try:
            dialogue = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            report.skip("invalid", source, number, str(error))
            continue
        if str(dialogue.id) in known:
            report.skip("duplicate_dialogue", source, number, f"dialogue {dialogue.id} stands above already")
        elif not _times(dialogue):
            report.skip("no_time", source, number, f"dialogue {dialogue.id} has no event with a time")
        else:
            known.add(str(dialogue.id))
            yield dialogue


def _times(dialogue: Dialogue) -> list[float]:
    """One time per turn, in Unix seconds: never back, and what has none takes the one before."""
    first = next((turn.t for turn in dialogue.ev if turn.t is not None), None)
    if first is None:
        return []
    times = [first]
    for turn in dialogue.ev:
        times.append(max(times[-1], turn.t if turn.t is not None else times[-1]))
    return times[1:]


def _catalogue(dialogues: Sequence[Dialogue]) -> frozenset[str]:
    """Every action that was ever picked: the protocol ranks these and no others."""
    return frozenset(
        turn.l for dialogue in dialogues for turn in dialogue.ev if turn.k == "pick_suggestion" and turn.l is not None
    )


def _announce(catalogue: frozenset[str], earliest: float) -> Iterator[Event]:
    time = from_seconds(earliest) - timedelta(seconds=1)
    for index, label in enumerate(sorted(catalogue)):
        yield ActionEvent(id=f"star-action-{index}", time=time, action=label, fields={"title": label.replace("_", " ")})


def _picked_lists(turns: Sequence[Turn]) -> dict[int, list[Turn]]:
    """The picks by the place of the last request before each; a few lists were picked from twice."""
    picks: dict[int, list[Turn]] = {}
    request: int | None = None
    for place, turn in enumerate(turns):
        if turn.k == "request_suggestions":
            request = place
        elif turn.k == "pick_suggestion" and request is not None:
            picks.setdefault(request, []).append(turn)
    return picks


def _result_size(n: int | None) -> str:
    """A bucket, since it serves as a category."""
    if n is None or n < 2:
        return str(n)
    return "2-5" if n <= 5 else "6+"


@dataclass(frozen=True)
class _Stamp:
    """What all events of one turn share."""

    id: str
    time_s: float


class _Translation:
    """Walks one dialogue with what has been known so far."""

    def __init__(self, dialogue: Dialogue, catalogue: frozenset[str], report: ImportReport) -> None:
        self._dialogue, self._catalogue, self._report = dialogue, catalogue, report
        self._session = f"star-{dialogue.id}"
        self._picks = _picked_lists(dialogue.ev)
        self._task = dialogue.tasks[0] if dialogue.tasks else None
        self._trigger: Trigger | None = None
        self._unpicked: list[str] = []
        self._accepted: tuple[str, str] | None = None

    def events(self) -> Iterator[Event]:
        """The dialogue's events in order."""
        for place, (turn, time_s) in enumerate(zip(self._dialogue.ev, _times(self._dialogue), strict=True)):
            stamp = _Stamp(f"{self._session}-{place}", time_s)
            if turn.k == "request_suggestions":
                yield from self._rank(stamp, turn, self._picks.get(place, ()))
            elif turn.k == "pick_suggestion":
                yield from self._accept(stamp, turn)
            elif turn.k in _INTERACTIONS:
                yield self._interact(stamp, turn, _fields(turn))
                yield from self._complete(stamp, turn)
            else:
                self._report.skipped["hidden_instruction" if turn.k == "instruct" else "unknown_kind"] += 1

    def _rank(self, stamp: _Stamp, request: Turn, picks: Sequence[Turn]) -> Iterator[Event]:
        """One ranking a pick (a second pick from the same list is a query of its own), or one of an unknown list."""
        ids = [stamp.id, *(f"{stamp.id}-again-{count}" for count in range(1, len(picks)))]
        self._report.notes["picks_from_an_earlier_list"] += max(len(picks) - 1, 0)
        self._report.notes["lists_unknown"] += not picks
        if picks:
            self._unpicked = list(ids)
        for id, pick in zip(ids, picks or (None,), strict=True):
            yield RankingEvent(
                id=id,
                time=from_seconds(stamp.time_s),
                user=self._dialogue.wiz,
                session=self._session,
                context=self._context(request.x if picks else None),
                items=[] if pick is None else self._items(pick),
                versions={"import": "star"},
            )

    def _items(self, pick: Turn) -> list[RankedItem]:
        """The list as shown, each action once, at the first of its positions."""
        notes = self._report.notes
        positions: dict[str, int] = {}
        for position, action in enumerate(pick.o, start=1):
            if action in self._catalogue:
                notes["items_listed_twice"] += action in positions
                positions.setdefault(action, position)
            else:
                notes["items_never_picked"] += 1
        notes["picks_not_in_their_list"] += pick.l not in positions
        return [RankedItem(action=action, position=position) for action, position in positions.items()]

    def _context(self, hint: str | None) -> Context:
        task = self._task
        typed = None if hint is None else hint[:MAX_STRING]
        known = {"task": task, "_domain": task.split("_")[0] if task else None, "_hint": typed}
        fields = {key: value for key, value in known.items() if value is not None}
        always = {
            "tasks": self._dialogue.tasks,
            "_multi": "true" if self._dialogue.multi else "false",
        }
        return Context(surface="assistant", locale="en", trigger=self._trigger, fields={**fields, **always})

    def _accept(self, stamp: _Stamp, pick: Turn) -> Iterator[Event]:
        if not self._unpicked or pick.l is None:
            self._report.skipped["pick_without_request"] += 1
            return
        self._accepted = (self._unpicked.pop(0), pick.l)
        self._trigger = Trigger(type="accept")
        yield self._feedback(stamp.id, stamp, "accept")

    def _interact(self, stamp: _Stamp, turn: Turn, fields: dict[str, str]) -> Event:
        if turn.k == "select_task" and turn.task is not None:
            self._task = turn.task
        self._trigger = Trigger(type=turn.k, fields=dict(fields))
        return InteractionEvent(
            id=stamp.id,
            time=from_seconds(stamp.time_s),
            user=self._dialogue.wiz,
            session=self._session,
            type=turn.k,
            text=(turn.x or "")[:MAX_STRING] if turn.k == "utter" else None,
            fields=fields,
        )

    def _complete(self, stamp: _Stamp, turn: Turn) -> Iterator[Event]:
        if turn.k == "complete" and self._accepted is not None:
            yield self._feedback(f"{stamp.id}-feedback", stamp, "complete")

    def _feedback(self, id: str, stamp: _Stamp, type: str) -> Event:
        assert self._accepted is not None
        ranking, action = self._accepted
        time = from_seconds(stamp.time_s)
        return FeedbackEvent(id=id, time=time, ranking=ranking, user=self._dialogue.wiz, type=type, action=action)


def _fields(turn: Turn) -> dict[str, str]:
    match turn.k:
        case "utter":
            return {"by": _SPEAKERS.get(turn.a, "other")}
        case "query":
            return {"api": turn.api or ""}
        case "return_item":
            return {"api": turn.api or "", "n": _result_size(turn.n)}
        case "select_task":
            return {"task": turn.task or ""}
        case _:
            return {}
