"""How far a kernel reaches into its tensors at small sizes, and what those sizes are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np

from kir.analysis.access import offset_tables
from kir.base.diagnostic import KirError
from kir.interp.launch import run
from kir.interp.numerics.number import storage
from kir.interp.state.result import Result
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions, fact_expressions
from kir.ir.build import compare, const, int_value, polynomial
from kir.ir.types import I32, DType
from kir.ir.visit import regions, substitute, walk
from kir.surface.launches.values import STRIDING, decided, evaluated, none_false

Arrays = dict[str, np.ndarray[Any, Any]]
Kept = dict[tuple[str | int, ...], np.ndarray[Any, Any]]
"""What tensors hold in the runs of a program: by name, shape and, of whole numbers, what these are less than."""
MOST_ELEMENTS = 1 << 22
MOST_STEPS, MOST_WORK = 50_000, 1 << 31
"""How large a run may be by which shapes are tried: elements of a tensor, statements, statements of threads."""
PRIMES = ((3, 2, 5, 7, 11, 13), (5, 3, 2, 11, 7, 17))
"""What sizes are in the two runs: no product of some is one of others."""
LEAN = (2, 3, 5, 4, 7, 9)
"""What they are in the second run where that one takes too long."""
FURTHER = (4, 6, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
"""What those beyond are: few first, since a kernel of many sizes walks them all."""
CTAS = ((2, 3, 2), (3, 2, 4))
"""How many CTAs there are at least along the axes of a grid, in the two runs: another number in the other run, or a tile would look like a constant, and others
along other axes, or one axis would look like another."""
FEW = ((1, 2, 3, 5, 7, 11), (2, 3, 1, 7, 5, 13))
"""How often sizes that are multiples of a number have it."""
STRIDES = (101, 211, 431, 863, 1733, 3467)
"""What strides are: each exceeds the extent that it strides over, and rows of one end beyond those of another."""
FACTORS: Sequence[int] = (*(1 << k for k in range(10)), *range(3, 512), 1024, 2048, 4096)
"""By how much those sizes that facts and the grid speak of are enlarged until all hold; powers of two first, and at last what fills a CTA."""
WINDOW = ("pad", "padding", "dilation", "kernel")
"""What stands beside the step of a window in the names of a convolution's sizes: `pad_h` beside `stride_h`."""
WINDOWS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    r"pad(ding)?(_?[dhwtxyz]|_?(height|width|top|left|l|t))?": ((1, 2, 3), (2, 1, 4)), r"dil(ation)?(_?[dhwtxyz]|_?(height|width))?": ((1, 2, 3), (2, 1, 4)),
    r"stride(s)?(_?[dhwtxyz]|_?(height|width))?": ((2, 3, 1), (3, 1, 2)),
    r"(kernel|filter|window|k)(_?size)?(_?[dhwtxyz]|_?(height|width))?": ((3, 4, 5), (5, 3, 4))}
"""Sizes of a window by their names, and what they are in the two runs, each further one in turn: less than what the window moves over."""
LARGEST = 5
"""What the other sizes are beyond then."""
MOST_PART = 64
"""Up to what the first of two sizes is tried whose product is a number."""
ALONE = 8
"""How many of the factors are tried on one size after the other first."""
ALONE_TRIES = 1 << 10
"""How many values of one size are tried until the facts of it alone hold."""
TRIES = 1000
"""How often factors are drawn for each size by itself where one for all does not do."""
MOST_TILE = 64
"""Tiles of a size that is tried at more than one of them in the second run."""
WHOLE = 315 << 12
"""Of what sizes are multiples where it is asked how far an expression goes."""
PLACES = 2
"""Whole numbers that tensors hold are less than this, unless asked otherwise: they may be places in other tensors."""


