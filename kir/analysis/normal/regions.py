"""Flat accesses raised to regions: `A_flat[row * K + col]` is `A[row, col]`, and masks that say what a buffer's bounds say become `clip`.

Part of the normal form: `raised` is idempotent. Address arithmetic is exact (it does not wrap), and an access is raised only where every row
and column is proved to lie within its own axis (`kir.analysis.normal.rows`): whatever shape a binding gives a memory, the program means the same.
Hints (`multiple_of`, `max_contiguous`) leave, since they say nothing that facts do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from kir.analysis.bounds import axes_of, bare, below, conjuncts, holds, known_axes, says_both, says_bound, says_chunk
from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.analysis.facts import Facts
from kir.analysis.normal.flat_index import outermost, split_index
from kir.analysis.normal.narrow import after, narrowed_lets, panel_column_bound
from kir.analysis.normal.normal_form import normalize, normalized_again
from kir.analysis.normal.private.branch_results import where_they_go
from kir.analysis.normal.private.records import in_parts
from kir.analysis.normal.private.registers import counted, in_turn, without_units
from kir.analysis.normal.unsigned import signed
from kir.analysis.normal.wraparound_index import unwrapped
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.promote import promoted
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import statements, transform, updated, walk

ROUNDS = 6
HINTS = frozenset({"multiple_of", "max_contiguous", "max_constancy"})


def raised(program: n.Program) -> n.Program:
    """The program with flat accesses as regions, in normal form."""
    program = normalize(replace(program, kernels=tuple(in_turn(without_hints(k)) for k in program.kernels)))
    program = normalized_again(program, replace(program, kernels=tuple(counted(k, everywhere=False) for k in program.kernels)))
    for _ in range(ROUNDS):
        narrow = narrowed_lets(signed(program))
        before, program = program, normalized_again(program, replace(narrow, kernels=tuple(_lets_of_rows(k) for k in narrow.kernels)))
        if program == before:
            break
    program = normalized_again(program, replace(program, kernels=tuple(_kernel(program, k) for k in program.kernels)))
    program = normalized_again(program, replace(program, kernels=tuple(where_they_go(in_parts(without_units(k))) for k in program.kernels)))
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
    return updated(k, body=_Raiser(views, _definitions(k), _loaded(k), exact, {a.name: a.extent for a in k.grid}).block(k.body, known))


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


def _of_one(e: n.Expr) -> n.Load | None:
    """A tile of one element that repeats a loaded one, as the load of a tile: what a copy moves is a place."""
    match e:
        case n.Call(fn="broadcast", args=(n.Load(at=n.Region(index=(*before, n.Expr() as last))) as one, n.Const(value=1))):
            return replace(one, at=n.Region(one.at.buffer, (*before, n.Span(last, 1))))
        case _:
            return None


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _left(s: n.Stmt) -> tuple[n.Expr, ...]:
    """What holds after a statement that some leave by: the contrary of a comparison."""
    leaves = isinstance(s, n.If) and not s.orelse and s.then and isinstance(s.then[-1], n.Jump)
    if not (leaves and isinstance(s, n.If) and isinstance(s.cond, n.Binary) and s.cond.op in _OPPOSITE and not isinstance(s.cond.type, TileType)):
        return ()
    return (n.Binary(_OPPOSITE[s.cond.op], s.cond.a, s.cond.b),)


def _stayed(s: n.Stmt) -> tuple[n.Expr, ...]:
    """What holds of those that are there after a statement that some leave by."""
    leaves = isinstance(s, n.If) and not s.orelse and s.then and isinstance(s.then[-1], n.Jump)
    return (n.Unary("not", s.cond),) if leaves and isinstance(s, n.If) and not isinstance(s.cond.type, TileType) else ()


class _Raiser:
    def __init__(self, views: Views, definitions: Mapping[str, n.Expr], loaded: frozenset[str], exact: frozenset[str], grid: dict[str, n.Expr]) -> None:
        self.views, self.definitions, self.loaded, self.exact, self.grid = views, definitions, loaded, exact, grid
        self.passed: tuple[n.Expr, ...] = ()
        """What holds because the threads for which it does not have left."""
        self.left: tuple[n.Expr, ...] = ()
        """The same, whatever conditions they left by; and where a tile's column ends."""
        self.stored: tuple[tuple[int | n.Expr, ...], tuple[n.Expr, ...]] = ((), ())
        """The shape of a store of a sum of elements, and its mask: what is loaded elsewhere is not stored."""
        self.beside: tuple[n.Expr, ...] = ()
        """The mask of the call that a place is given to, for one element."""

    def block(self, body: n.Block, known: Facts) -> n.Block:
        out: list[n.Stmt] = []
        before = self.passed, self.left
        for s in body:
            made = self.stmt(s, known)
            out.append(made)
            known = after(known, made, self.grid)
            self.passed = (*self.passed, *_left(made))
            self.left = (*self.left, *_stayed(made), *self.columns(made, known))
        self.passed, self.left = before
        return tuple(out)

    def columns(self, s: n.Stmt, known: Facts) -> tuple[n.Expr, ...]:
        """What a let says of a tile's column in a raster of panels."""
        end = panel_column_bound(s.value, known, self.grid) if isinstance(s, n.Let) and len(s.names) == 1 else None
        return () if end is None or not isinstance(s, n.Let) else (n.Binary("lt", n.Var(s.names[0], s.value.type), end),)

    def stmt(self, s: n.Stmt, known: Facts) -> n.Stmt:
        match s:
            case n.For():
                around, self.grid = self.grid, {**self.grid, s.var.name: s.hi}
                body = self.block(s.body, known.ranging(s.var, s.lo, s.hi, s.step))
                self.grid = around
                return updated(s, body=body)
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
                self.stored = self.kept_of(s)
                value = self.loads(s.value, known)
                self.stored = ((), ())
                return self.store(updated(s, value=value), known)
            case n.Copy() if s.via == "tma" and s.src.at.buffer.space == "global" and s.dst.buffer.space == "fragment":
                return self.descriptor_load(s, known)
            case n.Copy() if s.via == "tma" and s.dst.buffer.space == "global" and s.src.at.buffer.space == "fragment":
                return self.descriptor_store(s, known)
            case n.Copy() if (s.via == "plain" or s.via.startswith("vector")) and s.dst.buffer.space == "global" and s.dst.index and not s.clip:
                return self.vectors(updated(s, src=self.loads(s.src, known)), known)
            case n.Copy():
                moved: n.Copy = self.loads(s, known)
                return moved if isinstance(moved.src, n.Load) else replace(moved, src=_of_one(moved.src) or s.src)
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
                if not holds(atom, within) and not below(atom, within) and atom not in conjuncts(left):
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
                self.beside = self.mask_of(new)
                made = tuple(self.operand(a, known) if isinstance(a, n.Region) else a for a in new.args)
                self.beside = ()
                return new if made == new.args else replace(new, args=made)
            return self.load(new, known) if isinstance(new, n.Load) and new.at.index and new.at.buffer.space == "global" else new

        return transform(item, leave)

    def mask_of(self, c: n.Call) -> tuple[n.Expr, ...]:
        """The conditions under which an atomic operation touches the element at its place."""
        mask = c.args[2 if c.fn != "atomic_cas" else 3] if c.fn.startswith("atomic_") and len(c.args) > (2 if c.fn != "atomic_cas" else 3) else None
        if not isinstance(mask, n.Expr) or not isinstance(c.args[0], n.Region):
            return ()
        try:
            return tuple(conjuncts(element(mask, _aligned(_positions(axes_of(c.args[0].type)), mask), self.definitions)))
        except NotElementwise:
            return ()

    def kept_of(self, s: n.Store) -> tuple[tuple[int | n.Expr, ...], tuple[n.Expr, ...]]:
        """The shape and the conditions of a masked store, each element of which is made of the same elements of what is loaded."""
        shape = shape_of(s.at.type)
        if s.mask is None or any(isinstance(x, n.Call) for x in walk(s.value)):
            return (), ()
        try:
            return shape, tuple(conjuncts(element(s.mask, _aligned(_positions(axes_of(s.at.type)), s.mask), self.definitions)))
        except NotElementwise:
            return (), ()

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
            kept = self.stored[1] if e.clip and scalar.mask is None and shape_of(e.type) == self.stored[0] else ()
            place, mask, clip = self.placed(scalar.at, scalar.mask, e.clip, known_axes(known, axes), kept)
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
                side_by_side = tile_region(at, axes) if any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in s.at.index) else None
                if side_by_side is None or side_by_side[1] != list(range(len(axes))):
                    return (None if side_by_side is None else _without_units(s, side_by_side, scalar_mask, s.clip, axes)) or s
                return self.store(replace(s, at=side_by_side[0]), known)
            found = tile_region(place, axes)
            if found is not None and (narrow := _without_units(s, found, mask, clip, axes)) is not None:
                return narrow
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
        self, at: n.Region, mask: n.Expr | None, clip: bool, known: Facts, kept: tuple[n.Expr, ...] = ()
    ) -> tuple[n.Region | None, n.Expr | None, bool]:
        """The element of the real tensor, the rest of the mask, and whether the tensor's bounds say what the mask said."""
        index: tuple[n.Expr, ...] | None
        if at.buffer.name in self.views:
            base = self.views[at.buffer.name]
            (flat,) = (i for i in at.index if isinstance(i, n.Expr))
            within = known
            for atom in conjuncts(mask):
                within = within.knowing(atom)
            within = reduce(Facts.knowing, self.passed, within)
            index = split_index(flat, base, within, (*conjuncts(mask), *self.left, *self.beside, *kept), base.name in self.exact)
            if (
                index is not None
                and len(index) > 1
                and base.name not in self.exact
                and any(
                    isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name in self.loaded)
                    for i, d in zip(index, base.shape, strict=True)
                    if i is not outermost(index, base) and not any(says_bound(atom, i, d) for atom in conjuncts(mask))
                    for x in walk(i)
                )
            ):
                index = None
        else:
            base, index = at.buffer, tuple(bare(i) for i in at.index if isinstance(i, n.Expr))
        if index is None:  # no row and column: elements of the memory, counted from its beginning
            base, index = at.buffer, tuple(bare(i) for i in at.index if isinstance(i, n.Expr))
        atoms = tuple(a for a in conjuncts(mask) if not holds(a, known))
        bounds = [[a for a in atoms if says_bound(a, i, d) or says_chunk(a, i, d, known)] for i, d in zip(index, base.shape, strict=True)]
        if not clip and not all(says_both(b, bare(i), bare(d), known) for b, i, d in zip(bounds, index, base.shape, strict=True)):
            # An axis with a side that nothing bounds: to clip would hide an access outside the tensor.
            bounds = []
        said = [a for b in bounds for a in b]
        if base is at.buffer and not said and index == at.index:
            return None, mask, clip
        left: n.Expr | None = None
        for atom in atoms:
            if atom not in said:
                left = atom if left is None else build.logical_and(left, atom)
        return n.Region(base, index), left, clip or bool(said)


