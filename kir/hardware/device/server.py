"""The fork server: a process that has imported what children need, and has not touched CUDA.

It is started with isolated interpreter flags and a pinned path, reads requests on one socket, and forks a child for each `fork`; the
child's own socket arrives with the request. Children confine themselves before they do anything else. One that several processes share listens for them,
keeps the children of each apart, and ends once nobody holds the lock of its owner's file any more.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from kir.hardware.device import wire

DYING_SECONDS = 5.0
LOOK_SECONDS = 1.0
"""Between two looks at whether the owner of a shared server is still there."""


def main(handle: int, modules: list[str], later: list[str], owner: str = "") -> None:
    """Serve the socket `handle` until the other side closes it; with `owner`, a file, listen on it, and serve all who come until that file is locked by
    nobody. Modules `later` are imported once the first child is on its way, for those that come after it."""
    for name in modules:
        import_module(name)
    first = socket.socket(fileno=handle)
    os.set_inheritable(first.fileno(), False)
    children: dict[socket.socket, set[int]] = {} if owner else {first: set()}
    try:
        while children or (owner and _held(owner)):
            ready, _, _ = select.select([*children, *([first] if owner else [])], [], [], LOOK_SECONDS if owner else None)
            for one in ready:
                if owner and one is first:
                    children[first.accept()[0]] = set()
                elif not _served(one, children, first, later):
                    _end_all(children.pop(one))
                    one.close()
            if owner and not _held(owner):
                shutil.rmtree(Path(owner).parent, ignore_errors=True)
                break
    finally:
        for own in children.values():
            _end_all(own)


def _held(owner: str) -> bool:
    """Whether somebody has the lock of a file, alone or with others."""
    try:
        with open(owner, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _served(one: socket.socket, children: dict[socket.socket, set[int]], first: socket.socket, later: list[str]) -> bool:
    """Answer one request; False where its sender is gone."""
    try:
        request, fds, _, _ = socket.recv_fds(one, 4096, 1)
    except OSError:
        return False
    if not request:
        return False
    own = children[one]
    verb, _, rest = request.decode().partition(" ")
    if verb == "fork" and fds:
        pid = _forked([first, *children], fds[0], rest)
        own.add(pid)
        _answer(one, str(pid))
        while later:
            import_module(later.pop(0))
    elif verb in ("end", "reap"):
        _answer(one, _ended(int(rest), verb == "reap") if int(rest) in own else "exit 0")
        own.discard(int(rest))
    else:
        _answer(one, "unknown")
    return True


def _end_all(children: set[int]) -> None:
    for pid in children:
        _ended(pid, False)


def _answer(control: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        control.sendall(text.encode().ljust(64))


def _forked(sockets: list[socket.socket], fd: int, task: str) -> int:
    """Fork; the child has none of the server's sockets, runs `module:function` on its socket and never returns."""
    pid = os.fork()
    if pid != 0:
        os.close(fd)
        return pid
    code = 1
    try:
        for each in sockets:
            each.close()
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        module, _, function = task.partition(":")
        run: Any = getattr(import_module(module), function)
        run(channel)
        code = 0
    except wire.Closed:
        code = 0
    finally:
        os._exit(code)


def _ended(pid: int, dying: bool) -> str:
    """Kill a child's group and say how it ended: `exit N`, `signal N`, or `killed`. One that has closed its channel is `dying` and gets a
    moment to do so by itself."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    until = time.monotonic() + (DYING_SECONDS if dying else 0.0)
    while ended == 0 and time.monotonic() < until:
        time.sleep(0.01)
        ended, status = os.waitpid(pid, os.WNOHANG)
    killed = ended == 0
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if killed:
        os.kill(pid, signal.SIGKILL)  # one that was forked a moment ago has no group of its own yet
        _, status = os.waitpid(pid, 0)
        return "killed"
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(",") if len(sys.argv) > 2 and sys.argv[2] else [], [])
