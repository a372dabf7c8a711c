"""Elements of a fragment at a fixed index: `for a, i in T.Parallel(2, n): if a == 1: .. fragment[a, i] ..`.

TileLang distributes a fragment's elements to threads by the variables of the loop around an access, so an index that is a number names no thread
(its loops refuse all but `fragment[0]`). The loop goes over all of that dimension instead, and one round of it does something.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import BOOL, I32, DType
from kir.ir.visit import transform, walk

E = TypeVar("E", bound=n.Node)
Axes = list[tuple[n.Var, int | n.Expr]]


class Picks:
    """The fixed indices of fragments in what a loop over elements does: an axis for each, and the conditions on them."""

    def __init__(self, scalars: Sequence[n.Node], fresh: Callable[[], n.Var]) -> None:
        found: dict[tuple[n.Buffer, int], set[int]] = {}
        self.order: list[tuple[n.Buffer, int]] = []
        for at in (x for s in scalars for x in walk(s) if isinstance(x, n.Region) and _is_spread(x)):
            for d, i in enumerate(at.index):
                key, value = (at.buffer, d), int_value(i) if isinstance(i, n.Expr) else None
                found.setdefault(key, set()).add(-1 if value is None or int_value(at.buffer.shape[d]) == 1 else value)
                self.order += [key] if key not in self.order else []
        self.axes: dict[tuple[str, int], n.Var] = {}
        self.extents: list[tuple[n.Var, int, int]] = []
        for buffer, d in self.order:
            values, extent = found[buffer, d], buffer.shape[d]
            known = int_value(extent)
            (value,) = values if len(values) == 1 else (-1,)
            if known is None or not 0 <= value < known:
                continue
            same = next((v for v, e, at in self.extents if e == known and at == value and v not in {
                self.axes.get((buffer.name, k)) for k in range(len(buffer.shape))}), None)
            v = same if same is not None else fresh()
            if same is None:
                self.extents.append((v, known, value))
            self.axes[buffer.name, d] = v

    def over(self, axes: Axes) -> Axes:
        """The axes of the loop, those of fixed indices first."""
        return [*((v, e) for v, e, _ in self.extents), *axes]

    def cond(self) -> n.Expr | None:
        """What holds in the round that does something; None where there is no fixed index."""
        made: n.Expr | None = None
        for v, _, value in self.extents:
            part = build.compare("eq", v, build.const(value, I32))
            made = part if made is None else build.binary("and", made, part)
        return made

    def of(self, scalar: E) -> E:
        """What is done, with the axes in place of the fixed indices."""
        if not self.axes:
            return scalar

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not isinstance(new, n.Region) or not _is_spread(new):
                return new
            index = [build.cast(v, _dtype(i)) if isinstance(i, n.Expr) and (v := self.axes.get((new.buffer.name, d))) is not None else i
                     for d, i in enumerate(new.index)]
            return n.Region(new.buffer, tuple(index))
        made: E = transform(scalar, leave)
        return made


def _is_spread(at: n.Region) -> bool:
    """Whether a place is one of several elements that threads have, and not the first of all."""
    return at.buffer.space == "fragment" and any(not isinstance(i, n.Expr) or int_value(i) != 0 for i in at.index)


def _dtype(e: n.Expr) -> DType:
    return e.type if isinstance(e.type, DType) else BOOL


__all__ = ["Picks"]
