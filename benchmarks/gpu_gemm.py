"""GEMM on the GPU: the stored subjects of each surface, tuned and gated at the shapes, dtypes and layouts asked for, beside cuBLAS.

A part of `python -m benchmarks.gpu`: `gemm` is all of it, most wanted rows first; `gemm:cuda`, `gemm:triton`, `gemm:tilelang`, `gemm:sizes`, `gemm:odd`,
`gemm:clusters`, `gemm:turns`, `gemm:layouts` are pieces. Measurements are kept in `gpu-gemm-tune.jsonl` beside the table: a run that was cut short goes on from
them. What is found is kept under `tuned/` there, in the form of `skills/tuned/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kir.base.diagnostic import KirError
from kir.base.store import Log
from kir.gate import Verdict
from kir.gate.gpu.judge import conclusion
from kir.learning.tune import Candidate, Measured, Space, Tuned, ranked, save, search, stored
from kir.learning.tune.device import DeviceMeasurer, told
from kir.learning.tune.rank import Prefixes
from kir.learning.tune.space import Point, find_space
from kir.problem import Problem, Shape, load_problem

if TYPE_CHECKING:
    from kir.gate.gpu import Gpu

Row = tuple[object, ...]
HEAD = ("surface", "subject", "problem", "shape", "parameters", "measured", "95 %", "TFLOP/s", "cuBLAS", "times as fast", "candidates", "verdict", "time")


@dataclass(frozen=True)
class Asked:
    """One row: a subject at a shape of a problem, with a budget of measurements; `like` takes the point found for an earlier row's key."""

    piece: str
    subject: str
    problem: str
    shape: str
    budget: int
    like: str = ""

    @property
    def key(self) -> str:
        return f"{self.subject} {self.problem} {self.shape}"


CUDA, CLUSTER, MULTICAST, TURNS = "gemm_sm90", "gemm_sm90_cluster", "gemm_sm90_multicast", "gemm_sm90_pingpong"
PADDED, TRITON, TILELANG = "gemm_sm90_padded", "gemm_triton", "gemm_tilelang"
BF16 = "gemm:bf16"
FOUND = {subject: f"{subject} {BF16} square" for subject in (CUDA, MULTICAST, TRITON, TILELANG)}
ASKED = (
    Asked("cuda", CUDA, BF16, "square", 4),
    Asked("cuda", CUDA, "gemm:f16", "square", 1, FOUND[CUDA]),
    Asked("triton", TRITON, BF16, "square", 4),
    Asked("tilelang", TILELANG, BF16, "square", 4),
    Asked("cuda", CUDA, BF16, "cube2k", 4),
    Asked("cuda", CUDA, BF16, "narrow8k", 2),
    Asked("cuda", CUDA, BF16, "deep14k", 1, FOUND[CUDA]),
    Asked("cuda", CUDA, BF16, "cube8k", 1, FOUND[CUDA]),
    Asked("sizes", MULTICAST, BF16, "uneven4k", 4),
    Asked("odd", PADDED, BF16, "odd4k", 2),
    Asked("clusters", MULTICAST, BF16, "square", 4),
    Asked("turns", TURNS, BF16, "square", 4),
    Asked("clusters", CLUSTER, BF16, "square", 1),
    Asked("clusters", MULTICAST, BF16, "cube8k", 1, FOUND[MULTICAST]),
    Asked("layouts", "gemm_sm90_nt", "gemm_nt:bf16", "square", 1, FOUND[CUDA]),
    Asked("layouts", "gemm_sm90_tn", "gemm_tn:bf16", "square", 1, FOUND[CUDA]),
    Asked("layouts", "gemm_sm90_tt", "gemm_tt:bf16", "square", 1, FOUND[CUDA]),
    Asked("triton", TRITON, BF16, "cube2k", 2),
    Asked("triton", TRITON, BF16, "deep14k", 1, FOUND[TRITON]),
    Asked("triton", TRITON, BF16, "narrow8k", 1, FOUND[TRITON]),
    Asked("triton", TRITON, "gemm:f16", "square", 1, FOUND[TRITON]),
    Asked("tilelang", TILELANG, BF16, "cube2k", 1, FOUND[TILELANG]),
    Asked("tilelang", TILELANG, BF16, "narrow8k", 1, FOUND[TILELANG]),
)


