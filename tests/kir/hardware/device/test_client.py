"""Fork servers, as several threads and several processes use one."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kir.hardware.device.client import COMMON, ChildGone, Server, common, join

TASK, WAITS = "time:sleep", "kir.hardware.device.wire:receive"


def test_a_server_that_another_thread_closes_is_gone() -> None:
    """While one thread starts a killed server again, another may still ask the old one: it is told so, and asks the new one."""
    server = Server(TASK)
    server.child(30).close()
    server._process.kill()
    server.close()
    with pytest.raises(ChildGone, match="the fork server is gone"):
        server._forked(5)
    server.child(30).close()
    server.close()


def test_threads_start_a_killed_server_again_once() -> None:
    with Server(TASK) as server, ThreadPoolExecutor(4) as pool:
        server.child(30).close()
        for _ in range(3):
            killed = server._process
            killed.kill()
            killed.wait()
            for made in [each.result() for each in [pool.submit(server.child, 30) for _ in range(4)]]:
                made.close()
            assert server._process is not killed


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[1])


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    return False


def _comes_true(said: Callable[[], bool]) -> bool:
    until = time.monotonic() + 20
    while not said() and time.monotonic() < until:
        time.sleep(0.05)
    return said()


def test_a_server_is_shared_by_those_who_name_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with common() as folder:
        monkeypatch.setenv(COMMON, folder)
        one, two = Server(WAITS, shares=True), Server(WAITS, shares=True)
        first, second = one.child(30), two.child(30)
        server = _parent(first.pid)
        assert _parent(second.pid) == server != os.getpid(), "both were forked by the same process"
        with Server(WAITS) as own, own.child(30) as third, Server(WAITS, environment={"A": "1"}, shares=True) as other, other.child(30) as fourth:
            assert len({_parent(third.pid), _parent(fourth.pid), server}) == 3, "one of its own, and one for another environment"
        assert two.end(first.pid) == "exit 0" and _alive(first.pid), "nobody ends the children of another"
        one.close()
        assert _comes_true(lambda: not _alive(first.pid)) and _alive(second.pid), "who leaves takes his children along, and nobody else's"
        os.kill(server, signal.SIGKILL)
        assert _comes_true(lambda: not _alive(server))
        again = two.child(30)
        assert _parent(again.pid) != server and _alive(again.pid), "one that was killed is started again"
        server = _parent(again.pid)
    assert _comes_true(lambda: not _alive(server) and not _alive(again.pid)), "it ends with its owner"
    two.close()


JOINS = """
import sys
from kir.hardware.device.client import Server, join
assert join("test") and join("test")
with Server("kir.hardware.device.wire:receive", shares=True) as server, server.child(30) as child:
    print(child.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="kir-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def test_workers_that_join_share_a_server_until_the_last_has_ended(short: Path) -> None:
    there = {**os.environ, "TMPDIR": str(short)}
    one, two = (subprocess.Popen([sys.executable, "-c", JOINS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=there) for _ in range(2))
    assert one.stdout and two.stdout
    servers = {_parent(int(each.stdout.readline())) for each in (one, two) if each.stdout}
    assert len(servers) == 1 and not servers & {one.pid, two.pid}
    one.communicate("\n")
    time.sleep(1.5)  # it has looked for its owners meanwhile
    assert _alive(*servers)
    two.kill()
    two.communicate()
    assert _comes_true(lambda: not _alive(*servers)) and not list(short.iterdir()), "nothing of it is left"


def test_who_may_not_write_there_joins_nobody(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMON, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert not join("test") and COMMON not in os.environ
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 30)))
    assert not join("test") and COMMON not in os.environ, "no socket has so long a name"
    monkeypatch.setattr("tempfile.tempdir", str(short))
    (short / f"kir-servers-{os.getuid()}-test").symlink_to(tmp_path)
    assert not join("test") and COMMON not in os.environ, "a link may be another's"


def test_a_shared_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with common() as folder:
        monkeypatch.setenv(COMMON, folder)
        with Server(TASK, ["no_such_module_at_all"], shares=True) as server, pytest.raises(ChildGone, match="No module named 'no_such_module_at_all'"):
            server.child(30)
