"""Running a compiler: a confined process of its own, with a time limit, a fresh folder and nothing of the caller's environment but paths."""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.working import left
from kir.hardware.confine import Limits, command_line

KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CC")
"""Environment variables that a compiler may need."""
MOST_BYTES = 1 << 30
"""Bytes of one file that a compiler may write."""
MOST_MEMORY = 64 << 30
"""Bytes of address space that a compiler may have."""


@dataclass(frozen=True)
class Finished:
    """What a process left: its exit code (negative: the signal that ended it) and its two outputs."""

    code: int
    out: str
    err: str


def run(command: Sequence[str | Path], folder: Path, seconds: float, environment: dict[str, str] | None = None) -> Finished:
    """Run `command` in `folder`, which alone it may write, and end its whole process group after `seconds`, or when what is done here is of no use any
    more: source text may be anyone's. Raises KirError KIR-B011 when it takes longer."""
    confined = command_line(command, Limits((str(folder),), int(seconds) * 4, MOST_BYTES, MOST_MEMORY))
    inherited = {name: os.environ[name] for name in KEPT if name in os.environ}
    with subprocess.Popen(confined, cwd=folder, env={**inherited, "TMPDIR": str(folder), **(environment or {})},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=left(seconds))
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise error("KIR-B011", f"{Path(command[0]).name} did not end within {seconds:.0f} s",
                        needs="a smaller tile, or fewer unrolled steps") from late
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Finished(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
