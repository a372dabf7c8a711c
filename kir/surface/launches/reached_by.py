"""Which sizes an access to a tensor depends on: what its extent may be made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from kir.ir import nodes as n
from kir.ir.visit import names_read, regions, walk


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
