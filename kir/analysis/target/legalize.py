"""What a program asks of an architecture, against what the architecture has. The verifier knows no target; this does.

Limits are those of `kir.hardware.target` (CUDA C++ programming guide, compute capabilities); tensor-core dtypes those of the PTX ISA (mma.sync,
wgmma.mma_async).
"""
from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from kir.analysis.target import tensor_memory
from kir.analysis.target.metas import at_defaults
from kir.analysis.target.warpgroup import operand_refusal, product_refusal
from kir.analysis.tiles.mapped_views import view_of
from kir.base.diagnostic import Diagnostic
from kir.hardware.target import ARCHITECTURES, Architecture, Family
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8, DType, dtype_of, shape_of
from kir.ir.visit import blocks_of, names_read, walk

TENSOR_CORE_PAIRS: dict[DType, frozenset[DType]] = {
    F16: frozenset({F16, F32}), BF16: frozenset({F32}), F64: frozenset({F64}), I8: frozenset({I32}), U8: frozenset({I32}),
    F8E4M3: frozenset({F32, F16}), F8E5M2: frozenset({F32, F16})}
"""Operand dtype -> accumulator dtypes of the tensor cores."""


def legalize(program: n.Program, architecture: Architecture) -> tuple[Diagnostic, ...]:
    """What the architecture cannot do of a program: KIR-V030 (threads), KIR-V031 (shared memory), KIR-V032 (a tensor-core product),
    KIR-V033 (CTAs of a grid), KIR-V034 (a copy), KIR-V035 (a layout), KIR-V036 (registers of roles), KIR-V037 (a cluster)."""
    known = at_defaults(program)
    gathering = {t.name for t in known.tensor_maps if dict(t.attrs).get("mode") == "im2col"}
    return tuple(d for k in known.kernels for d in _kernel(k, architecture, gathering))


def _kernel(k: n.Kernel, a: Architecture, gathering: Collection[str]) -> Iterator[Diagnostic]:
    threads = build.int_value(k.threads)
    if threads is not None and (threads > a.max_threads_per_cta or (threads > 1 and threads % a.warp_size)):
        yield Diagnostic("KIR-V030", f"{threads} threads are no whole warps of one CTA of {a.name}", k.origin, k.name,
                         needs=f"a multiple of {a.warp_size} up to {a.max_threads_per_cta}, or one thread")
    for axis, most in zip(k.grid, a.max_grid, strict=False):
        extent = build.int_value(axis.extent)
        if extent is not None and not 1 <= extent <= most:
            yield Diagnostic("KIR-V033", f"'{axis.name}' has {extent} CTAs; {a.name} takes 1 to {most} there", k.origin, k.name)
    if reason := cluster_refusal(k, a):
        left = [x for x in (build.int_value(axis.extent) for axis, each in zip(k.grid, k.cluster, strict=False) if each > 1) if x is not None]
        witness = (f"CTA {left[0] - 1} has no cluster",) if "no whole clusters" in reason and left else ()
        yield Diagnostic("KIR-V037", reason, k.origin, k.name, witness=witness, needs="a cluster that the target has and the grid is made of")
    shared = shared_bytes(k)
    if shared is not None and shared > a.shared_per_cta:
        yield Diagnostic("KIR-V031", f"the kernel stages {shared} bytes in shared memory; a CTA of {a.name} has {a.shared_per_cta}",
                         k.origin, k.name, needs="fewer stages, or smaller tiles")
    for s, level in _statements(k.body, "cta"):
        if isinstance(s, n.Mma) and (reason := tensor_core_refusal(s)):
            yield Diagnostic("KIR-V032", reason, s.origin, k.name)
        if isinstance(s, n.Copy) and (reason := copy_refusal(s, level) or _lacking(s, a) or _gather_refusal(k, s, gathering)):
            yield Diagnostic("KIR-V034", reason, s.origin, k.name)
        if isinstance(s, n.Roles) and (reason := registers_refusal(k, s, a)):
            wait = ("a warpgroup that asks for registers which nobody gives back waits for ever",) if a.has("setmaxnreg") else ()
            needs = "multiples of 8 from 24 to 256, in all no more than the launch gives" if wait else _with("setmaxnreg")
            yield Diagnostic("KIR-V036", reason, s.origin, k.name, witness=wait, needs=needs)
        if isinstance(s, n.Alloc) and (reason := layout_refusal(s.buffer)):
            yield Diagnostic("KIR-V035", reason, s.origin, k.name)
        if isinstance(s, (n.Let, n.Eval)) and (missing := _missing(s, a)):
            yield Diagnostic("KIR-V036" if missing == "setmaxnreg" else "KIR-V032" if missing in ("wgmma", "stmatrix", "tcgen05") else "KIR-V034",
                             f"{a.name} has no {missing}", s.origin, k.name, needs=_with(missing))
    for s, team in _teams(k.body, threads):
        if isinstance(s, n.Mma) and s.via == "wgmma" and (reason := _wgmma_refusal(k, s, a, team)):
            yield Diagnostic("KIR-V032", reason, s.origin, k.name, needs="" if a.has("wgmma") else _with("wgmma"))


    yield from _tensor_memory(k, a, threads)


