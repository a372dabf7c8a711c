"""GEMM at shapes of today's models, beside cuBLASLt's best of its first eight heuristics and torch; which of KIR's pipelines runs is forecast.

Weights come as [N, K], as models store them, unless a row says `nn`. Operands of a row take turns among several copies, so that none is found in L2, and
calls are replayed from a graph, so that no launch waits for the host. ``python -m benchmarks.gpu_workloads.gemm`` makes and compiles the candidates
of all rows beforehand, on as many processors as there are, and keeps them in ``build/gemm``.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.running.asking import EARLY, FORECAST, KNOWN, ask_words, asked, forecast_titles, worth
from benchmarks.gpu_workloads.running.cublaslt import algorithms
from benchmarks.gpu_workloads.running.launching import compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, fastest
from benchmarks.gpu_workloads.running.replaying import begun_early, replayed, stamp
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.tune import ranked
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import Point, find_space
from kir.problem import Shape, load_problem

KEPT = ROOT / "build" / "gemm"
FEW, SOME, EVERY = 256, 1024, 1 << 20
SPACES: dict[str, dict[str, dict[str, tuple[int, int]]]] = {
    "nt": {"cuda": {"gemm_sm90_nt": (128, EVERY), "gemm_sm90_nt_multicast": (128, EVERY), "gemm_sm90_nt_pingpong": (128, EVERY),
                    "gemm_sm90_nt_odd": (64, EVERY), "gemm_sm90_nt_split": (64, SOME), "gemm_sm90_nt_skinny": (1, FEW), "gemm_sm90_nt_wide": (1, SOME),
                    "gemm_sm90_nt_wide_multicast": (32, SOME)}},
    "nn": {"cuda": {"gemm_sm90": (128, EVERY), "gemm_sm90_multicast": (128, EVERY), "gemm_sm90_pingpong": (128, EVERY)},
           "triton": {"gemm_triton": (128, EVERY), "gemm_triton_halves": (128, EVERY)},
           "tilelang": {"gemm_tilelang": (128, EVERY), "gemm_tilelang_persistent": (128, EVERY), "gemm_tilelang_roles": (128, EVERY)}},
}
"""The pipelines among which is chosen, by the order of the weights and the surface, each with the fewest and the most rows of A for which it is asked."""
PROBLEMS = {"nt": "gemm_nt", "nn": "gemm"}
MEASURED = 16
"""Candidates of a surface that are measured."""
EARLIER = 4
"""Of those, so many are tried beginning early too: before the kernel ahead of them in the stream has ended."""
TILES = 3
"""Tiles of a pipeline of which every point is forecast; of the others one."""
AT_ONCE = 6
"""Rows for which one process ranks a pipeline's points: it builds each once for all of them."""
COLD = 200e6
"""Bytes that a row's copies of its operands have together at least, four times the L2 of an H200."""
MOST_COPIES = 24
MOST_WRONG = {"bf16": 4e-3, "f16": 1e-3}
"""The norm of an error over that of the result: results are rounded to 8 and 11 bits."""


@dataclass(frozen=True)
class Row:
    """C[M, N] = A[M, K] B: one layer of a model."""

    model: str
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    order: str = "nt"

    @property
    def shape(self) -> Shape:
        return Shape(name="row", tags=(), sizes={"M": self.m, "N": self.n, "K": self.k})

    @property
    def name(self) -> str:
        return f"{self.m} x {self.n} x {self.k} {self.dtype}{'' if self.order == 'nt' else ' ' + self.order} ({self.model})"


