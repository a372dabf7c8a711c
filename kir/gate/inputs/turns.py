"""Values of single elements at which a program decides otherwise: inputs that no draw would hit.

A comparison, or a rounding to whole numbers, that looks at one element of one input is a function of that element alone. It is worked out, by the
interpreter, over a bank of values: whole numbers and halves, values of all magnitudes and bit patterns, and what can be made of the program's own
numbers. Where it comes out in a way that usual draws seldom bring about, inputs are drawn that do.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, I64, DType, TileType, dtype_of, shape_of
from kir.ir.visit import children, names_read, once, statements, transform, walk
from kir.problem.draws import AROUND, AT, TIMES, generator, numpy_dtype

Array = NDArray[Any]
ROUNDINGS = frozenset({"floor", "ceil", "trunc", "round_even", "round_away"})
MOST_ATOMS, MOST_NODES, MOST_NUMBERS, MOST_VALUES = 16, 120, 12, 24
"""Comparisons that are looked at, nodes of one, numbers of a program that are put together, and values for one input."""
MOST_AROUND = 4
"""Numbers of a program about which inputs are drawn."""
LEAST_THRESHOLD, MOST_THRESHOLD = 1e-36, 2.0**-8
"""Between which a number that elements are compared with is one below which whole inputs are drawn."""
LANES, RANDOM, USUAL = 64, 4096, 4096
"""Threads of a probe, values of each random kind in a bank, and usual ones at its beginning."""
SELDOM = 0.02
"""What share of usual values has an outcome that tests need not be made for."""
LEAST, SMALL, LARGEST = 2.0**-10, 64.0, 2.0**17
"""A magnitude under which values are taken last, one up to which values are drawn by themselves too, for references that are exact there alone, and the most
that is drawn: beyond what f16 holds numbers stand for infinity."""


@dataclass(frozen=True)
class Atom:
    """A condition on one element of an input: `cond` speaks of the variable `%x` alone, which has the type of what is loaded."""

    tensor: str
    loaded: n.Load
    cond: n.Expr
    rounds: bool = False


def turns(program: n.Program, names: Mapping[str, str] | None = None) -> list[str]:
    """Distributions in which one element in four of an input is such a value, for each input that has some; `names` gives the tensor of a parameter."""
    out: list[str] = []
    for name, values in once(program, "_turns", lambda: turning(program)).items():
        few, tensor = [v for v in values if abs(v) <= SMALL], name if names is None else names.get(name, name)
        out += [f"{AT}{tensor}={';'.join(map(repr, some))}" for some in (values, few if few != values else []) if some]
    return out


def turning(program: n.Program) -> dict[str, list[float | int]]:
    """By input, values of an element with which a condition comes out as it seldom does; of those about a turn both sides, and what lies between two."""
    found: dict[tuple[str, DType, tuple[int, ...]], list[Atom]] = {}
    for atom in _atoms(program):
        found.setdefault((atom.tensor, dtype_of(atom.loaded.type), tuple(d for d in shape_of(atom.loaded.type) if isinstance(d, int))), []).append(atom)
    out: dict[str, list[float | int]] = {}
    left = MOST_ATOMS
    for (tensor, dtype, shape), atoms in found.items():
        atoms, left = atoms[:left], left - len(atoms[:left])
        if not atoms:
            break
        values = bank(dtype, _numbers(program))
        outcomes = _outcomes(dtype, shape, atoms, values)
        seldom = _seldom(values, outcomes, atoms) if outcomes is not None else []
        out[tensor] = list(dict.fromkeys([*out.get(tensor, []), *seldom]))[:MOST_VALUES]
    return {tensor: values for tensor, values in out.items() if values}


def _seldom(values: Array, outcomes: Array, atoms: Sequence[Atom]) -> list[float | int]:
    """Values of a bank with an outcome that usual ones seldom have, and about turns that usual ones seldom come near."""
    wide = values.astype(np.float64) if values.dtype.kind not in "iu" else values
    chosen: list[Any] = []
    turns_at: list[Any] = []
    order = np.argsort(wide, kind="stable")
    for atom, outcome in zip(atoms, outcomes, strict=True):
        for holds in (True, False):
            where = np.flatnonzero(outcome == holds)
            if not len(where) or (outcome[:USUAL] == holds).mean() >= SELDOM or (atom.rounds and not holds):
                continue
            by_size = where[np.argsort(np.where((wide[where] != 0) & (np.abs(wide[where]) < LEAST), np.inf, np.abs(wide[where])), kind="stable")]
            chosen += [wide[i] for i in (*by_size[:6], by_size[len(by_size) // 2])]
        changes = np.flatnonzero(outcome[order][1:] != outcome[order][:-1])
        if len(changes) <= 4:
            turns_at += [v for i in changes for side in (0, 1) if abs(v := wide[order[i + side]]) >= LEAST]
    turns_at = sorted(set(turns_at))
    if len(turns_at) > 2:
        chosen += [(a + b) / 2 if isinstance(a, float) else (int(a) + int(b)) // 2 for a, b in pairwise(turns_at)]
    found = [*chosen, *turns_at]
    exact: list[Any] = [int(v) for v in found] if values.dtype.kind in "iu" else [float(v) for v in np.asarray(found, dtype=values.dtype)]
    return [v for v in dict.fromkeys(exact) if isinstance(v, int) or (math.isfinite(v) and abs(v) <= LARGEST)]


def about(program: n.Program, *others: n.Program) -> list[str]:
    """Distributions about numbers that a program has: what it compares with, or begins a search from. Those first that no other program has."""
    found, known = numbers_of(program), set().union(*map(numbers_of, others))
    return [f"{AROUND}{c!r}" for c in sorted(found, key=lambda c: (c in known, -abs(c)))[:MOST_AROUND]] + _below_thresholds(program, others)


def _below_thresholds(program: n.Program, others: Sequence[n.Program]) -> list[str]:
    """Inputs that are all smaller than a small number that an element is compared with: beside others it is lost whether they count."""
    def small(of: n.Program) -> set[float]:
        return {abs(float(x.value)) for atom in _atoms(of) for x in walk(atom.cond) if isinstance(x, n.Const) and x.dtype.is_float
                and LEAST_THRESHOLD < abs(float(x.value)) < MOST_THRESHOLD}
    return [f"{TIMES}{c / 8!r}" for c in sorted(small(program) - set().union(*map(small, others)))[:1]]


def numbers_of(program: n.Program) -> set[float]:
    """The floats in a program's text, but for small and for very large ones."""
    return {float(x.value) for k in program.kernels for x in walk(k) if isinstance(x, n.Const) and x.dtype.is_float and 2 < abs(float(x.value)) < LARGEST}


