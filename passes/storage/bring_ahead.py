"""Gives what a producer brings once for each tile several slots: it brings the next tile's while this one's is still read.

pipeline: `bring-ahead{stages=2}@main/teams`

```diff
 kir 1
 program sums
   size M: i32
   in W: f16[8, 64, 64]
   in X: f16[M, 64]
   out Y: f32[8, 64]
   map W_map of W box [1, 64, 64]
   map X_map of X box [64, 64]
 kernel main grid (p: 1) threads 256
   shared Xs: f16[64, 64] align 128
-  shared Ws: f16[64, 64] align 128
+  shared Ws: f16[2, 64, 64] align 128
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
-  shared Ws_full: mbarrier
-  shared Ws_empty: mbarrier
-  mbar_init(&Ws_full, 1)
-  mbar_init(&Ws_empty, 1)
+  shared Ws_full: mbarrier[2]
+  shared Ws_empty: mbarrier[2]
+  for s in 0..2 unroll {factor=2}
+    mbar_init(&Ws_full[s], 1)
+    mbar_init(&Ws_empty[s], 1)
   mbar_init(&full[0], 1)
   mbar_init(&empty[0], 1)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
       for i in 0..8
-        mbar_wait(&Ws_empty, (i + 1) % 2)
-        mbar_arrive_expect(&Ws_full, 8192)
-        copy W[i, 0 +: 64, 0 +: 64] -> Ws via tma signal Ws_full {descriptor=W_map}
+        mbar_wait(&Ws_empty[i % 2], (i // 2 + 1) % 2)
+        mbar_arrive_expect(&Ws_full[i % 2], 8192)
+        copy W[i, 0 +: 64, 0 +: 64] -> Ws[i % 2, 0 +: 64, 0 +: 64] via tma signal Ws_full[i % 2] {descriptor=W_map}
         for j in 0..ceildiv(M, 64)
           mbar_wait(&empty[0], (ceildiv(M, 64) * i + j + 1) % 2)
           mbar_arrive_expect(&full[0], 8192)
           copy load(X[j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
     role consumer warps 4..8
       for i_1 in 0..8
         fragment acc: f32[64] = 0.0
-        mbar_wait(&Ws_full, i_1 % 2)
+        mbar_wait(&Ws_full[i_1 % 2], i_1 // 2 % 2)
         for k in 0..ceildiv(M, 64)
           mbar_wait(&full[0], (ceildiv(M, 64) * i_1 + k) % 2)
-          acc = acc + reduce(cast(Xs, f32) * cast(Ws, f32), axis=0, op=sum)
+          acc = acc + reduce(cast(Xs, f32) * cast(Ws[i_1 % 2, 0 +: 64, 0 +: 64], f32), axis=0, op=sum)
           mbar_arrive(&empty[0])
-        mbar_arrive(&Ws_empty)
+        mbar_arrive(&Ws_empty[i_1 % 2])
         Y[i_1, 0 +: 64] = acc
```

Of attention by CTAs that stay these are the queries: with one slot the producer waits for the last product with them before it brings anything of the
next tile.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks
from kir.ir.types import MBARRIER
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fits_shared, is_counted, matched_as, params_as, shared_bytes
from kir.rewrite.match.local_buffers import byte_count, mentions

from ..pipelining._rings import NoRing, Rings, offset_of, phase, slot, with_slots
from ..pipelining.deepen_ring import BAR_BYTES


@dataclass(frozen=True)
class _Brought:
    """The mbarriers of what is brought once for a tile, what copies fill that signal them, and the number of slots."""

    bars: Mapping[str, n.Buffer]
    filled: Mapping[str, n.Buffer]
    stages: int

    @property
    def names(self) -> set[str]:
        """Of all."""
        return {*self.bars, *self.filled}


def _brought(kernel: n.Kernel, roles: n.Roles, stages: int) -> _Brought:
    """What is brought once for a tile into one slot, or into so many. Raises NoRing."""
    every = {s.buffer.name: s.buffer for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER}
    shape = () if stages == 1 else (build.const(stages),)
    bars = {x: b for x, b in every.items() if b.shape == shape and (stages == 1 or _by_tile(roles, x, stages))}
    filled = {s.dst.buffer.name: s.dst.buffer for s in statements((roles,)) if isinstance(s, n.Copy) and s.signal is not None and s.signal.buffer.name in bars}
    if not bars or len(bars) == len(every) or not filled:
        raise NoRing("nothing is brought once for a tile beside a ring")
    return _Brought(bars, filled, stages)


def _by_tile(roles: n.Roles, bar: str, stages: int) -> bool:
    """Whether each role uses an mbarrier's slots by the number of a tile alone."""
    found = [x.index[0] for s in (roles,) for x in walk(s) if isinstance(x, n.Region) and x.buffer.name == bar and x.index]
    return bool(found) and all(isinstance(e, n.Binary) and e.op == "mod" and isinstance(e.a, n.Var) and int_value(e.b) == stages for e in found)


