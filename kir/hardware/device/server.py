"""The fork server: a process that has imported what children need, and has not touched CUDA.

It is started with isolated interpreter flags and a pinned path, reads requests on one socket, and forks a child for each `fork`; the
child's own socket arrives with the request. Children confine themselves before they do anything else.
"""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Any

from kir.hardware.device import wire

DYING_SECONDS = 5.0


def main(handle: int, modules: list[str], later: list[str]) -> None:
    """Serve until the other side closes the socket. Modules `later` are imported once the first child is on its way, for those that come after it."""
    for name in modules:
        import_module(name)
    control = socket.socket(fileno=handle)
    os.set_inheritable(control.fileno(), False)
    children: set[int] = set()
    while True:
        try:
            request, fds, _, _ = socket.recv_fds(control, 4096, 1)
        except OSError:
            break
        if not request:
            break
        verb, _, rest = request.decode().partition(" ")
        if verb == "fork" and fds:
            pid = _forked(control, fds[0], rest)
            children.add(pid)
            _answer(control, str(pid))
            while later:
                import_module(later.pop(0))
        elif verb in ("end", "reap"):
            _answer(control, _ended(int(rest), verb == "reap") if int(rest) in children else "exit 0")
            children.discard(int(rest))
        else:
            _answer(control, "unknown")
    for pid in children:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def _answer(control: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        control.sendall(text.encode().ljust(64))


def _forked(control: socket.socket, fd: int, task: str) -> int:
    """Fork; the child runs `module:function` on its socket and never returns."""
    pid = os.fork()
    if pid != 0:
        os.close(fd)
        return pid
    code = 1
    try:
        control.close()
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
