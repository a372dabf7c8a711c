"""Keeps what a thread stores, instead of reading it back.

pipeline: `keep-stored@main/t/stage`

```diff
 kir 1
 program squares
   size M: i32
   in X: f16[M, 256]
   out Y: f32[M, 256]
   out S: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared kept: f32[256]
   for t in 0..64 parallel thread
     register total: f32 = 0.0
-    @stage kept[t * 4 +: 4] = cast(X[row, t * 4 +: 4], f32)
+    register kept_own: f32[4] = cast(X[row, t * 4 +: 4], f32)
+    @stage kept[t * 4 +: 4] = kept_own
     for j in 0..4
-      total = total + kept[t * 4 + j] * kept[t * 4 + j]
-    Y[row, t * 4 +: 4] = kept[t * 4 +: 4]
+      total = total + kept_own[j] * kept_own[j]
+    Y[row, t * 4 +: 4] = kept_own
     S[row, t] = total
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.elements import NotElementwise, element, tile, tile_region
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import names_read, once, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, kernel_of, node_at
from kir.rewrite.match import block_and_index, edited, fresh_at, from_zero, loads_of, matched, matched_as, regions_of, sibling
from kir.rewrite.match.materialize import buffers_read, buffers_written, inlined, is_pure
from kir.rewrite.match.thread_team import is_call, team_at

from ..bounds._out_of_bounds_value import past_end

MOST = 16
"""Elements of a vector."""


def _still_there(program: n.Program, site: Site, context: Context) -> Verdict:
    node, (block, i) = node_at(program, site.path), block_and_index(program, site.path)
    assert isinstance(node, (n.Store, n.For))
    store = node if isinstance(node, n.Store) and isinstance(site.params, KeepStored) and site.params.row else matched(_home(node))
    aliases, last = Aliases(program), max(k for k in range(i + 1, len(block)) if _reads(block[k], store.at) or store.at.buffer.name in buffers_read(block[k]))
    for s in block[i + 1:last + 1]:
        for name in sorted(buffers_written((s,))):
            if name == "*" or aliases.may_be_one(name, store.at.buffer.name):
                return refuted(f"'{store.at.buffer.name}' is written again before it is read back", f"a later read sees what '{name}' was given",
                               needs="reads before the next write")
        if any(is_call(x, "barrier") for x in statements((s,))):
            return refuted("other threads may write the place after they have met here", "barrier()", needs="reads before the next barrier")
    return proved("nothing writes the place before it is read back")


@dataclass(frozen=True)
class Home:
    """A statement that stores `value` at `at`, and nothing else: a store, or (with `var`) a loop over the elements of a vector."""

    at: n.Region
    value: n.Expr
    var: n.Var | None = None

    def storing(self, s: n.Stmt, value: n.Expr) -> n.Stmt:
        """The statement with another value in place of its own (in a loop: of an element of it)."""
        if isinstance(s, n.For):
            (store,) = s.body
            assert isinstance(store, n.Store)
            return replace(s, body=(replace(store, value=value),))
        assert isinstance(s, n.Store)
        return replace(s, value=value)


def _home(s: n.Stmt) -> Home | None:
    """What a statement stores to memory that others may read; None for other statements."""
    if isinstance(s, n.For):
        store, count = s.body[0] if len(s.body) == 1 else None, build.int_value(s.hi)
        if not isinstance(store, n.Store) or count is None or not 1 < count <= MOST or s.kind not in ("serial", "unroll") or not build.is_const(
                s.lo, 0) or not build.is_const(s.step, 1) or not _is_plain(store) or isinstance(store.at.type, TileType):
            return None
        try:
            place, value = tile_region(store.at, [(s.var, count)]), tile(store.value, [(s.var, count)])
        except NotElementwise:
            return None
        if place is None or not isinstance(value.type, TileType) or s.var.name in names_read(value) or value.type.shape != (count,):
            return None
        last = place[0].index[-1]
        return Home(place[0], value, s.var) if isinstance(last, n.Span) and place[0].type == value.type else None
    return Home(s.at, s.value) if isinstance(s, n.Store) and _is_plain(s) else None


def _is_plain(s: n.Store) -> bool:
    return s.at.buffer.space in ("global", "shared") and s.mask is None and not s.clip and not s.cache and bool(s.at.index) and is_pure(s.value)


def _reads(s: n.Stmt, at: n.Region) -> bool:
    loads = once(s, "_loads", lambda: tuple(x for x in walk(s) if isinstance(x, n.Load)))
    return any(x.at.buffer.name == at.buffer.name and _kept(x, at, None) is not None for x in loads)


def _kept(x: n.Load, at: n.Region, own: n.Buffer | None) -> n.Load | n.Const | None:
    """What a load of the place, or of an element of it, is as a load of the thread's own array; None for other loads."""
    if x.at.buffer != at.buffer or x.mask is not None or x.clip or x.cache or len(x.at.index) != len(at.index):
        return None
    to = own or n.Buffer("%own", at.buffer.dtype, (), "register")
    if x.at == at:
        return n.Load(n.Region(to))
    *outer, last = at.index
    *other, place = x.at.index
    if not isinstance(last, n.Span) or not isinstance(last.extent, int) or last.step != 1 or outer != other or not isinstance(place, n.Expr):
        return None
    step = build.sub(place, last.lo) if place.type == last.lo.type and isinstance(place.type, DType) else None
    value = build.int_value(step) if step is not None else None
    if isinstance(step, n.Var) or (value is not None and 0 <= value < last.extent):
        assert step is not None
        return n.Load(n.Region(to, (step,)))
    return None


