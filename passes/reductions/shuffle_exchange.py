"""Lets the lanes of a warp exchange registers in a ladder of shuffles, instead of through shared memory.

pipeline: `shuffle-exchange@main/exchange`

```diff
 kir 1
 program warp_sums
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
-  shared slots: f32[64]
   for t in 0..64 parallel thread
     register total: f32 = X[row, t]
-    @exchange slots[t] = total
-    warp_sync()
-    total = 0.0
-    for u in 0..32
-      total = total + slots[t // 32 * 32 + u]
+    @exchange for s in 0..5
+      let other = shfl_xor(total, 16 >> s)
+      total = total + other
     Y[row, t] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh, replace_stmts
from kir.rewrite.match import block_and_index, counting, fresh_var, from_zero, matched, names_at, node_as, params_as
from kir.rewrite.match.exchange import REDUCTIONS, Exchange, exchange_at
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import is_in_loop, team_at, warps_arrive, whole

from ..scans._scan_forms import group_of
from ._result_readers import Readers

WARP = 32


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(_exchange(program, site.path))
    width = made.count
    if width > WARP or width & (width - 1):
        return refuted(f"{width} threads exchange, which are no lanes of one warp", needs=f"a power of two up to {WARP}")
    if team.threads % width:
        return refuted(f"the last of the {team.threads} threads have no {width} peers",
                       f"lane {team.threads % width} of the last group does not exist", needs=f"a multiple of {width} threads")
    return proved(f"each thread's {width} peers are lanes of its warp")


def _private_slots(program: n.Program, site: Site, context: Context) -> Verdict:
    made = matched(_exchange(program, site.path))
    if uses(program, site.path, made.slots.name) > 2:
        return refuted(f"'{made.slots.name}' is used elsewhere too", needs="slots that only this exchange uses")
    return proved("only the exchange uses the slots")


def _first_lane_reads(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team, made = params_as(site, ShuffleExchange), matched(team_at(program, site.path)), matched(_exchange(program, site.path))
    if not item.down:
        return proved("every lane has the result")
    width = made.count
    found = matched(exchange_at(block_at(program, site.path), int(site.path[-1]), is_in_loop(program, site.path)))
    reader = Readers(program, team, made.result.name, lambda t: t % width == 0).after(site.path, found[1])
    if reader is not None:
        return refuted(f"only the first lane of a group has the result, and {reader} reads '{made.result.name}'",
                       "lane 1 has folded what lies above it, and its own value in place of what does not exist",
                       needs="a branch of the first lane around every reader", attempt="down=false")
    return proved("only the first lane of each group reads the result")


def _exchange(program: n.Program, path: Path) -> Exchange | None:
    found = exchange_at(block_at(program, path), int(path[-1]), is_in_loop(program, path))
    return found[0] if found else None


@dataclass(frozen=True)
class ShuffleExchange(Pass):
    """`rising`: lanes at distance 1 come first, otherwise those furthest apart. `down`: each lane takes from those above it alone, so that only
    the first of a group has the result."""

    intent: ClassVar[str] = "shuffle-exchange"
    catalogue: ClassVar[tuple[int, ...]] = (43,)
    claim: ClassVar[str] = "Lanes read each other's registers, without a trip through shared memory and in the logarithm of the steps."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P430", "validity", "shape", "the peers are the lanes of one warp, and all of them exist", _one_warp),
        Precondition("KIR-P431", "validity", "pipeline", "all lanes of a warp take part", warps_arrive),
        Precondition("KIR-P432", "validity", "storage", "nothing else reads the slots", _private_slots),
        Precondition("KIR-P916", "validity", "storage", "where only the first lane has the result, nobody else reads it", _first_lane_reads),
    )

    rising: bool = False
    down: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot that each thread's group then folds."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        team = team_at(program, path)
        if team is None:
            return None
        made = _exchange(program, path)
        if made is None or made.fresh:
            return Miss("no fold of the slots over a group of threads follows, into the value stored")
        want = "barrier" if made.count == team.threads else "warp_sync"
        if (made.at, made.sync, made.base) != (team.thread, want, group_of(team.thread, made.count, team.threads)):
            return Miss("the slots are not folded by the group that wrote them")
        home = declaration(program, path, made.slots.name)
        if home is None or home.init is not None or home.buffer != slot_array(made.slots.name, made.result.dtype, team.threads):
            return Miss("the slots are not one for each thread")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A ladder of shuffles over the group; the slots are gone."""
        (block, i), trailing = block_and_index(program, site.path), is_in_loop(program, site.path)
        found = matched(exchange_at(block, i, trailing))
        made, size = found
        taken = names_at(program, site.path)
        s, other = fresh_var("s", taken), fresh_var("other", taken, made.result.dtype)
        steps, place = made.count.bit_length() - 1, n.Region(made.result)
        distance = build.binary("shl", build.const(1), s) if self.rising else build.binary("shr", build.const(made.count // 2), s)
        body = (n.Let((other.name,), build.call("shfl_down" if self.down else "shfl_xor", whole(made.result), distance)),
                n.Store(place, build.binary(made.op, whole(made.result), other)))
        ladder = counting(s, steps, body, label=block[i].label)
        out, at = without_shared(replace_stmts(program, site.path, (ladder,), size), str(site.path[0]), made.slots.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that is a ladder of shuffles."""
        if not isinstance(node, n.For) or node.kind != "serial":
            return None
        if not (len(node.body) == 2 and isinstance(node.body[0], n.Let) and isinstance(node.body[0].value, n.Call)
                and node.body[0].value.fn in ("shfl_xor", "shfl_down")):
            return None
        if team_at(program, path) is None:
            return Miss("it is not inside one loop over all threads of the CTA")
        for down in (False, True):
            found = ladder_of(node, down)
            if found is not None:
                return Site(path, ShuffleExchange(found[2], down))
        return Miss("its steps are not those of a reduction over a group")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each lane writes its slot and folds those of its group."""
        loop, team = node_as(program, site.path, n.For), matched(team_at(program, site.path))
        ladder = matched(ladder_of(loop, self.down))
        value, op, _, width = ladder
        taken = names_at(program, site.path)
        slots = slot_array(fresh("slots", taken), value.dtype, team.threads)
        sync = "barrier" if width == team.threads else "warp_sync"
        made = Exchange(slots, team.thread, value, sync, value, False, op, group_of(team.thread, width, team.threads), width)
        first, *rest = made.statements(fresh_var("u", taken), is_in_loop(program, site.path))
        out = replace_stmts(program, site.path, (_labeled(first, loop.label), *rest))
        return Rewritten(with_shared(out, team, slots), shifted(site.path, int(team.path[1]), 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The slots are no longer needed."""
        made, team = _exchange(program, site.path), team_at(program, site.path)
        return Effect() if made is None or team is None else Effect(shared_bytes=-team.threads * made.result.dtype.bytes)


def _labeled(s: n.Stmt, label: str | None) -> n.Stmt:
    assert isinstance(s, n.Store)
    return replace(s, label=label)


def ladder_of(loop: n.For, down: bool = False) -> tuple[n.Buffer, str, bool, int] | None:
    """(scalar, operation, rising, lanes in a group) of a ladder of shuffles, between all lanes of a group or from those above."""
    steps = build.int_value(loop.hi)
    first, second = loop.body
    if not (steps and from_zero(loop) and not loop.attrs and isinstance(first, n.Let)
            and isinstance(second, n.Store) and isinstance(first.value, n.Call) and not first.value.attrs):
        return None
    if first.value.fn != ("shfl_down" if down else "shfl_xor"):
        return None
    source, distance = first.value.args
    v = second.value
    if not (isinstance(source, n.Load) and not source.at.index and source.at.buffer.space == "register" and isinstance(distance, n.Expr)
            and second.at == source.at and second.mask is None and isinstance(v, n.Binary) and v.op in REDUCTIONS):
        return None
    if (v.a, v.b) != (source, n.Var(first.names[0], source.type)) and (
            v.b, v.a) != (source, n.Var(first.names[0], source.type)):
        return None
    width = 1 << steps
    falls, rises = build.binary("shr", build.const(width // 2), loop.var), build.binary("shl", build.const(1), loop.var)
    for rising, wanted in ((False, falls), (True, rises)):
        if distance == wanted:
            return source.at.buffer, v.op, rising, width
    return None
