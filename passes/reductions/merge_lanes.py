"""Lets each lane of a warp take one of the shares that are merged into a state of several scalars, and merges the lanes' in a ladder of shuffles.

pipeline: `merge-lanes@main/t/shares`

```diff
 kir 1
 program first_maximum
   size M: i32
   in X: f32[M, 32]
   out V: f32[M]
   out I: i32[M]
 kernel main grid (row: M) threads 32
   for t in 0..32 parallel thread
-    register best: f32
-    register at: i32
-    @shares for u in 0..32
-      register best_1: f32 = X[row, u]
-      register at_1: i32 = u
-      if u == 0
-        best = best_1
-        at = at_1
-      else
-        if best_1 > best | best_1 == best & at_1 < at
-          best = best_1
-          at = at_1
+    register best: f32 = X[row, t]
+    register at: i32 = t
+    @shares for s in 0..5
+      let other = shfl_xor(best, 16 >> s)
+      let other_1 = shfl_xor(at, 16 >> s)
+      if other > best | other == best & other_1 < at
+        best = other
+        at = other_1
     if t == 0
       V[row] = best
       I[row] = at
```
"""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import DType, dtype_of
from kir.ir.visit import substitute, transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, counting, fresh_var, from_zero, matched, names_at, params_as, splice
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at, warps_arrive, whole

from ._result_readers import Readers
from ._shares import Shares, any_order, first_declared, inverse_match, is_merge, same_shares, shares_at, where_found

WARP = 32


def _ladder(loop: n.Stmt | None) -> tuple[tuple[n.Buffer, ...], tuple[str, ...], n.Block, bool, bool, int] | None:
    """(what is held, names of what comes, the merge, rising, down, lanes) of a ladder of shuffles of several scalars."""
    if not (isinstance(loop, n.For) and loop.kind == "serial" and from_zero(loop) and not loop.attrs):
        return None
    held, names, merge = [], [], list(loop.body)
    fn = ""
    distance: n.Expr | n.Region | None = None
    while merge and isinstance(s := merge[0], n.Let) and isinstance(v := s.value, n.Call) and v.fn in ("shfl_xor", "shfl_down") and len(v.args) == 2:
        source = v.args[0]
        if v.attrs or (fn and (v.fn, v.args[1]) != (fn, distance)) or not (isinstance(source, n.Load) and source.mask is None and not source.at.index):
            return None
        fn, distance = v.fn, v.args[1]
        held.append(source.at.buffer)
        names.append(s.names[0])
        merge.pop(0)
    steps = build.int_value(loop.hi)
    if not steps or steps > 5 or len(held) < 2 or len(set(held)) != len(held) or any(b.space != "register" or b.shape for b in held):
        return None
    rising = next((up for up in (False, True) if distance == _distance(loop.var, 1 << steps, up)), None)
    return None if rising is None else (tuple(held), tuple(names), tuple(merge), rising, fn == "shfl_down", 1 << steps)


