"""Rows that each iteration of a loop reads again, kept in a thread's registers."""
from __future__ import annotations

import math
from collections.abc import Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, substitute, walk
from kir.learning.optimize.plan import Plan, Setting
from kir.rewrite import Step, pass_class
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import places

MOST = 128
"""Elements that a thread keeps so at most; half of its registers."""


@dataclass(frozen=True)
class HeldSource:
    """In CUDA, where a kernel says what each of its threads does: what all iterations of a loop read in loops of a fixed length inside, such as the query
    that a thread compares with each key, is loaded once."""

    name: str = "held"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """One for each loop that has such rows, all of them held, the outermost first."""
        written = {s.at.buffer.name for k in program.kernels for s in statements(k.body) if isinstance(s, n.Store)}
        for path, loop in places(program) if setting.surface in ("", "cuda") else ():
            if isinstance(loop, n.For) and loop.kind == "serial" and (rows := _rows(loop, written)):
                at = anchor_text(program, path)
                steps = tuple(Step("hold-elements", {
                    "value": value, "shape": shape, "space": "register", "loops": tuple(f"serial {x}" for x in shape),
                    "place": tuple(f"turn{k}" for k in range(len(shape)))}, at) for value, shape in rows.items())
                yield Plan("held rows", steps, pass_class("hold-elements").claim, False, {"loop": at}, "held rows", setting.surface)


def _rows(loop: n.For, written: set[str]) -> dict[str, tuple[int, ...]]:
    """Texts of the loads that say the same in each iteration but for the counters of short loops inside, with the lengths of these."""
    loops = [s for s in statements(loop.body) if isinstance(s, n.For) and int_value(s.lo) == 0 and int_value(s.step) == 1]
    inner = {s.var.name: length for s in loops if (length := int_value(s.hi))}
    moving, found, left = {loop.var.name, *bound_names(loop.body)} - inner.keys(), dict[str, tuple[int, ...]](), MOST
    for x in (x for s in loop.body for x in walk(s) if isinstance(x, n.Load)):
        names = names_read(x) & inner.keys()
        if x.at.buffer.space != "global" or x.at.buffer.name in written or x.mask is not None or not names or names_read(x) & moving or len(x.at.index) != len(
                x.at.buffer.shape) or any(isinstance(i, n.Span) or isinstance(y, n.Load) for i in x.at.index for y in walk(i)):
            continue
        order = sorted(names, key=lambda name: inner[name])
        text, shape = expr_text(substitute(x, {name: n.Var(f"at{k}", I32) for k, name in enumerate(order)})), tuple(inner[name] for name in order)
        if text not in found and math.prod(shape) <= left:
            found[text] = shape
            left -= math.prod(shape)
    return found


__all__ = ["HeldSource"]
