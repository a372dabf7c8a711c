"""Inputs far from zero against their spread, for programs that take a mean, or another sum, away from what was summed.

There E[x^2] - mean^2 keeps few digits, or none, where two passes keep nearly all. Which of both a program must be is said by what it is judged by: how far
from zero inputs are drawn is what that one's own rounding allows.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import ml_dtypes

from kir.ir import nodes as n
from kir.ir.visit import children, once, statements, walk
from kir.problem.draws import OFFSET, numpy_dtype

S = TypeVar("S")
LADDER = (2.0**14, 2.0**12, 2.0**10, 2.0**9, 2.0**8, 2.0**7, 2.0**6, 2.0**5, 2.0**4)
"""How many times their spread numbers lie from zero, the farthest that what judges gets right."""
LEFT = 1
"""Bits of an element's own dtype that tell it from its neighbors there."""
MOST_ROUNDS = 8
LEAST_FAR, MOST_PLACES = 32, 2
"""Elements of a shape where rows far from zero are tried, and at how many at most."""
ORDER_ALONE = frozenset({"max", "min", "and", "or", "xor", "argmax", "argmin"})
"""Reductions that add nothing up."""
Known = dict[str, frozenset[str]]
"""By name, inputs."""


def offsets(*programs: n.Program, names: Mapping[str, str] | None = None) -> list[str]:
    """Distributions in which inputs of floats that one of the programs adds up, and takes such a sum from, lie far from zero, the farthest first; `names`
    gives the tensor of a parameter of the first one."""
    found = {(names or {}).get(p.name, p.name): p.of.dtype.name for program in programs for p in program.params
             if isinstance(p.of, n.Buffer) and p.name in centered(program)}
    most = min((2.0**-LEFT / float(ml_dtypes.finfo(numpy_dtype(dtype)).eps) for dtype in found.values()), default=0.0)
    return [f"{OFFSET}{','.join(found)}={c!r}" for c in LADDER if c <= most]


def short_rows(shapes: Sequence[S], sizes: Callable[[S], Mapping[str, int]]) -> list[S]:
    """Shapes where rows far from zero are tried: small ones, where sums lose least."""
    return sorted((s for s in shapes if math.prod(sizes(s).values()) >= LEAST_FAR), key=lambda s: math.prod(sizes(s).values()))[:MOST_PLACES]


def first_of(found: Iterator[S | None]) -> list[S]:
    """The first of some that is there, if any."""
    return next(([x] for x in found if x is not None), [])


def centered(program: n.Program) -> frozenset[str]:
    """The inputs of floats of which a sum is taken from them, or from another sum of them."""
    return once(program, "_centered", lambda: _centered(program))


def _centered(program: n.Program) -> frozenset[str]:
    given = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out" and p.of.dtype.is_float}
    data: Known = {name: frozenset({name}) for name in given}
    sums: Known = {}
    out: frozenset[str] = frozenset()
    parts = [(name, value) for k in program.kernels for s in statements(k.body) for name, value in _given(s)] if given else []
    for _ in range(MOST_ROUNDS):
        before = sum(map(len, data.values())) + sum(map(len, sums.values()))
        for name, value in parts:
            data[name] = data.get(name, frozenset()) | _known(value, data)
            sums[name] = sums.get(name, frozenset()) | _summed(value, data, sums)
        if before == sum(map(len, data.values())) + sum(map(len, sums.values())):
            break
    peaks = _exponents(program, parts, given) if given else frozenset()
    for a, b in (sides for k in program.kernels for x in walk(k) if id(x) not in peaks for sides in _differences(x)) if given else ():
        if both := _known(a, data) & _known(b, data):
            out |= both & (_summed(a, data, sums) | _summed(b, data, sums))
    return out & given


