"""Running a compiler: a process of its own, with a time limit, a fresh folder and nothing of the caller's environment but its paths."""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kir.diagnostic import error

KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CC")
"""Environment variables that a compiler may need."""


@dataclass(frozen=True)
class Finished:
    """What a process left: its exit code (negative: the signal that ended it) and its two outputs."""

    code: int
    out: str
    err: str


def run(command: Sequence[str | Path], folder: Path, seconds: float, environment: dict[str, str] | None = None) -> Finished:
    """Run `command` in `folder` and end its whole process group after `seconds`. Raises KirError KIR-B011 when it takes longer."""
    inherited = {name: os.environ[name] for name in KEPT if name in os.environ}
    with subprocess.Popen([str(word) for word in command], cwd=folder, env={**inherited, "TMPDIR": str(folder), **(environment or {})},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise error("KIR-B011", f"{Path(command[0]).name} did not end within {seconds:.0f} s",
                        needs="a smaller tile, or fewer unrolled steps") from late
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Finished(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
