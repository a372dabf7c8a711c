"""One spelling for what can be written in several ways: the structural half of the normal form.

Loops start at 0 and step by 1 (or from the CTA's number by the grid's size); reductions, scans and sorts stand in lets of their own;
integer index arithmetic is written out where it is used, except divisions, which keep their name, and which shifts and masks of indices
are spelled as; new tile axes are introduced at the leaves of an expression; a fragment that only takes over another one, and a name for a
fragment that no longer changes, vanish.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.analysis.access import may_write
from kir.analysis.elements import NotElementwise, canonical_tile, element, element_region, tile, tile_place
from kir.analysis.loops.reductions import OPS
from kir.analysis.normal.bit_indices import divided
from kir.analysis.normal.merged_copies import one_move_each
from kir.analysis.normal.vectors import put_together, side_by_side
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, once, substitute, substitute_buffers, transform, updated, walk

COLLECTIVE = frozenset({"reduce", "scan", "sort"})
ONE = frozenset({"sum", "prod", "max", "min", "max_nan", "min_nan", "and", "or", "xor"})
"""Reductions of one value that are that value."""
MOST_TERMS = 128
"""Terms of a sum that is written out where it is used: a longer one keeps its name, such as that of a loop that is written out."""
DIVISIONS = frozenset({"floordiv", "mod", "tdiv", "trem", "ceildiv", "min", "max"})


def spell(program: n.Program) -> n.Program:
    """The program in the one spelling; idempotent."""
    program = _named_folds(program)
    taken = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces} | {m.name for m in program.metas}
    return replace(program, kernels=tuple(_Speller(divided(k, taken), taken).kernel() for k in program.kernels))


def _named_folds(program: n.Program) -> n.Program:
    """The program with reductions and scans by a function that is one operation on its two values under that operation's name."""
    ops = {f.name: op for f in program.functions if (op := _operation(f)) is not None}
    if not ops:
        return program

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Call) and new.fn in ("reduce", "scan") and dict(new.attrs).get("combine") in ops):
            return new
        attrs: dict[str, n.Attr] = {"op" if k == "combine" else k: ops[str(v)] if k == "combine" else v for k, v in new.attrs}
        return replace(new, attrs=n.attrs(**attrs))
    made: n.Program = transform(program, leave)
    used = {str(v) for x in walk(made) if isinstance(x, n.Call) for v in (x.fn, *(v for k, v in x.attrs if k == "combine"))}
    return replace(made, functions=tuple(f for f in made.functions if f.name not in ops or f.name in used))


def _operation(f: n.Function) -> str | None:
    """The reduction that folds by a function, where it is one operation on its two parameters."""
    result = f.body[0].values[0] if len(f.body) == 1 and isinstance(f.body[0], n.Jump) and len(f.body[0].values) == 1 else None
    if not (isinstance(result, n.Binary) and len(f.params) == 2 and {result.a, result.b} == set(f.params)):
        return None
    return next((r for r, b in OPS.items() if b == result.op), None)


