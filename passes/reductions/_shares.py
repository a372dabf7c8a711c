"""Loops over shares that are merged into a state of several scalars: how they are told, and when shares may be found and merged by threads."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.access import ANYWHERE, Aliases, buffers_written
from kir.analysis.normal.normal_form import is_pure
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.visit import names_mentioned, once, substitute, walk
from kir.rewrite import Context, Miss, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, fresh, kernel_of
from kir.rewrite.match import block_and_index, fresh_names, fresh_var, from_zero, matched
from kir.rewrite.match.thread_team import ThreadTeam, is_scalar, team_at, whole

from ._merge_order import Merge, NotExact, by_cases, by_logarithms, for_all, in_any_order


@dataclass(frozen=True)
class Shares:
    """A loop over shares: statements that find one (`own` holds it, of the share `var`), and those that merge it into what is `held`."""

    var: n.Var
    count: int
    found: n.Block
    own: tuple[n.Buffer, ...]
    held: tuple[n.Buffer, ...]
    merge: n.Block

    @property
    def body(self) -> n.Block:
        """The loop's: the first share is taken, each later one is merged."""
        taken = tuple(n.Store(n.Region(to), whole(of)) for to, of in zip(self.held, self.own, strict=True))
        return (*self.found, n.If(build.compare("eq", self.var, 0), taken, self.merge))


def shares_at(block: n.Block, i: int) -> Shares | None:
    """The loop over shares at a place of a block, after the declarations of what is held."""
    loop = block[i]
    if not (isinstance(loop, n.For) and loop.kind == "serial" and from_zero(loop) and not loop.attrs and loop.body):
        return None
    count, last = build.int_value(loop.hi), loop.body[-1]
    if count is None or not (isinstance(last, n.If) and last.then and last.cond == build.compare("eq", loop.var, 0) and not last.static):
        return None
    pairs = [(s.at.buffer, s.value.at.buffer) for s in last.then if isinstance(s, n.Store) and not s.at.index and isinstance(s.value, n.Load)]
    held, own = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    made = Shares(loop.var, count, loop.body[:-1], own, held, last.orelse)
    if len(pairs) != len(last.then) or made.body != loop.body or not _declared(block, i, held):
        return None
    return made if is_merge(made) else None


def _declared(block: n.Block, i: int, held: tuple[n.Buffer, ...]) -> bool:
    """Whether the statements before one declare what is held, in order, and nothing in it."""
    before = block[max(0, i - len(held)):i]
    return tuple(s.buffer for s in before if isinstance(s, n.Alloc) and is_scalar(s) and s.init is None) == held


def is_merge(made: Shares) -> bool:
    """Whether a share is found by what is its own alone, and the merge reads and writes what is held, the share's parts, and what it declares."""
    bound = set(bound_names(made.found))
    inside = {s.buffer.name for s in made.found if isinstance(s, n.Alloc)}
    if not {b.name for b in made.own} <= inside or not _private(made.found, bound) or not made.merge:
        return False
    local = set(bound_names(made.merge)) | {b.name for b in made.held}
    read = local | {b.name for b in made.own}
    return _private(made.merge, local) and all(
        x.name in local if isinstance(x, n.Var) else x.at.buffer.name in read if isinstance(x, n.Load) else True for s in made.merge for x in walk(s))


def _private(block: n.Block, names: set[str]) -> bool:
    """Whether statements write nothing but scalars and arrays of the thread among some names, and no thread waits in them."""
    for s in block:
        for x in walk(s):
            match x:
                case n.Store() if x.at.buffer.name not in names or x.at.buffer.space not in ("register", "fragment"):
                    return False
                case n.Copy() | n.Mma() | n.Eval() | n.Opaque() | n.Hole() | n.Jump() | n.While() | n.Roles() | n.View() | n.Address():
                    return False
                case n.Alloc() if x.buffer.space != "register":
                    return False
                case n.Call() if not is_pure(x) or x.of is not None or x.fn.startswith("shfl"):
                    return False
                case _:
                    pass
    return True


