"""Memory: which a name means, what a kernel only reads, which addresses wide copies need; and indices of CTAs in an order of their own.

A grid that is taken apart into groups of tiles by divisions by sizes is beyond the solver in one step, and within it in several: facts of divisions, and
parts of two indices that are equal where the indices are, each proved before it is used.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kir.analysis.access import Aliases, buffers_written
from kir.analysis.proof.question import Holding, Ranging
from kir.analysis.proof.values import FALSE, Env, Values, compared, either, extent, wide, within
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64, DType, dtype_of, shape_of
from kir.ir.visit import names_read, statements, walk

MOST_DIVISIONS, MOST_PARTS = 8, 10
Asked = Callable[[tuple[Holding, ...], n.Expr], bool]


def read_only(program: n.Program, kernel: n.Kernel) -> frozenset[str]:
    """Tensors that are given and that a kernel, with all that may be another name for them, does not write."""
    wrote, aliases = buffers_written(kernel.body), Aliases(program)
    given = [p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role == "in"]
    return frozenset(name for name in given if not any(aliases.may_be_one(name, w) for w in wrote))


def space(name: str, program: n.Program) -> str:
    """Where memory of that name lies: `global` for what the program is given."""
    given = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
    return "global" if name in given else "shared"


def declared(name: str, program: n.Program, kernel: n.Kernel) -> DType:
    """The dtype of a buffer of a kernel."""
    return next(s.buffer.dtype for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.name == name)


def width_of(s: n.Copy) -> int | None:
    """Bytes that a copy moves at once; None where that is not a number of its own."""
    size, vector = s.dst.buffer.dtype.bytes, dict(s.attrs).get("vector")
    if s.via.startswith("vector("):
        return int(s.via[7:-1]) * size
    if s.via in ("ldmatrix", "stmatrix"):
        return 16
    if s.via == "cp_async":
        if isinstance(vector, int):
            return vector * size
        shape = shape_of(s.dst.type)
        return int(shape[-1]) * size if len(shape) == 1 and isinstance(shape[-1], int) and shape[-1] * size in (4, 8, 16) else None
    return None


def whole_units(r: n.Region, width: int) -> bool:
    """Whether the innermost rows of a region are known to be whole multiples of `width` bytes."""
    shape = shape_of(r.type)
    return bool(shape) and isinstance(shape[-1], int) and shape[-1] * r.buffer.dtype.bytes % width == 0


def strides(b: n.Buffer) -> tuple[n.Expr, ...] | None:
    """Elements from one index to the next, axis by axis."""
    if b.strides is not None:
        return b.strides
    return build.row_major(b.shape)


def aligned(values: Values, r: n.Region, width: int, env: Env, clip: bool) -> list[tuple[n.Expr, tuple[Holding, ...]]] | None:
    """That each group of neighbors of `width` bytes begins at a multiple of it, and that an edge cuts none; None where that is not known how to say."""
    b, size = r.buffer, r.buffer.dtype.bytes
    shape = shape_of(r.type)
    chunk = max(1, width // size)
    last = shape[-1] if shape else 1
    given = not r.index or (isinstance(r.index[-1], n.Span) and r.index[-1].step == 1)
    if b.name in env.views or not isinstance(last, int) or last % chunk or not given:
        return None
    if b.layout is not None and not _keeps(b.layout, width):
        return None
    own = [(values.variable("e"), d) for d in shape[:-1]]
    group = values.variable("e")
    held: list[Holding] = [*(Ranging(v, const(0), extent(d)) for v, d in own), Ranging(group, const(0), const(last // chunk))]
    first = build.mul(group, const(chunk))
    index, _ = values.place(r, env)((*(v for v, _ in own), first))
    inner = strides(b)
    if inner is None or int_value(inner[-1]) != 1:
        return None
    if clip:
        held += [within(i, d) for i, d in zip(index, b.shape, strict=True)]
    out: list[tuple[n.Expr, tuple[Holding, ...]]] = [
        (_multiple_term(i, b, k, chunk), tuple(held)) for k, i in enumerate(index) if k < len(index) - 1 or int_value(i) != 0]
    if clip:
        out.append((compared("le", build.add(wide(index[-1]), const(chunk, I64)), wide(b.shape[-1])), tuple(held)))
    return out


def first_at(values: Values, r: n.Region, width: int, env: Env) -> n.Expr | None:
    """That a region of memory that lies row by row begins at a multiple of so many bytes; None where that is not known how to say."""
    if r.buffer.name in env.views:
        return None
    index, _ = values.place(r, env)(tuple(const(0) for _ in shape_of(r.type)))
    offset: n.Expr = const(0, I64)
    inner = strides(r.buffer)
    if inner is None:
        return None
    for i, each in zip(index, inner, strict=True):
        offset = build.add(offset, build.mul(wide(i), wide(each)))
    return compared("eq", build.mod(build.mul(offset, const(r.buffer.dtype.bytes, I64)), const(width, I64)), const(0, I64))


def _multiple_term(i: n.Expr, b: n.Buffer, k: int, chunk: int) -> n.Expr:
    """That what one index adds to an address is a multiple of so many elements, since one of its factors is."""
    factors = [i, *(b.shape[k + 1:] if b.strides is None else (b.strides[k],))]
    out: n.Expr = FALSE
    for f in factors:
        out = either(out, compared("eq", build.mod(f, const(chunk, dtype_of(f.type))), const(0, dtype_of(f.type))))
    return out


def _keeps(layout: n.Layout, width: int) -> bool:
    """Whether a layout leaves so many neighboring bytes together: a swizzle moves units of two to the power of its base."""
    if layout.name != "swizzle" or len(layout.args) != 3:
        return False
    base = layout.args[1]
    return isinstance(base, int) and (1 << base) >= width


# -------------------------------------------------------------------------------------------------------------- divisions

def of_divisions(index: Iterable[n.Expr], ranges: tuple[Ranging, ...], asks: Asked) -> tuple[n.Expr, ...]:
    """What is proved of divisions of the variables that have these ranges: that divisors which are no numbers are at least 1, and that a quotient times its
    divisor is below what the dividend is below."""
    known: list[n.Expr] = []
    inside = {r.var.name: r for r in ranges}
    for d in _divisions(index, set(inside)):
        claims = []
        if isinstance(d.a, n.Var) and d.a.name in inside:
            claims.append(compared("lt", _product(build.floordiv(d.a, d.b), d.b), wide(inside[d.a.name].hi)))
        claims.append(compared("ge", d.b, const(1, dtype_of(d.b.type))))
        claims += _of_rest(d)
        for c in claims:
            if c not in known and asks((*ranges, *known), c):
                known.append(c)
    return tuple(known)


def equal_parts(index: Iterable[n.Expr], renamed: Callable[[n.Expr], n.Expr], holding: tuple[Holding, ...], asks: Asked) -> tuple[n.Expr, ...]:
    """Parts of an index of one execution that are proved to be equal to those of another one, the small ones first."""
    known: list[n.Expr] = []
    left = [e for e in _parts(index) if renamed(e) != e][:MOST_PARTS]
    while left:
        found = [c for e in left if asks((*holding, *known), c := compared("eq", e, renamed(e)))]
        if not found:
            break
        known += found
        left = [e for e in left if compared("eq", e, renamed(e)) not in known]
    return tuple(known)


def _of_rest(d: n.Binary) -> list[n.Expr]:
    """Of the remainder of a division by c * z, divided again by at most c (a last group of tiles is smaller): that the quotient is below z."""
    if d.op != "floordiv" or not isinstance(d.a, n.Binary) or d.a.op != "mod":
        return []
    terms = list(build.polynomial(d.a.b))
    cases = [d.b.a, d.b.b] if isinstance(d.b, n.Binary) and d.b.op == "min" else [d.b]
    out: list[n.Expr] = []
    for z in terms[0] if len(terms) == 1 and len(terms[0]) == 1 else ():
        product = _product(d.b, z)
        same: n.Expr = FALSE
        for c in cases:
            out.append(compared("lt", wide(d.a), _product(c, z)))
            same = either(same, compared("eq", product, _product(c, z)))
        out += [same, compared("lt", wide(d.a), product), compared("lt", _product(d, d.b), product), compared("lt", d, z)]
    return out


def _product(a: n.Expr, b: n.Expr) -> n.Expr:
    """A product of our own, which has room."""
    return build.mul(wide(a), wide(b))


def _divisions(index: Iterable[n.Expr], names: set[str]) -> list[n.Binary]:
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None
             and names_read(x) & names and dtype_of(x.type).is_integer}
    return sorted(found, key=lambda x: found[x])[:MOST_DIVISIONS]


def _parts(index: Iterable[n.Expr]) -> Iterator[n.Expr]:
    """Quotients, remainders and variables that an index is made of, smallest first."""
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if (isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None)
             or isinstance(x, n.Var)}
    return iter(sorted(found, key=lambda x: found[x]))
