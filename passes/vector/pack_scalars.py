"""Keeps scalars of a thread in one small array, which can be stored at once.

pipeline: `pack-scalars{count=2 at_once=true}@main/t/r`

```diff
 kir 1
 program turned
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 32
   for t in 0..32 parallel thread
-    @r register r: f32
-    register r_1: f32
-    r = X[row, t * 2] - X[row, t * 2 + 1]
-    r_1 = X[row, t * 2] + X[row, t * 2 + 1]
-    Y[row, t * 2] = r
-    Y[row, t * 2 + 1] = r_1
+    @r register r: f32[2]
+    r[0] = X[row, t * 2] - X[row, t * 2 + 1]
+    r[1] = X[row, t * 2] + X[row, t * 2 + 1]
+    Y[row, t * 2 +: 2] = r
```
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.elements import NotElementwise, element, tile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import child_blocks
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import fresh, with_block
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, names_at, node_as

MOST = 16
"""Elements of an array that stands for scalars, at most."""


class CannotPack(Exception):
    """A use of an array that single scalars have no form of."""


@dataclass(frozen=True)
class PackScalars(Pass):
    """`count` scalars, declared one after the other. `at_once`: where all of them are stored to neighboring places in a row, one statement does it; `looped`:
    where each of them is, alike, a loop does it."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11, 12)
    claim: ClassVar[str] = "What belongs together is together in registers, and leaves them in one instruction."
    least: ClassVar[Mapping[str, int]] = {"count": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    count: int = 2
    at_once: bool = False
    looped: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of several declarations of private scalars that are alike."""
        if not isinstance(node, n.Alloc) or self.count > MOST:
            return None
        block, i = block_and_index(program, path)
        scalars = [s for s in block[i:i + self.count] if isinstance(s, n.Alloc) and _is_scalar(s)
                   and replace(s.buffer, name="") == replace(node.buffer, name="")]
        if len(scalars) != self.count:
            return None
        alike = all(s.init == node.init for s in scalars) and not isinstance(node.init, n.Load | n.Cast)
        return Site(path, self) if alike or _vector([s.init for s in scalars]) is not None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One array."""
        block, i = block_and_index(program, site.path)
        allocs = [s for s in block[i:i + self.count] if isinstance(s, n.Alloc)]
        names = [s.buffer.name for s in allocs]
        array = replace(allocs[0].buffer, shape=(build.const(self.count),))
        begins = allocs[0].init if allocs[0].init is None or isinstance(allocs[0].init, n.Const) else _vector([s.init for s in allocs])

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in names:
                return build.region(array, build.const(names.index(new.buffer.name)))
            return new
        rest = tuple(self._stored_at_once(transform(s, leave), array) if self.at_once else transform(s, leave) for s in block[i + self.count:])
        rest = _merged(rest, array) if self.at_once else rest
        if self.looped:
            v = fresh_var("v", names_at(program, site.path))
            rest = _in_loops(rest, array, v)
        return edited(program, site.path, (replace(allocs[0], buffer=array, init=begins), *rest), 0, None)

    def _stored_at_once(self, s: n.Stmt, array: n.Buffer) -> n.Stmt:
        """A statement in whose blocks stores of all elements in a row are one."""
        made = s
        for steps, body in child_blocks(s):
            made = with_block(made, steps, _merged(tuple(self._stored_at_once(x, array) for x in body), array))
        return made

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a small private array whose elements are used one by one, or stored all at once."""
        if not isinstance(node, n.Alloc) or node.buffer.space != "register" or len(node.buffer.shape) != 1 or node.buffer.layout is not None:
            return None
        count = build.int_value(node.buffer.shape[0]) or 0
        if not 2 <= count <= MOST:
            return None
        block, i = block_and_index(program, path)
        names = [f"%{k}" for k in range(count)]
        inside = [x for s in block[i + 1:] for x in walk(s) if isinstance(x, n.Stmt)]
        try:
            _begins(node, count)
            for s in block[i + 1:]:
                _apart(s, node.buffer, names)
        except (CannotPack, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, PackScalars(count, any(isinstance(s, n.Store) and s.value == n.Load(n.Region(node.buffer)) for s in inside),
                                      any(isinstance(s, n.For) and _looped(s, node.buffer, count) is not None for s in inside)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Scalars."""
        node, (block, i) = node_as(program, site.path, n.Alloc), block_and_index(program, site.path)
        taken = names_at(program, site.path)
        names = [node.buffer.name, *(fresh(node.buffer.name, taken) for _ in range(self.count - 1))]
        rest = tuple(y for s in block[i + 1:] for y in _apart(s, node.buffer, names))
        begins = _begins(node, self.count)
        allocs = tuple(replace(node, buffer=_scalar(node.buffer, name), init=begins[k], label=None if k else node.label) for k, name in enumerate(names))
        return edited(program, site.path, (*allocs, *rest), 0, None)


def _is_scalar(s: n.Alloc) -> bool:
    return s.buffer.space == "register" and not s.buffer.shape and s.buffer.layout is None


def _begins(node: n.Alloc, count: int) -> list[n.Expr | None]:
    """What each element of an array begins with. Raises NotElementwise."""
    if node.init is None or isinstance(node.init, n.Const):
        return [node.init] * count
    if any(isinstance(x, n.Region) and x.buffer.space == "register" for x in walk(node.init)) or any(isinstance(x, n.Call) for x in walk(node.init)):
        raise CannotPack("it begins as another one")
    return [element(node.init, (build.const(k),)) for k in range(count)]


def _vector(inits: Sequence[n.Expr | None]) -> n.Expr | None:
    """The vector of which these values are the elements: of places side by side in memory."""
    first, v = inits[0], n.Var("%v", I32)
    if first is None or any(isinstance(x, n.Call) for x in walk(first)):
        return None
    moving = _moved(first, v)
    if moving == first or any(substitute(moving, {v.name: build.const(k)}) != e for k, e in enumerate(inits)):
        return None
    try:
        return tile(moving, ((v, len(inits)),))
    except NotElementwise:
        return None


def _moved(x: n.Expr, v: n.Var) -> n.Expr:
    """A value with the last index of each place of memory `v` further on."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.index and new.buffer.space != "register" and isinstance(last := new.index[-1], n.Expr) and last.type == I32:
            return n.Region(new.buffer, (*new.index[:-1], build.add(last, v)))
        return new
    made: n.Expr = transform(x, leave)
    return made


def _looped(s: n.For, array: n.Buffer, count: int) -> n.Store | None:
    """The store of a loop over all elements of an array that does nothing but store each, with what is computed of it alone, to a place further on."""
    one = s.body[0] if len(s.body) == 1 and s.kind == "serial" and not s.attrs and build.is_const(s.lo, 0) and build.is_const(s.hi, count) else None
    if not isinstance(one, n.Store) or one.mask is not None or one.clip or one.at.buffer.space == "register" or s.var.type != I32:
        return None
    used = [x for x in walk(one.value) if isinstance(x, n.Region) and x.buffer == array]
    own = transform(one.value, lambda old, new: n.Const(0, array.dtype) if isinstance(new, n.Load) and new.at.buffer == array else new)
    last = one.at.index[-1] if one.at.index else None
    if not used or any(x.index != (s.var,) for x in used) or s.var.name in names_read(own) or not isinstance(last, n.Expr) or any(
            s.var.name in names_read(i) for i in one.at.index[:-1]) or build.polynomial(last).get((s.var,)) != 1:
        return None
    return one


def _in_loops(block: n.Block, array: n.Buffer, v: n.Var) -> n.Block:
    """A block in which stores of all elements of an array to neighboring places, one after the other and alike, are a loop."""
    count, out, i = build.int_value(array.shape[0]) or 0, list[n.Stmt](), 0
    while i < len(block):
        s = block[i]
        for steps, body in child_blocks(s):
            s = with_block(s, steps, _in_loops(body, array, v))
        made = _loop_of(block[i:i + count], array, v, count) if isinstance(s, n.Store) else None
        out.append(s if made is None else made)
        i += 1 if made is None else count
    return tuple(out)


def _loop_of(run: n.Block, array: n.Buffer, v: n.Var, count: int) -> n.For | None:
    """The loop that does what stores of each element do one after the other."""
    first = run[0]
    assert isinstance(first, n.Store)
    last = first.at.index[-1] if first.at.index else None
    if len(run) != count or not isinstance(last, n.Expr) or last.type != I32 or first.at.buffer == array:
        return None
    first_of = build.region(array, build.const(0))
    value = transform(first.value, lambda old, new: build.region(array, v) if new == first_of else new)
    loop = counting(v, count, (replace(first, at=n.Region(first.at.buffer, (*first.at.index[:-1], build.add(last, v))), value=value),))
    return loop if _looped(loop, array, count) is not None and _elements_of(loop, array, count) == run else None


def _elements_of(loop: n.For, array: n.Buffer, count: int) -> n.Block:
    """What a loop does, one after the other."""
    one = loop.body[0]
    return tuple(replace(substitute(one, {loop.var.name: build.const(k)}), label=None if k else one.label) for k in range(count))


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
    if isinstance(s, n.For) and _looped(s, array, len(names)) is not None:
        return tuple(_changed(x, leave) for x in _elements_of(s, array, len(names)))
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
