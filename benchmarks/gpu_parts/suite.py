"""The tests that need a device, as ``pytest tests -m gpu`` runs them, with what each file of them said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_parts.session import ROOT, Row, Session

COMMAND = ("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-v", "--tb=short", "--durations=10", "--continue-on-collection-errors")
MARKED = re.compile(r"\bmark\.gpu\b")
LEAST_SECONDS, LAST_WORDS_SECONDS = 30.0, 20.0
_HOW = "PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS"
_TOLD = re.compile(rf"^(?:(?P<file>tests/\S+?)::(?P<name>.+?) (?P<how>{_HOW})\b|\[gw\d+\] \[ *\d+%\] (?P<said>{_HOW}) (?P<of>tests/\S+?)::(?P<called>.+?) *$)",
                   re.MULTILINE)


def suite(s: Session) -> None:
    """Every test that is marked `gpu`, in one process, one after another, or in so many as `tests:N` says."""
    s.table("tests", "Tests that need a device", ("file", "tests", "passed", "what else"), _rows(s),
            "What `pytest tests -m gpu` says, file by file.")


def _rows(s: Session) -> Iterator[Row]:
    begun, told = time.monotonic(), s.out / "gpu-tests.txt"
    told.parent.mkdir(parents=True, exist_ok=True)
    finished = _run(told, max(LEAST_SECONDS, min(s.until - begun - 2 * LAST_WORDS_SECONDS, 3600.0)), int(s.only or 1))
    text = told.read_text(errors="replace")
    yield from summed(text)
    last = next((line.strip("= ") for line in reversed(text.splitlines()) if line.strip("= ")), "nothing")
    yield "all", "", "", f"{last}; {'' if finished else 'stopped when the time was over; '}{time.monotonic() - begun:.0f} s"


def _run(told: Path, seconds: float, processes: int) -> bool:
    """Whether it ended by itself. One that is stopped still says what it has seen."""
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py") if MARKED.search(file.read_text(encoding="utf-8")))
    dealt = ("-n", str(processes), "--dist", "worksteal") if processes > 1 else ("-p", "no:xdist")
    with told.open("w") as out:
        process = subprocess.Popen([sys.executable, *COMMAND, *dealt, *files], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(LAST_WORDS_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return False


def summed(text: str) -> list[Row]:
    """What pytest said, file by file: how many tests ran, how many passed, and each that did neither pass nor fail to be named."""
    seen: dict[str, dict[str, str]] = {}
    for found in _TOLD.finditer(text):
        seen.setdefault(found["file"] or found["of"], {})[found["name"] or found["called"]] = found["how"] or found["said"]
    rows: list[Row] = []
    for file, tests in sorted(seen.items()):
        other = "; ".join(f"{name}: {how.lower()}" for name, how in tests.items() if how != "PASSED")
        rows.append((file, len(tests), sum(how == "PASSED" for how in tests.values()), other))
    return rows
