"""Which sizes an access to a tensor depends on: what its extent may be made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


def several_times(counts: Sequence[tuple[int, ...]], ends: Sequence[int], least: Sequence[int]) -> tuple[tuple[int, ...], int] | None:
    """(numbers of elements, how often) of the least whole multiple, the same at all sizes, of some numbers of elements that has what is reached (`ends`) and
    is less than `least`: queries, keys and values in one tensor are three times the product of their sizes. None where no multiple up to 8 is."""
    best: tuple[tuple[int, ...], int] | None = None
    below = tuple(least)
    for have in counts:
        times = {-(-end // x) if x else 0 for x, end in zip(have, ends)}
        k = max(times, default=0)
        if len(times) == 1 and 1 < k <= 8 and (not below or all(k * x < y for x, y in zip(have, below))):
            best, below = (have, k), tuple(k * x for x in have)
    return best
