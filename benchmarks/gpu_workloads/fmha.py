"""Attention, forward, beside torch's two backends, cuDNN and FlashAttention 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.launching import compiled, launcher
from benchmarks.gpu_workloads.measuring import Case
from kir.base.diagnostic import KirError
from kir.ir.nodes import Program
from kir.ir.parser import parse_program

MOST_WRONG = 5e-3
"""How far results in f16 of normal inputs may be from those of torch."""
HEADS = {64: ("fmha_sm90", "fmha_causal_sm90"), 128: ("fmha_d128_sm90", "fmha_d128_causal_sm90")}
"""The experts by head dimension: full, causal."""
SHAPES = ((8, 64, 2048, 128), (4, 16, 4096, 64), (8, 64, 512, 128), (1, 16, 8192, 128), (1, 16, 16384, 64), (4, 16, 1024, 64), (4, 16, 1000, 64))
"""B, H, L and the head dimension."""


def cases() -> Iterator[Case]:
    """Each shape full and causal."""
    with ThreadPoolExecutor() as pool:  # compilers run beside each other
        list(pool.map(_ahead, (x for pair in HEADS.values() for x in pair)))
    for b, h, length, dim in SHAPES:
        for causal in (False, True):
            yield _case(b, h, length, dim, causal)


def _program(expert: str) -> Program:
    file = ROOT / "skills" / "experts" / "fmha" / f"{expert}.kir"
    return parse_program(file.read_text(), str(file))


def _ahead(expert: str) -> None:
    with suppress(KirError, OSError):  # said again in its rows
        compiled(_program(expert))


def _case(b: int, h: int, length: int, dim: int, causal: bool) -> Case:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(b, h, length, dim, device="cuda", dtype=torch.float16, generator=generator) for _ in range(3))
    o = torch.empty_like(q)
    ways: dict[str, Callable[[], Any]] = {"cuDNN": _torch("CUDNN_ATTENTION", q, k, v, causal), "FlashAttention 2": _torch("FLASH_ATTENTION", q, k, v, causal)}
    want = ways["FlashAttention 2"]()
    expert, missing = HEADS[dim][causal], {}
    try:
        call = launcher(_program(expert), {"Q": q, "K": k, "V": v, "O": o}, {"B": b, "H": h, "L": length})
        ways[expert] = lambda: (call(), o)[1]
    except (KirError, OSError) as refused:
        missing[expert] = str(refused).splitlines()[0]

    def wrong(out: Any) -> str:
        far = float((out.float() - want.float()).abs().max())
        return "" if far < MOST_WRONG else f"{far:.3g} from torch's result"

    shape = f"B{b} H{h} L{length} d{dim} {'causal' if causal else 'full'}"
    return Case("fmha", shape, ways, (expert,), wrong, 4.0 * b * h * length * length * dim * (0.5 if causal else 1.0), missing)


def _torch(name: str, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call() -> Any:
        with sdpa_kernel(getattr(SDPBackend, name)):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call
