"""NVIDIA's heuristics for GEMM (`nvidia-matmul-heuristics`), asked about programs of pools: what they rate are configurations of CUTLASS, which are read here
from the matrix products of a program. They answer in a process of their own, as their library does not end well.

`python -m benchmarks.forecast.heuristics < questions.json`: seconds of each, as JSON.
"""
from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.forecast.pools import LEAST, Pool, PoolFigures, Score, by_seconds, figures
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.parser import parse_program
from kir.ir.types import shape_of
from kir.ir.visit import names_read, walk
from kir.learning.forecast.data import Data

DEVICES = {"h100-sxm": "H100_SXM", "h200": "H200_SXM"}
"""Their names of the devices of the data."""
LAYOUTS = {"gemm": "NN_ROW_MAJOR", "addmm": "NN_ROW_MAJOR", "gemm_nt": "NT_ROW_MAJOR", "gemm_tn": "TN_ROW_MAJOR", "gemm_tt": "TT_ROW_MAJOR"}
"""Problems that are one product of f16 matrices, and how their operands lie."""
TEAMS = ("thread", "warp", "warpgroup")


@dataclass(frozen=True)
class Configuration:
    """What CUTLASS would call a program: the tile of a CTA (rows, columns, depth of a stage), that of one warp (or warpgroup), that of an instruction,
    stages, parts of K, and CTAs of a cluster along rows and columns."""

    cta: tuple[int, int, int]
    warp: tuple[int, int, int]
    instr: tuple[int, int, int]
    stages: int
    parts: int
    cluster: tuple[int, int]


def configuration(program: n.Program) -> Configuration | None:
    """Of the first kernel of a program whose product is a statement of tiles; None for one that says it otherwise."""
    for k in program.kernels:
        for product, around in _products(k.body, ()):
            a, b = ([int_value(d) for d in shape_of(e.type)] for e in (product.a, product.b))
            if len(a) != 2 or len(b) != 2 or None in a or None in b:
                return None
            rows, depth, columns = a[0] or 0, a[1] or 0, b[1] or 0
            teams = [loop for loop in around if loop.kind in TEAMS]
            down, along = (math.prod(_trips(t) for t in teams if t.var.name in names_read(e)) for e in (product.a, product.b))
            stages = max([1, *(int(s) for loop in around if isinstance(s := dict(loop.attrs).get("stages"), int)), *_slots(product)])
            instr = (64, min(256, columns), 16) if product.via == "wgmma" else (16, 8, 16)
            parts = math.prod(e for axis in k.grid if isinstance(e := int_value(axis.extent), int))
            size = [*k.cluster, 1, 1]
            return Configuration((rows * down, columns * along, depth), (rows, columns, depth), instr, stages, max(1, parts), (size[0], size[1]))
    return None


def _products(body: n.Block, around: tuple[n.For, ...]) -> Iterator[tuple[n.Mma, tuple[n.For, ...]]]:
    for s in body:
        if isinstance(s, n.Mma) and any(loop.kind not in TEAMS for loop in around):
            yield s, around
        elif isinstance(s, n.For):
            yield from _products(s.body, (*around, s))
        elif isinstance(s, n.Roles):
            for role in s.roles:
                yield from _products(role.body, around)
        elif isinstance(s, n.If):
            yield from _products(s.then, around)


def _trips(loop: n.For) -> int:
    lo, hi = int_value(loop.lo), int_value(loop.hi)
    return max(1, hi - lo) if lo is not None and hi is not None else 1


