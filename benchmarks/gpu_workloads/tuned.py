"""What `kir tune` alone finds at shapes twice and half as large as the issue's, beside the references of the same run.

``python -m benchmarks.gpu_workloads.tuned find`` asks `kir tune` on the GPU for each surface's pipelines at such rows, side by side, and
``python -m benchmarks.gpu_workloads.tuned measure`` measures what it found, each row in turn, and writes the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import zip_longest
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads import bmm, conv2d, fmha
from benchmarks.gpu_workloads.running import replaying
from benchmarks.gpu_workloads.running.measuring import measured
from benchmarks.gpu_workloads.table import RESULTS
from kir.base.store import write_atomic

BUDGET, SECONDS = 4, 330
"""Candidates that a search may measure, and how long it may take."""
FOUND, KEPT, PAGE = ROOT / "build" / "tuned.json", RESULTS / "tuned.jsonl", ROOT / "docs" / "tables" / "workloads-tuned.md"
ATTENTION = tuple(row for row in fmha.ROWS if row.b == 8 and row.dim == 128 and row.length in (1024, 4096))
CONVOLUTION = tuple(s for s in conv2d.SHAPES if s[0] in (4, 16) and s[1:] == (56, 56, 64, 128, (3, 1)))
BATCHES = tuple(row for row in bmm.ROWS if row.what == "squares" and row.m in (1024, 4096))
SPACES = {"fmha_d128": ("stay_sm90", "even_short_triton", "stay_tilelang"), "fmha_d128_causal": ("stay_sm90", "short_triton", "stay_tilelang"),
          "conv2d": ("sm90", "triton", "tilelang_roles"), "bmm": ("sm90", "triton_halves", "tilelang_roles")}
"""How the names end of the spaces that are searched for a problem, one a surface."""
HEAD = ("shape", "found by `kir tune`", "its verdict", "median", "fastest reference", "its median", "times as fast", "measured")


def searches() -> list[dict[str, Any]]:
    """A search for each row and surface: the workload, the row's name, the space, the problem and sizes; workloads take turns."""
    rows: list[tuple[str, str, str, dict[str, int]]] = [("fmha", r.name, r.home, r.sizes) for r in ATTENTION]
    rows += [("conv2d", conv2d.name(s), "conv2d", dict(zip("NHWCF", s[:5], strict=True))) for s in CONVOLUTION]
    rows += [("bmm", r.name, "bmm:bf16", r.sizes) for r in BATCHES]
    made = [{"workload": w, "row": name, "space": f"{home}_{end}", "problem": problem, "sizes": sizes}
            for w, name, problem, sizes in rows for home in (problem.partition(":")[0],) for end in SPACES[home]]
    return [s for turn in zip_longest(*([s for s in made if s["workload"] == w] for w in ("conv2d", "bmm", "fmha"))) for s in turn if s]


