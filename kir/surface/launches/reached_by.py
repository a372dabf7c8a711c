"""Which sizes an access to a tensor depends on: what its extent may be made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.build import polynomial
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import names_read, regions, walk
from kir.surface.launches.values import evaluated

MOST_PRODUCT = 7
"""Sizes of which a tensor's length may be the product where it is exactly as large as what is reached."""


def sizes_reached_by(program: n.Program, name: str, sizes: Collection[str]) -> frozenset[str]:
    """Those of `sizes` that decide where accesses to a tensor are: in an index, in what it is made of, in the bounds of loops around them, in conditions
    that they stand under, and in the grid."""
    made: dict[str, set[str]] = {}
    asked: set[str] = set()
    own = {name, f"{name}_flat"}

    def note(what: str, e: n.Node | None) -> None:
        if e is not None:
            made.setdefault(what, set()).update(names_read(e))

    def visit(block: n.Block, around: frozenset[str]) -> None:
        for s in block:
            inner = around
            match s:
                case n.Let():
                    for each in s.names:
                        note(each, s.value)
                case n.Alloc():
                    note(s.buffer.name, s.init)
                case n.Store() if s.at.buffer.space in ("register", "fragment", "shared"):
                    note(s.at.buffer.name, s.value)
                    made.setdefault(s.at.buffer.name, set()).update(around)
                case n.View() if s.at.buffer.name in own:
                    own.add(s.buffer.name)
                case n.For():
                    note(s.var.name, s.lo)
                    note(s.var.name, s.hi)
                    inner = around | {s.var.name}
                case n.If():
                    inner = around | names_read(s.cond)
                case _:
                    pass
            if not isinstance(s, n.View):
                blocks = [b for b in (getattr(s, x, None) for x in ("body", "then", "orelse")) if isinstance(b, tuple)]
                for b in blocks:
                    visit(b, frozenset(inner))
                for r in () if blocks else regions(s):
                    if r.buffer.name in own:
                        asked.update(inner)
                        for i in r.index:
                            asked.update(names_read(i))
                for x in () if blocks else walk(s):
                    if isinstance(x, n.Load) and x.mask is not None and x.at.buffer.name in own:
                        asked.update(names_read(x.mask))
    for k in program.kernels:
        for a in k.grid:
            note(a.name, a.extent)
        visit(k.body, frozenset())
    while more := {y for x in asked for y in made.get(x, ())} - asked:
        asked |= more
    return frozenset(asked) & frozenset(sizes)


def rows_of(program: n.Program, name: str, sizes: Collection[str]) -> tuple[str, str] | None:
    """How many rows a flat tensor has, and how long they are, where an index says it: what a tensor holds ("" rows: that is for its numbers to say), or else a
    counter, times sizes. None where none does."""
    found: list[tuple[str, str]] = []
    for k in program.kernels:
        named = {s.names[0]: s.value for s in walk(k) if isinstance(s, n.Let) and len(s.names) == 1}
        ends = {a.name: a.extent for a in k.grid} | {s.var.name: s.hi for s in walk(k) if isinstance(s, n.For)}
        indices = [r.index[0] for r in regions(k) if r.buffer.name in (name, f"{name}_flat") and len(r.index) == 1]
        for atoms, often in (term for i in indices if isinstance(i, n.Expr) for term in polynomial(_plain(i, named)).items()):
            length = [a.name for a in atoms if isinstance(a, n.Var) and a.name in sizes]
            rows = [a for a in atoms if not isinstance(a, n.Var) or a.name not in sizes]
            if often != 1 or len(rows) != 1 or not length:
                continue
            counted = ends.get(rows[0].name) if isinstance(rows[0], n.Var) else None
            if _is_held(rows[0], named):
                found.append(("", " * ".join(length)))
            elif counted is not None and names_read(counted) <= {*sizes}:
                found.append((expr_text(counted), " * ".join(length)))
    return min(found, key=lambda each: (bool(each[0]), -each[1].count("*")), default=None)


def _is_held(e: n.Expr, named: Mapping[str, n.Expr]) -> bool:
    """Whether a number is, or is made of, one that a tensor holds."""
    return any(isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name in named and _is_held(named[x.name], {k: v for k, v in named.items() if k != x.name}))
               for x in walk(e))


def _plain(e: n.Expr, named: Mapping[str, n.Expr]) -> n.Expr:
    """An index without what its parts are called, and without their widths."""
    match e:
        case n.Cast(x=x):
            return _plain(x, named)
        case n.Var(name=name) if name in named:
            return _plain(named[name], {k: v for k, v in named.items() if k != name})
        case n.Var(name=name):
            return n.Var(name, I32)
        case n.Const(value=int() as value):
            return n.Const(value, I32)
        case n.Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
            parts = _plain(a, named), _plain(b, named)
            return n.Binary(op, *parts) if all(x.type == I32 for x in parts) else e
        case _:
            return e


