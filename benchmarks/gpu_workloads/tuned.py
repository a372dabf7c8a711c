"""What `kir tune` alone finds at shapes twice and half as large as the issue's, beside the references of the same run.

``python -m benchmarks.gpu_workloads.tuned find [--seconds N] [NAME ..]`` asks `kir tune` on the GPU for each surface's pipelines at such shapes (of the
workloads or pipelines that are named, or of all), side by side, and keeps what is found in ``build/tuned.json`` as it comes; ``python -m
benchmarks.gpu_workloads.tuned measure`` measures what was found, each row in turn, compares whole results with those of the device's own libraries, and
writes the page. Each goes on where it was; a search is made again with more candidates than it had. Attention over uneven lengths is not asked: what a call
takes there follows from the lengths, which are data, and `kir tune` draws them short of these shapes.

``python -m benchmarks.gpu_workloads.tuned ways [--seconds N] [TEXT ..]`` measures other ways at the rows that miss a figure: points of all pipelines that a
search might have come to (of all, or those whose titles contain a text), beside the references of the same run. ``--write`` writes the page from what is kept,
with what ``workloads-limits.toml`` says of figures that are missed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads import bmm, conv2d, fmha, gdn, gemm, gemm_fp8, gemm_grouped, topk
from benchmarks.gpu_workloads.history import ASKED_OF, FIGURES, LIMITS, SURFACES, cells
from benchmarks.gpu_workloads.running import measuring, replaying
from benchmarks.gpu_workloads.running.asking import EARLY, SIZED
from benchmarks.gpu_workloads.running.measuring import Case, measured
from benchmarks.gpu_workloads.table import RESULTS
from kir.base.store import write_atomic
from kir.gate.artifacts import ArtifactCache
from kir.gate.gpu.images.executable import Executable, bound
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.problem.schema import evaluate
from kir.surface import backend

BUDGETS, SECONDS = {"tilelang": 4, "cuda": 12, "triton": 12}, 420.0
"""Candidates that a search may measure at a shape, fewer where each takes a minute to compile, and how long all searches together may take."""
MORE = {"gemm_grouped_sm90": 20, "gemm_grouped_triton": 20}
"""The same of pipelines of which the cost model ranks many ahead of the fastest: it does not know how many rows a group has."""
LEAST = 4
"""The same of what was found before it was kept how many they were."""
FOUND, LOGS, KEPT = ROOT / "build" / "tuned.json", ROOT / "build" / "tuned", RESULTS / "tuned.jsonl"
WAYS, SHOWN = RESULTS / "tuned-ways.jsonl", 6
"""What other ways took at the rows, and how many of a row the page shows."""
CACHE = ROOT / "build" / "tuned-cache"
"""What was compiled, of which what is measured is taken."""
PAGE = ROOT / "docs" / "tables" / "workloads-tuned.md"
ATTENTION = {causal: tuple(r for r in fmha.ROWS if (r.b, r.h, r.dim, r.causal) == (8, 64, 128, causal) and r.length in (1024, 4096))
             for causal in (False, True)}
CONVOLUTION = {conv2d.name(s): s for s in conv2d.SHAPES if s[0] in (4, 16) and s[1:] == (56, 56, 64, 128, (3, 1))}
BATCHES = {r.name: r for r in bmm.ROWS if r.what == "squares" and r.m in (1024, 4096)}
SQUARES = {r.name: r for r in (gemm.Row("square", m, m, m, order="nn") for m in (2048, 8192))}
SCALED = {r.name: r for r in (gemm_fp8.Row("square", m, m, m) for m in (2048, 8192))}
GROUPS = {r.name: r for r in (gemm_grouped.Row("eight experts", 8, rows, 2048, 2048) for rows in (4096, 16384))}
ROWS = {topk.shape_name(s): s for s in ((32, 4096, 512, ()), (128, 4096, 512, ()))}
RULES = {gdn.name(s): s for s in ((1, 2048, 16, 3), (1, 8192, 16, 3))}
BEGUN = "programmatic-dependent-launch{wait=%d trigger=start}@main"
KNOWN = "know-sizes{sizes=[%s] values=[%s]}@main"
AT_SIZES: dict[str, dict[str, int | None]] = {
    "MNK": {"gemm_sm90": 7, "gemm_triton_halves": 0, "gemm_fp8_sm90": 7, "gemm_fp8_sm90_pairs": 7},
    "GMNK": {"bmm_sm90": 7, "bmm_triton_halves": None},
    "RNK": {"topk_alone_triton": 0, "topk_spread_triton": 0},
}
"""Pipelines of which candidates know their sizes, by the sizes' names, each with the statement before which it waits for the kernel ahead, or none where it
does not begin early."""
THEN = {"gemm_tilelang_roles": (EARLY, BEGUN % 8), "topk_parts_triton": (EARLY, BEGUN % 0), **{
    space: (SIZED if wait is None else f"{SIZED}{EARLY}",
            f"{'' if wait is None else f'{BEGUN % wait}; '}{KNOWN % (', '.join(sizes), ', '.join(f'${{{size}}}' for size in sizes))}")
    for sizes, spaces in AT_SIZES.items() for space, wait in spaces.items()}}
"""What candidates of a pipeline take after their own steps (`kir tune --then`), and how that is called: they begin before the kernel ahead of them has ended,
and have the shape's sizes as numbers."""
OF_POINTS: dict[str, tuple[Any, dict[str, Any]]] = {"bmm": (bmm, BATCHES), "gemm_fp8": (gemm_fp8, SCALED), "gemm_grouped": (gemm_grouped, GROUPS)}
"""Workloads whose candidates are points by their titles, with their rows."""
WIDE, TALL = "rows=128 columns=256", "rows=256 columns=128"
POINTS_TRIED: dict[str, tuple[str, ...]] = {
    "topk": (
        *(f"topk_tiles_triton tile=4096 threads={threads}{begins}" for threads in (256, 512, 128) for begins in ("", EARLY)),
        *(f"topk_parts_triton tile=4096 threads={threads}{begins}" for threads in (256, 512) for begins in ("", EARLY)),
        *(f"topk_{of}_triton tile=4096 threads={threads}{then}" for of in ("alone", "spread") for threads in (256, 512, 128)
          for then in ("", SIZED, EARLY, f"{SIZED}{EARLY}")),
        *(f"topk_rows threads=512 items=8 room=4096 bits=10{then}" for then in ("", SIZED, EARLY, f"{SIZED}{EARLY}")),
    ),
    "gdn": ("gdn_d128_sm90 form=warpgroups", f"gdn_d128_sm90 form=warpgroups{SIZED}"),
    "gemm": tuple(f"{point}{then}" for point, thens in (
        (f"gemm_sm90 {WIDE} stages=4 raster=8 rounds=4", ("", EARLY, SIZED, f"{SIZED}{EARLY}")),
        (f"gemm_sm90 {WIDE} stages=4 raster=16 rounds=2", ("", f"{SIZED}{EARLY}")),
        (f"gemm_sm90_multicast {WIDE} stages=4 size=2 raster=8 rounds=2", ("", f"{SIZED}{EARLY}")),
        ("gemm_sm90_pingpong rows=128 columns=128 stages=5 size=2 raster=8 rounds=2", ("",)),
        (f"gemm_sm90 {TALL} stages=4 raster=8 rounds=2", ("",)),
        (f"gemm_triton_halves {WIDE} depth=64 stages=4 threads=256 raster=8 flatten=True", ("", EARLY, SIZED, f"{SIZED}{EARLY}")),
        (f"gemm_tilelang_roles {WIDE} stages=4 rounds=4 raster=16", ("", EARLY)),
        (f"gemm_tilelang_roles {WIDE} stages=4 rounds=2 raster=8", ("", EARLY)),
        ("gemm_tilelang_roles rows=128 columns=128 stages=6 rounds=1 raster=8", ("",)),
    ) for then in thens),
    "bmm": tuple(f"{point}{then}" for point, thens in (
        (f"bmm_sm90 {WIDE} stages=4 raster=16 rounds=2", ("", EARLY, SIZED, f"{SIZED}{EARLY}")),
        (f"bmm_sm90_multicast {WIDE} stages=4 size=2 raster=8 rounds=2", ("", f"{SIZED}{EARLY}")),
        ("bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1", (SIZED,)),
        (f"bmm_sm90 {TALL} stages=4 raster=8 rounds=2", ("",)),
        (f"bmm_triton_halves {WIDE} depth=64 stages=4 threads=256 raster=8 flatten=True", ("", EARLY, SIZED, f"{SIZED}{EARLY}")),
        (f"bmm_triton_halves {WIDE} depth=64 stages=4 threads=256 raster=8 flatten=False", ("",)),
        (f"bmm_triton_halves {WIDE} depth=64 stages=3 threads=256 raster=16 flatten=True", ("",)),
        (f"bmm_triton {WIDE} depth=64 stages=3 threads=256 raster=8", ("", SIZED)),
        (f"bmm_tilelang_roles {WIDE} stages=4 rounds=2 raster=8", ("", EARLY)),
        (f"bmm_tilelang_roles {TALL} stages=4 rounds=2 raster=8", ("", EARLY)),
        ("bmm_tilelang_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1", ("",)),
    ) for then in thens),
    "gemm_fp8": (
        "gemm_fp8_sm90 rows=192 stages=5 raster=8 rounds=2",
        "gemm_fp8_sm90 rows=192 stages=5 raster=16 rounds=2",
        "gemm_fp8_sm90_pairs rows=128 stages=4 raster=8 rounds=2",
        f"gemm_fp8_sm90_pairs rows=128 stages=4 raster=8 rounds=2{SIZED}",
        "gemm_fp8_sm90_multicast rows=192 stages=5 size=2 raster=8 rounds=2",
        "gemm_fp8_sm90_multicast_pairs rows=128 stages=4 size=2 raster=8 rounds=2",
        "gemm_fp8_triton rows=128 stages=4 threads=256 raster=8",
        "gemm_fp8_triton rows=64 stages=4 threads=128 raster=8",
        f"gemm_fp8_triton rows=64 stages=4 threads=128 raster=8{SIZED}",
        f"gemm_fp8_triton rows=128 stages=4 threads=256 raster=8{SIZED}",
        "gemm_fp8_triton_ahead rows=64 stages=3 threads=128 raster=8",
        "gemm_fp8_triton_persistent rows=64 stages=2 threads=128 raster=8 ctas=3 flatten=False",
        "gemm_fp8_tilelang_pairs rows=128 stages=4 raster=8 rounds=2",
        "gemm_fp8_tilelang_pairs rows=128 stages=6 raster=8 rounds=2",
        "gemm_fp8_tilelang_roles rows=192 stages=5 raster=8 rounds=2",
    ),
}
"""Points that are tried beside what a search found, with what is done to their programs afterwards."""
Sizes = dict[str, int]
HEAD = ("shape", "found by `kir tune`", "of", "its verdict", "median", "fastest reference", "its median", "times as fast", "measured")