def small_sizes(binding: Binding, primes: Sequence[int] = PRIMES[0]) -> Mapping[str, int] | None:
    """Small sizes that keep the facts of a binding, no two alike, with two CTAs or three along each axis of the grid that grows with them (one where that
    cannot be); None where a few tries find none."""
    names = {x: n.Var(x, I32) for x in binding.sizes}
    try:
        facts = fact_expressions(binding.facts, names)
    except KirError:
        return None
    divides = {x for t in binding.tensors.values() for d in t.shape for x in re.findall(r"// (\w+)", str(d))}  # a step of places, as a convolution has it
    divides |= {x for x in binding.sizes for word in WINDOW if (y := x.replace("stride", word)) != x and y in binding.sizes}
    windows = _windows(binding, primes != PRIMES[0])
    striding = [name for name in binding.sizes if STRIDING.search(name) and name not in divides and name not in windows]
    strides = dict(zip(striding, sorted(STRIDES, reverse=primes != PRIMES[0])))
    small = [x for x in (*primes, *FURTHER) if not windows or x > LARGEST]
    base = {**dict(zip((name for name in binding.sizes if name not in strides and name not in windows), small)), **windows}
    multiples: dict[str, int] = {}
    for f in facts:
        if (pair := _multiple(f)) is not None:
            multiples[pair[0]] = math.lcm(multiples.get(pair[0], 1), pair[1])
    for name, by in _counted_in(binding):  # enough for some of what is counted, and a rest
        if name in base and name not in multiples and base[name] < 2 * by:
            base[name] = base[name] * by + by // 2
    base |= {name: multiples[name] * few for name, few in zip((x for x in base if x in multiples), FEW[primes != PRIMES[0]])}
    for f in facts:
        match f:
            case n.Binary(op="eq", a=n.Binary(op="mod", a=n.Var(name=a), b=n.Var(name=b)), b=n.Const(value=0)) if a in base and b in base and base[a] % base[b]:
                base[a] *= base[b]
            case n.Binary(op="eq", a=n.Binary(op="mul", a=n.Var(name=a), b=n.Var(name=b)), b=n.Const(value=int() as whole)) if a in base and b in base:
                parts = [d for d in range(2, MOST_PART) if whole % d == 0 and d not in base.values()]
                if parts:
                    base[a] = parts[min(primes != PRIMES[0], len(parts) - 1)]
                    base[b] = whole // base[a]
            case _:
                pass
    base = _alone(base, multiples, facts)
    grid = [g for g in grid_extents(binding) if not isinstance(g, (n.Const, n.Var))]
    for least in (CTAS[primes != PRIMES[0]], (1,), (0,)):
        wanted = [*facts, *(compare("ge", g, least[k % len(least)]) for k, g in enumerate(grid) if any(least))]
        holds = none_false(wanted, binding.sizes)
        broken = [f for f in wanted if decided(f, base) is False]
        spoken = [f for f in wanted if _multiple(f) is None and (not _least(f) or f in broken)]
        alike: Mapping[str, int] | None = None
        for told in [{x.name for f in each for x in walk(f) if isinstance(x, n.Var)} - windows.keys() for each in (broken, spoken)]:
            enlarged = _enlarged(base, [f for f in wanted if f in broken or f in spoken], told)
            after = 0
            for factor in (0, *FACTORS):
                after += alike is not None
                if after > ALONE:  # two that are alike are better than large ones
                    break
                values = {name: value * (factor if name in told else 1) for name, value in base.items()} if factor else enlarged
                if (found := _striding(values, strides, holds)) is None:
                    continue
                if len(set(found.values())) == len(found):
                    return found
                alike = alike or (found if factor else None)
        if alike is not None:
            return alike
        free, random = [name for name in base if name in told], np.random.default_rng(primes[0])
        for _ in range(TRIES if free else 0):  # each by a factor of its own
            values = {**base, **{name: base[name] << int(k) for name, k in zip(free, random.integers(0, 8, len(free)))}}
            if (found := _striding(values, strides, holds)) is not None:
                return found
    return None


def _counted_in(binding: Binding) -> Iterator[tuple[str, int]]:
    """Sizes of which a scalar is a part (`bytes // 4`), each with the number that it is divided by."""
    for text in binding.scalars.values():
        for name, by in re.findall(r"\b([A-Za-z_]\w*) // (\d+)\b", str(text)):
            if name in binding.sizes and 1 < int(by) <= MOST_PART:
                yield name, int(by)


def _windows(binding: Binding, second: bool) -> Mapping[str, int]:
    """Sizes of a window that is padded, by the names that host code or kernel give them, and what they are in a run."""
    called = {x: {x, *(name for name, value in binding.scalars.items() if value == x)} for x in binding.sizes}
    roles = {x: word for x, names in called.items() for word in WINDOWS if any(re.fullmatch(word, name, re.IGNORECASE) for name in names)}
    if not any(word.startswith("pad") for word in roles.values()):
        return {}
    turns = {word: iter(values[second]) for word, values in WINDOWS.items()}
    return {x: value for x, word in roles.items() if (value := next(turns[word], None)) is not None}