class Shape(Protocol):
    """A shape, and how many elements it has at each of some sizes."""

    @property
    def of(self) -> tuple[str | int, ...]:
        """Its extents."""
        ...

    @property
    def elements(self) -> tuple[int, ...]:
        """How many elements it has."""
        ...


S = TypeVar("S", bound=Shape)


def multiples(program: n.Program, sizes: Collection[str]) -> frozenset[int]:
    """The whole numbers up to 8 that a program multiplies sizes by: `row * C * 3`."""
    factors = (x for k in program.kernels for x in walk(k) if isinstance(x, n.Binary) and x.op == "mul")
    pairs = ((a.value, b) for x in factors for a, b in ((x.a, x.b), (x.b, x.a)) if isinstance(a, n.Const) and type(a.value) is int)
    return frozenset(k for k, of in pairs if 1 < k <= 8 and not names_read(of).isdisjoint(sizes))


def least_with(shapes: Sequence[S], ends: Sequence[int], often: Collection[int], times: Callable[[tuple[str | int, ...]], S]) -> S | None:
    """The first shape that has what is reached (`ends`); or, where that is less, the least of whole multiples (as `often` as the program multiplies sizes, the
    same at all sizes) of one of them: queries, keys and values in one tensor are three times the product of their sizes (`times` makes it of its extents).
    None where none has it."""
    least = next((c for c in shapes if all(have >= max(end, 1) for have, end in zip(c.elements, ends))), None)
    best: tuple[S, int] | None = None
    below = least.elements if least is not None else ()
    for c in shapes:
        rounds = {-(-end // x) if x else 0 for x, end in zip(c.elements, ends)}
        k = max(rounds, default=0)
        if len(rounds) == 1 and k in often and (not below or all(k * x < y for x, y in zip(c.elements, below))):
            best, below = (c, k), tuple(k * x for x in c.elements)
    return least if best is None else times((f"{best[0].of[0]} * {best[1]}", *best[0].of[1:]))


def product_of_sizes(ends: tuple[int, ...], sizes: tuple[tuple[str, tuple[int, ...]], ...], most: int = MOST_PRODUCT) -> tuple[str, ...] | None:
    """Sizes whose product is as many elements as are reached in each run, each once."""
    if all(end == 1 for end in ends):
        return ()
    for k, (name, values) in enumerate(sizes if most else ()):
        if min(values) > 0 and all(end % v == 0 for end, v in zip(ends, values)) and (
                rest := product_of_sizes(tuple(end // v for end, v in zip(ends, values)), sizes[k + 1:], most - 1)) is not None:
            return (name, *rest)
    return None


def as_many_for_each(ends: tuple[int, ...], sizes: Mapping[str, tuple[int, ...]]) -> tuple[str, int] | None:
    """A whole number of elements for each of the product of all these sizes, the same in runs in which that product differs: `batch * 8` groups of 256
    elements each, of which a kernel knows both numbers. None where it is none."""
    of = [math.prod(each) for each in zip(*sizes.values())]
    times = {divmod(end, have) for end, have in zip(ends, of) if have}
    if len({*of}) < len(ends) or len(times) != 1 or not of or len(ends) < 2:
        return None
    (often, rest), = times
    return (" * ".join(sizes), often) if often > 1 and rest == 0 else None


def powers_within(binding: Binding) -> list[str]:
    """Parts of sizes, by the powers of two of which facts say that they are multiples."""
    return [f"{m[1]} // {1 << k}" for f in binding.facts if (m := re.fullmatch(r"(\w+) % (\d+) == 0", f)) for k in range(1, int(m[2]).bit_length())
            if int(m[2]) % (1 << k) == 0]


def elements(binding: Binding, name: str, tried: Sequence[Mapping[str, int]], beside: int = -1) -> list[int]:
    """How many elements a tensor has at each of these sizes, an axis `beside` left out; 0 for one that is not dense, or whose shape is open."""
    t, held = binding.tensors[name], {x: n.Var(x, I32) for x in binding.sizes}
    try:
        parts = list(expressions({str(k): d for k, d in enumerate(t.shape) if k != beside}, held, "extent").values())
    except KirError:
        return [0] * len(tried)
    return [math.prod(evaluated(e, sizes) or 0 for e in parts) if t.strides is None else 0 for sizes in tried]
