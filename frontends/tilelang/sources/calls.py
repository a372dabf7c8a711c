"""A call of a CUDA function of the kernel's own source: the frontend of CUDA reads it in a kernel that calls it and does nothing else, and what it does
stands in place of the call.

A place that is given is a pointer to where it begins, a number is one of its dtype. What dtypes a binding decides stand for is tried with several:
the function is read where all of them do the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import isfinite
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.types import DTYPES, I32, DType, dtype_of
from kir.ir.visit import transform, walk

from ..state.reader import Reader
from ..state.regions import region
from ..values.values import Address, Memory, NotUnderstood, Num, Place, Value
from .moves import Move, NoMoves, moves_of
from .splice import RESULT, ROW, Splice
from .texts import source_of

TYPES: Mapping[str, str] = {
    "f64": "double", "f32": "float", "f16": "__half", "bf16": "__nv_bfloat16", "i64": "long long", "u64": "unsigned long long", "i32": "int", "u32": "unsigned",
    "i16": "short", "u16": "unsigned short", "i8": "signed char", "u8": "unsigned char", "bool": "bool", "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2",
    "mbarrier": "unsigned long long",
}  # fmt: skip
"""What C++ calls a dtype."""
ROWS = (4, 8, 16)
"""Bytes that one instruction moves."""
TRIED = ("f16", "bf16", "f32")
"""Dtypes that one of the binding's is tried with."""
SHARED = 1 << 14
"""Bytes of an array that stands for shared memory."""


@dataclass(frozen=True)
class Operand:
    """What is given for a parameter: a place, a number of the kernel, or a literal."""

    name: str
    place: Place | None = None
    value: n.Expr | None = None
    literal: str = ""
    within: str = ""
    """The parameter that points to the first element of a place's memory, where others point there too."""
    at: n.Expr | None = None
    """Then how many elements behind that the place is."""


def called(r: Reader, name: str, dtype: DType | None, args: Sequence[Value]) -> Value:
    """A call that gives a number of a dtype (None: it gives none). Raises NotUnderstood."""
    source = source_of(r, name)
    operands = _of_one_memory(r, [_operand(r, f"p{k}", v) for k, v in enumerate(args)])
    open_ = sorted({d.name for d in [*(_dtype(o) for o in operands), dtype] if d is not None and d.is_symbolic})
    if len(open_) > 2:
        raise NotUnderstood(f"a function of CUDA source, '{name}', of dtypes that the binding decides")
    found = []
    for chosen in product(TRIED, repeat=len(open_)):
        types = {k: DTYPES[v] for k, v in zip(open_, chosen, strict=True)}
        found.append(_thread(_kernel(source, name, dtype, operands, types), name, {o.within or o.name for o in operands}))
    if dtype is None and (moves := _moves(found, operands)) is not None:
        _move(r, moves, {o.name: o.place for o in operands if o.place is not None})
        return 0
    if any(not isinstance(s, n.Let) and not (isinstance(s, n.Store) and s.at.buffer.name == RESULT) for body in found for s in body):
        operands = [o if o.value is None else replace(o, value=r.out.let("given", o.value)) for o in operands]  # before what the function changes
    statements, returned = _alike(r, name, found, operands)
    for s in statements:
        r.out.emit(s)
    if dtype is None:
        return 0
    if returned is None:
        raise NotUnderstood(f"a function of CUDA source, '{name}', that returns nothing here")
    if any(isinstance(x, (n.Load, n.Call)) for x in walk(returned)) and statements:
        return Num(r.out.let(r.wanted or "found", returned))
    return Num(returned)


def _operand(r: Reader, name: str, v: Value) -> Operand:
    """What is given for a parameter. Raises NotUnderstood for registers that a team holds together, and memory whose bytes TileLang lays out."""
    v = r.decided(v)
    if isinstance(v, (bool, int)) or (isinstance(v, float) and isfinite(v)):
        return Operand(name, literal=str(v).lower() if isinstance(v, bool) else f"{v!r}{'f' if isinstance(v, float) else ''}")
    if not isinstance(v, (Memory, Address)) or v.var:
        return Operand(name, value=r.run(v))
    p = region(r, v)
    b = p.buffer
    if b.space not in ("global", "register", "shared"):
        raise NotUnderstood(f"a function of CUDA source of the registers of '{b.name}', which TileLang deals out")
    if b.layout is not None or (b.strides is not None and not build.is_const(b.strides[-1], 1)):
        raise NotUnderstood(f"a function of CUDA source of '{b.name}', whose elements are not next to one another")
    return Operand(name, Place(b, tuple(i.lo if isinstance(i, n.Span) else i for i in p.index)))


