"""What the workers of the pool's tests do; light, since each worker imports it."""
from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    if task.what == "hangs":
        time.sleep(60)
    return {"seconds": float(os.getpid()), "low": 0.0, "high": 0.0, "accepted": True, "reason": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
