"""Lets each warp fold a few shared values in its registers: a lane takes one, and a ladder of shuffles does the rest.

pipeline: `warp-fold@main/t/fold`

```diff
 kir 1
 program row_sums
   size M: i32
   in X: f32[M, 128]
   out Y: f32[M, 128]
 kernel main grid (row: M) threads 128
   shared warps: f32[4]
   for t in 0..128 parallel thread
     if t % 32 == 0
       warps[t // 32] = X[row, t]
     barrier()
-    @fold register sum: f32 = 0.0
-    for w in 0..4
-      sum = sum + warps[w]
+    @fold register sum: f32 = load(warps[t % 32] where t % 32 < 4 else 0.0)
+    for s in 0..5
+      let other = shfl_xor(sum, 16 >> s)
+      sum = sum + other
     Y[row, t] = sum
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import kind_of
from kir.ir.printer import expr_text
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, matched, names_at, params_as
from kir.rewrite.match.exchange import REDUCTIONS, Exchange, fold_at
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import is_scalar, team_at, warps_arrive, whole

from ._at_least_zero import below_zero
from ._result_readers import Readers
from .shuffle_exchange import WARP, ladder_of

Lanes = Literal["each", "first", "threads"]
LANES: tuple[Lanes, ...] = ("each", "first", "threads")
By = Literal["warp", "thread", "lanes"]
BY: tuple[By, ...] = ("warp", "thread")


def _fits_lanes(program: n.Program, site: Site, context: Context) -> Verdict:
    team, found = matched(team_at(program, site.path)), matched(fold_at(block_at(program, site.path), int(site.path[-1])))
    if found[0].count > WARP:
        return refuted(f"a warp has {WARP} lanes for {found[0].count} values", f"value {WARP} is left out", needs=f"at most {WARP} values")
    if team.threads % WARP:
        return refuted(f"{team.threads} threads are no whole warps", "lanes of the last warp do not exist", needs=f"a multiple of {WARP} threads")
    return proved(f"{found[0].count} values for the {WARP} lanes of each warp")


def _first_warp_reads(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team, found = site.params, team_at(program, site.path), fold_at(block_at(program, site.path), int(site.path[-1]))
    assert isinstance(item, WarpFold) and team is not None and found is not None
    if item.lanes == "each" and not item.around and not item.down:
        return proved("every lane has the result")
    who = "the first lane" if item.down else "the first warp" if item.by != "lanes" else f"one of the first {found[0].count} threads"
    every, most = item.lanes == "each" and not item.around, found[0].count if item.by == "lanes" else WARP
    reader = Readers(program, team, found[0].result.name, lambda t: (t % WARP if every else t) < (1 if item.down else most)).after(site.path, found[1])
    if reader is not None:
        return refuted(f"only {who} has the result, and {reader} reads '{found[0].result.name}'", "another thread has a part of it, or nothing",
                       needs=f"a branch of {who} around every reader")
    return proved(f"only {who} reads the result")


def _never_below(program: n.Program, site: Site, context: Context) -> Verdict:
    found = matched(fold_at(block_at(program, site.path), int(site.path[-1])))
    if not params_as(site, WarpFold).zero:
        return proved("lanes beyond the values take what changes nothing")
    bad = below_zero(kernel_of(program, site.path), found[0].slots)
    if bad is not None:
        value = bad.value if isinstance(bad, n.Store) else bad.init if isinstance(bad, n.Alloc) else None
        return refuted(f"nothing shows that no value in '{found[0].slots.name}' is below zero",
                       f"it comes from {kind_of(bad) if value is None else expr_text(value)}",
                       needs="a maximum of values that are at least 0", attempt="zero=false")
    return proved(f"no value in '{found[0].slots.name}' is below zero")


@dataclass(frozen=True)
class Warps:
    """A fold of shared values by lanes: `made` says of what into what, `size` how many statements it has; the rest is `WarpFold`'s parameters."""

    made: Exchange
    item: WarpFold
    size: int


def warp_fold_at(block: n.Block, i: int, t: n.Var) -> tuple[Exchange, bool, int] | None:
    """(the fold, rising, number of statements) of a fold that each warp does, which begins with statement `i`."""
    found = warps_at(block, i, t)
    return None if found is None or found.item != WarpFold(found.item.rising) else (found.made, found.item.rising, found.size)


