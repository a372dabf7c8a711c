"""The code of a CTA's threads as tile statements: the inverse of `_tiles_to_lanes`, by proposing and comparing.

Roles of register arrays come from mma.sync; places and extents of tiles from the addresses that the threads and iterations together
reach (worked out by number, uniform values left aside). What is proposed need not be right: whoever asks compares its lowering with
the code it was read from.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import names_read, statements, transform, walk
from kir.rewrite.match import counting, fresh_var, matched_as

from ._footprint import Nest, Reach, nest_of
from ._fragment_inference import depth_of
from ._fragment_layout import WARP, Matrix, matrix
from ._multiply_adds import Sums, is_step, sums


class NotRaised(Exception):
    """Code of threads that is no statement of their team; the message says which."""


@dataclass(frozen=True)
class Role:
    """What a register array is to mma.sync: operand `a`, `b` or accumulator `c`, of `grid` atoms, for products of depth `k`. To
    multiply-adds: the `rows` or `columns` that a thread needs of an operand, or its `share` of a tile, whose shape is `grid`."""

    role: str
    grid: tuple[int, int]
    k: int

    def shape(self, warps: tuple[int, int] = (1, 1)) -> tuple[int, int]:
        """The tile that `warps` warps hold together."""
        rows, columns = {"a": (16, self.k), "b": (self.k, 8), "c": (16, 8), "rows": (16, 1), "columns": (1, 8), "share": (1, 1)}[self.role]
        return self.grid[0] * rows * max(1, warps[0]), self.grid[1] * columns * max(1, warps[1])


def roles(block: n.Block, t: n.Var, threads: int) -> dict[str, Role]:
    """The roles of the register arrays of thread `t`. Raises NotRaised for an array that is indexed in another way, Unreached."""
    out: dict[str, Role] = {}
    sizes = {s.var.name: build.int_value(s.hi) for s in statements(block) if isinstance(s, n.For)}
    for s in statements(block):
        call = s.value if isinstance(s, n.Store) else None
        if not isinstance(call, n.Call) or call.fn != "mma_sync":
            continue
        loads = [x for x in call.args if isinstance(x, n.Load)]
        if len(loads) != 3 or not isinstance(s, n.Store) or loads[2].at != s.at or any(x.at.buffer.space != "register" for x in loads):
            raise NotRaised("an mma.sync that does not accumulate in place from register arrays")
        k = depth_of(dtype_of(loads[0].type))
        at = [[i.name if isinstance(i, n.Var) else "" for i in x.at.index if isinstance(i, n.Expr)] for x in loads]
        rows, columns = _one(at[0], at[2]), _one(at[1], at[2])
        deep = _one(at[0], at[1])

        def size(name: str) -> int:
            return (sizes.get(name) or 1) if name else 1
        for x, role, grid in zip(loads, "abc", ((rows, deep), (deep, columns), (rows, columns)), strict=True):
            made = Role(role, (size(grid[0]), size(grid[1])), k)
            if out.setdefault(x.at.buffer.name, made) != made:
                raise NotRaised(f"'{x.at.buffer.name}' has two roles")
    _sum_roles(block, t, threads, out)
    return out


def _sum_roles(block: n.Block, t: n.Var, threads: int, out: dict[str, Role]) -> None:
    """The roles of register arrays in products by multiply-adds."""
    for s in statements(block):
        found = sums(s, t)
        if found is None or found.acc.buffer.name in out:
            continue
        rows, columns = found.loop_of(found.a), found.loop_of(found.b)
        if len(found.nest.leaf) == 4:
            out[found.acc.buffer.name] = Role("c", (found.extent(rows), found.extent(columns)), 16)
            for x, role, grid in ((found.a, "rows", (found.extent(rows), found.depth)), (found.b, "columns", (found.depth, found.extent(columns)))):
                if x.at.buffer.space == "register":
                    out[x.at.buffer.name] = Role(role, grid, 1)
        elif len(found.nest.leaf) == 1:
            reach = Reach(found.nest, t, threads)
            a, b = _spread(reach.region(found.a.at), found.a.at, found.j), _spread(reach.region(found.b.at), found.b.at, found.j)
            if len(a) == len(b) == 1:
                out[found.acc.buffer.name] = Role("share", (a[0], b[0]), 1)


def _spread(whole: n.Region, at: n.Region, j: n.Var) -> list[int]:
    """Extents of the indices of a place that move with threads and not with the depth."""
    return [i.extent for i, x in zip(whole.index or tuple(build.span(0, d) for d in whole.buffer.shape), at.index, strict=True)
            if isinstance(i, n.Span) and isinstance(i.extent, int) and j.name not in names_read(x)]


def _one(a: list[str], b: list[str]) -> str:
    found = [x for x in a if x and x in b]
    return found[0] if len(found) == 1 else ""


def arrangements(warps: int) -> Iterator[tuple[tuple[int, int], bool]]:
    """Grids of warps, and whether they are numbered down the columns."""
    if warps == 1:
        yield (0, 0), False
        return
    for down in (False, True):
        yield from (((rows, warps // rows), down) for rows in range(1, warps + 1) if warps % rows == 0 and not (down and rows in (1, warps)))


@dataclass
class Raise:
    """The statements of a team of `threads`, whose number is `t`; `roles` of register arrays, `warps` as they divide accumulators, numbered
    `down` the columns or not;
    `direct`: arrays of operands are what a product of places in memory needs, not fragments."""

    t: n.Var
    threads: int
    roles: Mapping[str, Role]
    warps: tuple[int, int]
    taken: set[str]
    direct: bool = False
    down: bool = False

    def __post_init__(self) -> None:
        self.fragments: dict[str, n.Buffer] = {}
        self.places: dict[str, n.Expr] = {}

    # ----------------------------------------------------------------------------------------------------------- of the CTA
    def cta(self, block: n.Block) -> n.Block:
        """Statements of the CTA. Raises NotRaised."""
        out: list[n.Stmt] = []
        warp: list[n.Stmt] = []
        for s in (*block, None):
            if s is not None and self._of_a_warp(s):
                warp.append(s)
                continue
            if warp:
                out.extend(self._warps(tuple(warp)))
                warp = []
            if s is not None:
                out.extend(self._statement(s))
        return tuple(out)

    def _statement(self, s: n.Stmt) -> n.Block:
        match s:
            case n.Eval() if s.call.fn == "barrier":
                return ()
            case n.Eval() if s.call.fn in ("async_commit", "async_wait"):
                return (s,)
            case n.Let() if self._uniform(s.value):
                return (s,)
            case n.Alloc() if s.buffer.space == "register":
                return (self._alloc(s, self.warps),)
            case n.For() | n.If():
                product = sums(s, self.t)
                if product is not None:
                    return (self._added(product, None),)
                nest = nest_of(s, self.t)
                if nest is not None and not any(isinstance(x, n.Store) and is_step(x) for x in nest.leaf):
                    return (self._moved(nest),)
                if isinstance(s, n.For) and s.kind in ("serial", "unroll") and all(map(self._uniform, (s.lo, s.hi, s.step))):
                    return (replace(s, body=self.cta(s.body)),)
                if isinstance(s, n.If) and self._uniform(s.cond):
                    return (replace(s, then=self.cta(s.then), orelse=self.cta(s.orelse)),)
            case n.Copy() | n.Store():
                nest = nest_of(s, self.t)
                if nest is not None:
                    return (self._moved(nest),)
            case _:
                pass
        raise NotRaised(f"a {type(s).__name__.lower()} that each thread does in its own way" + (f" ('{s.label}')" if s.label else ""))

    def _uniform(self, e: n.Expr) -> bool:
        return self.t.name not in names_read(e) and not any(isinstance(x, n.Load) for x in walk(e))

    def _alloc(self, s: n.Alloc, warps: tuple[int, int]) -> n.Stmt:
        role = self.roles.get(s.buffer.name)
        if role is None:
            raise NotRaised(f"nothing says which tile the registers '{s.buffer.name}' are a part of")
        shape = role.shape(warps if role.role == "c" else (1, 1))
        made = n.Buffer(s.buffer.name, s.buffer.dtype, tuple(map(build.const, shape)), "fragment")
        self.fragments[made.name] = made
        return replace(s, buffer=made)

    # --------------------------------------------------------------------------------------------------------- of the warps
    def _of_a_warp(self, s: n.Stmt) -> bool:
        """Whether a statement only moves data between shared memory and operands, or multiplies them."""
        match s:
            case n.For():
                return self._uniform(s.lo) and self._uniform(s.hi) and all(map(self._of_a_warp, s.body))
            case n.Alloc():
                return self.roles.get(s.buffer.name, Role("c", (1, 1), 1)).role in ("a", "b", "rows", "columns")
            case n.Let():
                return isinstance(s.value, n.Call) and s.value.fn == "ldmatrix"
            case n.Store():
                role = self.roles.get(s.at.buffer.name)
                return role is not None and role.role != "share" and (role.role != "c" or isinstance(s.value, n.Call) or is_step(s))
            case _:
                return False

    def _warps(self, block: n.Block) -> n.Block:
        if self.threads == WARP:
            return self._warp(block, None)
        w = fresh_var("w", self.taken)
        body = self._warp(block, w)
        return (counting(w, self.threads // WARP, body, "warp"),)

    def _warp(self, block: n.Block, w: n.Var | None) -> n.Block:
        out: list[n.Stmt] = []
        rest = list(block)
        while rest:
            s = rest.pop(0)
            if isinstance(s, n.Let) and rest and isinstance(rest[0], n.Store):
                stores = next((k for k, x in enumerate(rest) if not (isinstance(x, n.Store) and s.names[0] in names_read(x))), len(rest))
                out.append(self._operand(Nest((), (s, *rest[:stores])), w))
                del rest[:stores]
            elif not (self.direct and isinstance(s, n.Alloc)):
                made = self._warp_statement(s, w)
                if self.direct and isinstance(made, n.Copy):
                    self.places[made.dst.buffer.name] = made.src
                else:
                    out.append(made)
        return tuple(out)

    def _warp_statement(self, s: n.Stmt, w: n.Var | None) -> n.Stmt:
        if isinstance(s, n.Alloc):
            return self._alloc(s, (1, 1))
        product = sums(s, self.t)
        if product is not None:
            return self._added(product, w)
        nest = nest_of(s, self.t, any_place=True)
        leaf = nest.leaf if nest is not None else ()
        if nest is not None and isinstance(leaf[-1], n.Store) and not is_step(leaf[-1]):
            if isinstance(leaf[-1].value, n.Call) and leaf[-1].value.fn == "mma_sync":
                return self._product(nest, w)
            return self._operand(nest, w)
        if isinstance(s, n.For):
            return replace(s, body=self._warp(s.body, w))
        raise NotRaised(f"a {type(s).__name__.lower()} between matrix instructions")

    def _product(self, nest: Nest, w: n.Var | None) -> n.Stmt:
        store = matched_as(nest.leaf[-1], n.Store)
        assert isinstance(store.value, n.Call)
        left, right, c = (x.at.buffer.name for x in store.value.args if isinstance(x, n.Load))
        a, b = self._whole(left), self._whole(right)
        precision = "tf32" if dtype_of(a.type).name == "f32" else "ieee"
        return n.Mma(self._part(c, dtype_of(a.type).bits, w), a, b, "mma_sync", precision, label=store.label)

    def _whole(self, name: str) -> n.Expr:
        """A register array's tile as an operand."""
        if name in self.places:
            return self.places[name]
        if name not in self.fragments:
            raise NotRaised(f"the registers '{name}' of a product are declared elsewhere")
        return n.Load(n.Region(self.fragments[name]))

    def _part(self, name: str, bits: int, w: n.Var | None) -> n.Region:
        """The warp's part of an accumulator."""
        c = self.fragments.get(name)
        if c is None:
            raise NotRaised(f"the accumulator '{name}' is declared elsewhere")
        if w is None or self.warps == (0, 0):
            return n.Region(c)
        held = matched_as(matrix(tuple(build.int_value(d) or 0 for d in c.shape), "c", bits, 16, self.warps, self.threads, self.down), Matrix)
        return build.region(c, *(build.span(lo, p) for lo, p in zip(held.starts(w), held.part, strict=True)))

    def _added(self, found: Sums, w: n.Var | None) -> n.Stmt:
        """A product by multiply-adds."""
        role = self.roles.get(found.acc.buffer.name)
        if role is None or found.acc.buffer.name not in self.fragments:
            raise NotRaised(f"nothing says which tile the registers '{found.acc.buffer.name}' are a part of")
        part = role.shape()
        operands: list[n.Expr] = []
        for load, axis in ((found.a, 0), (found.b, 1)):
            if load.at.buffer.space == "register":
                operands.append(self._whole(load.at.buffer.name))
                continue
            index = [build.span(i, found.depth if found.j.name in names_read(i) else part[axis])
                     if isinstance(i, n.Expr) and self._moves(i, found) else i for i in load.at.index]
            start = {v.name: build.const(0, dtype_of(v.of)) for v in found.nest.variables}
            if role.role == "share":
                start[self.t.name] = build.const(0)
            moved = [_first_of_warp(i, start, self.t, w) for i in index]
            at = build.region(load.at.buffer, *(i for i in moved if isinstance(i, n.Expr | n.Span)))
            operands.append(replace(load, at=at))
        acc = self._part(found.acc.buffer.name, 16, w) if role.role == "c" else n.Region(self.fragments[found.acc.buffer.name])
        return n.Mma(acc, operands[0], operands[1], "fma", label=found.nest.leaf[0].label)

    def _moves(self, i: n.Expr, found: Sums) -> bool:
        return bool(names_read(i) & {self.t.name, *(v.name for v in found.nest.variables)})

    def _operand(self, nest: Nest, w: n.Var | None) -> n.Stmt:
        """A copy from memory to an operand's registers."""
        last, first = matched_as(nest.leaf[-1], n.Store), nest.leaf[0]
        role, fragment = self.roles[last.at.buffer.name], self.fragments.get(last.at.buffer.name)
        if fragment is None and self.direct:
            fragment = n.Buffer(last.at.buffer.name, last.at.buffer.dtype, tuple(map(build.const, role.shape())), "fragment")
        if fragment is None:
            raise NotRaised(f"the operand '{last.at.buffer.name}' is declared elsewhere")
        if isinstance(first, n.Let) and isinstance(first.value, n.Call):
            source = matched_as(first.value.args[0], n.Region)
            trans = bool(dict(first.value.attrs).get("trans", False))
            place = self._from(source, role.shape(), nest, w)
            options: dict[str, n.Attr] = {"trans": True} if trans else {}
            if len(nest.leaf) == 3:
                options["num"] = 4
            return n.Copy(n.Load(place), n.Region(fragment), "ldmatrix", attrs=n.attrs(**options), label=first.label)
        value = first.value if isinstance(first, n.Store) else None
        if not isinstance(value, n.Load):
            raise NotRaised(f"the operand '{fragment.name}' is computed")
        return n.Copy(replace(value, at=self._from(value.at, role.shape(), nest, w)), n.Region(fragment), label=last.label)

    def _from(self, r: n.Region, shape: tuple[int, int], nest: Nest, w: n.Var | None) -> n.Region:
        """The place of a tile of `shape` whose first element lane 0 reads in the first iteration."""
        index = list(r.index)
        for position, extent in zip((len(index) - 2, len(index) - 1), shape, strict=True):
            i = index[position]
            index[position] = build.span(i.lo if isinstance(i, n.Span) else i, extent)
        start = {v.name: build.const(0, dtype_of(v.of)) for v in nest.variables}
        moved = [_first_of_warp(i, start, self.t, w) for i in index]
        return build.region(r.buffer, *(i for i in moved if isinstance(i, n.Expr | n.Span)))

    # ---------------------------------------------------------------------------------------------------- copies and stores
    def _moved(self, nest: Nest) -> n.Stmt:
        """A copy or an elementwise store by all threads."""
        reach = Reach(nest, self.t, self.threads)
        first = nest.leaf[0]
        if isinstance(first, n.Copy) and len(nest.leaf) == 1:
            dst, src = reach.region(first.dst), reach.region(first.src.at)
            width = next((int(i.extent) for i in reversed(first.dst.index) if isinstance(i, n.Span) and isinstance(i.extent, int)), 1)
            if first.via == "cp_async" and width > 1:
                return replace(first, src=replace(first.src, at=src), dst=dst, attrs=n.attrs(**{**dict(first.attrs), "vector": width}))
            return replace(first, src=replace(first.src, at=src), dst=dst)
        if not all(isinstance(s, n.Store) for s in nest.leaf):
            raise NotRaised("a loop that does several things at a time")
        stores = [s for s in nest.leaf if isinstance(s, n.Store)]
        if len({s.at.buffer.name for s in stores}) != 1:
            raise NotRaised("a loop that fills several buffers at a time")
        return self._elementwise(stores, reach)

    def _elementwise(self, stores: list[n.Store], reach: Reach) -> n.Stmt:
        s = stores[0]
        whole = self.fragments.get(s.at.buffer.name)
        if whole is None and s.at.buffer.space == "register":
            raise NotRaised(f"nothing says which tile the registers '{s.at.buffer.name}' are a part of")
        to = n.Region(whole) if whole is not None else reach.region(*(x.at for x in stores))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(old, n.Load) and old.at.buffer.name in self.fragments:
                return n.Load(n.Region(self.fragments[old.at.buffer.name]))
            if isinstance(old, n.Load):
                if old.at.buffer.space == "register" or not old.at.index:
                    raise NotRaised(f"{region_text(old.at)} is each thread's own")
                return replace(old, at=reach.region(old.at))
            return new
        try:
            value: n.Expr = transform(s.value, leave, lambda x: not isinstance(x, n.Region))
        except KirError as fault:
            raise NotRaised(f"operands of the value stored to {region_text(to)} differ in shape") from fault
        if shape_of(value.type) and shape_of(value.type) != shape_of(to.type):
            raise NotRaised(f"the value stored to {region_text(to)} has another shape")
        return replace(s, at=to, value=value)


def _first_of_warp(item: n.Node, start: Mapping[str, n.Expr], t: n.Var, w: n.Var | None) -> n.Node:
    """`item` for lane 0 of warp `w` in the first iteration."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match old:
            case n.Binary(op="floordiv" | "mod", a=n.Var()) if isinstance(old.a, n.Var) and old.a.name == t.name:
                by = build.int_value(old.b)
                if by is not None and (by % WARP == 0 or WARP % by == 0):
                    return _divided(old.op, by, w)
            case n.Var() if old.name in start:
                return start[old.name]
            case n.Var() if old.name == t.name:
                return build.const(0) if w is None else build.mul(w, WARP)
            case _:
                pass
        return new
    made: n.Node = transform(item, leave)
    return made


def _divided(op: str, by: int, w: n.Var | None) -> n.Expr:
    """32 w divided by `by`, or what is left."""
    if w is None:
        return build.const(0)
    if by % WARP == 0:
        warps = by // WARP
        return build.floordiv(w, warps) if op == "floordiv" else build.mul(build.mod(w, build.const(warps)), WARP)
    return build.mul(w, WARP // by) if op == "floordiv" else build.const(0)
