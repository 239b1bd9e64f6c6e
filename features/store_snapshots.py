"""Where an embedded store keeps its snapshot, so that a start need not replay the whole log.

The folder holds one file of the server's own format and, while that is written, a second one; nothing in it
is ever needed, for the log has everything. A file that no server can load is set aside (one such is kept, until
a later start finds a good one) and the store is filled from the log. Whether the rows of a file that loads are
those of the log is said by their marks (`store_marks`), not here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from features.server_guard import ASIDE

SAVE_EVERY_S = 60

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotFolder:
    """A private folder for one store.

    Args:
        path: absolute; only one server at a time may use it.
        save_every_s: the server writes a snapshot so often, while anything changes. Writing forks the
            server: until it is done, memory may double at worst.
    """

    path: Path
    save_every_s: int = SAVE_EVERY_S

    @property
    def file(self) -> Path:
        """The snapshot."""
        return self.path / "store.rdb"

    @property
    def broken(self) -> Path:
        """The last one that could not be loaded."""
        return self.path / f"{self.file.name}{ASIDE}"

    def prepare(self) -> bool:
        """Makes the folder, for this user alone, and sweeps what a killed server left; False when it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                raise NotADirectoryError(f"{self.path} is a symbolic link")
            self.path.chmod(0o700)
            for left in self.path.glob("temp-*.rdb"):
                left.unlink()
        except OSError as error:
            _log.warning("the store goes without a snapshot: %s", error)
            return False
        return os.access(self.path, os.W_OK | os.X_OK)

    def set_aside(self, reason: str) -> bool:
        """Gets a snapshot out of the way; False when there is none."""
        try:
            self.file.replace(self.broken)
        except OSError:
            return False
        _log.warning("the store's snapshot %s cannot be used and is set aside: %s", self.file, " ".join(reason.split()))
        return True

    def loaded(self) -> None:
        """A snapshot was good: what was set aside before has had its time."""
        if self.file.exists():
            with contextlib.suppress(OSError):
                self.broken.unlink()