def _of_units(e: n.Expr, axes: Sequence[tuple[n.Var, int | n.Expr]], longer: list[tuple[n.Var, int | n.Expr]]) -> n.Expr | None:
    """A value without the axes of one element; None where that takes picking elements of it."""
    with suppress(NotElementwise):
        made = tile(element(e, _aligned(_positions(axes), e)), longer, keep_shape=False)
        picks = [sum(isinstance(x, n.Call) and x.fn == "pick" for x in walk(of)) for of in (e, made)]
        return made if picks[1] <= picks[0] and shape_of(made.type) in ((), tuple(d for _, d in longer)) else None
    return None


def _without_units(s: n.Store, found: tuple[n.Region, list[int]], mask: n.Expr | None, clip: bool,
                   axes: Sequence[tuple[n.Var, int | n.Expr]]) -> n.Store | None:
    """A store of a tile with axes of one element as that of a tile without them, at the place that was found; None where that takes picking elements."""
    longer = [axis for axis in axes if axis[1] != 1]
    if len(longer) == len(axes) or found[1] != [a for a, axis in enumerate(axes) if axis in longer]:
        return None
    value = _of_units(s.value, axes, longer)
    return None if value is None else replace(s, at=found[0], value=value, mask=None if mask is None else tile(mask, longer, keep_shape=False), clip=clip)


