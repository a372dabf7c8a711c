"""Ways of a program that no test took and on which work is left out: a branch, a choice between two values, a capped bound, an arm of the launch plan.

A way is taken by force, and what then no longer flows to the outputs is what it leaves out. Only ways that leave something out are looked at further:
the tests are run again with a note of which way each of them goes, until all have been seen.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.cases import Case
from kir.gate.claims.flow import Flow, branches_around, launched
from kir.gate.claims.tiles import counts_tiles, element, extents
from kir.gate.goals import holding
from kir.gate.inputs.sets import size_sets
from kir.interp import run
from kir.interp.state.coverage import SKIPPED, TAKEN, Place
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.printer import expr_text
from kir.ir.rules.verify import verify
from kir.ir.types import BOOL, DType, TileType, shape_of
from kir.ir.visit import names_read, own_nodes, transform, walk

Array = NDArray[Any]
SENTINEL = 1e9
"""A magnitude from which on a number that a program fills in stands for infinity."""
NOT_FINITE = frozenset({"isinf", "isnan"})
HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {op: getattr(operator, op) for op in n.COMPARISONS}
ROOTS, NEXT_TO_ZERO = frozenset({"rcp", "rsqrt", "sqrt", "log", "log2"}), 1e-6
"""Calls that have no answer at zero, and up to which number one is a floor for what is divided by."""
MULTIPLES = (1, 8, 16, 64, 128)
"""Of what sizes may have to be multiples."""
MOST_SIZES, LARGE, MANY = 4096, 256, 32
"""Sizes that are tried for a condition; a number from which on sizes below are usual; and one from which on grids may be capped."""
SMALLER, MOST_SMALLER = (2, 5), 3
"""What stands in the place of large numbers, and cases that a program is run on with that."""
MOST_CASES, MOST_SIZED, MOST_STEPS = 12, 16, 200_000
"""Cases that are run again at most, to see which ways they take; sizes at which a program with other numbers is run; and statements of such a run."""


@dataclass(frozen=True)
class Way:
    """One of the two ways at `node`, in the statement `stmt` at `anchor`: where `cond` holds (or does not), the value or block is this one. `value` is what
    the node is there, where it is no choice."""

    stmt: n.Stmt
    node: n.Node
    cond: n.Expr
    holds: bool
    anchor: str
    path: tuple[int | str, ...]
    kernel: str
    value: n.Expr | None = None
    within: tuple[tuple[n.Node, bool], ...] = ()
    """The choices and branches of data that the node stands in, each with the side on which it does."""


Lost = Callable[[n.Program], Sequence[str]]
"""What a program leaves out, in words."""


@dataclass(frozen=True)
class LeftOut:
    """What to do about ways of which nothing is known since tests were left out for their time: `further` are cases that may take them, as many as there is
    time for, and `right` says of a program whether it is right on the cases that were run."""

    further: Callable[[Sequence[Way]], Iterator[Case]]
    right: Callable[[n.Program], bool]


def untaken(program: n.Program, flow: Flow, cases: Sequence[Case], reached: Mapping[Place, int], lost: Lost,
            special: Callable[[], Iterator[Case]] | None, most: int = MOST_CASES, missing: LeftOut | None = None,
            never: Callable[[Way], bool] = lambda way: False) -> Iterator[Diagnostic]:
    """The ways that leave something out and that no case takes, and those without which something is left out and that no case takes (KIR-G134), but for
    those that can be taken by nothing. `reached` is what the cases were seen to reach of branches. What data decide may be decided otherwise by inputs
    that the problem does not draw: the `special` ones, which are asked for where something would be refused, and judge it; without such, what data decide is
    left out. Of the cases so many are run again at most. Where tests are `missing`, a way is tried by some of them, and else taken by force at the sizes of
    the cases: a way on which the program is right there leaves out nothing, and another one is not decided."""
    suspects: list[tuple[Way, str]] = []
    tensors = {p.name for p in program.params if isinstance(p.of, n.Buffer)}
    for way in ways(program, flow):
        if special is None and flow.sources(way.cond, way.kernel) & tensors:
            continue
        if isinstance(way.node, n.If) and reached.get(("branch", way.anchor), 0) & (TAKEN if way.holds else SKIPPED):
            continue
        if endless(program, flow, way) or (keeps_off(program, way) and way.holds == (isinstance(way.cond, n.Binary) and way.cond.op == "eq")):
            continue
        if (gone := lost(forced(program, way))) and not guards(flow, way) and possible(program, flow, way):
            suspects.append((way, f"no test takes the way on which {gone[0]}"))
        elif gone := lost(forced(program, replace(way, holds=not way.holds))) if not isinstance(way.node, (n.Load, n.Store)) else ():
            suspects.append((way, f"no test takes this way, and without it {gone[0]}"))
    watched = [way for way, _ in suspects if not isinstance(way.node, n.If)]
    seen = taken(program, watched, cases, most=most) if watched else set[int]()
    left = [(way, said) for way, said in suspects if id(way) not in seen and not never(way)]
    of_data = [way for way, _ in left if flow.sources(way.cond, way.kernel) & tensors]
    wrong: dict[int, str] = {}
    around = branches_around(program)

    def excused(way: Way) -> bool:
        """Whether it leaves out nothing at the sizes of the cases, by force, with what no test takes around it."""
        assert missing is not None
        untested = tuple((b, side) for b, side in around[id(way.stmt)] if not reached.get(("branch", anchored[id(b)]), 0) & (TAKEN if side else SKIPPED))
        return missing.right(forced(program, replace(way, within=untested)))
    if missing is not None:
        anchored = {id(s): text for text, _, s in anchors(program)}
        left = [(way, said) for way, said in left if not excused(way)]
    asked = of_data if missing is None else [way for way, _ in left]
    for case in () if not asked else missing.further(asked) if missing is not None else special() if special is not None else ():
        faults: list[str] = []
        went = taken(program, [way for way in asked if id(way) not in seen | wrong.keys()], [case], faults)
        if faults:
            wrong |= dict.fromkeys(went, faults[0])
        else:
            seen |= went
        if missing is not None and all(id(way) in seen | wrong.keys() for way in asked):
            break
    for way, said in left:
        if id(way) not in seen:
            said += f"; with {wrong[id(way)]}" if id(way) in wrong else " (sizes that may take it take too long to run)" if missing is not None else ""
            yield Diagnostic("KIR-G134", said, anchor=way.anchor, subject=_said(way), origin=getattr(way.stmt, "origin", None),
                             needs="a size or inputs in the problem at which it is taken, or the work done there too")
    yield from _grids(program, flow, cases)
    yield from _arms(program, reached, lost if missing is None else lambda other: [] if missing.right(other) else lost(other))


def _said(way: Way) -> str:
    return f"where {expr_text(way.cond)} {'holds' if way.holds else 'does not hold'}"


def ways(program: n.Program, flow: Flow) -> Iterator[Way]:
    """Every way of every branch, choice, and lesser or greater of two integers."""
    for anchor, path, s in anchors(program):
        kernel = str(path[0])
        if isinstance(s, n.If) and not isinstance(s.cond, n.Const):
            yield from (Way(s, s, s.cond, holds, anchor, path, kernel) for holds in (True, False))
        for e in own_nodes(s):
            match e:
                case n.Select(cond=cond) if not isinstance(cond, n.Const) and cond.type is not None:
                    yield from (Way(s, e, cond, holds, anchor, path, kernel) for holds in (True, False))
                case n.Binary(op="min" | "max", a=a, b=b) if a.type == b.type and not isinstance(a.type, TileType) and _integer(a):
                    cond = build.compare("le" if e.op == "min" else "ge", a, b)
                    if not isinstance(cond, n.Const):
                        yield from (Way(s, e, cond, holds, anchor, path, kernel) for holds in (True, False))
                case n.Load(mask=n.Expr() as mask) | n.Store(mask=n.Expr() as mask) if not isinstance(mask, n.Const):
                    yield Way(s, e, mask, False, anchor, path, kernel)
                case _:
                    pass


def _integer(e: n.Expr) -> bool:
    return bool(getattr(e.type, "is_integer", False))


def forced(program: n.Program, way: Way) -> n.Program:
    """The program as it is where the way is always taken, and all that it stands within."""
    sides = {id(node): side for node, side in way.within}

    def leave(old: n.Node, new: n.Node) -> Any:
        match new:
            case n.If() if id(old) in sides and old is not way.node:
                return new.then if sides[id(old)] else new.orelse
            case n.Select() if id(old) in sides and old is not way.node:
                return build.broadcast(new.a if sides[id(old)] else new.b, new.type)
            case _:
                pass
        if old is not way.node:
            return new
        if way.value is not None:
            return way.value
        match new:
            case n.If():
                return new.then if way.holds else new.orelse
            case n.While():
                return new.body
            case n.Select():
                return build.broadcast(new.a if way.holds else new.b, new.type)
            case n.Binary():
                return new.a if way.holds else new.b
            case n.Load() | n.Store():
                return replace(new, mask=n.Const(False, BOOL))
            case _:
                return new
    if isinstance(way.node, n.Store):
        gone = transform(program, lambda old, new: None if old is way.node else new)
    else:
        gone = transform(program, leave)
    assert isinstance(gone, n.Program)
    return gone


def guards(flow: Flow, way: Way) -> bool:
    """Whether the condition keeps a value from where the other way has no answer: what that divides by, takes a root or a logarithm of, or compares with
    itself, or what is not finite."""
    if not isinstance(way.node, n.Select):
        return False
    if isinstance(way.cond, n.Call) and way.cond.fn in NOT_FINITE:
        return True
    other = way.node.b if way.holds else way.node.a
    compared = {part for part in flow.parts(way.cond, way.kernel) if isinstance(part, (n.Var, n.Load))}
    for part in flow.parts(other, way.kernel):
        match part:
            case n.Binary(op="div", b=b) | n.Call(fn="rcp" | "rsqrt" | "sqrt" | "log" | "log2", args=(b, *_)):
                if compared & set(flow.parts(b, way.kernel)) and _takes_zero(way):
                    return True
            case _:
                pass
    match way.cond:
        case n.Binary(op="ne" | "eq", a=a, b=b) if a == b:
            return True
        case n.Binary(op="ne" | "eq" as op, a=a, b=n.Const() as b) if (op == "eq") == way.holds:
            mine = way.node.a if way.holds else way.node.b
            there = transform(other, lambda old, new: b if old == a else new)
            return bool((flow.is_zero(mine, way.kernel) and flow.is_zero(there, way.kernel)) or mine == there)
        case _:
            return False


def _takes_zero(way: Way) -> bool:
    """Whether zero, or what lies below it, goes that way, as far as the condition compares a value with a number."""
    cond, holds = way.cond, way.holds
    while isinstance(cond, n.Unary) and cond.op == "not":
        cond, holds = cond.x, not holds
    match cond:
        case n.Binary(op=op, a=n.Var() | n.Load(), b=n.Const(value=c)) if op in HOLDS:
            return any(HOLDS[op](v, c) is holds for v in (0.0, -1e30))
        case n.Binary(op=op, a=n.Const(value=c), b=n.Var() | n.Load()) if op in HOLDS:
            return any(HOLDS[op](c, v) is holds for v in (0.0, -1e30))
        case _:
            return True


def endless(program: n.Program, flow: Flow, way: Way) -> bool:
    """Whether it is the way of numbers that are not finite: of a comparison with infinity, or what stands for it, or of a number with itself."""
    cond, holds = way.cond, way.holds
    while isinstance(cond, n.Unary) and cond.op == "not":
        cond, holds = cond.x, not holds
    match cond:
        case n.Binary(op="eq" | "ne" as op, a=a, b=b) if a == b:
            return (op == "ne") == holds
        case n.Binary(op="eq" | "ne" as op, a=a, b=b):
            return (op == "eq") == holds and any(isinstance(x, n.Const) and x.dtype.is_float and math.isinf(x.value) for side in (a, b)
                                                 for x in flow.parts(side, way.kernel))
        case n.Binary(op=op, a=a, b=b) if op in n.COMPARISONS:
            kernel = body_of(program, way)
            return any(isinstance(x, n.Const) and x.dtype.is_float and abs(x.value) >= SENTINEL and fills_in(kernel, float(x.value)) for x in (a, b))
        case n.Call(fn=fn):
            return fn in NOT_FINITE and holds
        case _:
            return False


def keeps_off(program: n.Program, way: Way) -> bool:
    """Whether it asks of what is divided by, or what a root or a logarithm is taken of, whether that is zero or next to it."""
    node = way.node.cond if isinstance(way.node, (n.If, n.While, n.Select)) else way.node
    if not isinstance(node, n.Binary) or node.op not in ("eq", "ne", "max"):
        return False
    floor = next((x for x in (node.a, node.b) if isinstance(x, n.Const)), None)
    if floor is None or not floor.dtype.is_float or not 0 <= float(floor.value) <= (NEXT_TO_ZERO if node.op == "max" else 0):
        return False
    kernel = body_of(program, way)
    kept = {node, *(x for x in (node.a, node.b) if isinstance(x, (n.Var, n.Load))), *(x for x in walk(kernel) if isinstance(x, n.Select) and x.cond == node)}
    for x in walk(kernel):
        if isinstance(x, n.Let) and x.value in kept and len(x.names) == 1:
            kept.add(n.Var(x.names[0], x.value.type))
        if isinstance(x, n.Store) and x.value in kept:
            kept.add(n.Load(x.at))
    below = [x.b if isinstance(x, n.Binary) else x.args[0] for x in walk(kernel)
             if (isinstance(x, n.Binary) and x.op == "div") or (isinstance(x, n.Call) and x.fn in ROOTS)]
    return any(e in kept or (isinstance(e, n.Cast) and e.x in kept) for e in below)


def body_of(program: n.Program, way: Way) -> n.Node:
    """The kernel, or the device function, that a way stands in."""
    return next(k for k in bodies(program) if k.name == way.kernel)


def bodies(program: n.Program) -> list[n.Kernel | n.Function]:
    """The kernels and device functions of a program."""
    return [*program.kernels, *program.functions]


def chosen_by(way: Way) -> list[n.Select]:
    """The choices of a statement that a condition decides."""
    return [e for e in own_nodes(way.stmt) if isinstance(e, n.Select) and (e.cond is way.node or e.cond == way.node)]


def conjuncts(e: n.Expr) -> list[n.Expr]:
    """What holds together where a condition holds."""
    return [x for side in (e.a, e.b) for x in conjuncts(side)] if isinstance(e, n.Binary) and e.op == "and" else [e]


def bare(e: n.Expr) -> n.Expr:
    """What is repeated along new axes."""
    while isinstance(e, n.Call) and e.fn in ("expand", "broadcast") and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return e


def fills_in(kernel: n.Node, c: float, beside: Collection[n.Node] = ()) -> bool:
    """Whether a kernel has a number at least as far from zero, on the same side, that it compares with nothing. Those `beside` a comparison, which it puts
    in the place of what is beyond them, are none."""
    compared = {id(x) for e in walk(kernel) if isinstance(e, n.Binary) and e.op in n.COMPARISONS for x in (e.a, e.b)} | {id(x) for x in beside}
    return any(isinstance(x, n.Const) and x.dtype.is_float and id(x) not in compared and float(x.value) * c > 0 and abs(float(x.value)) >= abs(c)
               for x in walk(kernel))


def possible(program: n.Program, flow: Flow, way: Way, tiles: bool = False) -> bool:
    """Whether a way can be taken by something: data may bring anything about that no branch around it excludes; of sizes and indices, and with `tiles` of
    elements of a tile, the solver must have found some."""
    names = flow.sources(way.cond, way.kernel)
    of_data = bool(names & {p.name for p in program.params if isinstance(p.of, n.Buffer)})
    cond = way.cond if way.holds else build.invert(way.cond)
    try:
        answer = decide(element(cond) if tiles and isinstance(cond.type, TileType) and not of_data else cond, Facts.at(program, way.path))
    except KirError:
        return of_data or _at_some_size(program, cond, way)
    if of_data:
        return answer.kind != "never"
    return answer.kind in ("always", "sometimes") or (answer.kind == "unknown" and _at_some_size(program, cond, way))


def _at_some_size(program: n.Program, cond: n.Expr, way: Way) -> bool:
    """Whether a condition on sizes alone, of which the solver says nothing (a grid may be a product), holds at sizes that all facts allow and that its own
    numbers suggest, with the conditions on sizes that it stands under."""
    sizes = _sizes(program)
    if not names_read(cond) <= sizes:
        return False
    asked = [cond, *(b.cond if side else build.invert(b.cond) for b, side in branches_around(program).get(id(way.stmt), ()) if names_read(b.cond) <= sizes),
             *program.facts]
    own = {abs(int(x.value)) for x in walk(cond) if isinstance(x, n.Const) and not x.dtype.is_bool and math.isfinite(x.value)}
    near = {c + d for c in (*own, *(a * b for a in own for b in own if a < b)) for d in (-1, 0, 1)}
    values = sorted({-(-v // g) * g for v in near for g in MULTIPLES if v > 0})
    names = sorted(names_read(cond))
    tried = [{**base, **dict(zip(names, some, strict=True))} for base in size_sets(program, (8, 20))
             for some in islice(product(*(([base[name]] if name in base else []) + values for name in names)), MOST_SIZES)]
    return bool(tried) and bool(holding(program, tried, asked).any())


def _sizes(program: n.Program) -> frozenset[str]:
    """The whole numbers that a program is called with."""
    return frozenset(p.name for p in program.params if isinstance(p.of, DType) and not p.of.is_float and p.value is None)


def right_on(program: n.Program, cases: Sequence[Case], clean: bool = False) -> bool:
    """Whether a program is right on all of some cases; `clean`: and nothing it does there is an error (a store outside of memory is none to the outputs)."""
    return all((outputs := ran(program, case, clean)) is not None and case.compare(outputs).ok for case in cases)


def _grids(program: n.Program, flow: Flow, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Extents of grids that are a lesser of two, or a choice, in a way that sizes decide, that no case has, and that is not shown to be right with smaller
    numbers in the place of its own (KIR-G134)."""
    sizes = _sizes(program)
    shapes = [dict(c.sizes) | {k: int(v) for k, v in c.scalars.items() if k in sizes} for c in cases]
    for kernel, axis, e in ((k, x, e) for k in program.kernels for x in k.grid for e in walk(x.extent)):
        match e:
            case n.Binary(op="min" | "max" as op, a=a, b=b) if _integer(a):
                cond = build.compare("lt" if op == "min" else "gt", a, b)
            case n.Select(cond=cond):
                pass
            case _:
                continue
        for asked in (cond, build.invert(cond)):
            way = Way(n.Eval(n.Call("barrier", ())), e, asked, True, kernel.name, (kernel.name,), kernel.name)
            if isinstance(asked, n.Const) or not names_read(asked) <= sizes or not shapes or holding(program, shapes, [asked]).any():
                continue
            if possible(program, flow, way) and not _launched_smaller(program, asked, shapes, cases):
                yield Diagnostic("KIR-G134", f"no test has a grid along '{axis.name}' where {expr_text(asked)}", anchor=kernel.name, subject=expr_text(asked),
                                 origin=kernel.origin, needs="a size in the problem at which it is so, or a grid that does not ask it")


