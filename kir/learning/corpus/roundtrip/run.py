"""Many files: in processes of their own, so that one bad kernel stops nothing; remembered, so that what is unchanged costs nothing."""
from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kir
from kir.base.store import write_atomic
from kir.learning.corpus.roundtrip.find import LARGEST
from kir.learning.corpus.roundtrip.one import Part, Record, digest

MEGABYTES = 2048
SECONDS = 120.0
"""What a worker may use, and how long a kernel may take, of its process' own time: what else a machine does is no fault of a kernel's."""
STARVED, POLL = 20.0, 1.0
"""How many times as long by the clock, for a process that waits and does nothing; how often its time is looked at, in seconds."""
A_PART = 12 << 10
"""Bytes of source that are worth a process of their own."""
Result = dict[str, Any]


@cache
def tool_digest() -> str:
    """A digest of KIR's own source: another KIR, other results."""
    total = hashlib.sha256()
    whole = Path(kir.__file__).parent
    for folder in (whole, *(whole / name for name in ("frontends", "backends", "passes", "grammars") if (whole / name).is_symlink())):
        for path in sorted(folder.resolve().rglob("*")):
            if path.suffix in (".py", ".toml", ".lark", ".cuh") and path.is_file() and "/cli/" not in str(path):
                total.update(f"{path.name}{digest(path)}".encode())
    return total.hexdigest()[:24]


def run(files: Iterable[Path], jobs: int = 0, cache_folder: Path | None = None, seconds: float = SECONDS,
        advance: Callable[[str], None] = lambda text: None, parts: int = 1) -> Iterator[Result]:
    """The result of each file, in order: `file`, `records`, `untouched`, `fresh` (whether it was worked out now). A file's results are
    kept under `cache_folder` as soon as they are there, and hold while it and the files it needed are the same. Of a long file `parts` are worked out at
    once, and kept, each by itself: its results are one for each part."""
    tasks = [(path, (k, of)) for path in files for of in [_parts(path, parts)] for k in range(of)]
    results: dict[tuple[Path, Part], Result] = {}
    waiting: queue.Queue[tuple[Path, Part]] = queue.Queue()
    for path, part in sorted(tasks, key=lambda task: -task[1][1]):  # the long ones first, so that none is left at the end
        known = _recall(cache_folder, path, part)
        if known is not None:
            results[path, part] = known
            advance(str(path.name))
        else:
            waiting.put((path, part))
    lock = threading.Lock()

    def work() -> None:
        worker = _Worker(seconds)
        try:
            while True:
                try:
                    path, part = waiting.get_nowait()
                except queue.Empty:
                    return
                made = worker.examine(path, part)
                if cache_folder is not None:
                    _remember(cache_folder, path, part, made)
                with lock:
                    results[path, part] = made
                    advance(str(path.name))
        finally:
            worker.close()

    count = min(jobs or os.cpu_count() or 1, max(1, waiting.qsize()))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)] if waiting.qsize() else []
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for task in tasks:
        yield results[task]


def _parts(path: Path, most: int) -> int:
    return max(1, min(most, path.stat().st_size // A_PART))


class _Worker:
    """A process that is started again when it dies or takes too long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def _start(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.rest = b""
            self.process = subprocess.Popen([sys.executable, "-m", "kir.learning.corpus.roundtrip._worker", str(MEGABYTES)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self.process

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _line(self) -> bytes | None:
        """The next line of the process; None when it ended or its time ran out."""
        process = self._start()
        assert process.stdout is not None
        begun, spent = time.monotonic(), _spent(process.pid)
        while b"\n" not in self.rest:
            waited = time.monotonic() - begun
            used = _spent(process.pid) - spent if spent >= 0.0 else waited
            left = max(0.0, self.seconds - used)
            if not select.select([process.stdout], [], [], min(left, POLL))[0]:
                if left <= 0.0 or waited > self.seconds * STARVED:
                    return None
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def examine(self, path: Path, part: Part = (0, 1)) -> Result:
        """All records of a file, or of one part of it, whatever happens to the process on the way."""
        records: list[Record] = []
        if path.stat().st_size > LARGEST:
            return {"file": str(path), "untouched": None, "sources": {str(path): digest(path)}, "fresh": True, "records": [] if part[0] else [
                {"file": str(path), "kernel": "", "state": "unreadable", "id": "KIR-C114", "message": "a generated file of over a megabyte"}]}
        while True:
            process, current = self._start(), ""
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"file": str(path), "part": part, "skip": [r["kernel"] for r in records]}).encode() + b"\n")
                process.stdin.flush()
            except OSError:
                self.close()
                continue
            while True:
                line = self._line()
                if line is None:
                    died = process.poll() is not None
                    self.close()
                    what = "the process that read it ended" if died else f"it took more than {self.seconds:g} seconds"
                    records.append({"file": str(path), "kernel": current, "state": "crashed", "id": "KIR-C115", "message": what})
                    if not current:
                        return {"file": str(path), "untouched": None, "sources": {str(path): digest(path)}, "fresh": True, "records": records}
                    break
                said = json.loads(line)
                if "started" in said:
                    current = said["started"]
                elif "record" in said:
                    records.append(said["record"])
                else:
                    return {"file": str(path), "untouched": said["untouched"], "sources": said["sources"], "fresh": True, "records": records}


def of_surface(result: Result, surface: str) -> Result:
    """The result of a file with the records of one surface alone; "" for all."""
    return {**result, "records": [r for r in result["records"] if r.get("surface", surface) == surface]} if surface else result


def _spent(pid: int) -> float:
    """Seconds of processor time that a process has used; -1 where the system does not say, or it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return -1.0


def _slot(folder: Path, path: Path, part: Part) -> Path:
    whole = "" if part == (0, 1) else f"-{part[0]}-{part[1]}"
    return folder / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}{whole}.json"


def _recall(folder: Path | None, path: Path, part: Part) -> Result | None:
    if folder is None:
        return None
    try:
        held = json.loads(_slot(folder, path, part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if held.get("tool") != tool_digest() or any(digest(Path(p)) != d for p, d in held["sources"].items()):
        return None
    return {**held, "fresh": False}


def _remember(folder: Path, path: Path, part: Part, made: Result) -> None:
    write_atomic(_slot(folder, path, part), json.dumps({**made, "tool": tool_digest()}))
