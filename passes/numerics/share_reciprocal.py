"""Divides once for each row: what many elements are divided by becomes a factor.

pipeline: `share-reciprocal@main/scaled`

```diff
 kir 1
 program p
   in X: f32[16, 64]
   in T: f32[16]
   out Y: f32[16, 64]
 kernel main grid (i: 1) threads 32
   let t = abs(T) + 1.0
-  @scaled Y = X / expand(t, axis=1)
+  let inverse = 1.0 / t
+  @scaled Y = X * expand(inverse, axis=1)
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, TileType, dtype_of
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import node_at
from kir.rewrite.match import block_and_index, edited, fresh_at


@dataclass(frozen=True)
class ShareReciprocal(Pass):
    """No parameters: the quotient of a statement whose divisor is one number for many elements. As an approximate quotient, it is right to 2 ulp where the
    reciprocal is a normal number."""

    intent: ClassVar[str] = "approximate-intrinsic"
    catalogue: ClassVar[tuple[int, ...]] = (67,)
    claim: ClassVar[str] = "A quotient is some ten instructions, and a product one: only one of many elements divides."
    numerics: ClassVar[str] = "approximate(2 ulp)"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with one quotient of f32 whose divisor is stretched over an axis."""
        if not isinstance(node, (n.Let, n.Store)):
            return None
        found = [x for x in walk(node) if _divided(x) is not None]
        if not found:
            return None
        return Site(path, self) if len(found) == 1 else Miss("several quotients have a divisor for many elements")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with one product by a reciprocal that is named right before it and used nowhere else."""
        if not isinstance(node, (n.Let, n.Store)):
            return None
        block, i = block_and_index(program, path)
        named = _named(block[i - 1]) if i else None
        if named is None or not any(_scaled(x, named[0]) is not None for x in walk(node)):
            return None
        used = [x for x in walk(node) if isinstance(x, n.Var) and x.name == named[0]]
        if len(used) != 1 or any(named[0] in names_read(s) for s in block[i + 1:]):
            return Miss(f"the reciprocal '{named[0]}' is used elsewhere, too")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The reciprocal with a name, and a product by it."""
        s = node_at(program, site.path)
        assert isinstance(s, (n.Let, n.Store))
        quotient = next(x for x in walk(s) if _divided(x) is not None)
        divisor = _divided(quotient)
        assert isinstance(quotient, n.Binary) and isinstance(quotient.b, n.Call) and divisor is not None
        name = fresh_at(program, site.path, "inverse")
        inverse = build.binary("div", build.const(1.0, F32), divisor)
        stretched = build.call_with("expand", (n.Var(name, inverse.type), *quotient.b.args[1:]), quotient.b.attrs)
        product = build.binary("mul", quotient.a, stretched)
        made = transform(s, lambda old, new: product if old is quotient else new)
        return edited(program, site.path, (n.Let((name,), inverse), made), at=1)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The quotient itself."""
        s, (block, i) = node_at(program, site.path), block_and_index(program, site.path)
        named = _named(block[i - 1])
        assert named is not None and isinstance(s, (n.Let, n.Store))
        product = next(x for x in walk(s) if _scaled(x, named[0]) is not None)
        assert isinstance(product, n.Binary) and isinstance(product.b, n.Call)
        stretched = build.call_with("expand", (named[1], *product.b.args[1:]), product.b.attrs)
        made = transform(s, lambda old, new: build.binary("div", product.a, stretched) if old is product else new)
        return edited(program, site.path, (made,), -1, at=-1)


def _divided(x: n.Node) -> n.Expr | None:
    """What a quotient's divisor is stretched from."""
    if not (isinstance(x, n.Binary) and x.op == "div" and dtype_of(x.type) == F32):
        return None
    return _stretched(x.b)


def _stretched(e: n.Expr) -> n.Expr | None:
    first = e.args[0] if isinstance(e, n.Call) and e.fn == "expand" and e.of is None else None
    return first if isinstance(first, n.Expr) and isinstance(first.type, TileType) else None


def _scaled(x: n.Node, name: str) -> n.Expr | None:
    """The stretched reciprocal of that name that something is multiplied by."""
    if not (isinstance(x, n.Binary) and x.op == "mul" and dtype_of(x.type) == F32):
        return None
    of = _stretched(x.b)
    return of if isinstance(of, n.Var) and of.name == name else None


def _named(s: n.Stmt) -> tuple[str, n.Expr] | None:
    """A reciprocal of a tile that has a name: the name, and what it is the reciprocal of."""
    if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.op == "div" and isinstance(s.value.type, TileType)):
        return None
    one = s.value.a
    one = one.args[0] if isinstance(one, n.Call) and one.fn == "broadcast" and isinstance(one.args[0], n.Expr) else one
    return (s.names[0], s.value.b) if build.is_const(one, 1.0) else None