def _launched_smaller(program: n.Program, cond: n.Expr, shapes: Sequence[Mapping[str, int]], cases: Sequence[Case]) -> bool:
    """Whether a program with small numbers in the place of the large ones of a condition (see `_smaller`) is right on cases at which that holds then. What
    sizes are divided by stays: those are extents of tiles."""
    divisors = {x.b.value for x in walk(cond) if isinstance(x, n.Binary) and x.op in build.DIVISIONS and isinstance(x.b, n.Const)}
    for made, less in _smaller(program, list(walk(cond)), MANY, divisors):
        there = [c for c, held in zip(cases, holding(program, shapes, [less(cond)]), strict=True) if held][:MOST_SMALLER]
        if there and right_on(made, there, clean=True):
            return True
    return False


def without_hazards(program: n.Program, cases: Sequence[Case]) -> bool:
    """Whether a run that checks threads against one another finds nothing, at the first of some cases that it has the steps for."""
    wanted = {p.name for p in program.params}
    for case in cases:
        try:
            with np.errstate(all="ignore"):
                return not run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, mode="check", most_steps=MOST_STEPS).errors
        except (KirError, ArithmeticError, MemoryError):
            continue
    return False


def right_smaller(program: n.Program, way: Way, cases: Sequence[Case]) -> bool:
    """Whether a program with small numbers in the place of the large ones of a way (see `_smaller`) takes it, is right, and its threads do not meet."""
    read = [x for e in (way.node.cond if isinstance(way.node, (n.If, n.While)) else way.node, way.cond) for x in walk(e)]
    stay = {x.b.value for x in read if counts_tiles(x, extents(program)) and isinstance(x, n.Binary) and isinstance(x.b, n.Const)}
    for made, less in _smaller(program, read, LARGE - 1, stay):
        stmt = next((s for text, _, s in anchors(made) if text == way.anchor), None)
        if stmt is not None and _right_there(made, replace(way, stmt=stmt, cond=less(way.cond)), cases):
            return True
    return False