def _tensor_memory(k: n.Kernel, a: Architecture, threads: int | None) -> Iterator[Diagnostic]:
    """What is wrong with products into tensor memory: of a kind that there is not, or more columns than a CTA has."""
    for s in walk(k):
        if isinstance(s, n.Mma) and s.via == tensor_memory.VIA:
            reason = f"{a.name} has no tcgen05" if not a.has("tcgen05") else tensor_memory.product_refusal(s, threads)
            if reason := reason or operand_refusal(k, s.a, True) or operand_refusal(k, s.b, False) or tensor_memory.accumulator_refusal(k, s.acc.buffer):
                yield Diagnostic("KIR-V032", reason, s.origin, k.name, needs="" if a.has("tcgen05") else _with("tcgen05"))
                return
    if (columns := tensor_memory.allocated(k)) > tensor_memory.COLUMNS:
        yield Diagnostic("KIR-V032", f"the kernel holds {columns} columns in tensor memory; a CTA of {a.name} has {tensor_memory.COLUMNS}", k.origin, k.name)


def unlaunchable(program: n.Program, architecture: Architecture) -> bool:
    """Whether it is known before any compiler is asked that the architecture cannot run a program: registers of roles that do not add up, clusters
    that the grid is not made of (which no compiler refuses, and no launch survives), an instruction that it lacks."""
    missing = any(isinstance(s, (n.Let, n.Eval)) and _missing(s, architecture) for k in program.kernels for s, _ in _statements(k.body, "cta"))
    return missing or any(d.id in ("KIR-V036", "KIR-V037") for d in legalize(program, architecture))


def lacking(program: n.Program, architecture: Architecture) -> tuple[Diagnostic, ...]:
    """Why a compiler for the architecture refuses a program, as far as `legalize` knows: each reason once, where it holds first."""
    first: dict[str, Diagnostic] = {}
    for d in legalize(program, architecture):
        first.setdefault(d.message, d)
    return tuple(first.values())


def _with(family: Family) -> str:
    """The targets that have a family of instructions."""
    return " or ".join(name for name, a in ARCHITECTURES.items() if a.has(family))


FAMILIES: Mapping[str, Family] = MappingProxyType({
    "set_registers": "setmaxnreg", "stmatrix": "stmatrix", "fence_async": "fence_proxy_async", "mbar_expect": "mbarrier_transaction",
    "mbar_arrive_expect": "mbarrier_transaction", "cluster_arrive": "cluster", "cluster_wait": "cluster",
    "bulk_commit": "cp_async_bulk", "bulk_wait": "cp_async_bulk",
    **dict.fromkeys(("wgmma", "wgmma_fence", "wgmma_commit", "wgmma_wait"), "wgmma"),
    **dict.fromkeys(("tcgen05_alloc", "tcgen05_dealloc", "tcgen05_relinquish", "tcgen05_mma", "tcgen05_commit", "tcgen05_ld", "tcgen05_wait_ld",
                     "tcgen05_fence_before", "tcgen05_fence_after"), "tcgen05")})
"""Families of instructions by the rows of the table that need them."""


def _missing(s: n.Let | n.Eval, a: Architecture) -> Family | None:
    """The family of an instruction that a statement is and that the target lacks."""
    call = s.value if isinstance(s, n.Let) else s.call
    family = FAMILIES.get(call.fn) if isinstance(call, n.Call) and call.of is None else None
    return family if family is not None and not a.has(family) else None