def _enlarged(base: Mapping[str, int], wanted: Sequence[n.Expr], names: set[str]) -> Mapping[str, int]:
    """Sizes of which, for each thing wanted in turn, one is enlarged by as little as brings it: a smaller run than one that enlarges all."""
    values = dict(base)
    for f in wanted:
        own = [x.name for x in walk(f) if isinstance(x, n.Var) and x.name in names]
        tried = [{**values, x: values[x] * factor} for factor in FACTORS[1:ALONE] for x in own] if decided(f, values) is False else []
        values = min((each for each in tried if decided(f, each) is not False), key=lambda each: math.prod(each.values()), default=values)
    return values


def _alone(base: Mapping[str, int], multiples: Mapping[str, int], facts: Sequence[n.Expr]) -> dict[str, int]:
    """Sizes enlarged, each by itself, until the facts hold that speak of it alone (`n % 128 == 64`); as they were where a few tries find nothing."""
    values = dict(base)
    for name in values:
        own = none_false([f for f in facts if {x.name for x in walk(f) if isinstance(x, n.Var)} == {name}], [name])
        step = multiples.get(name, 1)
        tried = (values[name] + k * step for k in range(ALONE_TRIES))
        values[name] = next((v for v in tried if own({name: v}) and (v == values[name] or v not in values.values())), values[name])
    return values