def _smaller(program: n.Program, read: Sequence[n.Node], least: int, stay: set[Any]) -> Iterator[tuple[n.Program, Callable[[Any], Any]]]:
    """A program with each of a few small numbers in the place of the large ones of some expressions, wherever it has them, as far as it is well formed, and
    what does the same to an expression. A power of two, the bits below it and a shift by as many become those of a small one. Extents of tiles, by which
    sizes are divided, `stay`."""
    numbers = {int(x.value) for x in read if isinstance(x, n.Const) and x.dtype.is_integer and not x.dtype.is_bool and abs(x.value) >= least} - stay
    shifts = {int(x.b.value) for x in read if isinstance(x, n.Binary) and x.op == "shr" and isinstance(x.b, n.Const)}
    powers = {2 ** bits for bits in shifts if 2 ** bits >= LARGE} | {v for v in (*numbers, *(v + 1 for v in numbers)) if v >= LARGE and not v & (v - 1)}
    for small in SMALLER if numbers or powers else ():
        bits = small.bit_length() - 1
        values = {v: small + (v - min(numbers)) % 2 for v in numbers} | dict.fromkeys(powers, 2 ** bits) | {v - 1: 2 ** bits - 1 for v in powers}
        amounts = {v.bit_length() - 1: bits for v in powers}

        def leave(old: n.Node, new: n.Node, values: Mapping[int, int] = values, amounts: Mapping[int, int] = amounts) -> Any:
            if isinstance(old, n.Binary) and isinstance(new, n.Binary) and old.op in ("shl", "shr") and isinstance(old.b, n.Const):
                return replace(new, b=build.const(amounts[int(old.b.value)], old.b.dtype)) if old.b.value in amounts else new
            whole = isinstance(old, n.Const) and old.dtype.is_integer and not old.dtype.is_bool
            return build.const(values[int(old.value)], old.dtype) if whole and isinstance(old, n.Const) and old.value in values else new

        def less(e: Any, leave: Callable[[n.Node, n.Node], Any] = leave) -> Any:
            return transform(e, leave)
        made = less(program)
        if not verify(made):
            yield made, less