class _Speller:
    def __init__(self, kernel: n.Kernel, taken: set[str]) -> None:
        self.of = kernel
        self.header = taken
        self.taken = taken | {a.name for a in kernel.grid} | set(bound_names(kernel.body))

    def fresh(self, base: str) -> str:
        name, i = base, 0
        while name in self.taken:
            i += 1
            name = f"{base}_{i}"
        self.taken.add(name)
        return name

    def kernel(self) -> n.Kernel:
        return replace(self.of, body=self.block(self.of.body))

    def block(self, block: n.Block) -> n.Block:
        out: list[n.Stmt] = []
        values: dict[str, n.Expr] = {}
        for s in put_together(block, self.fresh):
            for made in self.stmt(_inlined(s, values) if values else s):
                if isinstance(made, n.Let) and len(made.names) == 1 and is_index_arithmetic(made.value, self.header) and (
                        len(build.polynomial(made.value)) <= MOST_TERMS):
                    values[made.names[0]] = made.value
                else:
                    out.append(made)
        return settled(tuple(out))

    def stmt(self, s: n.Stmt) -> Iterator[n.Stmt]:
        match s:
            case n.For() if s.kind in ("serial", "pipelined", "unroll") and not self.is_canonical(s):
                yield from one_move_each(self.unit_step(s), self.fresh)
            case n.For():
                yield from one_move_each(updated(s, body=self.block(s.body)), self.fresh)
            case n.While():
                yield updated(s, body=self.block(s.body))
            case n.If():
                yield updated(s, then=self.block(s.then), orelse=self.block(s.orelse))
            case n.Roles():
                yield updated(s, roles=tuple(updated(r, body=self.block(r.body)) for r in s.roles))
            case n.Let() | n.Store() | n.Mma() | n.Copy() | n.Alloc():
                hoisted: list[n.Stmt] = []
                made = self.hoist(s, hoisted)
                yield from hoisted
                yield _canonical(made)
            case _:
                yield s

    def is_canonical(self, s: n.For) -> bool:
        """Whether a loop counts from 0 by 1, or takes every grid-size-th step from the CTA's own (a persistent schedule); or is unsigned and starts
        later, so that the length of what may be empty would wrap (where the bounds are known to fit, `kir.analysis.normal.unsigned` makes them signed)."""
        if build.is_const(s.lo, 0) and build.is_const(s.step, 1):
            return True
        if dtype_of(s.var.type).kind == "uint" and not (build.is_const(s.lo, 0) or (isinstance(s.lo, n.Const) and isinstance(s.hi, n.Const))):
            return True
        return any(isinstance(s.lo, n.Var) and s.lo.name == a.name and s.step == a.extent for a in self.of.grid)

    def unit_step(self, s: n.For) -> n.For:
        step = build.int_value(s.step)
        if not step:
            return replace(s, body=self.block(s.body))
        dtype = dtype_of(s.var.type)
        name = s.var.name if step == 1 else self.fresh(f"{s.var.name}_tile")
        var = n.Var(name, s.var.of)
        at = build.add(s.lo, build.mul(var, build.const(step, dtype)))
        count = trips(build.sub(s.hi, s.lo), step) if step > 0 else trips(build.sub(s.lo, s.hi), -step)
        body = substitute(replace(s, lo=build.const(0, dtype), hi=build.const(0, dtype)), {s.var.name: at}).body
        return replace(s, var=var, lo=build.const(0, dtype), hi=count, step=build.const(1, dtype), body=self.block(body))

    def hoist(self, s: n.Stmt, before: list[n.Stmt]) -> n.Stmt:
        """`s` with each reduction, scan or sort inside it named by a let in `before`."""
        root = s.value if isinstance(s, n.Let) else None
        if not once(s, "_collects", lambda: any(isinstance(x, n.Call) and x.fn in COLLECTIVE and x is not root for x in walk(s))):
            return s

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Call) and new.fn in COLLECTIVE and old is not root:
                name = self.fresh(str(dict(new.attrs).get("op", new.fn)))
                before.append(_canonical(n.Let((name,), new, origin=s.origin)))
                return n.Var(name, new.type)
            return new
        made: n.Stmt = transform(s, leave)
        return made


def settled(block: n.Block) -> n.Block:
    """The block without fragments that only take over another one, without names for fragments that no longer change, and without names
    for tiles of one literal (those of one scalar are named as the scalar); a fragment that is filled with one at once is declared with it."""
    out: list[n.Stmt] = []
    declared: dict[str, n.Buffer] = {}
    rest: list[n.Stmt] = list(block)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Alloc) and isinstance(s.init, n.Load) and not s.init.at.index and _same_memory(s.buffer, declared.get(s.init.at.buffer.name)):
            old = s.init.at.buffer
            if not any(old.name in buffers_named(r) for r in rest):
                rest = [substitute_buffers(r, {s.buffer.name: old}) if s.buffer.name in buffers_named(r) else r for r in rest]
                continue
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Load) and s.value == n.Load(s.value.at) and not s.value.at.index:
            source = s.value.at.buffer
            if source.space in ("fragment", "register") and not may_write(tuple(rest), source.name):
                rest = [_inlined(r, {s.names[0]: s.value}) for r in rest]
                continue
        if isinstance(s, n.Let) and len(s.names) == 1 and _constant_tile(s.value):
            rest = [_inlined(r, {s.names[0]: s.value}) for r in rest]
            continue
        if isinstance(s, n.Let) and len(s.names) == 1 and (kept := _kept_axis(s.value)) is not None:
            s = replace(s, value=kept[0])
            rest = [_inlined(r, {s.names[0]: build.expand(n.Var(s.names[0], kept[0].type), kept[1])}) for r in rest]
        if isinstance(s, n.Let) and len(s.names) == 1 and (one := _scalar_of(s.value)) is not None:
            tile = replace(s.value, args=(n.Var(s.names[0], one.type), *s.value.args[1:]))  # type: ignore[type-var,attr-defined]  # a call
            rest = [_inlined(r, {s.names[0]: tile}) for r in rest]
            s = replace(s, value=one)
        if isinstance(s, n.Alloc):
            at = _first_mention(rest, s.buffer.name) if s.init is None else None
            if at is not None and isinstance(first := rest[at], n.Store) and first.at == n.Region(s.buffer) and first.mask is None and (
                    _constant_tile(first.value)):
                s, rest = replace(s, init=first.value), [*rest[:at], *rest[at + 1:]]
            declared[s.buffer.name] = s.buffer
        out.append(s)
    return tuple(out)


