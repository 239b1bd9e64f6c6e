"""The secret that decides which requests explore: from the environment, or a private file made at the first start."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from ranker.errors import ConfigError

MIN_BYTES = 16
MADE_BYTES = 32


def load_secret(environment: Mapping[str, str], variable: str, file: Path) -> bytes:
    """The variable's value, or the file's; without either, a random one is written to the file.

    All processes of an installation must share it: the same id draws the same list in each.

    Raises:
        ConfigError: it is too short, or the file can neither be read nor made. The secret is never shown.
    """
    given = environment.get(variable)
    if given is not None:
        return _checked(given.encode("utf-8", "surrogateescape"), f"environment variable {variable}")
    try:
        if not file.exists():
            _make(file)
        content = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{file}: the secret cannot be read or made: {error.strerror or error}") from error
    return _checked(content, str(file))


def _checked(secret: bytes, place: str) -> bytes:
    if len(secret) < MIN_BYTES:
        raise ConfigError(f"{place}: the secret has {len(secret)} bytes, at least {MIN_BYTES} are needed")
    return secret


def _make(file: Path) -> None:
    """Whole or not at all: of two processes that start together one makes it, and both read the same."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mine = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(secrets.token_hex(MADE_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(mine, file)
        except FileExistsError:
            return
    finally:
        mine.unlink()
