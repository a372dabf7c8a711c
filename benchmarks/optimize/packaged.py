"""Calls of whole packages, recorded on a GPU and made faster there: what of Liger's, FLA's and FlagGems' kernels a search makes faster, beside their own."""

from __future__ import annotations

import contextlib
import itertools
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
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware import machine
from kir.learning.optimize.pool.devices import SEARCHING, workers_each
from kir.surface.reading import located

KIR = [sys.executable, "-c", "from kir.faces.cli import main; main()"]
EACH = 2
"""Bindings of a kernel that are kept."""
WEIGHT = {"liger_kernel": 1, "fla": 3, "flag_gems": 2}
"""How the processes that record are shared out."""
CAPTURING, LEAST_CAPTURING = 0.28, 20.0
"""The part of the seconds, and how many at least, in which calls are recorded; tuners time meanwhile, in turns."""
LEFT = 12.0
"""Seconds that are left to end searches that are at a candidate."""
ENOUGH = 1.1
"""How many times as fast counts."""
RATE = 6
"""Candidates that one GPU judges a second, where a dozen searches share it: as many are allowed, so that every call has its part."""


def packages(out: Path, only: str, seconds: float, workers: int = 0, keep: str = "") -> int:
    """Record the calls of each package, search all of them under one budget, and keep rows, patches, evidence and overlay in the folder `keep`, from which the
    same command goes on: with the calls that lie there, behind those that were searched. With 0 seconds only the page is made of them. 1 where there is
    nothing."""
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as held:
        state = Path(keep or held.enter_context(tempfile.TemporaryDirectory(prefix="kir-packages-")))
        calls, found = state / "calls", state / "found"
        if seconds > 0:
            _recorded(calls, [name for name in CALLS if any(word in name for word in only.split(","))], seconds, workers)
            left, gpus = max(10.0, until - time.monotonic() - LEFT), max(1, len(machine.gpus()))
            before = [json.loads(file.read_text(encoding="utf-8")) for file in (found / "results").glob("*.json")]  # which the budget of a run counts
            seconds_of_all = left + sum(r["took"] for r in before) / (gpus * workers_each(gpus, SEARCHING))
            budget = f"candidates={round(RATE * gpus * left) + sum(len(r['tried']) for r in before)},seconds={seconds_of_all:g}"
            with contextlib.suppress(subprocess.TimeoutExpired):  # what was found by then is there
                subprocess.run([*KIR, "optimize", str(calls), "--package", "any", "--on", "gpu", "--budget", budget, "-o", str(found),
                                "--cache", str(state / "cache")], check=False, timeout=max(20.0, until - time.monotonic() + LEFT))
            shutil.rmtree(state / "cache", ignore_errors=True)
        return _table(out, found, seconds)


def _recorded(calls: Path, wanted: Sequence[str], seconds: float, workers: int) -> None:
    """The calls of packages that were not made yet, recorded beside those that lie in the folder; all of them where those are of files of another machine. Of
    a kernel with many bindings the first ones are kept."""
    lie = [*calls.glob("*.toml")]
    if lie and not any(map(_located, lie)):
        shutil.rmtree(calls.parent / "found", ignore_errors=True)
        shutil.rmtree(calls, ignore_errors=True)
    calls.mkdir(parents=True, exist_ok=True)
    cores, recording = workers or len(os.sched_getaffinity(0)), max(LEAST_CAPTURING, CAPTURING * seconds)
    shares = {p: max(1, cores * WEIGHT[p] // sum(WEIGHT[x] for x in wanted)) for p in wanted}
    with tempfile.TemporaryDirectory(prefix="kir-calls-") as name:
        capturing = [subprocess.Popen([*KIR, "capture", "--package", p, "--seconds", f"{recording:g}", "-o", str(Path(name) / p), "--",
                                       sys.executable, "-m", "benchmarks.optimize.calls", p, "--processes", str(shares[p]),
                                       "--done", str(calls / f"{p}.txt")]) for p in wanted]
        for each in capturing:
            each.wait()
        known = {file.read_text(encoding="utf-8") for file in calls.glob("*.toml")}
        for p in wanted:
            for file in sorted((Path(name) / p).glob("*-*.toml")):
                if file.read_text(encoding="utf-8") not in known and len([*calls.glob(f"{p}-{file.stem.rpartition('-')[0]}-*.toml")]) < EACH:
                    shutil.copyfile(file, next(x for k in itertools.count() if not (x := calls / f"{p}-{file.stem}{f'-{k}' * bool(k)}.toml").exists()))


def _located(binding: Path) -> bool:
    """Whether the kernel of a recorded call is on this machine."""
    with contextlib.suppress(KirError):
        return bool(located(binding.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("#").strip()))
    return False


def _table(out: Path, found: Path, seconds: float) -> int:
    """The page, of the rows of a run, finished or not, beside those of other calls that an earlier page has."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((found / "results").glob("*.json"))]
    file, report = out / "optimize-packages.json", found / "report.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"about": {}, "rows": []}
    rows = {(r["kernel"], r["call"]): r for r in [*before["rows"], *map(_row, results)]}
    if not rows:
        return 1
    order = json.loads((found / "order.json").read_text(encoding="utf-8"))["calls"] if (found / "order.json").is_file() else []
    skipped = json.loads(report.read_text(encoding="utf-8"))["skipped"] if report.is_file() else []
    device = next((gpu.name for gpu in machine.gpus()), "no device")
    about = {"command": f"python -m benchmarks.optimize packages --seconds {seconds:g}", "device": device, "when": time.strftime("%Y-%m-%d"),
             "calls": len(order), "skipped": len(skipped),
             "brought": before["about"].get("brought", 0)} if seconds > 0 or not before["about"] else before["about"]
    write_atomic(file, json.dumps({"about": about, "rows": [*rows.values()]}, indent=1) + "\n")
    write_atomic(out / "optimize-packages.md", "\n".join(page([*rows.values()], about)) + "\n")
    print("\n".join(page([*rows.values()], about)))
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
    kernels, enough = {r["kernel"] for r in rows}, {r["kernel"] for r in rows if r["plan"] and r["speedup"] >= ENOUGH}
    yield "# Kernels of packages, at calls that were recorded"
    yield ""
    mean = math.exp(sum(map(math.log, faster)) / len(faster)) if faster else 1.0
    brought = about.get("brought", 0)
    elsewhere = f" {brought} of the calls were recorded before, on a machine without a device, and brought to the run: the command alone records its own." if (
        brought) else ""
    yield (
        f"Made by `{about['command']}` on {about['device']}, {about['when']}. {about['calls']} calls were recorded and read, {about['skipped']} were not read; "
        f"where a tuner chooses a configuration, it had done so on the device.{elsewhere} A kernel's launch as it was recorded, and what "
        "`kir optimize --package` found for it: medians of many launches in a row, in turns; all outputs compared on random tensors, those of what is "
        "given once more on others, whose time "
        f"it is. {len(rows)} calls of {len(kernels)} kernels were searched with {sum(r['gated'] for r in rows)} candidates: {sum(x >= ENOUGH for x in faster)} "
        f"calls of {len(enough)} kernels are at least {ENOUGH:g} times as fast, {len(faster)} faster at all (geometric mean {mean:.3f}); where nothing is "
        "faster, the overlay leaves the kernel alone."
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
