"""Jobs of the compiler in children of a process that has Triton loaded and warm.

Importing this module is what the fork server does once: it loads Triton and compiles a kernel of a line, so that a child begins with the
work. A child confines itself before it reads anything, and what it does or dies of reaches no other.
"""
from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path

from kir.confine import Limits, confine
from kir.device import wire

from ._worker import main

MOST_BYTES = 1 << 30
"""Bytes of one file that the compiler may write."""
MOST_MEMORY = 64 << 30
"""Bytes of address space that the compiler may have."""
FIRST = """import triton
import triton.language as tl


@triton.jit
def first(x):
    tl.store(x + tl.arange(0, 128), tl.sum(tl.load(x + tl.arange(0, 128)), axis=0))
"""


def serve(channel: socket.socket) -> None:
    """One job: its folder and its seconds are asked for, its job.json is read there and its result.json written."""
    message, _ = wire.receive(channel)
    folder = str(message["folder"])
    log = os.open(os.path.join(folder, "err.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 2)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(folder)
    os.environ |= {"TMPDIR": folder, "TRITON_CACHE_DIR": os.path.join(folder, "cache")}
    tempfile.tempdir = None
    confine(Limits((folder,), int(message["seconds"]) * 4, MOST_BYTES, MOST_MEMORY))
    main(os.path.join(folder, "job.json"), os.path.join(folder, "result.json"))
    sys.stderr.flush()
    wire.send(channel, {"done": True})


def _warm() -> None:
    """What the first compilation of a process costs, paid before there are children."""
    with tempfile.TemporaryDirectory(prefix="kir-triton-") as name:
        folder = Path(name)
        (folder / "first.py").write_text(FIRST)
        job = {"module": str(folder / "first.py"), "capability": 90,
               "kernels": [{"function": "first", "signature": {"x": "*fp32"}, "options": {}, "attrs": []}]}
        (folder / "job.json").write_text(json.dumps(job))
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        main(str(folder / "job.json"), str(folder / "result.json"))


_warm()