def searches() -> list[dict[str, Any]]:
    """A search for each pipeline: the workload, the space, the problem, the shape at which winners are gated, and the rows with their sizes; those whose
    gates take the longest last."""
    whole: list[tuple[str, str, str, dict[str, Sizes], tuple[str, ...]]] = [
        ("topk", "topk", "R=64,N=4096,K=512", {n: dict(zip("RNK", s[:3], strict=True)) for n, s in ROWS.items()},
         ("topk_alone_triton", "topk_spread_triton", "topk_parts_triton", "topk_tiles_triton", "topk_rows", "topk_rows_tilelang")),
        ("gdn", "gdn_d128", "B=1,L=330,H=1,G=2", {n: dict(zip("BLHG", s, strict=True)) for n, s in RULES.items()},
         ("gdn_d128_sm90", "gdn_d128_boxes_triton", "gdn_d128_roles_tilelang")),
        ("fmha", "fmha_d128", "B=1,H=2,L=1024", {r.name: r.sizes for r in ATTENTION[False]},
         ("fmha_d128_even_wide_triton", "fmha_d128_stay_sm90", "fmha_d128_stay_tilelang")),
        ("gemm", "gemm:bf16", "M=1024,N=1024,K=1024", {n: r.shape.sizes for n, r in SQUARES.items()},
         ("gemm_triton_halves", "gemm_sm90", "gemm_tilelang_roles")),
        ("bmm", "bmm:bf16", "G=2,M=512,N=512,K=512", {n: r.sizes for n, r in BATCHES.items()},
         ("bmm_triton_halves", "bmm_sm90", "bmm_tilelang_roles")),
        ("conv2d", "conv2d", "N=1,H=56,W=56,C=64,F=128", {n: dict(zip("NHWCF", s[:5], strict=True)) for n, s in CONVOLUTION.items()},
         ("conv2d_boxes_triton", "conv2d_sm90", "conv2d_tilelang_roles")),
        ("fmha", "fmha_d128_causal", "B=1,H=2,L=1024", {r.name: r.sizes for r in ATTENTION[True]},
         ("fmha_d128_causal_wide_peeled_triton", "fmha_d128_causal_stay_sm90", "fmha_d128_causal_stay_tilelang")),
        ("gemm_fp8", "gemm_fp8", "M=512,N=512,K=512", {n: {"M": r.m, "N": r.n, "K": r.k} for n, r in SCALED.items()},
         ("gemm_fp8_triton", "gemm_fp8_sm90", "gemm_fp8_sm90_pairs", "gemm_fp8_tilelang_pairs")),
        ("gemm_grouped", "gemm_grouped:bf16", "G=4,T=512,N=256,K=256", {n: {"G": r.groups, "T": r.rows, "N": r.n, "K": r.k} for n, r in GROUPS.items()},
         ("gemm_grouped_triton", "gemm_grouped_sm90", "gemm_grouped_tilelang_roles")),
    ]
    return [{"workload": workload, "space": space, "problem": problem, "judged": judged, "rows": rows}
            for workload, problem, judged, rows, spaces in whole for space in spaces]


