"""What data decide and no test has brought about: a comparison of sums, a lesser of two, a rounding, a conjunction that came out one way in every test.

The other outcome is made by force first: where that program is right on the usual inputs, so is what the outcome leads to. Else inputs are searched for that
bring it about and that the program compared with is right on; they judge it. What is left is refused: nothing shows that the program is right there.
Outcomes that the program compared with has too, that guard what has no answer, and that finite numbers cannot bring about are none.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import ml_dtypes

from kir.base.diagnostic import Diagnostic
from kir.gate.cases import Case, ProblemCase
from kir.gate.claims.flow import Flow, branches_around
from kir.gate.claims.ranges import Range, filled_behind, truths
from kir.gate.claims.reals import solvable
from kir.gate.claims.tiles import counts_tiles, extents
from kir.gate.claims.ways import (
    NOT_FINITE,
    SENTINEL,
    Way,
    bare,
    bodies,
    body_of,
    chosen_by,
    conjuncts,
    fills_in,
    forced,
    guards,
    judged_on,
    keeps_off,
    possible,
    right_on,
    right_smaller,
    taken,
    without_hazards,
)
from kir.gate.goals import predicted
from kir.interp.state.coverage import MORE, ONE, SKIPPED, TAKEN, TWO, Place
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.printer import expr_text
from kir.ir.types import BF16, BOOL, F8E4M3, F8E5M2, F16, TileType, dtype_of
from kir.ir.visit import children, own_nodes, transform, walk
from kir.problem.draws import numpy_dtype

CASES, JUDGED, MOST_FORCED = 6, 6, 48
"""Tests that are run again to see outcomes, tests that a program with an outcome by force is judged by, and outcomes that tests have which are forced."""
SEARCHED = 3.0
"""Seconds, as they are foreseen, of runs on inputs that are searched for; half of them where no outcome is missing."""
SQUARES = 1e19
"""More than 2^31 squares of halves: from here on what a comparison itself puts in the place of all beyond it stands for infinity too."""
LARGE = 256
"""A number from which on what sizes alone decide is an outcome: sizes below are tried."""
ORDERED = frozenset({"lt", "le", "gt", "ge"})
ENDS = {**dict.fromkeys(("floor", "ceil", "trunc", "round_even", "round_away"), (0.0, 1.0)), **dict.fromkeys(("exp", "exp2"), (0.0, math.inf)),
        **dict.fromkeys(("tanh", "erf", "sigmoid"), (-1.0, 0.0, 1.0)), "rcp": (0.0,)}
"""Numbers at which calls stay over a wide range."""
BITS = frozenset({"shr", "floordiv", "tdiv", "and"})
MOST_NODES = 200
"""Nodes of an expression in which names are replaced by what they stand for."""
EXTREMES = {"argmax": "max", "argmin": "min"}
Sign = tuple[str, tuple[float, ...], frozenset[str]]
"""What an outcome is of: kind, numbers, and the tensors from which its sides come."""
Further = Callable[[], Iterator[Case]]


def unseen(program: n.Program, flow: Flow, names: Mapping[str, str], judges: Sequence[tuple[n.Program, Flow, Mapping[str, str]]], cases: Sequence[Case],
           reached: Mapping[Place, int], further: Further, ranges: Mapping[str, Range] = MappingProxyType({}),
           rest: Further = lambda: iter(()), last: Further = lambda: iter(()), never: Callable[[Way], bool] = lambda way: False) -> Iterator[Diagnostic]:
    """KIR-G146 for each outcome that data or large sizes decide, that no case has, and of which nothing shows that the program is right there; and for what
    is decided otherwise than it should be for inputs that no case has. `names` gives the tensor of a parameter, of the program as of the one that it is
    judged by; `further` draws inputs on which that one is right, `rest` and `last` those for what these leave open; `ranges` are those of elements."""
    known = {alike for judge in judges for _, sign in _outcomes(*judge) for alike in _alike(sign)}
    signs = [(way, sign) for way, sign in _outcomes(program, flow, names) if sign not in known]
    asked = [way for way, _ in signs]
    if not asked:
        return
    functions = {f.name for f in program.functions}  # nothing watches how these come out
    open_ones = [way for way in asked if way.kernel not in functions and not _reached(way, reached)]
    open_ids = {id(way) for way in open_ones} - taken(program, open_ones, cases[:CASES])
    placing = frozenset(theirs.get(x, x) for judged, of, theirs in judges for x in _placing(judged, of))
    counts, mine = {own for own, of in names.items() if of in placing}, {own: ranges[of] for own, of in names.items() if of in ranges}
    lets, tensors = _lets(program), {p.name for p in program.params if isinstance(p.of, n.Buffer)}

    def doubtful(way: Way, so_many: int) -> bool:
        whole = _whole(way.cond, lets.get(way.kernel, {}))
        if _harmless(program, flow, way, whole) or _beyond_places(whole, counts) or _of_no_element(program, way, whole):
            return False
        if way.holds not in truths(filled_behind(whole) if way.holds else whole, mine):
            return False
        if flow.sources(way.cond, way.kernel) & tensors:
            return not right_on(forced(program, way), cases[:so_many])
        if not _is_rest(way.node) and not (isinstance(way.node, n.Binary) and way.node.op in ("min", "max")):
            other = forced(program, way)
            if right_on(other, cases[:so_many]) and (not _meets_others(way) or without_hazards(other, cases)):
                return False
        return not right_smaller(program, way, cases)
    left = [way for way in asked if id(way) in open_ids and doubtful(way, JUDGED) and not never(way)]
    open_ids -= _told(program, left, cases[CASES:])  # where something would be refused, all tests count that would tell
    left = [way for way in left if id(way) in open_ids]
    of_data = [way for way, sign in signs[:MOST_FORCED] if id(way) not in open_ids and _by_number(sign)
               and (way.kernel in functions or flow.sources(way.cond, way.kernel) & tensors)]
    told = None if left else next((way for way in of_data if doubtful(way, 1)), None)
    wrong, elsewhere = dict[int, str](), ""
    for draws, most in ((further, SEARCHED if left else SEARCHED / 2), (rest, SEARCHED), (last, math.inf)):
        spent, again = 0.0, not elsewhere and any(id(way) in open_ids - wrong.keys() for way in left)
        for case in draws() if again or (told is not None and draws is further) else ():
            if (spent := spent + _seconds(program, case)) > most:
                break
            went, fault = judged_on(program, [way for way in left if id(way) in open_ids and id(way) not in wrong], case)
            if not fault:
                open_ids -= went
            elif went:
                wrong |= dict.fromkeys(went, fault)
            else:
                elsewhere = elsewhere or fault
            if elsewhere or (left and all(id(way) in wrong or (draws is not further and id(way) not in open_ids) for way in left)):
                break
    found = [way for way in left if id(way) in open_ids and (id(way) in wrong or solvable(_whole(way.cond, lets.get(way.kernel, {})), way.holds))]
    for way in found:
        said = f"no test brings about that {_words(way)}"
        yield _refused(way, f"{said}; with {wrong[id(way)]}" if id(way) in wrong else
                       f"{said}, which what it is judged by does not ask, and nothing shows it right there")
    if elsewhere and not found:
        yield _refused(way := told or left[0], f"what it is judged by does not ask whether {_words(way)}; with {elsewhere}")


def _told(program: n.Program, left: Sequence[Way], cases: Sequence[Case]) -> set[int]:
    """The ways (by identity) that a case takes of inputs as the problem has them, or on which the program is wrong where it comes out otherwise: of zeros and
    the like, which the gate makes, much comes out right whatever is done."""
    found = set[int]()
    for case in cases:
        went = taken(program, [way for way in left if id(way) not in found], [case])
        own = isinstance(case, ProblemCase) and case.distribution.partition(",")[0] in case.problem.distributions
        found |= {id(way) for way in left if id(way) in went
                  and (own or ((other := _otherwise(way)) is not None and not right_on(forced(program, other), [case])))}
    return found


def _otherwise(way: Way) -> Way | None:
    """The other outcome of a truth value."""
    if way.value is None:
        return replace(way, holds=not way.holds)
    if isinstance(way.node, n.Binary) and way.node.op in ("min", "max"):
        return replace(way, value=way.node.b if way.value == way.node.a else way.node.a)
    values = [x.value for x in walk(way.value) if isinstance(x, n.Const) and isinstance(x.value, bool)]
    return replace(way, value=build.broadcast(n.Const(not values[0], BOOL), way.value.type)) if len(values) == 1 and dtype_of(way.value.type).is_bool else None


def _by_number(sign: Sign) -> bool:
    """Whether something is compared with a number, or with its equal: of two of which neither is known, the greater may be anywhere."""
    kind, numbers, _ = sign
    return kind == "equal" or (kind in ("ordered", "min", "max", "and", "or") and bool(numbers))


def _seconds(program: n.Program, case: Case) -> float:
    """How long a run of a case is foreseen to take."""
    sizes = {p.name: int(case.scalars[p.name]) for p in program.params if p.role == "size" and p.name in case.scalars}
    return float(predicted(program, [sizes]).seconds[0])


def _words(way: Way) -> str:
    return expr_text(way.cond if way.holds else build.invert(way.cond))


def _refused(way: Way, said: str) -> Diagnostic:
    return Diagnostic("KIR-G146", said, anchor=way.anchor, subject=expr_text(way.cond), origin=getattr(way.stmt, "origin", None),
                      needs="inputs in the problem that bring it about, or a program that does not ask it")


def _reached(way: Way, reached: Mapping[Place, int]) -> bool:
    match way.node:
        case n.If():
            return bool(reached.get(("branch", way.anchor), 0) & (TAKEN if way.holds else SKIPPED))
        case n.While():
            return bool(reached.get(("loop", way.anchor), 0) & (ONE | TWO | MORE))
        case _:
            return False


# ------------------------------------------------------------------------------------------------------------------------ outcomes

def _outcomes(program: n.Program, flow: Flow, names: Mapping[str, str]) -> Iterator[tuple[Way, Sign]]:
    """The outcomes of all that data decide, both of each, with what they are of."""
    given = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out"}
    lets, branches = _lets(program), branches_around(program, lambda b, kernel: bool(flow.sources(b.cond, kernel) & given))
    functions = {k.name for k in program.functions}  # of which data decide all, by their arguments
    for anchor, path, s in anchors(program):
        kernel = str(path[0])
        inside = branches.get(id(s), ())
        for node, cond, choices, both in _decisions(s):
            tensors = frozenset(given) if kernel in functions else flow.sources(cond, kernel) & given
            if tensors and _is_rest(node) and isinstance(cond, n.Binary) and cond.op != "ne":
                continue  # of data any rest is taken
            if not (tensors or _of_large(cond, flow, kernel)) or cond.type is None or not dtype_of(cond.type).is_bool:
                continue
            if isinstance(node, n.Binary) and node.op == "mul" and not any(_is_truth(x, lets.get(kernel, {})) for x in (node.a, node.b)):
                continue
            sign = _sign(node, cond, lets.get(kernel, {}), frozenset(names.get(x, x) for x in tensors))
            for holds in (True, False) if both else (True,):
                if isinstance(node, (n.If, n.While)):
                    yield Way(s, node, cond, holds, anchor, path, kernel, within=inside), sign
                else:
                    whole = cond if holds else build.invert(cond)
                    for choice, side in choices:
                        whole = build.logical_and(choice.cond if side else build.invert(choice.cond), whole)
                    yield Way(s, node, whole, True, anchor, path, kernel, _value(node, cond, holds), (*inside, *choices)), sign


def _of_large(cond: n.Expr, flow: Flow, kernel: str) -> bool:
    """Whether sizes and places decide it by a large number."""
    tiles = extents(flow.program)
    stay = [id(x.b) for x in walk(cond) if isinstance(x, n.Binary) and counts_tiles(x, tiles)]
    large = any((isinstance(x, n.Const) and x.dtype.is_integer and not x.dtype.is_bool and abs(x.value) >= LARGE - 1 and id(x) not in stay) or
                (isinstance(x, n.Binary) and x.op == "shr" and isinstance(x.b, n.Const) and 2.0 ** x.b.value >= LARGE) for x in walk(cond))
    return large and bool(set(flow.names(cond, kernel)))


Choices = tuple[tuple[n.Select, bool], ...]


def _decisions(s: n.Stmt) -> Iterator[tuple[n.Node, n.Expr, Choices, bool]]:
    """What a statement decides: node, condition, the choices that it stands in, and whether both outcomes are of interest."""
    if isinstance(s, n.If) and not isinstance(s.cond, n.Const):
        yield s, s.cond, (), True
    if isinstance(s, n.While):
        yield s, s.cond, (), False
    own = {id(x) for x in own_nodes(s)}
    waiting: list[tuple[n.Node, Choices]] = [(x, ()) for x in children(s) if id(x) in own]
    while waiting:
        e, choices = waiting.pop()
        if isinstance(e, n.Select) and not isinstance(e.cond, n.Const):
            waiting += [(e.cond, choices), (e.a, (*choices, (e, True))), (e.b, (*choices, (e, False)))]
        else:
            waiting += [(x, choices) for x in children(e) if not isinstance(x, n.Buffer)]
        yield from ((e, cond, choices, both) for cond, both in _conditions(e))


def _conditions(e: n.Node) -> Iterator[tuple[n.Expr, bool]]:
    """What an expression decides, as conditions, each with whether both of its outcomes are of interest."""
    match e:
        case n.Binary(op=op) if op in n.COMPARISONS:
            yield e, True
        case n.Binary(op="and" | "or" as op, a=a, b=b) if e.type is not None and dtype_of(e.type).is_bool:
            sides = (a, b) if op == "and" else (build.invert(a), build.invert(b))
            yield build.logical_and(*sides), False  # as it comes out by both; and by either alone
            yield from ((build.logical_and(one, build.invert(other)), False) for one, other in (sides, sides[::-1]))
        case n.Binary(op="xor") if e.type is not None and dtype_of(e.type).is_bool:
            yield e, True
        case n.Binary(op="min" | "max" as op, a=a, b=b) if a.type is not None and b.type is not None:
            yield build.compare("lt" if op == "min" else "gt", a, b), True
        case n.Load() if e.type is not None and dtype_of(e.type).is_bool:
            yield e, True
        case n.Binary(op=op, a=a, b=b) if (op in BITS or _is_rest(e)) and e.type is not None and dtype_of(e.type).is_integer:
            if op in BITS:
                yield build.compare("ne", e, 0), False
            if _is_rest(e):
                yield build.compare("gt" if op == "and" else "ge", a, build.broadcast(b, a.type)), False
        case n.Binary(op="mul") if e.type is not None and not dtype_of(e.type).is_bool:
            yield build.compare("ne", e, build.const(0, dtype_of(e.type))), False
        case n.Cast(x=x, rounding=rounding) if rounding != "bits" and e.dtype.is_integer and dtype_of(x.type).is_float:
            yield from ((build.compare("ne", e, v), False) for v in (0, 1))
        case n.Binary(op="div") if e.type is not None:
            yield build.compare("ne", e, build.const(0.0, dtype_of(e.type))), False
        case n.Call(fn=fn) if fn in ENDS and e.type is not None and dtype_of(e.type).is_float:
            yield from ((build.compare("ne", e, build.const(v, dtype_of(e.type))), False) for v in ENDS[fn])
        case _:
            pass


def _is_rest(e: n.Node) -> bool:
    """Whether it is the rest of a division by a large number, or the lower bits of one."""
    if not isinstance(e, n.Binary) or not isinstance(e.b, n.Const) or not e.b.dtype.is_integer or e.b.dtype.is_bool or e.b.value < LARGE - 1:
        return False
    return e.op in ("mod", "trem") or (e.op == "and" and not int(e.b.value) & (int(e.b.value) + 1))


def _is_truth(e: n.Expr, lets: Mapping[str, n.Expr]) -> bool:
    """Whether a number is a truth value, or a choice between zero and one."""
    if isinstance(e, n.Var):
        e = lets.get(e.name, e)
    match e:
        case n.Cast(x=x):
            return x.type is not None and dtype_of(x.type).is_bool
        case n.Select(a=n.Const(), b=n.Const()):
            return True
        case _:
            return False


def _value(node: n.Node, cond: n.Expr, holds: bool) -> n.Expr:
    """What a node is where the outcome is this one."""
    match node:
        case n.Binary(op="min" | "max", a=a, b=b):
            return a if holds else b
        case n.Binary(op="and" | "or" as op, a=a, b=b) if dtype_of(node.type).is_bool:
            both = build.logical_and(*((a, b) if op == "and" else (build.invert(a), build.invert(b))))
            return build.broadcast(n.Const((op == "and") == (cond == both), BOOL), node.type)
        case n.Binary() | n.Load() if cond is node:
            return build.broadcast(n.Const(holds, dtype_of(node.type)), node.type)
        case n.Expr():
            beside = cond.b.value if isinstance(cond, n.Binary) and isinstance(cond.b, n.Const) else 0
            return build.broadcast(build.const(1 if beside == 0 else 0, dtype_of(node.type)), node.type)
        case _:
            raise AssertionError("no expression")


# ------------------------------------------------------------------------------------------------------- what is none of these

def _meets_others(way: Way) -> bool:
    """Whether a branch orders threads, or stores what they share."""
    return isinstance(way.node, (n.If, n.While)) and any(
        isinstance(x, n.Eval) or (isinstance(x, n.Store) and x.at.buffer.space in ("shared", "global")) for x in walk(way.node))


def _harmless(program: n.Program, flow: Flow, way: Way, whole: n.Expr) -> bool:
    """Whether nothing finite brings an outcome about, or it guards what has no answer; `whole` is its condition with names replaced."""
    launched = way.path[0] in {k.name for k in program.kernels}
    asked = replace(way, cond=whole) if isinstance(way.cond.type, TileType) else way
    if _not_finite(program, flow, way) or keeps_off(program, way) or (launched and not possible(program, flow, asked, True)):
        return True
    if _beside_extreme(program, way, whole):
        return True
    at = chosen_by(way)
    held = not (isinstance(way.value, n.Const) and way.value.value is False)
    return bool(at) and all(guards(flow, Way(way.stmt, e, e.cond, held, way.anchor, way.path, way.kernel)) for e in at)


def _beside_extreme(program: n.Program, way: Way, whole: n.Expr) -> bool:
    """Whether it asks for an element of a row at the place of its greatest (or least) that is not the greatest: there is none, where nothing is stored in the
    row between the two."""
    parts = conjuncts(whole if way.holds else build.invert(whole))
    pairs = [(bare(e.a), bare(e.b)) for e in parts if isinstance(e, n.Binary) and e.op == "eq"]
    rows = {(x.args[0], str(dict(x.attrs)["op"])) for pair in pairs for x, other in (pair, pair[::-1])
            if isinstance(x, n.Call) and x.fn == "reduce" and dict(x.attrs).get("op") in EXTREMES and isinstance(other, n.Call) and other.fn == "iota"}
    for e in parts:
        of = e.x if isinstance(e, n.Unary) and e.op == "not" else e
        if not isinstance(of, n.Binary) or (of is not e and of.op != "eq") or (op := of.op if of is e else "ne") not in ("ne", "lt", "gt"):
            continue
        a, b = bare(of.a), bare(of.b)
        for row, which in rows:
            best = n.Call("reduce", (row,), (("axis", 0), ("op", EXTREMES[which])))
            if (op == "ne" and {a, b} == {row, best}) or (a, b) == ((row, best) if (op == "lt") == (which == "argmax") else (best, row)):
                named = {x.at.buffer.name for x in walk(row) if isinstance(x, n.Load)}
                return all(s is way.stmt for s in walk(body_of(program, way)) if isinstance(s, n.Store) and s.at.buffer.name in named)
    return False


def _not_finite(program: n.Program, flow: Flow, way: Way) -> bool:
    """Whether it is of a comparison with what stands for infinity, or of a number with itself."""
    node = way.node.cond if isinstance(way.node, (n.If, n.While)) else way.node
    while isinstance(node, n.Unary):
        node = node.x
    if isinstance(node, n.Call) and node.fn in NOT_FINITE:
        return True
    if not isinstance(node, n.Binary) or (node.op not in n.COMPARISONS and node.op not in ("min", "max")):
        return False
    if node.a == node.b:
        return True
    tensors = {p.name for p in program.params if isinstance(p.of, n.Buffer)}
    of_none = [side for side in (node.a, node.b) if not flow.sources(side, way.kernel) & tensors]  # what it is compared with, not what fills in behind an edge
    numbers = [float(x.value) for side in of_none or (node.a, node.b) for x in flow.parts(side, way.kernel)
               if isinstance(x, n.Const) and not isinstance(x.value, bool)]
    kernel = body_of(program, way)
    beside = [x for e in (way.node, node, *chosen_by(way)) for x in (walk(e) if isinstance(e, n.If) else children(e))]
    return any(not math.isfinite(c) or _saturates(kernel, node, c) or (abs(c) >= SQUARES and fills_in(kernel, c))
               or (abs(c) >= SENTINEL and fills_in(kernel, c, beside)) for c in numbers)


def _saturates(kernel: n.Node, node: n.Binary, c: float) -> bool:
    """Whether a number is the largest of a dtype, and what is compared with it goes nowhere but into that dtype, where all beyond it is infinite."""
    named = [of for of in (F16, BF16, F8E4M3, F8E5M2) if abs(c) == float(ml_dtypes.finfo(numpy_dtype(of.name)).max)]
    if not named or dtype_of(node.a.type) == named[0]:
        return bool(named)
    above: dict[int, list[n.Node]] = {}
    for x in walk(kernel):
        for below in children(x):
            above.setdefault(id(below), []).append(x)
    uses = {x.names[0]: [v for v in walk(kernel) if isinstance(v, n.Var) and v.name == x.names[0]] for x in walk(kernel) if isinstance(x, n.Let) and x.names}

    def cast_alone(e: n.Node, depth: int = 0) -> bool:
        found = above.get(id(e), [])
        return bool(found) and depth < MOST_NODES and all(
            x.dtype == named[0] if isinstance(x, n.Cast) else
            cast_alone(x, depth + 1) if isinstance(x, n.Select) or (isinstance(x, n.Binary) and x.op in ("min", "max")) else
            all(cast_alone(v, depth + 1) for v in uses[x.names[0]]) if isinstance(x, n.Let) and len(x.names) == 1 else False for x in found)
    return cast_alone(node)


def _placing(program: n.Program, flow: Flow) -> Iterator[str]:
    """Tensors of whole numbers that name places or say how often a loop runs."""
    whole = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out" and p.of.dtype.is_integer}
    for k in program.kernels if whole else ():
        for x in walk(k):
            at = x.at.index if isinstance(x, (n.Load, n.Store)) else (x.lo, x.hi) if isinstance(x, n.For) else ()
            for e in at:
                yield from flow.sources(e, k.name) & whole


def _beyond_places(cond: n.Expr, placing: Collection[str]) -> bool:
    """Whether a condition asks of one number that names a place whether it lies beyond all places, as sizes say, or before the first."""
    while isinstance(cond, n.Unary):
        cond = cond.x
    loads = {x for x in walk(cond) if isinstance(x, n.Load)}
    if len(loads) != 1 or not {x.at.buffer.name for x in loads} <= set(placing) or not isinstance(cond, n.Binary) or cond.op not in n.COMPARISONS:
        return False
    other = [side for side in (cond.a, cond.b) if not any(isinstance(x, n.Load) for x in walk(side))]
    numbers = [x.value for side in other for x in walk(side) if isinstance(x, n.Const)]
    return bool(other) and (all(x <= 0 for x in numbers) if all(isinstance(side, n.Const) for side in other) else all(abs(x) <= 1 for x in numbers))


def _of_no_element(program: n.Program, way: Way, whole: n.Expr) -> bool:
    """Whether it asks something of places behind the edge of a tile that is loaded, where there is no element, and of nothing that is loaded."""
    edges = {edge for x in walk(body_of(program, way)) if isinstance(x, n.Load) and x.clip for edge in _edges(x.at)}
    for at, beside in ((whole.a, whole.b), (whole.b, whole.a)) if isinstance(whole, n.Binary) and whole.op == "and" else ():
        inside = build.invert(at)
        if inside in edges:
            there = transform(beside, partial(_outside, inside))
            loaded = any(isinstance(x, n.Load) and isinstance(x.type, TileType) for x in walk(there))
            return not loaded or any(_of_fill(program, way, e) for e in conjuncts(beside))
    return False


def _of_fill(program: n.Program, way: Way, e: n.Expr) -> bool:
    """Whether it says that what fills a row behind its end is the row's greatest (or least), or stands at its place: an infinity, which is so of none that are
    finite."""
    if not isinstance(e, n.Binary) or e.op not in ("eq", "le", "ge"):
        return False
    for x, y in ((bare(e.a), bare(e.b)), (bare(e.b), bare(e.a))):
        if isinstance(y, n.Call) and y.fn == "reduce" and isinstance(y.args[0], n.Expr):
            row, op = y.args[0], str(dict(y.attrs).get("op"))
            found = _fill(program, way, row)
            if found is not None and math.isinf(found) and (found < 0) == (op in ("max", "argmax")) and EXTREMES.get(op, op) in EXTREMES.values():
                return x == row if op in ("max", "min") else e.op == "eq" and isinstance(x, n.Call) and x.fn == "iota"
    return False


def _fill(program: n.Program, way: Way, row: n.Expr, of: Mapping[str, float | None] = MappingProxyType({})) -> float | None:
    """What a row holds behind the edge of what is loaded; `of` fragments that is taken to be known."""
    match row:
        case n.Load(at=n.Region(buffer=n.Buffer(name=name, space="fragment"))) if name in of:
            return of[name]
        case n.Load(at=n.Region(buffer=n.Buffer(name=name, space="fragment")), mask=None):
            kernel = body_of(program, way)
            lets, first = _lets(program).get(way.kernel, {}), next((x.init for x in walk(kernel) if isinstance(x, n.Alloc) and x.buffer.name == name), None)
            begun = _fill(program, way, _whole(first, lets), of) if first is not None else None
            stored = [x.value for x in walk(kernel) if isinstance(x, n.Store) and x.at.buffer.name == name]
            return begun if all(_fill(program, way, _whole(e, lets), {**of, name: begun}) == begun for e in stored) else None
        case n.Load(clip=True, other=n.Expr() as other):
            return _fill(program, way, other, of)
        case n.Const(value=float() as value):
            return value
        case n.Select(a=a, b=b):
            sides = {_fill(program, way, x, of) for x in (a, b)}
            return sides.pop() if len(sides) == 1 else None
        case _:
            alone = bare(row)
            return _fill(program, way, alone, of) if alone is not row else None


def _outside(inside: n.Expr, old: n.Node, new: n.Node) -> n.Node:
    return new.b if isinstance(new, n.Select) and new.cond == inside else new


def _edges(at: n.Region) -> Iterator[n.Expr]:
    """Where a tile lies inside of its buffer, by axis."""
    for span, length in zip(at.index, at.buffer.shape, strict=False):
        if isinstance(span, n.Span) and span.step == 1 and isinstance(span.extent, int):
            yield build.compare("lt", build.add(span.lo, build.iota(span.extent)), length)


def _sign(node: n.Node, cond: n.Expr, lets: Mapping[str, n.Expr], tensors: frozenset[str]) -> Sign:
    """What an outcome is of, whatever it is called and however it is written."""
    e = node.cond if isinstance(node, (n.If, n.While)) else node
    numbers = sorted({float(x.value) for x in _parts(_whole(cond, lets)) if isinstance(x, n.Const) and not isinstance(x.value, bool)})
    match e:
        case n.Binary(op=op):
            kind = "ordered" if op in ORDERED else "equal" if op in ("eq", "ne") else op
            if op in ("min", "max"):  # of the scale nothing depends, nor of what fills in
                numbers = sorted({float(x.value) for x in _summed(_whole(cond, lets))
                                  if isinstance(x, n.Const) and not isinstance(x.value, bool) and math.isfinite(x.value)})
        case n.Call(fn=fn):
            kind = "exp" if fn == "exp2" else fn
        case _:
            kind = type(e).__name__
    return kind, tuple(numbers), tensors


def _alike(sign: Sign) -> Iterator[Sign]:
    """What is the same however it is written: a greater of two by a comparison, or the other way."""
    yield sign
    kind, numbers, tensors = sign
    if kind in ("min", "max"):
        yield "ordered", numbers, tensors
    elif kind == "ordered":
        yield from ((other, numbers, tensors) for other in ("min", "max"))


def _summed(e: n.Node) -> Iterator[n.Node]:
    """An expression and those below it, but for places, factors, and what of places alone chooses."""
    yield e
    if isinstance(e, n.Select) and not any(isinstance(x, (n.Load, n.Var)) and dtype_of(x.type).is_float for x in walk(e.cond)):
        yield from (x for side in (e.a, e.b) for x in _summed(side))
    elif isinstance(e, n.Binary) and e.op in ("mul", "div"):
        yield from (x for side in (e.a, e.b) if not isinstance(side, n.Const) for x in _summed(side))
    else:
        yield from (x for side in (() if isinstance(e, n.Load) else children(e)) for x in _summed(side))


def _whole(e: n.Expr, lets: Mapping[str, n.Expr]) -> n.Expr:
    """An expression with names replaced by what they stand for, as far as it stays short."""
    for _ in range(8):
        if not any(isinstance(x, n.Var) and x.name in lets for x in walk(e)) or sum(1 for _ in walk(e)) > MOST_NODES:
            break
        e = transform(e, lambda old, new: lets.get(old.name, new) if isinstance(old, n.Var) else new)
    return e


def _parts(e: n.Node) -> Iterator[n.Node]:
    """An expression and those below it, but for places."""
    yield e
    for x in () if isinstance(e, n.Load) else children(e):
        yield from _parts(x)


def _lets(program: n.Program) -> dict[str, dict[str, n.Expr]]:
    """By kernel, what its names stand for that are given once."""
    out: dict[str, dict[str, n.Expr]] = {}
    for k in bodies(program):
        found: dict[str, list[n.Expr]] = {}
        for x in walk(k):
            if isinstance(x, n.Let) and len(x.names) == 1:
                found.setdefault(x.names[0], []).append(x.value)
        out[k.name] = {name: values[0] for name, values in found.items() if len(values) == 1}
    return out


__all__ = ["JUDGED", "unseen"]