def _lets_of_rows(k: n.Kernel) -> n.Kernel:
    """The kernel with values that have axes of one element, or are repeated along axes in front, so where they are read, not where they are named."""
    told: dict[str, tuple[n.Let, n.Expr]] = {}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var() if new.name in told and new.type == told[new.name][0].value.type:
                return told[new.name][1]
            case n.Let(names=(name,)) if (found := _row(new.value)) is not None:
                told[name] = new, _as_wide(n.Var(name, found.type), shape_of(new.value.type))
                return replace(new, value=found)
        return new
    made: n.Kernel = transform(k, leave)
    return made


def _row(e: n.Expr) -> n.Expr | None:
    """What a tile repeats along axes in front, or is but for axes of one element; None for others."""
    shape = shape_of(e.type)
    if isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(e.args[0], n.Expr) and (own := shape_of(e.args[0].type)) and own == shape[-len(own):]:
        return e.args[0]
    axes = axes_of(e.type)
    longer = [axis for axis in axes if axis[1] != 1]
    made = _of_units(e, axes, longer) if longer and len(longer) < len(axes) else None
    return made if made is not None and shape_of(made.type) else None


def _as_wide(e: n.Expr, shape: Sequence[int | n.Expr]) -> n.Expr:
    """A tile as one of this shape: repeated along axes in front, or with axes of one element."""
    if shape_of(e.type) == tuple(shape[-len(shape_of(e.type)):]):
        return build.broadcast(e, TileType(dtype_of(e.type), tuple(shape)))
    for axis in [a for a, d in enumerate(shape) if d == 1]:
        e = build.call("expand", e, axis=axis)
    return e


def is_box(r: n.Region) -> bool:
    """Whether a place is what a tensor descriptor moves at once: neighbors along every dimension, at least one."""
    return bool(r.index) and all(isinstance(i, n.Span) and build.is_const(_as_expr(i.step), 1) for i in r.index)


def _as_expr(d: int | n.Expr) -> n.Expr:
    return build.const(d) if isinstance(d, int) else d


def _positions(axes: Sequence[tuple[n.Var, int | n.Expr]]) -> list[n.Expr]:
    return [build.const(0) if d == 1 else v for v, d in axes]


def _aligned(index: list[n.Expr], e: n.Expr) -> list[n.Expr]:
    shape = shape_of(e.type)
    own = index[len(index) - len(shape) :]
    return [build.const(0) if d == 1 else i for i, d in zip(own, shape, strict=True)]