def _first_mention(block: list[n.Stmt], name: str) -> int | None:
    """The first statement in which a buffer is named, or may be: what is not understood names any."""
    return next((i for i, s in enumerate(block) if name in buffers_named(s) or _names_any(s)), None)


def _names_any(s: n.Stmt) -> bool:
    return once(s, "_names_any", lambda: any(isinstance(x, (n.Opaque, n.Hole)) for x in walk(s)))


def _kept_axis(e: n.Expr) -> tuple[n.Expr, int] | None:
    """The reduction without the axis along which one that keeps it has one element, and that axis."""
    options = dict(e.attrs) if isinstance(e, n.Call) and e.fn == "reduce" else {}
    if not (isinstance(e, n.Call) and options.pop("keep", False)) or len(shape_of(e.type)) < 2:
        return None
    return build.call_with("reduce", e.args, n.attrs(**options)), int(options["axis"])


def _without_single(s: n.Store) -> n.Store:
    """A store of a tile to places that are named one by one, without axes of one element."""
    shape = shape_of(s.at.type)
    if 1 not in shape or len(shape) < 2 or any(isinstance(i, n.Span) for i in s.at.index):
        return s
    axes = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape) if d != 1]
    at = [n.Var(f"%{k}", I32) if d != 1 else build.const(0) for k, d in enumerate(shape)]

    def narrow(e: n.Expr) -> n.Expr:
        own = at[len(at) - len(shape_of(e.type)):]
        return tile(element(e, own), axes, False) if own else e
    try:
        place = tile_place(element_region(s.at, at), axes)
        return s if place is None else replace(s, at=place, value=narrow(s.value), mask=None if s.mask is None else narrow(s.mask))
    except NotElementwise:
        return s


def _scalar_of(e: n.Expr) -> n.Expr | None:
    """The scalar that every element of a tile is."""
    if isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(one := e.args[0], n.Expr) and not isinstance(one.type, TileType):
        return one if shape_of(e.type) else None
    return None


def _constant_tile(e: n.Expr) -> bool:
    """Whether a value is one literal in every element of a tile."""
    return isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(e.args[0], n.Const) and bool(shape_of(e.type))


def _same_memory(a: n.Buffer, b: n.Buffer | None) -> bool:
    return b is not None and a.space in ("fragment", "register") and replace(a, name="") == replace(b, name="")


