"""Sizes at which a program is tested: solved from its own structure, so that few runs reach all that its sizes can bring about.

From the constants of the programs (tiles, steps, divisors, threads) come values for each size: one tile and a part, two, three, enough to use each
stage of a ring again. Those at which every fact holds are a pool; `kir.gate.goals` says what each would reach and cost; a greedy cover takes the
fewest and cheapest. Where the pool's single changes reach different goals, their combinations are tried too.
"""
from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.gate.goals import EDGE, WRAP, Goal, Prediction, holding, limits, predicted, promised, rings
from kir.interp.state.coverage import EMPTY, FULL, MORE, ONE, PARTIAL, SEVERAL, SINGLE, SKIPPED, TAKEN, TWO, ZERO
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import content_hash
from kir.ir.types import DType, dtype_of
from kir.ir.visit import walk
from kir.problem import Problem
from kir.problem.ordering import Ordering
from kir.problem.schema import evaluate, names_in

Array = NDArray[Any]
Sizes = dict[str, int]
MOST_ELEMENTS = 1 << 22
"""Elements of the largest array of an interpreted run."""
ANY = 1 << 62
"""As many as there may be, where nothing is run."""
MOST_VALUES = 48
"""Values of one size that are tried."""
MOST_JOINT = 400
"""Combinations that are tried."""
MOST_SHAPES = 8
PAST, BEYOND = "past", "beyond"
MOST_FAR, FAR_SECONDS, WAY_SECONDS = 4, 0.6, 4.0
"""Shapes beyond what a program's tiles suggest, and the interpreted time, as it is foreseen, that they may take together; and where one is known to go a
way that no other goes."""
FEW = 7
"""Of sizes that no loop and no tile depends on: enough that each order of the inputs is seen."""
SECONDS = 1.0
"""Interpreted time that one shape may take, as it is foreseen, unless without it a loop would not run twice."""
LONGEST = 20.0
"""Interpreted time of one shape beyond which it is not run at all, of all programs together that are run there."""
RESTS = (0, 1, -1)
"""What a size may have beyond full tiles: nothing, one element, all but one."""
MOST_TILE = 512
PRODUCT_BITS = 7
"""Of the largest whole numbers of eight bits."""
MOST_PARTS = 8
MOST_EDGES, EDGE_SECONDS = 4, 0.3
"""Shapes at edges, and the interpreted time that they may take together."""
WEIGHT: Mapping[str, Mapping[int, float]] = {
    "grid": {SEVERAL: 3.0, SINGLE: 0.3}, "loop": {ZERO: 1.0, ONE: 1.0, TWO: 4.0, MORE: 6.0, WRAP: 6.0}, "branch": {TAKEN: 3.0, SKIPPED: 3.0},
    "choice": {TAKEN: 2.0, SKIPPED: 2.0},
    "read": {FULL: 1.5, PARTIAL: 2.5, EMPTY: 1.0}, "write": {FULL: 1.5, PARTIAL: 2.5, EMPTY: 1.0}}


def worth(g: Goal) -> float:
    """What reaching a goal is worth."""
    return WEIGHT.get(g.kind, {}).get(g.bit, 0.0)


@dataclass(frozen=True)
class Space:
    """Where sizes may lie: their names, values that are sure to be of interest, what of the program's sizes follows from them, and whether a set of
    them is allowed (all facts hold, no array too large)."""

    names: tuple[str, ...]
    known: tuple[Sizes, ...]
    own: Callable[[Sizes], Sizes]
    allowed: Callable[[Sequence[Sizes]], Array]
    plausible: Callable[[str, Sequence[int]], Sequence[int]]
    """Of values of one size those that no fact about it alone refuses."""
    beside: tuple[n.Program, ...] = ()
    """Programs that are run wherever one is tested."""

    def endless(self, shapes: Sequence[Sizes], most: Array) -> Array:
        """At which sizes runs of a program that take at least so many seconds (`Prediction.most`), and of those beside it, do not end in reasonable time."""
        for p in self.beside:
            most = most + predicted(p, [self.own(at) for at in shapes]).most
        return most > LONGEST


