"""Adds tiles up element by element along a loop, and reduces what has come together once, behind it, instead of each tile for itself.

pipeline: `defer-reduction@main/total`

```diff
 kir 1
 program row_sums
   size M: i32
   size N: i32
   in X: f32[M, N]
   out S: f32[M]
 kernel main grid (row: M) threads 128
-  @total register total: f32 = 0.0
+  @total fragment parts: f32[256] = 0.0
   for k in 0..ceildiv(N, 256)
-    let part = reduce(load(X[row, k * 256 +: 256] else 0.0 clip), axis=0, op=sum)
-    total = total + part
+    parts = parts + load(X[row, k * 256 +: 256] else 0.0 clip)
+  let total = reduce(parts, axis=0, op=sum)
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from kir.analysis.loops.reductions import OPS, identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, regions, statements, substitute, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block, fresh
from kir.rewrite.match import block_and_index, matched, matched_as, names_at


@dataclass(frozen=True)
class Running:
    """An accumulator of a block, the loop at statement `loop` that folds into it with one store, what that folds in, and the statement that gives
    that a name and serves nothing else."""

    acc: n.Alloc
    loop: int
    store: n.Store
    op: str
    value: n.Expr
    part: n.Let | None = None


def _running(block: n.Block, i: int) -> Running | None:
    """The accumulator at statement `i`, when it begins with the identity, one loop folds into it and what comes behind that only reads it."""
    acc = block[i]
    if not (isinstance(acc, n.Alloc) and acc.buffer.space in ("register", "fragment") and acc.init is not None):
        return None
    name = acc.buffer.name
    using = [k for k in range(i + 1, len(block)) if name in buffers_named(block[k])]
    loop = block[using[0]] if using else None
    if not (isinstance(loop, n.For) and loop.kind in ("serial", "pipelined", "unroll")):
        return None
    stores = [s for s in statements((loop,)) if isinstance(s, n.Store) and s.at.buffer.name == name]
    if len(stores) != 1:
        return None
    store = stores[0]
    op = next((r for r, b in OPS.items() if isinstance(store.value, n.Binary) and store.value.op == b), None)
    if op is None or not isinstance(store.value, n.Binary) or acc.init != identity(op, acc.buffer.dtype):
        return None
    if store.at != n.Region(acc.buffer) or store.mask is not None or store.value.a != n.Load(store.at):
        return None
    if sum(x.buffer.name == name for x in walk(loop) if isinstance(x, n.Region)) != 2:
        return None
    if any(isinstance(x, (n.Store, n.Copy, n.Mma, n.View, n.Opaque, n.Hole)) and _writes(x, name) for k in using[1:] for x in walk(block[k])):
        return None
    if any(r.index for k in using[1:] for r in regions(block[k]) if r.buffer.name == name):
        return None  # elements of it are read one by one
    part = store.value.b
    lets = [s for s in statements((loop,)) if isinstance(part, n.Var) and isinstance(s, n.Let) and s.names == (part.name,)]
    if len(lets) == 1 and isinstance(part, n.Var) and sum(x == part for x in walk(loop)) == 1:
        return Running(acc, using[0], store, op, lets[0].value, lets[0])
    return Running(acc, using[0], store, op, part)


def _writes(x: n.Stmt, name: str) -> bool:
    match x:
        case n.Store():
            return x.at.buffer.name == name
        case n.Copy():
            return x.dst.buffer.name == name
        case n.Mma():
            return x.acc.buffer.name == name
        case n.View():
            return x.at.buffer.name == name
        case _:
            return True


def _with_store(block: n.Block, found: Running, made: n.Block) -> n.Block:
    """The block with other statements for the fold, and without the name of what was folded in."""
    out: list[n.Stmt] = []
    for s in block:
        if s is found.store:
            out += [replace(x, label=s.label, origin=s.origin) if isinstance(x, n.Store) else x for x in made]
        elif s is not found.part:
            out.append(_inside(s, found, made))
    return tuple(out)


def _inside(s: n.Stmt, found: Running, made: n.Block) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return replace(s, body=_with_store(s.body, found, made))
        case n.If():
            return replace(s, then=_with_store(s.then, found, made), orelse=_with_store(s.orelse, found, made))
        case _:
            return s


def _rewritten(block: n.Block, i: int, found: Running, acc: n.Alloc, fold: n.Block, rest: Callable[[n.Block], n.Block]) -> n.Block:
    """The block with another accumulator and another fold, and what `rest` makes of what follows the loop."""
    middle = (*block[i + 1:found.loop], _inside(block[found.loop], found, fold))
    return (*block[:i], acc, *middle, *rest(block[found.loop + 1:]))


@dataclass(frozen=True)
class DeferReduction(Pass):
    """No parameters: the site is the accumulator."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "Threads meet once, after the loop, and not in each of its iterations."
    numerics: ClassVar[str] = "reassociated(axis)"
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator into which a loop folds the reduction of a tile of literal extents."""
        if not isinstance(node, n.Alloc) or len(path) < 2:
            return None
        found = _running(block_at(program, path), int(path[-1]))
        if found is None or found.part is None or not isinstance(found.value, n.Call) or found.value.fn != "reduce":
            return None
        options, tile = dict(found.value.attrs), found.value.args[0]
        if options.get("op") != found.op or len(found.value.args) != 1 or set(options) != {"axis", "op"} or not isinstance(tile, n.Expr):
            return Miss("the tile is not reduced as the results are folded")
        if not all(isinstance(d, int) for d in shape_of(tile.type)) or dtype_of(tile.type) != node.buffer.dtype:
            return Miss("the tile has no literal extents")
        name = node.buffer.name
        if any(isinstance(x, n.Copy) and x.src.at.buffer.name == name for s in block_at(program, path)[int(path[-1]):] for x in walk(s)):
            return Miss(f"'{name}' is copied, not read: a total has no place to copy from")
        if node.buffer.layout is not None or node.buffer.strides is not None:
            return Miss(f"'{node.buffer.name}' has a layout of its own")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An accumulator for each element of the tile, reduced behind the loop."""
        (block, i), taken = block_and_index(program, site.path), names_at(program, site.path)
        found = matched(_running(block, i))
        assert isinstance(found.value, n.Call)
        tile, old = matched_as(found.value.args[0], n.Expr), found.acc.buffer
        parts = n.Buffer(fresh("parts", taken), old.dtype, tuple(build.const(d) if isinstance(d, int) else d for d in shape_of(tile.type)), "fragment")
        place = n.Region(parts)
        total = n.Let((fresh(old.name, taken),), replace(found.value, args=(n.Load(place),)))
        named, was = n.Var(total.names[0], total.value.type), n.Load(n.Region(old))
        store = n.Store(place, build.binary(OPS[found.op], n.Load(place), tile))

        def rest(after: n.Block) -> n.Block:
            return (total, *(transform(s, lambda old, new: named if new == was else new) for s in after))
        acc = replace(found.acc, buffer=parts)
        return Rewritten(edit_block(program, site.path, lambda b: _rewritten(b, i, found, acc, (store,), rest)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fragment that is reduced once, after the loop that adds tiles to it."""
        if not isinstance(node, n.Alloc) or node.buffer.space != "fragment" or len(path) < 2:
            return None
        block = block_at(program, path)
        found = _running(block, int(path[-1]))
        if found is None or self._total(block, found) is None:
            return None
        if found.part is not None:
            return Miss("what is added has a name of its own")
        if found.value.type != n.Load(n.Region(node.buffer)).type:
            return Miss("what is added is not of the fragment's shape")
        return Site(path, self)

    def _total(self, block: n.Block, found: Running) -> tuple[int, n.Let] | None:
        """The one statement after the loop that reads the fragment, which reduces it."""
        using = [k for k in range(found.loop + 1, len(block)) if found.acc.buffer.name in buffers_named(block[k])]
        s = block[using[0]] if len(using) == 1 else None
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Call) and s.value.fn == "reduce"):
            return None
        own = s.value.args == (n.Load(n.Region(found.acc.buffer)),) and dict(s.value.attrs).keys() == {"axis", "op"}
        return (using[0], s) if own and dict(s.value.attrs)["op"] == found.op else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each tile reduced as it comes."""
        block, i = block_and_index(program, site.path)
        found = matched(_running(block, i))
        total = matched(self._total(block, found))
        at, let = total
        taken = names_at(program, site.path) - {found.acc.buffer.name}
        shape = tuple(build.const(d) if isinstance(d, int) else d for d in shape_of(let.value.type))
        acc = n.Buffer(fresh(found.acc.buffer.name, taken), found.acc.buffer.dtype, shape, "fragment" if shape else "register")
        place = n.Region(acc)
        assert isinstance(let.value, n.Call)
        part = n.Let((fresh("part", taken | {acc.name}),), replace(let.value, args=(found.value,)))
        store = n.Store(place, build.binary(OPS[found.op], n.Load(place), n.Var(part.names[0], part.value.type)))

        def rest(after: n.Block) -> n.Block:
            k = at - found.loop - 1
            read = {let.names[0]: n.Load(place)}
            return tuple(substitute(s, read) if let.names[0] in names_read(s) else s for s in (*after[:k], *after[k + 1:]))
        alloc = replace(found.acc, buffer=acc)
        return Rewritten(edit_block(program, site.path, lambda b: _rewritten(b, i, found, alloc, (part, store), rest)), site.path)
