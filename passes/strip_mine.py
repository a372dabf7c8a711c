"""Folds the values of a loop in pieces of a fixed length, the last of which may hang over the end.

before:

```kir
kir 1
program row_sums
  in X: f32[M, N]
  out S: f32[M]
  size M: i32
  size N: i32
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum for k in 0..N
    total = total + X[row, k]
  S[row] = total
```

pipeline: `strip-mine{extent=16}@main/sum`

after:

```kir
kir 1
program row_sums
  in X: f32[M, N]
  out S: f32[M]
  size M: i32
  size N: i32
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum for k_tile in 0..ceildiv(N, 16)
    for i in 0..16
      total = total + load(X[row, k_tile * 16 + i] else 0.0 clip)
  S[row] = total
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.analysis.clipping import divides, settle_clips
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, node_at, replace_kernel, replace_stmts, tile_name

from .tile import divides_exactly


def _adds_nothing(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_at(program, site.path), site.params
    assert isinstance(loop, n.For) and isinstance(item, StripMine)
    if divides(item.extent, loop.hi, program.facts):
        return proved(f"{item.extent} divides the number of iterations")
    made = node_at(item.optimize(program, site).program, site.path)
    inner = made.body[0] if isinstance(made, n.For) else None
    assert isinstance(inner, n.For) and isinstance(made, n.For)
    value = _folded(inner)
    assert value is not None
    if _is_nothing(value, {made.var.name, inner.var.name}):
        return proved("what lies past the end is read as zero, and adds nothing")
    return unknown(f"past the end of the loop, {expr_text(value)} need not be 0", needs=f"a fact that {item.extent} divides the iterations")


def _is_nothing(e: n.Expr, over: set[str]) -> bool:
    """Whether a value is zero where every load that moves with these names lies outside its tensor."""
    match e:
        case n.Load():
            return e.clip and e.mask is None and isinstance(e.other, n.Const) and e.other.value == 0 and bool(names_read(e.at) & over)
        case n.Cast():
            return _is_nothing(e.x, over)
        case n.Binary(op="mul" | "add" | "sub"):
            return _is_nothing(e.a, over) and _is_nothing(e.b, over)
        case n.Unary(op="neg"):
            return _is_nothing(e.x, over)
        case _:
            return False


def _folded(loop: n.For) -> n.Expr | None:
    """What a loop adds to a private scalar, when that is all it does."""
    s = loop.body[0] if len(loop.body) == 1 else None
    if not (isinstance(s, n.Store) and s.at.buffer.space == "register" and s.at == n.Region(s.at.buffer) and not s.at.buffer.shape and s.mask is None):
        return None
    v = s.value
    added = isinstance(v, n.Binary) and v.op == "add" and v.a == n.Load(s.at) and s.at.buffer.name not in buffers_named(v.b)
    return v.b if added and isinstance(v, n.Binary) else None


def _plain(s: Place | n.Stmt) -> bool:
    return isinstance(s, n.For) and s.kind == "serial" and not s.attrs and build.is_const(s.lo, 0) and build.is_const(s.step, 1) and s.var.of == I32


@dataclass(frozen=True)
class StripMine(Pass):
    """`extent` values in a piece."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52,)
    claim: ClassVar[str] = "Pieces of a fixed length can be staged, unrolled, and moved at once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P914", "validity", "shape", "the pieces divide the loop, or what lies past its end adds nothing", _adds_nothing),)

    extent: int = 16

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that does nothing but add values to a private scalar."""
        if not (_plain(node) and isinstance(node, n.For)) or self.extent < 2 or _folded(node) is None:
            return None
        if build.int_value(node.hi) is not None and (build.int_value(node.hi) or 0) <= self.extent:
            return Miss("it has no more iterations than a piece")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the pieces, and one over the values of a piece."""
        loop, kernel = node_at(program, site.path), kernel_of(program, site.path)
        assert isinstance(loop, n.For)
        taken = names_in(program, kernel)
        tile, i = n.Var(fresh(tile_name(loop.var.name), taken), I32), n.Var(fresh("i", taken), I32)
        at = build.add(build.mul(tile, self.extent), i)
        inner = n.For(i, build.const(0), build.const(self.extent), build.const(1), tuple(substitute(s, {loop.var.name: at}) for s in loop.body))
        made = replace(loop, var=tile, hi=build.ceildiv(loop.hi, self.extent), body=(inner,))
        return self._settled(program, site, made)

    def _settled(self, program: n.Program, site: Site, made: n.For) -> Rewritten:
        before = kernel_of(program, site.path)
        out = replace_stmts(program, site.path, (made,))
        kernel = settle_clips(kernel_of(out, site.path), out.facts, before)
        return Rewritten(replace_kernel(out, kernel.name, kernel), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over pieces that is one over their values, in which both only number the value."""
        inner = node.body[0] if isinstance(node, n.For) and len(node.body) == 1 else None
        if not (_plain(node) and isinstance(node, n.For) and isinstance(inner, n.For) and _plain(inner)) or _folded(inner) is None:
            return None
        extent = build.int_value(inner.hi)
        if extent is None or divides_exactly(node.hi, extent) is None:
            return None
        if self._single(program, path, node, inner) is None:
            return Miss("piece and place are used beside the number of the value")
        return Site(path, StripMine(extent))

    def _single(self, program: n.Program, path: Path, loop: n.For, inner: n.For) -> n.For | None:
        extent = build.int_value(inner.hi)
        assert extent is not None
        hi, k = divides_exactly(loop.hi, extent), n.Var(fresh(element_name(loop.var.name), names_in(program, kernel_of(program, path))), I32)
        body = tuple(substitute(s, {inner.var.name: build.sub(k, build.mul(loop.var, extent))}) for s in inner.body)
        if hi is None or any({loop.var.name, inner.var.name} & names_read(s) for s in body):
            return None
        return replace(loop, var=k, hi=hi, body=body)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all values."""
        loop = node_at(program, site.path)
        assert isinstance(loop, n.For) and isinstance(loop.body[0], n.For)
        made = self._single(program, site.path, loop, loop.body[0])
        assert made is not None
        return self._settled(program, site, made)
