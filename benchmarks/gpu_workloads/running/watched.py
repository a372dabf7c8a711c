"""Workloads measured in a process of their own, which is ended where a kernel does not: the next one goes on at the same row without that kernel."""

from __future__ import annotations

import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.gpu_workloads import table
from benchmarks.gpu_workloads.running import asking, measuring

SILENT = 20.0
"""Seconds that a way may take for what it is first run for: an answer that is compared, and a few calls."""


def run(names: list[str], out: Path, seconds: float, rows: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> list[str]:
    """As `table.run`, of the rows and candidates that are asked for. A way that did not end, or ended its process, is a fault of the row at which it did, and
    left out of the rows after it."""
    until, faults = time.monotonic() + seconds, list[str]()
    for name in names:
        stopped, row = dict[str, str](), 0
        while (left := until - time.monotonic()) > 0:
            mine, its = get_context("spawn").Pipe()
            child = get_context("spawn").Process(target=_measure, args=(its, name, out, left, stopped, row, rows, known))
            child.start()
            its.close()
            way, row, found = _followed(mine, row)
            child.join(0 if way else None)
            child.kill()
            child.join()
            if found is not None:
                faults += found
                break
            if not way or way in stopped:
                faults.append(f"{name}, row {row + 1}: the process ended by itself")
                break
            stopped[way] = f"it did not end, or ended its process, at row {row + 1}"
        else:
            return [*faults, "time is over"]
    return faults


def _followed(asking: Connection, row: int) -> tuple[str, int, list[str] | None]:
    """The way that was run last where the process stopped, the row that it is at, and what went wrong with KIR's kernels, once all rows are there."""
    way = ""
    while True:
        try:
            if not asking.poll(SILENT if way else None):
                return way, row, None
            kind, what = asking.recv()
        except (EOFError, ConnectionError):
            return way, row, None
        if kind == "faults":
            return "", row, what
        if kind == "row":
            way, row = "", what
        else:
            way = what


def _measure(to: Connection, name: str, out: Path, seconds: float, stopped: dict[str, str], row: int, rows: tuple[str, ...], known: tuple[str, ...]) -> None:
    """The rows of a workload from one on, saying what is run before it is."""
    asking.ask(rows, known)
    measuring.STOPPED.update(stopped)
    measuring.LISTENERS.append(lambda way: to.send(("way", way)))
    to.send(("faults", table.run([name], out, seconds, row, lambda done: to.send(("row", done)))))
