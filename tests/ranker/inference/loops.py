"""Tests that run in an event loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

Asked = ParamSpec("Asked")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def in_loop(test: Callable[Asked, Coroutine[Any, Any, None]]) -> Callable[Asked, None]:
    """The test as a plain function."""

    @wraps(test)
    def runs(*args: Asked.args, **fields: Asked.kwargs) -> None:
        asyncio.run(test(*args, **fields))

    return runs
