"""Instructions of Hopper as CUDA C++: mbarriers, copies by the tensor memory accelerator, wgmma and its descriptors, roles.

Canonical layouts of wgmma operands in shared memory are those of the PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout".
"""
from __future__ import annotations

import re
from functools import cache

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of

from ..expressions.expressions import Expressions
from ..expressions.memory import Memory, strides_of, swizzle_of
from ..spelling.literals import refuse, sizes_of
from .im2col import corner as tensor_corner

SPANS = {1: (32, 3), 2: (64, 2), 3: (128, 1)}
"""Bits of a swizzle -> its span in bytes, and its code in a matrix descriptor."""
PTX_TYPES = {"f16": "f16", "bf16": "bf16", "f32": "tf32", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}


def raw_address(to: Expressions, memory: Memory, r: n.Region) -> str:
    """The address of the first element of a region of shared memory, before any swizzle: what TMA and wgmma are told."""
    first = ("0",) * len(sizes_of(r.type))
    offset = memory.linear(to, r, first)
    return to.names[r.buffer.name] if offset == "0" else f"&{to.names[r.buffer.name]}[{offset}]"


# ------------------------------------------------------------------------------------------------------------------- copies

def copy_tma(to: Expressions, memory: Memory, s: n.Copy, program: n.Program) -> str:
    """The call that a copy via tma is. Raises KirError KIR-B002 for one that no such call makes."""
    name = str(dict(s.attrs).get("descriptor", ""))
    found = next((t for t in program.tensor_maps if t.name == name), None)
    if found is None:
        raise refuse("KIR-B002", "a copy via tma names no tensor map", "the attr `descriptor`")
    far, near = (s.src.at, s.dst) if s.src.at.buffer.space == "global" else (s.dst, s.src.at)
    if near.buffer.space != "shared":
        raise refuse("KIR-B002", f"map '{name}' copies between '{found.of}' and shared memory")
    if s.mask is not None or s.src.mask is not None:
        raise refuse("KIR-B002", "a copy via tma has no mask but the edges of the tensor")
    corner, offsets = tensor_corner(to, program, s, far, found)
    places, by_tap = to.counted.get(s) or ([to.scalar(i) for i in corner], [to.scalar(i) for i in offsets])
    at = ", ".join(reversed(places))
    place, rank = raw_address(to, memory, near), len(corner)
    if far is s.dst and not offsets:
        if not s.grouped:
            raise refuse("KIR-B002", "a store via tma belongs to a group", "`grouped`, and bulk_commit and bulk_wait after it")
        return f"{to.header(f'tma_store_{rank}d')}(&{to.names[name]}, {place}, {at});"
    if s.signal is None:
        raise refuse("KIR-B002", "a load via tma signals an mbarrier", "`signal bar`")
    mask = dict(s.attrs).get("multicast")
    if offsets:
        if mask is not None or far is s.dst:
            raise refuse("KIR-B002", "the CUDA backend writes loads by im2col maps, for one CTA each")
        by = ", ".join(reversed(by_tap))
        return f"{to.header(f'tma_load_{rank}d_im2col')}({place}, &{to.names[name]}, &{memory.element(to, s.signal, ())}, {at}, {by});"
    if mask is not None:
        return f"{to.header(f'tma_load_{rank}d_multicast')}({place}, &{to.names[name]}, &{memory.element(to, s.signal, ())}, {at}, {mask});"
    return f"{to.header(f'tma_load_{rank}d')}({place}, &{to.names[name]}, &{memory.element(to, s.signal, ())}, {at});"


# -------------------------------------------------------------------------------------------------------------------- wgmma

def wgmma(to: Expressions, memory: Memory, e: n.Call) -> str:
    """The call that a `wgmma` is. Raises KirError KIR-B002 for operands that no descriptor describes."""
    acc, a, b = e.args
    assert isinstance(acc, n.Region) and isinstance(a, n.Region) and isinstance(b, n.Region)
    attrs = dict(e.attrs)
    shape, dtype = str(attrs.get("shape", "")), dtype_of(a.type).name
    if dtype not in PTX_TYPES or dtype_of(b.type).name != dtype or dtype_of(acc.type).name != "f32":
        raise refuse("KIR-B008", f"the CUDA backend has no wgmma of {dtype} and {dtype_of(b.type).name} into {dtype_of(acc.type).name}")
    in_registers = a.buffer.space == "register"
    right, minor_b = descriptor(to, memory, b, bool(attrs.get("trans_b", False)), columns=True)
    if in_registers:
        left, minor_a = f"reinterpret_cast<const unsigned*>({_register(to, memory, a)})", 0
    else:
        left, minor_a = descriptor(to, memory, a, bool(attrs.get("trans_a", False)), columns=False)
    if (minor_a or minor_b) and dtype not in ("f16", "bf16"):
        raise refuse("KIR-B002", f"wgmma reads operands of {dtype} along k alone", "an operand whose k axis is contiguous")
    function = to.header(f"wgmma_{shape}_{dtype}_{'rs' if in_registers else 'ss'}_{minor_a}{minor_b}")
    return f"{function}({_register(to, memory, acc)}, {left}, {right});"


