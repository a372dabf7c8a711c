"""Runs a loop over a fixed number of elements, with the accesses past the end masked, instead of over exactly as many as there are.

pipeline: `mask-tail{extent=256}@main/j`

```diff
 kir 1
 program row_sums
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
   fact N <= 256
 kernel main grid (row: M) threads 128
   register total: f32 = 0.0
-  @j for j in 0..N
-    total = total + X[row, j]
+  @j for j in 0..256
+    total = total + load(X[row, j] else 0.0 clip)
   S[row] = total
```
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.bounds import bare, inside
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import dim_text, region_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import buffers_named, names_read, regions, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, decided, proved, refuted, unknown, unless
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, is_counted, matched_as, node_as, params_as
from kir.rewrite.match.materialize import is_pure

from ._out_of_bounds_value import fill_value, never_holds, past_end


def _governed(loop: n.For, r: n.Region) -> bool:
    """Whether a region of global memory is indexed by the loop variable itself, in a dimension that ends where the loop does."""
    return r.buffer.space == "global" and any(i == loop.var and d == loop.hi for i, d in zip(r.index, r.buffer.shape, strict=False))


def _ends(r: n.Region, var: n.Var, end: n.Expr) -> bool:
    """Whether a region is indexed by a variable in a dimension that ends at `end`."""
    return any(i == var and d == end for i, d in zip(r.index, r.buffer.shape, strict=False))


def _long_enough(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, params = node_as(program, site.path, n.For), params_as(site, MaskTail)
    exact = build.int_value(loop.hi)
    if exact is not None:
        return proved(f"{exact} <= {params.extent}") if exact <= params.extent else refuted(
            f"the loop has {exact} iterations, more than {params.extent}", f"element {params.extent} is left out")
    for f in program.facts:
        if isinstance(f, n.Binary) and f.op in ("le", "lt") and f.a == loop.hi:
            bound = build.int_value(f.b)
            if bound is not None and bound - (f.op == "lt") <= params.extent:
                return proved("a fact bounds the number of iterations")
    claim = build.binary("le", loop.hi, build.const(params.extent, dtype_of(loop.hi.type)))
    return decided(claim, Facts.at(program, site.path), f"the loop has at most {params.extent} iterations",
                   f"the loop has more than {params.extent} iterations", needs=f"a fact that its end is at most {params.extent}")


def _harmless(program: n.Program, site: Site, context: Context) -> Verdict:
    found, loop, params = _effects(program, site), node_as(program, site.path, n.For), params_as(site, MaskTail)
    if found is None:
        return proved("past the end nothing is stored, and what is folded in changes nothing")
    whole, two = (build.binary("ge", loop.hi, build.const(k, dtype_of(loop.hi.type))) for k in (params.extent, 2))
    return unless(whole, Facts.at(program, site.path), found, two)


def _effects(program: n.Program, site: Site) -> Verdict | None:
    """The verdict on what runs past the end of the loop and may have an effect; None where nothing may."""
    loop, params = node_as(program, site.path, n.For), params_as(site, MaskTail)
    maxima, read_later = running_maxima(kernel_of(program, site.path)), _read_later(program, site.path)
    own, lets, never = set(bound_names(loop.body)), dict[str, n.Expr](), _never(loop, params, maxima)
    if (r := _led_astray(loop, never)) is not None:
        return unknown(f"past the end {r} decides what is touched", needs="places and loops that do not depend on it")
    for s in statements(loop.body):
        if id(s) in never:
            continue
        match s:
            case n.Let() if is_pure(s.value) and len(s.names) == 1:
                lets[s.names[0]] = substitute(params._masked(loop, s.value), lets)
                continue
            case n.Alloc() | n.For() | n.If():
                continue
            case n.Store():
                pass
            case _:
                return unknown(f"a {type(s).__name__.lower()} runs past the end too", needs="a body of values, stores, branches and loops")
        if s.at.buffer.space == "global":
            if not _governed(loop, s.at):
                return unknown(f"'{s.at.buffer.name}' does not end where the loop does, and is written past its end too")
            continue
        if s.at.buffer.name in own or s.at.buffer.name not in read_later:
            continue
        v = s.value
        wanted = {"add": 0.0, "max": -math.inf, "min": math.inf}.get(v.op if isinstance(v, n.Binary) else "")
        folded = v.b if isinstance(v, n.Binary) and v.a == n.Load(s.at) else v.a if isinstance(v, n.Binary) and v.b == n.Load(s.at) else None
        if folded is None or wanted is None:
            return unknown(f"'{s.at.buffer.name}' is not a running sum, maximum or minimum")
        got = past_end(substitute(params._masked(loop, _beyond(loop, folded)), lets), maxima)
        if got != wanted:
            return unknown(f"past the end {'something unknown' if got is None else got} is folded into '{s.at.buffer.name}'",
                           needs=f"{wanted} there", attempt=f"mask-tail{{extent={params.extent} fill={'highest' if wanted == math.inf else 'lowest'}}}")
    return None


def _read_later(program: n.Program, path: Path) -> frozenset[str]:
    """Memory that something may read once a loop has ended: all but what was declared beside it and nothing behind it names."""
    block, i = block_and_index(program, path)
    loop = block[i]
    ended = {s.buffer.name for s in block[:i] if isinstance(s, n.Alloc) and s.buffer.space in ("register", "fragment")}
    ended -= {name for s in block[i + 1:] for name in buffers_named(s)}
    return frozenset(x.at.buffer.name for x in walk(loop) if isinstance(x, n.Store)) - ended


def _never(loop: n.For, params: MaskTail, maxima: set[str]) -> set[int]:
    """The statements, by identity, that no iteration past the end of the loop runs: their condition is false there."""
    return {id(x) for s in statements(loop.body) if isinstance(s, n.If) and not s.orelse and never_holds(params._masked(loop, s.cond), maxima)
            for x in statements(s.then)}


def _as_sought(loop: n.For, old: n.If, new: n.If) -> n.If:
    """A search for the place of the best element reads that as it reads the others, which changes nothing: it lies before the end."""
    sought = old.then[0] if len(old.then) == 1 else None
    if not (isinstance(sought, n.Store) and sought.value == loop.var and isinstance(old.cond, n.Binary) and isinstance(new.cond, n.Binary)):
        return new
    best: dict[str, n.Expr] = {loop.var.name: n.Load(sought.at)}
    return replace(new, cond=replace(new.cond, b=substitute(new.cond.a, best))) if old.cond.b == substitute(old.cond.a, best) else new


def _led_astray(loop: n.For, never: set[int]) -> str | None:
    """What says in the loop where something lies, or how often a loop runs, and is another value past the end than any before it."""
    moved, before = {loop.var.name, *(s.at.buffer.name for s in statements(loop.body) if isinstance(s, n.Store) and id(s) not in never)}, 0
    while len(moved) != before:
        before = len(moved)
        for s in statements(loop.body):
            value = s.value if isinstance(s, n.Let) else s.init if isinstance(s, n.Alloc) else None
            if value is not None and ((names_read(value) | buffers_named(value)) & moved or _is_masked(loop, value)):
                moved |= {s.buffer.name} if isinstance(s, n.Alloc) else set(matched_as(s, n.Let).names)
    inner = moved - {loop.var.name}
    for s in statements(loop.body):
        if isinstance(s, n.For) and (used := moved & {x for e in (s.lo, s.hi, s.step) for x in names_read(e) | buffers_named(e)}):
            return f"'{min(used)}'"
        if isinstance(s, n.For):
            inner |= {s.var.name} if any(names_read(e) & moved for e in (s.lo, s.hi)) else set()
    for r in regions(loop):
        if used := inner & {x for i in r.index for x in names_read(i) | buffers_named(i)}:
            return f"'{min(used)}'"
    return None


def _is_masked(loop: n.For, e: n.Expr) -> bool:
    return any(isinstance(x, n.Load) and _governed(loop, x.at) for x in walk(e))


def _beyond(loop: n.For, e: n.Expr) -> n.Expr:
    """What a value is past the end of a loop: of a choice by whether the loop has ended, the other side."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        return new.b if isinstance(new, n.Select) and new.cond == build.compare("lt", loop.var, loop.hi) else new
    made: n.Expr = transform(e, leave)
    return made


