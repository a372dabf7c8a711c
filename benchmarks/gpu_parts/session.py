"""What every part of the GPU measurements shares: a device, the folder for results, tables that grow row by row."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from kir.base.store import write_atomic
from kir.gate import Verdict
from kir.gate.gpu import Gpu
from kir.gate.records import append
from kir.hardware.confine import probed

T = TypeVar("T")
Row = tuple[object, ...]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


class Session:
    """A device, the folder for results, and the rows written so far."""

    def __init__(self, gpu: Gpu, out: Path, until: float = math.inf) -> None:
        self.gpu, self.out, self.until = gpu, out, until
        self.only = ""
        self.share = (0, 1)

    def mine(self, items: Iterable[T]) -> list[T]:
        """Those of the items that belong to this process's share of the part."""
        number, count = self.share
        return list(items)[number::count]

    def wanted(self, name: str) -> bool:
        """Whether one of the words, which stand between commas, is in a name; without words, every name is wanted."""
        return any(word in name for word in self.only.split(","))

    @property
    def file(self) -> str:
        """What follows ``gpu-`` and the part in the names of its files, where only some of it is measured."""
        only = f"-{re.sub(r'[^a-z0-9]+', '-', self.only.lower())}" if self.only else ""
        return f"{only}-share-{self.share[0]}" if self.share[1] > 1 else only

    def table(self, part: str, title: str, head: Iterable[str], rows: Iterable[Iterable[object]], note: str = "") -> None:
        """Write a table with the command that made it, again after each row: what was measured is kept if a later row is never reached.
        No row is begun once the time of the run is over."""
        names = list(head)
        about, clocks = self.gpu.about, self.gpu.clocks()
        command = f"{part}:{self.only}" if self.only else part
        lines = [
            f"# {title}",
            "",
            f"Made by `python -m benchmarks.gpu {command}` on {about['name']}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, clocks {clocks}, "
            f"candidates confined by: {probed().text}.",
            *(["", note] if note else []),
            "",
            "| " + " | ".join(names) + " |",
            "| " + " | ".join("---" for _ in names) + " |",
        ]
        for row in rows:
            lines.append("| " + " | ".join(str(x).replace("|", "\\|").replace("\n", " ") for x in row) + " |")
            print(lines[-1], flush=True)
            write_atomic(self.out / f"gpu-{part}{self.file}.md", "\n".join([*lines, ""]))
            if time.monotonic() > self.until:
                print("== time is over", flush=True)
                break

    def record(self, part: str, verdict: Verdict) -> None:
        """Keep a verdict's record."""
        append(self.out / f"gpu-{part}{self.file}.jsonl", verdict)


def tried(s: Session, part: str, work: Callable[[], Verdict]) -> Verdict | str:
    """The verdict, which is recorded, or what went wrong: one kernel that fails the harness harms no other."""
    try:
        verdict = work()
    except Exception as fault:
        traceback.print_exc()
        return f"{type(fault).__name__}: {fault}"
    s.record(part, verdict)
    return verdict


def said(verdict: Verdict | str) -> str:
    if isinstance(verdict, str):
        return f"ERROR {verdict}"
    return "accepted" if verdict.accepted else f"refused at {verdict.stage}: {verdict.reason}"


def shown(verdict: Verdict) -> str:
    return "; ".join(
        f"{r.shape} {r.seconds * 1e6:.1f} us ({r.interval[0] * 1e6:.1f} .. {r.interval[1] * 1e6:.1f})"
        for r in verdict.profile
        if r.kind == "measured" and r.interval
    )