ROWS = (
    Row("Llama-3.1-8B qkv", 1, 6144, 4096),
    Row("Llama-3.1-8B o", 1, 4096, 4096),
    Row("Llama-3.1-8B gate and up", 1, 28672, 4096),
    Row("Llama-3.1-8B down", 1, 4096, 14336),
    Row("Llama-3.1-8B head", 1, 128256, 4096),
    Row("Llama-2-7B qkv", 1, 12288, 4096, "f16"),
    Row("Llama-3.1-70B qkv", 4, 10240, 8192),
    Row("Llama-3.1-70B down", 8, 8192, 28672),
    Row("Llama-3.1-70B gate and up", 8, 57344, 8192),
    Row("Llama-3.1-8B qkv", 16, 6144, 4096),
    Row("Llama-3.1-8B down", 16, 4096, 14336),
    Row("Qwen3-32B down", 16, 5120, 25600),
    Row("DeepSeek-V3 q, low rank", 16, 1536, 7168),
    Row("Llama-3.1-8B o", 32, 4096, 4096),
    Row("Llama-3.1-8B gate and up", 32, 28672, 4096),
    Row("Qwen2.5-7B down", 32, 3584, 18944),
    Row("Llama-2-7B down", 32, 4096, 11008, "f16"),
    Row("Llama-3.1-8B down", 64, 4096, 14336),
    Row("Qwen3-32B qkv", 64, 10240, 5120),
    Row("Llama-3.1-70B o", 64, 8192, 8192),
    Row("DeepSeek-V3 kv, low rank", 64, 576, 7168),
    Row("DeepSeek-V3 q", 64, 24576, 1536),
    Row("Llama-3.1-8B o", 128, 4096, 4096),
    Row("Llama-3.1-8B down", 128, 4096, 14336),
    Row("Llama-3.1-8B qkv", 256, 6144, 4096),
    Row("Llama-3.1-8B down", 256, 4096, 14336),
    Row("DeepSeek-V3 expert down", 512, 7168, 2048),
    Row("Llama-3.1-8B o", 512, 4096, 4096),
    Row("Llama-3.1-8B qkv", 1024, 6144, 4096),
    Row("Llama-3.1-8B gate and up", 2048, 28672, 4096),
    Row("Llama-3.1-8B down", 4096, 4096, 14336),
    Row("Llama-3.1-70B down", 4096, 8192, 28672),
    Row("Qwen3-32B qkv", 4096, 10240, 5120),
    Row("DeepSeek-V3 o", 4096, 7168, 16384),
    Row("GPT-2 head", 1, 50257, 768, "f16"),
    Row("GPT-2 XL head", 1024, 50257, 1600, "f16"),
    Row("Whisper large-v2 head", 448, 51865, 1280, "f16"),
    Row("Vicuna-7B head", 2048, 32001, 4096),
    Row("square", 2048, 2048, 2048, order="nn"),
    Row("square", 4096, 4096, 4096, order="nn"),
)
Made = list[tuple[str, str, Program, Executable | str]]
"""Surface, pipeline with its parameters, program and what it was compiled to, or why it was not."""


def cases() -> Iterator[Case]:
    """The rows, each with the first candidate by the forecast (`forecast`) and the fastest of the first few (`measured`)."""
    made = prepared(KEPT)
    for row in asked(ROWS):
        yield case(row, made[row.name])


def prepared(folder: Path, of_any_code: bool = False) -> dict[str, Made]:
    """The candidates of all rows, from a folder where today's code (or any) has kept them; otherwise chosen by the forecast, or those asked for, and compiled,
    each once."""
    file = folder / "candidates.pickle"
    made: dict[str, Made]
    by, made = pickle.loads(file.read_bytes()) if file.exists() else ((), {})
    if not file.exists() or (by != stamp() and not of_any_code):
        folder.mkdir(parents=True, exist_ok=True)
        kinds = sorted({(r.order, r.dtype) for r in asked(ROWS)})
        parts = [(order, dtype, surface, space, i) for order, dtype in kinds for surface, spaces in SPACES[order].items() for space in spaces
                 for i in range(0, sum((r.order, r.dtype) == (order, dtype) for r in asked(ROWS)), AT_ONCE)]
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = [one for many in (pool.map(_ranked, *zip(*parts, strict=True)) if not KNOWN else pool.map(_known, asked(ROWS))) for one in many]
            rows = {r.name: [(s, *x) for s in SPACES[r.order] for x in earlier(s, chosen([f for f in found if f[:2] == (r.name, s)]))] for r in asked(ROWS)}
            wanted = {_key(row, surface, program): (row, surface, program) for row in asked(ROWS) for surface, _, program in rows[row.name]}
            executables = dict(zip(wanted, pool.map(_executable, *zip(*wanted.values(), strict=True)), strict=True))
        made = {row.name: [(s, name, p, executables[_key(row, s, p)]) for s, name, p in rows[row.name]] for row in asked(ROWS)}
        file.write_bytes(pickle.dumps((stamp(), made)))
    return made