def _in_memory(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether what is not clipped at an edge of a tensor is there past the end of the loop, too."""
    loop, params = node_as(program, site.path, n.For), params_as(site, MaskTail)
    of = dtype_of(loop.var.type)
    known = Facts.at(program, site.path).ranging(loop.var, build.const(0, of), build.const(params.extent, of))
    for r in regions(loop):
        if r.buffer.space == "global":
            continue
        for i, d in zip(r.index, r.buffer.shape, strict=False):
            first = i if isinstance(i, n.Expr) else i.lo
            last = i if isinstance(i, n.Expr) else build.add(i.lo, build.mul(_count(i.step, i.lo), build.sub(_count(i.extent, i.lo), 1)))
            if loop.var.name in names_read(last) and not isinstance(last.type, DType):
                return unknown(f"'{r.buffer.name}' is read by a tile of indices that counts on", needs="an index for each dimension")
            if loop.var.name in names_read(last) and not inside(bare(last), bare(d), known):
                size = build.int_value(d)
                text = f"past the end of the loop '{r.buffer.name}' is accessed outside its {dim_text(d)} elements"
                return unknown(text, needs=f"memory of {params.extent} elements") if size is None else refuted(
                    text, f"{loop.var.name} = {size} in {region_text(r)}", needs=f"an extent of {size}, or memory that is as long")
            if loop.var.name in names_read(last) and not _natural(first, known):
                return unknown(f"past the end of the loop '{r.buffer.name}' may be accessed below its first element", needs="an index that does not count down")
    return proved("memory of the CTA's own is as long as the loop")


def _elsewhere_inside(r: n.Region, var: n.Var, end: n.Expr, known: Facts) -> bool:
    """Whether a region stays inside its tensor along all dimensions but those that end where the loop does."""
    for i, d in zip(r.index, r.buffer.shape, strict=False):
        if i == var and d == end:
            continue
        first = i if isinstance(i, n.Expr) else i.lo
        last = i if isinstance(i, n.Expr) else build.add(i.lo, build.mul(_count(i.step, i.lo), build.sub(_count(i.extent, i.lo), 1)))
        if not isinstance(last.type, DType) or not _natural(first, known) or not inside(bare(last), bare(d), known):
            return False
    return True


def _natural(e: n.Expr, known: Facts) -> bool:
    """Whether an index is known to be 0 or more."""
    lo = known.domain(known.expanded(bare(e))).lo
    return lo is not None and lo >= 0


def _count(e: int | n.Expr, like: n.Expr) -> n.Expr:
    return build.const(e, dtype_of(like.type)) if isinstance(e, int) else e


def running_maxima(kernel: n.Kernel) -> set[str]:
    """Buffers that only ever take the maximum of themselves and a value: finite once they have seen a finite value, NaN or -inf only
    when every result of the row is NaN anyway."""
    written: dict[str, bool] = {}
    for s in walk(kernel):
        if isinstance(s, n.Store) and s.at.buffer.space != "global":
            running = isinstance(s.value, n.Binary) and s.value.op == "max" and s.value.a == n.Load(s.at)
            written[s.at.buffer.name] = written.get(s.at.buffer.name, True) and running
    return {name for name, running in written.items() if running}


@dataclass(frozen=True)
class MaskTail(Pass):
    """`extent` is the fixed number of elements; `fill` what masked loads give: `zero`, or the `lowest` or `highest` value of their dtype."""

    intent: ClassVar[str] = "mask"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "A fixed trip count needs no branch: lanes past the end are masked."
    provides: ClassVar[tuple[str, ...]] = ("masked",)
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P540", "validity", "shape", "there are at most `extent` elements", _long_enough),
        Precondition("KIR-P541", "validity", "numerics", "what runs past the end has no effect", _harmless),
        Precondition("KIR-P951", "validity", "storage", "memory of the CTA's own is as long as the loop will be", _in_memory),
    )

    extent: int = 1024
    fill: Literal["zero", "lowest", "highest"] = "zero"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop whose end is not a literal, or is below `extent`, with accesses that end where it does."""
        if not is_counted(node):
            return None
        exact = build.int_value(node.hi)
        if exact is not None and exact >= self.extent:
            return Miss(f"the loop has {exact} iterations already")
        accesses = [x for x in walk(node) if isinstance(x, (n.Load, n.Store)) and node.var.name in names_read(x.at)]
        found = [x.at for x in accesses]
        if not found:
            return Miss("no access depends on the loop variable")
        if any(x.mask is not None and x.at.buffer.space == "global" for x in accesses):
            return Miss("an access has a mask of its own, which does not end where the loop does")
        if not all(_governed(node, r) or r.buffer.space != "global" for r in found):
            return Miss("an access does not end where the loop does")
        return Site(path, self)

    def _masked(self, loop: n.For, x: n.Node) -> n.Expr:
        def leave(old: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Load() if _governed(loop, new.at) and not new.clip and new.mask is None:
                    return replace(new, clip=True, other=fill_value(self.fill, new.at.buffer.dtype))
                case n.Store() if _governed(loop, new.at) and new.mask is None:
                    return replace(new, clip=True)
                case n.If() if isinstance(old, n.If):
                    return _as_sought(loop, old, new)
                case _:
                    return new
        made: n.Expr = transform(x, leave)
        return made

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop over `extent` elements, with masked accesses."""
        loop = node_as(program, site.path, n.For)
        body = tuple(s for s in (self._masked(loop, s) for s in loop.body) if isinstance(s, n.Stmt))
        made = replace(loop, hi=build.const(self.extent, loop.hi.type if isinstance(loop.hi.type, DType) else dtype_of(loop.hi.type)), body=body)
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of fixed length whose clipped accesses all end at one place."""
        if not is_counted(node):
            return None
        extent = build.int_value(node.hi)
        clipped = [x for x in walk(node) if isinstance(x, (n.Load, n.Store)) and x.clip and x.at.buffer.space == "global"]
        ends = {d for x in clipped for i, d in zip(x.at.index, x.at.buffer.shape, strict=False) if i == node.var}
        if extent is None or not clipped:
            return None
        if len(ends) != 1:
            return Miss(f"the clipped accesses have {len(ends)} ends")
        others = {x.other.value for x in clipped if isinstance(x, n.Load) and isinstance(x.other, n.Const)}
        return Site(path, MaskTail(extent, "lowest" if -math.inf in others else "highest" if math.inf in others else "zero"), {"end": ends.pop()})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop over exactly as many elements as there are."""
        loop, end = node_as(program, site.path, n.For), site.captures["end"]
        of = dtype_of(loop.var.type)
        known = Facts.at(program, site.path).ranging(loop.var, build.const(0, of), end)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Load() if new.clip and _ends(new.at, loop.var, end) and _elsewhere_inside(new.at, loop.var, end, known):
                    return replace(new, clip=False, other=None)
                case n.Store() if new.clip and _ends(new.at, loop.var, end) and _elsewhere_inside(new.at, loop.var, end, known):
                    return replace(new, clip=False)
                case n.If() if isinstance(old, n.If):
                    return _as_sought(loop, old, new)
                case _:
                    return new
        body = tuple(transform(s, leave) for s in loop.body)
        return edited(program, site.path, (replace(loop, hi=end, body=body),))
