"""GEMM over groups of rows (mixtures of experts, tokens sorted by expert), beside a loop of cuBLAS over the groups and torch's own grouped product.

Groups are as uneven as a router makes them: shares of a softmax over normal numbers, so that some have many rows and others few or none. The candidates of a
row are points of the pipelines below over the naive program; the fastest of a row is shown. Calls are replayed from a graph, and operands that L2 could hold
take turns among copies. ``python -m benchmarks.gpu_workloads.gemm_grouped`` makes and compiles all candidates beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu_workloads.running.asking import EARLY, ask_words, asked, worth
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import COLD, Made, early, key, of_rows, replayed, surface
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.tune.rank import built
from kir.learning.tune.space import find_space
from kir.problem import load_problem


@dataclass(frozen=True)
class Row:
    """C[rows, N] = A[rows, K] B[group]^T: one layer of the experts of a model, for so many rows of all groups."""

    model: str
    groups: int
    rows: int
    n: int
    k: int

    @property
    def name(self) -> str:
        return f"{self.groups} groups, {self.rows} rows x {self.n} x {self.k} bf16 ({self.model})"

    @property
    def offsets(self) -> np.ndarray[Any, Any]:
        """Where groups begin, and the last ends."""
        random = np.random.default_rng(self.groups)
        shares = np.exp(random.normal(0.0, 1.0, self.groups))
        return np.concatenate([[0], np.cumsum(random.multinomial(self.rows, shares / shares.sum()))]).astype(np.int32)


ROWS = (
    Row("Mixtral-8x7B gate and up", 8, 128, 28672, 4096),
    Row("Mixtral-8x7B gate and up", 8, 8192, 28672, 4096),
    Row("Mixtral-8x7B down", 8, 8192, 4096, 14336),
    Row("DeepSeek-V3 gate and up, one of eight ranks", 32, 256, 4096, 7168),
    Row("DeepSeek-V3 gate and up, one of eight ranks", 32, 8192, 4096, 7168),
    Row("DeepSeek-V2-Lite gate and up", 64, 384, 2816, 2048),
    Row("DeepSeek-V2-Lite gate and up", 64, 24576, 2816, 2048),
    Row("Qwen3-30B-A3B gate and up", 128, 512, 1536, 2048),
    Row("Qwen3-30B-A3B gate and up", 128, 32768, 1536, 2048),
    Row("Qwen3-30B-A3B down", 128, 32768, 2048, 768),
    Row("DeepSeek-V3 down", 256, 1024, 7168, 2048),
    Row("DeepSeek-V3 down", 256, 32768, 7168, 2048),
)
POINTS = (
    "gemm_grouped_sm90 rows=128 columns=256 stages=4 panel=16 rounds=2",
    "gemm_grouped_sm90 rows=128 columns=256 stages=4 panel=8 rounds=2",
    "gemm_grouped_sm90 rows=128 columns=256 stages=4 panel=0 rounds=2",
    "gemm_grouped_sm90 rows=128 columns=128 stages=6 panel=0 rounds=1",
    "gemm_grouped_sm90 rows=128 columns=192 stages=5 panel=8 rounds=3",
    "gemm_grouped_sm90 rows=192 columns=128 stages=5 panel=0 rounds=2",
    "gemm_grouped_sm90 rows=64 columns=256 stages=5 panel=0 rounds=2",
    "gemm_grouped_sm90 rows=64 columns=128 stages=6 panel=0 rounds=1",
    "gemm_grouped_sm90_few rows=16 columns=128 stages=6",
    "gemm_grouped_sm90_few rows=32 columns=128 stages=5",
    "gemm_grouped_sm90_few rows=64 columns=128 stages=4",
    "gemm_grouped_sm90_few rows=32 columns=64 stages=8",
    "gemm_grouped_triton rows=128 columns=128 stages=3 threads=256 ctas=1",
    "gemm_grouped_triton rows=128 columns=128 stages=3 threads=256 ctas=2",
    "gemm_grouped_triton rows=128 columns=256 stages=3 threads=256 ctas=1",
    "gemm_grouped_triton rows=128 columns=256 stages=4 threads=256 ctas=1",
    "gemm_grouped_triton rows=64 columns=256 stages=4 threads=128 ctas=1",
    "gemm_grouped_triton rows=64 columns=128 stages=4 threads=128 ctas=1",
    "gemm_grouped_triton rows=64 columns=128 stages=4 threads=128 ctas=2",
    "gemm_grouped_triton rows=128 columns=256 stages=3 threads=256 ctas=1 flatten=True",
    "gemm_grouped_triton rows=128 columns=256 stages=4 threads=256 ctas=1 flatten=True",
    "gemm_grouped_triton rows=128 columns=128 stages=3 threads=256 ctas=1 flatten=True",
    "gemm_grouped_triton rows=128 columns=128 stages=3 threads=256 ctas=2 flatten=True",
    "gemm_grouped_triton rows=64 columns=256 stages=4 threads=128 ctas=1 flatten=True",
    "gemm_grouped_triton rows=64 columns=128 stages=4 threads=128 ctas=2 flatten=True",
    "gemm_grouped_triton_whole rows=128 columns=256 stages=3 threads=256 ctas=1",
    "gemm_grouped_triton_whole rows=128 columns=128 stages=2 threads=256 ctas=2",
    "gemm_grouped_triton_whole rows=64 columns=256 stages=4 threads=128 ctas=1",
    "gemm_grouped_triton_whole rows=64 columns=128 stages=4 threads=128 ctas=2",
    "gemm_grouped_tilelang rows=128 columns=128 stages=3 threads=256 ctas=2",
    "gemm_grouped_tilelang rows=128 columns=256 stages=3 threads=256 ctas=1",
    "gemm_grouped_tilelang rows=128 columns=256 stages=4 threads=256 ctas=1",
    "gemm_grouped_tilelang rows=64 columns=128 stages=4 threads=128 ctas=2",
    "gemm_grouped_tilelang_roles rows=128 columns=256 stages=4 panel=0 rounds=2",
    "gemm_grouped_tilelang_roles rows=128 columns=256 stages=4 panel=16 rounds=2",
    "gemm_grouped_tilelang_roles rows=128 columns=128 stages=6 panel=0 rounds=2",
    "gemm_grouped_tilelang_roles rows=64 columns=256 stages=5 panel=0 rounds=2",
    *(f"{point}{EARLY}" for point in (
        "gemm_grouped_sm90 rows=128 columns=256 stages=4 panel=16 rounds=2",
        "gemm_grouped_sm90 rows=128 columns=256 stages=4 panel=0 rounds=2",
        "gemm_grouped_sm90 rows=64 columns=256 stages=5 panel=0 rounds=2",
        "gemm_grouped_sm90_few rows=32 columns=128 stages=5",
        "gemm_grouped_sm90_few rows=32 columns=64 stages=8",
    )),
)
FEW, MANY = 96, 24
"""Rows of a group on average, up to which points for few rows are tried, and from which points for many are."""
SMS, SHARED = 132, 232448
"""Multiprocessors of the device that the points are for, and bytes of shared memory that a CTA may have."""
MOST_WRONG = 4e-3
"""The norm of an error over that of the result, which is rounded to 8 bits."""


def cases() -> Iterator[Case]:
    """The rows, each with the fastest of its candidates."""
    made = prepared()
    for row in asked(ROWS):
        yield case(row, made)


Key = tuple[str, Row | None]
"""A point, and the row of TileLang, whose launcher takes its sizes."""


def prepared() -> dict[Key, Made]:
    """All candidates, compiled."""
    return of_rows("gemm_grouped", asked(ROWS), POINTS, suits, candidate, executable)


def suits(point: str, row: Row) -> bool:
    """Whether a point is tried at a row."""
    if not worth("gemm_grouped", point, row.name):
        return False
    each = row.rows / row.groups
    if surface(point) != "cuda":
        return each >= MANY or "rows=64" in point
    return each <= FEW if point.startswith("gemm_grouped_sm90_few") else each >= MANY


@early
def candidate(of: Key) -> Program:
    """The naive program after a point of a pipeline. Raises KirError where a step does not apply."""
    name, *settings = of[0].split()
    space = find_space(name)
    chosen = {x: value == "True" if value in ("True", "False") else int(value) for x, value in (s.split("=") for s in settings)}
    chosen = {x: chosen.get(x, False) for x in space.parameters}  # what a point does not say is left out
    values = space.values(chosen, {"dtype": "bf16", "sms": SMS, "shared": SHARED})
    return built(space, values, load_problem("gemm_grouped:bf16"), target("h200"))


def executable(of: Key, program: Program) -> Executable:
    """What a candidate is compiled to. Raises KirError."""
    point, row = of
    if row is None:
        return compiled(program, surface(point))
    shapes = {"A": (row.rows, row.k), "B": (row.groups, row.n, row.k), "offsets": (row.groups + 1,), "C": (row.rows, row.n)}
    return compiled_for(program, surface(point), {"G": row.groups, "T": row.rows, "N": row.n, "K": row.k}, shapes)


def case(row: Row, made: dict[Key, Made]) -> Case:
    """A row on the GPU at hand."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    a = torch.randn(row.rows, row.k, device="cuda", dtype=torch.bfloat16, generator=generator)
    b = torch.randn(row.groups, row.n, row.k, device="cuda", dtype=torch.bfloat16, generator=generator)
    at = torch.from_numpy(row.offsets).cuda()
    parts = [(g, int(lo), int(hi)) for g, (lo, hi) in enumerate(zip(row.offsets[:-1], row.offsets[1:], strict=True)) if hi > lo]
    copies = max(1, round(COLD / (2.0 * (a.numel() + b.numel() + row.rows * row.n)) + 0.5))
    sets = [(a.clone(), b if copies == 1 else b.clone(), torch.full((row.rows, row.n), float("nan"), device="cuda", dtype=torch.bfloat16))
            for _ in range(copies)]
    torch.backends.cuda.matmul.allow_tf32 = False
    want = torch.cat([a[lo:hi].float() @ b[g].float().T for g, lo, hi in parts])
    length = float(want.norm())

    def wrong(outs: Any) -> str:
        far = max(float((c.float() - want).norm()) / length for c in ([c for *_, c in sets] if outs is None else [outs]))
        for *_, c in sets:
            c.fill_(float("nan"))  # whoever comes next writes all of it
        return "" if far < MOST_WRONG else f"off by {far:.3g} of the result"

    def loop(x: Any, y: Any, out: Any) -> None:
        for g, lo, hi in parts:
            torch.mm(x[lo:hi], y[g].T, out=out[lo:hi])

    ways: dict[str, Callable[[], Any]] = {"loop of torch.mm": replayed([lambda s=s: loop(*s) for s in sets])}  # type: ignore[misc]  # a default binds it
    missing: dict[str, str] = {}
    try:
        ends = at[1:].clone()
        ways["torch._grouped_mm"] = replayed([lambda s=s: torch._grouped_mm(s[0], s[1].transpose(-2, -1), offs=ends) for s in sets])  # type: ignore[misc]  # as above
    except (AttributeError, RuntimeError) as gone:
        missing["torch._grouped_mm"] = str(gone).splitlines()[0]
    ours: dict[str, dict[str, Callable[[], Any]]] = {}
    sizes = {"G": row.groups, "T": row.rows, "N": row.n, "K": row.k}
    for point in (p for p in POINTS if suits(p, row)):
        found = made[key(point, row)]
        try:
            if isinstance(found, str):
                raise OSError(found)
            begun(point)
            way = replayed([launcher(found[0], {"A": x, "B": y, "offsets": at, "C": c}, sizes, executable=found[1]) for x, y, c in sets])
            way()
            if said := wrong(None):
                raise OSError(said)
            ours.setdefault(surface(point), {})[point] = way
        except (KirError, CudaError, OSError, RuntimeError) as refused:
            missing[point] = str(refused).splitlines()[0]
    named = [fastest(of) for of in ours.values()]
    ways |= {name: of[name] for name, of in zip(named, ours.values(), strict=True)}
    return Case("gemm_grouped", row.name, ways, (*named, *(x for x in missing if x in POINTS)), wrong, 2.0 * row.rows * row.n * row.k, missing, copies)


if __name__ == "__main__":
    from benchmarks.gpu_workloads import gemm_grouped

    ask_words(sys.argv[1:])
    gemm_grouped.prepared()  # by its own name: what is kept is read by other modules
