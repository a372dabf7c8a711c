"""Has a CTA compute several neighboring tiles at once, each step of all of them in turn: what they have in common is loaded once.

A tile whose sides are powers of two may then be three of them, of which more multiprocessors have the same share.

pipeline: `join-tiles{count=3}@main`

```diff
 kir 1
 program product
   size M: i32
   size K: i32
   in A: f16[M, K]
   in B: f16[K, 64]
   out C: f32[M, 64]
-kernel main grid (i_tile: ceildiv(M, 64)) threads 128
+kernel main grid (i_tiles: ceildiv(ceildiv(M, 64), 3)) threads 128
+  let i_tile = i_tiles * 3
+  let i_tile_1 = i_tiles * 3 + 1
+  let i_tile_2 = i_tiles * 3 + 2
   fragment acc: f32[64, 64] = 0.0
+  fragment acc_1: f32[64, 64] = 0.0
+  fragment acc_2: f32[64, 64] = 0.0
   @k for k in 0..ceildiv(K, 64)
     let b = load(B[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
     let a = load(A[i_tile * 64 +: 64, k * 64 +: 64] else 0.0:f16 clip)
+    let a_1 = load(A[i_tile_1 * 64 +: 64, k * 64 +: 64] else 0.0:f16 clip)
+    let a_2 = load(A[i_tile_2 * 64 +: 64, k * 64 +: 64] else 0.0:f16 clip)
     mma acc += a * b
+    mma acc_1 += a_1 * b
+    mma acc_2 += a_2 * b
   C[i_tile * 64 +: 64, 0 +: 64] = acc clip
+  if i_tile_1 < ceildiv(M, 64)
+    C[i_tile_1 * 64 +: 64, 0 +: 64] = acc_1 clip
+  if i_tile_2 < ceildiv(M, 64)
+    C[i_tile_2 * 64 +: 64, 0 +: 64] = acc_2 clip
```
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.clipping import divides
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.visit import names_mentioned, own_nodes, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import params_as
from kir.rewrite.match.materialize import is_pure

from .tile import divides_exactly

LOCAL = ("fragment", "register")


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether a CTA reads nothing that another one writes, under whatever name."""
    body = kernel_of(program, site.path).body
    written = {r.buffer.name for s in statements(body) if (r := _written(s)) is not None and r.buffer.space not in LOCAL}
    read = {x.at.buffer.name for s in body for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space not in LOCAL}
    both = Aliases(program).aliased(read, written)
    return refuted(f"'{min(both)}' is read, which the tiles write", "a tile would read what its neighbor has just written") if both else proved(
        "no tile reads what tiles write")