@dataclass(frozen=True)
class Plan:
    """Sizes to test at, the first the one that reaches most; how inputs are ordered there; and what the program can reach at all."""

    shapes: tuple[Sizes, ...]
    ordering: Ordering | None
    reachable: frozenset[Goal]
    unsure: frozenset[Goal] = frozenset()
    far: tuple[Sizes, ...] = ()
    """Few and cheap sizes on the other side of what the program compares with, where the shapes are not."""
    edges: tuple[Sizes, ...] = ()
    """Few and cheap sizes next to where comparisons turn and tiles end."""
    counting: tuple[Sizes, ...] = ()
    """Those of the far ones at which a count may be more than its type holds."""


def of_problem(program: n.Program, problem: Problem, names: Mapping[str, str], most: int = MOST_ELEMENTS) -> Space:
    """The sizes of a problem at which a program may be called, with at most so many elements in a tensor; `names` gives the problem's tensor for each of the
    program's."""
    listed = [s.sizes for s in problem.shapes if "timed" not in s.tags] or [s.sizes for s in problem.shapes]
    sizes = tuple(listed[0])
    extents = {t.name: t.shape for t in problem.spec.tensors}
    pairs: list[tuple[n.Expr, str]] = []
    for p in program.params:
        if isinstance(p.of, n.Buffer) and len(of := extents.get(names.get(p.name, p.name), ())) == len(p.of.shape):
            pairs += zip(p.of.shape, of, strict=True)
    derived = {d.name: text for d, text in reversed(pairs) if isinstance(d, n.Var)}
    free = {p.name for p in program.params if isinstance(p.of, DType)}

    def own(at: Sizes) -> Sizes:
        found = {k: v for k, v in at.items() if k in free}
        return {**{k: evaluate(text, at) for k, text in derived.items()}, **found}

    def posed(at: Sizes) -> bool:
        try:
            extents = {d: evaluate(d, at) for t in problem.spec.tensors for d in t.shape}
            return (all(evaluate(f, at) for f in problem.spec.facts) and all(e >= 1 for e in extents.values())
                    and max(math.prod(extents[d] for d in t.shape) for t in problem.spec.tensors) <= most)
        except ValueError:
            return False

    def allowed(pool: Sequence[Sizes]) -> Array:
        fine = np.array([posed(at) for at in pool], np.bool_)
        mine = [own(at) if ok else {} for at, ok in zip(pool, fine, strict=True)]
        index = np.flatnonzero(fine)
        if index.size:
            asked = [mine[i] for i in index]
            extents = [(d, np.array([evaluate(text, pool[int(i)]) for i in index])) for d, text in pairs if not isinstance(d, n.Var) or d.name in derived]
            fine[index] &= holding(program, asked, program.facts, extents)
        return fine

    def plausible(name: str, values: Sequence[int]) -> Sequence[int]:
        mine = [own({name: v}) if all(set(_names(t)) <= {name} for t in derived.values()) else {k: evaluate(t, {name: v}) for k, t in derived.items()
                if set(_names(t)) <= {name}} | ({name: v} if name in free else {}) for v in values]
        fixed = [(d, np.array([evaluate(text, {name: v}) for v in values])) for d, text in pairs if set(_names(text)) == {name}]
        fine = holding(program, mine, program.facts, fixed)
        return [v for v, ok in zip(values, fine, strict=True) if ok]
    return Space(sizes, tuple(dict(s) for s in listed), own, allowed, plausible)


def _names(text: str) -> frozenset[str]:
    return names_in(text)


def of_programs(program: n.Program, against: n.Program, most: int = MOST_ELEMENTS) -> Space:
    """The sizes at which two programs with the same parameters may both be called, with at most so many elements in a tensor."""
    sizes = tuple(dict.fromkeys(p.name for of in (program, against) for p in of.params if p.role == "size" and p.value is None and isinstance(p.of, DType)))
    facts = (*program.facts, *promised(against))
    shapes = [p.of.shape for p in program.params if isinstance(p.of, n.Buffer)]

    def allowed(pool: Sequence[Sizes]) -> Array:
        return holding(program, pool, facts) & holding(against, pool, facts, most=(shapes, most))

    def plausible(name: str, values: Sequence[int]) -> Sequence[int]:
        fine = holding(program, [{name: v} for v in values], facts)
        return [v for v, ok in zip(values, fine, strict=True) if ok]
    return Space(sizes, (), lambda at: dict(at), allowed, plausible, (against,))