def find(seconds: float = SECONDS, only: Collection[str] = ()) -> None:
    """Ask for all that was not found yet, first where nothing is known, as many at a time as there are processors; what is found is kept as it comes. Of a
    search that did not end in time the fastest candidate that it had measured is kept, and that no gate judged it whole."""
    until = time.monotonic() + seconds
    known = json.loads(FOUND.read_text()) if FOUND.exists() else []
    asked = [s for s in searches() if not only or s["workload"] in only or s["space"] in only]
    accepted = {(f["space"], f["row"]) for f in known if f["verdict"] == "accepted" and f.get("budget", LEAST) >= _budget(f["space"])}
    left = [s for s in asked if not all((s["space"], row) in accepted for row in s["rows"])]
    left.sort(key=lambda s: any(f["space"] == s["space"] for f in known))
    LOGS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in as_completed([pool.submit(_found, what, until) for what in left]):
            ended = {(f["space"], f["row"]) for f in done.result()}
            known = [f for f in known if (f["space"], f["row"]) not in ended] + done.result()
            write_atomic(FOUND, json.dumps(known))
            print(*(f"{f['space']} at {f['row']}: {f['point']} after {f['took']:.0f} s, {f['verdict']}" for f in done.result()), sep="\n", flush=True)


def _budget(space: str) -> int:
    return MORE.get(space, BUDGETS[find_space(space).surface])


