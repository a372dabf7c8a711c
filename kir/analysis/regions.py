"""Flat accesses raised to regions: `A_flat[row * K + col]` is `A[row, col]`, and masks that say what a buffer's bounds say become `clip`.

Part of the normal form: `raised` is idempotent. Address arithmetic is exact (it does not wrap), and an access names the element of the
tensor that its row and column say: an index past the end of its own axis is outside the tensor, never an element of the next row.
Hints (`multiple_of`, `max_contiguous`) leave, since they say nothing that facts do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.analysis.facts import Facts
from kir.analysis.narrow import narrowed_lets
from kir.analysis.normal_form import normalize, normalized_again
from kir.analysis.order import is_positive, less
from kir.analysis.unsigned import signed
from kir.analysis.wrapped import unwrapped
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.promote import promoted
from kir.ir.types import I32, DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import statements, transform, updated, walk

ROUNDS = 6
HINTS = frozenset({"multiple_of", "max_contiguous", "max_constancy"})


def raised(program: n.Program) -> n.Program:
    """The program with flat accesses as regions, in normal form."""
    program = normalize(replace(program, kernels=tuple(without_hints(k) for k in program.kernels)))
    for _ in range(ROUNDS):
        before, program = program, normalized_again(program, narrowed_lets(signed(program)))
        if program == before:
            break
    program = normalized_again(program, replace(program, kernels=tuple(_kernel(program, k) for k in program.kernels)))
    made = replace(program, kernels=tuple(unwrapped(program, k) for k in program.kernels))
    made = replace(made, params=tuple(replace(p, attrs=tuple(a for a in p.attrs if a[0] != "exact")) for p in made.params))
    taken = frozenset(p.name for p in made.params)
    return normalized_again(program, replace(made, kernels=tuple(
        updated(k, body=promoted(k.body, taken | {a.name for a in k.grid})) for k in made.kernels)))


def without_hints(k: n.Kernel) -> n.Kernel:
    """The kernel without advice about divisibility."""
    if not any(isinstance(x, n.Call) and x.fn in HINTS for x in walk(k)):
        return k

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return new.args[0] if isinstance(new, n.Call) and new.fn in HINTS else new

    made: n.Kernel = transform(k, leave)
    return made


Views = Mapping[str, n.Buffer]


def _kernel(program: n.Program, k: n.Kernel) -> n.Kernel:
    views = {
        s.buffer.name: s.at.buffer
        for s in k.body
        if isinstance(s, n.View)
        and not s.axes
        and not s.at.index
        and s.buffer.space == "global"
        and len(s.buffer.shape) == 1
        and s.buffer.dtype == s.at.buffer.dtype
    }
    if not views:
        views = {}
    known = Facts.at(program, (k.name,))
    exact = frozenset(p.name for p in program.params if dict(p.attrs).get("exact"))
    return updated(k, body=_Raiser(views, _definitions(k), _loaded(k), exact).block(k.body, known))


def _loaded(k: n.Kernel) -> frozenset[str]:
    """Lets whose values come from memory: nothing is known of their range."""
    out: set[str] = set()
    for s in statements(k.body):
        if isinstance(s, n.Let) and any(
            isinstance(x, n.Load)
            or (isinstance(x, n.Call) and any(isinstance(a, n.Region) for a in x.args))
            or (isinstance(x, n.Var) and x.name in out)
            for x in walk(s.value)
        ):
            out |= set(s.names)
    return frozenset(out)


def _definitions(k: n.Kernel) -> dict[str, n.Expr]:
    """Tile lets of integers, for indices that are named."""
    return {
        s.names[0]: s.value
        for s in statements(k.body)
        if isinstance(s, n.Let)
        and len(s.names) == 1
        and isinstance(s.value.type, TileType)
        and (dtype_of(s.value.type).is_integer or dtype_of(s.value.type).is_bool)
        and not any(isinstance(x, n.Load) or (isinstance(x, n.Call) and x.fn in ("reduce", "scan", "sort")) for x in walk(s.value))
    }


class _Raiser:
    def __init__(self, views: Views, definitions: Mapping[str, n.Expr], loaded: frozenset[str], exact: frozenset[str]) -> None:
        self.views, self.definitions, self.loaded, self.exact = views, definitions, loaded, exact

    def block(self, body: n.Block, known: Facts) -> n.Block:
        out: list[n.Stmt] = []
        for s in body:
            made = self.stmt(s, known)
            out.append(made)
            known = known.after((made,))
        return tuple(out)

    def stmt(self, s: n.Stmt, known: Facts) -> n.Stmt:
        match s:
            case n.For():
                return updated(s, body=self.block(s.body, known.ranging(s.var, s.lo, s.hi, s.step)))
            case n.If():
                return updated(
                    s,
                    cond=self.loads(s.cond, known),
                    then=self.block(s.then, known.knowing(s.cond)),
                    orelse=self.block(s.orelse, known.knowing(build.invert(s.cond))),
                )
            case n.While():
                return updated(s, body=self.block(s.body, known))
            case n.Roles():
                return updated(s, roles=tuple(updated(r, body=self.block(r.body, known)) for r in s.roles))
            case n.Store() if s.at.index and s.at.buffer.space == "global":
                return self.store(updated(s, value=self.loads(s.value, known)), known)
            case n.Copy() if s.via == "tma" and s.src.at.buffer.space == "global" and s.dst.buffer.space == "fragment":
                return self.descriptor_load(s, known)
            case n.Copy() if s.via == "tma" and s.dst.buffer.space == "global" and s.src.at.buffer.space == "fragment":
                return self.descriptor_store(s, known)
            case n.Copy() if (s.via == "plain" or s.via.startswith("vector")) and s.dst.buffer.space == "global" and s.dst.index and not s.clip:
                return self.vectors(updated(s, src=self.loads(s.src, known)), known)
            case n.View() | n.Opaque():
                return s
            case n.Eval() if s.call.fn.startswith("atomic_") and isinstance(s.call.args[0], n.Region):
                made: n.Stmt = self.loads(s, known)
                assert isinstance(made, n.Eval)
                return self.masked(updated(made, call=self.atomic(made.call, known)))
            case _:
                made = self.loads(s, known)
                return made

    def masked(self, s: n.Eval) -> n.Stmt:
        """An atomic operation whose mask is the same for all its elements stands in a branch."""
        values = 2 if s.call.fn == "atomic_cas" else 1
        mask = s.call.args[values + 1] if len(s.call.args) > values + 1 else None
        if not isinstance(mask, n.Expr) or isinstance(mask.type, TileType):
            return s
        return n.If(mask, (replace(s, call=replace(s.call, args=s.call.args[:values + 1])),), label=s.label, origin=s.origin)

    def atomic(self, c: n.Call, known: Facts) -> n.Call:
        """An atomic operation without the conditions of its mask that are known to hold for every element."""
        values = 2 if c.fn == "atomic_cas" else 1
        mask = c.args[values + 1] if len(c.args) > values + 1 else None
        if not isinstance(mask, n.Expr):
            return c
        axes = axes_of(mask.type)
        within = known_axes(known, axes)
        left: n.Expr | None = None
        try:
            for atom in conjuncts(element(mask, _positions(axes), self.definitions) if axes else mask):
                if not _holds(atom, within) and not _below(atom, within) and atom not in conjuncts(left):
                    left = atom if left is None else build.logical_and(left, atom)
            if left is None:
                return replace(c, args=c.args[:values + 1])
            made = tile(left, axes, False)
        except NotElementwise:
            return c
        return replace(c, args=(*c.args[:values + 1], made))

    def descriptor_load(self, s: n.Copy, known: Facts) -> n.Stmt:
        """A copy from a box of a tensor; where the place turns out to be no box, a plain assignment."""
        value = self.load(s.src, known) if s.src.at.index else s.src
        if isinstance(value, n.Load) and is_box(value.at) and value.mask is None:
            return replace(s, src=value)
        return n.Store(s.dst, value, s.mask, label=s.label, origin=s.origin)

    def vectors(self, s: n.Copy, known: Facts) -> n.Stmt:
        """A copy to global memory in vectors."""
        plain = n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin)
        made = self.store(plain, known)
        if isinstance(made, n.Store) and made.value == s.src:
            return replace(s, dst=made.at, mask=made.mask, clip=made.clip)
        return s

    def descriptor_store(self, s: n.Copy, known: Facts) -> n.Stmt:
        """A copy to a box of a tensor; where the place turns out to be no box, a plain store."""
        plain = n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin)
        made = self.store(plain, known) if s.dst.index else plain
        if isinstance(made, n.Store) and made.value == s.src and is_box(made.at) and made.mask is None:
            return replace(s, dst=made.at, mask=None, clip=made.clip)
        return made

    def loads(self, item: n.Node, known: Facts) -> Any:
        """A node with every load below it raised."""

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Call) and any(isinstance(a, n.Region) for a in new.args):
                made = tuple(self.operand(a, known) if isinstance(a, n.Region) else a for a in new.args)
                return new if made == new.args else replace(new, args=made)
            return self.load(new, known) if isinstance(new, n.Load) and new.at.index and new.at.buffer.space == "global" else new

        return transform(item, leave)

    def operand(self, r: n.Region, known: Facts) -> n.Region:
        """A place that a call is given, as it is where it would need a mask."""
        if not r.index or r.buffer.space != "global":
            return r
        made = self.load(n.Load(r), known)
        return made.at if isinstance(made, n.Load) and made.mask is None and not made.clip and made.at.type == r.type else r

    def load(self, e: n.Load, known: Facts) -> n.Expr:
        axes = axes_of(e.type)
        try:
            scalar = element(e, _positions(axes), self.definitions)
            assert isinstance(scalar, n.Load)
            place, mask, clip = self.placed(scalar.at, scalar.mask, e.clip, known_axes(known, axes))
            if place is None:
                return e
            other = scalar.other
            if clip and not e.clip and other is None and scalar.mask is None:
                clip = False
            made = tile(n.Load(place, mask, other if mask is not None or clip else None, clip, e.cache), axes)
        except NotElementwise:
            return e
        return made if made.type == e.type else e

    def store(self, s: n.Store, known: Facts) -> n.Stmt:
        shape = s.at.type
        axes = axes_of(shape)
        try:
            at = element_region(s.at, _positions(axes), self.definitions)
            scalar_mask = None if s.mask is None else element(s.mask, _aligned(_positions(axes), s.mask), self.definitions)
            place, mask, clip = self.placed(at, scalar_mask, s.clip, known_axes(known, axes))
            if place is None:
                return s
            found = tile_region(place, axes)
            value = s.value if s.value.type == shape or not axes or isinstance(s.value, n.Const) else build.broadcast(s.value, shape)
            if found is not None and sorted(found[1]) == list(range(len(axes))):
                region, own = found
                if own != list(range(len(axes))):
                    value = build.call("trans", value, *(build.const(a) for a in own))
                local = [axes[a] for a in own]
                made_mask = None if mask is None else tile(mask, local, keep_shape=False)
                return replace(s, at=region, value=value, mask=made_mask, clip=clip)
            gathered = n.Region(
                place.buffer, tuple(tile(i, axes, keep_shape=k == 0) for k, i in enumerate(place.index) if isinstance(i, n.Expr))
            )
            return replace(s, at=gathered, value=value, mask=None if mask is None else tile(mask, axes, keep_shape=False), clip=clip)
        except NotElementwise:
            return s

    def placed(
        self, at: n.Region, mask: n.Expr | None, clip: bool, known: Facts
    ) -> tuple[n.Region | None, n.Expr | None, bool]:
        """The element of the real tensor, the rest of the mask, and whether the tensor's bounds say what the mask said."""
        index: tuple[n.Expr, ...] | None
        if at.buffer.name in self.views:
            base = self.views[at.buffer.name]
            (flat,) = (i for i in at.index if isinstance(i, n.Expr))
            within = known
            for atom in conjuncts(mask):
                within = within.knowing(atom)
            index = split_index(flat, base, within)
            if (
                index is not None
                and len(index) > 1
                and base.name not in self.exact
                and any(
                    isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name in self.loaded)
                    for i, d in zip(index, base.shape, strict=True)
                    if i is not _outermost(index, base) and not any(says_bound(atom, i, d) for atom in conjuncts(mask))
                    for x in walk(i)
                )
            ):
                index = None
        else:
            base, index = at.buffer, tuple(bare(i) for i in at.index if isinstance(i, n.Expr))
        if index is None:
            return None, mask, clip
        if at.buffer.name in self.views:
            index = _unfolded(index, base, known)
        atoms = tuple(a for a in conjuncts(mask) if not _holds(a, known))
        bounds = [[a for a in atoms if says_bound(a, i, d) or says_chunk(a, i, d, known)] for i, d in zip(index, base.shape, strict=True)]
        if not clip and not all(b or inside(bare(i), bare(d), known) for b, i, d in zip(bounds, index, base.shape, strict=True)):
            # An axis that nothing bounds: to clip would hide an access outside the tensor.
            bounds = []
        said = [a for b in bounds for a in b]
        if at.buffer.name not in self.views and not said and index == at.index:
            return None, mask, clip
        left: n.Expr | None = None
        for atom in atoms:
            if atom not in said:
                left = atom if left is None else build.logical_and(left, atom)
        return n.Region(base, index), left, clip or bool(said)


