"""What a program asks of an architecture, against what the architecture has. The verifier knows no target; this does.

Limits are those of `kir.target` (CUDA C++ programming guide, compute capabilities); tensor-core dtypes those of the PTX ISA (mma.sync,
wgmma.mma_async).
"""
from __future__ import annotations

import math
from collections.abc import Iterator

from kir.diagnostic import Diagnostic
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8, DType, dtype_of, shape_of
from kir.ir.visit import names_read, walk
from kir.target import Architecture

TENSOR_CORE_PAIRS: dict[DType, frozenset[DType]] = {
    F16: frozenset({F16, F32}), BF16: frozenset({F32}), F64: frozenset({F64}), I8: frozenset({I32}), U8: frozenset({I32}),
    F8E4M3: frozenset({F32, F16}), F8E5M2: frozenset({F32, F16})}
"""Operand dtype -> accumulator dtypes of the tensor cores."""


def legalize(program: n.Program, architecture: Architecture) -> tuple[Diagnostic, ...]:
    """What the architecture cannot do of a program: KIR-V030 (threads), KIR-V031 (shared memory), KIR-V032 (a tensor-core product),
    KIR-V033 (CTAs of a grid)."""
    return tuple(d for k in program.kernels for d in _kernel(k, architecture))


def _kernel(k: n.Kernel, a: Architecture) -> Iterator[Diagnostic]:
    threads = build.int_value(k.threads)
    if threads is not None and (threads > a.max_threads_per_cta or (threads > 1 and threads % a.warp_size)):
        yield Diagnostic("KIR-V030", f"{threads} threads are no whole warps of one CTA of {a.name}", k.origin, k.name,
                         needs=f"a multiple of {a.warp_size} up to {a.max_threads_per_cta}, or one thread")
    for axis, most in zip(k.grid, a.max_grid, strict=False):
        extent = build.int_value(axis.extent)
        if extent is not None and not 1 <= extent <= most:
            yield Diagnostic("KIR-V033", f"'{axis.name}' has {extent} CTAs; {a.name} takes 1 to {most} there", k.origin, k.name)
    shared = shared_bytes(k)
    if shared is not None and shared > a.shared_per_cta:
        yield Diagnostic("KIR-V031", f"the kernel stages {shared} bytes in shared memory; a CTA of {a.name} has {a.shared_per_cta}",
                         k.origin, k.name, needs="fewer stages, or smaller tiles")
    for s in walk(k):
        if isinstance(s, n.Mma) and (reason := tensor_core_refusal(s)):
            yield Diagnostic("KIR-V032", reason, s.origin, k.name)


def tensor_core_refusal(s: n.Mma) -> str:
    """Why tensor cores do not do a product ("" when they do, or when it does not ask for them)."""
    if s.via == "fma":
        return ""
    x, y, acc = dtype_of(s.a.type), dtype_of(s.b.type), s.acc.buffer.dtype
    if not (x == F32 and s.precision != "ieee") and not (x == y and acc in TENSOR_CORE_PAIRS.get(x, frozenset())):
        return f"there is no tensor-core product {x} x {y} -> {acc}"
    m, k, cols, depth = shape_of(s.a.type)[-2], shape_of(s.a.type)[-1], shape_of(s.b.type)[-1], max(8, 256 // x.bits)
    if isinstance(m, int) and isinstance(k, int) and isinstance(cols, int) and (m % 16 or cols % 8 or k % depth):
        return f"the tile {m} x {cols} x {k} is not made of whole 16 x 8 x {depth} products"
    return ""


def shared_bytes(k: n.Kernel) -> int | None:
    """Bytes of shared memory that a kernel declares, and that its pipelined loops hold in flight; None where an extent is symbolic."""
    total = 0
    for s in walk(k):
        if isinstance(s, n.Alloc) and s.buffer.space == "shared":
            extents = [build.int_value(d) for d in s.buffer.shape]
            if any(e is None for e in extents):
                return None
            total += math.prod(e for e in extents if e is not None) * s.buffer.dtype.bytes
        if isinstance(s, n.For) and s.kind == "pipelined":
            staged = loop_bytes(s)
            if staged is None:
                return None
            total += staged * int(dict(s.attrs).get("stages", 1))
    return total


def staged_loads(loop: n.For) -> list[n.Load]:
    """Loads of whole tiles from global memory that change with the iteration of a loop."""
    moving = {loop.var.name}
    out: list[n.Load] = []
    for s in loop.body:
        if isinstance(s, n.Let) and names_read(s.value) & moving:
            moving |= set(s.names)
        for x in walk(s):
            if isinstance(x, n.Load) and x.at.buffer.space == "global" and shape_of(x.type) and names_read(x.at) & moving and x not in out:
                out.append(x)
    return out


def loop_bytes(loop: n.For) -> int | None:
    """Bytes that one iteration's staged loads take; None where an extent is symbolic."""
    total = 0
    for x in staged_loads(loop):
        extents = shape_of(x.type)
        if not all(isinstance(d, int) for d in extents):
            return None
        total += math.prod(d for d in extents if isinstance(d, int)) * x.at.buffer.dtype.bytes
    return total
