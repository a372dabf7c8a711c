"""Attention over sequences of uneven lengths, beside FlashInfer's kernel for Hopper (`fa3`) and FlashAttention 2 as torch has it: each surface's fastest of
some points of its pipeline.

Ours takes sequences padded to the longest, and references take them one after the other, as each wants them; what that costs is not timed.
``python -m benchmarks.gpu_workloads.fmha_varlen`` makes and compiles all candidates beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu_workloads.fmha import MOST_WRONG, writing
from benchmarks.gpu_workloads.running.asking import ask_words, asked, worth
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import Made, graphed, key, of_rows, replayed, surface
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem


@dataclass(frozen=True)
class Row:
    """`b` sequences of up to `longest` tokens and `h` heads of 128."""

    b: int
    h: int
    longest: int
    causal: bool = False

    @property
    def name(self) -> str:
        return f"B{self.b} H{self.h} up to L{self.longest}, {int(self.lengths.sum())} tokens, d128 {'causal' if self.causal else 'full'}"

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """Of the sequences: one is the longest, the others are drawn evenly down to one in sixteen of it."""
        drawn = np.random.default_rng(self.b).integers(self.longest // 16, self.longest, self.b)
        return np.concatenate([[self.longest], drawn[1:]]).astype(np.int32)

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.b, "H": self.h, "L": self.longest}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {**dict.fromkeys("QKVO", (self.b, self.h, self.longest, 128)), "lengths": (self.b,)}


ROWS = tuple(Row(*shape, causal) for shape in ((8, 64, 2048), (16, 16, 4096), (4, 32, 8192), (64, 32, 512), (2, 16, 16384), (32, 16, 1000))
             for causal in (False, True))
POINTS = (
    "fmha_varlen_sm90 rows=128 keys=128 stages=2",
    "fmha_varlen_sm90 rows=128 keys=160 stages=2",
    "fmha_varlen_sm90 rows=128 keys=64 stages=2",
    *(f"fmha_varlen{causal}_stay_{end} rows=128 keys=128 stages=2 snake={snake} spare={spare} fast={fast}" for end in ("sm90", "tilelang")
      for causal in ("", "_causal") for snake in (True, False) for spare in (0, 1, 2) for fast in (0, 1)),
    "fmha_varlen_triton rows=64 keys=128 threads=128 stages=1",
    "fmha_varlen_triton rows=64 keys=64 threads=128 stages=1",
    "fmha_varlen_triton rows=64 keys=64 threads=128 stages=2",
    "fmha_varlen_triton rows=128 keys=64 threads=128 stages=2",
    "fmha_varlen_triton rows=128 keys=128 threads=256 stages=2",
    "fmha_varlen_triton rows=128 keys=128 threads=256 stages=1",
    "fmha_varlen_peeled_triton rows=64 keys=128 threads=128 stages=1",
    "fmha_varlen_peeled_triton rows=64 keys=64 threads=128 stages=2",
    "fmha_varlen_peeled_triton rows=128 keys=64 threads=128 stages=2",
    "fmha_varlen_short_triton rows=64 keys=128 threads=128 stages=1 registers=168",
    "fmha_varlen_short_triton rows=64 keys=64 threads=128 stages=1 registers=255",
    "fmha_varlen_short_triton rows=64 keys=64 threads=128 stages=1 registers=128",
    "fmha_varlen_tilelang rows=192 keys=128 threads=384 stages=2",
    *(f"fmha_varlen_roles_tilelang rows=128 keys={keys} stages=2" for keys in (128, 160)),
    *(f"fmha_varlen_stay_tilelang rows=128 keys=64 stages=2 snake={snake} spare={spare} fast=0" for snake, spare in ((True, 2), (False, 1))),
    "fmha_varlen_tilelang rows=128 keys=128 threads=256 stages=2",
    *(f"fmha_varlen_causal_{end} rows=128 keys=128 stages=2 group={group}" for end in ("sm90", "roles_tilelang") for group in (16, 1, 64)),
    *(f"fmha_varlen_one_{end} rows=64 keys={keys} stages=2" for end in ("sm90", "tilelang") for keys in (64, 80)),
    *(f"fmha_varlen_causal_one_{end} rows=64 keys=64 stages=2 group={group}" for end in ("sm90", "tilelang") for group in (1, 16, 64)),
    *(f"fmha_varlen_causal_{point} last={last}" for last in (True, False) for point in (
        "triton rows=64 keys=64 threads=128 stages=1",
        "triton rows=64 keys=64 threads=128 stages=2",
        "triton rows=128 keys=64 threads=128 stages=2",
        "triton rows=128 keys=128 threads=256 stages=2",
        "peeled_triton rows=64 keys=128 threads=128 stages=1",
        "peeled_triton rows=64 keys=64 threads=128 stages=2",
        "peeled_triton rows=128 keys=128 threads=256 stages=2",
        "short_triton rows=64 keys=128 threads=128 stages=1 registers=168",
        "short_triton rows=64 keys=64 threads=128 stages=1 registers=255",
        "short_triton rows=64 keys=64 threads=128 stages=1 registers=128",
        "tilelang rows=128 keys=128 threads=256 stages=2",
    )),
)
Key = tuple[str, Row | None]
"""A point, and the row of TileLang, whose launcher takes its sizes."""


def cases() -> Iterator[Case]:
    """The rows."""
    made = prepared()
    for row in asked(ROWS):
        yield case(row, made)


def prepared() -> dict[Key, Made]:
    """All candidates, compiled."""
    return of_rows("fmha_varlen", asked(ROWS), POINTS, suits, candidate, executable)


def suits(point: str, row: Row) -> bool:
    """Whether a point computes what a row asks."""
    if not worth("fmha_varlen", point, row.name):
        return False
    return ("_causal_" in point) == row.causal


def candidate(of: Key) -> Program:
    """The naive program after a point of a pipeline. Raises KirError where a step does not apply."""
    name, *settings = of[0].split()
    space, device = find_space(name), target("h200")
    problem = load_problem(space.home)
    chosen = {x: value == "True" if value in ("True", "False") else int(value) for x, value in (s.split("=") for s in settings)}
    return built(space, space.values(chosen, given_of(space, problem, problem.shapes[0], device)), problem, device)


def executable(of: Key, program: Program) -> Executable:
    """What a candidate is compiled to. Raises KirError."""
    point, row = of
    return compiled(program, surface(point)) if row is None else compiled_for(program, surface(point), row.sizes, row.shapes)


def case(row: Row, made: dict[Key, Made]) -> Case:
    """A row on the GPU at hand."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(*row.shapes[x], device="cuda", dtype=torch.float16, generator=generator) for x in "QKV")
    o, lengths = torch.empty_like(q), torch.from_numpy(row.lengths).cuda()
    there = torch.arange(row.longest, device="cuda")[None] < lengths[:, None]
    q, k, v = (x * there[:, None, :, None] for x in (q, k, v))
    packed = [x.transpose(1, 2)[there].contiguous() for x in (q, k, v)]
    ends = torch.zeros(row.b + 1, device="cuda", dtype=torch.int32)
    ends[1:] = lengths.cumsum(0)
    ways: dict[str, Callable[[], Any]] = {"FlashAttention 2": lambda: torch.ops.aten._flash_attention_forward(
        *packed, ends, ends, row.longest, row.longest, 0.0, row.causal, False)[0]}
    want, missing = ways["FlashAttention 2"](), dict[str, str]()
    try:
        import flashinfer

        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), "NHD", backend="fa3")
        wrapper.plan(ends, ends, row.h, row.h, 128, causal=row.causal, q_data_type=torch.float16)
        ways["FlashInfer fa3"] = lambda: wrapper.run(*packed)
        ways["FlashInfer fa3"]()
    except Exception as absent:  # it is not installed, or does not compile
        ways.pop("FlashInfer fa3", None)
        missing["FlashInfer fa3"] = f"{type(absent).__name__}: {str(absent).splitlines()[0] if str(absent) else ''}"

    def wrong(out: Any) -> str:
        rows = out if out.dim() == 3 else out.transpose(1, 2)[there]
        far = float((rows.float() - want.float()).abs().max())
        past = 0.0 if out.dim() == 3 else float(out.transpose(1, 2)[~there].float().abs().sum())
        o.fill_(float("nan"))
        return "" if far < MOST_WRONG and past == 0 else f"{far:.3g} from torch's result, {past:.3g} past the ends"

    def ours(found: Made) -> Callable[[], Any]:
        if isinstance(found, str):
            raise OSError(found)
        return writing(launcher(found[0], {"Q": q, "K": k, "V": v, "lengths": lengths, "O": o}, row.sizes, found[1]), o)

    pools: dict[str, dict[str, Callable[[], Any]]] = {}
    for point in (p for p in POINTS if suits(p, row)):
        try:
            call = ours(made[key(point, row)])
            begun(point)
            if said := wrong(call()):
                raise OSError(said)
            pools.setdefault(surface(point), {})[point] = call
        except (KirError, CudaError, OSError) as refused:
            missing[point] = str(refused).splitlines()[0]
    named = [fastest(pool) for pool in pools.values()]
    ways = graphed(ways) | {name: replayed([pool[name]]) for name, pool in zip(named, pools.values(), strict=True)}
    work = 4.0 * row.h * 128 * float((row.lengths.astype(np.float64) ** 2).sum()) * (0.5 if row.causal else 1.0)
    return Case("fmha_varlen", row.name, ways, (*named, *(x for x in missing if x in POINTS)), wrong, work, missing)


if __name__ == "__main__":
    from benchmarks.gpu_workloads import fmha_varlen

    ask_words(sys.argv[1:])
    fmha_varlen.prepared()  # by its own name: what is kept is read by other modules