def find() -> None:
    """Ask for all that were not found yet, as many at a time as there are processors; what is found is kept as it comes."""
    known = [f for f in json.loads(FOUND.read_text()) if "point" in f] if FOUND.exists() else []
    left = [s for s in searches() if not any(all(f[key] == s[key] for key in ("space", "row")) for f in known)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in as_completed([pool.submit(_found, what) for what in left]):
            known.append(done.result())
            write_atomic(FOUND, json.dumps(known))


def _found(what: dict[str, Any]) -> dict[str, Any]:
    sizes = ",".join(f"{k}={v}" for k, v in what["sizes"].items())
    words = ["tune", what["space"], "--problem", what["problem"], "--shape", sizes, "--on", "gpu", "--budget", str(BUDGET), "--no-save", "--json"]
    try:
        command = [sys.executable, "-c", "from kir.faces.cli import main; main()", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        shape = json.loads(done.stdout)["shapes"][0]
    except (subprocess.TimeoutExpired, ValueError, KeyError, IndexError) as broken:
        return {**what, "fault": f"{type(broken).__name__}: {str(broken)[:200]}"}
    return {**what, "point": shape["best"]["parameters"], "seconds": shape["best"]["seconds"], "verdict": shape["verdict"], "measured": len(shape["measured"])}


def measure() -> None:
    """Each row with what was found for it, beside its references, and the page."""
    found = [f for f in json.loads(FOUND.read_text()) if "point" in f]
    kept = {(r["row"], r["way"]): r for r in map(json.loads, KEPT.read_text().splitlines() if KEPT.exists() else [])}
    made = _compiled(found)
    for name in dict.fromkeys(f["row"] for f in found):
        for row in _row([f for f in found if f["row"] == name], made):
            kept[row["row"], row["way"]] = row
        write_atomic(KEPT, "".join(json.dumps(r) + "\n" for r in kept.values()))
        write_atomic(PAGE, page(list(kept.values())))


def _title(found: dict[str, Any]) -> str:
    return " ".join([found["space"], *(f"{k}={v}" for k, v in found["point"].items())])


def _kernel(found: dict[str, Any]) -> fmha.Kernel:
    row = next(r for r in ATTENTION if r.name == found["row"])
    return fmha.Kernel(found["space"], row=row if found["space"].endswith("tilelang") else None, point=tuple(found["point"].items()))


def _compiled(found: list[dict[str, Any]]) -> dict[str, Any]:
    """All that was found, compiled side by side, by the workload."""
    of = {w: [f for f in found if f["workload"] == w] for w in ("fmha", "conv2d", "bmm")}
    shapes, rows = {conv2d.name(s): s for s in CONVOLUTION}, {r.name: r for r in BATCHES}
    return {
        "fmha": replaying.kept("tuned-fmha", dict.fromkeys(map(_kernel, of["fmha"])), fmha.program, fmha.executable),
        "conv2d": replaying.kept("tuned-conv2d", dict.fromkeys(conv2d.key(_title(f), shapes[f["row"]]) for f in of["conv2d"]),
                                 conv2d.candidate, conv2d.executable),
        "bmm": replaying.kept("tuned-bmm", dict.fromkeys(replaying.key(_title(f), rows[f["row"]]) for f in of["bmm"]), bmm.candidate, bmm.executable),
    }


def _row(found: list[dict[str, Any]], made: dict[str, Any]) -> list[dict[str, Any]]:
    """The candidates of one row, measured in turns."""
    import torch

    titles = {_title(f): f for f in found}
    workload, name = found[0]["workload"], found[0]["row"]
    if workload == "fmha":
        chosen = tuple(map(_kernel, found))
        fmha.kernels = lambda row: chosen
        cases = [fmha._case(next(r for r in ATTENTION if r.name == name), made["fmha"])]
    elif workload == "conv2d":
        conv2d.POINTS = tuple(titles)
        cases = list(conv2d._cases(*next(s for s in CONVOLUTION if conv2d.name(s) == name), made["conv2d"]))[:1]
    else:
        bmm.POINTS = tuple(titles)
        cases = [bmm.case(next(r for r in BATCHES if r.name == name), made["bmm"])]
    taken = measured(cases[0])
    reference = min((t for t in taken if not t.ours and not t.fault), key=lambda t: t.median)
    return [{"row": name, "way": t.way, "verdict": "accepted" if (titles[t.way]["verdict"] or {}).get("accepted") else "none", "median": t.median,
             "fault": t.fault,
             "reference": reference.way, "its": reference.median,
             "device": torch.cuda.get_device_name(), "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime())} for t in taken if t.ours and t.way in titles]


def page(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines = ["# What `kir tune` alone finds at shapes twice and half as large", "",
             "Made by `python -m benchmarks.gpu_workloads.tuned find` and `measure`: of each surface's pipeline `kir tune SPACE --problem P --shape S --on gpu "
             f"--budget {BUDGET}`; what it found was measured in turns with the references, as the rows of the workloads are. A ratio over 1 means that KIR's "
             "kernel is faster.", "", "| " + " | ".join(HEAD) + " |", "| " + " | ".join("---" for _ in HEAD) + " |"]
    for r in rows:
        measured_at = f"{r['device'].removeprefix('NVIDIA ')}, {r['when']}"
        if r["fault"]:
            cells = [r["row"], r["way"], r["verdict"], f"not timed: {r['fault']}", "", "", "", measured_at]
        else:
            times = (f"{r['median'] * 1e6:.1f} us", r["reference"], f"{r['its'] * 1e6:.1f} us", f"{r['its'] / r['median']:.3f}")
            cells = [r["row"], r["way"], r["verdict"], *times, measured_at]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words not in (["find"], ["measure"]):
        print(__doc__, file=sys.stderr)
        return 2
    (find if words == ["find"] else measure)()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
