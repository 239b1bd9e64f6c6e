"""An embedded store: a real Valkey or Redis server on a private unix socket, gone with its owner.

The log is the truth, and a store found empty is filled again from it. Given a SnapshotFolder, the server
writes a snapshot there now and then and when it is closed, and the next one starts from it; without one it
keeps nothing on disk. A server that dies is started again at the same address (`server_guard`), and so is
a guard that dies, for as long as somebody keeps it (`server_keeper`).
Its memory is limited and nothing is evicted (`noeviction`): a row that vanished silently would make a
known user look new and break replay, while a refused write is an error that the applier reports, and
reads go on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from features.circuit import Circuit
from features.errors import StoreUnavailable
from features.redis_store import RedisStore, SlowLimits
from features.server_binary import find_server
from features.server_folder import arguments_for, make_private, new_folder
from features.server_keeper import keep
from features.store_layout import Layout
from features.store_snapshots import SnapshotFolder

GUARD = Path(__file__).with_name("server_guard.py")
SAVE_S = 60.0
"""How long a server that is closed may take to write its snapshot."""

Spawn = Callable[[BinaryIO], subprocess.Popen[bytes]]
"""Starts a guard with its server, both printing into the file."""

_log = logging.getLogger(__name__)


class EmbeddedServer:
    """A running server; `url` is where. It ends with `close`, with this object, or with this process.

    The process that starts it must live on: a child that it forks does not keep the server alive.
    """

    def __init__(self, folder: Path, spawn: Spawn, log: BinaryIO, snapshots: SnapshotFolder | None = None) -> None:
        self._spawn = spawn
        self._guard = guard = spawn(log)
        self._snapshots = snapshots
        self._changing = threading.Lock()
        self.socket_path = folder / "s"
        self.url = f"unix://{quote(str(self.socket_path))}"
        self._stop = weakref.finalize(self, _end, guard, folder, os.getpid())

    @classmethod
    def start(
        cls,
        binary: Path | None = None,
        *,
        max_memory_mb: int = 1024,
        start_s: float = 10.0,
        snapshots: SnapshotFolder | None = None,
    ) -> EmbeddedServer:
        """Starts a server and returns when it answers, in about 30 ms, or when it has loaded its snapshot.

        Args:
            binary: the server; None finds it.
            max_memory_mb: what it may hold, in MiB; writes beyond are refused.
            start_s: how long it may take to answer, in seconds.
            snapshots: where it finds and leaves a snapshot; None keeps nothing on disk.

        Raises:
            StoreUnavailable: no server was found, or it did not start; with the end of what it printed.
        """
        server = binary or find_server()
        kept = snapshots if snapshots is not None and snapshots.prepare() else None
        try:
            running = cls._launch(server, max_memory_mb, start_s, kept)
        except StoreUnavailable as error:
            if kept is None or not kept.set_aside(str(error)):
                raise
            running = cls._launch(server, max_memory_mb, start_s, kept)
        if kept is not None:
            kept.loaded()
        return running

    @classmethod
    def _launch(cls, server: Path, max_memory_mb: int, start_s: float, kept: SnapshotFolder | None) -> EmbeddedServer:
        folder = new_folder()
        with (folder / "log").open("a+b") as log:
            try:
                spawn = partial(_spawn, server, folder, arguments_for(folder, max_memory_mb, kept), kept)
                running = cls(folder, spawn, log, kept)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise StoreUnavailable(f"the embedded store's server {server} cannot be run: {error}") from error
            try:
                running._wait(start_s, log)
            except BaseException:
                running._stop()
                raise
        return running

    @property
    def running(self) -> bool:
        """Whether it is kept running: it may be down for a moment, but comes back."""
        return self._guard.poll() is None

    def close(self) -> None:
        """Lets the server write its snapshot, ends it and removes its folder; a second call does nothing."""
        with self._changing:
            if self._snapshots is not None and self._stop.alive and self.running:
                self._save(self._snapshots)
            self._stop()

    def restart(self, start_s: float = 10.0) -> bool:
        """Starts guard and server again at the same address; False when they run, or it was closed.

        Raises:
            StoreUnavailable: they did not start; the next call tries again, without the snapshot.
        """
        with self._changing:
            if self.running or not self._stop.alive:
                return False
            folder = self.socket_path.parent
            try:
                # Without PR_SET_PDEATHSIG the server outlives its guard.
                with contextlib.suppress(OSError):
                    self.ask("SHUTDOWN NOSAVE", 1.0)
                self._begin_again(folder, start_s)
            except (OSError, StoreUnavailable) as error:
                if self._snapshots is not None and isinstance(error, StoreUnavailable):
                    self._snapshots.set_aside(str(error))
                raise StoreUnavailable(f"the embedded store cannot be started again: {error}") from error
            return True

    def _begin_again(self, folder: Path, start_s: float) -> None:
        make_private(folder)
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        with (folder / "log").open("a+b") as log:
            self._guard = guard = self._spawn(log)
            self._stop.detach()
            self._stop = weakref.finalize(self, _end, guard, folder, os.getpid())
            try:
                self._wait(start_s, log)
            except BaseException:
                _end(guard, folder, os.getpid())
                raise

    def ask(self, command: str, timeout_s: float = 5.0) -> bytes:
        """The server's raw answer to one command without blanks in its arguments; empty when it ended over it.

        Raises:
            OSError: it does not answer.
        """
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout_s)
            client.connect(str(self.socket_path))
            client.sendall(f"{command}\r\nQUIT\r\n".encode())
            answer = b""
            with contextlib.suppress(ConnectionError):
                while piece := client.recv(65536):
                    answer += piece
        return answer.removesuffix(b"+OK\r\n")  # that of QUIT

    def _save(self, snapshots: SnapshotFolder) -> None:
        try:
            unchanged = b"\nrdb_changes_since_last_save:0\r" in self.ask("INFO persistence")
            answer = b"" if unchanged and snapshots.file.exists() else self.ask("SHUTDOWN SAVE", SAVE_S)
        except OSError as error:
            answer = str(error).encode()
        if answer:
            text = answer.decode(errors="replace").strip()
            _log.warning("the store's snapshot was not written, the next start reads more of the log: %s", text)

    def _wait(self, start_s: float, log: BinaryIO) -> None:
        deadline = time.monotonic() + start_s
        while not (answer := _answer(self.socket_path)).startswith(b"+PONG"):
            if not self.running:
                raise StoreUnavailable(f"the embedded store's server ended at its start: {_printed(log)}")
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + start_s
            elif time.monotonic() >= deadline:
                raise StoreUnavailable(f"the embedded store did not answer in {start_s} s: {_printed(log)}")
            time.sleep(0.001)
        self._take_charge(log)

    def _take_charge(self, log: BinaryIO) -> None:
        """Tells the guard that it runs: from here on it is started again when it dies."""
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(b"\n")
            self._guard.stdin.flush()
        except OSError as error:
            raise StoreUnavailable(f"the embedded store's server ended at its start: {_printed(log)}") from error


def open_embedded_store(
    *,
    prefix: str = "na",
    timeout_ms: float = 15.0,
    circuit: Circuit | None = None,
    slow: SlowLimits | None = None,
    max_memory_mb: int = 1024,
    snapshots: SnapshotFolder | None = None,
) -> RedisStore:
    """A RedisStore on its own server, which the store's `close` ends.

    Args:
        snapshots: where the server finds and leaves a snapshot; None keeps nothing on disk.

    Raises:
        StoreUnavailable: no server was found, or it did not start.
    """
    server = EmbeddedServer.start(max_memory_mb=max_memory_mb, snapshots=snapshots)
    if snapshots is not None:
        _drop_strangers(server, Layout(prefix), snapshots)
    return RedisStore.connect(
        server.url, prefix=prefix, timeout_ms=timeout_ms, circuit=circuit, slow=slow, on_close=server.close,
        keep=partial(keep, server),
    )  # fmt: skip


def _drop_strangers(server: EmbeddedServer, layout: Layout, snapshots: SnapshotFolder) -> None:
    """A snapshot without anything of ours would fill memory and never leave."""
    try:
        ours = server.ask(f"EXISTS {layout.applied.decode()}").startswith(b":1")
        if ours or server.ask("DBSIZE").startswith(b":0"):
            return
        _log.warning("the store's snapshot %s is not of this service: it is emptied", snapshots.file)
        server.ask("FLUSHALL", SAVE_S)
    except OSError as error:
        server.close()
        raise StoreUnavailable(f"the embedded store did not answer: {error}") from error


def _printed(log: BinaryIO) -> str:
    """The end of what the server wrote; the file may be unlinked by now, and the server shares its position."""
    printed = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace").strip()
    return printed[-500:] or "it printed nothing"


def _spawn(
    server: Path, folder: Path, arguments: list[str], kept: SnapshotFolder | None, log: BinaryIO
) -> subprocess.Popen[bytes]:
    snapshot = str(kept.file) if kept is not None else ""
    guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(folder), snapshot]
    return subprocess.Popen(
        [*guard, str(server), *arguments],
        stdin=subprocess.PIPE,  # its write end is not inherited by other children
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,  # so that Ctrl-C does not reach it
    )


def _answer(path: Path) -> bytes:
    """The start of what the server says to PING; empty while it says nothing."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64)
        except OSError:
            return b""


def _end(guard: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    """Lets the guard clean up; does its work where it cannot."""
    if os.getpid() != owner:
        return  # a forked child at its own end
    assert guard.stdin is not None
    with contextlib.suppress(OSError):
        guard.stdin.close()
    try:
        guard.wait(5.0)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
    shutil.rmtree(folder, ignore_errors=True)