def _striding(values: Mapping[str, int], strides: Mapping[str, int], holds: Callable[[Mapping[str, int]], bool]) -> Mapping[str, int] | None:
    """Sizes with strides that are larger than all of them; None where these do not keep what is wanted."""
    least = 1 << (max(values.values(), default=0) // min(STRIDES)).bit_length()
    for factor in (least << k for k in range(5 if strides else 1)):
        found = {**values, **{name: value * factor for name, value in strides.items()}}
        if holds(found):
            return found
    return None


def grid_extents(binding: Binding) -> list[n.Expr]:
    """The extents of the grid over sizes, compile-time values put in; [] where they cannot be read."""
    held: dict[str, n.Expr] = {x: n.Var(x, I32) for x in binding.sizes}
    held |= {k: const(v) for k, v in binding.metas.items() if isinstance(v, int) and not isinstance(v, bool)}
    try:
        return list(expressions({str(k): g for k, g in enumerate(binding.grid)}, held, "extent").values())
    except KirError:
        return []


def tiles(program: n.Program, sizes: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Sizes that the grid, a loop or an index of a program takes in tiles, each with the extent of the tile: also where what is divided is as large as one
    (`end - begin`), or a counter that goes as far."""
    seen = set()
    for k in program.kernels:
        ends = _ends(k, sizes)
        for e in (*(y for a in k.grid for y in walk(a.extent)), *walk(k)):
            over: n.Expr | None = None
            match e:
                case n.Binary(op="ceildiv" | "floordiv" | "tdiv", a=over, b=n.Const(value=int() as by)) if by > 1:
                    pass
                case n.For(hi=over, step=n.Const(value=int() as by)) if by > 1:
                    pass
                case n.While(cond=n.Binary() as cond) if (whole := _whole_tiles(cond)) is not None:
                    over, by = whole
                case _:
                    continue
            end = evaluated(over, ends)
            size = next((x for x in sizes if end is not None and abs(end - ends[x]) < by), "")
            if size and (size, by) not in seen:
                seen.add((size, by))
                yield size, by


def longer(program: n.Program, sizes: Sequence[str]) -> tuple[str, ...]:
    """That sizes are larger than the tiles that a program takes of them, as facts."""
    return tuple(f"{x} >= {by + 1}" for x, by in tiles(program, sizes) if by <= MOST_TILE)


def _ends(k: n.Kernel, sizes: Sequence[str]) -> dict[str, int]:
    """Large values of sizes, far apart and multiples of what tiles are, and what is named in a kernel at these, counters at their ends."""
    values = {name: WHOLE * (101 + 2 * i) for i, name in enumerate(sizes)}
    for x in (*k.grid, *walk(k)):
        named, e = (x.name, x.extent) if isinstance(x, n.Axis) else (x.var.name, x.hi) if isinstance(x, n.For) and int_value(x.step) == 1 else (
            x.names[0], x.value) if isinstance(x, n.Let) and len(x.names) == 1 else ("", None)
        if e is not None and named not in values and (value := evaluated(e, values)) is not None:
            values[named] = value - (not isinstance(x, n.Let))
    return values


def divisions(binding: Binding, program: n.Program) -> Iterator[str]:
    """That a size which is taken in tiles is a multiple of the tile, as facts that the binding does not have. Not of a size that the kernel compares places
    with: it is made for those that are none, and where it leaves a tensor all the same it is wrong. Where tiles begin (`16 * warp >= M`) is no such place."""
    steps = {s.var.name: int(s.step.value) for k in program.kernels for s in walk(k) if isinstance(s, n.For) and isinstance(s.step, n.Const)}
    compared = [x for k in program.kernels for x in walk(k) if isinstance(x, n.Binary) and x.op in ("lt", "le", "gt", "ge")]
    named = {s.names[0]: s.value for k in program.kernels for s in walk(k) if isinstance(s, n.Let) and len(s.names) == 1}
    begun = [(size.name, by) for x in compared for side, size in ((x.a, x.b), (x.b, x.a)) if isinstance(size, n.Var) and (by := _tile_before(side, named)) > 1]
    whole = {id(s.cond) for k in program.kernels for s in walk(k) if isinstance(s, n.While)}
    ragged = {v.name for x in compared if not (
        (id(x) in whole and _whole_tiles(x) is not None) or any(
            isinstance(side, n.Const) or _whole_steps(side, steps) or _tile_before(side, named) > 1 for side in (x.a, x.b)))
              for v in walk(x) if isinstance(v, n.Var)}
    taken = dict.fromkeys([*tiles(program, binding.sizes), *(each for each in begun if each[0] in binding.sizes)])
    yield from (fact for x, by in taken if x not in ragged and (fact := f"{x} % {by} == 0") not in binding.facts)


def _whole_tiles(cond: n.Binary) -> tuple[n.Expr, int] | None:
    """What a loop goes over and by how much, where it goes on as long as so many are left: `begin + 128 <= size`, `begin < size - 127`."""
    a, b = {"le": (cond.a, cond.b), "lt": (cond.a, cond.b), "ge": (cond.b, cond.a), "gt": (cond.b, cond.a)}.get(cond.op, (None, None))
    if a is None or b is None or not (isinstance(a.type, DType) and a.type.is_integer):
        return None
    by = int(polynomial(a).get((), 0)) - int(polynomial(b).get((), 0)) + (cond.op in ("lt", "gt"))
    return (b, by) if by > 1 else None


def _tile_before(e: n.Expr, named: Mapping[str, n.Expr]) -> int:
    """Of what the number of a place is a multiple, where it is one of some tile's; 1 for any other place."""
    e = named.get(e.name, e) if isinstance(e, n.Var) else e
    terms = polynomial(e) if isinstance(e, n.Binary) and isinstance(e.type, DType) and e.type.is_integer else {}
    return math.gcd(*terms.values()) if terms and () not in terms else 1


def _whole_steps(e: n.Expr, steps: Mapping[str, int]) -> bool:
    """Whether a number is where a loop of steps is, whole steps on: what is compared with it says whether there is another step, not where a size ends."""
    terms = polynomial(e)
    moved = [steps[m[0].name] for m in terms if len(m) == 1 and isinstance(m[0], n.Var) and steps.get(m[0].name, 1) > 1]
    known = all(not m or (len(m) == 1 and isinstance(m[0], n.Var) and steps.get(m[0].name, 1) > 1) for m in terms)
    return len(moved) == 1 and known and all(c % moved[0] == 0 for m, c in terms.items() if not m)


def parted(program: n.Program, sizes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Sizes that a program divides by other sizes, each with that one: channels by groups, rows of a matrix by those that share a scale."""
    seen = set()
    for e in (x for k in program.kernels for x in walk(k)):
        if isinstance(e, n.Binary) and e.op in ("floordiv", "tdiv"):
            a, b = _bare(e.a), _bare(e.b)
            if isinstance(a, n.Var) and isinstance(b, n.Var) and a.name != b.name and {a.name, b.name} <= set(sizes) and (a.name, b.name) not in seen:
                seen.add((a.name, b.name))
                yield a.name, b.name


def cut(program: n.Program, sizes: Sequence[str]) -> dict[tuple[str, int], None]:
    """Sizes that a program divides by numbers, a rest left out, each with that number: rows of packed words."""
    return dict.fromkeys((a.name, int(e.b.value)) for k in program.kernels for e in walk(k)
                         if isinstance(e, n.Binary) and e.op in ("floordiv", "tdiv") and isinstance(e.b, n.Const) and e.b.value > 1
                         and isinstance(a := _bare(e.a), n.Var) and a.name in sizes)


def _bare(e: n.Expr) -> n.Expr:
    while isinstance(e, n.Cast):
        e = e.x
    return e


def quotients(binding: Binding) -> Iterator[str]:
    """That a size is a multiple of another one where a scalar counts how often it has it, as facts that the binding does not have."""
    for text in binding.scalars.values():
        for a, b in re.findall(r"\b([A-Za-z_]\w*) // ([A-Za-z_]\w*)\b", str(text)):
            if a in binding.sizes and b in binding.sizes and (fact := f"{a} % {b} == 0") not in binding.facts:
                yield fact


def ran(program: n.Program, sizes: Mapping[str, int], places: int = PLACES, mode: Literal["fast", "check"] = "fast", kept: Kept | None = None,
        parts: int = 0) -> Result | None:
    """A run at small sizes, which says how far it reached; None where it cannot be made. Tensors of whole numbers count down from
    `places` (modulo it) and so again, the first from 0, the second from the largest, ..: two of them reach as far as all; up, where `places` is
    negative. Tables of where parts begin and end rise to `parts`, where that is not 0. What tensors hold is `kept` for other runs of the same program."""
    rising = offset_tables(program) if parts else frozenset[str]()
    if any(len(r.index) not in (0, len(r.buffer.shape)) for k in program.kernels for r in regions(k)):
        return None  # a box of a tensor that is none of so many axes
    scalars: dict[str, int | float] = {
        p.name: sizes.get(p.name, 0.5 if p.of.is_float else 1) for p in program.params if isinstance(p.of, DType) and p.value is None}
    known = {p.name: const(scalars[p.name], p.of) for p in program.params if p.name in scalars and isinstance(p.of, DType)}
    arrays: Arrays = {}
    kept = {} if kept is None else kept
    turn = 0
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            shape = [int_value(substitute(d, known)) or 0 for d in p.of.shape]
            if (count := math.prod(shape)) > MOST_ELEMENTS:
                return None
            kind, whole = storage(p.of.dtype), not p.of.dtype.is_float
            end = parts if p.name in rising and whole else 0
            key: tuple[str | int, ...] = (p.name, *map(int, shape), places if whole else 0, end)
            if key not in kept:
                kept[key] = (_parts(count, end) if end else _whole(count, turn, places)).reshape(shape).astype(kind) if whole else np.resize(
                    _normal(len(arrays) - turn).astype(kind), shape)
            arrays[p.name] = kept[key]
            turn += whole
    ctas = math.prod(int_value(substitute(a.extent, known)) or 1 for k in program.kernels[:1] for a in k.grid)
    threads = ctas * (int_value(program.kernels[0].threads) or 1)
    try:
        return run(program, arrays, scalars, most_steps=min(MOST_STEPS, MOST_WORK // max(threads, 1)), ends=True, mode=mode)
    except KirError:
        return None


@cache
def _normal(turn: int) -> np.ndarray[Any, Any]:
    """Numbers for the tensor of real numbers that has this turn."""
    random = np.random.default_rng(0)
    return [random.standard_normal(4099) for _ in range(turn + 1)][-1]

def _parts(count: int, end: int) -> np.ndarray[Any, Any]:
    """Where parts begin and end, of as many elements each as makes them end there."""
    return np.minimum(np.arange(count) * -(-end // max(count - 1, 1)), end)


def _whole(count: int, turn: int, places: int) -> np.ndarray[Any, Any]:
    return (np.arange(count) + turn) % -places if places < 0 else -(np.arange(count) + turn) % places


def leaves(found: Result, name: str, binding: Binding) -> bool:
    """Whether a run left a tensor."""
    return any(x.kind == "bounds" and x.buffer in (name, f"{name}_flat", binding.tensors[name].name) for x in found.findings)


def shares(program: n.Program, sizes: Sequence[str]) -> list[str]:
    """What a program divides a size into, as it counts its groups: `ceildiv(columns, 16)`, also as `(columns + 15) // 16`, or as each takes so many."""
    whole = cut(program, sizes)
    return [f"ceildiv({x}, {by})" for x, by in tiles(program, sizes) if (x, by) not in whole]


def _multiple(fact: n.Expr) -> tuple[str, int] | None:
    """The size and the number that a fact says it is a multiple of; None for other facts."""
    match fact:
        case n.Binary(op="eq", a=n.Binary(op="mod", a=n.Var(name=name), b=n.Const(value=int() as by)), b=n.Const(value=0)) if by > 0:
            return name, by
        case _:
            return None


def _least(fact: n.Expr) -> bool:
    """Whether a fact only says that a size is at least so much."""
    return isinstance(fact, n.Binary) and fact.op == "ge" and isinstance(fact.a, n.Var) and isinstance(fact.b, n.Const)