def _turn(block: n.Block, found: _Brought) -> n.Var | None:
    """The number of a tile by whose parity a role waits for what is brought; None where it uses nothing of it. Raises NoRing."""
    if not any(mentions(s, x) for s in block for x in found.names):
        return None
    waits = [x.args[1] for s in block for x in walk(s) if isinstance(x, n.Call) and x.fn == "mbar_wait" and isinstance(x.args[0], n.Region)
             and x.args[0].buffer.name in found.bars]
    turns = {v for e in waits if isinstance(e, n.Expr) for v in walk(e) if isinstance(v, n.Var)}
    if len(turns) != 1:
        raise NoRing("a role waits for it by no number of a tile")
    return turns.pop()


def _counts(block: n.Block, turn: n.Var, names: set[str]) -> bool:
    """Whether a block counts the tiles by a loop's variable, or by a value of a register that goes up by one, and uses what is brought behind that alone."""
    for k, s in enumerate(block):
        if isinstance(s, n.For) and s.var.name == turn.name:
            return is_counted(s) and not any(mentions(x, y) for x in (*block[:k], *block[k + 1:]) for y in names)
        if isinstance(s, n.Let) and s.names == (turn.name,):
            stores = [x for x in block if isinstance(x, n.Store) and isinstance(s.value, n.Load) and x.at == s.value.at]
            return [x.value for x in stores] == [build.add(turn, 1)] and not any(mentions(x, y) for x in block[:k] for y in names)
        if any(_counts(inner, turn, names) for _, inner in child_blocks(s)):
            return not any(mentions(x, y) for x in (*block[:k], *block[k + 1:]) for y in names)
    return False


def _moved(s: n.Stmt, turn: n.Var, old: _Brought, new: _Brought) -> n.Stmt:
    """A statement of a role with slots of other number. Raises NoRing."""
    def place(r: n.Region) -> n.Region:
        b = new.filled.get(r.buffer.name) or new.bars[r.buffer.name]
        index = list(r.index)
        if old.stages > 1:
            if not index or index[0] != slot(turn, old.stages):
                raise NoRing(f"'{b.name}' is used beside the slot of its tile")
            index = index[1:]
        if new.stages == 1:
            return n.Region(b) if index == [build.span(0, d) for d in b.shape] else build.region(b, *index)
        whole = index or [build.span(0, d) for d in b.shape[1:]]
        return build.region(b, slot(turn, new.stages), *whole)

    def leave(x: n.Node, y: n.Node) -> n.Node:
        if isinstance(x, n.Region) and x.buffer.name in old.names:
            return place(x)
        if isinstance(x, n.Call) and x.fn == "mbar_wait" and isinstance(y, n.Call) and isinstance(r := x.args[0], n.Region) and r.buffer.name in old.bars:
            return build.call_with("mbar_wait", (y.args[0], phase(turn, new.stages, offset_of(matched_as(x.args[1], n.Expr), turn, old.stages))), y.attrs)
        return y
    made = matched_as(transform(s, leave, lambda x: not isinstance(x, n.Buffer)), n.Stmt)
    return made


def _resized(program: n.Program, path: Path, stages: int, old_stages: int) -> Rewritten:
    """The kernel with so many slots in the place of others. Raises NoRing."""
    kernel = kernel_of(program, path)
    roles = matched_as(kernel.body[int(path[1])], n.Roles)
    old = _brought(kernel, roles, old_stages)
    flat = _Brought({x: replace(b, shape=()) for x, b in old.bars.items()},
                    {x: b if old_stages == 1 else replace(b, shape=b.shape[1:]) for x, b in old.filled.items()}, 1)
    new = flat if stages == 1 else _Brought({x: with_slots(b, stages) for x, b in flat.bars.items()},
                                            {x: with_slots(b, stages) for x, b in flat.filled.items()}, stages)
    parts = []
    for r in roles.roles:
        turn = _turn(r.body, old)
        if turn is not None and not _counts(r.body, turn, old.names):
            raise NoRing(f"'{r.name}' does not count the tiles for which it is brought")
        parts.append(r if turn is None else replace(r, body=tuple(_moved(s, turn, old, new) for s in r.body)))
    at, count, arrivals = _init(kernel, old)
    var = n.Var(fresh("s", names_in(program, kernel)), build.const(0).dtype)
    inits: n.Block = tuple(n.Eval(build.call("mbar_init", build.region(new.bars[x], var) if stages > 1 else n.Region(new.bars[x]), build.const(each)))
                           for x, each in arrivals)
    if stages > 1:
        inits = (counting(var, stages, inits, "unroll", n.attrs(factor=stages)),)
    buffers = {**new.filled, **new.bars}
    front = [replace(s, buffer=buffers.get(s.buffer.name, s.buffer)) if isinstance(s, n.Alloc) else s for s in kernel.body[:-1]]
    body = (*front[:at], *inits, *front[at + count:], replace(roles, roles=tuple(parts)))
    made = replace(kernel, body=body)
    Rings.of(kernel if old_stages == 1 else made)
    return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(body) - 1))


