"""Deals the iterations of a kernel's loops out to the threads of a whole grid: one each, or every so many.

pipeline: `deal-loops{ctas="64" threads=256 once=[1]}@main`

```diff
 kir 1
 program scale
   in X: f32[N]
   out Y: f32[N]
   size N: i32
   fact N >= 0
   fact N <= 65536
-kernel main grid () threads 1
-  for i in 0..N // 4
-    for v in 0..4
-      Y[i * 4 + v] = X[i * 4 + v] * 2.0
-  for r in 0..N % 4
-    Y[N // 4 * 4 + r] = X[N // 4 * 4 + r] * 2.0
+kernel main grid (b: 64) threads 256
+  for t in 0..256 parallel thread
+    for i in 0..ceildiv(N // 4 - b * 256 - t, 16384)
+      for v in 0..4
+        Y[b * 1024 + i * 65536 + t * 4 + v] = X[b * 1024 + i * 65536 + t * 4 + v] * 2.0
+    if b * 256 + t < N % 4
+      Y[b * 256 + N // 4 * 4 + t] = X[b * 256 + N // 4 * 4 + t] * 2.0
```
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.analysis.integers.integer_sums import Terms, in_sums, replaced
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text, region_text
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import enclosing, kernel_of, names_in, places, replace_kernel
from kir.rewrite.match import counting, fresh_var, from_zero, is_counted, matched, names_at, params_as, whole_warps
from kir.rewrite.match.independence import independent, order_free
from kir.rewrite.match.materialize import buffers_read, buffers_written
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of


def _item(site: Site) -> DealLoops:
    return params_as(site, DealLoops)


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _loops(kernel_of(program, site.path))
    for k, loop in enumerate(loops):
        for rule in (independent, order_free):
            verdict = rule(program, (*site.path, k), loop)
            if not verdict:
                return verdict
    for a, b in itertools.combinations(range(len(loops)), 2):
        verdict = _separate(program, site.path, a, b)
        if not verdict:
            return verdict
    return proved("no iteration of any loop touches what another one writes")


def _separate(program: n.Program, path: Path, a: int, b: int) -> Verdict:
    """Whether two loops may change places."""
    aliases, loops = Aliases(program), _loops(kernel_of(program, path))
    one, other = loops[a], loops[b]
    for first, second in ((one, other), (other, one)):
        for name in sorted(buffers_written((first,))):
            read = set().union(*(buffers_read(x) for x in walk(second) if isinstance(x, n.Expr)))
            for seen in sorted(read | (buffers_written((second,)) - {name})):
                if name in ("*", seen) or aliases.may_be_one(name, seen):
                    return unknown(f"one loop writes '{name}' and another one touches '{seen}'", needs="loops that do not depend on each other")
    for x, y in itertools.product(_stores(program, (*path, a)), _stores(program, (*path, b))):
        if x[1].buffer == y[1].buffer:
            verdict = _elsewhere(program, x, y)
            if not verdict:
                return verdict
    return proved("the loops do not depend on each other")


def _stores(program: n.Program, path: Path) -> Iterator[tuple[Path, n.Region]]:
    for p, s in places(program):
        if p[:len(path)] == path and isinstance(s, n.Store) and s.at.buffer.space == "global":
            yield p, s.at


def _elsewhere(program: n.Program, x: tuple[Path, n.Region], y: tuple[Path, n.Region]) -> Verdict:
    """Whether places of two loops are never the same."""
    known = Facts.at(program, x[0])
    for _, s in enclosing(program, y[0]):
        if isinstance(s, n.For):
            known = known.ranging(s.var, s.lo, s.hi, s.step)
    differ = None
    for i, j in zip(x[1].index, y[1].index, strict=True):
        if isinstance(i, n.Expr) and isinstance(j, n.Expr):
            one = build.compare("ne", i, j)
            differ = one if differ is None else build.logical_or(differ, one)
    if differ is None:
        return unknown(f"both loops write all of '{x[1].buffer.name}'", needs="loops that write different places")
    return decided(differ, known, "the loops write different places", f"{region_text(x[1])} and {region_text(y[1])} may be one place",
                   needs="loops that write different places")


def _all(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = _item(site), kernel_of(program, site.path)
    warps = whole_warps(item.threads, context)
    if not warps:
        return warps
    ctas = matched(item.count(program, site.path))
    for k, loop in enumerate(_loops(kernel)):
        if k in item.once:
            claim = build.compare("le", loop.hi, build.mul(ctas, item.threads))
            verdict = decided(claim, Facts.at(program, (*site.path, k)), "there are enough threads for one iteration each",
                              "some iterations have no thread", needs=f"at least {expr_text(loop.hi)} threads")
            if not verdict:
                return verdict
    return proved("each iteration has a thread")


@dataclass(frozen=True)
class DealLoops(Pass):
    """`ctas` is the text of the number of CTAs, `threads` those of each; `once` are the loops, by their number in the kernel, of which a thread has
    one iteration at most. Of the others it has every so many as there are threads, whose number is a literal then."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48, 30)
    claim: ClassVar[str] = "All processors work on all of the loops, and threads next to each other on neighbors."
    provides: ClassVar[tuple[str, ...]] = ("threads", "thread-loop")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P929", "validity", "aliasing", "no iteration of any of the loops touches what another one writes", _apart),
        Precondition("KIR-P930", "validity", "hardware", "there is a thread for each iteration", _all))

    ctas: str = ""
    threads: int = 256
    once: tuple[int, ...] = ()

    def count(self, program: n.Program, path: Path) -> n.Expr | None:
        """The number of CTAs."""
        found = expression_at(program, (*path, 0), self.ctas)
        return found if found is not None and found.type == I32 else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one CTA of one thread that is loops and nothing else; how many CTAs there are to be is given."""
        if not self.ctas or not isinstance(node, n.Kernel):
            return None
        if not build.is_const(node.threads, 1) or node.cluster or any(not build.is_const(a.extent, 1) for a in node.grid):
            return Miss("the kernel has several threads")
        loops, ctas = _loops(node), self.count(program, path)
        if not loops or len(loops) != len(node.body) or ctas is None or any(k >= len(loops) for k in self.once):
            return Miss("the kernel is more than loops from 0 by 1, or the number of CTAs is none")
        if build.int_value(ctas) is None and len(self.once) < len(loops):
            return Miss("a thread's share of a loop is every so many, and that number is no literal")
        if any(isinstance(s, n.Jump | n.Opaque | n.Roles | n.View) or (isinstance(s, n.Alloc) and s.buffer.space != "register")
               or (isinstance(s, n.For) and s.kind in ("thread", "warp", "warpgroup")) for s in statements(node.body)):
            return Miss("a statement has no form for one thread of many")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A grid, and each thread's iterations."""
        kernel, ctas = kernel_of(program, site.path), matched(self.count(program, site.path))
        taken = names_in(program, kernel)
        b, t = fresh_var("b", taken), fresh_var("t", taken)
        number = build.add(build.mul(b, self.threads), t)
        team = counting(t, self.threads, tuple(self._share(k, s, number, ctas) for k, s in enumerate(_loops(kernel))), "thread")
        return self._made(program, site, (n.Axis(b.name, ctas),), build.const(self.threads), (team,))

    def _share(self, k: int, loop: n.For, number: n.Expr, ctas: n.Expr) -> n.Stmt:
        """What a thread does of a loop."""
        if k in self.once:
            return n.If(build.compare("lt", number, loop.hi), tuple(substitute(s, {loop.var.name: number}) for s in loop.body), label=loop.label)
        every = (build.int_value(ctas) or 0) * self.threads
        at = build.add(number, build.mul(loop.var, every))
        return replace(loop, hi=build.ceildiv(build.sub(loop.hi, number), every), body=tuple(substitute(s, {loop.var.name: at}) for s in loop.body))

    def _made(self, program: n.Program, site: Site, grid: tuple[n.Axis, ...], threads: n.Expr, body: n.Block) -> Rewritten:
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, threads=threads, body=body)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose threads do nothing but their iterations of several loops, of which they know by their number in the grid."""
        if not isinstance(node, n.Kernel) or len(node.grid) != 1 or len(node.body) != 1 or node.cluster:
            return None
        team, threads = node.body[0], build.int_value(node.threads)
        if not (isinstance(team, n.For) and team.kind == "thread" and threads is not None and build.int_value(team.hi) == threads and len(team.body) > 1):
            return None
        axis = node.grid[0]
        number: Terms = {(n.Var(axis.name, I32),): threads, (team.var,): 1}
        loops, once = list[n.For](), list[int]()
        for k, s in enumerate(team.body):
            made = _whole(s, number, (build.int_value(axis.extent) or 0) * threads, k)
            if made is None or names_read(made) & {axis.name, team.var.name}:
                return Miss("a statement is no share of a loop, by the thread's number in the grid")
            loops.append(made)
            once += [k] if isinstance(s, n.If) else []
        return Site(path, DealLoops(text_of(axis.extent), threads, tuple(once)), {"loops": tuple(loops)})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loops, of one thread."""
        taken = names_at(program, site.path)
        out = []
        for loop in site.captures["loops"]:
            assert isinstance(loop, n.For)
            var = fresh_var("item", taken)
            out.append(replace(loop, var=var, body=tuple(substitute(s, {loop.var.name: var}) for s in loop.body)))
        return self._made(program, site, (), build.const(1), tuple(out))


