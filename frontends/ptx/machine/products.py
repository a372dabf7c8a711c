"""wgmma of a whole kernel: accumulators that are an array of the thread, matrices in shared memory that integers describe."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DTYPES, I32, I64, DType, dtype_of
from kir.surface.ptx.form.bits import Kind
from kir.surface.ptx.form.operands import Pointer
from kir.surface.ptx.form.syntax import Instruction, Name, Operand
from kir.surface.ptx.instructions import matrices
from kir.surface.ptx.instructions.matrices import SPANS
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Reader

from .known import Numbers
from .machine import Machine, located

LOW = 0x3FFF
"""Bits of a descriptor that hold an address in units of 16 bytes (PTX ISA, "Matrix Descriptor Format")."""


def _wgmma(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    if "mma_async" in i.parts:
        _product(r, i)
    elif "fence" in i.parts and r.guard is None:
        r.fence = located(n.Eval(build.call("wgmma_fence")), r)
    else:
        matrices.HANDLERS["wgmma"](r, i)


def _product(r: Machine, i: Instruction) -> None:
    shape, of, columns, depth, in_registers, majors = matrices.wgmma_form(r, i)
    if r.guard is not None:
        raise r.refuse("a wgmma under a predicate")
    acc = _array(r, i.operands[0], columns // 2, DTYPES["f32"])
    minor_b = bool(majors[-1]) if majors else False
    right = described(r, i.operands[2], of, depth, columns, minor_b)
    options: dict[str, n.Attr] = {"shape": shape}
    left: n.Region
    if in_registers:
        left = _array(r, i.operands[1], 4, of)
    else:
        minor_a = bool(majors[0]) if majors else False
        left = described(r, i.operands[1], of, depth, 64, minor_a)
        options |= {"trans_a": True} if minor_a else {}
    options |= {} if minor_b else {"trans_b": True}
    _scaled(r, i.operands[3], acc)
    r.fenced()
    r.steps.append(n.Eval(n.Call("wgmma", (acc, left, right), n.attrs(**options))))
    for o in r.items(i.operands[0], columns // 2):
        r.untouched(o)


def _scaled(r: Machine, o: Operand, acc: n.Region) -> None:
    """The accumulators count as zeros where the scale of D is not one."""
    scale = r.value(o, PREDICATE) if isinstance(o, Name) else build.const(bool(r.constant(o)), BOOL)
    zero = n.Store(acc, build.const(0.0, acc.buffer.dtype))
    if not isinstance(scale, n.Const):
        r.steps.append(n.If(build.invert(scale), (zero,)))
    elif not scale.value:
        r.steps.append(zero)


def _array(r: Machine, o: Operand, count: int, of: DType) -> n.Region:
    """The array that registers are."""
    items = r.items(o, count)
    names = tuple(x.name for x in items if isinstance(x, Name))
    own = r.arrays.get(names[0]) if names else None
    if own is None or own.names != names or own.dtype != of:
        raise r.refuse("registers of wgmma that are parts of several arrays")
    return n.Region(r.place(names[0]).buffer)


def split(numbers: Numbers, e: n.Expr) -> tuple[n.Expr, int]:
    """A descriptor as the address in shared memory that it begins with, in units of 16 bytes, and the bits above."""
    terms = dict(build.polynomial(opened(numbers, e)))
    constant = terms.pop((), 0) & ((1 << 64) - 1)
    rest = build.from_polynomial(terms, I64)
    return build.add(rest, build.const(constant & LOW, I64)), constant & ~LOW


def opened(numbers: Numbers, e: n.Expr, depth: int = 0) -> n.Expr:
    """An integer with what its names stand for, down to the address in it."""
    if depth > 40:
        return e
    match e:
        case n.Var() if e.name in numbers.made:
            return opened(numbers, numbers.made[e.name], depth + 1)
        case n.Binary(op="add" | "sub") if dtype_of(e.type).bits == 64:
            return build.binary(e.op, opened(numbers, e.a, depth + 1), opened(numbers, e.b, depth + 1))
        case n.Cast() if e.rounding in ("rn", "bits") and dtype_of(e.type).bits == 64 and dtype_of(e.x.type).bits == 64:
            return build.cast(opened(numbers, e.x, depth + 1), I64)
        case n.Cast() if dtype_of(e.type).bits == 64:
            return _widened(numbers, e)
    return e


def _widened(numbers: Numbers, e: n.Cast) -> n.Expr:
    """A number of fewer bits that was made wider: its sums as sums of 64 bits, where none of them wraps."""
    x: n.Expr = e
    while isinstance(x, n.Cast) and x.rounding in ("rn", "bits") and dtype_of(x.x.type).is_integer and numbers.same(x):
        x = numbers.made.get(x.x.name, x.x) if isinstance(x.x, n.Var) else x.x

    def apart(y: n.Expr, depth: int) -> n.Expr:
        of = numbers.made.get(y.name) if isinstance(y, n.Var) else y
        if isinstance(of, n.Const):
            return build.const(int(of.value), I64)
        if isinstance(of, n.Binary) and of.op in ("add", "sub") and depth < 40 and numbers.exact(of):
            return build.binary(of.op, apart(of.a, depth + 1), apart(of.b, depth + 1))
        return build.cast(y, I64)

    return apart(x, 0) if isinstance(x, n.Binary) and x.op in ("add", "sub") else e


def _bytes(r: Machine, units: n.Expr) -> n.Expr:
    """An address in bytes, of one in units of 16 that was cut to 14 bits: shared memory is smaller."""
    terms = build.polynomial(units)
    out: n.Expr = build.const(0)
    for atoms, c in terms.items():
        if not atoms:
            out = build.add(out, 16 * c)
            continue
        if len(atoms) != 1:
            raise r.refuse("an operand of wgmma that is not made of an address in shared memory by masks and shifts")
        out = build.add(out, build.mul(_atom(r, atoms[0], 0), c))
    return out


def _atom(r: Machine, e: n.Expr, depth: int) -> n.Expr:
    """Sixteen times a number that is a sixteenth of an address."""
    match e:
        case n.Var() if e.name in r.numbers.made and depth < 40:
            return _atom(r, r.numbers.made[e.name], depth + 1)
        case n.Cast() if e.rounding in ("rn", "bits"):
            return _atom(r, e.x, depth + 1)
        case n.Binary(op="mod", b=n.Const(value=v)) if v == LOW + 1:
            return _atom(r, e.a, depth + 1)
        case n.Binary(op="floordiv", b=n.Const(value=16)):
            inner = whole(r, e.a, 0)
            if r.numbers.divides(inner, 4):
                return build.cast(inner, I32)
        case n.Binary(op="shr", b=n.Const(value=4)):  # an address in shared memory has no sign
            inner = whole(r, e.a.x if isinstance(e.a, n.Cast) and e.a.rounding == "bits" else e.a, 0)
            if r.numbers.divides(inner, 4):
                return build.cast(inner, I32)
        case n.Binary(op="sub") if (left := r.numbers.remainder(e)) is not None and max(-left[0], left[1]) <= LOW:
            return build.mul(build.cast(e, I32), 16)
        case n.Binary(op="mul", b=n.Const(value=c)) if (rest := _rest(r, e.a, int(c))) is not None:
            return build.mul(rest, 16 * int(c))
        case n.Binary(op="add" | "sub"):
            return build.binary(e.op, _atom(r, e.a, depth + 1), _atom(r, e.b, depth + 1))
        case n.Binary(op="mul", b=n.Const()):
            return build.mul(_atom(r, e.a, depth + 1), build.cast(e.b, I32))
        case n.Const():
            return build.const(16 * int(e.value))
    if r.numbers.of(e).hi <= LOW and dtype_of(e.type).is_integer:
        return build.mul(build.cast(e, I32), 16)
    raise r.refuse("an operand of wgmma that is not made of an address in shared memory by masks and shifts")


def _rest(r: Machine, e: n.Expr, by: int) -> n.Expr | None:
    """A number that only counts up to the bits that a product with a power of two leaves of it, where those are few: as it is told by them alone."""
    bits = dtype_of(e.type).bits - by.bit_length() + 1
    if by <= 1 or by & by - 1 or r.numbers.remainder(e) is not None or (left := r.numbers.remainder(build.mul(e, by))) is None:
        return None
    if max(-left[0], left[1]) > LOW:
        return None
    first = left[0] // by
    return build.add(build.mod(build.sub(build.cast(e, I32), first), 1 << bits), first)


def whole(r: Machine, e: n.Expr, depth: int) -> n.Expr:
    """An address from which masks took only bits that no address in shared memory has."""
    match e:
        case n.Var() if e.name in r.numbers.made and depth < 40 and _is_cut(r.numbers.made[e.name]):
            return whole(r, r.numbers.made[e.name], depth + 1)
        case n.Binary(op="mod", b=n.Const(value=v)) if v == (LOW + 1) * 16:
            return whole(r, e.a, depth + 1)
        case n.Binary(op="mul", a=n.Binary(op="mod", a=n.Binary(op="floordiv", a=inner, b=n.Const(value=d)), b=n.Const(value=m)), b=n.Const(value=f)):
            if d == f and int(d) * int(m) == (LOW + 1) * 16 and r.numbers.divides(inner, int(d).bit_length() - 1):
                return whole(r, inner, depth + 1)
    return e


def _is_cut(e: n.Expr) -> bool:
    return isinstance(e, n.Binary) and e.op in ("mod", "mul")


def described(r: Machine, o: Operand, of: DType, depth: int, width: int, minor: bool) -> n.Region:
    """The matrix that a descriptor names: `width` rows or columns by `depth`, `minor` where those are contiguous rather than k."""
    held = r.held(o)
    if isinstance(held, Pointer):
        raise r.refuse("a descriptor that is an address")
    units, bits = split(r.numbers, r.value(o, Kind(I64)))
    code, group, panel = bits >> 62 & 3, (bits >> 32 & LOW) << 4, (bits >> 16 & LOW) << 4
    if code not in SPANS or bits >> 46 & 0xFFFF & ~0xC000:
        raise r.refuse("a matrix of wgmma without a swizzle, or that begins inside one")
    span, size = SPANS[code], of.bytes
    if group != 8 * span:
        raise r.refuse(f"groups of eight rows {group} bytes apart, where rows have {span}")
    place = r.in_shared(_bytes(r, units))
    if place is None:
        raise r.refuse("a matrix of wgmma in one of several shared arrays")
    own, at = place[0], r.numbers.summed(place[1])
    if r.origins and own.align < 8 * span:
        raise r.refuse("a matrix of wgmma in a shared array that begins inside eight of its rows")
    row = r.numbers.within(_cut(r, at, span), span.bit_length() - 1)
    column = build.sub(at, _cut(r, at, span))
    if not isinstance(column, n.Const) or int(column.value) % size:
        raise r.refuse("a matrix of wgmma that begins inside a row, at a place that is not known")
    col = int(column.value) // size
    if not minor:
        b = own.matrix(of, span, 0, True)
        return build.region(b, build.span(row, width), build.span(build.const(col), depth))
    if width * size <= span:
        b = own.matrix(of, span, 0, True)
        return build.region(b, build.span(row, depth), build.span(build.const(col), width))
    if col or width * size % span or panel % span or not panel:
        raise r.refuse(f"panels of columns {panel} bytes apart")
    rows = panel // span
    terms = dict(build.polynomial(r.numbers.summed(row)))
    start = terms.pop((), 0)
    rest = build.from_polynomial(terms, I32)
    first = _whole(r, rest, rows)
    if first is None and start % depth == rows % depth == rows & (rows - 1) == 0 and r.numbers.divides(rest, depth.bit_length() - 1):
        b, whole = own.matrix(of, span, panel, True), build.add(rest, start)  # steps of so many rows keep to a panel
        panels = build.span(build.floordiv(whole, rows), width * size // span)
        return build.region(b, panels, build.span(build.mod(whole, rows), depth), build.span(build.const(0), span // size))
    if first is None or rows % 8:
        raise r.refuse(f"panels of {rows} rows that begin at a place that is not known")
    inside = start % rows
    origin = 0 if inside + depth <= rows else inside // 8 * 8
    if inside - origin + depth > rows:
        raise r.refuse(f"a matrix of {depth} rows in panels of {rows}")
    b = own.matrix(of, span, panel, True, origin * span)
    first = build.add(first, start // rows)
    return build.region(b, build.span(first, width * size // span), build.span(build.const(inside - origin), depth), build.span(build.const(0), span // size))


def _whole(r: Machine, e: n.Expr, rows: int) -> n.Expr | None:
    """A number of rows as one of panels; None where it may be no whole number of them."""
    if rows & (rows - 1) == 0:
        return r.numbers.quotient(e, rows.bit_length() - 1) if r.numbers.divides(e, rows.bit_length() - 1) else None
    terms = build.polynomial(e)
    if any(c % rows for c in terms.values()):
        return None
    return build.from_polynomial({k: c // rows for k, c in terms.items()}, I32)


def _cut(r: Machine, at: n.Expr, span: int) -> n.Expr:
    """The start of the row that an address lies in, where its constant part alone decides its place in the row."""
    terms = dict(build.polynomial(r.numbers.summed(at)))
    constant = terms.pop((), 0)
    rest = build.from_polynomial(terms, I32)
    if terms and not r.numbers.divides(rest, span.bit_length() - 1):
        raise r.refuse("a matrix of wgmma that begins inside a row, at a place that is not known")
    return build.add(rest, constant - constant % span)


HANDLERS: dict[str, Handler] = {"wgmma": _wgmma}