def _register(to: Expressions, memory: Memory, r: n.Region) -> str:
    """A pointer to the first of a thread's registers that a region names."""
    return f"&{memory.element(to, r, ('0',) * len(sizes_of(r.type)))}"


def descriptor(to: Expressions, memory: Memory, r: n.Region, transposed: bool, columns: bool, make: str = "matrix_descriptor") -> tuple[str, int]:
    """A matrix descriptor of an operand, and whether its rows (columns) are contiguous rather than its k axis. A is [64, k], B [k, n];
    `transposed` says that the place has them the other way round; three axes are panels of columns. `make` is the function that makes it."""
    b, swizzle = r.buffer, swizzle_of(r.buffer)
    if b.space != "shared" or swizzle is None or swizzle[0] not in SPANS or swizzle[1:] != (4, 3):
        raise refuse("KIR-B002", f"wgmma reads '{b.name}', which is no swizzled shared memory", "a layout swizzle(3, 4, 3), (2, 4, 3) or (1, 4, 3)")
    span, code = SPANS[swizzle[0]]
    size, shape = b.dtype.bytes, sizes_of(r.type)
    strides = [int_value(s) for s, i in zip(strides_of(b), r.index, strict=True) if isinstance(i, n.Span)]
    if None in strides or len(shape) not in (2, 3) or any(isinstance(i, n.Span) and i.step not in (1,) for i in r.index):
        raise refuse("KIR-B002", f"wgmma reads a place of '{b.name}' that is no dense matrix")
    steps = [s * size for s in strides if s is not None]
    minor_is_k = transposed == columns
    row_step, last = steps[-2], steps[-1]
    if last != size or row_step != span or (not minor_is_k and len(shape) == 2 and shape[-1] * size > span) or (minor_is_k and len(shape) == 3):
        raise refuse("KIR-B002", f"wgmma reads '{b.name}' in rows of {row_step} bytes, and its swizzle spans {span}",
                     "rows as long as the span, in panels")
    group = 8 * row_step
    panel = steps[0] if len(shape) == 3 else group
    function, units = to.header(make), memory.units(to, r)
    place = raw_address(to, memory, r) if units is None else f"{to.names[b.name]}, {units}" if units else to.names[b.name]
    return f"{function}<{panel}, {group}, {code}>({place})", 0 if minor_is_k else 1


