"""What the workers of the pool's tests do; light, since each worker imports it."""
from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kir.base.diagnostic import error


@dataclass(frozen=True)
class Said:
    """A task that says what its worker is to do."""

    what: str
    folder: str

    @property
    def key(self) -> str:
        return self.what


@dataclass(frozen=True)
class Again(Said):
    """A task that may be asked once more."""

    again: bool = False

    @property
    def key(self) -> str:
        return f"{self.what} {self.again}"


def does(task: Said) -> dict[str, Any]:
    """Die once, die always, sleep, meet another, lack memory while others are at work, or say in which process this is and which device it sees."""
    here = Path(task.folder) / f"at work {os.getpid()}"
    here.touch()
    try:
        return _done(task)
    finally:
        here.unlink()


def _done(task: Said) -> dict[str, Any]:
    mark = Path(task.folder) / task.what
    if task.what == "is interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    if task.what == "dies" or (task.what == "dies once" and not mark.exists()):
        mark.touch()
        time.sleep(0.2)
        os._exit(9)
    if (Path(task.folder) / f"broken-{os.environ.get('CUDA_VISIBLE_DEVICES', '')}").exists():
        raise error("KIR-U035", "the GPU no longer answers")
    if (Path(task.folder) / f"deadly-{os.environ.get('CUDA_VISIBLE_DEVICES', '')}").exists():
        (Path(task.folder) / f"ended-{os.getpid()}").touch()
        os._exit(9)
    if list(Path(task.folder).glob("deadly-*")):  # the other GPU has its three ends first, however slow its workers are to begin
        until = time.monotonic() + 60
        while len(list(Path(task.folder).glob("ended-*"))) < 3 and time.monotonic() < until:
            time.sleep(0.05)
    if task.what == "hangs":
        time.sleep(60)
    told = {"seconds": float(os.getpid()), "low": 0.0, "high": 0.0, "accepted": True, "reason": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
    if task.what.startswith("meets "):  # wait for the other one
        until = time.monotonic() + 30
        (Path(task.folder) / f"{task.what[-1]} is met").touch()
        while not (Path(task.folder) / f"{'ab'[task.what[-1] == 'a']} is met").exists() and time.monotonic() < until:
            time.sleep(0.02)
        told["accepted"] = time.monotonic() < until
    if task.what == "greedy" or (task.what == "greedy once" and not mark.exists()):
        mark.touch()
        raise MemoryError
    if task.what == "killed once" and not mark.exists():
        mark.touch()
        told |= {"accepted": False, "reason": "the oracle: its process died (SIGKILL)"}
    if task.what.startswith("small"):
        time.sleep(0.5)
    if "large" in task.what:
        time.sleep(0.2)
        others = [x for x in Path(task.folder).glob("at work *") if x.name != f"at work {os.getpid()}"]
        if others or task.what == "too large":
            told |= {"accepted": False, "reason": "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"}
    return told
