"""compute-sanitizer, started ahead: processes that have opened the device under a tool, and wait for the one job that each will do.

Starting a tool and opening a device under it take longer than most jobs. A pair is started when a gate begins, beside the compilers, and is
idle before anything is timed. Where a tool does not come up, or loses its process, the job is done by a fresh one, as if nothing waited.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import field
from pathlib import Path

import kir
from kir.base.dataclass import dataclass
from kir.hardware import machine
from kir.hardware.device.replay import READY

TOOLS = ("memcheck", "racecheck")
SECONDS = 90.0
"""How long one tool may take over one job, at least."""
SETTLE_SECONDS = 10.0
"""How long a tool may take to come up before timing goes on without it."""
LAST_WORDS_SECONDS = 10.0
"""How long the reading of what a tool has written may take after its end."""
OPTIONS = ("--print-limit", "5")


def sanitizer() -> Path | None:
    """compute-sanitizer of the path or of the toolkit."""
    found = shutil.which("compute-sanitizer")
    if found:
        return Path(found)
    kit = machine.toolkit()
    beside = kit.root / "bin" / "compute-sanitizer" if kit else None
    return beside if beside is not None and beside.is_file() else None


@dataclass
class Standby:
    """One tool around one waiting process."""

    process: subprocess.Popen[str]
    folder: tempfile.TemporaryDirectory[str]
    said: list[str] = field(default_factory=list)
    up: threading.Event = field(default_factory=threading.Event)
    heard: threading.Event = field(default_factory=threading.Event)
    ready: bool = False

    @classmethod
    def started(cls, tool: Path, name: str, device: int) -> Standby:
        """Start `name` of the tool around a process that opens the device. Raises OSError."""
        folder = tempfile.TemporaryDirectory(prefix="kir-sanitizer-")
        roots = list(dict.fromkeys([str(Path(kir.__file__).parents[1]), *(p for p in sys.path if p)]))
        code = f"import sys; sys.path[:] = {roots!r}; from kir.hardware.device.replay import wait_and_replay; wait_and_replay({device})"
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "HOME", "CUDA_VISIBLE_DEVICES")}
        process = subprocess.Popen([str(tool), "--tool", name, *OPTIONS, sys.executable, "-I", "-S", "-B", "-c", code], text=True, cwd=folder.name,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**kept, "TMPDIR": folder.name, "CUDA_CACHE_DISABLE": "1"})
        out = cls(process, folder)
        threading.Thread(target=out._listen, daemon=True).start()
        return out

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == READY:
                self.ready = True
                self.up.set()
            else:
                self.said.append(line)
        self.heard.set()
        self.up.set()

    def run(self, job: bytes, seconds: float = SECONDS) -> str | None:
        """All that the tool said of the job, and how it ended; nothing where the process never came up. A job that takes longer than
        `seconds` is named as such."""
        try:
            if not self.up.wait(seconds) or not self.ready or self.process.stdin is None:
                return None
            file = Path(self.folder.name) / "job"
            file.write_bytes(job)
            self.process.stdin.write(f"{file}\n")
            self.process.stdin.close()
            code = self.process.wait(seconds)
            self._end()  # what is left of the group holds the pipe open
            self.heard.wait(LAST_WORDS_SECONDS)  # the process may have ended before its last lines are read
            return "".join(self.said) + f"it ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        except subprocess.TimeoutExpired:
            return f"it took more than {seconds:.0f} s"
        except OSError:
            return None
        finally:
            self.close()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)

    def close(self) -> None:
        """End the process group."""
        self._end()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.folder.cleanup()


@dataclass
class Standbys:
    """One waiting process for each tool, where `here` says that the device is one for the tools."""

    device: int
    here: bool = True
    waiting: dict[str, Standby] = field(default_factory=dict)

    def refill(self) -> None:
        """Start what is lacking; returns at once."""
        tool = sanitizer() if self.here else None
        for name in TOOLS if tool is not None else ():
            assert tool is not None
            if name not in self.waiting:
                with contextlib.suppress(OSError):
                    self.waiting[name] = Standby.started(tool, name, self.device)

    def settle(self) -> None:
        """Wait until all have come up: nothing may start beside what is timed. One that does not is ended."""
        for name, each in list(self.waiting.items()):
            if not each.up.wait(SETTLE_SECONDS) or not each.ready:
                self.waiting.pop(name).close()

    def run(self, name: str, job: bytes, seconds: float = SECONDS) -> str:
        """What a tool says of a job within `seconds`, by the process that waits for it or by a fresh one. Raises nothing: what went wrong is said."""
        tool = sanitizer()
        if tool is None:
            return "LibraryNotLoaded: compute-sanitizer is gone"
        one = self.waiting.pop(name, None)
        said = one.run(job, seconds) if one is not None else None
        if said is None:
            try:
                said = Standby.started(tool, name, self.device).run(job, seconds)
            except OSError as fault:
                return f"it cannot be started: {fault}"
        return said if said is not None else "it ended before it had opened the device"

    def close(self) -> None:
        """End all."""
        for each in self.waiting.values():
            each.close()
        self.waiting.clear()