def _found(what: dict[str, Any], until: float) -> list[dict[str, Any]]:
    """What a search says of each of its rows."""
    shapes = [word for sizes in what["rows"].values() for word in ("--shape", ",".join(f"{k}={v}" for k, v in sizes.items()))]
    log, begun = LOGS / f"{what['space']}.jsonl", time.monotonic()
    budget = _budget(what["space"])
    words = ["tune", what["space"], "--problem", what["problem"], *shapes, "--judged-at", what["judged"], "--on", "gpu", "--budget", str(budget),
             "--log", str(log), "--cache", str(CACHE), "--no-save", "--json"]
    about = {"workload": what["workload"], "space": what["space"], "problem": what["problem"], "budget": budget}
    if what["space"] in THEN:
        words, about = [*words, "--then", THEN[what["space"]][1]], {**about, "then": THEN[what["space"]][0]}
    try:
        done = subprocess.run([sys.executable, "-c", "from kir.faces.cli import main; main()", *words], capture_output=True, text=True,
                              timeout=max(1.0, until - begun), check=False)
        shapes_found = json.loads(done.stdout)["shapes"]
        write_atomic(LOGS / f"{what['space']}.json", done.stdout)
        return [{**about, "row": row, "point": shape["best"]["parameters"], "verdict": "accepted", "seconds": shape["best"]["seconds"],
                 "took": time.monotonic() - begun, "when": _now()} for row, shape in zip(what["rows"], shapes_found, strict=True)]
    except subprocess.TimeoutExpired as late:
        why = "its gate did not end in time"
        write_atomic(LOGS / f"{what['space']}.late", f"{json.dumps(words)}\n{(late.stderr or b'').decode()}")
    except (ValueError, KeyError, IndexError):
        said = [f"{d.get('id')}: {(d.get('witness') or [d.get('message')])[0]}" for d in _diagnostics(done.stdout)]
        why = (said or done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
        write_atomic(LOGS / f"{what['space']}.failed", done.stdout + done.stderr)
    if not log.exists():
        print(f"{what['space']}: {why}", file=sys.stderr)
    return [{**about, "row": row, "point": best["point"], "verdict": why, "seconds": best["seconds"], "took": time.monotonic() - begun, "when": _now()}
            for row, sizes in what["rows"].items() if (best := _best(log, sizes))]


def _diagnostics(text: str) -> list[dict[str, Any]]:
    """What a command said in JSON against what it was asked for."""
    try:
        found: list[dict[str, Any]] = json.loads(text)["diagnostics"]
        return found
    except (ValueError, KeyError, TypeError):
        return []


def _best(log: Any, sizes: Sizes) -> dict[str, Any]:
    """The fastest candidate at a shape that the log of a search holds, or nothing."""
    taken = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return min((t for t in taken if t["sizes"] == sizes and t["accepted"]), key=lambda t: t["seconds"], default={})


def measure() -> None:
    """Each row of which something was found since it was measured, beside its references, and the page."""
    kept = {(r["row"], r["way"]): r for r in map(json.loads, KEPT.read_text().splitlines() if KEPT.exists() else [])}
    every = json.loads(FOUND.read_text())
    known = {(row, way): (r["when"], r["verdict"]) for (row, way), r in kept.items()}
    fresh = {f["row"] for f in every if known.get((f["row"], _title(f)), ("", ""))[1] != f["verdict"] or known[f["row"], _title(f)][0] < f.get("when", "")}
    found = [f for f in every if f["row"] in fresh]
    made = replaying.kept("tuned", [_key(f) for f in found], program, executable)
    for name in dict.fromkeys(f["row"] for f in found):
        for row in _row([f for f in found if f["row"] == name], made):
            kept = {k: r for k, r in kept.items() if k[0] != name or k[1].split()[0] != row["way"].split()[0]} | {(name, row["way"]): row}
        write_atomic(KEPT, "".join(json.dumps(r) + "\n" for r in kept.values()))
        write_atomic(PAGE, page(list(kept.values())))


def other_ways(seconds: float = SECONDS, texts: Collection[str] = ()) -> None:
    """Each way of `POINTS_TRIED`, or those whose titles contain a text, at the rows of its workload, a row after the other, kept as it comes."""
    until = time.monotonic() + seconds
    asked = [_way(workload, title) for workload, titles in POINTS_TRIED.items() for title in titles if not texts or any(t in title for t in texts)]
    every = sorted(({**way, "row": row} for way in asked for row in _rows(way["space"])), key=lambda w: [*_rows(w["space"])].index(w["row"]))
    made = replaying.kept("tuned", [_key(w) for w in every], program, executable)
    kept = {(w["row"], w["way"]): w for w in map(json.loads, WAYS.read_text().splitlines() if WAYS.exists() else [])}
    for name in dict.fromkeys(w["row"] for w in every):
        if time.monotonic() < until:
            kept |= {(w["row"], w["way"]): w for w in _tried([w for w in every if w["row"] == name], made)}
            write_atomic(WAYS, "".join(json.dumps(w) + "\n" for w in kept.values()))


def _way(workload: str, title: str) -> dict[str, Any]:
    """A point with what is done to its program afterwards, by its title."""
    words = title.removesuffix(EARLY).removesuffix(SIZED).split()
    space = find_space(words[0])
    named = {k: next(v for v in space.parameters[k] if str(v) == x) for k, x in (w.split("=") for w in words[1:])}
    return {"workload": workload, "space": words[0], "point": named, "then": title.removeprefix(" ".join(words)), "verdict": ""}


def _rows(space: str) -> dict[str, Sizes]:
    """The rows at which a pipeline is tried: those at which one of its surface and its problem is searched."""
    of = find_space(space)
    found: dict[str, Sizes] = next(s["rows"] for s in searches() if s["problem"].partition(":")[0] == of.home and find_space(s["space"]).surface == of.surface)
    return found


def _tried(ways: list[dict[str, Any]], made: dict[Key, Any]) -> list[dict[str, Any]]:
    """What each of some ways at one row took, beside the fastest reference of the run."""
    import torch

    titles = {_title(w): w for w in ways}
    workload, name = ways[0]["workload"], ways[0]["row"]
    measuring.TRIED.clear()
    [case] = _cases(workload, name, {t: (find_space(w["space"]).surface, made[_key(w)]) for t, w in titles.items()})
    took = {way: seconds / case.times for way, seconds in measuring.TRIED.items() if way in titles}
    taken = measured(case)
    reference = min((t for t in taken if not t.ours and not t.fault), key=lambda t: t.median)
    took |= {title: t.median for t in taken for title in titles if t.ours and not t.fault and any(x.endswith(title) for x in t.way.split(", "))}
    for way, why in case.missing.items():
        print(f"{name}: {way}: {why}", file=sys.stderr, flush=True)
    return [{"workload": workload, "row": name, "way": way, "seconds": seconds, "reference": reference.way, "its": reference.median,
             "device": torch.cuda.get_device_name(), "when": _now()} for way, seconds in took.items()]


Key = tuple[str, str, tuple[tuple[str, Any], ...], str, str]
"""A workload, a space, a point of it, the row of which it is, since what launchers take of sizes is the row's, and what is done to it afterwards."""


def _key(found: dict[str, Any]) -> Key:
    return found["workload"], found["space"], tuple(found["point"].items()), found["row"], found.get("then", "")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def _title(found: dict[str, Any]) -> str:
    return f"{' '.join([found['space'], *(f'{k}={v}' for k, v in found['point'].items())])}{found.get('then', '')}"


def _search(of: Key) -> dict[str, Any]:
    return next(s for s in searches() if s["workload"] == of[0] and of[3] in s["rows"])


def program(of: Key) -> Program:
    """The naive program after a pipeline at a point. Raises KirError where a step does not apply."""
    space, problem, device = find_space(of[1]), load_problem(_search(of)["problem"]), target("h200")
    made = built(space, space.values(dict(of[2]), given_of(space, problem, problem.shapes[0], device)), problem, device)
    made = replaying.begun_early(made) if EARLY in of[4] else made  # first, so that what knows its sizes differs in the numbers alone
    return replaying.at_sizes(made, _search(of)["rows"][of[3]]) if SIZED in of[4] else made


def executable(of: Key, made: Program) -> Executable:
    """What it is compiled to at the row's sizes, as the gate has it compiled. Raises KirError."""
    what = _search(of)
    by, sizes, spec = backend(find_space(of[1]).surface), what["rows"][of[3]], load_problem(what["problem"]).spec
    at = bound(made, sizes, {t.name: tuple(evaluate(d, sizes) for d in t.shape) for t in spec.tensors})
    emitted = by.launched_with(by.emit(made), {name: int(value) for name, value in at.values.items() if not isinstance(value, float)})
    return Executable(made, emitted, {Executable.variant(emitted): ArtifactCache(CACHE / "artifacts").compiled(by, emitted, target("h200"))})


def _cases(workload: str, name: str, made: dict[str, tuple[str, Any]]) -> Iterator[Case]:
    """The rows of a workload's own command at a shape, with other candidates: by their titles, each with its surface and what was made of it."""
    if workload == "fmha":
        row = next(r for rows in ATTENTION.values() for r in rows if r.name == name)
        names = {t: fmha.Kernel(t.split()[0], point=tuple((k, v) for k, v in (x.split("=") for x in t.split()[1:]))) for t in made}
        fmha.kernels = lambda row: tuple(names.values())
        yield fmha._case(row, {names[t]: found for t, (_, found) in made.items()})
    elif workload == "conv2d":
        shape = CONVOLUTION[name]
        conv2d.POINTS = tuple(made)
        yield next(conv2d._cases(*shape, {conv2d.key(t, shape): found for t, (_, found) in made.items()}))
    elif workload in OF_POINTS:
        module, rows = OF_POINTS[workload]
        module.POINTS = tuple(made)
        yield module.case(rows[name], {replaying.key(t, rows[name]): found for t, (_, found) in made.items()})
    elif workload == "gemm":
        yield gemm.case(SQUARES[name], [(s, t, *((None, f) if isinstance(f, str) else f)) for t, (s, f) in made.items()])
    elif workload == "topk":
        r, n, k, _ = ROWS[name]
        topk.answers = lambda n, families: [(s, t) for t, (s, _) in made.items()]
        topk.title = lambda surface, answer: answer
        yield next(topk._cases(r, n, k, "normal", (), {topk.key(s, t, (r, n, k)): found for t, (s, found) in made.items()}))
    else:
        yield gdn._case(*RULES[name], {(t, s, None): found for t, (s, found) in made.items()})


def _row(found: list[dict[str, Any]], made: dict[Key, Any]) -> list[dict[str, Any]]:
    """The candidates of one row, measured in turns."""
    import torch

    titles = {_title(f): f for f in found}
    workload, name = found[0]["workload"], found[0]["row"]
    [case] = _cases(workload, name, {t: (find_space(f["space"]).surface, made[_key(f)]) for t, f in titles.items()})
    taken = measured(case)
    reference = min((t for t in taken if not t.ours and not t.fault), key=lambda t: t.median)
    mine = [(next((x for x in titles if x in t.way), ""), t) for t in taken if t.ours]
    return [{"workload": workload, "row": name, "way": title, "budget": titles[title].get("budget", LEAST), "verdict": titles[title]["verdict"],
             "median": t.median, "fault": t.fault, "reference": reference.way, "its": reference.median,
             "device": torch.cuda.get_device_name(), "when": _now()} for title, t in mine if title]


def page(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines = ["# What `kir tune` alone finds at shapes twice and half as large", "",
             "Made by `python -m benchmarks.gpu_workloads.tuned find` and `measure`: of each surface's pipeline `kir tune SPACE --problem P --shape HALF "
             "--shape TWICE --judged-at SMALL --on gpu --budget OF` (`early`, `at its sizes`: with `--then programmatic-dependent-launch{..}` and "
             "`know-sizes{..}`): the whole gate at the small shape; what it found was measured in turns with the "
             "references, and all that it computes compared with theirs, as the rows of the workloads are. A ratio over 1 means that KIR's is faster.", "",
             "| " + " | ".join(HEAD) + " |", "| " + " | ".join("---" for _ in HEAD) + " |"]
    for r in sorted(rows, key=lambda r: str(r["workload"])):
        measured_at = f"{r['device'].removeprefix('NVIDIA ')}, {r['when']}"
        if r["fault"]:
            cells = [r["row"], r["way"], str(r.get("budget", LEAST)), r["verdict"], f"not timed: {r['fault']}", "", "", "", measured_at]
        else:
            times = (f"{r['median'] * 1e6:.1f} us", r["reference"], f"{r['its'] * 1e6:.1f} us", f"{r['its'] / r['median']:.3f}")
            cells = [r["row"], r["way"], str(r.get("budget", LEAST)), r["verdict"], *times, measured_at]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_beside(rows), *_missed(), ""])