def _init(kernel: n.Kernel, found: _Brought) -> tuple[int, int, list[tuple[str, int]]]:
    """Where the mbarriers are initialized in a kernel's body, by how many statements, and the arrivals of each in order. Raises NoRing."""
    places = [k for k, s in enumerate(kernel.body[:-1]) if not isinstance(s, n.Alloc) and any(mentions(s, x) for x in found.bars)]
    block = tuple(kernel.body[k] for k in places)
    inner = block
    if found.stages > 1:
        loop, by = block[0], found.stages
        if len(block) != 1 or not isinstance(loop, n.For) or loop != counting(loop.var, by, loop.body, "unroll", n.attrs(factor=by)):
            raise NoRing("mbarriers are initialized in another way")
        inner = loop.body
    arrivals: list[tuple[str, int]] = []
    for s in inner:
        call = s.call if isinstance(s, n.Eval) and s.call.fn == "mbar_init" else None
        count = int_value(call.args[1]) if call is not None and isinstance(call.args[1], n.Expr) else None
        if call is None or not isinstance(call.args[0], n.Region) or count is None:
            raise NoRing("mbarriers are initialized in another way")
        arrivals.append((call.args[0].buffer.name, count))
    if places != list(range(places[0], places[0] + len(places))) or {x for x, _ in arrivals} != set(found.bars) or len(arrivals) != len(found.bars):
        raise NoRing("mbarriers are initialized in another way")
    return places[0], len(places), arrivals


def _capacity(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = params_as(site, BringAhead), kernel_of(program, site.path)
    names = _brought(kernel, matched_as(kernel.body[-1], n.Roles), 1).names
    total = shared_bytes(kernel, lambda b: item.stages if b.name in names else 1, lambda b: BAR_BYTES if b.dtype == MBARRIER else byte_count(b))
    return fits_shared(total, context, "fewer slots, or smaller tiles", usual="sm_90a", what=f"{item.stages} slots need {total} bytes of shared memory",
                       held=f"{item.stages} slots take {total}")


def _whole_slots(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    for b in _brought(kernel, matched_as(kernel.body[-1], n.Roles), 1).filled.values():
        size = byte_count(b)
        if size is None or (b.align and size % b.align):
            return refuted(f"a slot of '{b.name}' has {size} bytes, and slots begin at multiples of {b.align}",
                           f"slot 1 begins at byte {size}", needs=f"a multiple of {b.align} bytes a slot")
    return proved("each slot begins as aligned as the first")


@dataclass(frozen=True)
class BringAhead(Pass):
    """`stages` is the number of slots."""

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (18, 27)
    claim: ClassVar[str] = "The first operands of a tile are there when the tile before ends, and the ring behind them is filled meanwhile."
    requires: ClassVar[tuple[str, ...]] = ("roles", "persistent")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P787", "validity", "storage", "all slots fit in shared memory", _capacity),
        Precondition("KIR-P788", "validity", "layout", "slots begin where their layout lets them", _whole_slots),
    )

    stages: int = 2

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that walk over tiles, for each of which something is brought once and given back."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        if self.stages < 2:
            return Miss("there are two slots or more")
        try:
            _resized(program, path, self.stages, 1)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A slot for each of so many tiles."""
        return _resized(program, site.path, params_as(site, BringAhead).stages, 1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that count slots of what is brought by tiles."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        sizes = {int_value(s.buffer.shape[0]) for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER and len(s.buffer.shape) == 1}
        found = []
        for stages in sorted(x for x in sizes if x is not None and x > 1):
            try:
                _resized(program, path, 1, stages)
            except NoRing:
                continue
            found.append(Site(path, BringAhead(stages)))
        return tuple(found) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One slot."""
        return _resized(program, site.path, 1, params_as(site, BringAhead).stages)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Shared memory for the further slots."""
        kernel, item = kernel_of(program, site.path), params_as(site, BringAhead)
        found = _brought(kernel, matched_as(kernel.body[-1], n.Roles), 1)
        each = [byte_count(b) for b in found.filled.values()]
        return Effect(shared_bytes=None if None in each else (item.stages - 1) * (sum(x for x in each if x is not None) + 8 * len(found.bars)))