@cache
def generated(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The device function of a name that is made on demand, one for each shape or rank: text, and the functions that it needs."""
    return tma_function(name) or wgmma_function(name)


def tma_function(name: str) -> tuple[str, tuple[str, ...]] | None:
    """A copy by the tensor memory accelerator, of a tensor of 1 to 5 dimensions; None for another name."""
    if pixels := re.fullmatch(r"tma_load_([345])d_im2col", name):
        return _im2col_function(name, int(pixels[1]))
    found = re.fullmatch(r"tma_(load|store)_([1-5])d(_multicast)?", name)
    if found is None or (found[1] == "store" and found[3]):
        return None
    rank, axes = int(found[2]), "xyzvw"[:int(found[2])]
    corner = ", ".join(f"int {a}" for a in axes)
    values = ", ".join(f'"r"({a})' for a in axes)
    if found[1] == "store":
        at = ", ".join(f"%{i + 2}" for i in range(rank))
        return "\n".join((
            f"__device__ __forceinline__ void {name}(const CUtensorMap* map, const void* from, {corner}) {{",
            f'  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {{{at}}}], [%1];"',
            f'               :: "l"(map), "r"(shared_address(from)), {values} : "memory");', "}")) + "\n", ("shared_address",)
    at = ", ".join(f"%{i + 3}" for i in range(rank))
    many = ".multicast::cluster" if found[3] else ""
    last, mask = (f", %{rank + 3}", ', "h"(ctas)') if found[3] else ("", "")
    return "\n".join((
        *(("// To the same offset in every CTA of the cluster whose bit in `ctas` is set.",) if found[3] else ()),
        f"__device__ __forceinline__ void {name}(void* to, const CUtensorMap* map, unsigned long long* bar, {corner}"
        f"{', unsigned short ctas' if found[3] else ''}) {{",
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{many} "',
        f'               "[%0], [%1, {{{at}}}], [%2]{last};"',
        f'               :: "r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), {values}{mask} : "memory");', "}")) + "\n", ("shared_address",)


def _im2col_function(name: str, rank: int) -> tuple[str, tuple[str, ...]]:
    """A load of pixels: coordinates and offsets with the innermost first."""
    axes = "xyzvw"[:rank]
    corner, by = ", ".join(f"int {a}" for a in axes), ", ".join(f"unsigned short by_{a}" for a in axes[1:-1])
    at, offsets = ", ".join(f"%{i + 3}" for i in range(rank)), ", ".join(f"%{i + 3 + rank}" for i in range(rank - 2))
    values = ", ".join([*(f'"r"({a})' for a in axes), *(f'"h"(by_{a})' for a in axes[1:-1])])
    return "\n".join((
        f"__device__ __forceinline__ void {name}(void* to, const CUtensorMap* map, unsigned long long* bar, {corner}, {by}) {{",
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "',
        f'               "[%0], [%1, {{{at}}}], [%2], {{{offsets}}};"',
        f'               :: "r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), {values} : "memory");', "}")) + "\n", ("shared_address",)


@cache
def wgmma_function(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The device function of a name as `wgmma` makes it: text, and the functions that it needs; None for another name."""
    found = re.fullmatch(r"wgmma_(m64n(\d+)k(\d+))_(\w+)_(ss|rs)_([01])([01])", name)
    if found is None:
        return None
    shape, columns, dtype, kind, minor_a, minor_b = found[1], int(found[2]), PTX_TYPES[found[4]], found[5], found[6], found[7]
    count = columns // 2
    registers = [f"%{i}" for i in range(count)]
    rows = [", ".join(registers[i:i + 16]) for i in range(0, count, 16)]
    at = count
    if kind == "rs":
        left, at = "{" + ", ".join(f"%{at + i}" for i in range(4)) + "}", at + 4
        inputs = [f'"r"(a[{i}])' for i in range(4)]
    else:
        left, at, inputs = f"%{at}", at + 1, ['"l"(a)']
    inputs.append('"l"(b)')
    major = f", {minor_a}, {minor_b}" if dtype in ("f16", "bf16") and kind == "ss" else f", {minor_b}" if dtype in ("f16", "bf16") else ""
    lines = [f"__device__ __forceinline__ void {name}(float* d, {'const unsigned* a' if kind == 'rs' else 'unsigned long long a'}, unsigned long long b) {{",
             f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.f32.{dtype}.{dtype} {{"']
    lines += [f'               "{row}{", " if i + 1 < len(rows) else ""}"' for i, row in enumerate(rows)]
    lines.append(f'               "}}, {left}, %{at}, 1, 1, 1{major};"')
    outputs = [f'"+f"(d[{i}])' for i in range(count)]
    packed = [", ".join(outputs[i:i + 8]) for i in range(0, count, 8)]
    lines += [f"               {':' if i == 0 else ' '} {row}{',' if i + 1 < len(packed) else ''}" for i, row in enumerate(packed)]
    lines.append(f"               : {', '.join(inputs)});")
    lines.append("}")
    return "\n".join(lines) + "\n", ()


# -------------------------------------------------------------------------------------------------------------------- calls

def call(to: Expressions, memory: Memory, e: n.Call) -> str | None:
    """A synchronizing call of Hopper as a statement; None for another call. Raises KirError KIR-B002 for a wrong operand."""
    attrs, args = dict(e.attrs), e.args
    values = [a for a in args if isinstance(a, n.Expr)]

    def bar() -> str:
        assert isinstance(args[0], n.Region)
        return f"&{memory.element(to, args[0], ())}"

    def number(x: n.Expr) -> int:
        found = int_value(x)
        if found is None:
            raise refuse("KIR-B002", f"'{e.fn}' takes a number known at compile time")
        return found
    match e.fn:
        case "mbar_init" | "mbar_expect" | "mbar_arrive_expect":
            return f"{to.header(e.fn)}({bar()}, {to.scalar(values[0])});"
        case "mbar_arrive" if isinstance(args[0], n.Region) and args[0].buffer.name in memory.peers:
            place, rank = memory.of_peer(to, args[0], ())
            return f"{to.header('mbar_arrive_peer')}({to.header('peer_address')}(&{place}, {rank}));"
        case "mbar_arrive":
            return f"{to.header(e.fn)}({bar()});"
        case "mbar_wait":
            return f"while (!{to.header('mbar_try_wait')}({bar()}, {to.scalar(values[0])})) {{}}"
        case "fence_async" | "fence_mbar_init" | "wgmma_fence" | "wgmma_commit" | "bulk_commit" | "cluster_arrive" | "cluster_wait" \
                | "grid_dependency_wait" | "grid_dependency_launch":
            return f"{to.header(e.fn)}();"
        case "wgmma_wait":
            return f"{to.header(e.fn)}<{number(values[0])}>();"
        case "bulk_wait":
            return f"{to.header('bulk_wait_read' if attrs.get('read') else 'bulk_wait')}<{number(values[0])}>();"
        case "prefetch_descriptor":
            name = str(attrs.get("descriptor", ""))
            if name not in to.names:
                raise refuse("KIR-B002", f"there is no tensor map '{name}' to fetch", "the attr `descriptor`")
            return f"{to.header(e.fn)}(&{to.names[name]});"
        case "wgmma":
            return wgmma(to, memory, e)
        case _:
            return None
