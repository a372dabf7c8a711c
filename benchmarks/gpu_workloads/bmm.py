"""Batched GEMM beside cuBLASLt's best of its first eight heuristics for a strided batch, and `torch.bmm`: of each surface the fastest of some points of its
pipeline.

Operands that L2 could hold take turns among copies, and calls are replayed from a graph. ``python -m benchmarks.gpu_workloads.bmm`` makes and compiles all
candidates beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_workloads.running.asking import EARLY, SIZED, ask_words, asked, worth
from benchmarks.gpu_workloads.running.cublaslt import algorithms
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import COLD, Made, at_sizes, early, key, of_rows, replayed, surface
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
    """C[g, M, N] = A[g, M, K] B[g, K, N] of bf16."""

    what: str
    batch: int
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        return f"{self.batch} of {self.m} x {self.n} x {self.k} bf16 ({self.what})"

    @property
    def sizes(self) -> dict[str, int]:
        return {"G": self.batch, "M": self.m, "N": self.n, "K": self.k}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"A": (self.batch, self.m, self.k), "B": (self.batch, self.k, self.n), "C": (self.batch, self.m, self.n)}


ROWS = (
    Row("squares", 16, 2048, 2048, 2048),
    Row("squares", 32, 1024, 1024, 1024),
    Row("squares", 64, 512, 512, 512),
    Row("squares", 4, 4096, 4096, 4096),
    Row("scores of 64 heads", 64, 2048, 2048, 128),
    Row("values of 64 heads", 64, 2048, 128, 2048),
    Row("latent heads of DeepSeek-V3, absorbed", 128, 64, 512, 128),
    Row("latent heads of DeepSeek-V3, absorbed", 128, 1024, 512, 128),
    Row("experts of 256 tokens", 32, 256, 4096, 2048),
    Row("odd rows", 24, 1000, 1000, 1000),
)
PLAIN = (
    "bmm_sm90 rows=128 columns=256 stages=4 raster=8 rounds=4",
    "bmm_sm90 rows=128 columns=256 stages=4 raster=16 rounds=2",
    "bmm_sm90 rows=256 columns=128 stages=4 raster=8 rounds=2",
    "bmm_sm90 rows=128 columns=128 stages=6 raster=8 rounds=2",
    "bmm_sm90 rows=128 columns=192 stages=5 raster=8 rounds=3",
    "bmm_sm90 rows=192 columns=128 stages=5 raster=8 rounds=2",
    "bmm_sm90 rows=64 columns=256 stages=5 raster=8 rounds=2",
    "bmm_sm90 rows=64 columns=128 stages=8 raster=8 rounds=1",
    "bmm_sm90_multicast rows=128 columns=256 stages=4 size=2 raster=8 rounds=2",
    "bmm_sm90_multicast rows=128 columns=256 stages=4 size=2 raster=4 rounds=2",
    "bmm_sm90_multicast rows=256 columns=128 stages=4 size=2 raster=8 rounds=2",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1",
    "bmm_sm90_pingpong rows=64 columns=256 stages=4 raster=16 rounds=2",
    "bmm_sm90_pingpong rows=64 columns=128 stages=8 raster=8 rounds=1",
    "bmm_triton rows=128 columns=256 depth=64 stages=3 threads=256 raster=8",
    "bmm_triton_two rows=128 columns=128 depth=64 stages=2 threads=128 raster=8",
    "bmm_triton_two rows=128 columns=128 depth=64 stages=2 threads=256 raster=8",
    "bmm_triton_two rows=64 columns=256 depth=64 stages=2 threads=128 raster=8",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=3 threads=256 raster=8 flatten=True",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=3 threads=256 raster=8 flatten=False",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=4 threads=256 raster=8 flatten=True",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=4 threads=256 raster=16 flatten=True",
    "bmm_triton_halves rows=128 columns=128 depth=64 stages=4 threads=256 raster=8 flatten=True",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=3 threads=256 raster=8",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=2 threads=256 raster=8",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=3 threads=128 raster=8",
    "bmm_triton_once rows=64 columns=128 depth=64 stages=4 threads=128 raster=8",
    "bmm_triton_once rows=128 columns=256 depth=64 stages=4 threads=256 raster=8",
    "bmm_triton rows=128 columns=128 depth=64 stages=4 threads=256 raster=8",
    "bmm_triton rows=64 columns=128 depth=64 stages=4 threads=128 raster=8",
    "bmm_tilelang rows=128 columns=256 depth=64 stages=3 threads=256 raster=8",
    "bmm_tilelang rows=128 columns=128 depth=64 stages=4 threads=256 raster=8",
    "bmm_tilelang_roles rows=128 columns=256 stages=4 rounds=2 raster=16",
    "bmm_tilelang_roles rows=256 columns=128 stages=4 rounds=2 raster=8",
    "bmm_tilelang_roles rows=128 columns=128 stages=6 rounds=1 raster=8",
    "bmm_tilelang_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1",
    "bmm_tilelang_pingpong rows=64 columns=256 stages=4 raster=16 rounds=2",
    "bmm_tilelang rows=128 columns=128 depth=64 stages=2 threads=128 raster=8",
)
AT_SIZES = tuple(f"{point}{SIZED}" for point in (
    "bmm_sm90 rows=128 columns=256 stages=4 raster=16 rounds=2",
    "bmm_sm90_multicast rows=128 columns=256 stages=4 size=2 raster=8 rounds=2",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1",
    "bmm_sm90_pingpong rows=64 columns=128 stages=8 raster=8 rounds=1",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=4 threads=256 raster=8 flatten=True",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=3 threads=256 raster=8 flatten=True",
    "bmm_triton rows=128 columns=256 depth=64 stages=3 threads=256 raster=8",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=3 threads=256 raster=8",
))
BEGUN = (
    "bmm_sm90 rows=128 columns=256 stages=4 raster=16 rounds=2",
    "bmm_sm90_multicast rows=128 columns=256 stages=4 size=2 raster=8 rounds=2",
    "bmm_sm90 rows=256 columns=128 stages=4 raster=8 rounds=2",
    "bmm_sm90 rows=128 columns=128 stages=6 raster=8 rounds=2",
    "bmm_sm90 rows=64 columns=128 stages=8 raster=8 rounds=1",
    "bmm_sm90_pingpong rows=64 columns=128 stages=8 raster=8 rounds=1",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1",
    "bmm_sm90_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1",
    "bmm_triton rows=128 columns=128 depth=64 stages=4 threads=256 raster=8",
    "bmm_triton rows=64 columns=128 depth=64 stages=4 threads=128 raster=8",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=3 threads=256 raster=8 flatten=True",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=3 threads=256 raster=8",
    "bmm_triton_once rows=128 columns=128 depth=64 stages=2 threads=256 raster=8",
    "bmm_tilelang rows=128 columns=256 depth=64 stages=3 threads=256 raster=8",
    "bmm_tilelang_roles rows=256 columns=128 stages=4 rounds=2 raster=8",
    "bmm_tilelang_roles rows=128 columns=128 stages=6 rounds=1 raster=8",
    "bmm_tilelang_pingpong rows=128 columns=128 stages=5 raster=16 rounds=1",
    "bmm_triton_halves rows=128 columns=256 depth=64 stages=4 threads=256 raster=8 flatten=True",
    "bmm_triton_halves rows=128 columns=128 depth=64 stages=4 threads=256 raster=8 flatten=True",
)
POINTS = (*PLAIN, *AT_SIZES, *(f"{point}{EARLY}" for point in (*BEGUN, *AT_SIZES)))
MOST_WRONG = 4e-3
"""The norm of an error over that of the result, which is rounded to 8 bits."""
Key = tuple[str, Row | None]
"""A point, and the row of what is compiled for its sizes: all of TileLang, whose launcher takes them."""


def cases() -> Iterator[Case]:
    """The rows."""
    made = prepared()
    for row in asked(ROWS):
        yield case(row, made)


def prepared() -> dict[Key, Made]:
    """All candidates, compiled."""
    return of_rows("bmm", asked(ROWS), POINTS, suits, candidate, executable)


def suits(point: str, row: Row) -> bool:
    """Whether a point is tried at a row: a tile is no larger than a product, whose rows descriptors describe."""
    if not worth("bmm", point, row.name):
        return False
    at = _settings(point)
    return at["rows"] <= row.m and at["columns"] <= row.n


def _settings(point: str) -> dict[str, int]:
    pairs = (x.split("=") for x in point.removesuffix(EARLY).removesuffix(SIZED).split()[1:])
    return {name: value == "True" if value in ("True", "False") else int(value) for name, value in pairs}


@early
def candidate(of: Key) -> Program:
    """The naive program after a point of a pipeline. Raises KirError where a step does not apply."""
    point, row = of
    space = find_space(point.split()[0])
    values = space.values(_settings(point), {"dtype": "bf16", "sms": 132, "shared": 232448})
    made = built(space, values, load_problem("bmm:bf16"), target("h200"))
    return at_sizes(made, row.sizes) if SIZED in point and row is not None else made


def executable(of: Key, program: Program) -> Executable:
    """What a candidate is compiled to. Raises KirError."""
    point, row = of
    if row is None or surface(point) == "cuda":
        return compiled(program, surface(point))
    return compiled_for(program, surface(point), row.sizes, row.shapes)


def case(row: Row, made: dict[Key, Made]) -> Case:
    """A row on the GPU at hand."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(*row.shapes[x], device="cuda", dtype=torch.bfloat16, generator=generator) for x in "AB")
    copies = max(1, round(COLD / (2.0 * (a.numel() + b.numel() + row.batch * row.m * row.n)) + 0.5))
    sets = [(a.clone(), b.clone(), torch.full(row.shapes["C"], float("nan"), device="cuda", dtype=torch.bfloat16)) for _ in range(copies)]
    torch.backends.cuda.matmul.allow_tf32 = False
    want = torch.bmm(a.float(), b.float())
    length = float(want.norm())

    def wrong(_: Any) -> str:
        far = max(float((c.float() - want).norm()) / length for *_, c in sets)
        for *_, c in sets:
            c.fill_(float("nan"))  # whoever comes next writes all of it
        return "" if far < MOST_WRONG else f"off by {far:.3g} of the result"

    def replay(launch: Callable[[Any, Any, Any], Callable[[], Any]]) -> Callable[[], Any]:
        return replayed([launch(*s) for s in sets])

    ways: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    try:
        count = len(algorithms(*sets[0], False))
        every = {f"{i}": replay(lambda x, y, c, i=i: algorithms(x, y, c, False)[i]) for i in range(count)}  # type: ignore[misc]  # a default binds it
        ways["cuBLASLt"] = every[fastest(every)]
    except (OSError, RuntimeError) as gone:
        missing["cuBLASLt"] = str(gone)
    ways["torch.bmm"] = replay(lambda x, y, c: lambda: torch.bmm(x, y, out=c))
    ours: dict[str, dict[str, Callable[[], Any]]] = {}
    for point in (p for p in POINTS if suits(p, row)):
        found = made[key(point, row)]
        try:
            if isinstance(found, str):
                raise OSError(found)
            begun(point)
            way = replay(lambda x, y, c, f=found: launcher(f[0], {"A": x, "B": y, "C": c}, row.sizes, executable=f[1]))  # type: ignore[misc]  # as above
            way()
            if said := wrong(None):
                raise OSError(said)
            ours.setdefault(surface(point), {})[point] = way
        except (KirError, CudaError, OSError, RuntimeError) as refused:
            missing[point] = str(refused).splitlines()[0]
    named = [fastest(of) for of in ours.values()]
    ways |= {name: of[name] for name, of in zip(named, ours.values(), strict=True)}
    return Case("bmm", row.name, ways, (*named, *(x for x in missing if x in POINTS)), wrong, 2.0 * row.batch * row.m * row.n * row.k, missing, copies)


if __name__ == "__main__":
    from benchmarks.gpu_workloads import bmm

    ask_words(sys.argv[1:])
    bmm.prepared()  # by its own name: what is kept is read by other modules