def warps_at(block: n.Block, i: int, t: n.Var) -> Warps | None:
    """The fold by lanes that begins with statement `i`, by each warp or by the first."""
    first = block[i]
    by = _first_warp(first, t)
    if isinstance(first, n.If) and (few := _by_lanes(first, t)) is not None:
        return few
    if isinstance(first, n.If):
        inner = warps_at(first.then, 0, t) if by and len(first.then) >= 2 and isinstance(first.then[0], (n.Store, n.Alloc)) else None
        if inner is None or inner.item.around or by is None or (len(first.then) == 2 and inner.made.fresh):
            return None
        return replace(inner, item=replace(inner.item, around="both", by=by, more=len(first.then) > 2), size=1)
    if isinstance(first, n.Alloc) and is_scalar(first) and first.init is not None:
        result, value, fresh_ = first.buffer, first.init, True
    elif isinstance(first, n.Store) and not first.at.index and first.mask is None and first.at.buffer.space == "register":
        result, value, fresh_ = first.at.buffer, first.value, False
    else:
        return None
    loop: n.Stmt | None = block[i + 1] if i + 1 < len(block) else None
    by, more = _first_warp(loop, t), isinstance(loop, n.If) and len(loop.then) > 1
    if isinstance(loop, n.If):
        loop = loop.then[0] if by else None
    if not isinstance(loop, n.For) or loop.kind != "serial" or len(loop.body) != 2 or not isinstance(value, n.Load) or not value.at.buffer.shape:
        return None
    for down in (False, True):
        ladder = ladder_of(loop, down)
        if ladder is None or ladder[0] != result or ladder[3] != WARP:
            continue
        for lanes in LANES:
            count = _values(value)
            made = Exchange(value.at.buffer, build.const(0), result, "", result, fresh_, ladder[1], build.const(0), count or 0)
            for zero in (False, True) if ladder[1] == "max" and value.mask is not None else (False,):
                item = WarpFold(ladder[2], lanes, down, "ladder" if by else "", by or "warp", zero, more)
                if count is not None and value == item.own(made, t):
                    return Warps(made, item, 2)
    return None


def _by_lanes(s: n.If, t: n.Var) -> Warps | None:
    """The fold that a branch of as many threads as there are values begins with, one value each."""
    count = build.int_value(s.cond.b) if isinstance(s.cond, n.Binary) and s.cond.op == "lt" and s.cond.a == t else None
    if count is None or count not in (2, 4, 8, 16) or s.orelse or s.static or len(s.then) < 2:
        return None
    first, loop = s.then[:2]
    if isinstance(first, n.Alloc) and is_scalar(first) and first.init is not None:
        result, value, fresh_ = first.buffer, first.init, True
    elif isinstance(first, n.Store) and not first.at.index and first.mask is None and first.at.buffer.space == "register":
        result, value, fresh_ = first.at.buffer, first.value, False
    else:
        return None
    if not (isinstance(loop, n.For) and loop.kind == "serial" and len(loop.body) == 2 and isinstance(value, n.Load)
            and value == n.Load(build.region(value.at.buffer, t)) and isinstance(near := loop.body[0], n.Let) and isinstance(near.value, n.Call)):
        return None
    among = near.value.attrs == _among(count)
    plain = replace(loop, body=(replace(near, value=replace(near.value, attrs=() if among else near.value.attrs)), loop.body[1]))
    for down in (False, True):
        ladder = ladder_of(plain, down)
        if ladder is not None and (ladder[0], ladder[3]) == (result, count):
            made = Exchange(value.at.buffer, build.const(0), result, "", result, fresh_, ladder[1], build.const(0), count)
            return Warps(made, WarpFold(ladder[2], "threads", down, "both", "lanes", False, len(s.then) > 2, among), 1)
    return None


def _among(count: int) -> n.Attrs:
    """What says that the first lanes of a warp exchange values among themselves."""
    return n.attrs(mask=(1 << count) - 1)


def _first_warp(s: n.Stmt | None, t: n.Var) -> By | None:
    """How a branch that only the first warp takes says so."""
    if isinstance(s, n.If) and not s.orelse and not s.static:
        return next((by for by in BY if s.cond == _is_first(t, by)), None)
    return None


def _is_first(t: n.Var, by: By, count: int = WARP) -> n.Expr:
    if by == "lanes":
        return build.compare("lt", t, count)
    return build.compare("eq", build.floordiv(t, WARP), 0) if by == "warp" else build.compare("lt", t, WARP)


def _values(e: n.Load) -> int | None:
    """How many values a warp's lanes load, one each."""
    if e.mask is None:
        return WARP
    return build.int_value(e.mask.b) if isinstance(e.mask, n.Binary) and e.mask.op == "lt" else None


