"""Exchanges maxima of lanes and the sums that are scaled by them in one ladder of shuffles, each step of which rescales the sums.

pipeline: `online-exchange@main/t/ladder`

```diff
 kir 1
 program softmax_sums
   in X: f32[M, N]
   out T: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 32
   for t in 0..32 parallel thread
     register top: f32 = -1e+30
     for j in 0..ceildiv(N - t, 32)
       top = max(top, X[row, j * 32 + t])
-    @ladder for s in 0..5
-      let other = shfl_xor(top, 16 >> s)
-      top = max(top, other)
     register total: f32 = 0.0
     for i in 0..ceildiv(N - t, 32)
       total = total + exp(X[row, i * 32 + t] - top)
-    for s_1 in 0..5
-      let other_1 = shfl_xor(total, 16 >> s_1)
-      total = total + other_1
+    @ladder for s in 0..5
+      let other = shfl_xor(top, 16 >> s)
+      let other_1 = shfl_xor(total, 16 >> s)
+      total = total * exp(top - max(top, other)) + other_1 * exp(other - max(top, other))
+      top = max(top, other)
     if t == 0
       T[row] = total
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import fresh
from kir.rewrite.match import block_and_index, fresh_var, from_zero, matched, names_at, params_as, splice
from kir.rewrite.match.thread_team import is_scalar, whole

from ._online_loops import Growth, TwoLoops, sum_of
from .online_normalize import proportional, scales_of

BASES: tuple[Literal["exp", "exp2"], ...] = ("exp", "exp2")


@dataclass(frozen=True)
class _Apart:
    """A ladder of shuffles that brings the maximum `top`, a sum that begins at zero, the loop that adds to it, and its ladder."""

    up: n.For
    top: n.Buffer
    start: n.Alloc
    loop: n.For
    across: n.For

    @property
    def added(self) -> n.Expr | None:
        """What an iteration of the loop adds to the sum."""
        found = sum_of(self.loop.body[-1])
        return None if found is None else found.factor


def _ladder(s: n.Stmt | None, op: str) -> n.Buffer | None:
    """The register that a ladder of shuffles folds over lanes."""
    if not (isinstance(s, n.For) and s.kind == "serial" and from_zero(s) and len(s.body) == 2):
        return None
    near, fold = s.body
    if not (isinstance(near, n.Let) and isinstance(near.value, n.Call) and near.value.fn == "shfl_xor" and isinstance(near.value.args[0], n.Load)):
        return None
    held = near.value.args[0].at.buffer
    both = n.Store(n.Region(held), build.binary(op, whole(held), n.Var(near.names[0], held.dtype)))
    return held if held.space == "register" and whole(held) == near.value.args[0] and fold == both else None


def _is_sum(start: n.Stmt | None, loop: n.Stmt | None) -> bool:
    """Whether a declaration and a loop add up values: named parts of them, and one addition."""
    if not (isinstance(start, n.Alloc) and is_scalar(start) and isinstance(start.init, n.Const) and start.init.value == 0 and isinstance(loop, n.For)):
        return False
    found = sum_of(loop.body[-1]) if loop.body else None
    return found is not None and found.at == n.Region(start.buffer) and all(isinstance(s, n.Let) for s in loop.body[:-1])


def _apart(block: n.Block, i: int) -> _Apart | None:
    up, start, loop, across = (block[k] if k < len(block) else None for k in range(i, i + 4))
    top = _ladder(up, "max")
    if top is None or not _is_sum(start, loop) or not (isinstance(up, n.For) and isinstance(start, n.Alloc) and isinstance(loop, n.For)):
        return None
    if not isinstance(across, n.For) or _ladder(across, "add") != start.buffer or across.hi != up.hi or (
            substitute(_distance(across), {across.var.name: up.var}) != _distance(up)):
        return None
    return _Apart(up, top, start, loop, across)


def _distance(ladder: n.For) -> n.Expr:
    value = ladder.body[0].value  # type: ignore[attr-defined]  # a let of a shuffle
    distance: n.Expr = value.args[1]
    return distance


def _together(top: n.Buffer, total: n.Buffer, names: tuple[str, str], distance: n.Expr, growth: Growth) -> n.Block:
    """The body of the one ladder."""
    other, more = n.Var(names[0], top.dtype), n.Var(names[1], total.dtype)
    grown = build.binary("max", whole(top), other)
    own = build.binary("mul", whole(total), growth.factor(whole(top), grown))
    far = build.binary("mul", more, growth.factor(other, grown))
    return (n.Let((other.name,), build.call("shfl_xor", whole(top), distance)), n.Let((more.name,), build.call("shfl_xor", whole(total), distance)),
            n.Store(n.Region(total), build.binary("add", own, far)), n.Store(n.Region(top), grown))


def _scaled(program: n.Program, site: Site, context: Context) -> Verdict:
    found, item = matched(_apart(*block_and_index(program, site.path))), params_as(site, OnlineExchange)
    added = found.added
    if added is None or not proportional(added, TwoLoops(found.loop, (), found.loop, n.Region(found.top)), Growth(item.base, item.scale)):
        return unknown(f"the sum does not grow by a multiple of {item.base}(x - maximum)", needs="every addend scaled by the maximum")
    return proved(f"the sum adds multiples of {item.base}(x - maximum), so a factor {item.base}(old - new) rescales it")


def _finite(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    top = matched(_apart(block, i)).top
    start = next((s.init for s in block[:i] if isinstance(s, n.Alloc) and s.buffer == top), None)
    if isinstance(start, n.Const) and math.isfinite(start.value):
        return proved(f"every lane's maximum starts at the finite {start.value}")
    return unknown("a lane that has found nothing has the maximum -inf: two of them rescale by exp(-inf + inf), which is NaN",
                   needs="a finite first maximum", attempt="--assume KIR-P594")


@dataclass(frozen=True)
class OnlineExchange(Pass):
    """`base` is the function from whose argument the maximum is subtracted, times a `scale`."""

    intent: ClassVar[str] = "online-exchange"
    catalogue: ClassVar[tuple[int, ...]] = (59, 43)
    claim: ClassVar[str] = "Lanes meet once for a maximum and the sums that it scales, and no sum waits for the maximum of all."
    numerics: ClassVar[str] = "rounding-moved(rescaling)"
    requires: ClassVar[tuple[str, ...]] = ("lanes",)
    provides: ClassVar[tuple[str, ...]] = ("online",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P593", "validity", "numerics", "the sum adds multiples of the exponential that the maximum is taken from", _scaled),
        Precondition("KIR-P594", "validity", "numerics", "the maximum of every lane is finite when it first scales something", _finite),
    )

    base: Literal["exp", "exp2"] = "exp"
    scale: float = 1.0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a ladder of shuffles for a maximum, followed by a sum and its ladder."""
        if not isinstance(node, n.For) or _ladder(node, "max") is None:
            return None
        return Site(path, self) if _apart(*block_and_index(program, path)) is not None else Miss("no sum over the lanes follows the maximum over them")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The lane's sum first, then one ladder."""
        block, i = block_and_index(program, site.path)
        found = matched(_apart(block, i))
        names = tuple(s.names[0] for ladder in (found.up, found.across) for s in ladder.body[:1] if isinstance(s, n.Let))
        first, second = names[0], names[1] if names[1] != names[0] else fresh(names[1], names_at(program, site.path))
        body = _together(found.top, found.start.buffer, (first, second), _distance(found.up), Growth(self.base, self.scale))
        made = splice(program, site.path, (found.start, found.loop, replace(found.up, body=body)), 0, 4)
        return Rewritten(made, (*site.path[:-1], i + 2))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a ladder that rescales a sum by a maximum of lanes, right after the loop of the sum."""
        if not (isinstance(node, n.For) and node.kind == "serial" and from_zero(node) and len(node.body) == 4):
            return None
        block, i = block_and_index(program, path)
        near, more = node.body[:2]
        for s in (near, more):
            if not (isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn == "shfl_xor" and isinstance(s.value.args[0], n.Load)):
                return None
        assert isinstance(near, n.Let) and isinstance(more, n.Let) and isinstance(near.value, n.Call) and isinstance(more.value, n.Call)
        top, total = (v.args[0].at.buffer for v in (near.value, more.value) if isinstance(v.args[0], n.Load))
        start = block[i - 2] if i >= 2 else None
        if not isinstance(start, n.Alloc) or start.buffer != total or not _is_sum(start, block[i - 1]):
            return Miss("no loop that adds to the sum stands right before")
        for base in BASES:
            for scale in scales_of(node, base):
                if _together(top, total, (near.names[0], more.names[0]), _distance(node), Growth(base, scale)) == node.body:
                    return Site(path, OnlineExchange(base, scale))
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The maximum of all lanes first, then the sums."""
        block, i = block_and_index(program, site.path)
        node, start, loop = block[i], block[i - 2], block[i - 1]
        assert isinstance(node, n.For) and isinstance(start, n.Alloc) and isinstance(loop, n.For)
        near, more, _, raised = node.body
        assert isinstance(more, n.Let)
        var, total = fresh_var(node.var.name, names_at(program, site.path)), whole(start.buffer)
        adding = n.Store(n.Region(start.buffer), build.binary("add", total, n.Var(more.names[0], start.buffer.dtype)))
        across = replace(node, var=var, body=(substitute(more, {node.var.name: var}), adding), label=None)
        at = (*site.path[:-1], i - 2)
        made = splice(program, at, (replace(node, body=(near, raised)), start, loop, across), 0, 3)
        return Rewritten(made, at)
