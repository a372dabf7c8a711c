"""Reads an array through a view of another shape, of the same elements in the same order.

pipeline: `reshape-tile{buffer=x shape=[4, 128]}@main/fill`

```diff
 kir 1
 program block_maxima
   in X: f32[M, 512]
   out T: f32[M, 4]
   size M: i32
 kernel main grid (row: M) threads 128
   fragment x: f32[512]
   @fill copy X[row, 0 +: 512] -> x
-  let top = reduce(x[expand(iota(4), axis=1) * 128 + iota(128)], axis=1, op=max)
+  view fragment x_view: f32[4, 128] at x
+  let top = reduce(x_view, axis=1, op=max)
   T[row, 0 +: 4] = top
```
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType
from kir.ir.visit import buffers_named, names_read, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in
from kir.rewrite.match import block_and_index, matched, node_as, sibling
from kir.rewrite.match.unify import rewritten


@dataclass(frozen=True)
class ReshapeTile(Pass):
    """`buffer` is the array, `shape` that of the view, which follows the statement at the site."""

    intent: ClassVar[str] = "pack-panels"
    catalogue: ClassVar[tuple[int, ...]] = (8,)
    claim: ClassVar[str] = "An axis that is worked on in parts is two axes, each of which can be distributed and reduced for itself."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    buffer: str = ""
    shape: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement after which the array is read at places that the view's have; which array, and the shape, are given."""
        if not self.buffer or not isinstance(node, n.Stmt):
            return None
        b = next((x for x in walk(node) if isinstance(x, n.Buffer) and x.name == self.buffer), None)
        old = None if b is None else _shape(b)
        if b is None or old is None or b.space not in ("fragment", "shared", "register") or math.prod(old) != math.prod(self.shape) or old == self.shape:
            return Miss(f"'{self.buffer}' is no array of as many elements") if b is None or old is not None else None
        if b.strides is not None:
            return Miss(f"'{self.buffer}' has strides of its own")
        view = n.Buffer("%view", b.dtype, tuple(map(build.const, self.shape)), b.space)
        rest = block_at(program, path)[int(path[-1]) + 1:]
        change = _Through(b, old, view, self.shape)
        return Site(path, self) if any(rewritten(s, change) != s for s in rest) else Miss("no place that is read is one of such a view")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The view, and reads through it."""
        i, kernel = int(site.path[-1]), kernel_of(program, site.path)
        node = node_as(program, site.path, n.Stmt)
        b = next(x for x in walk(node) if isinstance(x, n.Buffer) and x.name == self.buffer)
        old = matched(_shape(b))
        view = n.Buffer(fresh(f"{b.name}_view", names_in(program, kernel)), b.dtype, tuple(map(build.const, self.shape)), b.space)
        change = _Through(b, old, view, self.shape)
        made = edit_block(program, site.path, lambda x: (*x[:i + 1], n.View(view, n.Region(b)), *(rewritten(s, change) for s in x[i + 1:])))
        return Rewritten(made, sibling(site.path, 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a view of a whole array in another shape, which statements after it only read."""
        if not (isinstance(node, n.View) and not node.axes and not node.at.index and node.fill is None and int(path[-1]) > 0):
            return None
        b, view = node.at.buffer, node.buffer
        old, new = _shape(b), _shape(view)
        if old is None or new is None or b.dtype != view.dtype or math.prod(old) != math.prod(new) or view.layout is not None or view.strides is not None or (
                b.strides is not None):
            return Miss("it is no view of the same elements in the same order")
        block, i = block_and_index(program, path)
        first = block[i - 1]
        if b.name not in buffers_named(first):
            return Miss(f"the statement before it is not about '{b.name}'")
        after = [rewritten(s, _Back(b, old, view, new)) for s in block[i + 1:]]
        if any(view.name in buffers_named(s) for s in after):
            return Miss(f"'{view.name}' is not only read element by element")
        return Site(path, ReshapeTile(b.name, new))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Reads of the array itself."""
        node, i = node_as(program, site.path, n.View), int(site.path[-1])
        b, view = node.at.buffer, node.buffer
        old, new = matched(_shape(b)), matched(_shape(view))
        change = _Back(b, old, view, new)
        made = edit_block(program, site.path, lambda x: (*x[:i], *(rewritten(s, change) for s in x[i + 1:])))
        return Rewritten(made, sibling(site.path, -1))


def _shape(b: n.Buffer) -> tuple[int, ...] | None:
    found = [build.int_value(d) for d in b.shape]
    return None if None in found or not found else tuple(d for d in found if d is not None)


def _groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of one size, in groups that hold the same elements."""
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right = [i] if i < len(a) else [], [j] if j < len(b) else []
        x, y = (a[i] if left else 1), (b[j] if right else 1)
        i, j = i + len(left), j + len(right)
        while x != y:
            if x < y:
                left.append(i)
                x, i = x * a[i], i + 1
            else:
                right.append(j)
                y, j = y * b[j], j + 1
        out.append((left, right))
    return out


