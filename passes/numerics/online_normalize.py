"""Finds a maximum and the sums that are scaled by it in one loop, rescaling the sums whenever the maximum grows.

pipeline: `online-normalize@main/max`

```diff
 kir 1
 program softmax_sums
   in X: f32[M, N]
   out T: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register top: f32 = -1e+30
+  register total: f32 = 0.0
   @max for j in 0..N
-    top = max(top, X[row, j])
-  register total: f32 = 0.0
-  for i in 0..N
-    total = total + exp(X[row, i] - top)
+    let grown = max(top, X[row, j])
+    let scale = exp(top - grown)
+    top = grown
+    total = total * scale + exp(X[row, j] - grown)
   T[row] = total
```
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from kir.analysis import Aliases
from kir.analysis.elements import NotElementwise, element
from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, dtype_of, shape_of
from kir.ir.visit import substitute, unshared, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in
from kir.rewrite.match import fresh_var, matched, matched_as, names_at, node_as, splice
from kir.rewrite.match.materialize import buffers_read, buffers_written

from ._online_forms import SPELLINGS, Spelling, named, respelled
from ._online_loops import Growth, TwoLoops, declared_in, merged, split, sum_of, two_loops


def _loops(program: n.Program, site: Site) -> TwoLoops:
    found = matched_as(two_loops(block_at(program, site.path), int(site.path[-1])), TwoLoops)
    return found


def _scaled(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _loops(program, site)
    growth, local = site.params.growth, declared_in(loops.second.body)  # type: ignore[attr-defined]  # an OnlineNormalize
    for s in loops.second.body:
        if isinstance(s, (n.Let, n.Alloc)) or buffers_written((s,)) <= local:
            continue
        found = sum_of(s)
        if found is None:
            return refuted("the second loop does more than add to sums", type(s).__name__.lower())
        if not proportional(found.factor, loops, growth):
            return unknown(f"a sum does not grow by a multiple of {growth.base}(x - maximum)", needs="every addend scaled by the maximum")
    return proved(f"every sum adds multiples of {growth.base}(x - maximum), so a factor {growth.base}(old - new) rescales it")


def proportional(e: n.Expr, loops: TwoLoops, growth: Growth) -> bool:
    """Whether a value is a multiple of the base to the power of x less the maximum, so that a factor moves it to another maximum."""
    lets = {s.names[0]: s.value for s in loops.second.body if isinstance(s, n.Let) and len(s.names) == 1}
    match e:
        case n.Var() if e.name in lets:
            return proportional(lets[e.name], loops, growth)
        case n.Call(fn="exp" | "exp2") if e.fn == growth.base and isinstance(x := e.args[0], n.Binary) and x.op == "sub":
            return _is_maximum(x.b, loops, growth.scale) and loops.top.buffer.name not in buffers_read(x.a)
        case n.Call(fn="reduce") if dict(e.attrs).get("op") == "sum" and isinstance(e.args[0], n.Expr):
            return proportional(e.args[0], loops, growth)
        case n.Call(fn="pick" | "expand" | "trans" | "broadcast") if isinstance(e.args[0], n.Expr):
            return proportional(e.args[0], loops, growth)
        case n.Cast():
            return proportional(e.x, loops, growth)
        case n.Select():
            return all(proportional(x, loops, growth) or _is_zero(x) for x in (e.a, e.b))
        case n.Binary(op="mul"):
            return proportional(e.a, loops, growth) or proportional(e.b, loops, growth)
        case _:
            return False


def _is_maximum(e: n.Expr, loops: TwoLoops, scale: float) -> bool:
    """Whether a value is the maximum times a scale, stretched or by its elements."""
    lets = {s.names[0]: s.value for s in loops.second.body if isinstance(s, n.Let) and len(s.names) == 1}
    match e:
        case n.Load() if scale == 1.0:
            return e.at.buffer == loops.top.buffer
        case n.Call(fn="pick" | "expand" | "trans" | "broadcast") if isinstance(e.args[0], n.Expr):
            return _is_maximum(e.args[0], loops, scale)
        case n.Var() if e.name in lets:
            return _is_maximum(lets[e.name], loops, scale)
        case n.Binary(op="mul") if scale != 1.0:
            return any(isinstance(c, n.Const) and c.value == scale and _is_maximum(x, loops, 1.0) for x, c in ((e.a, e.b), (e.b, e.a)))
        case _:
            return False


def _is_zero(e: n.Expr) -> bool:
    return isinstance(e, n.Const) and e.value == 0


def _finite(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _loops(program, site)
    for s in block_at(program, site.path)[:int(site.path[-1])]:
        if isinstance(s, n.Alloc) and s.buffer == loops.top.buffer and isinstance(s.init, n.Const) and math.isfinite(s.init.value):
            return proved(f"the maximum starts at the finite {s.init.value}")
    if _first_not_masked(program, site, loops):
        return proved("the maximum is finite from the first iteration on: that one has a score that is not masked, an element or a sum of products",
                      scope="finite inputs")
    return unknown("the maximum starts at -inf: while every element so far is -inf, the factor is exp(-inf + inf), which is NaN",
                   needs="a finite first maximum, or a score in the first iteration that no mask makes -inf", attempt="--assume KIR-P591")


def _first_not_masked(program: n.Program, site: Site, loops: TwoLoops) -> bool:
    """Whether the first iteration of the first loop folds in, for each row, a score that is computed from products and not masked: from then on
    the maximum is finite, whatever is masked."""
    lets = {s.names[0]: s.value for s in loops.first.body if isinstance(s, n.Let) and len(s.names) == 1}
    local, e = declared_in(loops.first.body), loops.folded
    while isinstance(e, n.Var) and e.name in lets:
        e = lets[e.name]
    axis: int | None = None
    if isinstance(e, n.Call) and e.fn == "reduce" and dict(e.attrs).get("op") == "max" and isinstance(e.args[0], n.Expr):
        axis, e = int(dict(e.attrs)["axis"]), e.args[0]
    while isinstance(e, n.Var) and e.name in lets:
        e = lets[e.name]
    known = Facts.at(program, (*site.path, "body", 0))
    index: list[n.Expr] = []
    for k, d in enumerate(shape_of(e.type)):
        row = n.Var(f"%{k}", I32)
        index.append(build.const(0) if k == axis else row)
        known = known.ranging(row, build.const(0), build.const(d) if isinstance(d, int) else d)
    try:
        score = element(e, index, lets)
    except NotElementwise:
        return _is_finite(substitute(e, {loops.first.var.name: loops.first.lo}),
                          tuple(index), {name: substitute(x, {loops.first.var.name: loops.first.lo}) for name, x in lets.items()}, known)
    score = substitute(score, {loops.first.var.name: loops.first.lo})
    while isinstance(score, n.Select) and isinstance(score.b, n.Const):
        if decide(score.cond, known).kind != "always":
            return False
        score = score.a
    loads = [x for x in walk(score) if isinstance(x, n.Load)]
    beyond = {id(c) for x in loads if x.other is not None for c in walk(x.other)}
    return bool(loads) and all(_is_there(x, known) or (x.at.buffer.name in local and _is_product(loops.first, x, known)) for x in loads) and (
        not any(isinstance(x, n.Const) and x.dtype.is_float and not math.isfinite(x.value) and id(x) not in beyond for x in walk(score)))


def _is_finite(e: n.Expr, index: tuple[n.Expr, ...], lets: Mapping[str, n.Expr], known: Facts) -> bool:
    """Whether an element of a value is finite where inputs are: it is computed from what is read, by sums and products, and no mask holds it back."""
    def of(x: n.Expr) -> bool:
        rank = len(shape_of(x.type))
        own = tuple(build.const(0) if d == 1 else i for i, d in zip(index[len(index) - rank:], shape_of(x.type), strict=True))
        return _is_finite(x, own, lets, known)
    match e:
        case n.Const():
            return math.isfinite(e.value)
        case n.Var() if e.name in lets:
            return _is_finite(lets[e.name], index, lets, known)
        case n.Cast():
            return dtype_of(e.x.type).is_float and of(e.x)
        case n.Binary(op="add" | "sub" | "mul"):
            return of(e.a) and of(e.b)
        case n.Select():
            try:
                passes = decide(element(e.cond, index, lets), known).kind == "always"
            except NotElementwise:
                passes = False
            return of(e.a) and (passes or of(e.b))
        case n.Load():
            there = e.other is None and not e.clip and e.mask is None
            return e.at.buffer.space == "global" and (there or (isinstance(e.other, n.Const) and math.isfinite(e.other.value)))
        case n.Call(fn="expand") if isinstance(e.args[0], n.Expr):
            axis = int(dict(e.attrs)["axis"])
            return _is_finite(e.args[0], (*index[:axis], *index[axis + 1:]), lets, known)
        case n.Call(fn="reduce") if dict(e.attrs).get("op") == "sum" and isinstance(e.args[0], n.Expr) and not dict(e.attrs).get("keep"):
            axis = int(dict(e.attrs)["axis"])
            extent, each = shape_of(e.args[0].type)[axis], n.Var(f"%sum{len(index)}", I32)
            inner = known.ranging(each, build.const(0), build.const(extent) if isinstance(extent, int) else extent)
            return _is_finite(e.args[0], (*index[:axis], each, *index[axis:]), lets, inner)
        case _:
            return False


def _is_there(x: n.Load, known: Facts) -> bool:
    """Whether a load reads an element of a tensor, and not what is given for those past its end."""
    if x.at.buffer.space != "global" or x.mask is not None:
        return False
    return not x.clip or all(isinstance(i, n.Expr) and decide(build.below(i, d), known).kind == "always"
                             for i, d in zip(x.at.index, x.at.buffer.shape, strict=True) if not _is_row(i, d, known))


def _is_row(i: n.Expr | n.Span, d: n.Expr, known: Facts) -> bool:
    """Whether an index that hangs over with its row: rows past the end are never stored."""
    return isinstance(i, n.Expr) and any(isinstance(v, n.Var) and v.name.startswith("%") for v in walk(i))


def _is_product(loop: n.For, x: n.Load, known: Facts) -> bool:
    """Whether an element of a buffer is nothing but a sum of products in the first iteration."""
    block, name = loop.body, x.at.buffer.name
    writers = [s for s in block if name in buffers_written((s,))]
    starts = [s.init for s in block if isinstance(s, n.Alloc) and s.buffer.name == name]
    first = writers[0] if writers else None
    if starts == [None] and isinstance(first, n.Store) and not first.at.index and first.mask is None and name not in buffers_read(first.value):
        starts, writers = [first.value], writers[1:]

    def products(s: n.Stmt) -> bool:
        found = sum_of(s.body[0] if isinstance(s, n.For) and len(s.body) == 1 else s)
        return isinstance(s, n.Mma) or (found is not None and isinstance(found.factor, n.Binary) and found.factor.op == "mul")
    return len(starts) == 1 and starts[0] is not None and _begins_at_zero(starts[0], x, loop, known) and bool(writers) and all(map(products, writers))


def _begins_at_zero(e: n.Expr, x: n.Load, loop: n.For, known: Facts) -> bool:
    """Whether what a buffer begins with is zero at an element in the first iteration, where a mask there holds."""
    try:
        start = element(e, [i for i in x.at.index if isinstance(i, n.Expr)]) if shape_of(e.type) else e
    except NotElementwise:
        return False
    start = substitute(start, {loop.var.name: loop.lo})
    while isinstance(start, n.Select) and decide(start.cond, known).kind == "always":
        start = start.a
    return _is_zero(start)


def _private(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _loops(program, site)
    read = {b for s in loops.first.body for x in walk(s) if isinstance(x, n.Expr) for b in buffers_read(x)}
    clash = Aliases(program).aliased(read, buffers_written((loops.second,)))
    if clash:
        return refuted(f"the first loop reads '{sorted(clash)[0]}', which the second writes", "iteration 1 of the maximum")
    return proved("the maximum does not depend on the sums")


@dataclass(frozen=True)
class OnlineNormalize(Pass):
    """`base` is the function from whose argument the maximum is subtracted, times a `scale`. `spelled`: whether the new maximum and the factor have
    names, the old maximum is `kept` (and the maximum begun anew from it: `reset`), or the factor is written out and the maximum raised at the end
    (`late`)."""

    intent: ClassVar[str] = "online-normalize"
    catalogue: ClassVar[tuple[int, ...]] = (59,)
    claim: ClassVar[str] = "One pass over the data instead of two."
    numerics: ClassVar[str] = "rounding-moved(rescaling)"
    provides: ClassVar[tuple[str, ...]] = ("online",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P590", "validity", "numerics", "every sum adds multiples of the exponential that the maximum is taken from", _scaled),
        Precondition("KIR-P591", "validity", "numerics", "the maximum is finite when it first scales something", _finite),
        Precondition("KIR-P592", "validity", "storage", "the maximum does not depend on the sums", _private),
    )

    base: Literal["exp", "exp2"] = "exp"
    spelled: Spelling = "named"
    scale: float = 1.0

    @property
    def growth(self) -> Growth:
        """How the maximum rescales as it grows."""
        return Growth(self.base, self.scale)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that finds a maximum, followed by one over the same range that uses it, with each scale that it has there."""
        if not isinstance(node, n.For):
            return None
        found = two_loops(block_at(program, path), int(path[-1]))
        if isinstance(found, str):
            return Miss(found) if found else None
        return tuple(Site(path, replace(self, scale=each)) for each in (scales_of(found.second, self.base) if self.scale == 1.0 else (self.scale,)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The declarations first, then one loop."""
        i, loops = int(site.path[-1]), _loops(program, site)
        taken = names_at(program, site.path)
        one = replace(loops.first, body=respelled(merged(loops, self.growth, taken), self.growth, self.spelled, taken))
        made = splice(program, site.path, (*loops.between, one), 0, loops.count)
        return Rewritten(made, (*site.path[:-1], i + len(loops.between)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that grows a maximum and rescales sums by it."""
        if not (isinstance(node, n.For) and node.kind == "serial"):
            return None
        bases: tuple[Literal["exp", "exp2"], ...] = ("exp", "exp2")
        for spelling in SPELLINGS:
            for base in bases:
                for scale in scales_of(node, base):
                    growth = Growth(base, scale)
                    body = named(node.body, growth, spelling, names_at(program, path))
                    if body is not None and split(replace(node, body=body), growth) is not None:
                        return Site(path, OnlineNormalize(base, spelling, scale))
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two loops: the maximum, then the sums."""
        loop, i, kernel = node_as(program, site.path, n.For), int(site.path[-1]), kernel_of(program, site.path)
        taken = names_in(program, kernel)
        body = matched(named(loop.body, self.growth, self.spelled, taken))
        loop = replace(loop, body=body)
        parts = matched(split(loop, self.growth))
        twice = set(bound_names(parts.first))
        names = {x: fresh(x, taken) for x in dict.fromkeys(bound_names(parts.second)) if x in twice}
        var = fresh_var(loop.var.name, taken, loop.var.of)
        renamed: Any = tuple(unshared(substitute(rename(s, names), {loop.var.name: var})) for s in parts.second)
        first, second = replace(loop, body=parts.first), replace(loop, var=var, body=renamed, label=None)
        block = block_at(program, site.path)
        start = i
        while start > 0 and isinstance(a := block[start - 1], n.Alloc) and a.buffer.name in parts.sums:
            start -= 1
        made = edit_block(program, site.path, lambda b: (*b[:start], first, *b[start:i], second, *b[i + 1:]))
        return Rewritten(made, (*site.path[:-1], start))


def scales_of(loop: n.For, base: str) -> list[float]:
    """The literals by which both operands of a difference under the function are multiplied, 1 first."""
    out = [1.0]
    for x in walk(loop):
        if isinstance(x, n.Call) and x.fn == base and isinstance(d := x.args[0], n.Binary) and d.op == "sub":
            factors = [e.b.value for e in (d.a, d.b) if isinstance(e, n.Binary) and e.op == "mul" and isinstance(e.b, n.Const)]
            if len(factors) == 2 and factors[0] == factors[1] and float(factors[0]) not in out:
                out.append(float(factors[0]))
    return out