def is_box(r: n.Region) -> bool:
    """Whether a place is what a tensor descriptor moves at once: neighbors along every dimension, at least one."""
    return bool(r.index) and all(isinstance(i, n.Span) and build.is_const(_as_expr(i.step), 1) for i in r.index)


def _as_expr(d: int | n.Expr) -> n.Expr:
    return build.const(d) if isinstance(d, int) else d


def _outermost(index: Sequence[n.Expr], base: n.Buffer) -> n.Expr:
    """The index of the axis with the largest stride: what it leaves over is in the others."""
    from kir.ir.specialize import row_major

    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    return index[max(range(len(strides)), key=lambda d: _rank(strides[d]))]


def axes_of(t: Type) -> list[tuple[n.Var, int | n.Expr]]:
    """A variable for each axis of a tile."""
    return [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape_of(t))]


def _positions(axes: Sequence[tuple[n.Var, int | n.Expr]]) -> list[n.Expr]:
    return [build.const(0) if d == 1 else v for v, d in axes]


def _aligned(index: list[n.Expr], e: n.Expr) -> list[n.Expr]:
    shape = shape_of(e.type)
    own = index[len(index) - len(shape) :]
    return [build.const(0) if d == 1 else i for i, d in zip(own, shape, strict=True)]


def known_axes(known: Facts, axes: Sequence[tuple[n.Var, int | n.Expr]]) -> Facts:
    """Facts with the ranges of the axis variables."""
    for v, d in axes:
        known = known.ranging(v, build.const(0), build.const(d) if isinstance(d, int) else d)
    return known