def trips(span: n.Expr, step: int) -> n.Expr:
    """How many steps a loop over a span takes; exact where the step divides every term (loop bounds do not wrap)."""
    terms = build.polynomial(span)
    if all(c % step == 0 for c in terms.values()):
        return build.from_polynomial({m: c // step for m, c in terms.items()}, dtype_of(span.type))
    return build.ceildiv(span, step)


def is_index_arithmetic(e: n.Expr, header: set[str]) -> bool:
    """Integer or boolean sums, products, comparisons and casts of names, literals and iotas; and divisions, when they are of whole
    tiles or of nothing but names of the program's header."""
    d = dtype_of(e.type)
    if not (d.is_integer or d.is_bool):
        return False
    match e:
        case n.Const():
            return True
        case n.Var():
            return True
        case n.Unary():
            return is_index_arithmetic(e.x, header)
        case n.Cast():
            return is_index_arithmetic(e.x, header)
        case n.Binary():
            divides = e.op in DIVISIONS and not isinstance(e.type, TileType) and not names_read(e) <= header
            return not divides and is_index_arithmetic(e.a, header) and is_index_arithmetic(e.b, header)
        case n.Call():
            shaping = e.fn in ("iota", "expand", "broadcast", "reshape", "trans", "multiple_of", "max_contiguous", "max_constancy")
            return shaping and all(is_index_arithmetic(a, header) for a in e.args if isinstance(a, n.Expr))
        case _:
            return False


def _inlined(s: n.Stmt, values: dict[str, n.Expr]) -> n.Stmt:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Var) and new.name in values:
            return values[new.name]
        if isinstance(new, n.Call) and new.fn == "pick" and isinstance(old, n.Call) and isinstance(old.args[0], n.Var) and old.args[0].name in values:
            try:
                return element(values[old.args[0].name], [a for a in new.args[1:] if isinstance(a, n.Expr)])
            except NotElementwise:
                return new
        return new
    made: n.Stmt = transform(s, leave, lambda x: not values.keys().isdisjoint(names_read(x)))
    return made


def _stretched(value: n.Expr, at: n.Region) -> n.Expr:
    """What is stored, with the shape of its place where it is the same along an axis; a literal stays one."""
    if isinstance(value, n.Const) or not isinstance(at.type, TileType):
        return value
    return value if shape_of(value.type) == shape_of(at.type) else build.broadcast(value, at.type)


def _canonical(s: n.Stmt) -> n.Stmt:
    """Tile values with their axes at the leaves."""
    match s:
        case n.Let() if isinstance(s.value.type, TileType) or (isinstance(s.value, n.Call) and s.value.fn in COLLECTIVE):
            return updated(s, value=_spelled(s.value))
        case n.Store():
            s = _without_single(s)
            return updated(s, value=_stretched(_spelled(s.value), s.at), mask=None if s.mask is None else _spelled(s.mask))
        case n.Alloc(init=n.Call(fn="broadcast", args=(n.Expr() as value, *_))) if not shape_of(value.type):
            return replace(s, init=value)
        case n.Mma():
            return _exact_product(updated(s, a=_spelled(s.a), b=_spelled(s.b)))
        case _:
            return s


def _exact_product(s: n.Mma) -> n.Mma:
    """A product of narrow floats that were widened to f32 is one of the narrow ones by scalars: widening is exact."""
    a, b = s.a, s.b
    if s.precision == "ieee" and s.via in ("auto", "fma") and not s.pending and isinstance(a, n.Cast) and isinstance(b, n.Cast):
        narrow = dtype_of(a.x.type)
        if a.dtype.name == b.dtype.name == "f32" and narrow == dtype_of(b.x.type) and narrow.name in ("f16", "bf16"):
            return replace(s, a=a.x, b=b.x, via="fma")
    return s


def _of_rows(e: n.Call) -> n.Expr | None:
    """The reduction of one row that is repeated once, as that of the row, repeated, and over what is repeated once as that; None for others."""
    rows, options = e.args[0], dict(e.attrs)
    if not (len(e.args) == 1 and isinstance(rows, n.Call) and rows.fn == "broadcast" and isinstance(rows.args[0], n.Expr) and not options.get("keep")):
        return None
    row = rows.args[0]
    whole, own = shape_of(rows.type), shape_of(row.type)
    axis = options["axis"]
    if whole == (1, *own) and axis == 0 and row.type == e.type and options.get("op") in ONE:
        return row
    if whole != (1, *own) or not own or not isinstance(axis, int) or axis < 1:
        return None
    inner = build.call_with("reduce", (row,), n.attrs(**{**options, "axis": axis - 1}))
    return build.call("broadcast", inner, *(build.const(d) if isinstance(d, int) else d for d in (1, *shape_of(inner.type))))


def _spelled(e: n.Expr) -> n.Expr:
    if isinstance(e, n.Call) and e.fn == "vec":
        return side_by_side(e)
    if isinstance(e, n.Call) and e.fn == "reduce" and (made := _of_rows(e)) is not None:
        return made
    if isinstance(e, n.Call) and e.fn in COLLECTIVE:
        return replace(e, args=tuple(_spelled(a) if isinstance(a, n.Expr) else a for a in e.args))
    return canonical_tile(e) if shape_of(e.type) else e
