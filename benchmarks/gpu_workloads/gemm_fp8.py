"""GEMM of fp8 (e4m3) with scales a tile, as DeepSeek-V3's layers, beside torch's scaled products: with the same scales, and with one for each row and column.

Scales of A are given as cuBLASLt takes them, one for 128 of a row, rows side by side. The product with scales a row is less work (nothing is scaled inside
the sum), and answers another question: it is held to its own result. The candidates of a row are points of the pipelines below over the naive program; the
fastest is shown. ``python -m benchmarks.gpu_workloads.gemm_fp8`` makes and compiles all candidates beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    """C[M, N] = A[M, K] B[N, K]^T: one layer of a model."""

    layer: str
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        return f"{self.m} x {self.n} x {self.k} e4m3 ({self.layer})"


ROWS = tuple(Row(f"DeepSeek-V3 {layer}", m, n, k) for m in (64, 128, 4096) for layer, n, k in (
    ("q and kv, low rank", 2112, 7168),
    ("q", 24576, 1536),
    ("o", 7168, 16384),
    ("expert gate and up", 4096, 7168),
    ("expert down", 7168, 2048),
))
POINTS = (
    "gemm_fp8_sm90_multicast rows=128 stages=6 size=2 raster=8 rounds=1",
    "gemm_fp8_sm90_multicast rows=128 stages=5 size=2 raster=4 rounds=1",
    "gemm_fp8_sm90 rows=128 stages=6 raster=16 rounds=1",
    "gemm_fp8_sm90 rows=128 stages=5 raster=8 rounds=1",
    "gemm_fp8_sm90 rows=64 stages=6 raster=16 rounds=1",
    "gemm_fp8_sm90 rows=192 stages=5 raster=8 rounds=2",
    "gemm_fp8_sm90_multicast rows=192 stages=5 size=2 raster=8 rounds=2",
    "gemm_fp8_sm90 rows=128 stages=4 raster=8 rounds=1",
    "gemm_fp8_sm90_pairs rows=128 stages=6 raster=8 rounds=2",
    "gemm_fp8_sm90_pairs rows=128 stages=6 raster=16 rounds=2",
    "gemm_fp8_sm90_pairs rows=128 stages=4 raster=8 rounds=2",
    "gemm_fp8_sm90_pairs rows=64 stages=6 raster=16 rounds=2",
    "gemm_fp8_sm90_multicast_pairs rows=128 stages=4 size=2 raster=8 rounds=2",
    "gemm_fp8_sm90_multicast_pairs rows=128 stages=6 size=2 raster=8 rounds=2",
    "gemm_fp8_sm90_split_pairs rows=64 stages=6 parts=2",
    "gemm_fp8_sm90_split_pairs rows=64 stages=6 parts=4",
    "gemm_fp8_sm90_split_pairs rows=128 stages=4 parts=2",
    "gemm_fp8_sm90_split rows=64 stages=6 parts=2",
    "gemm_fp8_sm90_split rows=64 stages=6 parts=4",
    "gemm_fp8_sm90_split rows=128 stages=4 parts=2",
    "gemm_fp8_sm90_split rows=128 stages=4 parts=4",
    "gemm_fp8_triton rows=128 stages=3 threads=256 raster=8",
    "gemm_fp8_triton rows=128 stages=4 threads=256 raster=8",
    "gemm_fp8_triton rows=64 stages=4 threads=128 raster=8",
    "gemm_fp8_triton_ahead rows=64 stages=3 threads=128 raster=8",
    "gemm_fp8_triton_ahead rows=64 stages=4 threads=128 raster=8",
    "gemm_fp8_triton_ahead rows=128 stages=3 threads=256 raster=8",
    "gemm_fp8_triton_persistent rows=64 stages=2 threads=128 raster=8 ctas=3 flatten=False",
    "gemm_fp8_triton_persistent rows=64 stages=3 threads=128 raster=8 ctas=2 flatten=True",
    "gemm_fp8_triton_persistent rows=128 stages=4 threads=256 raster=8 ctas=1 flatten=True",
    *(f"gemm_fp8_triton_split rows=64 stages=4 threads=128 parts={parts}" for parts in (2, 4, 8)),
    "gemm_fp8_tilelang rows=128 stages=3 threads=256 raster=8",
    "gemm_fp8_tilelang rows=64 stages=4 threads=128 raster=8",
    "gemm_fp8_tilelang_roles rows=128 stages=4 raster=8 rounds=1",
    "gemm_fp8_tilelang_roles rows=192 stages=5 raster=8 rounds=2",
    "gemm_fp8_tilelang_roles rows=64 stages=6 raster=16 rounds=1",
    "gemm_fp8_tilelang_pairs rows=128 stages=4 raster=8 rounds=2",
    "gemm_fp8_tilelang_pairs rows=64 stages=6 raster=16 rounds=2",
    *(f"gemm_fp8_tilelang_split rows=64 stages=4 threads=128 parts={parts}" for parts in (2, 4, 8)),
    *(f"{point}{EARLY}" for point in (
        "gemm_fp8_sm90 rows=128 stages=4 raster=8 rounds=1",
        "gemm_fp8_sm90 rows=192 stages=5 raster=8 rounds=2",
        "gemm_fp8_sm90 rows=64 stages=6 raster=16 rounds=1",
        "gemm_fp8_sm90_split rows=64 stages=6 parts=2",
        "gemm_fp8_sm90_split rows=128 stages=4 parts=2",
        "gemm_fp8_sm90_split_pairs rows=64 stages=6 parts=4",
        "gemm_fp8_sm90_pairs rows=128 stages=4 raster=8 rounds=2",
        "gemm_fp8_triton rows=64 stages=4 threads=128 raster=8",
        "gemm_fp8_tilelang rows=64 stages=4 threads=128 raster=8",
    )),
)
SMS, SHARED = 132, 232448
"""Multiprocessors of the device that the points are for, and bytes of shared memory that a CTA may have."""
MOST_COPIES = 24
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
    return of_rows("gemm_fp8", asked(ROWS), POINTS, suits, candidate, executable)


def suits(point: str, row: Row) -> bool:
    """Whether a point is tried at a row: tiles are no higher than A, clusters have two of them, and K is shared where they are few."""
    if not worth("gemm_fp8", point, row.name):
        return False
    if "_split" in point and -(-row.m // 64) * -(-row.n // 128) > SMS:
        return False
    return row.m >= (256 if "_multicast" in point else 128 if "rows=128" in point else 192 if "rows=192" in point else 1)


@early
def candidate(of: Key) -> Program:
    """The naive program after a point of a pipeline. Raises KirError where a step does not apply."""
    name, *settings = of[0].split()
    space = find_space(name)
    chosen = {x: value == "True" if value in ("True", "False") else int(value) for x, value in (s.split("=") for s in settings)}
    return built(space, space.values(chosen, {"sms": SMS, "shared": SHARED}), load_problem("gemm_fp8"), target("h200"))


def executable(of: Key, program: Program) -> Executable:
    """What a candidate is compiled to. Raises KirError."""
    point, row = of
    if row is None:
        return compiled(program, surface(point))
    blocks = -(-row.k // 128)
    shapes = {"A": (row.m, row.k), "B": (row.n, row.k), "SA": (blocks, row.m), "SB": (-(-row.n // 128), blocks), "C": (row.m, row.n)}
    return compiled_for(program, surface(point), {"M": row.m, "N": row.n, "K": row.k}, shapes)


def case(row: Row, made: dict[Key, Made]) -> Case:
    """A row on the GPU at hand."""
    import torch

    m, n, k = row.m, row.n, row.k
    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", generator=generator)

    a, b = (drawn(*shape).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
    sa, sb = drawn(-(-k // 128), m).exp(), drawn(-(-n // 128), -(-k // 128)).exp()
    row_a, row_b = drawn(m, 1).exp(), drawn(1, n).exp()
    torch.backends.cuda.matmul.allow_tf32 = False
    tiles = (a.float() * sa.repeat_interleave(128, 0)[:k].T) @ (b.float() * sb.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]).T
    wants = {"tiles": tiles, "rows": (a.float() * row_a) @ (b.float() * row_b.T).T}
    copies = min(MOST_COPIES, max(1, round(COLD / (m * k + n * k + 2.0 * m * n) + 0.5)))
    sets = [(a.clone(), b.clone(), torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)) for _ in range(copies)]

    def wrong(answer: Any) -> str:
        kind, outs = answer if isinstance(answer, tuple) else ("tiles", [c for *_, c in sets])
        far = max(float((c.float() - wants[kind]).norm() / wants[kind].norm()) for c in outs)
        for *_, c in sets:
            c.fill_(float("nan"))  # whoever comes next writes all of it
        return "" if far < MOST_WRONG else f"off by {far:.3g} of the result"

    def scaled(x: Any, y: Any, left: Any, right: Any) -> Any:
        return torch._scaled_mm(x, y.T, scale_a=left, scale_b=right, out_dtype=torch.bfloat16)

    ways: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    for name, kind, left, right in (("torch._scaled_mm", "tiles", sa.T, sb.T), ("torch._scaled_mm, scales a row", "rows", row_a, row_b)):
        try:
            graph = replayed([lambda s=s, kind=kind, left=left, right=right: (kind, [scaled(s[0], s[1], left, right)]) for s in sets])  # type: ignore[misc]  # a default binds it
            if said := wrong(graph()):
                raise RuntimeError(said)
            ways[name] = graph
        except (RuntimeError, ValueError, NotImplementedError) as gone:
            missing[name] = str(gone).splitlines()[0]
    ours: dict[str, dict[str, Callable[[], Any]]] = {}
    sizes = {"M": m, "N": n, "K": k}
    for point in (p for p in POINTS if suits(p, row)):
        found = made[key(point, row)]
        try:
            if isinstance(found, str):
                raise OSError(found)
            begun(point)
            way = replayed([launcher(found[0], {"A": x, "B": y, "SA": sa, "SB": sb, "C": c}, sizes, executable=found[1]) for x, y, c in sets])
            way()
            if said := wrong(None):
                raise OSError(said)
            ours.setdefault(surface(point), {})[point] = way
        except (KirError, CudaError, OSError, RuntimeError) as refused:
            missing[point] = str(refused).splitlines()[0]
    named = [fastest(of) for of in ours.values()]
    ways |= {name: of[name] for name, of in zip(named, ours.values(), strict=True)}
    return Case("gemm_fp8", row.name, ways, (*named, *(x for x in missing if x in POINTS)), wrong, 2.0 * m * n * k, missing, copies)


if __name__ == "__main__":
    from benchmarks.gpu_workloads import gemm_fp8

    ask_words(sys.argv[1:])
    gemm_fp8.prepared()  # by its own name: what is kept is read by other modules