def conjuncts(e: n.Expr | None) -> Iterator[n.Expr]:
    """The conditions that a mask is the conjunction of."""
    if isinstance(e, n.Binary) and e.op == "and":
        yield from conjuncts(e.a)
        yield from conjuncts(e.b)
    elif e is not None and not (isinstance(e, n.Const) and e.value is True):
        yield e


def bare(e: n.Expr) -> n.Expr:
    """An integer expression without widenings, in i32 where all its leaves are: equal to the original as a number."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Cast) and dtype_of(new.x.type).name == "i32" and new.dtype.name == "i64":
            return new.x
        return new

    from kir.analysis.narrow import as_i32

    found = as_i32(e)
    if found is not None:
        return found
    return leave(e, e) if isinstance(e, n.Expr) else e  # type: ignore[return-value]  # leave keeps expressions


def says_bound(atom: n.Expr, index: n.Expr, extent: n.Expr) -> bool:
    """Whether a condition says that an index lies inside its axis, on one side or the other."""
    if not isinstance(atom, n.Binary) or not dtype_of(atom.a.type).is_integer:
        return False
    a, b, i, d = bare(atom.a), bare(atom.b), bare(index), bare(extent)
    match atom.op:
        case "lt":
            return (_same(a, i) and _same(b, d)) or _same_distance(a, b, i, d)
        case "gt":
            return (_same(b, i) and _same(a, d)) or _same_distance(b, a, i, d)
        case "le":
            return (_same(a, i) and _same(build.add(b, 1), d)) or (build.is_const(a, 0) and _same(b, i))
        case "ge":
            return (_same(b, i) and _same(build.add(a, 1), d)) or (_same(a, i) and build.is_const(b, 0))
        case _:
            return False


def _same_distance(a: n.Expr, b: n.Expr, i: n.Expr, d: n.Expr) -> bool:
    """Whether `a < b` says `i < d` of an index that begins at a place `i - a` from 0 on: `j < K - k * 32` of `k * 32 + j`."""
    if not a.type == b.type == i.type == d.type:
        return False
    start = build.sub(i, a)
    return all(c > 0 for c in build.polynomial(start).values()) and _same(build.add(b, start), d)


def _holds(atom: n.Expr, known: Facts) -> bool:
    """Whether a condition `x >= 0` is known to hold."""
    if not isinstance(atom, n.Binary) or atom.op != "ge" or not build.is_const(atom.b, 0):
        return False
    lo = known.domain(known.expanded(atom.a)).lo
    return lo is not None and lo >= 0


def _below(atom: n.Expr, known: Facts) -> bool:
    """Whether a condition `x < y` is known to hold."""
    return isinstance(atom, n.Binary) and atom.op == "lt" and dtype_of(atom.a.type).is_integer and inside(bare(atom.a), bare(atom.b), known)


def says_chunk(atom: n.Expr, index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether a condition says of the first of some neighbors that it lies inside an axis, whose extent the chunks of neighbors divide:
    then they all do, or none."""
    if not (isinstance(atom, n.Binary) and atom.op in ("lt", "ge") and dtype_of(atom.a.type).is_integer):
        return False
    a, i, d = bare(atom.a), bare(index), bare(extent)
    if atom.op == "ge":
        return build.is_const(atom.b, 0) and a.type == i.type and any(_same(a, first) for first in _firsts(i, d, known))
    return _same(bare(atom.b), d) and a.type == i.type and any(_same(a, first) for first in _firsts(i, d, known))