def first_declared(block: n.Block, i: int, held: tuple[n.Buffer, ...]) -> int | None:
    """Where the statements begin that find a lane's share: at the first declaration of what is held."""
    at = [k for k, s in enumerate(block[:i]) if isinstance(s, n.Alloc) and s.buffer in held]
    return min(at) if len(at) == len(held) else None


def where_found(block: n.Block, i: int, held: tuple[n.Buffer, ...], rest: n.Block, result: tuple[n.Buffer, ...] = ()) -> int | Miss:
    """Where the statements before one begin that find a share in what is held, of which `rest`, what comes after them, uses nothing but the `result`."""
    first = first_declared(block, i, held)
    if first is None or any(isinstance(s, n.Alloc) and s.buffer in held and not is_scalar(s) for s in block[first:i]):
        return Miss("what it merges is not declared in its block")
    local = set(bound_names(block[first:i])) - {b.name for b in result}
    if any(local & names_mentioned(s) for s in rest):
        return Miss("something that finds a share is used afterwards")
    return first


def any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    """Shares may be merged in any order."""
    made = matched(shares_at(*block_and_index(program, site.path)))
    loop = block_at(program, site.path)[int(site.path[-1])]
    merge = Merge(made.merge, made.held, made.own)
    try:
        same, why = once(loop, "_any_order", lambda: in_any_order(merge, made.found))
    except NotExact as bad:
        if how := once(loop, "_for_all", lambda: by_logarithms(merge)):
            return proved(how)
        return unknown(f"whether shares may be merged in any order is not computed: {bad}", needs="sums, products, quotients, maxima and choices")
    if same and not (how := once(loop, "_for_all", lambda: for_all(merge) or by_cases(merge, made.found))):
        return unknown(f"whether shares may be merged in any order is not shown for all states; {why}",
                       needs="a merge of choices and sums, or of sums, products and quotients")
    return proved(f"{how}; {why}") if same else refuted(
        "the order in which shares are merged shows in the result", why, needs="a merge that takes them in any order")


def same_shares(program: n.Program, site: Site, context: Context) -> Verdict:
    """Every thread finds the same shares."""
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    names = varying(team.loop)[site.path[2:]]
    for s in made.found:
        if depends(s, names):
            which = sorted(x for x in names if depends(s, {x}))
            return refuted("the threads find different shares", f"the loop depends on {', '.join(which)}", needs="a loop that every thread runs alike")
    written = buffers_written(kernel_of(program, site.path).body)
    read = {x.at.buffer for s in made.found for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space in ("shared", "global")}
    changed = Aliases(program).aliased((b.name for b in read), written)
    bad = sorted(b.name for b in read if b.space == "shared" or b.name in changed or ANYWHERE in written)
    if bad:
        return unknown(f"a share reads '{bad[0]}', which the kernel writes", needs="shares of what the kernel only reads")
    return proved("every thread finds the same shares")


def inverse_match(taken: set[str], team: ThreadTeam, lane: n.Block, at_lane: tuple[n.Buffer, ...], held: tuple[n.Buffer, ...], count: int,
               merge: Callable[[tuple[n.Buffer, ...]], n.Block]) -> Shares:
    """The loop over shares of which each thread has found one: `lane` finds it in `at_lane`, and `merge` says the merge of what some scalars hold."""
    u = fresh_var("u", taken)
    renamed = {b.name: fresh(b.name, taken) for b in at_lane}
    others = {x: y for x, y in fresh_names(lane, taken).items() if x not in renamed}
    found = tuple(rename(substitute(s, {team.thread.name: u}), {**renamed, **others}) for s in lane)
    own = tuple(replace(b, name=renamed[b.name]) for b in at_lane)
    return Shares(u, count, found, own, held, merge(own))
