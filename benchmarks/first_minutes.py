"""What one command shows of a kernel that nobody here wrote, within a minute: `docs/tables/first-minutes.md`.

    python -m benchmarks.first_minutes [--seconds 60] [--only WORD ..] [--print]

Each kernel stands in an installed package (the extra `zoo`) and is given to `kir lineage FILE::KERNEL --seconds S` as a new user would: no binding, no
problem, no answer to a question, one process, a folder of its own. The page says how long it took, what was kept, what had to be assumed, and what was
left open. Times are of the machine that ran it, which the page describes.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tables" / "first-minutes.md"
KERNELS = (
    ("Triton", "liger_kernel:ops/swiglu.py::_swiglu_forward_kernel"),
    ("Triton", "liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel"),
    ("Triton", "fla:ops/utils/cumsum.py::chunk_local_cumsum_scalar_kernel"),
    ("Triton", "flag_gems:ops/mm.py::mm_kernel_general"),
    ("CUDA", "flashinfer:data/include/flashinfer/norm.cuh::RMSNormKernel"),
    ("CUDA", "flashinfer:data/include/flashinfer/norm.cuh::RMSNormQuantKernel"),
    ("CUDA", "flashinfer:data/include/flashinfer/quantization.cuh::PackBitsKernel"),
    ("TileLang", "tile_kernels:transpose/batched_transpose_kernel.py"),
    ("TileLang", "tile_kernels:moe/normalize_weight_kernel.py"),
    ("TileLang", "tile_kernels:moe/group_count_kernel.py"),
)


@dataclass(frozen=True)
class Minute:
    """One kernel: `wall` and `own` are seconds, of the clock and of processors; `steps` of the walk, -1 where none began; `ended` why it did."""

    surface: str
    kernel: str
    wall: float
    own: float
    steps: int
    ended: str
    assumed: int
    open: str = ""


def minute(surface: str, kernel: str, seconds: float) -> Minute:
    """Run the one command and read what it said."""
    with tempfile.TemporaryDirectory() as folder:
        start = [sys.executable, "-c", "from kir.faces.cli import main; main()"]
        command = [*start, "lineage", kernel, "-o", f"{folder}/walk", "--seconds", f"{seconds:g}", "--json"]
        begun, before = time.monotonic(), os.times()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        wall, after = time.monotonic() - begun, os.times()
    own = after.children_user + after.children_system - before.children_user - before.children_system
    return told(surface, kernel, wall, own, done.stdout, done.stderr)


def told(surface: str, kernel: str, wall: float, own: float, out: str, err: str) -> Minute:
    """The row of what a run printed."""
    try:
        said = json.loads(out)
    except ValueError:
        said = {}
    notes = [d for d in said.get("diagnostics", []) if isinstance(d, dict)]
    assumed = sum(note.startswith("assumed") for d in notes for note in d.get("notes", [])) or err.count("assumed, as nothing says it")
    failed = next((d for d in notes if d.get("severity", "error") == "error"), None)
    first = f"{failed['id']}: {failed['message']}" if failed else next(iter(re.findall(r"error\[(KIR-\w+\] .*)", err)), "")
    first = re.sub(r"/\S*/(?:site|dist)-packages/", "", first)  # a path of the machine says nothing on a page
    left = next(iter(re.findall(r"leaves open: (.*)", first)), "")
    steps = said.get("steps")
    count = len(steps) if isinstance(steps, list) else steps if isinstance(steps, int) else -1
    return Minute(surface, kernel, wall, own, count, str(said.get("ended") or said.get("stopped") or first or "no answer")[:160], assumed, left)


def page(rows: list[Minute], seconds: float) -> str:
    """The table."""
    shown = sum(r.steps >= 0 for r in rows)
    lines = ["# The first minute", "",
             "For users: what `kir lineage FILE::KERNEL` shows of kernels that nobody here wrote, with nothing but the command. The launch is found in the",
             "host code of the package; what nothing says is assumed, and named. A walk that needs longer is ended, and the same command goes on.", "",
             f"Made by `python -m benchmarks.first_minutes --seconds {seconds:g}` on {os.cpu_count()} cores ({platform.machine()}), one kernel at a time;",
             f"{shown} of {len(rows)} kernels gave a walk.", "",
             "| surface | kernel | seconds (of processors) | steps back | it ended | assumed | left open |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        steps = r.steps if r.steps >= 0 else ""
        lines.append(f"| {r.surface} | `{r.kernel}` | {r.wall:.0f} ({r.own:.0f}) | {steps} | {r.ended} | {r.assumed} | {r.open} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    given = parser.parse_args()
    rows = []
    for surface, kernel in KERNELS:
        if not given.only or any(word in kernel for word in given.only):
            rows.append(minute(surface, kernel, given.seconds))
            print(rows[-1], file=sys.stderr, flush=True)
    if given.print or given.only:
        print(page(rows, given.seconds))
    else:
        PAGE.write_text(page(rows, given.seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
