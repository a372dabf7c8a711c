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

from benchmarks.optimize.calls import CALLS, bare
from benchmarks.optimize.running import ages, made
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
BARELY = 12
"""Candidates below which a call for which too little was found is searched once more."""
RATE = 6
"""Candidates that one GPU judges a second, where a dozen searches share it: as many are allowed, so that every call has its part."""


def packages(out: Path, only: str, seconds: float, workers: int = 0, keep: str = "") -> int:
    """Record the calls of each package, search all of them under one budget, and keep rows, patches, evidence and overlay in the folder `keep`, from which the
    same command goes on: with the calls that lie there and wait, and only once there are none with others that it records. What the page has a row of is not
    searched again: calls of kernels without one come first, then the other calls, then those for which few candidates found little; of
    both rows the better stays. With 0 seconds only the page is made of them. 1 where there is nothing."""
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as held:
        state = Path(keep or held.enter_context(tempfile.TemporaryDirectory(prefix="kir-packages-")))
        calls, found, asked = state / "calls", state / "found", state / "asked"
        if seconds > 0:
            rows = [*_known(out / "optimize-packages.json").get("rows", ())]
            _waiting(calls, asked, rows)
            if not [*asked.glob("*.toml")]:
                _recorded(calls, [name for name in CALLS if any(word in name for word in only.split(","))], seconds, workers, rows)
                _waiting(calls, asked, rows)
            left, gpus = max(10.0, until - time.monotonic() - LEFT), max(1, len(machine.gpus()))
            before = [json.loads(file.read_text(encoding="utf-8")) for file in (found / "results").glob("*.json")]  # which the budget of a run counts
            seconds_of_all = left + sum(r["took"] for r in before) / (gpus * workers_each(gpus, SEARCHING))
            budget = f"candidates={round(RATE * gpus * left) + sum(len(r['tried']) for r in before)},seconds={seconds_of_all:g}"
            with contextlib.suppress(subprocess.TimeoutExpired):  # what was found by then is there
                subprocess.run([*KIR, "optimize", str(asked), "--package", "any", "--on", "gpu", "--budget", budget, "-o", str(found),
                                "--cache", str(state / "cache")], check=False, timeout=max(20.0, until - time.monotonic() + LEFT))
            shutil.rmtree(state / "cache", ignore_errors=True)
        return _table(out, found, seconds, len([*calls.glob("*.toml")]) - len([*asked.glob("*.toml")]))