def _right_there(program: n.Program, way: Way, cases: Sequence[Case]) -> bool:
    """Whether some cases take a way, all are right, and at the least of those that take it no threads meet; of each sizes one is run."""
    went = list[Case]()
    each = {tuple(sorted(c.sizes.items())): c for c in reversed(cases)}
    for case in sorted(each.values(), key=lambda c: math.prod(c.sizes.values()))[:MOST_SIZED]:
        faults: list[str] = []
        if _taken(program, [way], case, faults) and not faults:
            went.append(case)
        if faults:
            return False
    return bool(went) and right_on(program, went[:MOST_SMALLER], clean=True) and without_hazards(program, went)


# --------------------------------------------------------------------------------------------------------- which ways cases take

def taken(program: n.Program, watched: Sequence[Way], cases: Sequence[Case], wrong: list[str] | None = None, most: int = MOST_CASES) -> set[int]:
    """The ways (by identity) that cases take: the program is run again with an empty branch for each, until all have been seen. Where asked, the outputs are
    judged too: `wrong` gets what is wrong with them, after the name of how the inputs were drawn. Of a condition that cannot be looked at by itself nothing
    is said: it counts as taken."""
    seen: set[int] = set()
    for case in cases[:most]:
        left = [way for way in watched if id(way) not in seen]
        if not left:
            break
        seen |= _taken(program, left, case, wrong)
    return seen


