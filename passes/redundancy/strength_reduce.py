"""Keeps the address of an element that moves evenly through a loop in a register and adds to it, instead of computing it anew.

pipeline: `strength-reduce{place="X[i, n]"}@main/loop`

```diff
 kir 1
 program column_sums
   size M: i32
   size N: i32
   in X: f32[M, N]
   out Y: f32[N]
 kernel main grid (n: N) threads 1
+  view global X_flat: f32[M * N] at X
   register total: f32 = 0.0
+  register X_at: i64 = cast(n, i64)
   @loop for i in 0..M
-    total = total + X[i, n]
+    total = total + X_flat[X_at]
+    X_at = cast(N, i64) + X_at
   Y[n] = total
```
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.analysis.normal.flat_index import split_index
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import region_text
from kir.ir.types import I32, I64, DType
from kir.ir.visit import buffers_named, names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import is_counted, matched, node_as, params_as, regions_of, sibling, splice

Width = Literal["i64", "i32"]
DTYPES: dict[str, DType] = {"i64": I64, "i32": I32}


class NoAddress(Exception):
    """A place whose address does not move evenly."""


@dataclass(frozen=True)
class Moving:
    """The address of an element, in elements from the start of its tensor: `base + var * step`, and how many neighbors are meant."""

    base: n.Expr
    step: n.Expr
    extent: int | n.Expr | None = None


def address_of(r: n.Region, var: n.Var, width: str, terms: tuple[int, ...] = (), products: tuple[int, ...] = ()) -> Moving:
    """The address of a place of a row-major tensor as a loop's variable moves it. `terms`: the dimensions each term of whose index is
    widened on its own; `products`: those whose index is widened after it was multiplied by the row's length. Raises NoAddress."""
    dtype = DTYPES[width]
    if r.buffer.space != "global" or not r.index or r.buffer.strides is not None or r.buffer.layout is not None or var.of != I32:
        raise NoAddress("it is no place of a row-major tensor")
    moved = _moved(r, var, dtype)
    return Moving(_base(moved.parts, tuple(1 if k in terms else 2 if k in products else 0 for k in range(len(r.index))), dtype), moved.step, moved.extent)


@dataclass(frozen=True)
class Part:
    """What an index of a place adds to its address while the variable is 0: `index` is its polynomial without the variable, `stride` and `narrow`
    what lies between its elements, in the address's dtype and in i32."""

    index: tuple[tuple[tuple[n.Expr, ...], int], ...]
    stride: n.Expr
    narrow: n.Expr

    def address(self, way: int, dtype: DType) -> n.Expr:
        """It, with the index widened as a whole (0), each term on its own (1), or after it was multiplied (2)."""
        if way == 1:
            rest: n.Expr = build.const(0, dtype)
            for monomial, c in self.index:
                rest = build.add(rest, build.mul(build.cast(build.from_polynomial({monomial: 1}, I32), dtype), build.const(c, dtype))
                                 if monomial else build.const(c, dtype))
            return build.mul(self.stride, rest)
        plain: n.Expr = build.const(0)
        for monomial, c in self.index:
            plain = build.add(plain, build.from_polynomial({monomial: c}, I32))
        return build.cast(build.mul(plain, self.narrow), dtype) if way == 2 else build.mul(self.stride, build.cast(plain, dtype))


@dataclass(frozen=True)
class Moved:
    """How a loop's variable moves a place, and what each index adds, the last first."""

    parts: tuple[Part, ...]
    step: n.Expr
    extent: int | n.Expr | None


def _moved(r: n.Region, var: n.Var, dtype: DType) -> Moved:
    """Raises NoAddress, as `address_of`."""
    parts: list[Part] = []
    step: n.Expr = build.const(0, dtype)
    extent: int | n.Expr | None = None
    stride: n.Expr = build.const(1, dtype)
    narrow: n.Expr = build.const(1)
    for i, d in reversed(list(zip(r.index, r.buffer.shape, strict=True))):
        if isinstance(i, n.Span):
            if i is not r.index[-1] or not build.is_const(i.step if isinstance(i.step, n.Expr) else build.const(i.step), 1):
                raise NoAddress("it is no row of neighbors")
            extent, i = i.extent, i.lo
        if i.type != I32 or d.type != I32:
            raise NoAddress("its indices are no i32 scalars")
        rest: list[tuple[tuple[n.Expr, ...], int]] = []
        for monomial, c in build.polynomial(i).items():
            if monomial == (var,):
                step = build.add(step, build.mul(stride, build.const(c, dtype)))
            elif any(var.name in names_read(a) for a in monomial):
                raise NoAddress(f"it does not move evenly with '{var.name}'")
            else:
                rest.append((monomial, c))
        parts.append(Part(tuple(rest), stride, narrow))
        stride, narrow = build.mul(stride, build.cast(d, dtype)), build.mul(narrow, d)
    return Moved(tuple(parts), step, extent)


