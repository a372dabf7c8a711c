"""Instructions of tensor memory (tcgen05, PTX ISA "TensorCore 5th Generation Family Instructions") as CUDA C++.

Operands in shared memory lie as for wgmma; their descriptors have a version bit more. The instruction descriptor says shapes and types.
"""
from __future__ import annotations

import math
import re
from functools import cache

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of, shape_of

from ..expressions.expressions import Expressions
from ..expressions.memory import Memory
from ..spelling.literals import refuse, sizes_of
from .hopper import descriptor

KINDS = {"f16": 0, "bf16": 1}
"""Codes of operand dtypes in an instruction descriptor of .kind::f16."""
ROWS = 128


def instruction_descriptor(dtype: str, columns: int, turned_a: int, turned_b: int) -> int:
    """Sums in f32 of products of a dtype, 128 rows by some columns; `turned`: the axis of the sums is not the contiguous one (PTX ISA, section
    "Instruction descriptor")."""
    return 1 << 4 | KINDS[dtype] << 7 | KINDS[dtype] << 10 | turned_a << 15 | turned_b << 16 | columns >> 3 << 17 | ROWS >> 4 << 24


def call(to: Expressions, memory: Memory, e: n.Call) -> str | None:
    """An instruction of tensor memory as a statement; None for another call. Raises KirError KIR-B002 for a wrong operand."""
    values, places = [a for a in e.args if isinstance(a, n.Expr)], [a for a in e.args if isinstance(a, n.Region)]
    match e.fn:
        case "tcgen05_mma":
            return _mma(to, memory, e, values, places)
        case "tcgen05_alloc":
            return f"{to.header(e.fn)}<{_columns(values[0])}>(&{memory.element(to, places[0], ())});"
        case "tcgen05_dealloc":
            return f"{to.header(e.fn)}<{_columns(values[1])}>({to.scalar(values[0])});"
        case "tcgen05_commit":
            return f"{to.header(e.fn)}(&{memory.element(to, places[0], ())});"
        case "tcgen05_ld":
            place, shape = places[0], shape_of(places[0].type)
            count = math.prod(d for d in shape if isinstance(d, int))
            if place.buffer.space != "register" or place.buffer.dtype.name != "f32" or not 1 <= count <= 128 or count & (count - 1):
                raise refuse("KIR-B002", f"a load of tensor memory into '{place.buffer.name}'", "1, 2, 4 .. 128 private elements of f32")
            first = memory.element(to, place, ("0",) * len(sizes_of(place.type)))
            return f"{to.header(f'tcgen05_ld_{count}')}(&{first}, {to.scalar(values[0])});"
        case "tcgen05_relinquish" | "tcgen05_wait_ld" | "tcgen05_fence_before" | "tcgen05_fence_after":
            return f"{to.header(e.fn)}();"
        case _:
            return None


def _columns(x: n.Expr) -> int:
    found = int_value(x)
    if found is None:
        raise refuse("KIR-B002", "columns of tensor memory are a number known at compile time")
    return found


def _mma(to: Expressions, memory: Memory, e: n.Call, values: list[n.Expr], places: list[n.Region]) -> str:
    attrs, dtype = dict(e.attrs), dtype_of(places[0].type).name
    if dtype not in KINDS or dtype_of(places[1].type).name != dtype:
        raise refuse("KIR-B008", f"the CUDA backend has no tcgen05.mma of {dtype} and {dtype_of(places[1].type).name}")
    left, turned_a = descriptor(to, memory, places[0], bool(attrs.get("trans_a", False)), columns=False, make="tensor_descriptor")
    right, turned_b = descriptor(to, memory, places[1], bool(attrs.get("trans_b", False)), columns=True, make="tensor_descriptor")
    function = to.header(f"tcgen05_mma_{attrs.get('shape', '')}_{dtype}_{turned_a}{turned_b}")
    return f"{function}({to.scalar(values[0])}, {left}, {right}, {to.scalar(values[1])});"


@cache
def generated(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The device function of a product or load of tensor memory: text, and the functions that it needs; None for another name."""
    if found := re.fullmatch(r"tcgen05_mma_m128n(\d+)k16_(\w+)_([01])([01])", name):
        code = instruction_descriptor(found[2], int(found[1]), int(found[3]), int(found[4]))
        return "\n".join((
            f"__device__ __forceinline__ void {name}(unsigned d, unsigned long long a, unsigned long long b, int add) {{",
            '  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"',
            f'               :: "r"(d), "l"(a), "l"(b), "r"({code:#x}), "r"(add) : "memory");', "}")) + "\n", ()
    if found := re.fullmatch(r"tcgen05_ld_(\d+)", name):
        count = int(found[1])
        registers, outputs = [f"%{i}" for i in range(count)], [f'"=f"(to[{i}])' for i in range(count)]
        lines = [f"__device__ __forceinline__ void {name}(float* to, unsigned at) {{",
                 f'  asm volatile("tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{"']
        lines += [f'               "{", ".join(registers[i:i + 16])}{", " if i + 16 < count else ""}"' for i in range(0, count, 16)]
        lines.append(f'               "}}, [%{count}];"')
        lines += [f"               {' ' if i else ':'} {', '.join(outputs[i:i + 8])}{',' if i + 8 < count else ''}" for i in range(0, count, 8)]
        lines += ['               : "r"(at) : "memory");', "}"]
        return "\n".join(lines) + "\n", ()
    return None