# ------------------------------------------------------------------------------------------------------------------------- conditions

def _atoms(program: n.Program) -> Iterator[Atom]:
    """Comparisons and roundings of a program that look at one element of one input and at nothing else."""
    given = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out"}
    seen: set[tuple[str, n.Expr]] = set()
    for kernel in program.kernels:
        lets: dict[str, list[n.Expr]] = {}
        memory = {name: name for name in given}
        for s in statements(kernel.body):
            if isinstance(s, n.Let) and len(s.names) == 1:
                lets.setdefault(s.names[0], []).append(s.value)
            elif isinstance(s, n.View) and s.at.buffer.name in memory and s.buffer.dtype == s.at.buffer.dtype:
                memory[s.buffer.name] = memory[s.at.buffer.name]
        named = {name: values[0] for name, values in lets.items() if len(values) == 1}
        for e in walk(kernel):
            rounds = False
            match e:
                case n.Binary(op=op) if op in n.COMPARISONS and e.a.type is not None and e.b.type is not None:
                    cond: n.Expr = e
                case n.Binary(op="min" | "max", a=a, b=b) if a.type is not None and b.type is not None:
                    cond = build.compare("lt", a, b)
                case n.Call(fn=fn, args=(n.Expr() as x,)) if fn in ROUNDINGS and x.type is not None:
                    part = build.binary("sub", x, build.call("floor", x))  # at halves and whole numbers roundings differ
                    half, none = (build.compare("eq", part, build.const(v, dtype_of(x.type))) for v in (0.5, 0.0))
                    cond, rounds = build.logical_or(half, none), True
                case _:
                    continue
            if (atom := _atom(cond, named, memory, rounds)) is not None and (key := (atom.tensor, atom.cond)) not in seen:
                seen.add(key)
                yield atom


def _atom(cond: n.Expr, named: Mapping[str, n.Expr], memory: Mapping[str, str], rounds: bool) -> Atom | None:
    """A condition as one on `%x`, with names replaced by what they stand for; None where it speaks of more than one element."""
    for _ in range(MOST_NODES):
        if not any(name in named for name in _names(cond)):
            break
        cond = transform(cond, lambda old, new: named.get(old.name, new) if isinstance(old, n.Var) else new)
        if sum(1 for _ in walk(cond)) > MOST_NODES:
            return None
    loads = {x for x in walk(cond) if isinstance(x, n.Load)}
    if len(loads) != 1:
        return None
    load = loads.pop()
    tensor = memory.get(load.at.buffer.name)
    shape = shape_of(load.type)
    if tensor is None or not all(isinstance(d, int) for d in shape) or dtype_of(load.type).is_bool:
        return None
    made: n.Expr = transform(cond, lambda old, new: n.Var("%x", load.type) if old == load else new)
    simple = all(isinstance(x, (n.Const, n.Var, n.Unary, n.Binary, n.Select, n.Cast)) or (isinstance(x, n.Call) and x.fn in PURE) for x in walk(made))
    if not simple or names_read(made) != {"%x"} or shape_of(made.type) != shape:
        return None
    return Atom(tensor, load, made, rounds)