def _within(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether tiles past the end of the axis read nothing outside a tensor, and divide by nothing of theirs."""
    kernel, item = kernel_of(program, site.path), params_as(site, JoinTiles)
    if item.whole(program, kernel):
        return proved(f"groups of {item.count} tiles cover the axis exactly")
    own = _own(kernel.body, kernel.grid[item.axis].name)
    for s in statements(kernel.body):
        for x in own_nodes(s):
            if isinstance(x, n.Load) and x.at.buffer.space not in LOCAL and names_mentioned(x.at) & own and not x.clip:
                return unknown(f"a tile past the end reads '{x.at.buffer.name}' without regard to its end", needs="a load that ends where the tensor does")
            if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "ceildiv", "div", "truncdiv", "rem") and names_mentioned(x.b) & own:
                return unknown("a tile past the end may divide by zero")
    return proved("what a tile past the end loads is filled in")


@dataclass(frozen=True)
class JoinTiles(Pass):
    """`count` tiles that follow one another along grid axis `axis` become one CTA's."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50,)
    claim: ClassVar[str] = "An operand that several tiles need is loaded once for all of them."
    least: ClassVar[Mapping[str, int]] = {"count": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P789", "validity", "aliasing", "no tile reads what another one writes", _apart),
        Precondition("KIR-P790", "validity", "shape", "tiles past the end of the axis do no harm", _within))

    axis: int = 0
    count: int = 2

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of whole tiles, of which a loop over products loads something that does not depend on the tile's number."""
        if not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or self.count < 2:
            return None
        if node.cluster or build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the CTAs of the axis belong together, or there is one")
        own = _own(node.body, node.grid[self.axis].name)
        for s in statements(node.body):
            if why := _stands_alone(s, own):
                return Miss(why)
        for s in statements(node.body):
            inside = s.body if isinstance(s, n.For) else ()
            if any(isinstance(x, n.Mma) and _mentions(x, own) for x in inside) and any(_loads(x) and not _mentions(x, own) for x in inside):
                return Site(path, self)
        return Miss("no loop over products loads what neighboring tiles have in common")

    def whole(self, program: n.Program, kernel: n.Kernel) -> bool:
        """Whether groups cover the axis exactly."""
        return divides(self.count, kernel.grid[self.axis].extent, program.facts)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A copy of what depends on the tile's number for each tile of a group, one beside the other."""
        kernel = kernel_of(program, site.path)
        axis, taken = kernel.grid[self.axis], names_in(program, kernel)
        group = n.Axis(fresh(f"{axis.name}s", taken), build.ceildiv(axis.extent, self.count))
        own = _own(kernel.body, axis.name)
        mine = [name for name in dict.fromkeys(bound_names(kernel.body)) if name in own]
        copies = [{axis.name: axis.name}, *({x: fresh(x, taken) for x in (axis.name, *mine)} for _ in range(1, self.count))]
        lets = tuple(n.Let((names[axis.name],), build.add(build.mul(build.var(group.name), self.count), t)) for t, names in enumerate(copies))
        ends = None if self.whole(program, kernel) else axis.extent
        body = (*lets, *(x for s in kernel.body for x in _copied(s, own, copies, axis.name, ends)))
        grid = (*kernel.grid[:self.axis], group, *kernel.grid[self.axis + 1:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=body)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that begins with the numbers of a group's tiles."""
        if not isinstance(node, n.Kernel) or not node.body or not isinstance(node.body[0], n.Let):
            return None
        for k, axis in enumerate(node.grid):
            first, count = node.body[0], _times(node.body[0].value, axis.name)
            tiles = divides_exactly(axis.extent, count) if count else None
            if count is None or tiles is None or len(first.names) != 1:
                continue
            numbers = [build.add(build.mul(build.var(axis.name), count), t) for t in range(count)]
            lets = [s for s in node.body[:count] if isinstance(s, n.Let) and len(s.names) == 1]
            if [s.value for s in lets] != numbers:
                continue
            rest = node.body[count:]
            others = set[str]().union(*(_own(rest, s.names[0]) for s in lets[1:]))
            body = tuple(_single(rest, others))
            if any(axis.name in names_mentioned(s) for s in body):
                return Miss("the group's number is needed beside those of its tiles")
            grid = (*node.grid[:k], n.Axis(first.names[0], tiles), *node.grid[k + 1:])
            return Site(path, JoinTiles(k, count), {"made": replace(node, grid=grid, body=body)})
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A tile a CTA."""
        return Rewritten(replace_kernel(program, kernel_of(program, site.path).name, site.captures["made"]), site.path)


def _times(e: n.Expr, name: str) -> int | None:
    """The number of which an expression is so many times a variable."""
    return build.int_value(e.b) if isinstance(e, n.Binary) and e.op == "mul" and e.a == build.var(name) else None


def _written(s: n.Stmt) -> n.Region | None:
    """Where a statement itself writes."""
    match s:
        case n.Store():
            return s.at
        case n.Copy():
            return s.dst
        case n.Mma():
            return s.acc
        case _:
            return None


def _mentions(s: n.Stmt, names: set[str]) -> bool:
    """Whether a statement itself, not what stands in it, binds or uses one of some names."""
    if isinstance(s, n.For):
        return any(names_mentioned(e) & names for e in (s.lo, s.hi, s.step))
    if isinstance(s, n.If):
        return bool(names_mentioned(s.cond) & names)
    return bool(names_mentioned(s) & names)


def _own(body: n.Block, axis: str) -> set[str]:
    """Names of what depends on a tile's number, and of memory of its own that it is written to."""
    own, before = {axis}, 0
    while len(own) > before:
        before = len(own)
        for s in statements(body):
            if not _mentions(s, own):
                continue
            at = _written(s)
            if isinstance(s, n.Let):
                own.update(s.names)
            elif isinstance(s, (n.Alloc, n.View)):
                own.add(s.buffer.name)
            elif at is not None and at.buffer.space in LOCAL:
                own.add(at.buffer.name)
    return own


def _stands_alone(s: n.Stmt, own: set[str]) -> str:
    """Why a statement has no copy for each tile beside the others, or cannot be run once for all of them."""
    at = _written(s)
    match s:
        case n.Let() if not is_pure(s.value):
            return "a value is more than its operands"
        case n.Let() | n.Mma():
            return ""
        case n.Alloc():
            return "" if s.buffer.space in LOCAL else f"'{s.buffer.name}' is memory of the whole CTA"
        case n.View():
            if s.at.buffer.space != "global":
                return f"'{s.buffer.name}' is a view of memory of the CTA"
            return f"what is seen as '{s.buffer.name}' depends on the tile" if _mentions(s, own) else ""
        case n.For():
            return "how often a loop runs depends on the tile" if _mentions(s, own) else ""
        case n.Copy() if s.signal is not None or s.grouped or s.attrs:
            return "a copy is waited for elsewhere"
        case n.Store() | n.Copy() if at is not None:
            return "" if at.buffer.space in LOCAL or _mentions(s, own) else f"all tiles write the same of '{at.buffer.name}'"
        case _:
            return "threads synchronize in it, or something in it is not understood"


def _loads(s: n.Stmt) -> bool:
    """Whether a statement itself loads from a tensor."""
    return any(isinstance(x, n.Load) and x.at.buffer.space == "global" for x in own_nodes(s))


def _copied(s: n.Stmt, own: set[str], copies: list[dict[str, str]], axis: str, ends: n.Expr | None) -> Iterator[n.Stmt]:
    """A statement for each tile, or once for all. Beyond the end of the axis nothing is stored."""
    if isinstance(s, n.For):
        yield replace(s, body=tuple(x for each in s.body for x in _copied(each, own, copies, axis, ends)))
        return
    if not _mentions(s, own):
        yield s
        return
    at = _written(s)
    for t, names in enumerate(copies):
        made = rename(s, names)
        made = replace(made, label=None) if t else made  # type: ignore[type-var]  # every Stmt is a dataclass
        asked = t and ends is not None and at is not None and at.buffer.space not in LOCAL
        yield n.If(build.compare("lt", build.var(names[axis]), ends), (made,)) if asked and ends is not None else made


def _single(body: n.Block, others: set[str]) -> Iterator[n.Stmt]:
    """The statements that are not of other tiles."""
    for s in body:
        if isinstance(s, n.For):
            yield replace(s, body=tuple(_single(s.body, others)))
        elif not _mentions(s, others):
            yield s


__all__ = ["JoinTiles"]
