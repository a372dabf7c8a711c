"""Cuts a loop short where nothing of what it folds is kept: a tile past the end of its rows spares the work.

pipeline: `spare-loop{when="t * 32 < count"}@main/k`

```diff
 kir 1
 program sums
   in X: f32[N, K]
   in rows: i32[1]
   out S: f32[N]
   size N: i32
   size K: i32
 kernel main grid (t: ceildiv(N, 32)) threads 32
   let count = rows[0]
   fragment acc: f32[32] = 0.0
-  @k for k in 0..K
+  @k for k in 0..select(t * 32 < count, K, 0)
     acc = acc + load(X[t * 32 +: 32, k] else 0.0 clip)
   S[t * 32 +: 32] = select(iota(32) + t * 32 < count, acc, 0.0) clip
```

With `trips`, a loop that others count on to run keeps so many iterations.
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.elements import NotElementwise, element
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, shape_of
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, is_counted, matched, node_as, params_as
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

from .early_exit import opposite


def _site(program: n.Program, site: Site) -> tuple[n.For, SpareLoop, n.Expr]:
    loop, item = node_as(program, site.path, n.For), params_as(site, SpareLoop)
    return loop, item, matched(item.condition(program, site.path))


def _fewer(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item, _ = _site(program, site)
    return decided(build.compare("ge", loop.hi, item.trips), Facts.at(program, site.path), "the loop runs no further than before",
                   f"the loop had fewer than {item.trips} iterations")


def _own(loop: n.For) -> set[str]:
    """The memory that an iteration has for itself."""
    return {s.buffer.name for s in statements(loop.body) if isinstance(s, n.Alloc)}


def _folded(loop: n.For) -> set[str]:
    """What outlives an iteration and is written in it."""
    written = {s.at.buffer.name for s in statements(loop.body) if isinstance(s, n.Store)}
    written |= {s.dst.buffer.name for s in statements(loop.body) if isinstance(s, n.Copy)}
    return (written | {s.acc.buffer.name for s in statements(loop.body) if isinstance(s, n.Mma)}) - _own(loop)


def _private(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _, _ = _site(program, site)
    kinds = n.Let | n.Alloc | n.For | n.Store | n.Copy | n.Mma | n.View
    for s in statements(loop.body):
        if not isinstance(s, kinds):
            return unknown(f"a {type(s).__name__.lower()} in the loop may do more than fold", needs="folds into memory of the CTA")
        at = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else s.acc if isinstance(s, n.Mma) else None
        if at is not None and at.buffer.name not in _own(loop) and at.buffer.space not in ("register", "fragment", "shared"):
            return unknown(f"the loop writes '{at.buffer.name}', which others may read", needs="folds into memory of the CTA")
        if any(isinstance(x, n.Call) and any(isinstance(a, n.Region) for a in x.args) for x in walk(s)):
            return unknown("the loop calls something that works on memory", needs="folds into memory of the CTA")
    return proved("the loop folds into memory of the CTA alone")


def _unused(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _, when = _site(program, site)
    block, index = block_and_index(program, site.path)
    if block is not kernel_of(program, site.path).body:
        return unknown("the loop stands in another", needs="a loop of the kernel itself")
    known = Facts.at(program, site.path).knowing(opposite(when))
    folded, lets = _folded(loop), dict[str, n.Expr]()
    for s in block[index + 1:]:
        if isinstance(s, n.Let) and len(s.names) == 1:
            lets[s.names[0]] = s.value
        elif isinstance(s, n.Alloc) and s.init is not None:
            if _reads(s.init, folded, lets) and not _selected(s.init, folded, lets, known):
                return unknown(f"'{s.buffer.name}' begins with what the loop folded", needs=f"nothing of it where {text_of(when)} does not hold")
        elif isinstance(s, n.Store):
            if any(_reads(e, folded, lets) for e in (s.mask, *(i for i in s.at.index if isinstance(i, n.Expr))) if e is not None):
                return unknown(f"where '{s.at.buffer.name}' is stored depends on what the loop folded")
            masked = s.mask is not None and fails(s.mask, known)
            if not masked and _reads(s.value, folded, lets) and not _selected(s.value, folded, lets, known):
                return unknown(f"'{s.at.buffer.name}' gets what the loop folded", needs=f"nothing of it where {text_of(when)} does not hold")
        elif buffers_named(s) & folded or names_read(s) & {x for x, e in lets.items() if _reads(e, folded, lets)}:
            return unknown(f"a {type(s).__name__.lower()} after the loop reads what it folded", needs="stores of selected values")
    return proved(f"nothing of what the loop folds is kept where {text_of(when)} does not hold")


def _reads(e: n.Expr, folded: set[str], lets: dict[str, n.Expr]) -> bool:
    return bool(buffers_named(e) & folded) or any(_reads(lets[x], folded, lets) for x in names_read(e) & lets.keys())


def _selected(e: n.Expr, folded: set[str], lets: dict[str, n.Expr], known: Facts) -> bool:
    """Whether an expression is of other things than what was folded, by selections whose conditions fail."""
    if not _reads(e, folded, lets):
        return True
    if isinstance(e, n.Var):
        return _selected(lets[e.name], folded, lets, known)
    if isinstance(e, n.Select) and not _reads(e.cond, folded, lets) and fails(e.cond, known):
        return _selected(e.b, folded, lets, known)
    if isinstance(e, n.Load):
        return False
    parts = [x for x in (getattr(e, name, None) for name in ("a", "b", "x", "cond")) if isinstance(x, n.Expr)]
    parts += [a for a in e.args if isinstance(a, n.Expr)] if isinstance(e, n.Call) else []
    return bool(parts) and all(_selected(x, folded, lets, known) for x in parts)


def fails(cond: n.Expr, known: Facts) -> bool:
    """Whether a condition fails for each element."""
    if isinstance(cond, n.Binary) and cond.op == "and":
        return fails(cond.a, known) or fails(cond.b, known)
    index, here = list[n.Expr](), known
    for k, d in enumerate(shape_of(cond.type)):
        var = n.Var(f"%{k}", I32)
        index.append(var)
        here = here.ranging(var, build.const(0), d if isinstance(d, n.Expr) else build.const(d), build.const(1))
    try:
        return decided(opposite(element(cond, index)), here, "", "").kind == "proved"
    except NotElementwise:
        return False


@dataclass(frozen=True)
class SpareLoop(Pass):
    """`when` is the text of the condition under which what the loop folds is kept, `trips` how many iterations it has in any case."""

    intent: ClassVar[str] = "mask"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "Tiles past the end of a sequence cost no products."
    provides: ClassVar[tuple[str, ...]] = ("spared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P546", "validity", "shape", "the loop runs no further than before", _fewer),
        Precondition("KIR-P547", "validity", "storage", "the loop folds into memory of its CTA alone", _private),
        Precondition("KIR-P548", "validity", "storage", "what the loop folds is not kept where it is cut short", _unused))

    when: str = ""
    trips: int = 0

    def condition(self, program: n.Program, path: Path) -> n.Expr | None:
        """The condition under which the loop is needed."""
        found = expression_at(program, path, self.when)
        return found if found is not None and found.type == BOOL else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop; when it is needed is given."""
        if not self.when or self.trips < 0 or not is_counted(node, of=I32) or not isinstance(node, n.For):
            return None
        cond = self.condition(program, path)
        if cond is None or isinstance(node.hi, n.Select) or any(isinstance(x, n.Load) for x in walk(cond)):
            return Miss("the condition is none here, or the loop is cut short already")
        return Site(path, replace(self, when=text_of(cond)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop to its end where the condition holds, and otherwise to the least."""
        loop, item, cond = _site(program, site)
        return edited(program, site.path, (replace(loop, hi=build.select(cond, loop.hi, build.const(item.trips))),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop whose end is chosen between one and a number."""
        if not is_counted(node, of=I32) or not isinstance(node, n.For) or not isinstance(node.hi, n.Select):
            return None
        trips = build.int_value(node.hi.b)
        return Miss("its other end is no number") if trips is None or trips < 0 else Site(path, SpareLoop(text_of(node.hi.cond), trips))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop to its end."""
        loop = node_as(program, site.path, n.For)
        assert isinstance(loop.hi, n.Select)
        return edited(program, site.path, (replace(loop, hi=loop.hi.a),))
