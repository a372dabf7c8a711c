"""Compilers that take seconds to load: jobs in children of one process that has them loaded and warm.

A backend has a module, `_served`, which loads its compiler when it is imported; the fork server imports it once. Each job is a folder with `job.json`;
a child confines itself to that folder before it reads anything, and what it does or dies of reaches no other.
"""
from __future__ import annotations

import atexit
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from kir.base.diagnostic import Diagnostic, KirError, error
from kir.base.working import left
from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.hardware.device.client import ChildGone, Server

from ._process import MOST_BYTES, MOST_MEMORY


class Compilers:
    """The asking side: `task` is `module:function`, `module` a `_served`, and `called` what the compiler is called in a sentence."""

    def __init__(self, module: str, called: str) -> None:
        self.module, self.called = module, called
        self._server: Server | None = None
        self._lock = threading.Lock()

    def run(self, folder: Path, seconds: float) -> None:
        """The job in a folder, in a confined process of its own. Raises KirError KIR-B011 when it takes longer than `seconds`, KIR-B012 when it dies."""
        try:
            with self._started().child(seconds) as child:
                child.ask({"folder": str(folder), "seconds": seconds}, seconds=left(seconds))
        except ChildGone as gone:
            if gone.how == "timeout":
                raise error("KIR-B011", f"{self.called}'s compiler did not end within {seconds:.0f} s",
                            needs="a smaller tile, or fewer unrolled steps") from None
            log = folder / "err.txt"
            last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-6:]) if log.is_file() else ""
            raise KirError(Diagnostic("KIR-B012", f"{self.called}'s compiler died: {gone.said}", witness=(last,) if last else ())) from None

    def warm(self) -> None:
        """Begin to load the compiler; nothing is waited for."""
        threading.Thread(target=self._started, name=f"loading {self.called}", daemon=True).start()

    def _started(self) -> Server:
        """The fork server; it ends with this process."""
        with self._lock:
            if self._server is None:
                compiler = {"CC": os.environ["CC"]} if "CC" in os.environ else {}
                self._server = Server(f"{self.module}:serve", [self.module], {**compiler, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                                      shares=True)
                atexit.register(self._server.close)
            return self._server


def serve(channel: socket.socket, main: Callable[[str, str], None], kept: Callable[[str], Mapping[str, str]]) -> None:
    """One job in a child: its folder and its seconds are asked for, its job.json is read there and its result.json written. `kept` says, for a
    folder, which environment variables keep what the compiler writes in it."""
    message, _ = wire.receive(channel)
    folder = str(message["folder"])
    log = os.open(os.path.join(folder, "err.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 2)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(folder)
    os.environ |= {"TMPDIR": folder, **kept(folder)}
    tempfile.tempdir = None
    confine(Limits((folder,), int(message["seconds"]) * 4, MOST_BYTES, MOST_MEMORY))
    main(os.path.join(folder, "job.json"), os.path.join(folder, "result.json"))
    sys.stderr.flush()
    wire.send(channel, {"done": True})