PURE = ROUNDINGS | {"abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "fma", "rcp"}
"""What a condition may call and still depend on the element alone."""


def _names(e: n.Node) -> Iterator[str]:
    """Variables of an expression, those of places that it loads from left out."""
    if isinstance(e, n.Var):
        yield e.name
    elif not isinstance(e, n.Load):
        for x in children(e):
            yield from _names(x)


def _outcomes(dtype: DType, shape: tuple[int, ...], atoms: Sequence[Atom], values: Array) -> Array | None:
    """Whether each condition holds with each value: [atoms, values]. None where the interpreter does not work it out."""
    many = math.prod(shape) or 1
    each = max(1, LANES // many)
    steps = -(-len(values) // (many * each))
    dims = "".join(f", {d}" for d in shape)
    spans = "".join(f", 0 +: {d}" for d in shape)
    x = n.Var("v", TileType(dtype, shape) if shape else dtype)
    lines = [f"kir 1\nprogram probe\n  in X: {dtype.name}[{steps}, {each}{dims}]\n  out Y: i32[{len(atoms)}, {steps}, {each}{dims}]",
             f"kernel main grid (b: {steps}) threads {LANES if not shape else 32}",
             f"  for t in 0..{each}{' parallel thread' if not shape else ''}", f"    let v = X[b, t{spans}]"]
    for i, atom in enumerate(atoms):
        cond = expr_text(transform(atom.cond, lambda old, new: x if isinstance(old, n.Var) else new))
        lines.append(f"    Y[{i}, b, t{spans}] = select({cond}, 1, 0)")
    padded = np.resize(values, steps * each * many).reshape(steps, each, *shape)
    try:
        with np.errstate(all="ignore"):
            found = run(parse_program("\n".join(lines) + "\n"), {"X": padded}).outputs["Y"]
    except (KirError, ArithmeticError):
        return None
    held: Array = found.reshape(len(atoms), -1)[:, :len(values)] != 0
    return held


# ------------------------------------------------------------------------------------------------------------------------------ values

def _numbers(program: n.Program) -> list[n.Const]:
    """The program's own numbers, those of conditions as of sums."""
    return list(dict.fromkeys(x for k in program.kernels for x in walk(k) if isinstance(x, n.Const) and x.dtype not in (BOOL, I64)))


def bank(dtype: DType, numbers: Sequence[n.Const]) -> Array:
    """Values of a dtype, usual ones first, all finite: every one of a narrow dtype, of a wide one those that programs may look for."""
    own = numpy_dtype(dtype.name)
    random = generator("bank", dtype.name)
    if dtype.is_integer:
        info = np.iinfo(own)
        usual = random.integers(0, 8, USUAL) if info.min == 0 else random.integers(-8, 8, USUAL)
        told = [int(c.value) + d for c in numbers for d in (-1, 0, 1) if math.isfinite(c.value)]
        powers = [s * (1 << k) + d for k in range(dtype.bits) for d in (-1, 0, 1) for s in (1, -1)]
        whole = {*range(-4096, 4097), *told, *powers, *map(int, random.integers(-(1 << 20), 1 << 20, RANDOM))}
        return np.concatenate([usual.astype(own), np.array(sorted(v for v in whole if info.min <= v <= info.max), own)])
    usual = random.normal(0.0, 1.0, USUAL).astype(own)
    if dtype.bits <= 16:
        every = np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"u{dtype.bits // 8}").view(own)
        return np.concatenate([usual, every[np.isfinite(every.astype(np.float64))]])
    made = _made_of(numbers)
    with np.errstate(all="ignore"):
        patterns = random.integers(0, 1 << 32, RANDOM, dtype=np.uint32).view(np.float32).astype(np.float64)
        many = np.concatenate([np.arange(-4096, 4097) * 0.5, np.arange(2049, 8193) * 1.0, np.arange(-500, 501) * 0.1, made, patterns,
                               np.exp2(random.uniform(-20, 17, RANDOM)) * random.choice([-1.0, 1.0], RANDOM)]).astype(own)
        near = np.asarray(made, own)
        many = np.concatenate([many, np.nextafter(near, own.type(np.inf)), np.nextafter(near, own.type(-np.inf))])
    many = many[np.isfinite(many)]
    return np.concatenate([usual, np.unique(many)])


def _made_of(numbers: Sequence[n.Const]) -> list[float]:
    """What a condition on a number may have it compared with: each number, the float of its bits, and sums, products and quotients of two."""
    own = sorted({float(c.value) for c in numbers if math.isfinite(c.value)}, key=lambda v: (-abs(v), v))[:MOST_NUMBERS]
    bits = [float(np.array([int(c.value) & 0xffffffff], np.uint32).view(np.float32)[0]) for c in numbers if c.dtype.is_integer]
    out = [*own, *(v for v in bits if math.isfinite(v))]
    for a, b in permutations(own, 2):
        out += [a + b, a - b, a * b, *([a / b] if b else [])]
    for a in own:
        out += [*([math.sqrt(a), math.log(a), math.log2(a), 1 / a] if a > 0 else []), *([math.exp(a)] if abs(a) < 80 else [])]
    limit = float(ml_dtypes.finfo(np.float32).max)
    return [s * v for v in dict.fromkeys(out) if abs(v) < limit for s in (1.0, -1.0)]


__all__ = ["about", "numbers_of", "turning", "turns"]