def _recorded(calls: Path, wanted: Sequence[str], seconds: float, workers: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """The calls of packages that were not made yet, recorded beside those that lie in the folder; all of them where those are of files of another machine. Of
    a kernel with many bindings the first ones are kept. Functions of whose files a kernel has a row come last."""
    lie = [*calls.glob("*.toml")]
    if lie and not any(map(_located, lie)):
        shutil.rmtree(calls.parent / "found", ignore_errors=True)
        shutil.rmtree(calls, ignore_errors=True)
    calls.mkdir(parents=True, exist_ok=True)
    cores, recording = workers or len(os.sched_getaffinity(0)), max(LEAST_CAPTURING, CAPTURING * seconds)
    known = ",".join(sorted({bare(Path(r["kernel"].partition("::")[0]).stem) for r in rows}))
    shares = {p: max(1, cores * WEIGHT[p] // sum(WEIGHT[x] for x in wanted)) for p in wanted}
    with tempfile.TemporaryDirectory(prefix="kir-calls-") as name:
        capturing = [subprocess.Popen([*KIR, "capture", "--package", p, "--seconds", f"{recording:g}", "-o", str(Path(name) / p), "--",
                                       sys.executable, "-m", "benchmarks.optimize.calls", p, "--processes", str(shares[p]),
                                       "--done", str(calls / f"{p}.txt"),
                                       "--known", known]) for p in wanted]
        for each in capturing:
            each.wait()
        there = {file.read_text(encoding="utf-8") for file in calls.glob("*.toml")}
        for p in wanted:
            for file in sorted((Path(name) / p).glob("*-*.toml")):
                if file.read_text(encoding="utf-8") not in there and len([*calls.glob(f"{p}-{file.stem.rpartition('-')[0]}-*.toml")]) < EACH:
                    shutil.copyfile(file, next(x for k in itertools.count() if not (x := calls / f"{p}-{file.stem}{f'-{k}' * bool(k)}.toml").exists()))


def _known(file: Path) -> dict[str, Any]:
    """What a page is made of; nothing where there is none."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _waiting(calls: Path, asked: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put the calls that are to be searched beside those that already were in this folder: of kernels without a row, else without a row of their own, else
    with one of few candidates that found little."""
    asked.mkdir(parents=True, exist_ok=True)
    done, kernels = {(r["kernel"], r["call"]) for r in rows}, {r["kernel"] for r in rows}
    new = {file: named(file.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("#").strip()) for file in sorted(calls.glob("*.toml"))
           if not (asked / file.name).exists()}
    barely = {(r["kernel"], r["call"]) for r in rows if r["speedup"] < ENOUGH and not r["remark"] and r["gated"] < BARELY}
    fresh = [file for file, kernel in new.items() if kernel not in kernels]
    others = fresh or [file for file, kernel in new.items() if (kernel, file.stem) not in done]
    for file in others or [file for file, kernel in new.items() if (kernel, file.stem) in barely]:
        shutil.copyfile(file, asked / file.name)


def _located(binding: Path) -> bool:
    """Whether the kernel of a recorded call is on this machine."""
    with contextlib.suppress(KirError):
        return bool(located(binding.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("#").strip()))
    return False


def _table(out: Path, found: Path, seconds: float, left: int = 0) -> int:
    """The page, of the rows of a run, finished or not, beside those of other calls that an earlier page has. A call of which no candidate was gated in its
    time has no row."""
    results = [r for file in sorted((found / "results").glob("*.json")) if (r := json.loads(file.read_text(encoding="utf-8")))["tried"] or r["remark"]]
    file, report = out / "optimize-packages.json", found / "report.json"
    before = _known(file) or {"about": {}, "rows": []}
    rows = {(r["kernel"], r["call"]): r for r in before["rows"]}
    for row in map(_row, results):
        was = rows.get((row["kernel"], row["call"]), {})
        if row["speedup"] >= was.get("speedup", 0.0) and not row.items() <= was.items():
            rows[row["kernel"], row["call"]] = {**row, **made()}
    if not rows:
        return 1
    order = json.loads((found / "order.json").read_text(encoding="utf-8"))["calls"] if (found / "order.json").is_file() else []
    skipped = json.loads(report.read_text(encoding="utf-8"))["skipped"] if report.is_file() else []
    device = next((gpu.name for gpu in machine.gpus()), "no device")
    about = {"command": f"python -m benchmarks.optimize packages --seconds {seconds:g}", "device": device, "when": time.strftime("%Y-%m-%d"),
             "calls": len(order), "skipped": len(skipped), "left": left,
             "earlier": [*before["about"].get("earlier", ()), *([_alone(before["about"])] if before["about"] else [])],
             } if seconds > 0 or not before["about"] else before["about"]
    write_atomic(file, json.dumps({"about": about, "rows": [*rows.values()]}, indent=1) + "\n")
    write_atomic(out / "optimize-packages.md", "\n".join(page([*rows.values()], about)) + "\n")
    print("\n".join(page([*rows.values()], about)))
    return 0


def _alone(about: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a run, without what it says of those before."""
    return {k: v for k, v in about.items() if k != "earlier"}


def named(place: str) -> str:
    """A kernel's place by its package's name alone."""
    file, _, kernel = place.partition("::")
    package = next((p for p in CALLS if p in Path(file).parts), "")
    inside = "/".join(Path(file).parts[Path(file).parts.index(package) + 1:]) if package else file
    return f"{package}:{inside}::{kernel}"


def _row(r: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's row, with its place by its package's name alone."""
    best, base = r.get("best"), r.get("baseline")
    return {"kernel": named(str(r["kernel"])), "call": r["binding"], "launches": r["launches"], "given": base["seconds"] if base else None,
            "seconds": best["seconds"] if best else None, "speedup": r["speedup"], "plan": best["plan"] if best else "", "gated": len(r["tried"]),
            "took": r["took"], "remark": r["remark"]}


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Iterator[str]:
    """The table."""
    faster = [r["speedup"] for r in rows if r["plan"]]
    kernels, enough = {r["kernel"] for r in rows}, {r["kernel"] for r in rows if r["plan"] and r["speedup"] >= ENOUGH}
    yield "# Kernels of packages, at calls that were recorded"
    yield ""
    mean = math.exp(sum(map(math.log, faster)) / len(faster)) if faster else 1.0
    yield (
        f"Made by `{about['command']}` on {about['device']}, {about['when']}. {_recording(about)} Where a tuner chooses a configuration, it had done so on the "
        f"device. A kernel's launch as it was recorded, and what "
        "`kir optimize --package` found for it: medians of many launches in a row, in turns; all outputs compared on random tensors, those of what is "
        "given once more on others, whose time "
        f"it is. {len(rows)} calls of {len(kernels)} kernels were searched with {sum(r['gated'] for r in rows)} candidates: {sum(x >= ENOUGH for x in faster)} "
        f"calls of {len(enough)} kernels are at least {ENOUGH:g} times as fast, {len(faster)} faster at all (geometric mean {mean:.3f}). Only what is faster "
        "in the whole interval of the ratio of both, timed in turns, counts as faster, and only once that was seen on two draws of the tensors; where "
        "nothing is, the overlay leaves the kernel alone, so that none is slower."
    )
    yield ""
    yield ages(rows)
    for run in about.get("earlier", ()):
        yield ""
        yield f"Rows of an earlier run stay: `{run['command']}` on {run['device']}, {run['when']}. {_recording(run)}"
    yield ""
    yield "| kernel | call | its own | found | times as fast | by | candidates | remark |"
    yield "| --- | --- | ---: | ---: | ---: | --- | ---: | --- |"
    for r in sorted(rows, key=lambda r: -r["speedup"]):
        cells = (f"`{r['kernel']}`", r["call"], _us(r["given"]), _us(r["seconds"]), f"{r['speedup']:.3f}" if r["plan"] else "", r["plan"], r["gated"],
                 r["remark"] or ("" if r["plan"] else "nothing is faster"))
        yield "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def _recording(about: Mapping[str, Any]) -> str:
    """How many calls a run had."""
    said = f"{about['calls']} calls were recorded and read, {about['skipped']} were not read"
    said += f", {left} of kernels that have a row were left out" if (left := about.get("left")) else ""
    elsewhere = " of the calls were recorded before, on a machine without a device, and brought to the run: the command alone records its own."
    return f"{said}.{f' {brought}{elsewhere}' if (brought := about.get('brought')) else ''}"


def _us(x: float | None) -> str:
    return f"{x * 1e6:.1f} us" if x else ""
