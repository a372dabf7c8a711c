"""Attention, forward, beside torch's two backends, cuDNN and FlashAttention 2: experts and what stored pipelines make of the naive programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.launching import compiled, launcher
from benchmarks.gpu_workloads.measuring import Case
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import Value, find_space
from kir.problem import load_problem

MOST_WRONG = 5e-3
"""How far results in f16 of normal inputs may be from those of torch."""
WORKERS = 14
"""Compilers that run beside one another."""
SHAPES = ((8, 64, 2048, 128), (4, 16, 4096, 64), (8, 64, 512, 128), (1, 16, 8192, 128), (1, 16, 16384, 64), (4, 16, 1024, 64), (4, 16, 1000, 64))
"""B, H, L and the head dimension."""
GROUPED = ((16, 8, 2048), (16, 8, 8192))
"""Heads of K and V over the whole batch, heads of Q for each, and L; heads of 64."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a workload's problem: an expert's file, or a stored pipeline at a point of its space."""

    name: str
    surface: str
    expert: bool = False
    point: tuple[tuple[str, Value], ...] = ()

    def program(self) -> Program:
        """The program. Raises KirError where a pipeline does not apply."""
        return _made(self)


@cache
def _made(kernel: Kernel) -> Program:
    if kernel.expert:
        file = ROOT / "skills" / "experts" / "fmha" / f"{kernel.name}.kir"
        return parse_program(file.read_text(), str(file))
    space, device = find_space(kernel.name), target("h200")
    problem = load_problem(space.home)
    point = dict(kernel.point) or {name: values[0] for name, values in space.parameters.items()}
    return built(space, space.values(point, given_of(space, problem, problem.shapes[0], device)), problem, device)


def kernels(dim: int, causal: bool, grouped: bool = False) -> tuple[Kernel, ...]:
    """Those for a head dimension, full or causal."""
    home = f"fmha{'_gqa' if grouped else ''}{'_d128' if dim == 128 else ''}{'_causal' if causal else ''}"
    experts = () if grouped else (Kernel(f"{home}_sm90", "cuda", expert=True),)
    return (*experts, *(Kernel(f"{home}_{end}", surface) for end, surface in (("sm90", "cuda"), ("triton", "triton"), ("tilelang", "tilelang"))))


def cases() -> Iterator[Case]:
    """Each shape full and causal, then the grouped heads."""
    every = [k for dim in (64, 128) for causal in (False, True) for k in kernels(dim, causal)] + list(kernels(64, False, True))
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(_ahead, sorted(every, key=lambda k: k.surface != "tilelang")))  # whose compiler is the slowest
    for b, h, length, dim in SHAPES:
        for causal in (False, True):
            yield _plain(b, h, length, dim, causal)
    for h, g, length in GROUPED:
        yield _grouped(h, g, length)


def _ahead(kernel: Kernel) -> None:
    with suppress(KirError, OSError):  # said again in its rows
        compiled(kernel.program(), kernel.surface)


def _plain(b: int, h: int, length: int, dim: int, causal: bool) -> Case:
    q, k, v = _normal((b, h, length, dim), (b, h, length, dim))
    shape = f"B{b} H{h} L{length} d{dim} {'causal' if causal else 'full'}"
    work = 4.0 * b * h * length * length * dim * (0.5 if causal else 1.0)
    return _case(shape, (q, k, v), {"B": b, "H": h, "L": length}, kernels(dim, causal), causal, False, work)


def _grouped(h: int, g: int, length: int) -> Case:
    q, k, v = _normal((h, g, length, 64), (h, length, 64))
    return _case(
        f"H{h} x {g} L{length} d64 full", (q, k, v), {"H": h, "G": g, "L": length}, kernels(64, False, True), False, True, 4.0 * h * g * length * length * 64
    )


def _normal(queries: tuple[int, ...], keys: tuple[int, ...]) -> tuple[Any, Any, Any]:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.float16, generator=generator) for shape in (queries, keys, keys))
    return q, k, v


def _case(shape: str, tensors: tuple[Any, Any, Any], sizes: dict[str, int], ours: tuple[Kernel, ...], causal: bool, grouped: bool, work: float) -> Case:
    import torch

    q, k, v = tensors
    o = torch.empty_like(q)
    ways: dict[str, Callable[[], Any]] = {
        "cuDNN": _torch("CUDNN_ATTENTION", q, k, v, causal, grouped),
        "FlashAttention 2": _torch("FLASH_ATTENTION", q, k, v, causal, grouped),
    }
    want, missing = ways["FlashAttention 2"](), {}
    for kernel in ours:
        name = f"{kernel.name}{' (expert)' if kernel.expert else ''}"
        try:
            call = launcher(kernel.program(), {"Q": q, "K": k, "V": v, "O": o}, sizes, compiled(kernel.program(), kernel.surface))
            ways[name] = _writing(call, o)
        except (KirError, OSError) as refused:
            missing[name] = str(refused).splitlines()[0]

    def wrong(out: Any) -> str:
        far = float((out.float().reshape(want.shape) - want.float()).abs().max())
        o.zero_()
        return "" if far < MOST_WRONG else f"{far:.3g} from torch's result"

    return Case("fmha", shape, ways, tuple(f"{x.name}{' (expert)' if x.expert else ''}" for x in ours), wrong, work, missing)


def _writing(call: Callable[[], None], out: Any) -> Callable[[], Any]:
    def written() -> Any:
        call()
        return out

    return written


def _torch(name: str, q: Any, k: Any, v: Any, causal: bool, grouped: bool) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    if grouped:  # one sequence of all heads
        q, k, v = (x.reshape(1, -1, *x.shape[-2:]) for x in (q, k, v))

    def call() -> Any:
        with sdpa_kernel(getattr(SDPBackend, name)):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return call