def _summed(e: n.Node, data: Known, sums: Known) -> frozenset[str]:
    """The inputs of which a sum of several elements is in an expression."""
    out = _known(e, sums)
    for x in walk(e):
        match x:
            case n.Binary(op="add", a=a, b=b):
                out |= _known(a, data) & _known(b, data)
            case n.Call(fn="fma", args=(a, b, c)):
                out |= (_known(a, data) | _known(b, data)) & _known(c, data)
            case n.Call(fn="reduce" | "scan" | "warp_reduce" | "atomic_add") if dict(x.attrs).get("op") not in ORDER_ALONE:
                out |= _known(x, data)
            case _:
                pass
    return out


def _exponents(program: n.Program, parts: Sequence[tuple[str, n.Node]], given: set[str]) -> frozenset[int]:
    """The nodes (by identity) of what an exponential is taken of, of sums and products alone: a greatest is taken away there, and no mean."""
    values: dict[str, list[n.Node]] = {}
    for name, value in parts:
        values.setdefault(name, []).append(value)
    waiting = [x.args[0] for k in program.kernels for x in walk(k) if isinstance(x, n.Call) and x.fn in ("exp", "exp2", "exp2_approx") and x.args]
    seen: set[int] = set()
    names: set[str] = set()
    while waiting:
        e = waiting.pop()
        seen.add(id(e))
        if isinstance(e, (n.Binary, n.Unary, n.Cast, n.Select)) or (isinstance(e, n.Call) and e.fn in ("fma", "expand", "broadcast", "reshape", "trans")):
            waiting += [x for x in children(e) if isinstance(x, n.Expr)]
        elif isinstance(e, (n.Var, n.Load)) and (name := e.name if isinstance(e, n.Var) else e.at.buffer.name) not in names | given:
            names.add(name)
            waiting += [x for x in values.get(name, []) if isinstance(x, n.Expr)]
    return frozenset(seen)


def _given(s: n.Stmt) -> Iterator[tuple[str, n.Node]]:
    """Names that a statement gives values to, with what they are made of."""
    match s:
        case n.Let():
            yield from ((name, s.value) for name in s.names)
        case n.Alloc(init=n.Expr() as init):
            yield s.buffer.name, init
        case n.View():
            yield s.buffer.name, s.at
        case n.Store():
            yield s.at.buffer.name, s.value
        case n.Copy():
            yield s.dst.buffer.name, s.src
        case n.Mma():
            yield s.acc.buffer.name, n.Call("reduce", (s.a, s.b), (("op", "sum"),))
        case n.Eval(call=n.Call(args=(n.Region() as at, *_)) as call):
            yield at.buffer.name, call
        case _:
            pass


def _differences(x: n.Node) -> Iterator[tuple[n.Node, n.Node]]:
    """Both sides of what is a difference, however it is written."""
    match x:
        case n.Binary(op="sub", a=a, b=b):
            yield a, b
        case n.Binary(op="add", a=a, b=b) if _negative(a) or _negative(b):
            yield a, b
        case n.Call(fn="fma", args=(a, b, c)) if _negative(a) or _negative(b) or _negative(c):
            yield a, c
            yield b, c
        case _:
            pass


def _negative(e: n.Node) -> bool:
    match e:
        case n.Unary(op="neg"):
            return True
        case n.Const(value=value):
            return not isinstance(value, bool) and value < 0
        case n.Binary(op="mul" | "div", a=a, b=b):
            return _negative(a) or _negative(b)
        case _:
            return False


def _known(e: n.Node, of: Known) -> frozenset[str]:
    """What is known of the names in an expression, but for those in places."""
    return frozenset().union(*(of.get(name, frozenset()) for name in _names(e)))


def _names(e: n.Node) -> Iterator[str]:
    if isinstance(e, n.Var):
        yield e.name
    elif isinstance(e, n.Load):
        yield e.at.buffer.name
    elif isinstance(e, n.Region):
        yield e.buffer.name
    else:
        for x in children(e):
            yield from _names(x)


__all__ = ["centered", "first_of", "offsets", "short_rows"]
