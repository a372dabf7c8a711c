"""What a process that has been confined cannot do, tried. Run beside `sandbox.py`, without site packages."""
from __future__ import annotations

import ctypes
import json
import os
import socket


def tell(namespaces: tuple[str, ...], landlock: int, seccomp: bool, limits: tuple[str, ...]) -> None:
    """Prints the `Level` of the calling process, which has been granted these parts, with what it could not do."""
    refused = []
    for name, action in (("write a file", _write), ("use the network", _connect), ("trace a process", _trace)):
        try:
            action()
        except (OSError, ValueError):
            refused.append(name)
    print(json.dumps({"namespaces": namespaces, "landlock": landlock, "seccomp": seccomp, "limits": limits, "refused": refused}))


def _write() -> None:
    name = f"/tmp/kir-probe-{os.getpid()}"
    with open(name, "w") as out:
        out.write("x")
    os.unlink(name)


def _connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind(("127.0.0.1", 0))
        s.listen()


def _trace() -> None:
    if ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) != 0:
        raise OSError("refused")