# ------------------------------------------------------------------------------------------------------------------------------- values

def constants(programs: Iterable[n.Program]) -> list[int]:
    """Whole numbers above 1 by which programs cut their sizes: steps, divisors, extents of tiles, threads; the most frequent first."""
    found: dict[int, int] = {}
    for program in programs:
        for x in walk(program):
            for c in _constants(x):
                if 2 <= c <= MOST_ELEMENTS:
                    found[c] = found.get(c, 0) + 1
    return sorted(found, key=lambda c: (-found[c], c))


def _constants(x: n.Node) -> Iterable[int]:
    match x:
        case n.For(step=n.Const(value=int() as c)):
            yield c
        case n.Binary(op="floordiv" | "ceildiv" | "mod" | "tdiv" | "trem" | "mul" | "min" | "lt" | "le" | "gt" | "ge", a=a, b=b):
            for e in (a, b):
                if isinstance(e, n.Const) and isinstance(e.value, int) and not isinstance(e.value, bool):
                    yield abs(e.value)
        case n.Binary(op="and" | "shr" as op, a=a, b=n.Const(value=int() as c)) if not any(isinstance(y, n.Load) for y in walk(a)):
            if (cut := (c + 1) & ~c if op == "and" else 1 << min(max(c, 0), 62)) > MOST_TILE:  # the first bit of a size that is cut off, or the others are
                yield cut
        case n.Span(extent=int() as c):
            yield c
        case n.Buffer():
            for d in x.shape:
                if isinstance(d, n.Const) and isinstance(d.value, int):
                    yield d.value
        case n.Kernel(threads=n.Const(value=int() as c)):
            yield c
        case _:
            pass


