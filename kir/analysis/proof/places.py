"""Memory: which a name means, what a kernel only reads, and which addresses wide copies need."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from kir.analysis.access import Aliases, buffers_written
from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.sites import PRIVATE
from kir.analysis.proof.values import FALSE, TRUE, Env, Val, Values, compared, either, extent, root, wide, within
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64, DType, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, statements, walk

MOST_TRIPS, MOST_STATEMENTS = 8, 6
"""Of a loop whose trips are walked one by one."""


def read_only(program: n.Program, kernel: n.Kernel) -> frozenset[str]:
    """Tensors that are given and that a kernel, with all that may be another name for them, does not write."""
    return frozenset(p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role == "in" and not may_be_written(program, kernel, p.name))


def may_be_written(program: n.Program, kernel: n.Kernel, buffer: str) -> bool:
    """Whether a kernel may write a buffer, or what may be another name for it."""
    aliases = Aliases(program)
    return any(aliases.may_be_one(buffer, w) for w in buffers_written(kernel.body))


def space(name: str, program: n.Program) -> str:
    """Where memory of that name lies: `global` for what the program is given."""
    given = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
    return "global" if name in given else "shared"


def declared(name: str, program: n.Program, kernel: n.Kernel) -> DType:
    """The dtype of a buffer of a kernel."""
    return next(s.buffer.dtype for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.name == name)


def changed(s: n.Stmt, env: Env) -> set[str]:
    """The private memory that a statement writes, through views too."""
    names: set[str] = set()
    for x in walk(s):
        match x:
            case n.Store():
                names.add(x.at.buffer.name)
            case n.Copy():
                names.add(x.dst.buffer.name)
            case n.Mma():
                names.add(x.acc.buffer.name)
            case n.Call():
                names |= {a.buffer.name for a in x.args if isinstance(a, n.Region)}
            case _:
                pass
    names |= {root(name, env.views) for name in names}
    views = {x.buffer.name: x.at.buffer.name for x in walk(s) if isinstance(x, n.View)}
    for name in tuple(names):
        while name in views:
            name = views[name]
            names.add(name)
    return {name for name in names if name in env.memory}


def few_trips(s: n.For, lo: n.Expr, hi: n.Expr, env: Env) -> range | None:
    """The trips of a loop that are walked one by one: few, of statements that compute with registers and lanes alone, and leave it nowhere. One that makes
    elements of a private array of each other (`v[k] += v[k - 1]`) may do so under conditions, and read global memory, too."""
    first, last, step = int_value(lo), int_value(hi), int_value(s.step)
    if first is None or last is None or not step or not 0 < len(range(first, last, step)) <= MOST_TRIPS or len(s.body) > MOST_STATEMENTS:
        return None
    own = {x.buffer.name for x in s.body if isinstance(x, n.Alloc) and x.buffer.space in ("register", "fragment")} | env.memory.keys()
    written = {x.at for x in walk(s) if isinstance(x, n.Store)}
    chained = any(isinstance(x, n.Load) and x.at.buffer.name in env.memory and x.at not in written and any(x.at.buffer == w.buffer for w in written)
                  for x in walk(s))
    for x in walk(s):
        if isinstance(x, n.Stmt) and x is not s and not isinstance(x, (n.Let, n.Alloc, n.Store, *((n.If,) if chained else ()))):
            return None
        outside = isinstance(x, n.Region) and x.buffer.name not in own and not (
            chained and x.buffer.space == "global" and not any(x.buffer == w.buffer for w in written))
        if isinstance(x, n.Region) and (outside or x.buffer.name in env.views):
            return None
        if isinstance(x, n.Call) and (x.of is not None or (not instruction(x.fn).is_pure and instruction(x.fn).level != "warp")):
            return None
    return range(first, last, step)


def counted(s: n.For | n.While, name: str) -> int:
    """The number that is added to a scalar register in each trip of a loop that another one follows, where one store alone changes it; 0 where none is."""
    store = _each_trip(s, name)
    by = build.sub(store.value, build.load(store.at)) if store is not None else None
    return (int_value(by) or 0) if by is not None else 0


def alternating(s: n.For | n.While, name: str, first: n.Expr) -> int | None:
    """The sum of the two values that a scalar register has by turns, where one store alone changes it in each trip that another one follows: `first` and what
    that is made (`1 - p`, or of a number `p ^ 1` and others that lead back to it). None where it does something else."""
    store = _each_trip(s, name)
    if store is None:
        return None
    load, value = build.load(store.at), int_value(first)
    total = int_value(build.add(store.value, load))
    if total is not None or value is None:
        return total
    other = _at(store.value, load, value)
    return value + other if other is not None and _at(store.value, load, other) == value else None


def _at(e: n.Expr, load: n.Expr, value: int) -> int | None:
    """What whole numbers come to where a load gives a number."""
    match e:
        case n.Load() if e == load:
            return value
        case n.Const():
            return int_value(e)
        case n.Binary():
            a, b = _at(e.a, load, value), _at(e.b, load, value)
            return int_value(build.binary(e.op, const(a, dtype_of(e.a.type)), const(b, dtype_of(e.b.type)))) if a is not None and b is not None else None
        case _:
            return None


def _each_trip(s: n.For | n.While, name: str) -> n.Store | None:
    """The one statement of a loop that changes a scalar register of whole numbers, where each trip that another one follows comes to it."""
    at = [k for k, x in enumerate(s.body) if isinstance(x, n.Store) and x.at.buffer.name == name]
    others = sum(_writes(x, name) for x in statements(s.body))
    if len(at) != 1 or others != 1 or any(isinstance(x, n.Jump) and x.kind == "continue" for x in statements(s.body[:at[0]])):
        return None
    store = s.body[at[0]]
    assert isinstance(store, n.Store)
    plain = not store.at.index and store.mask is None and isinstance(store.value.type, DType) and store.value.type.is_integer
    return store if plain else None


def _writes(s: n.Stmt, name: str) -> bool:
    """Whether a statement, but for those inside of it, may write memory of that name."""
    match s:
        case n.Store():
            return s.at.buffer.name == name
        case n.Copy():
            return s.dst.buffer.name == name
        case n.Mma():
            return s.acc.buffer.name == name
        case n.Let() | n.Eval():
            return any(isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.name == name for a in x.args) for x in walk(s))
        case n.View():
            return s.at.buffer.name == name
        case n.For() | n.While() | n.If() | n.Roles() | n.Jump() | n.Alloc():
            return False
        case _:
            return True


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


def copy_aligned(values: Values, s: n.Copy, env: Env) -> Iterator[tuple[str, n.Expr | None, tuple[Holding, ...]]]:
    """Conditions on the addresses of a copy that moves several elements at once: what, the condition, and what holds; None for what is not followed."""
    width = width_of(s)
    if s.via in ("tma", "bulk"):
        for r in (s.src.at, s.dst):
            if s.via == "bulk" and not whole_units(r, 16):
                yield f"whether a bulk copy of '{r.buffer.name}' moves a multiple of 16 bytes", None, ()
            if s.via == "bulk" or r.buffer.space == "shared":
                first = first_at(values, r, 16 if s.via == "bulk" or r.buffer.layout is not None else 128, env)
                yield (f"where '{r.buffer.name}' begins" if first is None else f"{s.via} of '{r.buffer.name}'"), first, ()
        return
    if width is None:
        if s.via not in ("plain", "vector(1)"):
            yield f"copies by {s.via.partition('(')[0]} of such shapes", None, ()
        return
    for r, clip in ((s.src.at, s.src.clip), (s.dst, s.clip)):
        if r.buffer.space in PRIVATE:
            continue
        told = aligned(values, r, width, env, clip)
        if told is None:
            yield f"where '{r.buffer.name}' begins, and how it is laid out", None, ()
        for condition, held in told or ():
            yield f"{s.via} of '{r.buffer.name}'", condition, held


def at_once(values: Values, r: n.Region, env: Env, mask: n.Expr | None) -> list[tuple[n.Expr, tuple[Holding, ...]]]:
    """That neighbors which a thread touches with one access, 2, 4, 8 or 16 of them and 16 bytes at most, begin at a multiple of their size. Those with
    conditions of their own are touched one by one, and so are those of a view that says where each element is, and of a layout that parts them."""
    shape = shape_of(r.type) if r.index else ()
    count = int_value(extent(shape[-1])) if shape else None
    if count not in (2, 4, 8, 16) or any(d != 1 for d in shape[:-1]) or r.buffer.space in PRIVATE or (mask is not None and isinstance(mask.type, TileType)):
        return []
    width = (count or 1) * r.buffer.dtype.bytes
    return (aligned(values, r, width, env, False) or []) if width <= 16 else []


def aligned(values: Values, r: n.Region, width: int, env: Env, clip: bool) -> list[tuple[n.Expr, tuple[Holding, ...]]] | None:
    """That each group of neighbors of `width` bytes begins at a multiple of it, and that an edge cuts none; None where that is not known how to say."""
    b, size = r.buffer, r.buffer.dtype.bytes
    shape = shape_of(r.type)
    chunk = max(1, width // size)
    last = shape[-1] if shape else 1
    given = not r.index or (isinstance(r.index[-1], n.Span) and r.index[-1].step == 1)
    begin = begins(values, b, width, env)
    if begin is None or not isinstance(last, int) or last % chunk or not given:
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
    if not build.is_const(begin, 0):  # what is before it and the index may make up a multiple together
        whole = build.add(begin, build.mul(_flat(index, inner), const(size, I64)))
        return [(compared("eq", build.mod(whole, const(width, I64)), const(0, I64)), tuple(held))]
    out: list[tuple[n.Expr, tuple[Holding, ...]]] = [
        (_multiple_term(i, b, k, chunk), tuple(held)) for k, i in enumerate(index) if k < len(index) - 1 or int_value(i) != 0]
    if clip:
        out.append((compared("le", build.add(wide(index[-1]), const(chunk, I64)), wide(b.shape[-1])), tuple(held)))
    return out


def begins(values: Values, b: n.Buffer, width: int, env: Env) -> n.Expr | None:
    """Where memory begins, in bytes from a multiple of `width`, through the views that it is one of: 0 at such a multiple. None where a view says of
    each element where it is, or what it shows is laid out otherwise than row by row. Shared memory begins at a multiple of what it declares, if that is
    less, and at no more."""
    offset: n.Expr = const(0, I64)
    while b.name in env.views:
        view = env.views[b.name]
        b, inner = view.at.buffer, strides(view.at.buffer)
        if view.axes or inner is None or (b.layout is not None and not _keeps(b.layout, width)):
            return None
        if view.at.index:
            index, _ = values.place(view.at, env)(tuple(const(0) for _ in shape_of(view.at.type)))
            offset = build.add(offset, build.mul(_flat(index, inner), const(b.dtype.bytes, I64)))
    if b.space == "shared" and 0 < b.align < width:
        offset = build.add(offset, const(b.align, I64))
    known = int_value(offset)
    return const(0, I64) if known is not None and known % width == 0 else offset


def through(values: Values, view: n.View, index: Sequence[n.Expr], env: Env) -> tuple[n.Expr, ...]:
    """Where an element of a view is that says of each where it is."""
    for axis, i in zip(view.axes, index, strict=True):
        env = env.naming(axis, Val((), lambda _, i=i: (i, TRUE)))  # type: ignore[misc]  # bound at once
    return values.place(view.at, env)(())[0]


def in_line(values: Values, view: n.View, index: Sequence[n.Expr], env: Env) -> tuple[n.Buffer, tuple[n.Expr, ...]] | None:
    """Of a view of the same elements, row by row on both sides: the memory that it shows as one line, and the index in it. None for others."""
    own, shown = view.buffer, view.at.buffer
    if own.dtype != shown.dtype or any(b.layout is not None or b.strides is not None for b in (own, shown)):
        return None
    at, _ = values.place(view.at, env)(tuple(const(0) for _ in shape_of(view.at.type))) if view.at.index else ((), TRUE)
    first = _flat(at, build.row_major(shown.shape)) if view.at.index else const(0, I64)
    if len(shown.shape) == 1:
        return shown, (build.add(first, _flat(index, build.row_major(own.shape))),)
    whole: n.Expr = const(1)
    for d in shown.shape:
        whole = build.mul(whole, d)
    return n.Buffer(shown.name, shown.dtype, (whole,), shown.space, align=shown.align), (build.add(first, _flat(index, build.row_major(own.shape))),)


def stays(view: n.View, program: n.Program, kernel: n.Kernel) -> bool:
    """Whether a view lies at one place for all that may be compared through it: for all CTAs, or, of shared memory, for all threads of one."""
    known = {p.name for p in program.params} | ({a.name for a in kernel.grid} if view.buffer.space == "shared" else set())
    where = (*(i.lo if isinstance(i, n.Span) else i for i in view.at.index), *view.buffer.shape, *view.at.buffer.shape)
    return all(names_read(e) <= known for e in where)


def _flat(index: Sequence[n.Expr], by: tuple[n.Expr, ...]) -> n.Expr:
    """The number of an element."""
    offset: n.Expr = const(0, I64)
    for i, each in zip(index, by, strict=True):
        offset = build.add(offset, build.mul(wide(i), wide(each)))
    return offset


def first_at(values: Values, r: n.Region, width: int, env: Env) -> n.Expr | None:
    """That a region of memory that lies row by row begins at a multiple of so many bytes; None where that is not known how to say."""
    begin, inner = begins(values, r.buffer, width, env), strides(r.buffer)
    if begin is None or inner is None:
        return None
    index, _ = values.place(r, env)(tuple(const(0) for _ in shape_of(r.type)))
    offset = build.add(begin, build.mul(_flat(index, inner), const(r.buffer.dtype.bytes, I64)))
    return compared("eq", build.mod(offset, const(width, I64)), const(0, I64))


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