def _taken(program: n.Program, watched: Sequence[Way], case: Case, wrong: list[str] | None) -> set[int]:
    noted, labels = watching(program, watched)
    wanted = {p.name for p in program.params}
    try:
        with np.errstate(all="ignore"):
            result = run(noted, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, cover=True)
    except (KirError, MemoryError):
        half = len(watched) // 2
        return _taken(program, watched[:half], case, wrong) | _taken(program, watched[half:], case, wrong) if half else {id(way) for way in watched}
    if wrong is not None and not (judged := case.compare(result.outputs)).ok:
        wrong.append(f"{case.distribution}, {judged.reason}")
    seen = set[int]()
    for anchor, _, s in anchors(noted):
        way = labels.get(s.label or "")
        if way is not None and result.reached.get(("branch", anchor), 0) & TAKEN:
            seen.add(id(way))
    return seen


def judged_on(program: n.Program, watched: Sequence[Way], case: Case) -> tuple[set[int], str]:
    """The ways (by identity) that a case takes, and what is wrong with what the program makes of it."""
    if watched:
        faults: list[str] = []
        return _taken(program, watched, case, faults), next(iter(faults), "")
    outputs = ran(program, case)
    judged = case.compare(outputs) if outputs is not None else None
    return set(), "" if judged is not None and judged.ok else f"{case.distribution}, {judged.reason if judged is not None else 'it cannot be run'}"


