"""Runs one server for as long as its owner lives; executed as a script, never imported by the service.

    python -I -S server_guard.py OWNER_PID FOLDER SERVER ARGUMENT…

Standard input is the read end of a pipe whose write end only the owner holds: it ends when the owner
does, `kill -9` included. A child that the owner forked without exec may hold a copy of the write end,
so the parent's process id is watched too. At the end the server is killed (it keeps nothing on disk)
and FOLDER is removed. Should the guard itself be killed, Linux kills the server.
"""

from __future__ import annotations

import os
import select
import signal
import sys

TYPE_CHECKING = False  # importing typing would make the start slower
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.25
PR_SET_PDEATHSIG = 1


def main(owner: int, folder: str, command: list[str]) -> int:
    """Starts the server, waits for its end or the owner's, cleans up; the server's exit code."""
    # Inherited by the server through exec: Ctrl-C and the SIGTERM that a service manager sends to the
    # whole group reach the owner, which may still have requests to answer from the store.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
    server = _start(command)
    status = _watch(owner, server)
    if status is None:
        os.kill(server, signal.SIGKILL)
        _, status = os.waitpid(server, 0)
    _remove(folder)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _start(command: list[str]) -> int:
    guard = os.getpid()
    prctl = _find_prctl()
    server = os.fork()  # this process has one thread, so what follows fork is safe
    if server:
        return server
    try:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == guard:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _find_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return found


def _watch(owner: int, server: int) -> int | None:
    """Returns the server's wait status when it ended by itself, None when the owner is gone."""
    while os.getppid() == owner:
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            return status
        if select.select([0], [], [], LOOK_S)[0] and not os.read(0, 1):
            return None
    return None


def _remove(folder: str) -> None:
    import shutil  # here, because it would make the start slower

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