@dataclass(frozen=True)
class WarpFold(Pass):
    """`rising`: lanes at distance 1 come first, otherwise those furthest apart. `lanes`: who takes a value: the first lanes of each warp, the
    first lanes of the first (`first`), or the first threads at places of their own number (`threads`). `down`: each lane takes from those above
    it alone. `around`: what stands under a branch of the first warp, nothing, the `ladder`, or `both` it and the loads; `by`: whether the
    branch asks for the number of the warp or of the thread, or whether there is a value for the thread (`lanes`), in as many steps as these take, `among`
    them alone. `zero`: lanes beyond the values of a maximum take 0. `more`: what stands in a branch of the same threads behind it stands in its. Where not
    every lane has the result, nobody else may read it."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44, 83)
    claim: ClassVar[str] = "A few shared values are folded in five steps of a warp, each of them read once."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P836", "validity", "shape", "there are no more values than lanes, and all lanes exist", _fits_lanes),
        Precondition("KIR-P837", "validity", "pipeline", "all lanes of a warp take part", warps_arrive),
        Precondition("KIR-P917", "validity", "storage", "where only the first warp or lane has the result, nobody else reads it", _first_warp_reads),
        Precondition("KIR-P980", "validity", "numerics", "where lanes beyond the values take 0, none of those is below it", _never_below),
    )

    rising: bool = False
    lanes: Lanes = "each"
    down: bool = False
    around: Literal["", "ladder", "both"] = ""
    by: By = "warp"
    zero: bool = False
    more: bool = False
    among: bool = False

    def own(self, made: Exchange, t: n.Var) -> n.Load:
        """What a lane takes: its value, or (beyond them) the identity."""
        lane = build.mod(t, WARP)
        place, number = build.region(made.slots, t if self.lanes == "threads" else lane), lane if self.lanes == "each" else t
        if (made.count == WARP and self.lanes == "each") or self.by == "lanes":
            return n.Load(place)
        beyond = build.const(0, made.result.dtype) if self.zero else identity(REDUCTIONS[made.op], made.result.dtype)
        return n.Load(place, build.compare("lt", number, made.count), beyond)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fold of shared values that each thread does for itself."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Alloc, n.Store)):
            return None
        found = fold_at(block_at(program, path), int(path[-1]))
        if found is None or found[0].slots.space != "shared":
            return None
        if found[0].onto or not build.is_const(found[0].base, 0) or len(found[0].slots.shape) != 1:
            return Miss("the fold does not begin with the first value")
        block, at = block_at(program, path), int(path[-1]) + found[1]
        if self.around == "both" and found[0].fresh and (not self.more or any(mentions(s, found[0].result.name) for s in block[at + 1:])):
            return Miss("its result is declared with it, and would not outlive the branch")
        if (self.by == "lanes") > (self.around == "both" and self.lanes == "threads" and found[0].count in (2, 4, 8, 16)) or self.among > (self.by == "lanes"):
            return Miss("its values are not those of the first few threads, one each")
        if self.more and not (self.around and at < len(block) and isinstance(behind := block[at], n.If) and not behind.orelse
                              and not behind.static and behind.cond == _is_first(team.thread, self.by, found[0].count)):
            return Miss("no branch of the same threads stands behind it")
        if self.zero and (found[0].op != "max" or (found[0].count == WARP and self.lanes == "each")):
            return Miss("zero is no padding of a maximum here")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load of each lane's value, and the ladder."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        found = matched(fold_at(block, i))
        assert team is not None
        made, size = found
        taken = names_at(program, site.path)
        s, other = fresh_var("s", taken), fresh_var("other", taken, made.result.dtype)
        place, own, t = n.Region(made.result), self.own(made, team.thread), team.thread
        width = made.count if self.by == "lanes" else WARP
        distance = build.binary("shl", build.const(1), s) if self.rising else build.binary("shr", build.const(width // 2), s)
        near = build.call_with("shfl_down" if self.down else "shfl_xor", (whole(made.result), distance), _among(made.count) if self.among else ())
        body = (n.Let((other.name,), near),
                n.Store(place, build.binary(made.op, whole(made.result), other)))
        first: n.Stmt = n.Alloc(made.result, own, label=block[i].label) if made.fresh else n.Store(place, own, label=block[i].label)
        ladder: n.Stmt = counting(s, width.bit_length() - 1, body)
        behind = block[i + size] if self.more else None
        more: n.Block = behind.then if isinstance(behind, n.If) else ()
        if self.around == "ladder":
            ladder = n.If(_is_first(t, self.by), (ladder, *more))
        stmts: n.Block = (n.If(_is_first(t, self.by, made.count), (first, ladder, *more)),) if self.around == "both" else (first, ladder)
        return edited(program, site.path, stmts, 0, size + self.more)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a load of each lane's value, with a ladder of shuffles over the warp after it."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Alloc, n.Store, n.If)):
            return None
        found = warps_at(block_at(program, path), int(path[-1]), team.thread)
        return None if found is None else Site(path, found.item)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds all values."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        found = matched(warps_at(block, i, team.thread))
        inner = block[i]
        label = (inner.then[0] if isinstance(inner, n.If) else inner).label
        first, *rest = found.made.fold(fresh_var("w", names_at(program, site.path)))
        assert isinstance(first, (n.Alloc, n.Store))
        stmts: n.Block = (replace(first, label=label), *rest)
        if found.item.more and isinstance(inner, n.If):
            stmts = (*stmts, replace(inner, then=inner.then[2:]))
        elif found.item.more and isinstance(branch := block[i + 1], n.If):
            stmts = (*stmts, replace(branch, then=branch.then[1:]))
        return edited(program, site.path, stmts, 0, found.size)
