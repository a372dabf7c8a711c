"""What makes a refused step legal: steps to take first, by the id of the precondition that refuses.

A refusal says what it needs; where a pass brings just that, the search takes it before the step, as a person would.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import statements, walk
from kir.rewrite import Site, Step
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import node_at, places

Repair = Callable[[n.Program, Site], Iterator[Step]]


def guarded_folds(program: n.Program, site: Site) -> Iterator[Step]:
    """What a loop folds into a register, put under the condition that the loop has not ended, with what changes nothing otherwise: a loop that then
    runs on past its end folds nothing in there."""
    loop = node_at(program, site.path)
    if not isinstance(loop, n.For):
        return
    inside = {id(s) for s in statements(loop.body)}
    ended = build.compare("lt", loop.var, loop.hi)
    when = expr_text(ended)
    for path, s in places(program):
        if not (isinstance(s, n.Store) and id(s) in inside and isinstance(s.value, n.Binary) and s.at.buffer.space == "register"):
            continue
        held = n.Load(s.at)
        value = s.value.b if s.value.a == held else s.value.a if s.value.b == held else None
        if value is None or any(isinstance(x, n.Select) and x.cond == ended for x in walk(value)):
            continue
        neutral = {"add": 0.0, "max": -math.inf, "min": math.inf}.get(s.value.op)
        if neutral is None:
            continue
        dtype = s.at.buffer.dtype
        if not dtype.is_float and neutral:
            continue
        other = expr_text(build.const(neutral if dtype.is_float else int(neutral), dtype))
        yield Step("guard-value", {"value": expr_text(value), "when": when, "other": other}, anchor_text(program, path))


REPAIRS: Mapping[str, Repair] = {"KIR-P541": guarded_folds}
"""By the id of a precondition: what may be done first."""

__all__ = ["REPAIRS", "guarded_folds"]
