"""`nextaction rebuild` into a store that a service may be using."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from features.embedded_store import EmbeddedServer
from features.log import LogWriter
from ranker.cli import main
from tests.features.streams import EventStream, write_log


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer.start()
    yield running
    running.close()


def test_a_log_that_is_being_written_is_not_rebuilt_into_a_store(
    server: EmbeddedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, EventStream(1).take(50))
    server.ask("SET na:u:somebody 1")
    with LogWriter.open(tmp_path):
        assert main(["rebuild", "--log", str(tmp_path), "--store", server.url]) == 1
    assert f"log {tmp_path} is being written by another process" in capsys.readouterr().err
    assert server.ask("DBSIZE") == b":1\r\n", "nothing was cleared"
    assert main(["rebuild", "--log", str(tmp_path), "--store", server.url]) == 0
    assert server.ask("GET na:applied") == b"$2\r\n50\r\n"
    LogWriter.open(tmp_path).close()


def test_a_look_at_what_a_rebuild_gives_does_not_disturb_the_writer(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(2).take(50))
    with LogWriter.open(tmp_path):
        assert main(["rebuild", "--log", str(tmp_path), "--json"]) == 0
