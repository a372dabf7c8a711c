"""What `SimtToTile` (threads to tiles) and `TileToSimt` (tiles to threads) have in common: which values differ between threads, who gets whose value by a
shuffle, and how often a loop runs for a thread."""
from __future__ import annotations

from collections.abc import Callable

from kir.analysis.uniform import depends, of_whole_groups
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, Type, shape_of
from kir.ir.visit import walk
from kir.rewrite.match import matched_as

WARP = 32
PRIVATE = ("register", "fragment")
LOOP, RETURN = -1, 0
"""What stands for the number of statements under a condition: it is that of a loop; it is left by the threads that return."""


class CannotDeal(Exception):
    """What has no form for one thread of many, or for all of them at once."""


def wide(t: Type, threads: int) -> TileType:
    """The type of a thread's value for all threads."""
    return TileType(t.dtype if isinstance(t, TileType) else dtype_of_scalar(t), (threads, *shape_of(t)))


def dtype_of_scalar(t: Type) -> DType:
    """The dtype of a scalar. Raises CannotDeal for a type that no tile has."""
    if not isinstance(t, DType):
        raise CannotDeal(f"a value of type {t} has no tile")
    return t


def touches_memory(e: n.Node) -> bool:
    """Whether a value is read from memory that other threads may write."""
    return any(isinstance(x, n.Load) and x.at.buffer.space not in PRIVATE for x in walk(e))


def is_return(s: n.Stmt) -> bool:
    """Whether a statement is a branch that leaves the kernel and does nothing else."""
    return isinstance(s, n.If) and not s.orelse and len(s.then) == 1 and isinstance(s.then[0], n.Jump) and s.then[0].kind == "return" and not s.then[0].values


def differing(loop: n.For, groups: int = 1) -> frozenset[str]:
    """Names of values and private memory that differ between threads anywhere in a loop over them; with `groups` those that differ between threads of
    one group of so many."""
    t = loop.var.name
    names = {t}

    def differs(e: n.Node, apart: bool) -> bool:
        seen = of_whole_groups(e, t, groups) if groups > 1 and isinstance(e, n.Expr) else e
        return depends(seen, names) or (apart and touches_memory(e))

    def visit(block: n.Block, branch: bool, left: bool) -> None:
        """`branch`: only some threads come here; `left`: some have returned, and what the others agree on they still agree on."""
        for s in block:
            under = branch or left
            match s:
                case n.Let() if differs(s.value, under):
                    names.update(s.names)
                case n.Alloc() if s.buffer.space in PRIVATE and (s.buffer.shape or (s.init is not None and differs(s.init, under))):
                    names.add(s.buffer.name)
                case n.Store() if s.at.buffer.space in PRIVATE and (branch or any(
                        differs(x, under) for x in (*s.at.index, s.value, s.mask) if x is not None)):
                    names.add(s.at.buffer.name)
                case n.Copy() if s.dst.buffer.space in PRIVATE:
                    names.add(s.dst.buffer.name)
                case n.For():
                    visit(s.body, branch or any(differs(x, under) for x in (s.lo, s.hi, s.step)), left)
                case n.While():
                    visit(s.body, branch or differs(s.cond, under), left)
                case n.If():
                    inner = branch or differs(s.cond, under)
                    visit(s.then, inner, left)
                    visit(s.orelse, inner, left)
                    left = left or (is_return(s) and inner)
                case _:
                    pass
    before = 0
    while len(names) != before:
        before = len(names)
        visit(loop.body, False, False)
    return frozenset(names)


def shuffled(fn: str, operand: n.Expr, threads: int) -> n.Expr | None:
    """The thread whose value each thread gets by a shuffle among the lanes of a warp, as a tile."""
    me = build.iota(threads)
    lane = build.mod(me, WARP)
    match fn:
        case "shfl_xor":
            return build.binary("xor", me, operand if _within_warp(operand) else build.binary("and", operand, build.const(WARP - 1)))
        case "shfl_down":
            return build.select(build.compare("lt", build.add(lane, operand), WARP), build.add(me, operand), me)
        case "shfl_up":
            return build.select(build.compare("ge", lane, operand), build.sub(me, operand), me)
        case "shfl_idx":
            return build.add(build.mul(build.floordiv(me, WARP), WARP), build.mod(operand, WARP))
        case _:
            return None


