"""Calls of whole packages, recorded on a GPU and made faster there: what of Liger's, FLA's and FlagGems' kernels a search makes faster, beside their own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.optimize.calls import CALLS
from kir.base.store import write_atomic
from kir.hardware import machine

KIR = [sys.executable, "-c", "from kir.faces.cli import main; main()"]
CAPTURING, LEAST_CAPTURING = 0.28, 20.0
"""The part of the seconds, and how many at least, in which calls are recorded; tuners time meanwhile, in turns."""
LEFT = 12.0
"""Seconds that are left to end searches that are at a candidate."""
ENOUGH = 1.1
"""How many times as fast counts."""
CANDIDATES = 4000


def packages(out: Path, only: str, seconds: float, workers: int = 0, keep: str = "") -> int:
    """Record the calls of each package, search all of them under one budget, keep the rows, and patches, evidence and overlay in the folder `keep`; 1 where
    nothing was recorded."""
    until = time.monotonic() + seconds
    wanted = [name for name in CALLS if any(word in name for word in only.split(","))]
    with tempfile.TemporaryDirectory(prefix="kir-packages-") as name:
        work = Path(name)
        processes = max(1, (workers or len(os.sched_getaffinity(0))) // len(wanted))
        recording = max(LEAST_CAPTURING, CAPTURING * seconds)
        capturing = [subprocess.Popen([*KIR, "capture", "--package", p, "--seconds", f"{recording:g}", "-o", str(work / p), "--",
                                       sys.executable, "-m", "benchmarks.optimize.calls", p, "--processes", str(processes)]) for p in wanted]
        for each in capturing:
            each.wait()
        calls = work / "calls"
        calls.mkdir()
        for p in wanted:
            for file in sorted((work / p).glob("*-*.toml")):
                shutil.copyfile(file, calls / f"{p}-{file.name}")
        found = work / "found"
        budget = f"candidates={CANDIDATES},seconds={max(10.0, until - time.monotonic() - LEFT):g}"
        with contextlib.suppress(subprocess.TimeoutExpired):  # what was found by then is there
            subprocess.run([*KIR, "optimize", str(calls), "--package", "any", "--on", "gpu", "--budget", budget, "-o", str(found),
                            "--cache", str(work / "cache")], check=False, timeout=max(20.0, until - time.monotonic() + LEFT))
        if keep and found.is_dir():
            shutil.copytree(found, keep, dirs_exist_ok=True)
        report = found / "report.json"
        if not report.is_file():
            return 1
        told = json.loads(report.read_text(encoding="utf-8"))
        order = json.loads((found / "order.json").read_text(encoding="utf-8"))["calls"]
    rows = [_row(r) for r in told["kernels"]]
    about = {"command": f"python -m benchmarks.optimize packages --seconds {seconds:g}", "device": machine.gpus()[0].name, "when": time.strftime("%Y-%m-%d"),
             "calls": len(order), "skipped": len(told["skipped"])}
    write_atomic(out / "optimize-packages.json", json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    write_atomic(out / "optimize-packages.md", "\n".join(page(rows, about)) + "\n")
    print("\n".join(page(rows, about)))
    return 0


def _row(r: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's row, with its place by its package's name alone."""
    file, _, kernel = str(r["kernel"]).partition("::")
    package = next((p for p in CALLS if p in Path(file).parts), "")
    inside = "/".join(Path(file).parts[Path(file).parts.index(package) + 1:]) if package else file
    best, base = r.get("best"), r.get("baseline")
    return {"kernel": f"{package}:{inside}::{kernel}", "call": r["binding"], "launches": r["launches"], "given": base["seconds"] if base else None,
            "seconds": best["seconds"] if best else None, "speedup": r["speedup"], "plan": best["plan"] if best else "", "gated": len(r["tried"]),
            "took": r["took"], "remark": r["remark"]}


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Iterator[str]:
    """The table."""
    faster = [r["speedup"] for r in rows if r["plan"]]
    yield "# Kernels of packages, at calls that were recorded"
    yield ""
    yield (
        f"Made by `{about['command']}` on {about['device']}, {about['when']}. {about['calls']} calls were recorded on the device and read, {about['skipped']} "
        "were not read; tuners had chosen their configurations. A kernel's launch as it was recorded, and what `kir optimize --package` found for it: "
        f"medians of many launches in a row, in turns; all outputs compared on random tensors. {len(rows)} were searched with "
        f"{sum(r['gated'] for r in rows)} candidates: {sum(x >= ENOUGH for x in faster)} are at least {ENOUGH:g} times as fast, {len(faster)} faster at all "
        f"(geometric mean {math.exp(sum(map(math.log, faster)) / len(faster)) if faster else 1.0:.3f}); where nothing is faster, the overlay leaves the "
        "kernel alone."
    )
    yield ""
    yield "| kernel | call | its own | found | times as fast | by | candidates | remark |"
    yield "| --- | --- | ---: | ---: | ---: | --- | ---: | --- |"
    for r in sorted(rows, key=lambda r: -r["speedup"]):
        cells = (f"`{r['kernel']}`", r["call"], _us(r["given"]), _us(r["seconds"]), f"{r['speedup']:.3f}" if r["plan"] else "", r["plan"], r["gated"],
                 r["remark"] or ("" if r["plan"] else "nothing is faster"))
        yield "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def _us(x: float | None) -> str:
    return f"{x * 1e6:.1f} us" if x else ""
