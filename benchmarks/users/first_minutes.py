"""What one command shows of a kernel that nobody here wrote, within a minute: `docs/tables/first-minutes.md`.

    python -m benchmarks.users.first_minutes [--seconds 60] [--jobs 1] [--only WORD ..] [--print]
    python -m benchmarks.users.first_minutes --run ROWS [--of FILE] [--jobs N]    # a row a line as they come, on another machine
    python -m benchmarks.users.first_minutes --take ROWS                          # the page of such rows

Each kernel stands in an installed package (the extra `zoo`, and torch) and is given to `kir lineage FILE::KERNEL --seconds S` as a new user would: no
binding, no problem, no answer to a question, one process, a folder and a cache of its own. The page says how many keys that takes (the command and its
return, and a line for each question that is left open), how long, what was kept, what had to be assumed, and what was left open; beside it what the first
record of `benchmarks/data/first_minutes.json` says. Each whole run is added there, with its commit. Times are of the machine that ran it, which the page
describes.
`--jobs` runs so many kernels side by side, where there are processors enough; `--of` names a file of other kernels, a surface and a kernel a line.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.measure import cores

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "first-minutes.md"
KERNELS = (
    ("Triton", "liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel"),
    ("Triton", "fla:ops/utils/cumsum.py::chunk_local_cumsum_scalar_kernel"),
    ("Triton", "flag_gems:ops/mm.py::mm_kernel_general"),
    ("CUDA", "flashinfer:data/include/flashinfer/norm.cuh::RMSNormKernel"),
    ("CUDA", "flashinfer:data/include/flashinfer/norm.cuh::RMSNormQuantKernel"),
    ("CUDA", "flashinfer:data/include/flashinfer/quantization.cuh::PackBitsKernel"),
    ("TileLang", "tile_kernels:transpose/batched_transpose_kernel.py"),
    ("TileLang", "tile_kernels:moe/normalize_weight_kernel.py"),
    ("TileLang", "tile_kernels:moe/group_count_kernel.py"),
    ("CUDA, naive", "torch:include/ATen/native/cuda/im2col.cuh::im2col_kernel"),
)
RECORDS = ROOT / "benchmarks" / "data" / "first_minutes.json"


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

    @property
    def keys(self) -> int:
        """What a user types: the command, and a line for each question."""
        return len(f"kir lineage {self.kernel}\n") + sum(len(f"{each} = ..\n") for each in self.open.split(", ") if each)

    @property
    def within(self) -> bool:
        """Whether the one command showed something of it."""
        return self.steps >= 0


def minute(surface: str, kernel: str, seconds: float) -> Minute:
    """Run the one command and read what it said."""
    with tempfile.TemporaryDirectory() as folder:
        start = [sys.executable, "-c", "from kir.faces.cli import main; main()"]
        command = [*start, "lineage", kernel, "-o", f"{folder}/walk", "--seconds", f"{seconds:g}", "--json"]
        out, err = Path(folder, "out"), Path(folder, "err")
        begun = time.monotonic()
        with out.open("w") as first, err.open("w") as second:
            child = subprocess.Popen(command, cwd=folder, stdout=first, stderr=second, env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"})
            _, _, used = os.wait4(child.pid, 0)  # its own processors' time, that of its children included
        wall, own = time.monotonic() - begun, used.ru_utime + used.ru_stime
        said = out.read_text(encoding="utf-8", errors="replace"), err.read_text(encoding="utf-8", errors="replace")
    return told(surface, kernel, wall, own, *said)


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


@dataclass(frozen=True)
class Machine:
    """Where rows were measured: processors, their kind, and kernels side by side."""

    cores: str
    """How many processors of what name (`benchmarks.measure.cores`)."""
    jobs: int = 1
    shared: bool = False
    """Whether other work ran on them at the same time."""

    def __str__(self) -> str:
        return f"{self.cores}, {'one kernel' if self.jobs == 1 else f'{self.jobs} kernels'} at a time" + (
            ", beside other work, so seconds of the clock are too many" if self.shared else "")


HERE = Machine(cores())


def page(rows: list[Minute], seconds: float, before: Mapping[str, Minute] = MappingProxyType({}), since: str = "", on: Machine = HERE) -> str:
    """The table; `before` is what the commit `since` gave, by kernel."""
    shown, whole = sum(r.within for r in rows), sum(r.ended == "naive" for r in rows)
    lines = ["# The first minute", "",
             "For users: what `kir lineage FILE::KERNEL` shows of kernels that nobody here wrote, with nothing but the command. The launch is found in the",
             "host code of the package; what nothing says is assumed, and named. A walk that needs longer is ended, and the same command goes on.", "",
             f"Made by `python -m benchmarks.users.first_minutes --seconds {seconds:g}` on {on};",
             f"{shown} of {len(rows)} kernels gave a walk, {whole} of them one that ends in the naive program."
             + (f" Before: commit {since}." if before else ""), "",
             "| surface | kernel | keys | seconds (of processors) | steps back | it ended | assumed | left open | before |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        steps, old = r.steps if r.within else "", before.get(r.kernel)
        earlier = f"{old.wall:.0f} ({old.own:.0f}) s, {f'{old.steps} steps, ' if old.within else ''}{old.ended.partition(':')[0]}" if old is not None else ""
        lines.append(f"| {r.surface} | `{r.kernel}` | {r.keys} | {r.wall:.0f} ({r.own:.0f}) | {steps} | {r.ended} | {r.assumed} | {r.open} | {earlier} |")
    return "\n".join(lines) + "\n"


def recorded() -> list[dict[str, Any]]:
    """The whole runs that are kept, the oldest first."""
    return list(json.loads(RECORDS.read_text(encoding="utf-8"))) if RECORDS.exists() else []


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--run", type=Path, metavar="ROWS")
    parser.add_argument("--of", type=Path, metavar="FILE")
    parser.add_argument("--take", type=Path, metavar="ROWS")
    parser.add_argument("--shared", action="store_true", help="other work runs on this machine at the same time; the page says so")
    parser.add_argument("--commit", default="", help="what the tree is called where there is no repository")
    given = parser.parse_args()
    rows, on, commit = [], Machine(HERE.cores, given.jobs, given.shared), ""
    if given.take:
        told, *lines = given.take.read_text(encoding="utf-8").splitlines()
        head = json.loads(told)
        on, commit = Machine(**head["machine"]), head["commit"]
        order = {kernel: k for k, (_, kernel) in enumerate(KERNELS)}
        rows = sorted((Minute(**json.loads(line)) for line in lines), key=lambda row: order.get(row.kernel, len(order)))
        given.seconds = head["seconds"]
    else:
        chosen = [tuple(line.split()) for line in given.of.read_text(encoding="utf-8").splitlines() if line.strip()] if given.of else KERNELS
        wanted = [(*surface, kernel) for *surface, kernel in chosen if not given.only or any(word in kernel for word in given.only)]
        if given.run:
            given.run.write_text(json.dumps({"machine": asdict(on), "commit": given.commit or _commit(), "seconds": given.seconds}) + "\n", encoding="utf-8")
        def one(each: tuple[str, ...]) -> Minute:
            row = minute(" ".join(each[:-1]), each[-1], given.seconds)
            print(row, file=sys.stderr, flush=True)
            if given.run:
                with given.run.open("a", encoding="utf-8") as out:  # as they come: a run that is ended early has said what it knows
                    out.write(json.dumps(asdict(row)) + "\n")
            return row
        with ThreadPoolExecutor(given.jobs) as pool:
            rows = list(pool.map(one, wanted))
        if given.run:
            return
    records = recorded()
    before = {row["kernel"]: Minute(**row) for row in records[0]["rows"]} if records else {}
    text = page(rows, given.seconds, before, records[0]["commit"] if records else "", on)
    if given.print or given.only or given.of:
        print(text)
        return
    made = {"commit": commit or _commit(), "seconds": given.seconds, "cores": on.cores, "jobs": on.jobs, "rows": [asdict(row) for row in rows]}
    RECORDS.write_text(json.dumps([*records[:1], made], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