def cluster_refusal(k: n.Kernel, a: Architecture) -> str:
    """Why a kernel's CTAs cannot form its clusters ("" when they can): the target has none or smaller ones, or a grid of known extents is
    not made of whole clusters. Copies to several CTAs need a mask that names CTAs of the cluster, and a target that multicasts."""
    size = math.prod(k.cluster)
    if size > 1 and (not a.has("cluster") or size > a.max_cluster):
        return f"clusters of {size} CTAs, and {a.name} has {f'up to {a.max_cluster}' if a.has('cluster') else 'none'}"
    for axis, each in zip(k.grid, k.cluster, strict=False):
        extent = build.int_value(axis.extent)
        if extent is not None and extent % each:
            return f"'{axis.name}' has {extent} CTAs, which are no whole clusters of {each}"
    for s in walk(k):
        mask = dict(s.attrs).get("multicast") if isinstance(s, n.Copy) else None
        if mask is not None and not (isinstance(mask, int) and 0 < mask < 1 << size):
            return f"a copy goes to the CTAs of mask {mask}, and the cluster has {size}"
        if mask is not None and not a.has("tma_multicast"):
            return f"{a.name} copies to one CTA at a time"
    return ""


def registers_refusal(k: n.Kernel, s: n.Roles, a: Architecture) -> str:
    """Why roles cannot have their registers ("" when they can, or have none of their own): they are given to whole warpgroups, 24 to 256 a
    thread in steps of 8, and what some take others must have given back (PTX ISA, setmaxnreg): a CTA has what it was launched with, which may be less than
    an SM has. Roles of one warpgroup ask for as many each, and hold their fragments in them."""
    threads = build.int_value(k.threads)
    if threads is None or not any(r.registers for r in s.roles):
        return ""
    if not a.has("setmaxnreg"):
        return f"{a.name} has no setmaxnreg: every thread has the registers of the launch"
    launched = launched_registers(k, a.max_registers_per_thread, a.registers_per_sm)
    if launched is None:
        return "how many registers a thread has at launch depends on an option that is no number"
    total, pool = launched * (threads - 32 * sum(r.hi - r.lo for r in s.roles)), launched * threads
    for r in s.roles:
        if r.registers and (r.registers % 8 or not 24 <= r.registers <= 256):
            return f"'{r.name}' has {r.registers} registers a thread, which is no multiple of 8 from 24 to 256"
        if not whole_warpgroups(s, r):
            return f"'{r.name}' is warps {r.lo} up to {r.hi}, and registers belong to whole warpgroups"
        if r.registers and (least := _held(r)) > r.registers:
            return f"'{r.name}' has {r.registers} registers a thread, and its fragments alone take {least}"
        total += 32 * (r.hi - r.lo) * (r.registers or launched)
    return f"the roles take {total} registers, and a CTA of {threads} threads has {pool}" if total > pool else ""