def inside(index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is known to be below an extent, be it because the first of its chunk is, or what it is a quotient of below a multiple."""
    return less(index, extent, known) or any(less(first, extent, known) for first in _firsts(index, extent, known)) or _is_quotient(
        known.expanded(index), extent, known)


def _is_quotient(e: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is `x // c` with x below `c * extent`."""
    return (isinstance(e, n.Binary) and e.op == "floordiv" and e.b.type == extent.type and is_positive(e.b, known)
            and less(e.a, build.mul(e.b, extent), known))


def _unfolded(index: tuple[n.Expr, ...], base: n.Buffer, known: Facts) -> tuple[n.Expr, ...]:
    """The index of a row-major tensor, where a counter that runs over two axes at once stands for both: `X[0, bh]` with bh below B * H is
    `X[bh // H, bh % H]`."""
    if base.strides is not None:
        return index
    out = list(index)
    for k in range(len(out) - 1):
        both, inner = out[k + 1], bare(base.shape[k + 1])
        if build.is_const(out[k], 0) and isinstance(both, n.Var) and both.type == inner.type and not less(both, inner, known) and is_positive(
                inner, known) and less(both, build.mul(bare(base.shape[k]), inner), known):
            out[k], out[k + 1] = build.floordiv(both, inner), build.mod(both, inner)
    return tuple(out)


def _firsts(index: n.Expr, extent: n.Expr, known: Facts) -> Iterator[n.Expr]:
    """An index without a variable that counts neighbors in chunks, which divide where they begin and the extent."""
    for monomial, c in build.polynomial(index).items():
        if c == 1 and len(monomial) == 1 and isinstance(monomial[0], n.Var):
            reach, first = known.domain(monomial[0]), build.sub(index, monomial[0])
            if reach.lo == 0 and reach.hi and known.divides(reach.hi + 1, first) and known.divides(reach.hi + 1, extent):
                yield first


def _same(a: n.Expr, b: n.Expr) -> bool:
    return a == b or (a.type == b.type and build.is_const(build.sub(a, b), 0))


def split_index(flat: n.Expr, base: n.Buffer, known: Facts) -> tuple[n.Expr, ...] | None:
    """The index in each axis of a tensor of a flat index over its strides; None where a stride is no single product, or does not divide
    what is left, or an index would leave its axis. Terms go to the axis of the largest stride that divides them; where an index would
    leave its axis, what a stride does not divide of them goes on to the next: `16 * row + 16` is column 16 of row 16."""
    from kir.ir.specialize import row_major

    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    flat = bare(flat)
    if not isinstance(flat.type, DType):
        return None
    order = sorted(range(len(strides)), key=lambda d: _rank(strides[d]), reverse=True)
    factors: list[tuple[tuple[n.Expr, ...], int]] = []
    for s in strides:
        terms = build.polynomial(s)
        if len(terms) != 1:
            return None
        factors.append(next(iter(terms.items())))
    ones = frozenset(d for d in order if base.shape[d] == build.const(1))
    inner = [d for d in order if d not in ones][1:]
    for shared in (False, True):
        parts = _parts(flat, order, factors, ones, shared)
        if parts is None:
            return None
        made = _from_rows_end([bare(build.from_polynomial(p, flat.type)) for p in parts], parts, order, factors, strides, base, known)
        if not any(_leaves(made[d], base.shape[d], known) for d in inner):
            return made
    return None


def _parts(flat: n.Expr, order: Sequence[int], factors: Sequence[tuple[tuple[n.Expr, ...], int]], ones: frozenset[int],
           shared: bool) -> list[dict[tuple[n.Expr, ...], int]] | None:
    """The terms of a flat index by axis, divided by its stride; `shared` are the terms of which a stride divides a part. None where a term
    is left over."""
    parts: list[dict[tuple[n.Expr, ...], int]] = [{} for _ in factors]
    for monomial, c in build.polynomial(flat).items():
        for d in order:
            atoms, k = factors[d]
            rest = list(monomial)
            if d in ones or k == 0 or not (c % k == 0 or shared) or not all(_removed(rest, x) for x in atoms):
                continue
            count = c // k if c % k == 0 or not monomial else int(c / k)
            if count:
                parts[d][tuple(rest)] = parts[d].get(tuple(rest), 0) + count
            c -= count * k
            if c == 0:
                break
        if c:
            return None
    return parts


def _leaves(index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is known to lie outside its axis: wherever it is, or, of one that counts neighbors alone, somewhere."""
    size, reach = build.int_value(extent), known.domain(known.expanded(index))
    if reach.lo is None or reach.hi is None or size is None:
        return reach.hi is not None and reach.hi < 0
    neighbors = all(isinstance(x, n.Var) and x.name.startswith("%") for monomial in build.polynomial(index) for x in monomial)
    return reach.lo >= size or reach.hi < 0 or (neighbors and (reach.lo < 0 or reach.hi >= size))


def _from_rows_end(made: list[n.Expr], parts: Sequence[Mapping[tuple[n.Expr, ...], int]], order: Sequence[int],
                   factors: Sequence[tuple[tuple[n.Expr, ...], int]], strides: Sequence[n.Expr], base: n.Buffer,
                   known: Facts) -> tuple[n.Expr, ...]:
    """Indices where `n * row + n - x`, of which a whole row more would leave the tensor, counts from the row's end."""
    for d, after in pairwise(order):
        whole = parts[d].get((), 0)
        inside = build.sub(made[d], whole)
        lowest = known.domain(known.expanded(made[after])).lo
        if whole > 0 and factors[d][0] and (lowest is None or lowest < 0) and not less(made[d], bare(base.shape[d]), known) and less(
                inside, bare(base.shape[d]), known):
            steps = build.floordiv(strides[d], strides[after]) if not build.is_const(strides[after], 1) else strides[d]
            made[d], made[after] = inside, build.add(made[after], build.mul(steps, whole))
    return tuple(made)


def _removed(rest: list[n.Expr], x: n.Expr) -> bool:
    for i, y in enumerate(rest):
        if _atom(y) == _atom(x):
            del rest[i]
            return True
    return False


def _atom(e: n.Expr) -> n.Expr:
    return e.x if isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer else e


def _rank(stride: n.Expr) -> tuple[int, int]:
    """Strides by size: first by the number of symbolic factors, then by the coefficient."""
    terms = build.polynomial(stride)
    if len(terms) != 1:
        return (0, 0)
    ((atoms, k),) = terms.items()
    return (len(atoms), k)
