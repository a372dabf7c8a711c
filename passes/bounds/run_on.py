"""Lets a loop run on past its end, to that of a tile or of all there is, with masks that make nothing of what lies there.

pipeline: `run-on{end="row // 32 * 32 + 32" values=["X[row, j] * 2.0"] when="j <= row" other="-inf"}@main/keys`

```diff
 kir 1
 program causal_max
   in X: f32[N, N]
   out T: f32[N]
   size N: i32
   fact N <= 65536
 kernel main grid (row: N) threads 1
   register top: f32 = -inf
-  @keys for j in 0..row + 1
-    top = max(top, X[row, j] * 2.0)
+  @keys for j in 0..row // 32 * 32 + 32
+    top = max(top, select(j <= row, load(X[row, j] else 0.0 clip) * 2.0, -inf))
   T[row] = top
```
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text, region_text
from kir.ir.types import BOOL, I32, DType, dtype_of, shape_of
from kir.ir.visit import names_read, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, is_counted, matched, node_as, params_as
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

from .mask_tail import running_maxima

TILES = (128, 64)
"""Rows of the tiles of products: a loop that ends with its row runs on as far as the last row of such a tile."""
NOTHING = {"add": 0.0, "max": -math.inf, "min": math.inf}
"""What an operation folds in without a change."""


def _end(program: n.Program, site: Site) -> n.Expr:
    item = params_as(site, RunOn)
    return matched(item.longer(program, site.path))


def _further(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("le", loop.hi, _end(program, site)), Facts.at(program, site.path), "the loop runs as far as before",
                   "the loop ends earlier than before", needs="an end that is no earlier")


def _harmless(program: n.Program, site: Site, context: Context) -> Verdict:
    node, item = node_as(program, site.path, n.For), params_as(site, RunOn)
    loop = item.masked(program, site.path, node)
    past = _Past(loop, running_maxima(kernel_of(program, site.path)))
    own = set(bound_names(loop.body))
    if (beyond := _beyond(program, site, loop)) is not None:
        return unknown(f"'{beyond}' may lie past the end of what the CTA holds", needs="places inside it, or in global memory, where loads stop at the edge")
    for s in statements(loop.body):
        if isinstance(s, n.Store):
            if s.at.buffer.name in own:
                continue
            if s.at.buffer.space == "global":
                return refuted(f"past its end the loop stores to '{s.at.buffer.name}'", region_text(s.at), needs="folds that masks make nothing of")
            v = s.value
            if not (isinstance(v, n.Binary) and v.op in NOTHING and v.a == n.Load(s.at) and s.mask is None):
                return unknown(f"'{s.at.buffer.name}' is no running sum, maximum or minimum", needs="folds that masks make nothing of")
            got = past.value(v.b)
            if got != NOTHING[v.op]:
                return unknown(f"past the end {'something unknown' if got is None else got} is folded into '{s.at.buffer.name}'",
                               needs=f"{NOTHING[v.op]} there")
        elif not isinstance(s, n.Let | n.Alloc | n.For):
            return unknown(f"a {type(s).__name__.lower()} runs past the end too", needs="folds that masks make nothing of")
    return proved("past the end masks make nothing of what is folded in", scope="finite inputs")


def _beyond(program: n.Program, site: Site, loop: n.For) -> str | None:
    """An element of a tile, or of memory that no load stops at the edge of, that the loop may reach past its extent once it runs on."""
    known = Facts.at(program, site.path).ranging(loop.var, loop.lo, _end(program, site), loop.step)
    for s in loop.body:
        for x in walk(s):
            match x:
                case n.Load() if x.at.buffer.space != "global":
                    places: list[tuple[Any, Any]] = list(zip(x.at.index, x.at.buffer.shape, strict=False))
                case n.Call(fn="pick", args=(n.Expr() as tile, *index)):
                    places = list(zip(index, shape_of(tile.type), strict=False))
                case _:
                    continue
            if any(isinstance(i, n.Expr) and loop.var.name in names_read(i) and _may_leave(i, build.const(d) if isinstance(d, int) else d, known)
                   for i, d in places):
                return expr_text(x)
    return None


def _may_leave(i: n.Expr, end: n.Expr, known: Facts) -> bool:
    """Whether an index may lie outside an axis: past its end, or, of one that a loop counts down, below 0."""
    return any(decide(each, known).kind != "always" for each in (build.below(i, end), build.compare("le", build.const(0, dtype_of(i.type)), i)))


class _Past:
    """What values are where a loop has come past its end."""

    def __init__(self, loop: n.For, maxima: set[str]) -> None:
        self.loop, self.maxima = loop, maxima
        self.lets = {s.names[0]: s.value for s in statements(loop.body) if isinstance(s, n.Let) and len(s.names) == 1}
        self.kept: dict[str, float] = {}
        for s in statements(loop.body):
            if isinstance(s, n.Alloc) and s.init is not None and not s.buffer.shape:
                start, writes = self.value(s.init), [x for x in statements(loop.body) if isinstance(x, n.Store) and x.at.buffer.name == s.buffer.name]
                if start is not None and (not writes or math.isinf(start)) and all(_adds(x) for x in writes):
                    self.kept[s.buffer.name] = start

    def value(self, e: n.Expr) -> float | None:
        """A value past the end, when it is known; what is read is taken to be finite."""
        match e:
            case n.Const():
                return float(e.value)
            case n.Var() if e.name in self.lets:
                return self.value(self.lets[e.name])
            case n.Load() if e.at.buffer.name in self.kept:
                return self.kept[e.at.buffer.name]
            case n.Select() if shorter_end(e.cond, self.loop) == self.loop.hi:
                return self.value(e.b)
            case n.Cast() if dtype_of(e.type).is_float and dtype_of(e.x.type).is_float:
                return self.value(e.x)
            case n.Call(fn="exp" | "exp2", args=(n.Expr() as x,)):
                inner = self.value(x)
                return 0.0 if inner == -math.inf else 1.0 if inner == 0.0 else None
            case n.Binary(op="mul"):
                a, b = self.value(e.a), self.value(e.b)
                if a is not None and b is not None:
                    return None if math.isnan(a * b) else a * b
                return 0.0 if 0.0 in (a, b) and self._is_finite(e.a if a is None else e.b) else None
            case n.Binary(op="add" | "sub"):
                a, b = self.value(e.a), self.value(e.b)
                if a is not None and b is not None:
                    found = a + b if e.op == "add" else a - b
                    return None if math.isnan(found) else found
                return a if a is not None and math.isinf(a) and self._is_finite(e.b) else None
            case _:
                return None

    def _is_finite(self, e: n.Expr) -> bool:
        """Whether a value is finite, where all inputs are and a maximum has seen one of them."""
        for x in walk(e):
            if isinstance(x, n.Load) and x.at.buffer.space != "global" and x.at.buffer.name not in self.maxima:
                return False
            if isinstance(x, n.Call | n.Select) or (isinstance(x, n.Const) and not math.isfinite(x.value)) or (
                    isinstance(x, n.Binary) and x.op == "div") or (isinstance(x, n.Var) and x.name in self.lets):
                return False
        return True


def _adds(s: n.Store) -> bool:
    """Whether a store adds something to what was there."""
    return isinstance(s.value, n.Binary) and s.value.op == "add" and s.value.a == n.Load(s.at)


def shorter_end(cond: n.Expr, loop: n.For) -> n.Expr | None:
    """The end that a condition sets to a loop: what its variable is below exactly where the condition holds."""
    if not (isinstance(cond, n.Binary) and cond.op in ("lt", "le", "gt", "ge") and cond.a.type == I32):
        return None
    low, high = (cond.a, cond.b) if cond.op in ("lt", "le") else (cond.b, cond.a)
    rest = build.sub(high, low)
    if build.polynomial(rest).get((loop.var,)) != -1:
        return None
    end = build.add(build.add(rest, loop.var), 1 if cond.op in ("le", "ge") else 0)
    return None if loop.var.name in names_read(end) else end


@dataclass(frozen=True)
class RunOn(Pass):
    """`end` is where the loop comes to end; `values` are masked by the condition `when`, which holds as far as the loop went, and are `other` past that; each
    is given as its text. Loads that come to hang over the end of a tensor give zero there."""

    intent: ClassVar[str] = "mask"
    catalogue: ClassVar[tuple[int, ...]] = (54, 53)
    claim: ClassVar[str] = "Rows that end at different places run together, as far as the longest of them."
    provides: ClassVar[tuple[str, ...]] = ("masked",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P933", "validity", "shape", "the loop does not end earlier than before", _further),
        Precondition("KIR-P934", "validity", "numerics", "what lies past the end is folded in as nothing", _harmless))

    end: str = ""
    values: tuple[str, ...] = ()
    when: str = ""
    other: str = ""

    def longer(self, program: n.Program, path: Path) -> n.Expr | None:
        """The end to which the loop runs on."""
        found = expression_at(program, path, self.end)
        return found if found is not None and found.type == I32 else None

    def mask(self, program: n.Program, path: Path) -> tuple[n.Expr, n.Expr] | None:
        """(condition, other value) of the masks."""
        inside = (*path, "body", 0)
        cond, other = expression_at(program, inside, self.when), expression_at(program, inside, self.other)
        return None if cond is None or other is None or cond.type != BOOL else (cond, other)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of folds; where it is to end, and what is masked. What is left open is what a tile decides: the end of the last one that the loop
        begins, and the masks with which nothing comes of what lies past it."""
        if not is_counted(node, of=I32, plain=True):
            return None
        if not (self.end and self.values and self.when and self.other):
            some = [each.match(program, path, node) for each in self._open(program, path, node)]
            return tuple(x for x in some if isinstance(x, Site)) or Miss("no tile ends elsewhere, or no mask makes nothing of what lies past the end")
        end, mask = self.longer(program, path), self.mask(program, path)
        if end is None or end == node.hi or mask is None:
            return Miss("the end is none here, or that of the loop, or the mask is none")
        if shorter_end(mask[0], node) != node.hi:
            return Miss("the mask does not hold up to where the loop ends")
        found = {expr_text(x) for s in node.body for x in walk(s) if isinstance(x, n.Expr) and x.type == mask[1].type}
        return Site(path, self) if self.values and set(self.values) <= found else Miss("it computes no such values")

    def _open(self, program: n.Program, path: Path, loop: n.For) -> Iterator[RunOn]:
        """With what is left open: the ends of tiles, and the masks that make nothing of what lies past the loop's own. Of the values that may be masked so, the
        shortest one that is read, and what is folded in as it is."""
        cond, ends, found = _condition(loop), _tile_ends(loop), set[float]()
        for value, nothing in _maskable(loop) if cond is not None and ends else ():
            other = expr_text(build.const(nothing, dtype_of(value.type)))
            made = [replace(self, end=self.end or text_of(end), values=self.values or (expr_text(value),), when=self.when or text_of(matched(cond)),
                            other=self.other or other) for end in ends]
            if nothing not in found and (made[0].values, made[0].other) == ((expr_text(value),), other) and (
                    _harmless(program, Site(path, made[0]), Context()).kind == "proved"):
                found |= {nothing} if nothing else set()
                yield from dict.fromkeys(made)

    def masked(self, program: n.Program, path: Path, loop: n.For) -> n.For:
        """The loop with its masks."""
        mask = matched(self.mask(program, path))
        cond, other = mask

        def leave(old: n.Node, new: n.Node) -> n.Node:
            wanted = isinstance(old, n.Expr) and old.type == other.type and expr_text(old) in self.values
            return build.select(cond, new, other) if wanted and isinstance(new, n.Expr) else new
        return replace(loop, body=tuple(transform(s, leave, lambda x: not isinstance(x, n.Buffer)) for s in loop.body))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop up to the other end, with masks, and loads that stop at the edges of tensors."""
        loop = node_as(program, site.path, n.For)
        return self._ended(program, site, replace(self.masked(program, site.path, loop), hi=_end(program, site)))

    def _ended(self, program: n.Program, site: Site, loop: n.For) -> Rewritten:
        made = replace(loop, body=tuple(_at_edges(program, site.path, loop, s) for s in loop.body))
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop with masks that end before it does, or may."""
        if not is_counted(node, of=I32, plain=True):
            return None
        out = []
        for cond, other in dict.fromkeys((x.cond, x.b) for _, x in _masks(node)):
            mine = [x for _, x in _masks(node) if (x.cond, x.b) == (cond, other)]
            end = shorter_end(cond, node)
            if end is not None and end != node.hi:
                shorter = replace(node, hi=end)
                values = tuple(dict.fromkeys(expr_text(e) for x in mine if isinstance(e := _at_edges(program, path, shorter, x.a), n.Expr)))
                out.append(Site(path, RunOn(text_of(node.hi), values, text_of(cond), text_of(other)), {"end": end, "masks": frozenset(mine)}))
        return tuple(out) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop up to where its masks end, without them."""
        loop, masks = node_as(program, site.path, n.For), site.captures["masks"]
        body = tuple(transform(s, lambda old, new: new.a if isinstance(new, n.Select) and old in masks else new) for s in loop.body)
        return self._ended(program, site, replace(loop, hi=site.captures["end"], body=body))


def _condition(loop: n.For) -> n.Expr | None:
    """That a loop has not ended, as it reads in a kernel: what is taken away from its end is counted with its variable."""
    terms = build.polynomial(loop.hi)
    if not terms:
        return None
    less = build.from_polynomial({m: -c for m, c in terms.items() if m and c < 0}, I32)
    rest = build.from_polynomial({m: c for m, c in terms.items() if not m or c > 0}, I32)
    at = build.add(less, loop.var)
    return build.compare("le", at, build.sub(rest, 1)) if terms.get((), 0) == 1 and len(terms) > 1 else build.compare("lt", at, rest)


def _tile_ends(loop: n.For) -> list[n.Expr]:
    """The ends to which the last tile of a loop may run: a power of two, as many as lie between the beginnings of tiles, whole tiles up to and with a row."""
    trips, terms = build.int_value(loop.hi), build.polynomial(loop.hi)
    if trips is not None:
        return [build.const(1 << trips.bit_length())] if trips > 1 and trips & (trips - 1) else []
    steps = {-c for m, c in terms.items() if m and c < 0}
    if steps:
        return [build.const(steps.pop())] if len(steps) == 1 else []
    rows = build.sub(loop.hi, 1)
    return [build.add(build.mul(build.floordiv(rows, d), d), d) for d in TILES] if isinstance(rows, n.Var) else []


def _maskable(loop: n.For) -> Iterator[tuple[n.Expr, float]]:
    """Values in a loop and what they may be masked by: what is read or worked out by minus infinity, the shortest first; what is folded in by zero."""
    lets = {s.names[0]: s.value for s in statements(loop.body) if isinstance(s, n.Let) and len(s.names) == 1}
    out: dict[str, n.Expr] = {}
    folded: dict[str, n.Expr] = {}
    for s in statements(loop.body):
        if isinstance(s, n.Let | n.Store):
            out |= {expr_text(x): x for x in walk(s.value) if isinstance(x, n.Binary | n.Load | n.Select) and _is_worked_out(x)}
        if isinstance(s, n.Store) and isinstance(s.value, n.Binary) and s.value.op in NOTHING:
            value = lets.get(s.value.b.name, s.value.b) if isinstance(s.value.b, n.Var) else s.value.b
            folded |= {expr_text(value): value} if _is_worked_out(value) else {}
    yield from ((x, -math.inf) for _, x in sorted(out.items(), key=lambda row: (len(row[0]), row[0])))
    yield from ((x, 0.0) for x in folded.values())


def _is_worked_out(x: n.Expr) -> bool:
    """Whether a value is a number that is no mere copy of one that the CTA holds."""
    return isinstance(x.type, DType) and x.type.is_float and not isinstance(x, n.Const | n.Var) and not (
        isinstance(x, n.Load) and x.at.buffer.space != "global")


def _at_edges(program: n.Program, path: Path, loop: n.For, x: n.Node) -> Any:
    """Something inside a loop, with exactly those loads that may lie past the end of a tensor giving zero there."""
    known = Facts.at(program, path).ranging(loop.var, loop.lo, loop.hi, loop.step)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Load) and loop.var.name in names_read(new.at) and new.at.buffer.space == "global" and new.mask is None
                and not any(isinstance(i, n.Span) and loop.var.name in names_read(i) for i in new.at.index)):
            return new
        zero = build.const(0, new.at.buffer.dtype)
        if new.clip and new.other != zero:
            return new
        over = any(loop.var.name in names_read(i) and _may_leave(i, d, known)
                   for i, d in zip(new.at.index, new.at.buffer.shape, strict=True) if isinstance(i, n.Expr))
        return replace(new, clip=over, other=zero if over else None)
    return transform(x, leave)


def _masks(loop: n.For) -> Iterator[tuple[n.Expr, n.Select]]:
    """The masks in a loop that hold up to an end, which is the same for all its iterations."""
    own = set(bound_names(loop.body))
    for s in loop.body:
        for x in walk(s):
            if isinstance(x, n.Select) and (end := shorter_end(x.cond, loop)) is not None and not names_read(end) & own and not any(
                    isinstance(y, n.Load) for y in walk(end)):
                yield end, x