def _base(parts: tuple[Part, ...], way: tuple[int, ...], dtype: DType) -> n.Expr:
    """The sum of what the indices add, each widened in its way."""
    base: n.Expr = build.const(0, dtype)
    for part, kind in zip(parts, reversed(way), strict=True):
        base = build.add(base, part.address(kind, dtype))
    return base


def _invariant(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_as(program, site.path, n.For), params_as(site, StrengthReduce)
    first = matched(item.first(loop))
    inside = set(bound_names(loop.body))
    written = {x.at.buffer.name for x in walk(loop) if isinstance(x, n.Store)} | {
        a.buffer.name for x in walk(loop) if isinstance(x, n.Call) for a in x.args if isinstance(a, n.Region)}
    for x in (x for i in first.index for x in walk(i)):
        if isinstance(x, n.Var) and x.name in inside:
            return refuted(f"'{x.name}' has another value in each iteration", f"{region_text(first)} does not move evenly",
                           needs="an address that only the loop's variable moves")
        if isinstance(x, n.Load) and (x.at.buffer.name in written or x.at.buffer.name in inside):
            return refuted(f"the loop writes '{x.at.buffer.name}', which the address is computed from",
                           f"{region_text(first)} does not move evenly", needs="an address that only the loop's variable moves")
    return proved("only the loop's variable moves the address")


def _every_iteration(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(x, n.Jump) and x.kind == "continue" for x in walk(loop)):
        return refuted("an iteration may end early, before the address moves on", "the next iteration reads the same element again",
                       needs="a branch instead")
    return proved("every iteration comes to its end")


def _fits(program: n.Program, path: Path, loop: n.For, r: n.Region) -> bool:
    """Whether 32 bits hold the addresses of a place."""
    wide = address_of(r, loop.var, "i64", tuple(range(len(r.index))))
    found = Facts.at(program, (*path, "body", 0)).domain(build.add(wide.base, build.mul(build.cast(build.add(loop.var, 1), I64), wide.step)))
    low, high = I32.range
    return found.lo is not None and found.lo >= low and found.hi is not None and found.hi <= high


@dataclass(frozen=True)
class StrengthReduce(Pass):
    """`place` is the text of the place whose address is kept; other places of its tensor that move as it does are reached from it.
    `width` is that of the address, `terms` are the dimensions each term of whose index was widened on its own,
    `products` those whose index was multiplied by what lies between its elements before it was widened."""

    intent: ClassVar[str] = "strength-reduce"
    catalogue: ClassVar[tuple[int, ...]] = (15,)
    claim: ClassVar[str] = "An addition takes the place of the multiplications of an address, and of the registers for its parts."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P150", "validity", "storage", "only the loop's variable moves the address", _invariant),
        Precondition("KIR-P151", "validity", "pipeline", "every iteration comes to its end", _every_iteration))

    place: str = ""
    width: Width = "i64"
    terms: tuple[int, ...] = ()
    products: tuple[int, ...] = ()

    def first(self, loop: n.For) -> n.Region | None:
        """The place with the text `place`."""
        return next((r for r in _places(loop) if region_text(r) == self.place), None)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial or unrolled loop from 0 by 1; with no `place`, a site for each place that moves evenly."""
        if not is_counted(node, ("serial", "unroll")):
            return None
        out: dict[str, Site] = {}
        reason = ""
        own = {p.of for p in program.params} | {w.buffer for w in program.workspaces}
        for r in _places(node):
            text = region_text(r)
            if self.place not in ("", text):
                continue
            try:
                moving = address_of(r, node.var, self.width, self.terms, self.products)
            except NoAddress as bad:
                reason = f"{text}: {bad}"
                continue
            if r.buffer not in own:
                reason = f"'{r.buffer.name}' is another name for memory already"
            elif _unreachable(node, r.buffer):
                reason = f"'{r.buffer.name}' is clipped, or used by reference"
            elif (self.width == "i32" or self.products) and not _fits(program, path, node, r):
                reason = f"the address of {text} may leave 32 bits"
            elif build.is_const(moving.step, 0):
                reason = f"{text} stays where it is"
            elif (self.terms, self.products) != ((), ()) and (self.terms, self.products) not in _ways(r, node.var, self.width):
                reason = f"the index of {text} is widened so in another way already"
            else:
                out.setdefault(text, Site(path, replace(self, place=text)))
        return tuple(out.values()) or (Miss(reason) if reason else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A register before the loop, an addition at its end, and places reached from it."""
        loop, kernel = node_as(program, site.path, n.For), kernel_of(program, site.path)
        first = matched(self.first(loop))
        taken, own = names_in(program, kernel), address_of(first, loop.var, self.width, self.terms, self.products)
        view = _view(kernel, first.buffer) or n.Buffer(fresh(f"{first.buffer.name}_flat", taken), first.buffer.dtype, (_size(first.buffer),), "global")
        at = n.Buffer(fresh(f"{first.buffer.name}_at", taken), DTYPES[self.width], (), "register")
        inside = set(bound_names(loop.body))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not (isinstance(old, n.Region) and old.buffer == first.buffer and old.index):
                return new
            try:
                other = address_of(old, loop.var, self.width, self.terms, self.products)
            except NoAddress:
                return new
            if other.step != own.step or (old != first and names_read(other.base) & inside):
                return new
            place = build.cast(build.add(n.Load(n.Region(at)), build.sub(other.base, own.base)), I64)
            return build.region(view, place if other.extent is None else build.span(place, other.extent))
        body = tuple(transform(s, leave, lambda x: not isinstance(x, n.Buffer)) for s in loop.body)
        step = n.Store(n.Region(at), build.add(n.Load(n.Region(at)), own.step))
        made = replace(loop, body=(*body, step))
        out = splice(program, site.path, (n.Alloc(at, own.base), made))
        path: Path = sibling(site.path, 1)
        if _view(kernel, first.buffer) is None:
            out = edit_block(out, (kernel.name, 0), lambda b: (n.View(view, n.Region(first.buffer)), *b))
            path = (path[0], int(path[1]) + 1, *path[2:])
        return Rewritten(out, path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that adds the same to a register in every iteration, which flat places are reached from."""
        if not is_counted(node, ("serial", "unroll")):
            return None
        out: list[Site] = []
        reason: Miss | None = None
        for alloc in block_at(program, path)[:int(path[-1])]:
            if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and not alloc.buffer.shape and alloc.buffer.dtype in (I32, I64)):
                continue
            found = _undone(program, path, node, alloc)
            if isinstance(found, Miss):
                reason = found
            elif found is not None:
                width: Width = "i64" if alloc.buffer.dtype == I64 else "i32"
                captures = {"made": found[0], "alloc": alloc}
                out += [Site(path, StrengthReduce(region_text(found[1]), width, *way), captures) for way in _ways(found[1], node.var, width)]
        return tuple(out) or reason

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every address computed where it is used."""
        made, alloc = site.captures["made"], site.captures["alloc"]
        i = int(site.path[-1])
        block = block_at(program, site.path)
        k = next(j for j, s in enumerate(block) if s is alloc)
        out = edit_block(program, site.path, lambda b: (*b[:k], *b[k + 1:i], made, *b[i + 1:]))
        path: Path = sibling(site.path, -1)
        kernel = kernel_of(out, site.path)
        used = {x.buffer.name for s in kernel.body for x in walk(s) if isinstance(x, n.Region)}
        dead = [j for j, s in enumerate(kernel.body) if isinstance(s, n.View) and s.buffer.space == "global" and s.buffer.name not in used]
        body = tuple(s for j, s in enumerate(kernel.body) if j not in dead)
        gone = sum(j < int(path[1]) for j in dead)
        return Rewritten(replace_kernel(out, kernel.name, replace(kernel, body=body)), (path[0], int(path[1]) - gone, *path[2:]))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """No claim: a compiler may have done the same."""
        return Effect()


def _places(loop: n.For) -> Iterator[n.Region]:
    for s in loop.body:
        yield from (x for x in walk(s) if isinstance(x, n.Region) and x.buffer.space == "global" and x.index)


def _unreachable(loop: n.For, b: n.Buffer) -> bool:
    """Whether accesses of a tensor stop at its edges, or go through its name in other ways than loads, stores and plain copies."""
    for x in walk(loop):
        if isinstance(x, n.Load) and x.at.buffer == b and x.clip:
            return True
        if isinstance(x, n.Store) and x.at.buffer == b and x.clip:
            return True
        if isinstance(x, n.Copy) and b in (x.src.at.buffer, x.dst.buffer) and (x.clip or x.via in ("tma", "bulk")):
            return True
        if isinstance(x, n.Opaque):
            return True
    return False


def _size(b: n.Buffer) -> n.Expr:
    out: n.Expr = build.const(1)
    for d in b.shape:
        out = build.mul(out, d)
    return out


def _view(kernel: n.Kernel, b: n.Buffer) -> n.Buffer | None:
    """The flat view of a tensor that a kernel has."""
    return next((s.buffer for s in kernel.body if isinstance(s, n.View) and s.at == n.Region(b) and not s.axes and s.buffer.dtype == b.dtype
                 and s.buffer.shape == (_size(b),)), None)


def _ways(r: n.Region, var: n.Var, width: Width) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The ways to widen the indices of a place that give different addresses: `terms` and `products`."""
    dtype, seen = DTYPES[width], set[n.Expr]()
    try:
        parts = _moved(r, var, dtype).parts
    except NoAddress:
        return
    kinds = [sorted({part.address(kind, dtype): kind for kind in (2, 1, 0)}.values()) for part in reversed(parts)]
    for way in itertools.product(*kinds) if width == "i64" else ((0,) * len(parts),):
        base = _base(parts, way, dtype)
        if base not in seen:
            seen.add(base)
            yield tuple(d for d, kind in enumerate(way) if kind == 1), tuple(d for d, kind in enumerate(way) if kind == 2)


def _undone(program: n.Program, path: Path, loop: n.For, alloc: n.Alloc) -> tuple[n.For, n.Region] | Miss | None:
    """The loop with the addresses written out, and the place whose address the register is."""
    at, kernel = alloc.buffer, kernel_of(program, path)
    steps = [(k, s) for k, s in enumerate(loop.body) if isinstance(s, n.Store) and s.at == n.Region(at)]
    if len(steps) != 1 or alloc.init is None:
        return None
    k, step = steps[0]
    own = n.Load(n.Region(at))
    by = build.sub(step.value, own)
    if at.name in buffers_named(by) or names_read(by) & {*bound_names(loop.body), loop.var.name}:
        return Miss(f"'{at.name}' does not move evenly")
    here = len(regions_of(loop, at.name))
    if here != len(regions_of(kernel, at.name)):
        return Miss(f"'{at.name}' is used outside the loop")
    if any(at.name in buffers_named(s) for s in loop.body[k + 1:]):
        return Miss(f"'{at.name}' is used after it has moved on")
    value = build.add(alloc.init, build.mul(build.cast(loop.var, at.dtype), by))
    views = {s.buffer.name: s.at.buffer for s in kernel.body if isinstance(s, n.View) and not s.axes and not s.at.index and s.buffer.space == "global"}
    known = Facts.at(program, (*path, "body", 0))
    first: list[n.Region] = []

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new == own:
            return value
        if isinstance(old, n.Region) and isinstance(new, n.Region) and new != old and old.buffer.name in views and len(new.index) == 1:
            base, flat = views[old.buffer.name], new.index[0]
            index = split_index(flat.lo if isinstance(flat, n.Span) else flat, base, known)
            if index is not None and (not isinstance(flat, n.Span) or isinstance(flat.extent, int)):
                made = build.region(base, *index) if not isinstance(flat, n.Span) else build.region(
                    base, *index[:-1], build.span(index[-1], flat.extent))
                if isinstance(place := old.index[0].lo if isinstance(old.index[0], n.Span) else old.index[0], n.Expr) and place == build.cast(own, I64):
                    first.append(made)
                return made
        return new
    body = tuple(transform(s, leave, lambda x: not isinstance(x, n.Buffer)) for j, s in enumerate(loop.body) if j != k)
    if not first:
        return Miss(f"no element of a tensor lies at '{at.name}'")
    return replace(loop, body=body), first[0]
