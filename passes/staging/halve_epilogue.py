"""Stores a tile as its left and its right half, so that what is staged on the way needs half the memory.

pipeline: `halve-epilogue@main/out`

```diff
 kir 1
 program scale
   in X: f32[64, 64]
   out Y: f16[64, 64]
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = X
-  @out Y[0 +: 64, 0 +: 64] = cast(acc * 2.0, f16)
+  let left, right = split(trans(reshape(cast(acc * 2.0, f16), 64, 2, 32), 0, 2, 1))
+  @out Y[0 +: 64, 0 +: 32] = left
+  Y[0 +: 64, 32 +: 32] = right
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, TupleType, shape_of
from kir.ir.visit import names_read
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_stmts
from kir.rewrite.match import block_and_index, edited, node_as
from kir.rewrite.match.slices import NoSlice, part_of_region, whole_of_region


@dataclass(frozen=True)
class HalveEpilogue(Pass):
    """No parameters: each half may be halved again."""

    intent: ClassVar[str] = "stage-epilogue"
    catalogue: ClassVar[tuple[int, ...]] = (5, 21)
    claim: ClassVar[str] = "The memory through which a result leaves is half as large, and what is left over holds another stage of operands."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a whole tile of two dimensions to global memory."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "global" and isinstance(node.at.type, TileType)):
            return None
        shape = shape_of(node.at.type)
        if len(shape) != 2 or not all(isinstance(d, int) for d in shape) or node.mask is not None or shape_of(node.value.type) != shape:
            return Miss("no tile of two dimensions of literal extents, or a masked one")
        if isinstance(shape[1], int) and shape[1] % 2:
            return Miss(f"{shape[1]} columns have no two halves")
        try:
            part_of_region(node.at, 1, build.const(0), 1)
        except NoSlice as why:
            return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two values and two stores."""
        s = node_as(program, site.path, n.Store)
        rows, columns = (d if isinstance(d, int) else 0 for d in shape_of(s.at.type))
        half, taken = columns // 2, names_in(program, kernel_of(program, site.path))
        names = fresh("left", taken), fresh("right", taken)
        parts = build.call("split", build.call("trans", build.call("reshape", s.value, *map(build.const, (rows, 2, half))), *map(build.const, (0, 2, 1))))
        assert isinstance(parts.type, TupleType)
        left, right = (n.Var(name, of) for name, of in zip(names, parts.type.elements, strict=True))
        made = (n.Let(names, parts), replace(s, at=part_of_region(s.at, 1, build.const(0), half), value=left),
                replace(s, at=part_of_region(s.at, 1, build.const(half), half), value=right, label=None))
        return edited(program, site.path, made, at=0)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the halves of a value that are then stored side by side, and read nowhere else."""
        value = _halved(node)
        if value is None or not isinstance(node, n.Let):
            return None
        block, i = block_and_index(program, path)
        left, right = (*block[i + 1:i + 3], None, None)[:2]
        if not (isinstance(left, n.Store) and isinstance(right, n.Store)) or [
                getattr(s.value, "name", "") for s in (left, right)] != list(node.names):
            return Miss("its halves are not stored right after, the left one first")
        if any(set(node.names) & names_read(s) for s in block[i + 3:]):
            return Miss("a half is used again")
        try:
            columns = shape_of(value.type)[1]
            at = whole_of_region(left.at, 1, build.const(0), columns if isinstance(columns, int) else 0)
        except NoSlice as why:
            return Miss(str(why))
        return Site(path, self, {"made": replace(left, at=at, value=value)})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One store."""
        return Rewritten(replace_stmts(program, site.path, (site.captures["made"],), 3), site.path)


def _halved(s: Place) -> n.Expr | None:
    """The value of which a statement names the halves."""
    if not (isinstance(s, n.Let) and len(s.names) == 2 and isinstance(parts := s.value, n.Call) and parts.fn == "split"):
        return None
    turned = parts.args[0]
    if not (isinstance(turned, n.Call) and turned.fn == "trans" and turned.args[1:] == tuple(map(build.const, (0, 2, 1)))):
        return None
    shaped = turned.args[0]
    return shaped.args[0] if isinstance(shaped, n.Call) and shaped.fn == "reshape" and isinstance(shaped.args[0], n.Expr) else None