def _beside(rows: list[dict[str, Any]]) -> list[str]:
    """Of each workload on a surface the mean of what was found beside the figure that is asked, and what its kernels reach at the same rows."""
    ratios, known = defaultdict[tuple[str, str], dict[str, float]](dict), cells()
    for r in rows:
        if not r["fault"]:
            of = ratios[r["workload"], find_space(r["way"].split()[0]).surface]
            of[r["row"]] = max(of.get(r["row"], 0.0), r["its"] / r["median"])
    lines = ["## Beside what is asked", "",
             "The mean of the shapes, of the fastest of a surface's pipelines, beside the figure that is asked of a workload's rows, and what all its kernels "
             "reach there where the shapes are rows ([gpu-workloads](../../benchmarks/results/gpu-workloads.md)). What both miss is the kernel's: "
             "[why](workloads-limits.md). What only the first misses, the search did not come to: it measures those that the cost model has fastest.", "",
             "| workload | surface | asked | `kir tune` alone | all kernels there | |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for (workload, surface), best_of in sorted(ratios.items()):
        found = list(best_of.items())
        there = [max((ratio for row, (ratio, _) in known.get((workload, surface), {}).items() if row.startswith(name)), default=0.0) for name, _ in found]
        asked, mean = FIGURES[workload][[*SURFACES].index(surface)], _mean([ratio for _, ratio in found])
        best = f"{_mean(there):.3f}" if all(there) else ""
        said = "" if mean >= asked else "missed by the search" if all(there) and _mean(there) >= asked else "missed"
        if workload in ASKED_OF and said:
            said = f"asked of the {ASKED_OF[workload]}; this is beside the fastest"
        lines.append(f"| {workload} | {SURFACES[surface]} | {asked} | {mean:.3f} | {best} | {said} |")
    return lines


def _missed() -> Iterator[str]:
    """What binds where a figure is missed, what was tried there, and the fastest ways that were measured at each row."""
    kept = [json.loads(line) for line in WAYS.read_text().splitlines()] if WAYS.exists() else []
    surface = cache(lambda space: find_space(space).surface)
    for limit in tomllib.loads(LIMITS.read_text()).get("tuned", ()):
        yield from ("", f"## {limit['of']}", "", f"**What binds.** {limit['binds'].strip()}", "", f"**What was tried.** {limit['tried'].strip()}")
        of = [tuple(cell.split()) for cell in limit["cells"]]
        mine = [w for w in kept if (w["workload"], surface(w["way"].split()[0])) in of]
        if mine:
            yield from ("", "| shape | way | median | fastest reference | times as fast | measured |", "| --- | --- | ---: | --- | ---: | --- |")
        for cell, row in dict.fromkeys(((w["workload"], surface(w["way"].split()[0])), w["row"]) for w in mine):
            here = [w for w in mine if w["row"] == row and (w["workload"], surface(w["way"].split()[0])) == cell]
            for w in sorted(here, key=lambda w: float(w["seconds"] / w["its"]))[:SHOWN]:
                yield (f"| {row} | {w['way']} | {w['seconds'] * 1e6:.1f} us | {w['reference']} ({w['its'] * 1e6:.1f} us) | {w['its'] / w['seconds']:.3f} | "
                       f"{w['when']} |")


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    seconds, only = (float(words[2]), words[3:]) if words[1:2] == ["--seconds"] and words[2:] else (SECONDS, words[1:])
    if words[:1] == ["find"] and set(only) <= {name for s in searches() for name in (s["workload"], s["space"])}:
        find(seconds, only)
    elif words[:1] == ["ways"]:
        other_ways(seconds, only)
    elif words == ["measure"]:
        measure()
    elif words == ["--write"]:
        write_atomic(PAGE, page([json.loads(line) for line in KEPT.read_text().splitlines()]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from benchmarks.gpu_workloads import tuned

    sys.exit(tuned.main(sys.argv[1:]))  # by its own name: what is kept is read by other modules
