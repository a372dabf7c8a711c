"""Triton, loaded and warm, for the children of a fork server: importing this module is what the server does once, so that a child begins with the work."""
from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

from .. import _serving
from ._worker import main

FIRST = """import triton
import triton.language as tl


@triton.jit
def first(x):
    tl.store(x + tl.arange(0, 128), tl.sum(tl.load(x + tl.arange(0, 128)), axis=0))
"""


def serve(channel: socket.socket) -> None:
    """One job in a child."""
    _serving.serve(channel, main, lambda folder: {"TRITON_CACHE_DIR": os.path.join(folder, "cache")})


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
