"""What the workers of the pool's tests do; light, since each worker imports it."""
from __future__ import annotations

import os
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


def does(task: Said) -> dict[str, Any]:
    """Die once, die always, sleep, or say in which process this is and which device it sees."""
    mark = Path(task.folder) / task.what
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
    told = (Path(task.folder) / f"{task.what}.made").read_text(encoding="utf-8") if task.what.startswith("made") else os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {"seconds": float(os.getpid()), "low": 0.0, "high": 0.0, "accepted": True, "reason": told}


def makes(task: Said) -> None:
    """What is done ahead, and whether its process sees a device; one task ends the process that does it."""
    if task.what == "made deadly":
        os._exit(9)
    (Path(task.folder) / f"{task.what}.made").write_text(f"sees {os.environ['CUDA_VISIBLE_DEVICES']!r}", encoding="utf-8")
