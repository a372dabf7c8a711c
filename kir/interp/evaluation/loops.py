"""Loops: what stays the same in one is worked out once, and one store may stand for a whole loop."""
from __future__ import annotations

from dataclasses import replace

from kir.base.diagnostic import error
from kir.interp.evaluation.loop_folding import folded, spread
from kir.interp.evaluation.loop_invariants import LEAST, invariants
from kir.interp.state.machine import Machine
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.visit import once

MOST_ITERATIONS = 10_000_000
"""Iterations of one `while` after which it counts as endless."""


def entered(m: Machine, s: n.For, count: int) -> list[int]:
    """A loop of so many iterations begins: from now on what it leaves as it is is known once it is worked out. Gives what `left` takes."""
    if m.stepping or count < LEAST:
        return []
    if id(s) not in m.invariants:
        m.invariants[id(s)] = once(s, "_invariants", lambda: invariants(s))
        m.kept.append(s)
    mine = [id(e) for e in m.invariants[id(s)] if id(e) not in m.fixed]
    m.fixed.update(dict.fromkeys(mine))
    return mine


def left(m: Machine, mine: list[int]) -> None:
    """The loop has ended."""
    for key in mine:
        del m.fixed[key]


def shortcut(m: Machine, s: n.For, lo: int, hi: int, step: int) -> n.Store | None:
    """One store with the effect of a loop, where there is one (`kir.interp.evaluation.loop_folding`). It stands where the loop's own store does."""
    if m.stepping or step < 1:
        return None
    key = id(s), lo, hi, step
    if key not in m.shortcuts:
        alone = m.kernel is not None and is_const(m.kernel.threads, 1) and not m.has_views
        made = spread(s, lo, hi, step) if alone or (not m.checking and not m.has_views) else None
        made = folded(s, lo, hi, step) if made is None and not m.checking else made
        if made is not None:
            inner: n.Stmt = s
            while isinstance(inner, n.For):
                inner = inner.body[0]
            made = replace(made, origin=inner.origin)
            m.anchors[id(made)] = m.anchor(inner)
        m.shortcuts[key] = made
    return m.shortcuts[key]


def count_iteration(m: Machine, s: n.While) -> None:
    """Raises KirError KIR-I007 for a loop that does not end."""
    m.iterations[id(s)] = m.iterations.get(id(s), 0) + 1
    if m.iterations[id(s)] > MOST_ITERATIONS:
        raise error("KIR-I007", f"a loop has run {MOST_ITERATIONS} times", origin=s.origin, anchor=m.anchor(s))
