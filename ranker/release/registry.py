"""Immutable versions of model files in a folder, and the pointers that say which one serves.

MODELS/<version>/manifest.json and the files it lists; MODELS/active and MODELS/previous each hold one
version's name. A version appears by a rename, whole or not at all; writers take turns by a lock that
dies with its holder, so what a killed writer left behind is swept by the next.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ranker.release.durable import exclusive, replace_atomically, sync_folder, write_new
from ranker.release.errors import RegistryError, VersionCorrupt, VersionMissing, VersionRefused
from ranker.release.gating import Activation, GateRecord, Serving, Wish, add_activation, answered_for, write_gate
from ranker.release.manifest import (
    MANIFEST,
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    DataSpan,
    FileEntry,
    Manifest,
    SecondEntry,
    decode_manifest,
    encode_manifest,
    is_file_name,
    is_version_name,
    timestamp,
)
from ranker.release.version_files import by_number, is_number, read_file, read_folder, sha256_of

__all__ = ["DataSpan", "FileEntry", "Manifest", "Registry", "SecondEntry"]

_UNFINISHED = ".publishing"
_LOCK = ".lock"


class Registry:
    """The versions in one folder.

    Args:
        folder: made at the first publish; a folder that is not there has no versions.
        clock: Unix seconds, for `created`.
        max_bytes: the largest file that is published or read.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time, max_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self._clock = clock
        self._max_bytes = max_bytes

    def publish(
        self,
        files: Mapping[str, bytes] | Path,
        *,
        schema: str,
        metrics: Mapping[str, Any] | None = None,
        data: DataSpan | None = None,
        extra: Mapping[str, Any] | None = None,
        kind: str = "light",
        second: SecondEntry | None = None,
    ) -> Manifest:
        """Writes a new version under the next number; it is not yet active.

        Args:
            files: content by name, or a folder of plain files.
            second: what the manifest says of the second stage, where the files hold one.

        Raises:
            VersionRefused: a name, a size or a kind of file that a version may not have.
            RegistryError: the folder cannot be written.
        """
        contents = self._checked(read_folder(files, self._max_bytes) if isinstance(files, Path) else files)
        entries = {name: FileEntry(len(content), sha256_of(content)) for name, content in sorted(contents.items())}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with exclusive(self.folder / _LOCK):
                manifest = Manifest(
                    version=self._next(),
                    kind=kind,
                    created=timestamp(self._clock()),
                    files=entries,
                    schema=schema,
                    metrics=dict(metrics or {}),
                    data=data or DataSpan(),
                    second=second,
                    extra=dict(extra or {}),
                )
                self._write(manifest, contents)
        except OSError as error:
            raise RegistryError(f"{self.folder}: cannot be written: {error}") from error
        return manifest

    def versions(self) -> list[str]:
        """All versions, numbers first and in their order; broken ones too, so that `verify` can name them."""
        if not self.folder.is_dir():
            return []
        names = [entry.name for entry in self.folder.iterdir() if entry.is_dir() and is_version_name(entry.name)]
        return sorted(names, key=by_number)

    def manifest(self, version: str) -> Manifest:
        """What a version holds.

        Raises:
            VersionMissing: there is no such version.
            VersionCorrupt: its manifest is missing or broken.
        """
        path = self._folder_of(version) / MANIFEST
        manifest = decode_manifest(read_file(path, MAX_MANIFEST_BYTES), str(path))
        if manifest.version != version:
            raise VersionCorrupt(f"{path}: version is {manifest.version!r}, not the folder's {version!r}")
        return manifest

    def read(self, version: str, name: str) -> bytes:
        """One file of a version, exactly as it was published.

        Raises:
            VersionMissing: there is no such version, or it has no such file.
            VersionCorrupt: the file is not what the manifest says.
        """
        entry = self.manifest(version).files.get(name)
        if entry is None:
            raise VersionMissing(f"version {version!r} in {self.folder} has no file {name!r}")
        return self._verified(version, name, entry)

    def verify(self, version: str) -> list[str]:
        """What is wrong with a version, a sentence per problem; empty when all is as published.

        Raises:
            VersionMissing: there is no such version.
        """
        try:
            manifest = self.manifest(version)
        except VersionCorrupt as error:
            return [str(error)]
        problems = []
        for name, entry in manifest.files.items():
            try:
                self._verified(version, name, entry)
            except VersionCorrupt as error:
                problems.append(str(error))
        known = {MANIFEST, *manifest.files}
        here = self._folder_of(version)
        strays = sorted(entry.name for entry in here.iterdir() if entry.name not in known)
        return problems + [f"{here / name}: is not in the manifest" for name in strays]

    def activate(self, version: str, *, override: str | None = None, by: str = "") -> None:
        """Points `active` at a version that verifies and that a gate lets ship; what was active becomes `previous`.

        Its gate must have compared it with what is active now, or with the priors where nothing is. What served
        before may come back without one, once. Each activation is recorded with its grounds.

        Args:
            override: a reason to do without a passing gate.
            by: who asks, for the record.

        Raises:
            VersionMissing, VersionCorrupt: there is no such version, or it does not verify.
            NotGated: no gate passes it, and there is no override.
        """
        if problems := self.verify(version):
            raise VersionCorrupt("; ".join(problems))
        try:
            with exclusive(self.folder / _LOCK):
                if (old := self.active()) != version:
                    # First the record: nothing is ever active that nobody has answered for.
                    add_activation(self.folder, self._answered_for(Wish(version, override, by), old))
                    self._point(version)
        except OSError as error:
            raise RegistryError(f"{self.folder}: cannot be written: {error}") from error

    def record_gate(self, record: GateRecord) -> None:
        """Keeps what a gate said of a version, in the place of what was said before.

        Raises:
            VersionMissing: there is no such version.
            RegistryError: the folder cannot be written.
        """
        self._folder_of(record.candidate)
        try:
            with exclusive(self.folder / _LOCK):
                write_gate(self.folder, record)
        except OSError as error:
            raise RegistryError(f"{self.folder}: cannot be written: {error}") from error

    def manifest_sha256(self, version: str) -> str:
        """Names a version's very files: the manifest has the sha256 of each.

        Raises:
            VersionMissing, VersionCorrupt: as `manifest`.
        """
        return sha256_of(read_file(self._folder_of(version) / MANIFEST, MAX_MANIFEST_BYTES))

    def active(self) -> str | None:
        """The version that serves, None when none was ever activated.

        Raises:
            VersionCorrupt: the pointer does not hold a version's name.
        """
        return self._pointer("active")

    def previous(self) -> str | None:
        """The version that served before the active one.

        Raises:
            VersionCorrupt: the pointer does not hold a version's name.
        """
        return self._pointer("previous")

    def rollback(self) -> str:
        """Activates the previous version, and says which that was; `activate` says what it raises.

        Raises:
            VersionMissing: there is no previous version.
        """
        version = self.previous()
        if version is None:
            raise VersionMissing(f"{self.folder}: no version was active before")
        self.activate(version)
        return version

    def _answered_for(self, wish: Wish, old: str | None) -> Activation:
        try:
            serving = None if old is None else self.manifest_sha256(old)
        except (VersionMissing, VersionCorrupt):  # what serves is broken: nothing was compared with it
            serving = None
        shas = self.manifest_sha256(wish.version), serving
        return answered_for(self.folder, wish, Serving(old, self.previous()), shas, timestamp(self._clock()))

    def _point(self, version: str) -> None:
        old = self.active()
        if old == version:
            return
        # previous first: whatever is cut short between the two, active still names a verified version
        if old is not None:
            replace_atomically(self.folder / "previous", f"{old}\n".encode())
        replace_atomically(self.folder / "active", f"{version}\n".encode())

    def _pointer(self, name: str) -> str | None:
        path = self.folder / name
        if not path.exists() and not path.is_symlink():
            return None
        version = read_file(path, 256).decode("utf-8", "replace").strip()
        if not is_version_name(version):
            raise VersionCorrupt(f"{path}: {version!r} is not the name of a version")
        return version

    def _checked(self, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if not 0 < len(files) <= MAX_FILES:
            raise VersionRefused(f"{len(files)} files: a version has 1 to {MAX_FILES}")
        for name, content in files.items():
            if not is_file_name(name):
                raise VersionRefused(f"file name {name!r} is not plain letters, digits, '_', '-' and '.'")
            if len(content) > self._max_bytes:
                raise VersionRefused(f"file {name!r} has {len(content)} bytes, more than {self._max_bytes}")
        return files

    def _next(self) -> str:
        """One more than any number in use; a number that a pointer still names is not given again."""
        names = [*self.versions(), *(pointer for pointer in (self.active(), self.previous()) if pointer)]
        return str(max((int(name) for name in names if is_number(name)), default=0) + 1)

    def _write(self, manifest: Manifest, contents: Mapping[str, bytes]) -> None:
        unfinished = self.folder / _UNFINISHED
        if unfinished.exists():
            shutil.rmtree(unfinished)
        try:
            unfinished.mkdir()
            for name, content in contents.items():
                write_new(unfinished / name, bytes(content))
            write_new(unfinished / MANIFEST, encode_manifest(manifest))
            sync_folder(unfinished)
            unfinished.rename(self.folder / manifest.version)
        except OSError:  # a full disk, say, which the leftovers would keep full
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_folder(self.folder)

    def _folder_of(self, version: str) -> Path:
        path = self.folder / version
        if not is_version_name(version) or not (path.is_dir() or path.is_symlink()):
            raise VersionMissing(f"there is no version {version!r} in {self.folder}")
        if path.is_symlink():
            raise VersionCorrupt(f"{path}: is a symbolic link")
        return path

    def _verified(self, version: str, name: str, entry: FileEntry) -> bytes:
        path = self._folder_of(version) / name
        if entry.bytes > self._max_bytes:
            raise VersionCorrupt(f"{path}: the manifest says {entry.bytes} bytes, more than {self._max_bytes}")
        content = read_file(path, entry.bytes)
        if len(content) != entry.bytes:
            raise VersionCorrupt(f"{path}: has {len(content)} bytes, not {entry.bytes}")
        if sha256_of(content) != entry.sha256:
            raise VersionCorrupt(f"{path}: its sha256 is not the manifest's {entry.sha256}")
        return content