def ran(program: n.Program, case: Case, clean: bool = False) -> Mapping[str, Array] | None:
    """What a program makes of a case; None where it cannot be run, or (`clean`) where something it does is an error."""
    return ran_on(program, case.arrays, case.scalars, clean)


def ran_on(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], clean: bool = False) -> Mapping[str, Array] | None:
    """What a program makes of some inputs, as `ran` says."""
    wanted = {p.name for p in program.params}
    try:
        with np.errstate(all="ignore"):
            found = run(program, {k: v.copy() for k, v in arrays.items()}, {k: v for k, v in scalars.items() if k in wanted}, most_steps=MOST_STEPS)
            return None if clean and found.errors else found.outputs
    except (KirError, ArithmeticError, MemoryError):
        return None


def watching(program: n.Program, watched: Sequence[Way]) -> tuple[n.Program, dict[str, Way]]:
    """The program with a branch in front of each statement with a watched way, taken where the way is; and the ways by the branches' labels. What a `while`
    asks is asked again behind each round."""
    at: dict[int, list[n.If]] = {}
    labels: dict[str, Way] = {}
    for i, way in enumerate(watched):
        cond = way.cond if way.holds else build.invert(way.cond)
        for _ in shape_of(cond.type):
            cond = build.call("reduce", cond, axis=0, op="or")
        label = f"way_{i}"
        labels[label] = way
        at.setdefault(id(way.stmt), []).append(n.If(cond, (), label=label))

    def leave(old: n.Node, new: n.Node) -> Any:
        if id(old) not in at:
            return new
        if isinstance(new, n.While) and not isinstance(new.body[-1] if new.body else None, n.Jump):
            again = [replace(branch, label=f"{branch.label}_again") for branch in at[id(old)]]
            labels.update((str(a.label), labels[str(b.label)]) for a, b in zip(again, at[id(old)], strict=True))
            new = replace(new, body=(*new.body, *again))
        return (*at[id(old)], new)
    made = transform(program, leave)
    assert isinstance(made, n.Program)
    return made, labels


