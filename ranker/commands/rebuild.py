"""`nextaction rebuild`: a store's online state, filled from the log."""

from __future__ import annotations

import asyncio
import time
import uuid
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ranker.commands.errors import CommandError
from ranker.config import load_serve
from ranker.figures import unusable_lines
from ranker.terminal import Steps, plain, print_json, stdout

if TYPE_CHECKING:
    from features.redis_store import RedisStore


def run(args: Namespace) -> int:
    """Clears the store and fills it."""
    found = asyncio.run(_rebuild(args))
    if args.json:
        print_json(found)
        return 0
    where = found["store"] or "an embedded store, which has ended by now: the log can be rebuilt"
    console = stdout()
    console.print(plain(f"{found['events']:,} events → {found['rows']:,} rows and {found['cells']:,} cells in {where}"))
    console.print(f"applied up to offset {found['applied']:,} in {found['seconds']:.1f} s")
    for reason, count in found["skipped"].items():
        console.print(plain(f"skipped: {count:,} {reason}"))
    for line in unusable_lines(found["problems"], found["unusable_examples"]):
        console.print(line)
    return 0


async def _rebuild(args: Namespace) -> dict[str, Any]:
    from features.errors import LogLocked
    from features.log import held_partition
    from features.log_cursor import find_segments

    find_segments(args.log)  # before a store is opened, and long before one is cleared
    if args.store is None:
        return await _filled(args)  # a store of its own: whoever writes the log may go on
    try:
        with held_partition(args.log):
            return await _filled(args)
    except LogLocked as error:
        raise CommandError(
            f"log {args.log} is being written by another process, which fills its store itself: end it first"
        ) from error


async def _filled(args: Namespace) -> dict[str, Any]:
    from features.rebuild import rebuild

    started_s = time.monotonic()
    windows = load_serve(args.config).outcomes
    store = _store(args.store)
    try:
        await store.ping()
        with Steps() as steps:
            rebuilt = await rebuild(
                args.log,
                store,
                uuid.uuid4().hex,
                progress=lambda events, written: steps("store" if written else "replay", written or events),
                windows=windows,
            )
    finally:
        await store.close()
    return {
        "log": str(args.log),
        "store": None if args.store is None else shown_url(args.store),
        "generation": rebuilt.generation,
        "applied": rebuilt.applied,
        "events": rebuilt.events,
        "rows": rebuilt.rows,
        "cells": rebuilt.cells,
        "skipped": dict(rebuilt.skipped),
        "problems": dict(rebuilt.problems),
        "unusable_examples": [str(problem) for problem in rebuilt.unusable],
        "seconds": round(time.monotonic() - started_s, 3),
    }


def shown_url(url: str) -> str:
    """The store's URL without its password. Raises StoreUnavailable."""
    from features.store_url import parse_store_url

    return str(parse_store_url(url))


def _store(url: str | None) -> RedisStore:
    from features.embedded_store import open_embedded_store
    from features.redis_store import RedisStore

    return open_embedded_store() if url is None else RedisStore.connect(url)