Found = tuple[str, str, float, str, Program]
"""A candidate: the row's name, the surface, seconds by the forecast, the pipeline with its parameters, the program."""


def suits(space: str, row: Row, rows: tuple[int, int]) -> bool:
    """Whether a pipeline is asked for points at a row: for so many rows, and the one for rows off the grid where they are."""
    return rows[0] <= row.m <= rows[1] and (space != "gemm_sm90_nt_odd" or row.n % 8 > 0) and (rows[1] < EVERY or row.n % 8 == 0 or "odd" in space)


def _ranked(order: str, dtype: str, surface: str, space: str, begin: int) -> list[Found]:
    """The candidates of a pipeline at `AT_ONCE` rows of a kind, from the one of this number: one point of each tile is forecast, then all of the best few."""
    problem, of, device = load_problem(f"{PROBLEMS[order]}:{dtype}"), find_space(space), target("h200")
    known, found = dict[tuple[str, ...], Program](), list[Found]()
    for row in [r for r in asked(ROWS) if (r.order, r.dtype) == (order, dtype)][begin:begin + AT_ONCE]:
        if not suits(space, row, SPACES[order][surface][space]):
            continue
        given = given_of(of, problem, row.shape, device)
        points = [p for p in of.points() if not of.refusal(of.values(p, given))]
        one, _ = ranked(of, problem, row.shape, device, known=known, points={_tile(_named(space, p)): p for p in reversed(points)}.values())
        best = [_tile(_named(space, c.point)) for c in one[:TILES]]
        every, _ = ranked(of, problem, row.shape, device, known=known, points=[p for p in points if _tile(_named(space, p)) in best])
        found += [(row.name, surface, c.seconds, _named(space, c.point), c.program) for c in (*every, *one[TILES:])]
    return found