def _inside(block: n.Block, i: int, at: n.Region) -> bool:
    """Whether all reads of elements are by counters of loops that run over exactly the elements that were stored."""
    last = at.index[-1] if at.index else None
    size = last.extent if isinstance(last, n.Span) else 1
    loops = {s.var.name: s for s in statements(block[i + 1:]) if isinstance(s, n.For)}
    for s in block[i + 1:]:
        for x in walk(s):
            found = _kept(x, at, None) if isinstance(x, n.Load) else None
            if isinstance(found, n.Load) and found.at.index and isinstance(found.at.index[0], n.Var):
                loop = loops.get(found.at.index[0].name)
                if loop is None or not from_zero(loop) or build.int_value(loop.hi) != size:
                    return False
    return True


@dataclass(frozen=True)
class KeepStored(Pass):
    """The site is the store. `named`: what is kept is a value with a name, not a private array or scalar that begins with it. `row`: a CTA of one thread
    keeps a tile, and elements past the end of memory are what they were."""

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5, 84)
    claim: ClassVar[str] = "What a thread has just stored is still in its registers, and needs no trip to memory and back."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P840", "validity", "aliasing", "nothing writes the place before it is read back", _still_there),)

    named: bool = False
    row: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a thread's store (or loop that stores the elements of a vector) that statements after it read back."""
        if self.row:
            return self._row(program, path, node)
        if not isinstance(node, (n.Store, n.For)) or team_at(program, path) is None:
            return None
        home = _home(node)
        if home is None:
            return None
        if isinstance(home.value, n.Load) and home.value.at.buffer.space == "register":
            return Miss("what is stored is the thread's own already")
        block, i = block_and_index(program, path)
        if not any(_reads(s, home.at) for s in block[i + 1:]):
            return None
        if self.named and (home.var is not None or isinstance(home.value, (n.Var, n.Const, n.Load)) or any(
                isinstance(x, n.Load) and x.at != home.at and _kept(x, home.at, None) is not None for s in block[i + 1:] for x in walk(s))):
            return Miss("what is read back is not what was stored as a whole, or it has a name already")
        if not _inside(block, i, home.at):
            return Miss("elements are read back that are not known to be those that were stored")
        return Site(path, self)

    def _row(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a tile that is computed and stored, and whose elements are read back."""
        if not isinstance(node, n.Store) or not _is_row(program, path, node) or isinstance(node.value, (n.Var, n.Const, n.Load)):
            return None
        back = _read_back(node)
        if back is None:
            return Miss("nobody knows what was computed past the end of memory")
        block, i = block_and_index(program, path)
        return Site(path, self) if any(_of_row(s, back, n.Var("%own", node.at.type)) != s for s in block[i + 1:]) else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A private array (or scalar) with the value, its store, and reads of it."""
        node, i = node_at(program, site.path), int(site.path[-1])
        assert isinstance(node, (n.Store, n.For))
        if self.row:
            store = matched_as(node, n.Store)
            var = n.Var(fresh_at(program, site.path, f"{store.at.buffer.name}_own"), store.at.type)
            later = tuple(_of_row(s, matched(_read_back(store)), var) for s in block_at(program, site.path)[i + 1:])
            return edited(program, site.path, (n.Let((var.name,), store.value), replace(store, value=var), *later), 0, None,
                          hints={site.path: (sibling(site.path, 1),)})
        home = matched(_home(node))
        if self.named:
            kept, place = n.Var(fresh_at(program, site.path, f"{home.at.buffer.name}_own"), home.value.type), n.Load(home.at)
            after = (transform(s, lambda old, new: kept if old == place else new) for s in block_at(program, site.path)[i + 1:])
            return edited(program, site.path, (n.Let((kept.name,), home.value), home.storing(node, kept), *after), 0, None,
                          hints={site.path: (sibling(site.path, 1),)})
        shape = home.at.type.shape if isinstance(home.at.type, TileType) else ()
        name = fresh_at(program, site.path, f"{home.at.buffer.name}_own")
        own = n.Buffer(name, home.at.buffer.dtype, tuple(build.const(d) for d in shape if isinstance(d, int)), "register")
        stored = n.Load(n.Region(own, (home.var,) if home.var is not None else ()))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return (_kept(old, home.at, own) or new) if isinstance(old, n.Load) else new
        rest = (transform(s, leave) for s in block_at(program, site.path)[i + 1:])
        made = (n.Alloc(own, home.value), home.storing(node, stored), *rest)
        return edited(program, site.path, made, 0, None, hints={site.path: (sibling(site.path, 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a private array or a name that has a value from the beginning, is stored as a whole, and otherwise only read."""
        if isinstance(node, n.Let):
            if _is_kept_row(program, path, node):
                return Site(path, KeepStored(row=True))
            return Site(path, KeepStored(True)) if _is_kept_by_name(program, path, node) else None
        if not (isinstance(node, n.Alloc) and node.buffer.space == "register" and node.init is not None) or team_at(program, path) is None:
            return None
        b, (block, i) = node.buffer, block_and_index(program, path)
        whole = n.Load(n.Region(b))
        found = [(k, home) for k in range(i + 1, len(block)) if (home := _home(block[k])) is not None and home.value == whole]
        if not is_pure(node.init) or not found or (isinstance(node.init, n.Load) and node.init.at.buffer.space == "register"):
            return None
        at, home = found[0]
        later = regions_of(block[i + 1:], b.name)
        loads = loads_of(block[i + 1:], b.name)
        if len(later) != len(loads) or any(x.mask is not None or len(x.at.index) > 1 for x in loads) or len(loads) < 2:
            return Miss(f"'{b.name}' is not only stored once and read")
        if any(isinstance(x.at.index[0], n.Span) for x in loads if x.at.index):
            return Miss(f"pieces of '{b.name}' are read")
        bound = {name for s in block[i:at] if isinstance(s, n.Let) for name in s.names}
        if names_read(home.at) & bound:
            return Miss("the place of the store is not known yet")
        return Site(path, self, {"home": at})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The store, and reads of what it wrote."""
        node, i, block = node_at(program, site.path), int(site.path[-1]), block_at(program, site.path)
        if isinstance(node, n.Let):
            store = matched_as(block[i + 1], n.Store)
            if self.row:
                made = replace(store, value=node.value)
                later = (inlined(s, node.names[0], matched(_read_back(made))) for s in block[i + 2:])
                return edited(program, site.path, (made, *later), 0, None)
            after = (substitute(s, {node.names[0]: n.Load(store.at)}) for s in block[i + 2:])
            return edited(program, site.path, (replace(store, value=node.value), *after), 0, None)
        at = int(site.captures["home"])
        home = matched(_home(block[at]))
        assert isinstance(node, n.Alloc) and node.init is not None
        *outer, last = home.at.index

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not isinstance(old, n.Load) or old.at.buffer.name != node.buffer.name:
                return new
            if not old.at.index:
                return n.Load(home.at)
            here = matched_as(old.at.index[0], n.Expr)
            assert isinstance(last, n.Span)
            return n.Load(n.Region(home.at.buffer, (*outer, build.add(last.lo, here))))
        made_store = home.storing(block[at], element(node.init, [home.var]) if home.var is not None else node.init)
        rest = [transform(s, leave) for k, s in enumerate(block[i + 1:], i + 1) if k != at]
        return edited(program, site.path, (made_store, *rest), 0, None)


def _is_kept_by_name(program: n.Program, path: Path, s: n.Let) -> bool:
    """Whether a name's value is stored next, and what is read afterwards."""
    block, i = block_and_index(program, path)
    store = block[i + 1] if i + 1 < len(block) else None
    if team_at(program, path) is None or len(s.names) != 1 or not isinstance(store, n.Store) or not is_pure(s.value) or isinstance(s.value, (n.Load, n.Const)):
        return False
    name, home = s.names[0], _home(store)
    return home is not None and home.value == n.Var(name, s.value.type) and name not in {y for e in home.at.index for y in names_read(e)} and (
        store.at.type == s.value.type) and any(name in names_read(x) for x in block[i + 2:])


def _is_row(program: n.Program, path: Path, s: n.Store) -> bool:
    """Whether a CTA of one thread stores a tile to global memory, all of it but what lies past the end."""
    return (build.is_const(kernel_of(program, path).threads, 1) and s.at.buffer.space == "global" and s.mask is None and not s.cache and isinstance(
        s.at.type, TileType) and s.value.type == s.at.type and is_pure(s.value))


def _is_kept_row(program: n.Program, path: Path, s: n.Let) -> bool:
    """Whether a tile with a name is stored next, and read afterwards."""
    block, i = block_and_index(program, path)
    store = block[i + 1] if i + 1 < len(block) else None
    if len(s.names) != 1 or not isinstance(store, n.Store) or store.value != n.Var(s.names[0], s.value.type) or isinstance(s.value, (n.Load, n.Const)):
        return False
    made = replace(store, value=s.value)
    later = any(s.names[0] in names_read(x) for x in block[i + 2:]) and s.names[0] not in names_read(store.at)
    return later and _is_row(program, path, made) and _read_back(made) is not None


def _read_back(s: n.Store) -> n.Load | None:
    """A load of what a store of a tile leaves that gives its value also past the end of memory; None where that value is not known."""
    if not s.clip:
        return n.Load(s.at)
    numbers = [x.value for x in walk(s.value) if isinstance(x, n.Const) and isinstance(x.value, float)]
    exact = all(math.isinf(x) or abs(x) in (0.0, 0.5, 1.0, 2.0) for x in numbers)  # nothing is rounded on the way
    past = past_end(s.value, set()) if exact and dtype_of(s.at.type).is_float else None
    return None if past is None else n.Load(s.at, None, build.const(past, dtype_of(s.at.type)), True)


def _of_row(s: n.Stmt, back: n.Load, own: n.Var) -> n.Stmt:
    """A statement that takes a kept tile, or elements that the counters of loops over all of them pick, for what it would read back."""
    *outer, last = back.at.index
    loops = {x.var.name: x for x in statements((s,)) if isinstance(x, n.For) and from_zero(x)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if old == back:
            return own
        if not isinstance(old, n.Load) or not isinstance(last, n.Span) or old.at.buffer != back.at.buffer or list(old.at.index[:-1]) != outer or (
                old.mask, old.other, old.clip, old.cache) != (None, back.other, back.clip, ""):
            return new
        place = old.at.index[-1]
        step = build.sub(place, last.lo) if isinstance(place, n.Expr) and place.type == last.lo.type and isinstance(place.type, DType) else None
        over = loops.get(step.name) if isinstance(step, n.Var) else None
        return build.call("pick", own, step) if over is not None and step is not None and build.int_value(over.hi) == last.extent and last.step == 1 else new
    made: n.Stmt = transform(s, leave)
    return made