def rows(gpu: Gpu, out: Path, only: str, record: Callable[[Verdict], None]) -> Iterator[Row]:
    """Tune and gate each row that is asked for; a row that fails harms no other."""
    found: dict[str, Point] = {}
    log = Log(out / "gpu-gemm-tune.jsonl")
    known: dict[str, Prefixes] = {}
    for asked in ASKED:
        if only and only != asked.piece:
            continue
        begun = time.perf_counter()
        problem = load_problem(asked.problem)
        shape = problem.shape(asked.shape)
        try:
            space = find_space(asked.subject)
            prefixes = known.setdefault(f"{space.name} {problem.dtype}", {})
            made = _one(gpu, out, log, asked, space, problem, shape, found, prefixes, record)
            yield space.surface, space.name, problem.name, _sizes(shape), *made, f"{time.perf_counter() - begun:.0f} s"
        except KirError as refused:
            said = refused.diagnostics[0].message
            yield asked.piece, asked.subject, problem.name, _sizes(shape), *([""] * 7), said, f"{time.perf_counter() - begun:.0f} s"


def _one(gpu: Gpu, out: Path, log: Log, asked: Asked, space: Space, problem: Problem, shape: Shape, found: dict[str, Point],
         known: Prefixes, record: Callable[[Verdict], None]) -> Row:
    if asked.like and asked.like not in found:
        found |= _kept(asked.like, _device(gpu), out)
    if asked.like in found:
        point = found[asked.like]
        space = replace(space, parameters={k: (point[k],) if k in point else v for k, v in space.parameters.items()})
    candidates, pruned = ranked(space, problem, shape, gpu.target, known=known)
    if not candidates:
        return (*([""] * 7), f"no candidate: {next(iter(pruned.reasons), '')}")
    measurer = DeviceMeasurer(gpu, problem, shape, space.surface)
    about = {"subject": space.name, "problem": problem.name, "sizes": dict(shape.sizes), "surface": space.surface}
    taken: list[tuple[Candidate, Measured]] = [(candidates[0], Measured(candidates[0].seconds))]
    if asked.budget > 1:
        outcome = search(candidates, measurer, asked.budget, log, about, batch=4,
                         told=lambda c, m: print(f"   {dict(c.point)}: {m.seconds * 1e6:.1f} us {m.reason}", flush=True))
        taken = sorted((x for x in outcome.taken if x[1].accepted), key=lambda x: x[1].seconds) or outcome.taken
    best = taken[0][0]
    verdict = measurer.gated(best)
    record(verdict)
    here = told(verdict, shape)
    panel = next(iter(conclusion(verdict).values()), None)
    words = " ".join(f"{k}={v}" for k, v in best.point.items())
    if not here.accepted:
        return words, "", "", "", "", "", len(taken), verdict.reason
    found[asked.key] = best.point
    beside = (f"{panel['median'] * 1e6:.1f} us", f"{panel['times_faster']:.3f}") if panel else ("missing", "")
    against = {"against": str(panel["reference"]), "times_faster": float(f"{panel['times_faster']:.4g}")} if panel else {}
    row = Tuned(problem.name, dict(shape.sizes), measurer.device, "measured", dict(best.point), float(f"{here.seconds:.6g}"), best.key, len(taken))
    save(space.name, [replace(row, **against)], out / "tuned")  # type: ignore[arg-type]  # fields of Tuned
    flops = 2.0 * shape.sizes["M"] * shape.sizes["N"] * shape.sizes["K"]
    return (words, f"{here.seconds * 1e6:.1f} us", f"{here.low * 1e6:.1f} .. {here.high * 1e6:.1f}", f"{flops / here.seconds / 1e12:.0f}", *beside,
            len(taken), "accepted")


def _device(gpu: Gpu) -> str:
    """The device's name, as results are kept under."""
    return gpu.target.device.name


def _kept(key: str, device: str, out: Path) -> dict[str, Point]:
    """The point that an earlier run found for a row, where another piece measured it."""
    subject, problem, shape = key.split()
    sizes = dict(load_problem(problem).shape(shape).sizes)
    kept = [t for t in stored(subject, device, [out / "tuned"]) if t.problem == problem and dict(t.sizes) == sizes]
    return {key: kept[0].parameters} if kept else {}


def _sizes(shape: Shape) -> str:
    return f"{shape.name} {' x '.join(map(str, shape.sizes.values()))}"
