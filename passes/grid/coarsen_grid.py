"""Lets one thread compute a tile of neighboring work items, one after the other, instead of one.

pipeline: `coarsen-grid{axis=1 extent=32}@main`

```diff
 kir 1
 program copied
   in X: f32[M, N]
   out Y: f32[M, N]
   size M: i32
   size N: i32
-kernel main grid (m: M, n: N) threads 1
-  Y[m, n] = X[m, n]
+kernel main grid (m: M, n_tile: ceildiv(N, 32)) threads 1
+  for i in 0..32
+    if n_tile * 32 + i < N
+      Y[m, n_tile * 32 + i] = X[m, n_tile * 32 + i]
```
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.bounds import conjuncts
from kir.analysis.clipping import divides
from kir.analysis.facts import Facts
from kir.analysis.simplify import whole_again
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import blocks_of, names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, replace_kernel, tile_name
from kir.rewrite.match import counting, fresh_var, is_counted, matched, matched_as, params_as

from .tile import divides_exactly

Where = Literal["around", "first", "last", "stores", "stores last", "there"]
PLACES: tuple[Where, ...] = ("around", "first", "last", "stores", "stores last", "there")


def _on_its_own(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    of_item, of_data = {kernel.grid[params_as(site, CoarsenGrid).axis].name}, set[str]()  # what an item's place decides, and what is read there

    def read(e: n.Node) -> bool:
        return not names_read(e).isdisjoint(of_data) or any(isinstance(x, n.Load) and not names_read(x.at).isdisjoint(of_item) for x in walk(e))
    apart = begun = False
    for s in statements(kernel.body):
        names, asked = _bound(s)
        begun |= not isinstance(s, (n.Let, n.For, n.If, n.While, n.Alloc, n.Jump))
        for e in asked:
            of_data |= names if read(e) else set()
            of_item |= names if not names_read(e).isdisjoint(of_item) else set()
        if any(isinstance(x, n.Jump) and x.kind == "return" for block in blocks_of(s) for x in statements(block)):
            if any(read(e) for e in asked):
                return refuted("an item may end the thread early", "the items after it would not be computed", needs="a branch instead")
            apart |= begun or any(not names_read(e).isdisjoint(of_item) or any(isinstance(x, n.Load) and x.at.buffer.space == "register" for x in walk(e))
                         for e in asked)
    if apart:
        return unknown("an item may end the thread early, and the next one not", needs="a branch instead")
    return proved("every item runs to its end, or all of a tile end before they do anything")


def _bound(s: n.Stmt) -> tuple[set[str], tuple[n.Expr, ...]]:
    """The names that a statement binds, and the expressions that say what they are, or which way it goes."""
    match s:
        case n.Let():
            return {*s.names}, (s.value,)
        case n.For():
            return {s.var.name}, (s.lo, s.hi, s.step)
        case n.If() | n.While():
            return set(), (s.cond,)
        case _:
            return set(), ()


@dataclass(frozen=True)
class CoarsenGrid(Pass):
    """`axis` is the position of the grid axis, `extent` the items of a tile. Beyond the end of the axis nothing happens: `guard` says
    where that is asked, around the whole body, in the innermost branch of its loops, as the first or the last condition, or only where
    something is stored (then too as the first condition or the last); or it is there already, in a branch that ends before. Where tiles cover the axis
    exactly, `floor` says that their number is
    written as a quotient that rounds down."""

    intent: ClassVar[str] = "tile"
    catalogue: ClassVar[tuple[int, ...]] = (1,)
    claim: ClassVar[str] = "What the items of a tile have in common is computed and loaded once."
    provides: ClassVar[tuple[str, ...]] = ("coarse",)
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P019", "validity", "pipeline", "no item ends the thread", _on_its_own),)

    axis: int = 0
    extent: int = 32
    guard: Where = "around"
    floor: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread whose memory is all private."""
        if not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or self.extent < 2:
            return None
        if not build.is_const(node.threads, 1) or node.cluster:
            return Miss("the CTA has several threads")
        if any(isinstance(s, (n.Opaque, n.Roles, n.View)) or (isinstance(s, n.Alloc) and s.buffer.space != "register")
               for s in statements(node.body)):
            return Miss("the CTA has memory of its own, or code that is not understood")
        if build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the axis has one element")
        if self.floor and not self._whole(program, node):
            return Miss("tiles do not cover the axis exactly")
        if self.guard != "around" and self._whole(program, node):
            return Miss("there is nothing to ask")
        if self.guard in ("first", "last") and _innermost(node.body) is None:
            return Miss("there is no branch inside")
        if self.guard == "there" and not _ends_before(node.body, build.var(node.grid[self.axis].name), node.grid[self.axis].extent):
            return Miss("no branch inside ends before the axis does")
        if self.guard.startswith("stores"):
            name = node.grid[self.axis].name
            if len(node.body) == 1 and _stores(node.body):
                return Miss("its one statement is what is stored")
            why = _overhangs(node.body, {name})
            if why:
                return Miss(why)
        return Site(path, self)

    def _whole(self, program: n.Program, kernel: n.Kernel) -> bool:
        return divides(self.extent, kernel.grid[self.axis].extent, program.facts)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the items of a tile around the body."""
        kernel = kernel_of(program, site.path)
        axis, taken = kernel.grid[self.axis], names_in(program, kernel)
        count = (build.floordiv if self.floor else build.ceildiv)(axis.extent, self.extent)
        tile = n.Axis(fresh(tile_name(axis.name), taken), count)
        i = fresh_var("i", taken)
        at = build.add(build.mul(build.var(tile.name), self.extent), i)
        body = _in_whole(program, tuple(substitute(s, {axis.name: at}) for s in kernel.body))
        if not self._whole(program, kernel) and self.guard != "there":
            body = _guarded(body, build.compare("lt", at, axis.extent), self.guard)
        loop = counting(i, self.extent, body)
        grid = (*kernel.grid[:self.axis], tile, *kernel.grid[self.axis + 1:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=(loop,))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread that is one loop, whose variable is only used as a place within tiles of a grid axis."""
        if not isinstance(node, n.Kernel) or len(node.body) != 1 or not build.is_const(node.threads, 1):
            return None
        loop = node.body[0]
        if not is_counted(loop, of=I32, plain=True):
            return None
        extent = build.int_value(loop.hi)
        out = [Site(path, item) for k, a in enumerate(node.grid) for where in PLACES if extent is not None
               and (item := CoarsenGrid(k, extent, where, _floor(a.extent, extent)))._single(program, node) is not None]
        return tuple(out) or Miss("its variable is no place within tiles of a grid axis")

    def _single(self, program: n.Program, kernel: n.Kernel) -> n.Kernel | None:
        """The kernel that computes one item a thread."""
        loop, tile = matched_as(kernel.body[0], n.For), kernel.grid[self.axis]
        items = tile.extent.a if self.floor and isinstance(tile.extent, n.Binary) else divides_exactly(tile.extent, self.extent)
        if items is None:
            return None
        axis = n.Axis(fresh(element_name(tile.name), names_in(program, kernel)), items)
        item = build.var(axis.name)
        body = _in_whole(program, tuple(substitute(s, {loop.var.name: build.sub(item, build.mul(build.var(tile.name), self.extent))}) for s in loop.body))
        if not divides(self.extent, items, program.facts):
            bare = _unguarded(body, build.compare("lt", item, items), self.guard)
            if bare is None:
                return None
            body = bare
        elif self.guard != "around":
            return None
        if any(tile.name in names_read(s) for s in body):
            return None
        return replace(kernel, grid=(*kernel.grid[:self.axis], axis, *kernel.grid[self.axis + 1:]), body=body)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One item a thread."""
        kernel = kernel_of(program, site.path)
        made = matched(self._single(program, kernel))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)


def _in_whole(program: n.Program, body: n.Block) -> n.Block:
    """A body whose places in rows that are counted in parts are said in whole sizes: `64 * (K // 8)` is `8 * K` where 8 divides K."""
    known = Facts.from_program(program)
    return tuple(transform(s, lambda _, x: whole_again(x, known) if isinstance(x, n.Binary) and x.op in ("add", "sub") and x.type == I32 else x) for s in body)


def _floor(tiles: n.Expr, extent: int) -> bool:
    """Whether a number of tiles is a quotient that rounds down."""
    return isinstance(tiles, n.Binary) and tiles.op == "floordiv" and build.int_value(tiles.b) == extent


def _innermost(body: n.Block) -> n.If | None:
    """The branch at the bottom of loops around nothing else."""
    s = body[0] if len(body) == 1 else None
    while isinstance(s, n.For) and len(s.body) == 1:
        s = s.body[0]
    return s if isinstance(s, n.If) and not s.orelse and not s.static else None


def _ends_before(body: n.Block, item: n.Expr, end: n.Expr) -> bool:
    """Whether a branch around all else is taken only by items some way before an end: those of a grid without its edge."""
    inner = _innermost(body)
    return inner is not None and any(isinstance(c, n.Binary) and c.op == "lt" and c.a == item and (
        build.int_value(build.sub(end, c.b)) or 0) > 0 for c in conjuncts(inner.cond))


def _with_innermost(body: n.Block, made: n.Block) -> n.Block:
    s = body[0]
    return (replace(s, body=_with_innermost(s.body, made)),) if isinstance(s, n.For) else made


def _guarded(body: n.Block, cond: n.Expr, where: Where) -> n.Block:
    """The body, which does nothing unless a condition holds."""
    inner = _innermost(body)
    if where.startswith("stores"):
        return _asked(body, cond, where)
    if where == "around" or inner is None:
        return (n.If(cond, body),)
    both = build.logical_and(cond, inner.cond) if where == "first" else build.logical_and(inner.cond, cond)
    return _with_innermost(body, (replace(inner, cond=both),))


def _unguarded(body: n.Block, cond: n.Expr, where: Where) -> n.Block | None:
    """The inverse of `_guarded`; None where the condition is not asked there."""
    if where == "there":
        return body if isinstance(cond, n.Binary) and _ends_before(body, cond.a, cond.b) else None
    if where.startswith("stores"):
        try:
            return _unasked(body, cond, where)
        except _Unguarded:
            return None
    if where == "around":
        s = body[0] if len(body) == 1 else None
        return s.then if isinstance(s, n.If) and s.cond == cond and not s.orelse and not s.static else None
    inner = _innermost(body)
    for a, b in _halves(inner.cond) if inner is not None else ():
        own, rest = (a, b) if where == "first" else (b, a)
        if own == cond and inner is not None:
            return _with_innermost(body, (replace(inner, cond=rest),))
    return None


def _halves(e: n.Expr) -> Iterator[tuple[n.Expr, n.Expr]]:
    if isinstance(e, n.Binary) and e.op == "and":
        yield e.a, e.b


class _Unguarded(Exception):
    """Something is stored for items past the end."""


def _stores(block: n.Block) -> bool:
    """Whether a block itself, not what is nested in it, writes what others see."""
    return any((isinstance(s, n.Store) and s.at.buffer.space != "register") or isinstance(s, n.Eval) for s in block)


def _asked(block: n.Block, cond: n.Expr, where: Where) -> n.Block:
    """A block in which a condition is asked wherever something is stored: of a branch around stores as well, or by one of its own."""
    out: list[n.Stmt] = []
    own = False
    for s in block:
        last = out[-1] if out else None
        if _stores((s,)):
            if isinstance(last, n.If) and own:
                out[-1] = replace(last, then=(*last.then, s))
            else:
                out.append(n.If(cond, (s,)))
            own = True
            continue
        own = False
        match s:
            case n.For() | n.While():
                s = replace(s, body=_asked(s.body, cond, where))
            case n.If() if _stores(s.then) and not s.orelse:
                s = replace(s, cond=build.logical_and(s.cond, cond) if where == "stores last" else build.logical_and(cond, s.cond))
            case n.If():
                s = replace(s, then=_asked(s.then, cond, where), orelse=_asked(s.orelse, cond, where))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _unasked(block: n.Block, cond: n.Expr, where: Where) -> n.Block:
    """The inverse of `_asked`; raises _Unguarded where something is stored without it."""
    out: list[n.Stmt] = []
    for s in block:
        if _stores((s,)):
            raise _Unguarded
        match s:
            case n.For() | n.While():
                out.append(replace(s, body=_unasked(s.body, cond, where)))
            case n.If() if _stores(s.then) and not s.orelse and s.cond == cond:
                out.extend(s.then)
            case n.If() if _stores(s.then) and not s.orelse:
                own, rest = _first_or_last(s.cond, where)
                if own != cond:
                    raise _Unguarded
                out.append(replace(s, cond=rest))
            case n.If():
                out.append(replace(s, then=_unasked(s.then, cond, where), orelse=_unasked(s.orelse, cond, where)))
            case _:
                out.append(s)
    return tuple(out)


def _first_or_last(e: n.Expr, where: Where) -> tuple[n.Expr, n.Expr]:
    if not (isinstance(e, n.Binary) and e.op == "and"):
        raise _Unguarded
    return (e.b, e.a) if where == "stores last" else (e.a, e.b)


def _overhangs(body: n.Block, names: set[str]) -> str:
    """Why an item past the end would do harm though it stores nothing: it reads outside a tensor, or decides something by its place."""
    for s in statements(body):
        if isinstance(s, n.Let) and names_read(s.value) & names:
            names |= set(s.names)
        for x in walk(s):
            if isinstance(x, n.Load) and x.at.buffer.space == "global" and not x.clip and names_read(x.at) & names and not (isinstance(s, n.If)):
                return f"an item past the end reads '{x.at.buffer.name}' outside of it"
        if isinstance(s, (n.For, n.While)) and any(names_read(e) & names for e in ((s.lo, s.hi) if isinstance(s, n.For) else (s.cond,))):
            return "how often a loop runs depends on the item"
    return ""