def _arms(program: n.Program, reached: Mapping[Place, int], lost: Lost) -> Iterator[Diagnostic]:
    """Arms of the launch plan that no test takes and that leave something out."""
    ran = {place.partition("/")[0] for kind, place in reached if kind == "grid"}
    for step in program.plan:
        if not isinstance(step, n.Dispatch):
            continue
        for launches in (*(inner for _, inner in step.arms), step.orelse):
            alone = replace(program, plan=tuple(x for other in program.plan for x in (launches if other is step else (other,))))
            if not launches and step.orelse is launches and not step.arms:
                continue
            names = {k.name for k, _ in launched(replace(program, plan=tuple(launches)))} if launches else set()
            if launches and not names - ran:
                continue
            if gone := lost(alone):
                yield Diagnostic("KIR-G134", f"no test takes the arm of the launch plan on which {gone[0]}", anchor=next(iter(sorted(names)), ""),
                                 needs="a size in the problem at which it is taken, or the work done there too")


__all__ = [
    "NOT_FINITE",
    "SENTINEL",
    "Array",
    "LeftOut",
    "Way",
    "bare",
    "bodies",
    "body_of",
    "chosen_by",
    "conjuncts",
    "counts_tiles",
    "endless",
    "extents",
    "fills_in",
    "forced",
    "guards",
    "judged_on",
    "keeps_off",
    "possible",
    "ran",
    "ran_on",
    "right_on",
    "right_smaller",
    "taken",
    "untaken",
    "watching",
    "ways",
    "without_hazards",
]
