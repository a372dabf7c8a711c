"""Rounds a product's wide operand to the dtype of the other one, so that tensor cores take both.

pipeline: `narrow-operand@main/product`

```diff
 kir 1
 program weighted
   in X: f32[16, 16]
   in V: bf16[16, 8]
   out Y: f32[16, 8]
 kernel main grid (i: 1) threads 32
   fragment acc: f32[16, 8] = 0.0
   let p = X[0 +: 16, 0 +: 16]
-  @product mma acc += p * V via fma
+  @product mma acc += cast(p, bf16) * V via fma
   Y = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, F16, F32, I8, U8, dtype_of
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import block_at
from kir.rewrite.match import edited, node_as


def _in_range(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    wide, narrow = (s.a, dtype_of(s.b.type)) if dtype_of(s.a.type) == F32 else (s.b, dtype_of(s.a.type))
    if narrow == BF16:
        return proved("bf16 has the range of f32")
    if isinstance(wide, n.Cast) and dtype_of(wide.x.type) in (I8, U8):
        return proved("the operand is a whole number of 8 bits, which f16 has exactly")
    if _is_share_of_maximum(wide, block_at(program, site.path)[:int(site.path[-1])]):
        return proved("the operand is a power of a difference from a maximum, at most 1")
    return unknown("the operand is not known to lie in the range of f16", needs="values of at most 65504, such as weights of a softmax")


def _is_share_of_maximum(e: n.Expr, before: n.Block) -> bool:
    """Whether a value is exp or exp2 of `x - m`, or of that with one positive factor on both sides, m being no less than the maximum of all x along an axis."""
    lets = {s.names[0]: s.value for s in before if isinstance(s, n.Let) and len(s.names) == 1}

    def meant(x: n.Expr) -> n.Expr:
        while isinstance(x, n.Var) and x.name in lets:
            x = lets[x.name]
        return x
    power = meant(e)
    if not (isinstance(power, n.Call) and power.fn in ("exp", "exp2") and isinstance(power.args[0], n.Expr)):
        return False
    exponent = meant(power.args[0])
    if not (isinstance(exponent, n.Binary) and exponent.op == "sub"):
        return False
    values, top = _without_scale(exponent.a, exponent.b)
    while isinstance(top, n.Call) and top.fn == "expand" and isinstance(top.args[0], n.Expr):
        top = top.args[0]
    return any(isinstance(x, n.Call) and x.fn == "reduce" and dict(x.attrs).get("op") == "max" and x.args[0] == values
               for x in _maxima(meant(top), meant))


def _without_scale(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Both sides of a difference without the positive literal that both are multiplied by."""
    if isinstance(a, n.Binary) and isinstance(b, n.Binary) and (a.op, b.op) == ("mul", "mul") and a.b == b.b and isinstance(a.b, n.Const) and a.b.value > 0:
        return a.a, b.a
    return a, b


def _maxima(e: n.Expr, meant: object) -> list[n.Expr]:
    """The values of which `e` is the maximum."""
    assert callable(meant)
    if isinstance(e, n.Binary) and e.op == "max":
        return [*_maxima(meant(e.a), meant), *_maxima(meant(e.b), meant)]
    return [e]


@dataclass(frozen=True)
class NarrowOperand(Pass):
    """No parameters: the narrower operand says to what."""

    intent: ClassVar[str] = "mma"
    catalogue: ClassVar[tuple[int, ...]] = (37,)
    claim: ClassVar[str] = "Tensor cores multiply operands of one narrow dtype; the sum stays wide."
    numerics: ClassVar[str] = "rounding-moved(operand)"
    walked: ClassVar[bool] = False
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P959", "validity", "numerics", "no operand leaves the range of the narrower dtype", _in_range),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on the scalar units with an operand in f32 and one in f16 or bf16."""
        if not (isinstance(node, n.Mma) and node.via == "fma"):
            return None
        found = {dtype_of(node.a.type), dtype_of(node.b.type)}
        return Site(path, self) if F32 in found and found & {F16, BF16} else Miss("its operands are not f32 and f16, or f32 and bf16")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The wide operand rounded."""
        s = node_as(program, site.path, n.Mma)
        if dtype_of(s.a.type) == F32:
            return edited(program, site.path, (replace(s, a=build.cast(s.a, dtype_of(s.b.type))),))
        return edited(program, site.path, (replace(s, b=build.cast(s.b, dtype_of(s.a.type))),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on the scalar units of which one operand is rounded from f32."""
        if not (isinstance(node, n.Mma) and node.via == "fma"):
            return None
        wide = [isinstance(x, n.Cast) and dtype_of(x.x.type) == F32 and dtype_of(x.type) in (F16, BF16) for x in (node.a, node.b)]
        return Site(path, self) if wide.count(True) == 1 else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The operand as it was."""
        s = node_as(program, site.path, n.Mma)
        if isinstance(s.a, n.Cast) and dtype_of(s.a.x.type) == F32:
            return edited(program, site.path, (replace(s, a=s.a.x),))
        assert isinstance(s.b, n.Cast)
        return edited(program, site.path, (replace(s, b=s.b.x),))
