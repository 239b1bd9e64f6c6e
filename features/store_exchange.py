"""Exchanges with a server over one connection: commands out, answers in."""

from __future__ import annotations

from typing import Any, Protocol

from hiredis import pack_command

from features.store_commands import SCAN_COUNT, Command
from features.store_layout import Layout


class Wire(Protocol):
    """What is used of a driver's connection."""

    async def connect(self) -> Any:
        """Opens it, and says who we are."""
        ...

    async def disconnect(self, nowait: bool = False) -> None:
        """Ends it; with `nowait` without waiting for anything."""
        ...

    async def send_packed_command(self, command: bytes) -> None:
        """Sends bytes."""
        ...

    async def read_response(self) -> Any:
        """The next answer; raises one that is an error."""
        ...

    def answers_at_hand(self, most: int) -> list[Any]:
        """Answers that have come already, none where more has to be waited for; raises one that is an error."""
        ...


async def exchange(connection: Wire, *sent: Command) -> list[Any]:
    """Sends the commands at once and reads their answers; raises the first that is an error."""
    await connection.send_packed_command(b"".join(pack_command(command) for command in sent))  # type: ignore[arg-type]
    answers = [await connection.read_response()]
    while len(answers) < len(sent):
        # Those that came with the first: asking the driver for each costs ten times as much.
        answers += connection.answers_at_hand(len(sent) - len(answers)) or [await connection.read_response()]
    return answers


async def scan_cells(connection: Wire, layout: Layout, pattern: bytes) -> dict[bytes, bytes]:
    """The population's fields that match a glob, in steps; complete for what is there all the while."""
    cells: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        command = (b"HSCAN", layout.population, cursor, b"MATCH", pattern, b"COUNT", SCAN_COUNT)
        ((cursor, flat),) = await exchange(connection, command)
        cells.update(zip(flat[::2], flat[1::2], strict=True))
        if cursor == b"0":
            return cells


async def clear_keys(connection: Wire, layout: Layout) -> None:
    """Deletes every key of the layout in steps, the applied offset first."""
    await exchange(connection, (b"UNLINK", layout.applied))
    cursor = b"0"
    while True:
        command = (b"SCAN", cursor, b"MATCH", layout.pattern, b"COUNT", SCAN_COUNT)
        ((cursor, keys),) = await exchange(connection, command)
        if keys:
            await exchange(connection, (b"UNLINK", *keys))
        if cursor == b"0":
            return
