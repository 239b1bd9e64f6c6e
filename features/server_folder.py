"""Where an embedded server lives, and the options that it gets for it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from features.errors import StoreUnavailable
from features.store_snapshots import SnapshotFolder

MAX_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 104 to 108."""


def new_folder() -> Path:
    """A fresh folder that only this user can enter, with a path short enough for a socket."""
    for parent in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="na-", dir=parent))
        if len(os.fsencode(folder / "s")) <= MAX_SOCKET_PATH:
            return folder
        folder.rmdir()
    raise StoreUnavailable(f"the path of {tempfile.gettempdir()!r} and of '/tmp' is too long for a unix socket")


def make_private(folder: Path) -> None:
    """The folder as it was: a guard that ended in order has removed it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreUnavailable(f"{folder} is not this user's private folder any more")


def arguments_for(folder: Path, max_memory_mb: int, kept: SnapshotFolder | None) -> list[str]:
    """The server's command line after its name; `kept` None keeps nothing on disk."""
    options = {
        "port": "0",
        "unixsocket": str(folder / "s"),
        "unixsocketperm": "700",
        "dir": str(folder if kept is None else kept.path),
        "dbfilename": "none.rdb" if kept is None else kept.file.name,
        "save": "" if kept is None else f"{kept.save_every_s} 1",
        # A full disk costs the next start some time, and nothing now: the log is the truth.
        "stop-writes-on-bgsave-error": "no",
        "appendonly": "no",
        "maxmemory": f"{max_memory_mb}mb",
        "maxmemory-policy": "noeviction",
        "databases": "1",
        "loglevel": "warning",
        "daemonize": "no",
    }
    return [argument for name, value in options.items() for argument in (f"--{name}", value)]