def _slots(product: n.Mma) -> list[int]:
    """Slots of the rings in shared memory that operands lie in: an index that moves, in front of the tile."""
    rings = [x.at for e in (product.a, product.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "shared" and len(x.at.index) > 2]
    return [int_value(at.buffer.shape[0]) or 1 for at in rings if not isinstance(at.index[0], n.Span) and int_value(at.index[0]) is None]


def rated(pools: Sequence[Pool], data: Data) -> dict[tuple[str, str, str], float]:
    """Seconds by program, device and sizes, of all programs of GEMM pools that have a configuration. Nothing without the package."""
    questions: list[dict[str, Any]] = []
    keys: list[tuple[str, str, str]] = []
    for pool in pools:
        for program in pool.programs:
            row, sizes = data.programs[program], json.loads(pool.sizes)
            if row.problem in LAYOUTS and pool.device in DEVICES and (found := configuration(parse_program(row.text, program))) is not None:
                questions.append({"device": DEVICES[pool.device], "layout": LAYOUTS[row.problem], "problem": [sizes["M"], sizes["N"], sizes["K"]],
                                  **{name: getattr(found, name) for name in ("cta", "warp", "instr", "stages", "parts", "cluster")}})
                keys.append((program, pool.device, pool.sizes))
    asked = subprocess.run([sys.executable, "-m", "benchmarks.forecast.heuristics"], input=json.dumps(questions), capture_output=True, text=True, check=False)
    answers = json.loads(asked.stdout) if asked.returncode == 0 and asked.stdout.strip() else []
    return {key: seconds for key, seconds in zip(keys, answers, strict=False) if seconds > 0}


def alone(pools: Sequence[Pool], rated: Mapping[tuple[str, str, str], float]) -> list[Pool]:
    """The pools with those programs alone that are rated, where enough are left."""
    out = []
    for pool in pools:
        kept = [i for i, p in enumerate(pool.programs) if (p, pool.device, pool.sizes) in rated]
        if sum(math.isfinite(pool.seconds[i]) for i in kept) >= LEAST:
            out.append(Pool(pool.family, pool.device, pool.sizes, pool.surface, tuple(pool.programs[i] for i in kept), tuple(pool.seconds[i] for i in kept)))
    return out


def lines(pools: Sequence[Pool], data: Data, scores: Mapping[str, Score]) -> list[str]:
    """A table of the pools that NVIDIA's heuristics can rate: they and the models by name; or why there is none."""
    seconds = rated(pools, data)
    kept = alone(pools, seconds)
    if not kept:
        return ["NVIDIA's heuristics are not installed (`pip install nvidia-matmul-heuristics`), or rate none of the pools."]

    rows: list[tuple[str, PoolFigures]] = [("NVIDIA's heuristics", figures(kept, by_seconds(seconds))),
                                           *((name, figures(kept, s)) for name, s in scores.items())]
    programs = len({p for pool in kept for p in pool.programs})
    return [f"{len(kept)} GEMM pools, of the {programs} programs whose matrix products state a configuration of CUTLASS.", "",
            "| model | candidates ordered rightly | best unmeasured | with 4 measured |", "| --- | ---: | ---: | ---: |",
            *(f"| {name} | {100 * f.ordered:.1f} % of {f.compared} | {100 * f.first[0]:.1f} % | {100 * f.four[0]:.1f} % |" for name, f in rows)]


def _answered(questions: Sequence[Mapping[str, Any]]) -> list[float]:
    import ctypes
    import importlib

    nv: Any = importlib.import_module("nvMatmulHeuristics")  # an extra of whoever makes the page
    interface = nv.NvMatmulHeuristicsInterface
    library = interface(nv.NvMatmulHeuristicsTarget.CUTLASS3, precision="HSH")
    devices: dict[str, Any] = {}
    out = []
    for q in questions:
        if q["device"] not in devices:
            devices[q["device"]] = library.createHardwareDescriptor()
            library.setHardwarePredefinedGpu(devices[q["device"]], nv.NvMatmulHeuristicsNvidiaGpu[q["device"]])
        made = interface.nvmmhKernelConfiguration()
        made.cta[:], made.warp[:], made.instr[:], made.cluster[:] = q["cta"], q["warp"], q["instr"], q["cluster"]
        made.splitK, made.loadStages, made.gridSwizzle, made.ctaOrder = q["parts"], min(q["stages"], 255), 1, 0
        problem = library.makeNvMatmulHeuristicsProblem(*q["problem"], nv.NvMatmulHeuristicsMatmulLayout[q["layout"]])
        out.append(float(library.nvMatmulHeuristicsEstimateRuntime(library.handle, b"HSH", ctypes.c_int(nv.NvMatmulHeuristicsTarget.CUTLASS3),
                                                                   ctypes.byref(problem), ctypes.byref(made), devices[q["device"]])))
    library.handle = ctypes.c_void_p()  # its own end is what does not end well
    return out


if __name__ == "__main__":
    try:
        print(json.dumps(_answered(json.load(sys.stdin))), flush=True)
    except ImportError:
        os._exit(3)
    os._exit(0)


__all__ = ["Configuration", "alone", "configuration", "lines", "rated"]
