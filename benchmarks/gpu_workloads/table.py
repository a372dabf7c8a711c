"""The table of all workloads, from the samples that are kept: a workload that is not measured this time keeps its rows."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu_workloads.running.measuring import TRIED, Case, Taken, measured
from kir.base.store import write_atomic

WORKLOADS = {name: f"benchmarks.gpu_workloads.{name}" for name in ("bmm", "conv2d", "fmha", "fmha_varlen", "gdn", "gemm", "gemm_fp8", "gemm_grouped", "topk")}
"""The module of each workload: its `cases()` yields the rows one by one, on the GPU at hand."""
RESULTS = Path(__file__).parents[1] / "results"
HEAD = ("workload", "shape", "kernel", "median", "fastest .. slowest", "TFLOP/s", "fastest reference", "its median", "times as fast", "measured")


def run(names: list[str], out: Path = RESULTS, seconds: float = float("inf"), first: int = 0, told: Callable[[int], None] = lambda _: None) -> list[str]:
    """Measure the workloads named from their row `first` on, keep the samples of each in `gpu-workloads-NAME.jsonl`, and write `gpu-workloads.md` again after
    each row, of which the number is `told`; no row is begun after so many seconds. Returns what went wrong with KIR's own kernels."""
    import torch

    until, faults = time.monotonic() + seconds, []
    for name in names:
        cases: Iterator[Case] = importlib.import_module(WORKLOADS[name]).cases()
        for row, case in enumerate(cases):
            tried = {**TRIED}
            TRIED.clear()
            if row < first:
                continue
            taken = measured(case)
            keep(out, case, taken, torch.cuda.get_device_name(), tried)
            write_atomic(out / "gpu-workloads.md", page(kept(out)))
            faults += [f"{case.workload} {case.shape} {t.way}: {t.fault}" for t in taken if t.ours and t.fault]
            told(row + 1)
            if time.monotonic() > until:
                return [*faults, "time is over"]
    return faults


def keep(out: Path, case: Case, taken: list[Taken], device: str, tried: Mapping[str, float]) -> None:
    """Put a case's samples in the place of those that were kept for it, with what the other ways took that were tried."""
    row = {
        "workload": case.workload,
        "shape": case.shape,
        "device": device,
        "operations": case.operations,
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "taken": [vars(t) for t in taken],
        "tried": {way: seconds / case.times for way, seconds in sorted(tried.items(), key=lambda one: one[1]) if not way.isdigit()},
    }
    rows = [r for r in kept(out, case.workload) if r["shape"] != case.shape]
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / f"gpu-workloads-{case.workload}.jsonl", "".join(json.dumps(r) + "\n" for r in [*rows, row]))


def take(folder: Path, out: Path = RESULTS) -> int:
    """Put the rows of another folder in the place of those that are kept of the same shapes, newer ones alone, and write the page; how many were taken. Of a
    row that is kept what ran on surfaces which the newer one has not stays, beside the references of its own run."""
    taken = 0
    for row in kept(folder):
        rows = kept(out, row["workload"])
        if any(r["shape"] == row["shape"] and r["when"] >= row["when"] for r in rows):
            continue
        first = next((i for i, r in enumerate(rows) if r["shape"] == row["shape"]), len(rows))
        has = {end(t["way"]) for t in row["taken"] if t["ours"]}
        left = [{**r, "taken": [t for t in r["taken"] if not t["ours"] or end(t["way"]) not in has]} if r["shape"] == row["shape"] else r for r in rows]
        rows = [r for r in (*left[:first], row, *left[first:]) if any(t["ours"] for t in r["taken"])]
        write_atomic(out / f"gpu-workloads-{row['workload']}.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        taken += 1
    write_atomic(out / "gpu-workloads.md", page(kept(out)))
    return taken


def end(way: str) -> str:
    """What a way of KIR's is written in or for, by its name: of one shape each has a row of one run."""
    return next((word for word in ("tilelang", "triton", "sm80") if word in way), "cuda")


def kept(out: Path, name: str = "*") -> list[dict[str, Any]]:
    """What is kept of a workload, or of all, one object a case."""
    return [json.loads(line) for file in sorted(out.glob(f"gpu-workloads-{name}.jsonl")) for line in file.read_text().splitlines()]


def page(rows: list[dict[str, Any]]) -> str:
    """The table, one row for each of KIR's kernels at each case, with the fastest reference of the same run."""
    names = sorted({str(r["workload"]) for r in rows})
    lines = [
        "# The workloads beside the fastest references",
        "",
        f"Made by `python -m benchmarks.gpu_workloads {' '.join(names)}` on the GPU that a row names. All ways of a row were timed in turns in one "
        "process; a ratio over 1 means that KIR's kernel is faster. *None*: no reference was installed there, or compiled in time.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "| " + " | ".join("---" for _ in HEAD) + " |",
    ]
    for row in sorted(rows, key=lambda r: str(r["workload"])):
        references = [t for t in row["taken"] if not t["ours"] and not t["fault"]]
        best = min(references, key=lambda t: float(t["median"]), default=None)
        lines += ["| " + " | ".join(_cells(row, t, best)) + " |" for t in row["taken"] if t["ours"]]
    return "\n".join([*lines, ""])


def _cells(row: dict[str, Any], t: dict[str, Any], best: dict[str, Any] | None) -> list[str]:
    first = [str(row["workload"]), str(row["shape"]), str(t["way"])]
    if t["fault"]:
        return [*first, f"not timed: {t['fault']}", *[""] * 5, _measured(row)]
    rate = f"{row['operations'] / t['median'] / 1e12:.0f}" if row["operations"] else ""
    beside = [str(best["way"]), _microseconds(best["median"]), f"{best['median'] / t['median']:.3f}"] if best else ["none", "", ""]
    return [*first, _microseconds(t["median"]), f"{_microseconds(t['low'])} .. {_microseconds(t['high'])}", rate, *beside, _measured(row)]


def _measured(row: dict[str, Any]) -> str:
    return f"{str(row['device']).removeprefix('NVIDIA ').partition(' ')[0]}, {row['when']}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"