def _of_one_memory(r: Reader, operands: Sequence[Operand]) -> list[Operand]:
    """Places in one memory as so many elements behind its first: else what the function does with one would be read as nothing of the other. Raises
    NotUnderstood for memory that is not dense, and for views of it."""
    held: dict[str, list[Operand]] = {}
    for o in operands:
        if o.place is not None:
            held.setdefault(r.aliases.get(o.place.buffer.name, o.place.buffer.name), []).append(o)
    made: dict[str, Operand] = {}
    for those in held.values():
        places = [o.place for o in those if o.place is not None]
        b = places[0].buffer
        if len(those) < 2:
            continue
        if any(x.buffer != b for x in places) or b.space == "shared" or b.strides is not None or not b.shape:
            raise NotUnderstood(f"a function of CUDA source of several places in '{b.name}'")
        for o, p in zip(those, places, strict=True):
            flat: n.Expr = build.const(0)
            for i, d in zip(p.index, b.shape, strict=True):
                assert isinstance(i, n.Expr)
                flat = build.add(build.mul(flat, d), i)
            made[o.name] = replace(o, place=Place(b, tuple(build.const(0) for _ in b.shape)), within=those[0].name, at=flat)
    return [made.get(o.name, o) for o in operands]


def _dtype(o: Operand) -> DType | None:
    return o.place.buffer.dtype if o.place is not None else dtype_of(o.value.type) if o.value is not None else None


def _kernel(source: str, name: str, dtype: DType | None, operands: Sequence[Operand], types: Mapping[str, DType]) -> str:
    """A kernel that calls the function."""
    def word(d: DType) -> str:
        d = types.get(d.name, d)
        if d.name not in TYPES:
            raise NotUnderstood(f"a function of CUDA source, '{name}', of {d.name}")
        return TYPES[d.name]

    params, inner, given = [], [], []
    for o in operands:
        own = _dtype(o)
        if own is None:
            given.append(o.literal)
            continue
        if o.at is not None:
            known = build.int_value(o.at)
            given.append(f"{o.within} + {f'{o.name}_at' if known is None else known}")
            params += [*([f"{word(own)}* {o.name}"] if o.name == o.within else []), *([f"int {o.name}_at"] if known is None else [])]
            continue
        given.append(o.name)
        if o.place is not None and o.place.buffer.space == "shared":
            inner.append(f"  __shared__ {word(own)} {o.name}[{SHARED // max(1, types.get(own.name, own).bytes)}];\n")
        else:
            params.append(f"{word(own)}{'*' if o.place is not None else ''} {o.name}")
    call = f"{name}({', '.join(given)})"
    params.append(f"{word(dtype) if dtype is not None else 'int'}* {RESULT}")
    call = f"{RESULT}[0] = {call}" if dtype is not None else f"{call};\n  {RESULT}[0] = 0"  # so that a thread that ends in it does not end with the kernel
    return f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n{source}\n__global__ void kir_call({', '.join(params)}) {{\n{''.join(inner)}  {call};\n}}\n"


@lru_cache(maxsize=256)
def _read(text: str) -> n.Program:
    """The program of `kir_call` in a text. Raises KirError."""
    from ...cuda.frontend import CudaFrontend

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.cu"
        path.write_text(text, encoding="utf-8")
        return CudaFrontend().instantiate(path, "kir_call", Binding(metas={"threads_y": 1, "threads_z": 1}))


def _thread(text: str, name: str, given: Collection[str]) -> n.Block:
    """What one thread does in `kir_call`. Raises NotUnderstood for what the frontend of CUDA does not understand."""
    try:
        kernel = _read(text).kernels[0]
    except KirError as bad:
        raise NotUnderstood(f"a function of CUDA source, '{name}': {bad.diagnostics[0].message}") from bad
    except RecursionError as bad:
        raise NotUnderstood(f"a function of CUDA source, '{name}', that is nested too deeply") from bad
    lost = next((x for s in kernel.body for x in walk(s) if isinstance(x, n.Opaque)), None)
    if lost is not None:
        raise NotUnderstood(f"a function of CUDA source, '{name}': {lost.reason}")
    loops = [s for s in kernel.body if isinstance(s, n.For) and s.kind == "thread"]
    before = tuple(s for s in kernel.body if s not in loops and not (isinstance(s, n.Alloc) and s.buffer.name in given))
    if len(loops) > 1 or any(not isinstance(s, n.View) for s in before):
        raise NotUnderstood(f"a function of CUDA source, '{name}', with memory of its own that threads share")
    return (*before, *(s for loop in loops for s in loop.body))


def _moves(found: Sequence[n.Block], operands: Sequence[Operand]) -> list[Move] | None:
    """What is moved, where that is all that is done, with whatever dtypes."""
    pointers = {o.name: o for o in operands if o.place is not None}
    if any(o.at is not None for o in operands):
        return None
    try:
        each = [moves_of(body[:-1] if body and isinstance(s := body[-1], n.Store) and s.at.buffer.name == RESULT else body, pointers) for body in found]
    except NoMoves:
        return None
    return each[0] if all(x == each[0] for x in each) else None


