"""Attention, forward, beside torch's two backends, cuDNN and FlashAttention 2, and FlashInfer's kernel for Hopper (`fa3`), where it is installed: experts, and
what stored pipelines make of the naive programs: the fastest point of a surface's pipelines is its row.

``python -m benchmarks.gpu_workloads.fmha`` makes and compiles all candidates beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.running.asking import KNOWN, SIZED, ask_words, asked, worth
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import Made, at_sizes, graphed, kept, replayed
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import Value, find_space, space_names
from kir.problem import load_problem

MOST_WRONG = 5e-3
"""How far results in f16 of normal inputs may be from those of torch."""
SURFACES = {"sm90": "cuda", "sm80": "cuda", "triton": "triton", "tilelang": "tilelang"}
"""How the names of pipelines end, and the surface: each end has a row of its own. What is for sm_80 is compiled for the device at hand too."""
WHOLE = 128
"""Keys of the largest tile: pipelines `_even` are for lengths that it divides."""
WAYS = {
    False: ("", "_stay", "_roles", "_even", "_even_stay", "_even_wide", "_even_short", "_even_short_stay"),
    True: ("", "_stay", "_begun", "_roles", "_even_masked", "_wide", "_wide_masked", "_wide_peeled", "_short", "_short_stay"),
}
"""What stands between a problem and a surface in the names of pipelines, with a mask over the keys and without."""


@dataclass(frozen=True)
class Row:
    """`b` sequences of `h` heads of length `length`, or, where `group` heads of Q share one of K and V, `h` such groups and `b` of 1."""

    b: int
    h: int
    length: int
    dim: int
    causal: bool = False
    group: int = 0

    @property
    def name(self) -> str:
        heads = f"H{self.h} x {self.group}" if self.group else f"B{self.b} H{self.h}"
        return f"{heads} L{self.length} d{self.dim} {'causal' if self.causal else 'full'}"

    @property
    def home(self) -> str:
        """The problem."""
        return f"fmha{'_gqa' if self.group else ''}{'_d128' if self.dim == 128 else ''}{'_causal' if self.causal else ''}"

    @property
    def sizes(self) -> dict[str, int]:
        """Those of the problem."""
        return {"H": self.h, "G": self.group, "L": self.length} if self.group else {"B": self.b, "H": self.h, "L": self.length}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of its tensors."""
        q = (self.h, self.group, self.length, self.dim) if self.group else (self.b, self.h, self.length, self.dim)
        kv = (self.h, self.length, self.dim) if self.group else q
        return {"Q": q, "K": kv, "V": kv, "O": q}


PLAIN = ((8, 64, 2048, 128), (4, 16, 4096, 64), (8, 64, 512, 128), (1, 16, 8192, 128), (1, 16, 16384, 64), (1, 16, 16384, 128), (8, 64, 512, 64),
         (4, 16, 1024, 64), (4, 16, 1000, 64), (8, 64, 1024, 128), (8, 64, 4096, 128))
ROWS = (*(Row(*shape, causal) for shape in PLAIN for causal in (False, True)),
        *(Row(1, h, length, 64, group=8) for h, length in ((16, 2048), (16, 8192))))
"""The problem's own shape first; half and twice as long ones too."""


@dataclass(frozen=True)
class Kernel:
    """An expert's file, or a stored pipeline at a point of its space; of TileLang at the sizes of a row, which its launcher takes, and where it is `sized` with
    those as numbers."""

    name: str
    expert: bool = False
    row: Row | None = None
    point: tuple[tuple[str, Value], ...] = ()
    sized: bool = False

    @property
    def end(self) -> str:
        """What the name ends in: kernels that end alike are of one row."""
        return self.name.rpartition("_")[2]

    @property
    def surface(self) -> str:
        return SURFACES[self.end]

    @property
    def title(self) -> str:
        said = " ".join([self.name, *(f"{name}={value}" for name, value in self.point)])
        return f"{self.name} (expert)" if self.expert else f"{said}{SIZED}" if self.sized else said


def kernels(row: Row) -> tuple[Kernel, ...]:
    """Those for a row: of each surface every point of its pipelines; where only some are asked for, with the row's sizes as numbers, too."""
    experts = () if row.group else (Kernel(f"{row.home}_sm90", expert=True),)
    ways = [way for way in WAYS[row.causal] if "even" not in way or row.length % WHOLE == 0]
    spaces = [(f"{row.home}{way}_{end}", row if end == "tilelang" else None) for end in SURFACES for way in ways if f"{row.home}{way}_{end}" in space_names()]
    every = (*experts, *(Kernel(name, row=of, point=point) for name, of in spaces for point in _points(name)))
    known = (replace(k, row=row, sized=True) for k in every if KNOWN and not k.expert and k.row is None and k.end != "sm80")
    return tuple(k for k in (*every, *known) if worth("fmha", k.title, row.name))


@cache
def _points(name: str) -> tuple[tuple[tuple[str, Value], ...], ...]:
    """The points that a space takes. Of TileLang, whose compiler is the slowest, those with a warpgroup for 64 queries, the most keys and one stage or two."""
    space = find_space(name)
    given = given_of(space, problem := load_problem(space.home), problem.shapes[0], target("h200"))
    points = [p for p in space.points() if not space.refusal(space.values(p, given))]
    if space.surface == "tilelang":
        points = [p for p in points if p.get("threads", 2 * int(p["rows"])) == 2 * int(p["rows"]) and p["keys"] == WHOLE and int(p["stages"]) < 3]
    return tuple(tuple(p.items()) for p in points)


