"""Keeps one server running for as long as its owner lives; executed as a script by `embedded_store`.

    python -I -S server_guard.py OWNER_PID FOLDER SNAPSHOT SERVER ARGUMENT…

Standard input is the read end of a pipe whose write end only the owner holds: it ends when the owner
does, `kill -9` included. A child that the owner forked without exec may hold a copy of the write end,
so the parent's process id is watched too. At the end the server is killed and FOLDER is removed. Should
the guard itself be killed, Linux kills the server.

Until the owner has sent a byte, a server that ends is the owner's concern, and the guard ends with it.
After that it is started again, ever more slowly, at the same address; one that a signal ended may have met
a killer, one that ends by itself or again and again cannot use SNAPSHOT (empty: there is none), which is
then set aside. A server that ends with status 0 was told to.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing would make the start slower
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.25
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
SHORT_LIFE_S = 30.0
SHORT_LIVES = 3
"""In a row, and the snapshot is suspected."""

LOG_BYTES = 1 << 20
ASIDE = ".broken"
PR_SET_PDEATHSIG = 1


class Owner:
    """Who the server is for.

    Args:
        pleased: whether it has found the server to be running.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.pleased = False

    def lives(self, wait_s: float) -> bool:
        """Waits for a sign; False when it is gone."""
        if os.getppid() != self._pid:
            return False
        if select.select([0], [], [], wait_s)[0]:
            if not os.read(0, 1):
                return False
            self.pleased = True
        return True


def main(owner: Owner, folder: str, snapshot: str, command: list[str]) -> int:
    """Runs the server until it or its owner is done, cleans up; the server's exit code."""
    # Inherited by the server through exec: Ctrl-C and the SIGTERM that a service manager sends to the
    # whole group reach the owner, which may still have requests to answer from the store.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
    os.umask(0o077)
    status = _keep(owner, snapshot, command)
    _remove(folder)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _keep(owner: Owner, snapshot: str, command: list[str]) -> int:
    pause_s, short_lives = FIRST_PAUSE_S, 0
    while True:
        started_s = time.monotonic()
        server = _start(command)
        status = _watch(owner, server)
        _kill_group(server)
        if status is None:
            return os.waitpid(server, 0)[1]
        if not owner.pleased or status == 0:
            return status
        if time.monotonic() - started_s > SHORT_LIFE_S:
            pause_s, short_lives = FIRST_PAUSE_S, 0
        short_lives += 1
        if os.WIFEXITED(status) or short_lives >= SHORT_LIVES:
            _set_aside(snapshot)
        if not _pause(owner, pause_s):
            return status
        pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)


def _start(command: list[str]) -> int:
    guard = os.getpid()
    prctl = _find_prctl()
    _shorten_log()
    server = os.fork()  # this process has one thread, so what follows fork is safe
    if server:
        _lead_group(server)
        return server
    try:
        _lead_group(0)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == guard:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _lead_group(pid: int) -> None:
    """A group of its own, so that a child that writes a snapshot ends with the server; asked for on both sides."""
    try:  # noqa: SIM105  # importing contextlib would make the start slower
        os.setpgid(pid, 0)
    except OSError:
        pass  # the other side was first


def _kill_group(server: int) -> None:
    try:  # noqa: SIM105
        os.killpg(server, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left


def _find_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return found


def _watch(owner: Owner, server: int) -> int | None:
    """Returns the server's wait status when it ended by itself, None when the owner is gone."""
    while True:
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            return status
        if not owner.lives(LOOK_S):
            return None


def _pause(owner: Owner, seconds: float) -> bool:
    """Whether the owner still lives after so long."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if not owner.lives(min(left_s, LOOK_S)):
            return False
    return True


def _set_aside(snapshot: str) -> None:
    if snapshot and os.path.exists(snapshot):  # noqa: PTH110  # importing pathlib would make the start slower
        try:
            os.replace(snapshot, snapshot + ASIDE)  # noqa: PTH105
        except OSError as error:
            os.write(2, f"{snapshot} cannot be set aside: {error.strerror}\n".encode())


def _shorten_log() -> None:
    """What a server prints that ends again and again must not fill the disk; it is opened for appending."""
    try:
        if os.fstat(1).st_size > LOG_BYTES:
            os.ftruncate(1, 0)
    except OSError:
        pass


def _remove(folder: str) -> None:
    import shutil  # here, because it would make the start slower

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Owner(int(sys.argv[1])), sys.argv[2], sys.argv[3], sys.argv[4:]))