def values_of(cuts: Sequence[int], stages: int, moduli: Sequence[int]) -> list[int]:
    """Values of a size: small ones; for each cut one, two and three pieces with and without a part; more where a ring has so many stages."""
    out = [1, 2, 3, 5, FEW]
    for c in cuts[:12]:
        part = max(1, 3 * c // 8 + 1)
        times = (1, 2, 3, *((stages + 1, 2 * stages + 1) if stages > 1 else ()))
        out += [part, c, c + 1, *(t * c + part for t in times), *(t * c for t in times)]
    rounded = [-(-v // g) * g for g in moduli for v in out]
    return sorted({v for v in (*out, *rounded) if 1 <= v <= MOST_ELEMENTS})


def _moduli(programs: Iterable[n.Program]) -> list[int]:
    found = {2, 4, 8, 16}
    for program in programs:
        for fact in promised(program):
            found |= {x.b.value for x in walk(fact) if isinstance(x, n.Binary) and x.op in ("mod", "trem") and isinstance(x.b, n.Const)
                      and isinstance(x.b.value, int) and x.b.value > 1}
    return sorted(found)[-8:]


def _spread(values: Sequence[int], most: int) -> list[int]:
    """At most so many of the values: the small ones, and the others evenly."""
    if len(values) <= most:
        return list(values)
    head, rest = list(values[:most // 4]), values[most // 4:]
    picked = [rest[i * len(rest) // (most - len(head))] for i in range(most - len(head))]
    return head + picked


# ------------------------------------------------------------------------------------------------------------------------------ solving

def solved(program: n.Program, space: Space, also: Sequence[n.Program] = ()) -> Plan | None:
    """Where to test a program; `also` are programs whose structure counts as well (a reference, the kernel that a walk began at). None where no
    sizes are allowed."""
    programs = (program, *also)
    cuts, moduli = constants(programs), _moduli(programs)
    stages = max((s for p in programs for s in rings(p).values()), default=0)
    values = {name: _spread(space.plausible(name, values_of(cuts, stages, moduli)), MOST_VALUES) for name in space.names}
    rng = random.Random(content_hash(program))
    pool = [dict(s) for s in space.known]
    if all(values.values()):
        base = {name: next((v for v in of if v >= 3), of[-1]) for name, of in values.items()}
        pool += [base, *({**base, name: v} for name, of in values.items() for v in of)]
        pool += [{name: rng.choice(of) for name, of in values.items()} for _ in range(MOST_JOINT if len(values) > 1 else 0)]
    pool = _allowed(space, pool)
    if not pool:
        return None
    found = _looked(programs, space, pool)
    chosen = _cover(found, pool, _runs(programs, space))
    joint = _joined([pool[i] for i in chosen], space.names, rng)
    more = [at for at in _allowed(space, joint) if at not in pool]
    if more:
        pool = pool + more
        found = _looked(programs, space, pool)
        chosen = _cover(found, pool, _runs(programs, space))
    chosen = chosen or [int(np.argmin(found[0].seconds))]  # where every goal takes too long, or there is none
    seconds = tuple(float(found[0].seconds[i]) for i in chosen)
    shapes = (_widened(program, space, pool[chosen[0]], seconds[0]), *(pool[i] for i in chosen[1:]))
    far = _far(program, space, shapes, values, moduli)
    edges = _edges(program, space, [*shapes, *far], values)
    edges = (*edges, *_orders(program, space, [*shapes, *far, *edges], values))
    counting = tuple(at for at in far if any(v > c for v in at.values() for c in _narrow(program)))
    return Plan(shapes, _ordering(found, pool, space.names), frozenset(found[0].reached), frozenset(found[0].unsure), far, edges, counting)


def _far(program: n.Program, space: Space, chosen: Sequence[Sizes], values: Mapping[str, Sequence[int]], moduli: Sequence[int]) -> tuple[Sizes, ...]:
    """Sizes one of which is large while the others are small, that reach what the chosen ones leave out: a way that sizes decide, or a size
    beyond a number that the program compares with, cuts by, or has memory for."""
    steps = [(1 << k) + (1 << k - 2) for k in range(4, MOST_ELEMENTS.bit_length())]  # what is decided at a power of two shows in what follows it
    ladder = sorted({-(-(v + 1) // g) * g for v in steps for g in {1, moduli[-1], math.lcm(*moduli)} if g <= v})
    pool = list(chosen)
    if not all(values.values()):
        return ()
    base = {name: next((v for v in of if v >= 3), of[-1]) for name, of in values.items()}
    for name in space.names:
        pool += _allowed(space, [{**base, name: v} for v in space.plausible(name, ladder)])
    if vectors := any(isinstance(x, n.Span) and x.extent in (2, 4, 8, 16) for k in program.kernels for x in walk(k)):  # rows of each alignment
        pool += _allowed(space, [dict.fromkeys(space.names, v) for v in (9, 10, 12, 24)])
    found = predicted(program, [space.own(at) for at in pool])
    near = np.arange(len(pool)) < len(chosen)
    wanted: dict[tuple[object, ...], Array] = {(g,): where for g, where in found.reached.items() if worth(g) and not where[near].any()}
    wanted |= {(PAST, *way) if way[1] < 0 else way: where for way, where in found.ways.items()
               if way[1] < EDGE - 1 and where.any() and not where[near].any()}
    for name in space.names:
        column = np.array([at[name] for at in pool])
        if vectors:
            several = np.array([math.prod(at.values()) for at in pool]) > column
            wanted |= {(PAST, name, -k): where for k in (1, 2, 4, 8) if (where := several & (column % (2 * k) == k)).any() and not where[near].any()}
        wanted |= {("narrow", name, c): where for c in _narrow(program) if (where := column > c).any()}
        wanted |= {(PAST, name, c): where for c in _limits(program) if not (where := column > c + c // 8)[near].any() and where.any()}
    out = _few(wanted, found.seconds, near, MOST_FAR, FAR_SECONDS, lambda i: bool(space.endless([pool[i]], found.most[i:i + 1])[0]))
    return tuple(pool[i] for i in out)


def _narrow(program: n.Program) -> set[int]:
    """Sizes beyond which a count of half of what there is does not fit where a program may count, nor a sum of products of eight bits in a float where one
    may come from that."""
    whole = any(isinstance(p.of, n.Buffer) and p.role != "in" and p.of.dtype.is_integer and p.of.dtype.bits > 16 for p in program.params)
    return {2 << bits for k in program.kernels for x in walk(k) if (bits := _counts(x) or (_adds(x) if whole else 0))}


def _adds(x: n.Node) -> int:
    """The bits of how many products of eight bits a float that whole numbers become can add up."""
    if isinstance(x, n.Cast) and x.dtype.is_float and dtype_of(x.x.type).is_integer and any(isinstance(y, (n.Load, n.Var)) for y in walk(x.x)):
        return max({16: 11, 32: 24}.get(x.dtype.bits, 53) - 2 * PRODUCT_BITS - 1, 1)
    return 0


def _counts(x: n.Node) -> int:
    """The bits of a number that may be a count: few, and made of whole numbers."""
    match x:
        case n.Buffer(space="register" | "fragment" | "shared", dtype=of) if of.is_integer and of.bits <= 16:
            return of.bits
        case n.Cast(x=a, dtype=of) if of.is_integer and not of.is_bool and of.bits <= 16 and dtype_of(a.type).is_integer and dtype_of(a.type).bits > of.bits:
            return of.bits
        case _:
            return 0


def _edges(program: n.Program, space: Space, chosen: Sequence[Sizes], values: Mapping[str, Sequence[int]]) -> tuple[Sizes, ...]:
    """Sizes at an edge where none of the chosen ones is: next to where a comparison turns, all the same, of full tiles, with one element more or less, and
    beyond a part of so many elements that it may have been taken for the whole."""
    if not all(values.values()):
        return ()
    base = {name: next((v for v in of if v >= 3), of[-1]) for name, of in values.items()}
    tiles = sorted(c for c in constants((program,)) if MOST_TILE >= c > 2)
    pool = [*chosen, *_allowed(space, [dict.fromkeys(space.names, v) for v in (FEW, *(c + r for c in tiles for r in RESTS))])]
    wholes = sorted(c for c in constants((program,)) if c > MOST_TILE)[:MOST_EDGES]
    turns = sorted({c + 1 for c in wholes} | {v for c in _limits(program) for by in (-1, 0, 1) for v in (c + by, *(k * (c + by) for k in parts(program)))})
    for name in space.names:
        pool += _allowed(space, [{**base, name: v} for v in space.plausible(name, turns)])
    found = predicted(program, [space.own(at) for at in pool])
    near = np.arange(len(pool)) < len(chosen)
    wanted: dict[tuple[object, ...], Array] = {(PAST, *way): where for way, where in found.ways.items() if where.any() and not where[near].any()}
    for name in space.names:
        column = np.array([at[name] for at in pool])
        rests = {(PAST, name, c, r): ((column - r) % c == 0) & (column >= c + r) for c, r in product(tiles, RESTS)}
        rests |= {(BEYOND, name, c, 0): column > c for c in wholes}
        wanted |= {what: where for what, where in rests.items() if where.any() and not where[near].any()}
    return tuple(pool[i] for i in _few(wanted, found.seconds, near, MOST_EDGES, EDGE_SECONDS, lambda i: bool(space.endless([pool[i]], found.most[i:i + 1])[0])))


def _orders(program: n.Program, space: Space, chosen: Sequence[Sizes], values: Mapping[str, Sequence[int]]) -> tuple[Sizes, ...]:
    """Sizes one of which takes more tiles than another, where none of the chosen ones has the two in this order: a loop may go as far as the wrong one."""
    if len(space.names) < 2 or not all(values.values()):
        return ()
    tile = max((c for c in constants((program,)) if c <= MOST_TILE), default=1)
    base = {name: next((v for v in of if v >= 3), of[-1]) for name, of in values.items()}
    pool = [*chosen, *_allowed(space, [{**base, name: v} for name, of in values.items() for v in of if v > tile])]
    found = predicted(program, [space.own(at) for at in pool])
    near = np.arange(len(pool)) < len(chosen)
    tiles = {name: -(-np.array([at[name] for at in pool]) // tile) for name in space.names}
    wanted: dict[tuple[object, ...], Array] = {(PAST, a, ">", b): more for a, b in product(space.names, repeat=2)
                                               if (more := tiles[a] > tiles[b]).any() and not more[near].any()}
    return tuple(pool[i] for i in _few(wanted, found.seconds, near, MOST_EDGES, EDGE_SECONDS, lambda i: bool(space.endless([pool[i]], found.most[i:i + 1])[0])))


def _few(wanted: dict[tuple[object, ...], Array], seconds: Array, near: Array, most: int, most_seconds: float, endless: Callable[[int], bool]) -> list[int]:
    """At most so many indices of sizes, none of the `near` ones, that reach most of what is wanted in the time; none at which runs are `endless`."""
    out: list[int] = []
    spent, near = 0.0, near.copy()
    while wanted and len(out) < most:
        gain = np.zeros(len(near))
        for what, where in wanted.items():
            within = seconds <= (most_seconds if what[0] == PAST else WAY_SECONDS) - spent
            gain += np.where(where & within & ~near, 0.5 if what[0] == PAST else 2.0, 0.0)
        best = int(np.argmax(gain / (seconds + 0.02)))
        if gain[best] <= 0:
            break
        if endless(best):
            near[best] = True
            continue
        out.append(best)
        spent += float(seconds[best])
        wanted = {k: where for k, where in wanted.items() if not where[best]}
    return out


def _limits(program: n.Program) -> frozenset[int]:
    """Numbers that sizes may lie on either side of."""
    of = [limits(k.body) for k in program.kernels]
    grids = [x for k in program.kernels for axis in k.grid for x in walk(axis.extent) if isinstance(x, n.Binary) and x.op in ("min", "max")]
    return frozenset().union(*of, {v for x in grids for e in (x.a, x.b) if (v := int_value(e)) and v > 1})


def parts(program: n.Program) -> tuple[int, ...]:
    """Into how many parts a program cuts its sizes: few, by which it divides what is no constant."""
    found = set()
    for x in walk(program):
        match x:
            case n.Binary(op="floordiv" | "tdiv" | "ceildiv", b=n.Const(value=int() as c)) if 2 <= c <= MOST_PARTS:
                found.add(c)
            case n.Binary(op="shr", b=n.Const(value=int() as c)) if 1 <= c <= 3:
                found.add(1 << c)
            case _:
                pass
    return tuple(sorted(found)[:3])


def _widened(program: n.Program, space: Space, at: Sizes, seconds: float) -> Sizes:
    """A shape with more of what runs side by side, where that costs little and loses nothing: each slice of an input is in another order."""
    wide = [{**at, name: FEW} for name, value in at.items() if value < FEW]
    allowed = _allowed(space, wide)
    if not allowed:
        return at
    found = predicted(program, [space.own(x) for x in (at, *allowed)])
    for i, x in enumerate(allowed, 1):
        same = all(where[i] or not where[0] for g, where in found.reached.items() if g.kind != "grid")
        if same and found.seconds[i] < max(2 * seconds, seconds + 0.02):
            return x
    return at


def _allowed(space: Space, pool: Sequence[Sizes]) -> list[Sizes]:
    unique = list({tuple(sorted(at.items())): at for at in pool}.values())
    return [at for at, ok in zip(unique, space.allowed(unique), strict=True) if ok] if unique else []


def _looked(programs: Sequence[n.Program], space: Space, pool: Sequence[Sizes]) -> list[Prediction]:
    own = [space.own(at) for at in pool]
    return [predicted(p, own) for p in programs]


def _runs(programs: Sequence[n.Program], space: Space) -> list[int]:
    """Which of the programs are run at each shape."""
    return [0, *(i for i, p in enumerate(programs) if i and any(p is other for other in space.beside))]


def _cover(found: Sequence[Prediction], pool: Sequence[Sizes], runs: Sequence[int] = (0,)) -> list[int]:
    """A greedy cover of all goals by indices of the pool; what only a slow shape reaches is left out, unless it is a loop's second trip. `runs` are the
    programs that are run at each."""
    program, longest = found[0], sum((found[i].most for i in runs), np.zeros(len(pool))) > LONGEST
    seconds = found[0].seconds if longest.all() else np.where(longest, np.inf, found[0].seconds)
    open_goals: dict[tuple[int, Goal], Array] = {(i, g): where for i, p in enumerate(found) for g, where in p.reached.items() if worth(g)}
    several = [(g, where) for g, where in program.reached.items() if g.kind == "grid" and g.bit == SEVERAL]
    for g, where in program.reached.items():  # what a loop fetches ahead for one CTA must be told from what it fetches for another
        if g.kind == "loop" and g.bit in (MORE, WRAP):
            open_goals |= {(0, Goal("loop", f"{g.anchor} beside {axis.anchor}", g.bit)): both for axis, of in several if (both := where & of).any()}
    chosen: list[int] = []
    slow = max(SECONDS, 1.5 * float(seconds.min()))
    while open_goals and len(chosen) < MOST_SHAPES:
        gain = np.zeros(len(pool))
        for (i, g), where in open_goals.items():
            gain += where * worth(g) * (1.0 if i == 0 else 0.5)
        gain[seconds > slow] = 0
        best = int(np.argmax(gain / (seconds + 0.02)))
        if gain[best] <= 0:
            break
        chosen.append(best)
        open_goals = {k: where for k, where in open_goals.items() if not where[best]}
    for (i, g), where in list(open_goals.items()):
        twice = program.reached.get(Goal(g.kind, g.anchor, TWO)), program.reached.get(Goal(g.kind, g.anchor, MORE))
        if i == 0 and g.kind == "loop" and g.bit in (TWO, MORE) and not any(w is not None and w[chosen].any() for w in twice):
            chosen.append(int(np.argmin(np.where(where, found[0].seconds, np.inf))))
    return sorted(chosen, key=lambda i: -sum(worth(g) for g, where in program.reached.items() if where[i]))


def _joined(shapes: Sequence[Sizes], names: Sequence[str], rng: random.Random) -> list[Sizes]:
    """Combinations of the values that the shapes have."""
    values = [sorted({at[name] for at in shapes}) for name in names]
    total = math.prod(len(v) for v in values)
    if total <= MOST_JOINT:
        return [dict(zip(names, of, strict=True)) for of in product(*values)]
    return [{name: rng.choice(of) for name, of in zip(names, values, strict=True)} for _ in range(MOST_JOINT)]


def _ordering(found: Sequence[Prediction], pool: Sequence[Sizes], names: Sequence[str]) -> Ordering | None:
    """The tile by which each size is cut: the largest value at which a loop that depends on it runs once, or a grid has one CTA; sizes of loops
    first."""
    tiles: list[tuple[int, str, int]] = []
    for name in names:
        column = np.array([at[name] for at in pool])
        for rank, kind, few, many in ((0, "loop", (ONE,), (TWO, MORE)), (1, "grid", (SINGLE,), (SEVERAL,))):
            best = 0
            for p in found:
                for g, where in p.reached.items():
                    if g.kind != kind or g.bit not in few:
                        continue
                    more = np.zeros(len(pool), np.bool_)
                    for bit in many:
                        more |= p.reached.get(Goal(g.kind, g.anchor, bit), np.zeros(len(pool), np.bool_))
                    below = column[column < column[more].min()] if more.any() else column[:0]
                    if where.any() and below.size:
                        best = max(best, int(below.max()))
            if best:
                tiles.append((rank, name, best))
                break
    ordered = sorted(tiles, key=lambda t: (t[0], -t[2]))
    return Ordering(tuple((name, tile) for _, name, tile in ordered)) if ordered else None
