"""TileLang, loaded and warm, for the children of a fork server: importing this module is what the server does once, so that a child begins with the work."""
from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .. import _serving
from ._worker import main

FIRST = """import tilelang
import tilelang.language as T


@tilelang.jit
def first():
    @T.prim_func
    def kernel(X: T.Tensor((128,), "float32"), Y: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            held = T.alloc_fragment((128,), "float32")
            T.copy(X, held)
            T.copy(held, Y)
    return kernel
"""


def serve(channel: socket.socket) -> None:
    """One job in a child."""
    _serving.serve(channel, main, _kept)


def _kept(folder: str) -> Mapping[str, str]:
    return {"TILELANG_CACHE_DIR": os.path.join(folder, "cache"), "TILELANG_TMP_DIR": os.path.join(folder, "tmp"), "HOME": folder}


def _warm() -> None:
    """What the first lowering of a process costs, paid before there are children."""
    with tempfile.TemporaryDirectory(prefix="kir-tilelang-") as name:
        folder = Path(name)
        os.environ |= _kept(name)
        (folder / "first.py").write_text(FIRST)
        job = {"module": str(folder / "first.py"), "architecture": "sm_90a", "kernels": [{"function": "first", "sizes": {}}]}
        (folder / "job.json").write_text(json.dumps(job))
        main(str(folder / "job.json"), str(folder / "result.json"))


_warm()