def cases() -> Iterator[Case]:
    """The rows."""
    made = prepared()
    for row in asked(ROWS):
        yield _case(row, made)


def prepared() -> dict[Kernel, Made]:
    """All kernels, compiled."""
    every = dict.fromkeys(k for row in asked(ROWS) for k in kernels(row))
    return kept("fmha", sorted(every, key=lambda k: k.surface == "tilelang"), program, executable)  # TileLang's compiler is the slowest


def program(kernel: Kernel) -> Program:
    """A kernel's program. Raises KirError where a pipeline does not apply."""
    if kernel.expert:
        file = ROOT / "skills" / "experts" / "fmha" / f"{kernel.name}.kir"
        return parse_program(file.read_text(), str(file))
    space, device = find_space(kernel.name), target("h200")
    problem = load_problem(space.home)
    made = built(space, space.values(dict(kernel.point), given_of(space, problem, problem.shapes[0], device)), problem, device)
    return at_sizes(made, kernel.row.sizes) if kernel.sized and kernel.row is not None else made


def executable(kernel: Kernel, of: Program) -> Executable:
    """What it is compiled to."""
    return compiled(of, kernel.surface) if kernel.row is None else compiled_for(of, kernel.surface, kernel.row.sizes, kernel.row.shapes)


def _case(row: Row, made: dict[Kernel, Made]) -> Case:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(*row.shapes[x], device="cuda", dtype=torch.float16, generator=generator) for x in "QKV")
    o = torch.empty_like(q)
    ways: dict[str, Callable[[], Any]] = {
        "cuDNN": _torch("CUDNN_ATTENTION", q, k, v, row),
        "FlashAttention 2": _torch("FLASH_ATTENTION", q, k, v, row),
    }
    want, missing = ways["FlashAttention 2"](), dict[str, str]()
    try:
        ways["FlashInfer fa3"] = _flashinfer(q, k, v, row)
    except Exception as absent:  # it is not installed, or does not compile
        missing["FlashInfer fa3"] = f"{type(absent).__name__}: {str(absent).splitlines()[0] if str(absent) else ''}"

    def wrong(out: Any) -> str:
        far = float((out.float().reshape(want.shape) - want.float()).abs().max())
        o.zero_()
        return "" if far < MOST_WRONG else f"{far:.3g} from torch's result"

    pools: dict[str, dict[str, Callable[[], Any]]] = {}
    for kernel in kernels(row):
        try:
            found = made[kernel]
            if isinstance(found, str):
                raise OSError(found)
            call = writing(launcher(found[0], {"Q": q, "K": k, "V": v, "O": o}, row.sizes, found[1]), o)
            begun(kernel.title)
            if said := wrong(call()):
                raise OSError(said)
            pools.setdefault(kernel.title if kernel.expert else kernel.end, {})[kernel.title] = call
        except (KirError, CudaError, OSError) as refused:
            missing[kernel.title] = str(refused).splitlines()[0]
    named = [fastest(pool) for pool in pools.values()]
    ways = graphed(ways) | {name: replayed([pool[name]]) for name, pool in zip(named, pools.values(), strict=True)}
    ours = (*named, *(name for name in missing if name != "FlashInfer fa3"))

    work = 4.0 * row.b * row.h * max(row.group, 1) * row.length * row.length * row.dim * (0.5 if row.causal else 1.0)
    return Case("fmha", row.name, ways, ours, wrong, work, missing)


def writing(call: Callable[[], None], out: Any) -> Callable[[], Any]:
    """A call that gives what it writes."""
    def written() -> Any:
        call()
        return out

    return written


def _torch(name: str, q: Any, k: Any, v: Any, row: Row) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    if row.group:  # one sequence of all heads
        q, k, v = (x.reshape(1, -1, *x.shape[-2:]) for x in (q, k, v))

    def call() -> Any:
        with sdpa_kernel(getattr(SDPBackend, name)):
            return scaled_dot_product_attention(q, k, v, is_causal=row.causal, enable_gqa=bool(row.group))

    return call


def _flashinfer(q: Any, k: Any, v: Any, row: Row) -> Callable[[], Any]:
    """Its own order of axes, [token, head, d]; the copies are made here, apart from what is timed."""
    import flashinfer
    import torch

    q, k, v = (x.reshape(row.b, -1, *x.shape[-2:]) for x in (q, k, v))
    tokens = [x.transpose(1, 2).reshape(-1, x.shape[1], row.dim).contiguous() for x in (q, k, v)]
    ends = torch.arange(0, row.b + 1, device="cuda", dtype=torch.int32) * row.length
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), "NHD", backend="fa3")
    wrapper.plan(ends, ends, q.shape[1], k.shape[1], row.dim, causal=row.causal, q_data_type=torch.float16)

    def call() -> Any:
        return wrapper.run(*tokens).reshape(row.b, row.length, -1, row.dim).transpose(1, 2)

    return call


if __name__ == "__main__":
    from benchmarks.gpu_workloads import fmha

    ask_words(sys.argv[1:])
    fmha.prepared()  # by its own name: what is kept is read by other modules