def operand_of(place: n.Expr, fn: str, threads: int) -> n.Expr | None:
    """The operand of the shuffle that fetches from a place, if it is `fn`."""
    me = build.iota(threads)
    match fn, place:
        case "shfl_xor", n.Binary(op="xor"):
            mask = place.a if place.b == me else place.b
            low = isinstance(mask, n.Binary) and mask.op == "and" and mask.b == build.const(WARP - 1)
            return mask.a if low and isinstance(mask, n.Binary) else mask
        case "shfl_down", n.Select():
            return bare(build.sub(place.a, me))
        case "shfl_up", n.Select():
            return bare(build.sub(me, place.a))
        case "shfl_idx", _:
            rest = bare(build.sub(place, build.mul(build.floordiv(me, WARP), WARP)))
            return rest.a if isinstance(rest, n.Binary) and rest.op == "mod" else rest
        case _:
            return None


def bare(e: n.Expr) -> n.Expr:
    """A value that was stretched for all threads, as it was."""
    stretched = isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(e.args[0], n.Expr) and not isinstance(e.args[0].type, TileType)
    return e.args[0] if stretched and isinstance(e, n.Call) and isinstance(e.args[0], n.Expr) else e


def evenly(i: n.Expr, threads: int) -> n.Span | None:
    """The span that indices are which grow by as much from thread to thread."""
    terms = dict(build.polynomial(i))
    step = terms.pop((build.iota(threads),), 0)
    if not step or any(isinstance(a.type, TileType) for m in terms for a in m):
        return None
    return build.span(build.from_polynomial(terms, I32), threads, step)


def _within_warp(mask: n.Expr) -> bool:
    """Whether a mask of lanes is a number below 32, perhaps shifted to the right by the round of a loop."""
    if isinstance(mask, n.Binary) and mask.op == "shr":
        mask = mask.a
    value = build.int_value(mask)
    return value is not None and 0 <= value < WARP


def up_to_whole_warps(cond: n.Expr, t: n.Var) -> bool:
    """Whether a condition compares the thread's number with a multiple of a warp's lanes."""
    bound = build.int_value(cond.b) if isinstance(cond, n.Binary) and cond.op in ("lt", "ge") and cond.a == t else None
    return bound is not None and bound % WARP == 0


def running(hi: n.Expr, var: n.Var, tile: Callable[[n.Expr], n.Expr]) -> n.Expr:
    """Whether a thread is still in a loop up to `hi`, for the round `var`: var * c < a where hi is ceildiv(a, c)."""
    step = build.int_value(hi.b) if isinstance(hi, n.Binary) and hi.op == "ceildiv" else None
    if isinstance(hi, n.Binary) and step is not None and step > 0:
        return n.Binary("lt", build.mul(var, step), tile(hi.a))
    return n.Binary("lt", var, tile(hi))


def end_of(cond: n.Expr, var: n.Var) -> n.Expr:
    """The end of the loop whose rounds meet such a condition."""
    if isinstance(cond, n.Binary) and cond.op == "lt":
        if cond.a == var:
            return cond.b
        terms = build.polynomial(cond.a)
        if set(terms) == {(var,)}:
            return build.ceildiv(cond.b, terms[(var,)])
    raise CannotDeal("a condition does not say where a loop ends")


def first_of(hi: n.Expr, t: n.Var) -> n.Expr | None:
    """The end of a loop for the first thread, where no other one has a later one: the thread's number, or what is left of it by a division, is only
    taken away."""
    inner = hi.a if isinstance(hi, n.Binary) and hi.op == "ceildiv" and (build.int_value(hi.b) or 0) > 0 else hi
    terms = build.polynomial(inner)
    rest: dict[build.Monomial, int] = {}
    for monomial, c in terms.items():
        if not any(t.name in {x.name for x in walk(a) if isinstance(x, n.Var)} for a in monomial):
            rest[monomial] = c
        elif c > 0 or len(monomial) != 1 or not _from_zero(monomial[0], t):
            return None
    dtype = matched_as(inner.type, DType)
    most = build.from_polynomial(rest, dtype)
    if any(c < 0 for m, c in rest.items() if m):  # for the last CTAs less than nothing may be left
        most = build.maximum(most, build.const(0, dtype))
    return build.ceildiv(most, hi.b) if inner is not hi and isinstance(hi, n.Binary) else most


def _from_zero(e: n.Expr, t: n.Var) -> bool:
    """Whether something is 0 for the first thread and never less."""
    return e == t or (isinstance(e, n.Binary) and e.op in ("mod", "floordiv") and e.a == t and (build.int_value(e.b) or 0) > 0)


# --------------------------------------------------------------------------------------------------------------------- back
