"""Variables that TileLang's compiler would count in one of its roles alone.

It divides the warps of a CTA into a role that brings tiles of a pipelined loop and one that computes with them. What stands beside that loop, in a loop
around both, goes to the second role only: a variable that is set there stays as it was in the first, which then brings other tiles than those that are
waited for, and the kernel never ends.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.diagnostic import Diagnostic
from kir.ir import nodes as n
from kir.ir.paths import child_blocks
from kir.ir.visit import buffers_named, names_read, statements, walk

ALONE = "tl_disable_warp_specialized"
"""The option of a kernel whose warps are not divided."""


def counted_between_roles(k: n.Kernel) -> Iterator[Diagnostic]:
    """A refusal for each loop around a pipelined one in which such a variable is set."""
    if dict(k.attrs).get(ALONE) is True:
        return
    lets = {name: s.value for s in statements(k.body) if isinstance(s, n.Let) for name in s.names}
    for loop in statements(k.body):
        if (isinstance(loop, n.While) or (isinstance(loop, n.For) and loop.kind == "serial")) and _divided(loop.body):
            own = {s.buffer.name for s in statements(loop.body) if isinstance(s, n.Alloc)}
            set_here = {s.at.buffer.name for s in statements(loop.body)
                        if isinstance(s, n.Store) and s.at.buffer.space == "register" and not s.at.buffer.shape} - own
            for name in sorted(set_here & set(_brought_by(loop, lets))):
                yield Diagnostic("KIR-B309", f"'{name}' is set in a loop around a pipelined one, whose tiles depend on it", anchor=k.name,
                                 needs="a number that is worked out anew, as walk-groups{order=..} does",
                                 attempt=f"surface-option{{option={ALONE} value=true}}@{k.name}")


def _divided(block: n.Block) -> bool:
    return any(isinstance(x, n.For) and x.kind == "pipelined" for x in statements(block))


def _brought_by(loop: n.For | n.While, lets: dict[str, n.Expr]) -> Iterator[str]:
    """The variables on which it depends what the pipelined loops in a loop bring, and how often."""
    used = list[n.Expr]([loop.cond] if isinstance(loop, n.While) else [])
    for s in loop.body:
        used += _used(s)
    seen = set[str]()
    while used:
        e = used.pop()
        yield from buffers_named(e)
        fresh = (names_read(e) & lets.keys()) - seen
        seen |= fresh
        used += [lets[name] for name in fresh]


def _used(s: n.Stmt) -> list[n.Expr]:
    """What a statement says of the tiles that are brought in it: bounds and conditions on the way to pipelined loops, and places in them."""
    if not _divided((s,)):
        return []
    if isinstance(s, n.For):
        own = [s.lo, s.hi, s.step]
        if s.kind == "pipelined":
            return own + [e for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space == "global"
                          for i in x.at.index for e in ([i.lo] if isinstance(i, n.Span) else [i])]
    else:
        own = [s.cond] if isinstance(s, n.If | n.While) else []
    return own + [e for _, block in child_blocks(s) for x in block for e in _used(x)]