def _move(r: Reader, moves: Sequence[Move], places: Mapping[str, Place]) -> None:
    """Copies of a thread. Raises NotUnderstood where one may read what another wrote, or bytes are no elements."""
    written, read = ({places[getattr(m, side)].buffer.name for m in moves} for side in ("dst", "src"))
    if len(moves) > 1 and {r.aliases.get(x, x) for x in written} & {r.aliases.get(x, x) for x in read}:
        raise NotUnderstood("a function of CUDA source that moves memory within one buffer")
    for m in moves:
        src = _run(places[m.src], m.start, m.count)
        dst = places[m.dst]
        if dst.buffer.dtype != src.buffer.dtype:
            dst = _as(r, dst, src.buffer.dtype)
        last = src.index[-1]
        count = last.extent if isinstance(last, n.Span) else 1
        at = _run(dst, m.at, m.count)
        whole = m.start % m.count == 0 == m.at % m.count and m.count in ROWS  # else nothing says how places are aligned
        via = "plain" if not whole else f"vector({count})" if isinstance(count, int) else "vector"
        r.out.emit(n.Copy(build.load(build.region(src.buffer, *src.index), cache=m.cache), build.region(at.buffer, *at.index), via))


def _elements(count: int, d: DType) -> n.Expr:
    """How many elements so many bytes are."""
    if not d.is_symbolic:
        if 8 * count % d.bits:
            raise NotUnderstood(f"{count} bytes of {d.name}")
        return build.const(8 * count // d.bits)
    return build.floordiv(build.const(8 * count), build.call("dtype_bits", term=d.name)) if count else build.const(0)


def _run(p: Place, start: int, count: int) -> Place:
    """Bytes from where a place begins, along its last dimension."""
    if not p.index:
        raise NotUnderstood(f"several bytes of '{p.buffer.name}', which is one number")
    d, first = p.buffer.dtype, p.index[-1]
    assert isinstance(first, n.Expr)
    if p.buffer.space == "shared" and len(p.buffer.shape) > 1 and start + count > ROW:
        raise NotUnderstood(f"{start + count} bytes of '{p.buffer.name}', which TileLang may lay out otherwise")
    extent = _elements(count, d)
    known = build.int_value(extent)
    return Place(p.buffer, (*p.index[:-1], build.span(build.add(first, _elements(start, d)), extent if known is None else known)))


def _as(r: Reader, p: Place, d: DType) -> Place:
    """A place in memory of one dtype as one of another, through a view of all of it."""
    b = p.buffer
    first = p.index[-1] if p.index else None
    if first is None or b.strides is not None:
        raise NotUnderstood(f"'{b.name}' as {d.name}")
    own, other = (x.bits if not x.is_symbolic else build.call("dtype_bits", term=x.name) for x in (b.dtype, d))

    def scaled(e: n.Expr) -> n.Expr:
        if isinstance(own, int) and isinstance(other, int) and own % other == 0:
            return build.mul(e, own // other)
        return build.floordiv(build.mul(e, own), other)

    assert isinstance(first, n.Expr)
    view = n.Buffer(r.out.fresh(b.name), d, (*b.shape[:-1], scaled(b.shape[-1])), b.space)
    r.born.add(view.name)
    r.out.emit(n.View(view, n.Region(b)))
    r.aliases[view.name] = r.aliases.get(b.name, b.name)
    return Place(view, (*p.index[:-1], scaled(first)))


def _spliced(r: Reader, body: n.Block, operands: Sequence[Operand]) -> tuple[n.Block, n.Expr | None]:
    """What the function does, with what is given."""
    shape = (*(r.thread_shape or (r.threads,)), *[build.const(1)] * 3)[:3]
    values = {"t": n.Var(r.thread, I32), **{f"threads_{x}": e for x, e in zip("xyz", shape, strict=True)},
              **{o.name: o.value for o in operands if o.value is not None}, **{f"{o.name}_at": o.at for o in operands if o.at is not None}}
    for k, axis in enumerate(r.grid):
        values[f"grid_{k}"] = axis.extent
        if "raster_panel" not in r.attrs:  # else the kernel's own numbers of blocks are others
            values[f"block_{'xyz'[k]}"] = n.Var(axis.name, I32)
    if len(r.thread_shape) <= 1:
        turned = build.mod(n.Var("t", I32), n.Var("threads_x", I32))
        body = tuple(transform(s, lambda old, new: n.Var("t", I32) if new == turned else new) for s in body)
    return Splice({o.within or o.name: o.place for o in operands if o.place is not None}, values, r.out.fresh).made(body)


def _alike(r: Reader, name: str, found: Sequence[n.Block], operands: Sequence[Operand]) -> tuple[n.Block, n.Expr | None]:
    """What the function does with each dtype, where it is the same. Raises NotUnderstood where it is not."""
    made: list[tuple[n.Block, n.Expr | None]] = []
    before = set(r.out.taken)
    for body in found:
        r.out.taken = set(before)
        made.append(_spliced(r, body, operands))
    if any(x != made[0] for x in made):
        raise NotUnderstood(f"a function of CUDA source, '{name}', that does something else for each dtype that the binding may give")
    return made[0]
