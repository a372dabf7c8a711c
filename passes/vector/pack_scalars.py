"""Keeps scalars of a thread in one small array, which can be stored at once.

before:

```kir
kir 1
program turned
  size M: i32
  in X: f32[M, 64]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    @r register r: f32
    register r_1: f32
    r = X[row, t * 2] - X[row, t * 2 + 1]
    r_1 = X[row, t * 2] + X[row, t * 2 + 1]
    Y[row, t * 2] = r
    Y[row, t * 2 + 1] = r_1
```

pipeline: `pack-scalars{count=2 at_once=true}@main/t/r`

after:

```kir
kir 1
program turned
  size M: i32
  in X: f32[M, 64]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    @r register r: f32[2]
    r[0] = X[row, t * 2] - X[row, t * 2 + 1]
    r[1] = X[row, t * 2] + X[row, t * 2 + 1]
    Y[row, t * 2 +: 2] = r
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import child_blocks
from kir.ir.visit import transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import fresh, with_block
from kir.rewrite.match import block_and_index, edited, names_at, node_as

MOST = 16
"""Elements of an array that stands for scalars, at most."""


class CannotPack(Exception):
    """A use of an array that single scalars have no form of."""


@dataclass(frozen=True)
class PackScalars(Pass):
    """`count` scalars, declared one after the other. `at_once`: where all of them are stored to neighboring places in a row, one statement does it."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11, 12)
    claim: ClassVar[str] = "What belongs together is together in registers, and leaves them in one instruction."
    least: ClassVar[Mapping[str, int]] = {"count": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    count: int = 2
    at_once: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of several declarations of private scalars that are alike."""
        if not isinstance(node, n.Alloc) or self.count > MOST:
            return None
        block, i = block_and_index(program, path)
        scalars = [s.buffer for s in block[i:i + self.count] if isinstance(s, n.Alloc) and _is_scalar(s) and s.init == node.init
                   and replace(s.buffer, name="") == replace(node.buffer, name="")]
        return Site(path, self) if len(scalars) == self.count else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One array."""
        block, i = block_and_index(program, site.path)
        allocs = [s for s in block[i:i + self.count] if isinstance(s, n.Alloc)]
        names = [s.buffer.name for s in allocs]
        array = replace(allocs[0].buffer, shape=(build.const(self.count),))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in names:
                return build.region(array, build.const(names.index(new.buffer.name)))
            return new
        rest = tuple(self._stored_at_once(transform(s, leave), array) if self.at_once else transform(s, leave) for s in block[i + self.count:])
        rest = _merged(rest, array) if self.at_once else rest
        return edited(program, site.path, (replace(allocs[0], buffer=array), *rest), 0, None)

    def _stored_at_once(self, s: n.Stmt, array: n.Buffer) -> n.Stmt:
        """A statement in whose blocks stores of all elements in a row are one."""
        made = s
        for steps, body in child_blocks(s):
            made = with_block(made, steps, _merged(tuple(self._stored_at_once(x, array) for x in body), array))
        return made

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a small private array whose elements are used one by one, or stored all at once."""
        if not isinstance(node, n.Alloc) or node.buffer.space != "register" or len(node.buffer.shape) != 1 or node.buffer.layout is not None or not (
                node.init is None or isinstance(node.init, n.Const)):
            return None
        count = build.int_value(node.buffer.shape[0]) or 0
        if not 2 <= count <= MOST:
            return None
        block, i = block_and_index(program, path)
        names = [f"%{k}" for k in range(count)]
        try:
            rest = tuple(y for s in block[i + 1:] for y in _apart(s, node.buffer, names))
        except CannotPack as bad:
            return Miss(str(bad))
        several = len(list(walk_statements(rest))) > len(list(walk_statements(block[i + 1:])))
        return Site(path, PackScalars(count, several))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Scalars."""
        node, (block, i) = node_as(program, site.path, n.Alloc), block_and_index(program, site.path)
        taken = names_at(program, site.path)
        names = [node.buffer.name, *(fresh(node.buffer.name, taken) for _ in range(self.count - 1))]
        rest = tuple(y for s in block[i + 1:] for y in _apart(s, node.buffer, names))
        allocs = tuple(replace(node, buffer=_scalar(node.buffer, name), label=None if k else node.label) for k, name in enumerate(names))
        return edited(program, site.path, (*allocs, *rest), 0, None)


def walk_statements(block: n.Block) -> list[n.Stmt]:
    """All statements of a block and below."""
    return [x for s in block for x in walk(s) if isinstance(x, n.Stmt)]


def _is_scalar(s: n.Alloc) -> bool:
    return s.buffer.space == "register" and not s.buffer.shape and s.buffer.layout is None and (s.init is None or isinstance(s.init, n.Const))


def _scalar(array: n.Buffer, name: str) -> n.Buffer:
    return replace(array, name=name, shape=())


def _merged(block: n.Block, array: n.Buffer) -> n.Block:
    """A block in which stores of all elements of an array to neighboring places, one after the other, are one."""
    count, out, i = build.int_value(array.shape[0]) or 0, list[n.Stmt](), 0
    while i < len(block):
        first = block[i]
        run = _elements(first, array, count) if isinstance(first, n.Store) else None
        if run is not None and block[i:i + count] == run[1]:
            out.append(run[0])
            i += count
        else:
            out.append(first)
            i += 1
    return tuple(out)


def _elements(s: n.Store, array: n.Buffer, count: int) -> tuple[n.Store, n.Block] | None:
    """(one store, a store for each element) where a statement stores the first element of an array."""
    if s.value != n.Load(build.region(array, build.const(0))) or s.mask is not None or s.clip or not s.at.index or s.at.buffer.name == array.name:
        return None
    *outer, last = s.at.index
    if not isinstance(last, n.Expr) or not all(isinstance(i, n.Expr) for i in outer):
        return None
    whole = replace(s, at=n.Region(s.at.buffer, (*outer, n.Span(last, count))), value=n.Load(n.Region(array)))
    return whole, tuple(_one(whole, k, n.Load(build.region(array, build.const(k)))) for k in range(count))


def _one(s: n.Store, k: int, value: n.Expr) -> n.Store:
    """The store of one element of those that a statement stores in a row."""
    *outer, last = s.at.index
    assert isinstance(last, n.Span)
    return replace(s, at=n.Region(s.at.buffer, (*outer, build.add(last.lo, k))), value=value, label=None if k else s.label)


def _apart(s: n.Stmt, array: n.Buffer, names: list[str]) -> n.Block:
    """A statement with scalars in place of an array's elements. Raises CannotPack."""
    if isinstance(s, n.Store) and s.value == n.Load(n.Region(array)) and s.at.buffer.name != array.name:
        last = s.at.index[-1] if s.at.index else None
        if not (isinstance(last, n.Span) and last.extent == len(names) and last.step == 1 and s.mask is None and not s.clip
                and all(isinstance(i, n.Expr) for i in s.at.index[:-1])):
            raise CannotPack("all elements are stored together, but not to neighboring places")
        return tuple(_one(s, k, n.Load(n.Region(_scalar(array, name)))) for k, name in enumerate(names))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Region) and new.buffer.name == array.name):
            return new
        at = build.int_value(new.index[0]) if len(new.index) == 1 and isinstance(new.index[0], n.Expr) else None
        if at is None or not 0 <= at < len(names):
            raise CannotPack("not all of its elements are used one by one")
        return n.Region(_scalar(array, names[at]))
    blocks = child_blocks(s)
    if not blocks:
        return (_changed(s, leave),)
    made = s
    for steps, _ in blocks:
        made = with_block(made, steps, ())
    made = _changed(made, leave)
    for steps, body in blocks:
        made = with_block(made, steps, tuple(y for x in body for y in _apart(x, array, names)))
    return (made,)


def _changed(s: n.Stmt, leave: Any) -> n.Stmt:
    made: n.Stmt = transform(s, leave)
    return made