def _known(row: Row) -> list[Found]:
    """The candidates at a row that a command asks for by name, of each pipeline and surface, those first that were forecast when all were."""
    problem, device = load_problem(f"{PROBLEMS[row.order]}:{row.dtype}"), target("h200")
    out, first = list[Found](), forecast_titles("gemm", row.name)
    for surface, spaces in SPACES[row.order].items():
        for space in spaces:
            of = find_space(space)
            given = given_of(of, problem, row.shape, device)
            points = {_named(space, p): p for p in of.points() if not of.refusal(of.values(p, given))
                      and any(worth("gemm", f"{_named(space, p)}{begins}", row.name) for begins in ("", EARLY))}
            for i, (name, p) in enumerate([*points.items()][:MEASURED // 4]):
                out.append((row.name, surface, 0.0 if name in first else 1.0 + i, name, built(of, of.values(p, given), problem, device)))
    return out


def earlier(surface: str, those: list[tuple[str, Program]]) -> list[tuple[str, Program]]:
    """Candidates of a surface, and the first few of them such that they begin early. TileLang's launcher knows no such launches."""
    out = list(those)
    for name, program in those[:EARLIER if surface != "tilelang" else 0]:
        with suppress(KirError):  # several kernels, of which the first has nothing to wait for
            out.append((f"{name}{EARLY}", begun_early(program)))
    return out


def _named(space: str, point: Point) -> str:
    return f"{space} {' '.join(f'{k}={v}' for k, v in point.items())}"


def chosen(found: Sequence[Found]) -> list[tuple[str, Program]]:
    """The first of all candidates of a row, of each pipeline as many, each of a tile of its own: a pipeline or a tile that is misjudged does not fill all
    places. What is left of the places goes to the first of the others."""
    out: dict[tuple[str, ...], tuple[str, Program]] = {}
    most = max(2, -(-MEASURED // max(1, len({_tile(name)[0] for _, _, _, name, _ in found}))))
    inorder = [(name, program) for _, _, _, name, program in sorted(found, key=lambda f: f[2])]
    for name, program in inorder:
        tile = _tile(name)
        if tile not in out and sum(t[0] == tile[0] for t in out) < most:
            out[tile] = name, program
    first = list(out.values())[:MEASURED]
    names = {name for name, _ in first}
    return [*first, *[c for c in inorder if c[0] not in names][:MEASURED - len(first)]]


def _tile(name: str) -> tuple[str, ...]:
    """A candidate's pipeline, and what of its point says which part of the product a CTA computes."""
    space, *point = name.split()
    return space, *(x for x in point if x.split("=")[0] in ("rows", "columns", "parts"))


def _key(row: Row, surface: str, program: Program) -> tuple[str, ...]:
    """What tells what a program is compiled to at a row: of TileLang the sizes too."""
    return surface, content_hash(program), row.name if surface == "tilelang" else ""


def _executable(row: Row, surface: str, program: Program) -> Executable | str:
    shapes = {"A": (row.m, row.k), "B": (row.n, row.k) if row.order == "nt" else (row.k, row.n), "C": (row.m, row.n)}
    try:
        return compiled_for(program, surface, row.shape.sizes, shapes)
    except (KirError, OSError) as refused:
        return str(refused).splitlines()[0]


def case(row: Row, made: Made) -> Case:
    """A row on the GPU at hand."""
    import torch

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[row.dtype]
    transposed = row.order == "nt"
    generator = torch.Generator("cuda").manual_seed(0)
    a0 = torch.randn(row.m, row.k, device="cuda", dtype=dtype, generator=generator)
    b0 = torch.randn(*((row.n, row.k) if transposed else (row.k, row.n)), device="cuda", dtype=dtype, generator=generator)
    copies = min(MOST_COPIES, max(1, round(COLD / (2.0 * (row.m * row.k + row.n * row.k + row.m * row.n)) + 0.5)))
    sets = [(a0.clone(), b0.clone(), torch.full((row.m, row.n), float("nan"), device="cuda", dtype=dtype)) for _ in range(copies)]
    torch.backends.cuda.matmul.allow_tf32 = False
    want = a0.float() @ (b0.float().T if transposed else b0.float())
    length = float(want.norm())

    def wrong(_: Any) -> str:
        far = max(float((c.float() - want).norm()) / length for _, _, c in sets)
        for _, _, c in sets:
            c.fill_(float("nan"))  # whoever comes next writes all of it
        return "" if far < MOST_WRONG[row.dtype] else f"off by {far:.3g} of the result"

    def replay(launch: Callable[[Any, Any, Any], Callable[[], Any]]) -> Callable[[], Any]:
        return replayed([launch(*s) for s in sets])

    ways: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    sizes = {"M": row.m, "N": row.n, "K": row.k}
    try:
        count = len(algorithms(*sets[0], transposed))
        every = {f"{i}": replay(lambda a, b, c, i=i: algorithms(a, b, c, transposed)[i]) for i in range(count)}  # type: ignore[misc]  # a default binds it
        ways["cuBLASLt"] = every[fastest(every)]
    except (OSError, RuntimeError) as gone:
        missing["cuBLASLt"] = str(gone)
    ways["torch.mm"] = replay(lambda a, b, c: lambda: torch.mm(a, b.T if transposed else b, out=c))
    named = []
    for surface in SPACES[row.order]:
        ours: dict[str, Callable[[], Any]] = {}
        for name, program, executable in (x[1:] for x in made if x[0] == surface):
            try:
                if isinstance(executable, str):
                    raise OSError(executable)
                call = replay(lambda a, b, c, p=program, e=executable: launcher(p, {"A": a, "B": b, "C": c}, sizes, executable=e))  # type: ignore[misc]  # as above
                call()
                if said := wrong(None):
                    missing[name] = said
                else:
                    ours[name] = call
            except (KirError, CudaError, OSError, RuntimeError) as refused:
                missing[name] = str(refused).splitlines()[0]
        if ours:
            first, measured = next(iter(ours)), fastest(ours)
            forecast = [first] if not KNOWN or first in forecast_titles("gemm", row.name) else []
            pairs = [*((f"{surface}{FORECAST}{x}", x) for x in forecast), (f"{surface}, of {len(ours)} measured: {measured}", measured)]
            named += [word for word, _ in pairs]
            ways |= {word: ours[name] for word, name in pairs}
    return Case("gemm", row.name, ways, (*named, *(x for x in missing if x != "cuBLASLt")), wrong, 2.0 * row.m * row.n * row.k, missing, copies)


if __name__ == "__main__":
    ask_words(sys.argv[1:])
    prepared(KEPT)
