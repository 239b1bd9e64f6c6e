"""Plain sequences: one user a line, `user item item …`, separated by white space, in order.

There are no times in the source, so they are made up: interactions follow each other a minute apart in
the order of the file, a user's whole line before the next, from `start` on. Nothing was offered to
anybody, so there are no rankings: each item is an interaction of type `action` with that action, and
can be learned as the user's next action.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from features.events import ActionEvent, Event, InteractionEvent
from training.importers.source import ImportReport, read_source

_MAX_NAME = 256
_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class SequencesImporter:
    """Reads the file twice: for the catalogue, then for the interactions.

    Args:
        start: time of the first interaction; the catalogue comes a second earlier.
    """

    start: datetime = datetime(2020, 1, 1, tzinfo=UTC)

    def events(self, source: Path, report: ImportReport) -> Iterator[Event]:
        """All items as catalogue actions, in order of name, then every interaction.

        Raises:
            SourceError: the source is missing or broken gzip.
        """
        unnoted = ImportReport(report.format)
        catalogue = sorted({item for _, _, items in _users(source, unnoted) for item in items})
        for index, item in enumerate(catalogue):
            yield ActionEvent(
                id=f"sequences-action-{index}",
                time=self.start - timedelta(seconds=1),
                action=item,
                fields={"title": item.replace("_", " ")},
            )
        time = self.start
        for number, user, items in _users(source, report):
            for place, item in enumerate(items):
                yield InteractionEvent(
                    id=f"sequences-{number}-{place}", time=time, user=user, session=user, type="action", action=item
                )
                time += _STEP


def _users(source: Path, report: ImportReport) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in read_source(source, report):
        try:
            user, *items = line.decode().split()
        except UnicodeDecodeError as error:
            report.skip("invalid", source, number, f"the line is not UTF-8: {error.reason} at byte {error.start}")
            continue
        longest = max((user, *items), key=len)
        if line[:1] in b"{[":
            report.skip("invalid", source, number, f"the line is JSON, not `user item item …`: {line[:40]!r}")
        elif len(longest) > _MAX_NAME:
            report.skip("invalid", source, number, f"{longest[:40]!r}… has {len(longest)} characters, over {_MAX_NAME}")
        elif not items:
            report.skip("no_items", source, number, f"user {user!r} has no items")
        else:
            yield number, user, items
