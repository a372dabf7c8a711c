"""Copies whose wait TileLang would leave out.

Where a kernel has a pipelined loop, TileLang 0.1.15 makes a copy before it by TMA and puts the wait for it at the first statement that reads what it brings,
inside the loop where that stands there. A loop that has no iteration waits for nothing: the copy lands while its memory already holds another buffer. Seen on
an H200 in attention over uneven lengths, whose rows past the end held queries. Such a copy is made without TMA, which waits where it stands.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import I32
from kir.ir.visit import blocks_of, statements, walk

from .unit_dimensions import within


def awaited(k: n.Kernel, known: Facts) -> n.Kernel:
    """The kernel with copies that wait where they stand, if what first reads them may not run. `known` is what holds at the kernel."""
    if not any(_pipelined(s) for s in statements(k.body)):
        return k
    for axis in k.grid:
        known = known.ranging(n.Var(axis.name, I32), const(0, I32), axis.extent)
    return replace(k, body=_block(k.body, known))


def _block(block: n.Block, known: Facts) -> n.Block:
    out = list(block)
    for i, s in enumerate(block):
        if isinstance(s, n.Copy) and _by_tma(s):
            first = next((j for j in range(i + 1, len(block)) if _reads(block[j], s.dst.buffer.name)), None)
            if first is not None and not _runs(block[first], s.dst.buffer.name, known.after(block[:first])):
                out[i] = replace(s, attrs=n.attrs(**{**dict(s.attrs), "disable_tma": True}))
        elif isinstance(s, n.For) and not _pipelined(s):
            here = known.after(block[:i]).ranging(s.var, s.lo, s.hi, s.step)
            out[i] = replace(s, body=_block(s.body, here))
        elif blocks_of(s) and not _pipelined(s):
            here = known.after(block[:i])
            out[i] = within(s, lambda inner, here=here: _block(inner, here))  # type: ignore[misc]  # a default binds it
    return tuple(out)


def _pipelined(s: n.Stmt) -> bool:
    return isinstance(s, n.For) and s.kind == "pipelined"


def _by_tma(s: n.Copy) -> bool:
    """Whether TileLang may make a copy by TMA, and places its wait."""
    spaces = s.src.at.buffer.space, s.dst.buffer.space
    return spaces == ("global", "shared") and s.via == "plain" and s.signal is None and not s.grouped and "disable_tma" not in dict(s.attrs)


def _reads(s: n.Stmt, name: str) -> bool:
    """Whether anything in a statement reads a buffer; one that is written and not read counts too, which asks for nothing."""
    return any(isinstance(x, n.Buffer) and x.name == name for x in walk(s))


def _runs(s: n.Stmt, name: str, known: Facts) -> bool:
    """Whether what reads a buffer in a statement is reached whenever the statement is, as far as a pipelined loop decides it."""
    if not any(_pipelined(x) for x in statements((s,))):
        return True
    if not isinstance(s, n.For) or decide(n.Binary("lt", s.lo, s.hi), known).kind != "always":
        return False
    here = known.ranging(s.var, s.lo, s.hi, s.step)
    first = next((j for j, x in enumerate(s.body) if _reads(x, name)), None)
    return first is not None and _runs(s.body[first], name, here.after(s.body[:first]))