def launched_registers(k: n.Kernel, most: int = Architecture.max_registers_per_thread, of_sm: int = Architecture.registers_per_sm) -> int | None:
    """Registers that each thread of a kernel has at launch: those of the SM over the CTAs that it is to hold (`min_ctas`), and no more than `maxnreg`. None
    where its threads or one of the two are no number."""
    threads, ctas, least = build.int_value(k.threads), *(dict(k.attrs).get(name, otherwise) for name, otherwise in (
        ("min_ctas", 1), ("maxnreg", most)))
    if threads is None or not isinstance(ctas, int) or not isinstance(least, int) or min(threads, ctas) < 1:
        return None
    return min(most, least, of_sm // (threads * ctas)) // 8 * 8


def _held(r: n.Role) -> int:
    """Registers that the largest fragment of a role takes of each thread of the team that holds it."""
    out = 0
    for s, threads in _teams(r.body, 32 * (r.hi - r.lo)):
        if isinstance(s, n.Alloc) and s.buffer.space == "fragment" and threads and None not in (extents := [build.int_value(d) for d in s.buffer.shape]):
            out = max(out, math.prod(e or 0 for e in extents) * s.buffer.dtype.bits // (32 * threads))
    return out


def whole_warpgroups(s: n.Roles, r: n.Role) -> bool:
    """Whether all warps of each warpgroup that a role is in ask for as many registers as it does, as they must in the one instruction that they execute
    together; so they do for a role that asks for none."""
    asked = {warp: each.registers for each in s.roles for warp in range(each.lo, each.hi)}
    return not r.registers or all(asked.get(warp) == r.registers for warp in range(r.lo // 4 * 4, -(-r.hi // 4) * 4))


def _teams(block: n.Block, threads: int | None) -> Iterator[tuple[n.Stmt, int | None]]:
    """All statements, each with the number of threads of the team that executes it."""
    for s in block:
        yield s, threads
        if isinstance(s, n.Roles):
            for r in s.roles:
                yield from _teams(r.body, 32 * (r.hi - r.lo))
            continue
        inner = {"warpgroup": 128, "warp": 32, "thread": 1}.get(s.kind, threads) if isinstance(s, n.For) else threads
        for body in blocks_of(s):
            yield from _teams(body, inner)


def _wgmma_refusal(k: n.Kernel, s: n.Mma, a: Architecture, threads: int | None) -> str:
    if not a.has("wgmma"):
        return f"{a.name} has no wgmma"
    shared = [x.at.buffer for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "shared"]
    if shared and all(b.layout is not None and b.layout.name == "auto" for b in shared):
        return product_refusal(s, threads)  # a surface's compiler lays them out; what is written without one is refused there
    return product_refusal(s, threads) or operand_refusal(k, s.a, True) or operand_refusal(k, s.b, False)


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


def _statements(block: n.Block, level: str) -> Iterator[tuple[n.Stmt, str]]:
    """All statements, each with the team that executes it: `cta`, or the level of the innermost parallel loop."""
    for s in block:
        yield s, level
        inner = s.kind if isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread") else level
        for body in blocks_of(s):
            yield from _statements(body, inner)


def _lacking(s: n.Copy, a: Architecture) -> str:
    """The instructions of a copy that the target lacks ("" when it has them)."""
    needs: dict[str, Family] = {"cp_async": "cp_async", "bulk": "cp_async_bulk", "tma": "tma", "ldmatrix": "ldmatrix", "stmatrix": "stmatrix"}
    family = needs.get(s.via.partition("(")[0])
    return f"{a.name} has no {family}" if family is not None and not a.has(family) else ""


def copy_refusal(s: n.Copy, level: str) -> str:
    """Why no instruction makes a copy as it says ("" when one does): vectors have 2 to 16 bytes, chunks of cp.async 4, 8 or 16 and zeros
    where nothing is read, ldmatrix and stmatrix move 8 x 8 matrices of 16 bits."""
    kind, size = s.via.partition("(")[0], s.dst.buffer.dtype.bytes
    vector = dict(s.attrs).get("vector", 1)
    if kind == "vector" and s.via[7:-1] and int(s.via[7:-1]) * size not in (2, 4, 8, 16):
        return f"no thread moves a vector of {int(s.via[7:-1]) * size} bytes at once"
    if kind == "cp_async":
        if "vector" in dict(s.attrs) and isinstance(vector, int) and vector * size not in (4, 8, 16):
            return f"cp.async moves 4, 8 or 16 bytes at once, not {vector * size}"
        row = next(reversed(shape_of(s.dst.type)), 1)
        if level != "thread" and "vector" not in dict(s.attrs) and isinstance(row, int) and row * size % 4:  # its compiler chooses the chunks
            return f"cp.async moves 4, 8 or 16 bytes at once, and rows of {row * size} bytes are not made of such chunks"
        if s.src.other is not None and not (isinstance(s.src.other, n.Const) and not s.src.other.value):
            return "cp.async fills what it does not read with zeros"
    if kind == "tma":
        far = s.src.at if s.src.at.buffer.space == "global" else s.dst
        if far.buffer.space == "global" and (reason := descriptor_refusal(far)):
            return reason
        near = (s.dst if far is s.src.at else s.src.at).buffer
        if near.space == "shared" and "descriptor" in dict(s.attrs) and (not near.align or near.align % 128):
            return f"a box lies at a multiple of 128 bytes of shared memory, and '{near.name}' is aligned to {near.align or near.dtype.bytes}"
    if kind in ("ldmatrix", "stmatrix"):
        shape = shape_of(s.dst.type)
        if s.dst.buffer.dtype.bits != 16:
            return f"{kind} moves elements of 16 bits, not {s.dst.buffer.dtype}"
        if len(shape) < 2 or any(isinstance(d, int) and d % 8 for d in shape[-2:]):
            return f"{kind} moves whole 8 x 8 matrices, not {' x '.join(str(d) for d in shape)}"
    return ""


def _gather_refusal(k: n.Kernel, s: n.Copy, gathering: Collection[str]) -> str:
    """Why an im2col map does not gather a box of pixels by channels ("" when it does): they are channels of one tap (PTX ISA, "Im2col mode")."""
    view = view_of(k, s.src.at.buffer.name) if dict(s.attrs).get("descriptor") in gathering else None
    taps, channels = s.src.at.index[-1:], build.int_value(view.at.buffer.shape[-1]) if view is not None else None
    if channels is None or not taps or not isinstance(taps[0], n.Span) or not isinstance(taps[0].extent, int) or channels % taps[0].extent == 0:
        return ""
    return f"a box of '{s.src.at.buffer.name}' has {taps[0].extent} channels, and a tap has {channels}"


def descriptor_refusal(at: n.Region) -> str:
    """Why no tensor descriptor names a place of global memory ("" when one may): boxes have at most 256 elements a dimension; rows,
    strides and the tensor's address are multiples of 16 bytes (CUDA driver API, cuTensorMapEncodeTiled). What is symbolic is left."""
    b = at.buffer
    extents = [i.extent for i in at.index if isinstance(i, n.Span)]
    wide = max((e for e in extents if isinstance(e, int)), default=0)
    if wide > 256:
        return f"a box of '{b.name}' has at most 256 elements a dimension, not {wide}"
    if b.align and b.align % 16:
        return f"a descriptor's tensor begins at a multiple of 16 bytes, and '{b.name}' is aligned to {b.align}"
    if extents and isinstance(at.index[-1], n.Span) and isinstance(extents[-1], int) and extents[-1] * b.dtype.bytes % 16:
        return f"a box moves multiples of 16 bytes, not rows of {extents[-1] * b.dtype.bytes}"
    steps, step = [], 1
    for d in reversed(b.shape[1:]):
        size = build.int_value(d)
        if size is None:
            break
        step *= size
        steps.append(step)
    if b.strides is not None:
        steps = [v for v in map(build.int_value, b.strides[:-1]) if v is not None]
    wrong = next((v * b.dtype.bytes for v in steps if v * b.dtype.bytes % 16), None)
    return "" if wrong is None else f"a descriptor's strides are multiples of 16 bytes, and '{b.name}' has one of {wrong}"


def layout_refusal(b: n.Buffer) -> str:
    """Why a swizzle is no layout of a buffer ("" when it is one): it must be a bijection of the buffer's bytes."""
    extents = [build.int_value(d) for d in b.shape]
    if b.layout is None or b.layout.name != "swizzle" or len(b.layout.args) != 3 or b.strides is not None or None in extents:
        return ""
    bits, base, shift = (int(a) for a in b.layout.args if isinstance(a, int))
    total = math.prod(e for e in extents if e is not None) * b.dtype.bytes
    for offset in range(0, total, 1 << base):
        moved = offset ^ ((offset >> base + shift & (1 << bits) - 1) << base)
        if moved >= total:
            return f"the swizzle of '{b.name}' moves byte {offset} to byte {moved}, past its {total} bytes"
    return ""


def shared_bytes(k: n.Kernel) -> int | None:
    """Bytes of shared memory that a kernel declares, and that its pipelined loops hold in flight; None where an extent is symbolic."""
    total = 0
    for s in walk(k):
        if isinstance(s, n.Alloc) and s.buffer.space == "shared":
            extents = [build.int_value(d) for d in s.buffer.shape]
            if any(e is None for e in extents):
                return None
            total += _span(s.buffer, [e for e in extents if e is not None]) * s.buffer.dtype.bytes
        if isinstance(s, n.For) and s.kind == "pipelined":
            staged = loop_bytes(s)
            if staged is None:
                return None
            total += staged * int(dict(s.attrs).get("stages", 1)) - _held_by_stages(s)
    return total


def _held_by_stages(loop: n.For) -> int:
    """Bytes of buffers that a pipelined loop declares for what it loads ahead: its stages are these buffers, so many times over."""
    loads = staged_loads(loop)
    filled = {s.dst.buffer.name for s in loop.body if isinstance(s, n.Copy) and s.src in loads and not s.dst.index}
    held = [s.buffer for s in loop.body if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.buffer.name in filled]
    return sum(math.prod(build.int_value(d) or 0 for d in b.shape) * b.dtype.bytes for b in held)


def _span(b: n.Buffer, extents: list[int]) -> int:
    """Elements from the first to past the last of a buffer, padding included."""
    steps = [build.int_value(s) for s in b.strides or ()]
    if b.strides is None or None in steps:
        return math.prod(extents)
    return sum((d - 1) * abs(s) for d, s in zip(extents, [s for s in steps if s is not None], strict=True)) + 1


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
