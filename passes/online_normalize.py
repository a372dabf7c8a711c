"""Finds a maximum and the sums that are scaled by it in one loop, rescaling the sums whenever the maximum grows.

before:

```kir
kir 1
program softmax_sums
  in X: f32[M, N]
  out T: f32[M]
  size M: i32
  size N: i32
kernel main grid (row: M) threads 1
  register top: f32 = -1e+30
  @max for j in 0..N
    top = max(top, X[row, j])
  register total: f32 = 0.0
  for i in 0..N
    total = total + exp(X[row, i] - top)
  T[row] = total
```

pipeline: `online-normalize@main/max`

after:

```kir
kir 1
program softmax_sums
  in X: f32[M, N]
  out T: f32[M]
  size M: i32
  size N: i32
kernel main grid (row: M) threads 1
  register top: f32 = -1e+30
  register total: f32 = 0.0
  @max for j in 0..N
    let grown = max(top, X[row, j])
    let scale = exp(top - grown)
    top = grown
    total = total * scale + exp(X[row, j] - grown)
  T[row] = total
```
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import TileType, shape_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in, node_at

from ._materialize import buffers_read, buffers_written


@dataclass(frozen=True)
class _Loops:
    """The parts of the two-loop form: the first loop, the declarations between, the second loop."""

    first: n.For
    between: n.Block
    second: n.For
    top: n.Region

    @property
    def count(self) -> int:
        """Statements that the parts take in their block."""
        return 2 + len(self.between)


def _two_loops(block: n.Block, i: int) -> _Loops | str:
    """The two-loop form that starts at statement `i`, or why there is none."""
    first = block[i]
    if not (isinstance(first, n.For) and first.kind == "serial" and first.body):
        return ""
    last = first.body[-1]
    if not (isinstance(last, n.Store) and isinstance(last.value, n.Binary) and last.value.op == "max" and last.value.a == n.Load(last.at)
            and not last.at.index and last.mask is None and all(isinstance(s, n.Let) for s in first.body[:-1])):
        return ""
    k = i + 1
    while k < len(block) and isinstance(block[k], n.Alloc):
        k += 1
    second = block[k] if k < len(block) else None
    if not (isinstance(second, n.For) and (second.kind, second.lo, second.hi, second.step) == (first.kind, first.lo, first.hi, first.step)):
        return "no loop over the same range follows"
    if not any(last.at.buffer.name in buffers_read(x) for s in second.body for x in walk(s) if isinstance(x, n.Expr)):
        return "the second loop does not use the maximum"
    return _Loops(first, block[i + 1:k], second, last.at)


def _accumulators(loops: _Loops) -> dict[str, n.Buffer]:
    """Buffers that the second loop adds to."""
    out: dict[str, n.Buffer] = {}
    for s in loops.second.body:
        match s:
            case n.Store() if s.at.buffer.space != "global":
                out[s.at.buffer.name] = s.at.buffer
            case n.Mma():
                out[s.acc.buffer.name] = s.acc.buffer
            case _:
                pass
    return out


def _scaled(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _two_loops(block_at(program, site.path), int(site.path[-1]))
    assert isinstance(loops, _Loops)
    base = site.params.base  # type: ignore[attr-defined]  # an OnlineNormalize
    for s in loops.second.body:
        match s:
            case n.Let():
                continue
            case n.Mma():
                factor: n.Expr = s.a
            case n.Store() if isinstance(s.value, n.Binary) and s.value.op == "add" and s.value.a == n.Load(s.at):
                factor = s.value.b
            case _:
                return refuted("the second loop does more than add to sums", type(s).__name__.lower())
        if not _proportional(factor, loops, base):
            return unknown(f"a sum does not grow by a multiple of {base}(x - maximum)", needs="every addend scaled by the maximum")
    return proved(f"every sum adds multiples of {base}(x - maximum), so a factor {base}(old - new) rescales it")


def _proportional(e: n.Expr, loops: _Loops, base: str) -> bool:
    lets = {s.names[0]: s.value for s in loops.second.body if isinstance(s, n.Let) and len(s.names) == 1}
    match e:
        case n.Var() if e.name in lets:
            return _proportional(lets[e.name], loops, base)
        case n.Call(fn="exp" | "exp2") if e.fn == base and isinstance(x := e.args[0], n.Binary) and x.op == "sub":
            return loops.top.buffer.name in buffers_read(x.b) and loops.top.buffer.name not in buffers_read(x.a)
        case n.Call(fn="reduce") if dict(e.attrs).get("op") == "sum" and isinstance(e.args[0], n.Expr):
            return _proportional(e.args[0], loops, base)
        case n.Cast():
            return _proportional(e.x, loops, base)
        case n.Binary(op="mul"):
            return _proportional(e.a, loops, base) or _proportional(e.b, loops, base)
        case _:
            return False


def _finite(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_at(program, site.path), int(site.path[-1])
    loops = _two_loops(block, i)
    assert isinstance(loops, _Loops)
    for s in block[:i]:
        if isinstance(s, n.Alloc) and s.buffer == loops.top.buffer and isinstance(s.init, n.Const) and math.isfinite(s.init.value):
            return proved(f"the maximum starts at the finite {s.init.value}")
    return unknown("the maximum starts at -inf: while every element so far is -inf, the factor is exp(-inf + inf), which is NaN",
                   needs="a finite first maximum", attempt="--assume KIR-P591")


def _private(program: n.Program, site: Site, context: Context) -> Verdict:
    loops = _two_loops(block_at(program, site.path), int(site.path[-1]))
    assert isinstance(loops, _Loops)
    clash = buffers_written((loops.second,)) & {b for s in loops.first.body for x in walk(s) if isinstance(x, n.Expr) for b in buffers_read(x)}
    if clash:
        return refuted(f"the first loop reads '{sorted(clash)[0]}', which the second writes", "iteration 1 of the maximum")
    return proved("the maximum does not depend on the sums")


@dataclass(frozen=True)
class OnlineNormalize(Pass):
    """`base` is the function whose argument the maximum is subtracted from."""

    intent: ClassVar[str] = "online-normalize"
    catalogue: ClassVar[tuple[int, ...]] = (59,)
    claim: ClassVar[str] = "One pass over the data instead of two."
    numerics: ClassVar[str] = "rounding-moved(rescaling)"
    provides: ClassVar[tuple[str, ...]] = ("online",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P590", "validity", "numerics", "every sum adds multiples of the exponential that the maximum is taken from", _scaled),
        Precondition("KIR-P591", "validity", "numerics", "the first maximum is finite", _finite),
        Precondition("KIR-P592", "validity", "storage", "the maximum does not depend on the sums", _private),
    )

    base: Literal["exp", "exp2"] = "exp"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that finds a maximum, followed by one over the same range that uses it."""
        if not isinstance(node, n.For):
            return None
        found = _two_loops(block_at(program, path), int(path[-1]))
        if isinstance(found, str):
            return Miss(found) if found else None
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The declarations first, then one loop."""
        block, i = block_at(program, site.path), int(site.path[-1])
        loops = _two_loops(block, i)
        assert isinstance(loops, _Loops)
        taken = names_in(program, kernel_of(program, site.path))
        one = replace(loops.first, body=self._merged(loops, taken))
        made = edit_block(program, site.path, lambda b: (*b[:i], *loops.between, one, *b[i + loops.count:]))
        return Rewritten(made, (*site.path[:-1], i + len(loops.between)))

    def _merged(self, loops: _Loops, taken: set[str]) -> n.Block:
        first, last = loops.first, loops.first.body[-1]
        assert isinstance(last, n.Store) and isinstance(last.value, n.Binary)
        grown = n.Var(fresh("grown", taken), last.value.type)
        scale = n.Var(fresh("scale", taken), last.value.type)
        head = (*first.body[:-1], n.Let((grown.name,), last.value),
                n.Let((scale.name,), build.call(self.base, build.binary("sub", n.Load(loops.top), grown))), replace(last, value=grown))
        body: Any = tuple(substitute(s, {loops.second.var.name: first.var}) for s in loops.second.body)
        known = {s.value: s.names[0] for s in first.body[:-1] if isinstance(s, n.Let) and len(s.names) == 1}
        out: list[n.Stmt] = []
        same: dict[str, str] = {}
        for s in body:
            s = rename(s, same)
            if isinstance(s, n.Let) and s.value in known:
                same[s.names[0]] = known[s.value]
                continue
            made: Any = transform(s, lambda old, new: grown if new == n.Load(loops.top) else new)
            match made:
                case n.Store() if isinstance(made.value, n.Binary) and made.value.a == n.Load(made.at):
                    before = build.binary("mul", made.value.a, _as_factor(scale, made.at))
                    out.append(replace(made, value=build.binary("add", before, made.value.b)))
                case n.Mma():
                    out += [n.Store(made.acc, build.binary("mul", n.Load(made.acc), _as_factor(scale, made.acc))), made]
                case _:
                    out.append(made)
        return (*head, *out)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that grows a maximum and rescales sums by it."""
        if not (isinstance(node, n.For) and node.kind == "serial"):
            return None
        return next((Site(path, OnlineNormalize(base), {"split": split})
                     for base in ("exp", "exp2") if (split := _split(node, base)) is not None), None)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two loops: the maximum, then the sums."""
        loop, i, kernel = node_at(program, site.path), int(site.path[-1]), kernel_of(program, site.path)
        assert isinstance(loop, n.For)
        at, grown, scale = site.captures["split"]
        lets, top = loop.body[:at], loop.body[at + 2]
        assert isinstance(top, n.Store)
        value = loop.body[at]
        assert isinstance(value, n.Let)
        taken = names_in(program, kernel)
        first = replace(loop, body=(*lets, replace(top, value=value.value)))
        sums: list[n.Stmt] = []
        accumulators: set[str] = set()
        for s in loop.body[at + 3:]:
            plain = _unscaled(s, scale)
            if plain is not None:
                made = transform(plain, lambda old, new: n.Load(top.at) if isinstance(new, n.Var) and new.name == grown else new)
                sums.append(made)
            accumulators |= buffers_written((s,))
        needed = tuple(s for s in lets if isinstance(s, n.Let) and any(set(s.names) & names_read(x) for x in (*sums, *lets)))
        inner: n.Block = (*needed, *sums)
        names = {x: fresh(x, taken) for x in dict.fromkeys(bound_names(inner)) if x in set(bound_names(lets))}
        var = n.Var(fresh(loop.var.name, taken), loop.var.of)
        renamed: Any = tuple(substitute(rename(s, names), {loop.var.name: var}) for s in inner)
        second = replace(loop, var=var, body=renamed, label=None)
        block = block_at(program, site.path)
        start = i
        while start > 0 and isinstance(a := block[start - 1], n.Alloc) and a.buffer.name in accumulators:
            start -= 1
        allocs = block[start:i]
        made_program = edit_block(program, site.path, lambda b: (*b[:start], first, *allocs, second, *b[i + 1:]))
        return Rewritten(made_program, (*site.path[:-1], start))


def _as_factor(scale: n.Var, at: n.Region) -> n.Expr:
    """The factor, stretched over the axes that an accumulator has beyond those of the maximum."""
    out: n.Expr = scale
    for axis in range(len(shape_of(scale.type)), len(shape_of(at.type)) if isinstance(scale.type, TileType) else 0):
        out = build.expand(out, axis)
    return out


def _split(loop: n.For, base: str) -> tuple[int, str, str] | None:
    """Where in the body the maximum grows, and the names of the new maximum and the factor."""
    for at in range(len(loop.body) - 2):
        grown, scale, top = loop.body[at:at + 3]
        if not (isinstance(grown, n.Let) and isinstance(grown.value, n.Binary) and grown.value.op == "max" and isinstance(scale, n.Let)
                and isinstance(top, n.Store) and isinstance(top.value, n.Var) and top.value.name == grown.names[0]):
            continue
        wanted = build.call(base, build.binary("sub", n.Load(top.at), n.Var(grown.names[0], grown.value.type)))
        if grown.value.a == n.Load(top.at) and scale.value == wanted and all(isinstance(s, n.Let) for s in loop.body[:at]):
            return at, grown.names[0], scale.names[0]
    return None


def _unscaled(s: n.Stmt, scale: str) -> n.Stmt | None:
    """A statement without the rescaling; None when rescaling is all that it does."""
    if not (isinstance(s, n.Store) and scale in names_read(s.value)):
        return s
    v = s.value
    if isinstance(v, n.Binary) and v.op == "mul" and v.a == n.Load(s.at):
        return None
    if isinstance(v, n.Binary) and v.op == "add" and isinstance(v.a, n.Binary) and v.a.op == "mul" and v.a.a == n.Load(s.at):
        return replace(s, value=build.binary("add", n.Load(s.at), v.b))
    return s
