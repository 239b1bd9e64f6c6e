"""`nextaction models`: the registry of versions."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from rich.table import Table

from ranker.commands.activation import who
from ranker.commands.errors import CommandError
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from ranker.terminal import plain, print_json, stdout


def run(args: Namespace) -> int:
    """One of the tasks."""
    if not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder, so it has no versions")
    return TASKS[args.task](Registry(args.models), args)


def _list(registry: Registry, args: Namespace) -> int:
    active, previous = registry.active(), registry.previous()
    versions = [_row(registry, version) for version in registry.versions()]
    if args.json:
        print_json({"active": active, "previous": previous, "versions": versions})
        return 0
    if not versions:
        stdout().print(plain(f"{registry.folder} has no versions"))
        return 0
    table = Table("version", "", "kind", "created", "learned from", "schema", "size")
    for row in versions:
        mark = {active: "active", previous: "previous"}.get(row["version"], "")
        table.add_row(*map(plain, (row["version"], mark, *_cells(row))))
    stdout().print(table)
    return 0


def _row(registry: Registry, version: str) -> dict[str, Any]:
    """A version that is broken is listed too: `verify` says more about it."""
    try:
        manifest = registry.manifest(version)
    except RegistryError as error:
        return {"version": version, "error": str(error)}
    size = sum(entry.bytes for entry in manifest.files.values())
    about = msgspec.to_builtins(manifest)
    return {key: about[key] for key in ("version", "kind", "created", "data", "schema", "metrics")} | {"bytes": size}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in row:
        return "broken", row["error"], "", "", ""
    span = row["data"]
    return row["kind"], row["created"], f"{span['since']} … {span['until']}", row["schema"], f"{row['bytes']:,} bytes"


def _show(registry: Registry, args: Namespace) -> int:
    print_json(registry.manifest(args.version or _current(registry)))
    return 0


def _current(registry: Registry) -> str:
    version = registry.active() or next(reversed(registry.versions()), None)
    if version is None:
        raise CommandError(f"{registry.folder} has no versions")
    return version


def _activate(registry: Registry, args: Namespace) -> int:
    manifest = registry.manifest(args.version)
    if manifest.kind == "last-item":
        raise CommandError(f"version {args.version} was trained by --protocol last-item: it is judged and never serves")
    if manifest.second is not None and manifest.second.without:
        raise CommandError(f"version {args.version} was trained by --ablate: it is judged and never serves")
    registry.activate(args.version, override=args.override, by=who())
    found = {"active": registry.active(), "previous": registry.previous()}
    if args.json:
        print_json(found)
    else:
        stdout().print(plain(f"active: {found['active']}, previous: {found['previous'] or 'none'}"))
    return 0


def _verify(registry: Registry, args: Namespace) -> int:
    versions = [args.version] if args.version else registry.versions()
    problems = {version: registry.verify(version) for version in versions}
    pointers = [] if args.version else [*_dangling(registry, "active", registry.active)]
    pointers += [] if args.version else [*_dangling(registry, "previous", registry.previous)]
    ok = not any(problems.values()) and not pointers
    if args.json:
        print_json({"ok": ok, "versions": problems, "pointers": pointers})
        return 0 if ok else 1
    for version, found in problems.items():
        stdout().print(plain(f"{version}: {'; '.join(found) or 'as published'}"))
    for problem in pointers:
        stdout().print(plain(problem))
    if not versions:
        stdout().print(plain(f"{registry.folder} has no versions"))
    return 0 if ok else 1


def _dangling(registry: Registry, name: str, read: Callable[[], str | None]) -> list[str]:
    """What is wrong with a pointer: it cannot be read, or names a version that is not there."""
    try:
        version = read()
    except RegistryError as error:
        return [str(error)]
    if version is None or version in registry.versions():
        return []
    return [f"{registry.folder / name}: names version {version!r}, which is not there"]


TASKS: Mapping[str, Callable[[Registry, Namespace], int]] = {
    "list": _list,
    "show": _show,
    "activate": _activate,
    "verify": _verify,
}