def _loops(kernel: n.Kernel) -> list[n.For]:
    """The kernel's own loops from 0 by 1."""
    return [s for s in kernel.body if isinstance(s, n.For) and s.kind == "serial" and not s.attrs and s.var.of == I32
            and from_zero(s)]


def _whole(s: n.Stmt, number: Terms, every: int, k: int) -> n.For | None:
    """The loop of which a statement is the share of the thread of a number; its variable has a name of its own."""
    item, at = n.Var(f"%item{k}", I32), build.from_polynomial(number, I32)
    if isinstance(s, n.If) and not s.orelse and not s.static and isinstance(s.cond, n.Binary) and s.cond.op == "lt" and s.cond.a == at:
        part, hi, body = number, s.cond.b, s.then
    elif is_counted(s, plain=True) and (
            s.var.of == I32 and isinstance(s.hi, n.Binary) and s.hi.op == "ceildiv" and every and build.int_value(s.hi.b) == every):
        part, hi, body = {**number, (s.var,): every}, build.add(s.hi.a, at), s.body
    else:
        return None

    def change(terms: Terms) -> Terms | None:
        return replaced(terms, ((part, item),))
    made = tuple(in_sums(x, change) for x in body)
    if isinstance(s, n.For) and any(s.var.name in names_read(x) for x in made):
        return None
    return counting(item, hi, made, label=s.label)  # type: ignore[arg-type]  # statements stay statements