def _joined(index: Sequence[n.Expr], extents: Sequence[int]) -> n.Expr:
    """The place along one axis of a place along several."""
    at: n.Expr = build.const(0)
    for e, d in zip(index, extents, strict=True):
        at = build.add(build.mul(at, build.const(d)), e)
    return at


def _parts(at: n.Expr, extents: Sequence[int]) -> list[n.Expr] | None:
    """The places along several axes of one that is written as their sum; None where it is not: the steps of the terms say which is whose."""
    terms = build.polynomial(at)
    left: list[n.Expr] = []
    for k in range(len(extents)):
        step = math.prod(extents[k + 1:])
        own = {m: c for m, c in terms.items() if c % step == 0 and not (k + 1 < len(extents) and not m and c < step)}
        if k + 1 == len(extents):
            own = dict(terms)
        if step > 1 and any(c >= 0 and c % step for m, c in own.items()):
            return None
        left.append(build.from_polynomial({m: c // step for m, c in own.items()}, I32))
        terms = {m: c for m, c in terms.items() if m not in own}
    return left


@dataclass(frozen=True)
class _Through:
    """From an element of the array to the same of the view, where the place is written in the view's parts."""

    array: n.Buffer
    old: tuple[int, ...]
    view: n.Buffer
    new: tuple[int, ...]

    def __call__(self, x: n.Expr) -> n.Expr | None:
        if not (isinstance(x, n.Load) and x.at.buffer == self.array and x.mask is None and not x.clip and x.at.index):
            return None
        index = [i for i in x.at.index if isinstance(i, n.Expr) and not isinstance(i.type, TileType) and i.type == I32]
        if len(index) != len(self.old):
            return None
        out: list[n.Expr] = []
        split = False
        for mine, theirs in _groups(self.old, self.new):
            if len(mine) == 1 and len(theirs) > 1:
                parts = _parts(index[mine[0]], [self.new[k] for k in theirs])
                if parts is None or not names_read(parts[0]) | names_read(parts[-1]) or _is_whole(index[mine[0]]):
                    return None
                split = True
                out += parts
            elif len(theirs) == 1:
                out.append(_joined([index[k] for k in mine], [self.old[k] for k in mine]))
                split = split or len(mine) > 1
            else:
                return None
        return build.load(build.region(self.view, *out)) if split else None


def _is_whole(e: n.Expr) -> bool:
    """Whether a place is one name, so that it is read as the array's own axis."""
    return isinstance(e, n.Var)


@dataclass(frozen=True)
class _Back:
    """From an element of the view to the same of the array."""

    array: n.Buffer
    old: tuple[int, ...]
    view: n.Buffer
    new: tuple[int, ...]

    def __call__(self, x: n.Expr) -> n.Expr | None:
        if not (isinstance(x, n.Load) and x.at.buffer == self.view and x.mask is None and not x.clip and x.at.index):
            return None
        index = [i for i in x.at.index if isinstance(i, n.Expr) and not isinstance(i.type, TileType)]
        if len(index) != len(self.new):
            return None
        out: list[n.Expr] = []
        for mine, theirs in _groups(self.old, self.new):
            joined = _joined([index[k] for k in theirs], [self.new[k] for k in theirs])
            if len(mine) == 1:
                out.append(joined)
                continue
            for k, axis in enumerate(mine):
                step = math.prod(self.old[a] for a in mine[k + 1:])
                part = build.floordiv(joined, step) if step > 1 else joined
                out.append(build.mod(part, self.old[axis]) if k else part)
        return build.load(build.region(self.array, *out))