def _distance(s: n.Var, lanes: int, rising: bool) -> n.Expr:
    return build.binary("shl", build.const(1), s) if rising else build.binary("shr", build.const(lanes // 2), s)


@dataclass(frozen=True)
class Levels:
    """What follows a warp's ladder where the warps' results are merged by the first of them: the `slots` that the first lanes write, a barrier, a branch of
    the first warp that begins with loads and a ladder, and how many `statements` these are."""

    slots: tuple[n.Buffer, ...]
    by: By
    fill: tuple[str, ...]
    of: Of
    rest: n.If


def _published(team: ThreadTeam, held: tuple[n.Buffer, ...], slots: tuple[n.Buffer, ...]) -> n.If:
    """The first lane of each warp writes what it holds."""
    stores = tuple(n.Store(build.region(slot, build.floordiv(team.thread, WARP)), whole(b)) for b, slot in zip(held, slots, strict=True))
    return n.If(build.compare("eq", build.mod(team.thread, WARP), 0), stores)


def _taken(team: ThreadTeam, held: tuple[n.Buffer, ...], slots: tuple[n.Buffer, ...], of: Of, fill: tuple[str, ...]) -> n.Block:
    """Each lane takes a warp's result, or what changes nothing."""
    lane, warps = build.mod(team.thread, WARP), team.threads // WARP
    at = lane if of == "lane" else team.thread
    out = []
    for b, slot, other in zip(held, slots, fill or ("0",) * len(held), strict=True):
        mask = build.compare("lt", at, warps) if warps < WARP else None
        out.append(n.Store(n.Region(b), n.Load(build.region(slot, at), mask, None if mask is None else build.const(_number(other, b.dtype), b.dtype))))
    return tuple(out)


def _number(value: str, dtype: DType) -> float | int:
    """A number by its text. Raises ValueError for what is none."""
    return int(value) if dtype.is_integer else float(value)


def _first(t: n.Var, led: Led) -> n.Expr:
    """Whether a thread of the first warp is the first."""
    return build.compare("eq", build.mod(t, WARP) if led == "lane" else t, 0)


def _led(levels: Levels, t: n.Var) -> Led:
    """How what follows the second ladder asks for the first thread, where that is all that follows."""
    rest = levels.rest.then[len(levels.slots) + 1:]
    only = rest[0] if len(rest) == 1 else None
    plain = isinstance(only, n.If) and not only.orelse and not only.static
    return next((led for led in LED if plain and isinstance(only, n.If) and only.cond == _first(t, led)), "")


def _first_warp(t: n.Var, by: By) -> n.Expr:
    return build.compare("eq", build.floordiv(t, WARP), 0) if by == "warp" else build.compare("lt", t, WARP)


def _levels(block: n.Block, i: int, team: ThreadTeam) -> Levels | None:
    """What follows a ladder at a place of a block."""
    found = _ladder(block[i])
    if found is None or i + 3 >= len(block) or not is_call(block[i + 2], "barrier") or not isinstance(rest := block[i + 3], n.If):
        return None
    held, publish = found[0], block[i + 1]
    if not isinstance(publish, n.If) or len(publish.then) != len(held) or rest.orelse or rest.static or len(rest.then) < len(held) + 1:
        return None
    slots = tuple(s.at.buffer for s in publish.then if isinstance(s, n.Store))
    if len(slots) != len(held) or any(b.space != "shared" or len(b.shape) != 1 for b in slots) or publish != replace(
            _published(team, held, slots), label=publish.label, origin=publish.origin):
        return None
    loads = [s.value for s in rest.then[:len(held)] if isinstance(s, n.Store) and isinstance(s.value, n.Load)]
    others = [x.other for x in loads]
    if len(loads) != len(held) or not all(x is None or isinstance(x, n.Const) for x in others):
        return None
    fill = tuple(str(x.value) for x in others if isinstance(x, n.Const))
    again = _ladder(rest.then[len(held)])
    by = next((by for by in BY if rest.cond == _first_warp(team.thread, by)), None)
    of = next((of for of in OF if rest.then[:len(held)] == _taken(team, held, slots, of, fill)), None) if len(fill) in (0, len(held)) else None
    if again is None or by is None or of is None or again[0] != held or again[3:] != found[3:]:
        return None
    mine, theirs = (tuple(rename(x, {name: f"%{k}" for k, name in enumerate((*each[1], *bound_names(each[2])))}) for x in each[2])
                    for each in (found, again))
    return Levels(slots, by, fill, of, rest) if mine == theirs else None


def _changes_nothing(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team = params_as(site, MergeLanes), matched(team_at(program, site.path))
    if not item.levels or team.threads // WARP == WARP:
        return proved("every lane takes a result")
    made = matched(shares_at(*block_and_index(program, site.path)))
    fill = {own.name: n.Const(_number(value, own.dtype), own.dtype) for own, value in zip(made.own, item.fill, strict=False)}
    if len(fill) == len(made.own) and _stays(made.merge, fill, {}):
        return proved("merging what lanes beyond the warps take leaves what is held")
    return unknown("whether what lanes beyond the warps take changes nothing is not known", needs="values that a merge leaves others unchanged by")


def _stays(block: n.Block, fill: Mapping[str, n.Const], lets: Mapping[str, n.Expr]) -> bool:
    """Whether a merge with these values leaves what is held."""
    for s in block:
        match s:
            case n.Let(names=(name,)):
                lets = {**lets, name: _filled(s.value, fill, lets)}
            case n.If():
                holds = _truth(_filled(s.cond, fill, lets))
                if holds is None or not _stays(s.then if holds else s.orelse, fill, lets):
                    return False
            case n.Store() if s.mask is None and _filled(s.value, fill, lets) == n.Load(s.at):
                pass
            case _:
                return False
    return True


def _filled(e: n.Expr, fill: Mapping[str, n.Const], lets: Mapping[str, n.Expr]) -> n.Expr:
    def leave(_: n.Node, x: n.Node) -> n.Node:
        return fill.get(x.at.buffer.name, x) if isinstance(x, n.Load) and not x.at.index else x
    made: n.Expr = transform(substitute(e, lets), leave)
    return made


def _truth(e: n.Expr) -> bool | None:
    """Whether a condition holds whatever its names hold, NaN among it; None where that depends on it."""
    match e:
        case n.Const(value=value):
            return bool(value)
        case n.Unary(op="not", x=x):
            found = _truth(x)
            return None if found is None else not found
        case n.Binary(op="and" | "or" as op, a=a, b=b):
            sides = [_truth(a), _truth(b)]
            decides = op == "or"
            return decides if decides in sides else None if None in sides else not decides
        case n.Binary(op="lt" | "gt" as op, a=a, b=b):
            less, more = (a, b) if op == "lt" else (b, a)
            return False if _is_end(less, most=True) or _is_end(more, most=False) else None
        case n.Binary(op="eq" | "ne" as op, a=n.Const(value=a), b=n.Const(value=b)):
            return (a == b) == (op == "eq")
        case _:
            return None


def _is_end(e: n.Expr, most: bool) -> bool:
    """Whether a literal is the most, or the least, that its dtype holds."""
    if not isinstance(e, n.Const):
        return False
    dtype = dtype_of(e.type)
    if dtype.is_integer:
        return int(e.value) == dtype.range[1 if most else 0]
    return dtype.is_float and float(e.value) == (float("inf") if most else float("-inf"))


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if params_as(site, MergeLanes).levels:
        if made.count == team.threads and team.threads % WARP == 0 and WARP < team.threads <= WARP * WARP:
            return proved("each lane takes one share, and each lane of the first warp a warp's result")
        return refuted(f"there are {made.count} shares for {team.threads} threads", needs=f"one share for each thread of up to {WARP} whole warps")
    if made.count != team.threads or made.count > WARP or made.count < 2 or made.count & (made.count - 1):
        return refuted(f"there are {made.count} shares for {team.threads} threads", needs=f"one share for each lane of the CTA's one warp, up to {WARP}")
    return proved("each lane takes one share")


def _first_lane_reads(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team, made = params_as(site, MergeLanes), matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if not item.down and not item.levels:
        return proved("every lane has the result")
    for b in made.held:
        reader = Readers(program, team, b.name, lambda t: (t if item.levels else t % WARP) == 0).after(site.path, 1)
        if reader is not None:
            return refuted(f"only the first lane has the result, and {reader} reads '{b.name}'", "lane 1 has merged what lies above it",
                           needs="a branch of the first lane around every reader", attempt="down=false")
    return proved("only the first lane reads the result")


def _all_meet(program: n.Program, site: Site, context: Context) -> Verdict:
    return everyone_arrives(program, site, context) if params_as(site, MergeLanes).levels else proved("no warp waits for another")


By = Literal["warp", "thread"]
BY: tuple[By, ...] = ("warp", "thread")
Of = Literal["lane", "thread"]
OF: tuple[Of, ...] = ("lane", "thread")
Led = Literal["", "lane", "thread"]
LED: tuple[Led, ...] = ("lane", "thread")


@dataclass(frozen=True)
class MergeLanes(Pass):
    """`rising`: lanes at distance 1 come first, otherwise those furthest apart. `down`: each lane takes from those above it alone, so that only
    the first has the result. `levels`: each warp merges for itself, and the first one what they have found, in the branch that it takes behind, which asks
    `by` the number of the warp or the thread; its lanes take a result by the number `of` the lane or the thread, those beyond the warps the numbers
    of `fill`."""

    intent: ClassVar[str] = "shuffle-exchange"
    catalogue: ClassVar[tuple[int, ...]] = (43, 44)
    claim: ClassVar[str] = "A maximum with its place, or moments with their count, come together in the logarithm of the steps."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P971", "validity", "shape", "there is one share for each lane of the CTA's one warp", _one_warp),
        Precondition("KIR-P972", "validity", "numerics", "shares may be merged in any order", any_order),
        Precondition("KIR-P973", "validity", "storage", "every thread finds the same shares", same_shares),
        Precondition("KIR-P974", "validity", "storage", "where only the first lane has the result, nobody else reads it", _first_lane_reads),
        Precondition("KIR-P975", "validity", "pipeline", "all lanes of the warp take part", warps_arrive),
        Precondition("KIR-P982", "validity", "numerics", "what lanes beyond the warps take changes nothing", _changes_nothing),
        Precondition("KIR-P983", "validity", "pipeline", "where warps meet, all threads of the CTA come", _all_meet),
    )

    rising: bool = False
    down: bool = False
    levels: bool = False
    by: By = "warp"
    of: Of = "lane"
    fill: tuple[str, ...] = ()
    led: Led = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over shares that are merged."""
        if not isinstance(node, n.For) or node.kind != "serial" or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        made, team = shares_at(block, i), matched(team_at(program, path))
        if made is None:
            return None
        behind = block[i + 1] if i + 1 < len(block) else None
        if self.levels and (is_in_loop(program, path) or not isinstance(behind, n.If) or behind.orelse or behind.static
                            or behind.cond != (_first(team.thread, "thread") if self.led else _first_warp(team.thread, self.by))):
            return Miss("no branch of the first warp or thread stands behind it, or it is done several times")
        if self.levels and len(self.fill) != (len(made.held) if team.threads < WARP * WARP else 0):
            return Miss("lanes beyond the warps take a number for each scalar")
        with suppress(ValueError):
            for value, b in zip(self.fill, made.held, strict=False):
                _number(value, b.dtype)
            return self._at(path)
        return Miss("what lanes beyond the warps take is no number")

    def _at(self, path: Path) -> Found:
        return Site(path, self) if self.levels or (self.by, self.of, self.fill, self.led) == ("warp", "lane", (), "") else Miss("it has one level")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each lane finds its own share; then the ladder."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        made, loop = matched(shares_at(block, i)), block[i]
        names = {of.name: to.name for of, to in zip(made.own, made.held, strict=True)}
        found = tuple(rename(substitute(s, {made.var.name: team.thread}), names) for s in made.found)
        taken = names_at(program, site.path)
        width = WARP if self.levels else made.count

        def ladder(label: str | None) -> n.For:
            s = fresh_var("s", taken)
            others = {b.name: fresh_var("other", taken, b.dtype) for b in made.own}
            near = tuple(n.Let((other.name,), build.call("shfl_down" if self.down else "shfl_xor", whole(b), _distance(s, width, self.rising)))
                         for other, b in zip(others.values(), made.held, strict=True))
            merge = tuple(transform(x, lambda _, e: others.get(e.at.buffer.name, e) if isinstance(e, n.Load) else e) for x in made.merge)
            inner = {x: fresh(x, taken) for x in bound_names(merge)} if label is None else {}
            return counting(s, width.bit_length() - 1, (*near, *(rename(x, inner) for x in merge)), label=label)
        first = i - len(made.held)
        if not self.levels:
            out = splice(program, (*site.path[:-1], first), (*found, ladder(loop.label)), 0, len(made.held) + 1)
            return Rewritten(out, (*site.path[:-1], first + len(found)))
        slots = tuple(slot_array(fresh(f"{b.name}_warps", taken), b.dtype, team.threads // WARP) for b in made.held)
        behind = block[i + 1]
        assert isinstance(behind, n.If)
        own = ladder(loop.label)
        more: n.Block = (n.If(_first(team.thread, self.led), behind.then),) if self.led else behind.then
        branch = replace(behind, cond=_first_warp(team.thread, self.by), then=(*_taken(team, made.held, slots, self.of, self.fill), ladder(None), *more))
        out = splice(program, (*site.path[:-1], first), (*found, own, _published(team, made.held, slots), barrier(), branch), 0, len(made.held) + 2)
        for slot in slots:
            out = with_shared(out, matched(team_at(out, (*site.path[:1], int(site.path[1]) + slots.index(slot), *site.path[2:]))), slot)
        return Rewritten(out, (site.path[0], int(site.path[1]) + len(slots), *site.path[2:-1], first + len(found)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a ladder of shuffles of several scalars, which the statements before it have found."""
        team = team_at(program, path)
        if team is None or (ladder := _ladder(node if isinstance(node, n.For) else None)) is None:
            return None
        held, _, _, rising, down, lanes = ladder
        block, i = block_and_index(program, path)
        levels = _levels(block, i, team) if lanes == WARP < team.threads and not is_in_loop(program, path) else None
        if lanes != team.threads and levels is None:
            return Miss("its lanes are not all threads of the CTA")
        for slot in () if levels is None else levels.slots:
            home = declaration(program, path, slot.name)
            if home is None or home.init is not None or uses(program, path, slot.name) != 2 or build.int_value(slot.shape[0]) != team.threads // WARP:
                return Miss(f"'{slot.name}' serves more than the merge, or has more room")
        if isinstance(why := where_found(block, i, held, block[i:], held), Miss):
            return why
        item = MergeLanes(rising, down) if levels is None else MergeLanes(rising, down, True, levels.by, levels.of, levels.fill, _led(levels, team.thread))
        return Site(path, item) if is_merge(_inverse_match(program, path, team)) else Miss("more than a share is written before it")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread finds all shares and merges them, one after another."""
        block, i = block_and_index(program, site.path)
        made = _inverse_match(program, site.path, matched(team_at(program, site.path)))
        first = matched(first_declared(block, i, made.held))
        declared = tuple(n.Alloc(b) for b in made.held)
        loop = counting(made.var, made.count, made.body, label=block[i].label)
        if not params_as(site, MergeLanes).levels:
            out = splice(program, (*site.path[:-1], first), (*declared, loop), 0, i - first + 1)
            return Rewritten(out, (*site.path[:-1], first + len(declared)))
        levels = matched(_levels(block, i, matched(team_at(program, site.path))))
        behind, team = replace(levels.rest, then=levels.rest.then[len(made.held) + 1:]), matched(team_at(program, site.path))
        if params_as(site, MergeLanes).led:
            behind = replace(behind, cond=_first(team.thread, "thread"), then=tuple(x for s in behind.then if isinstance(s, n.If) for x in s.then))
        out = splice(program, (*site.path[:-1], first), (*declared, loop, behind), 0, i - first + 4)
        path: Path = (*site.path[:-1], first + len(declared))
        for slot in levels.slots:
            out, at = without_shared(out, str(site.path[0]), slot.name)
            path = shifted(path, at, -1)
        return Rewritten(out, path)


def _inverse_match(program: n.Program, path: Path, team: ThreadTeam) -> Shares:
    """The loop over shares that a ladder comes from."""
    block, i = block_at(program, path), int(path[-1])
    held, names, merge, _, _, lanes = matched(_ladder(block[i]))
    lanes = team.threads if lanes == WARP < team.threads else lanes
    lane = block[matched(first_declared(block, i, held)):i]
    return inverse_match(names_at(program, path), team, lane, held, held, lanes,
                      lambda own: tuple(substitute(s, {name: whole(b) for name, b in zip(names, own, strict=True)}) for s in merge))
