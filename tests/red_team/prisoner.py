"""What a child of the fork server can still do, told by one that tries."""

from __future__ import annotations

import os
import signal
import socket
import time

from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire

count = 0


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes."""
    global count
    confine(Limits(programs=False))
    while True:
        message, _ = wire.receive(channel)
        if message["do"] == "remember":
            count += 1
            wire.send(channel, {"value": count})
        elif message["do"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif message["do"] == "sleep":
            time.sleep(60)
        else:
            wire.send(channel, _tried())


def _tried() -> dict[str, object]:
    def works(action: object) -> bool:
        try:
            action()  # type: ignore[operator]  # a function of no arguments
            return True
        except OSError:
            return False

    def write() -> None:
        with open(f"/tmp/kir-prisoner-{os.getpid()}", "w") as out:
            out.write("x")

    def network() -> None:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

    def program() -> None:
        os.posix_spawn("/bin/true", ["true"], {})

    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]
    return {
        "writes": works(write),
        "network": works(network),
        "programs": works(program),
        "stdout": os.readlink("/proc/self/fd/1"),
        "sockets": sum(x.startswith("socket:") for x in links),
        "environment": [k for k in os.environ if "TOKEN" in k or "SECRET" in k],
    }
