"""What declarations say at once: a fragment that is filled right after it is declared, barriers that are made ready together."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import blocks_of

from .seen import seen


def with_fills(block: n.Block) -> n.Block:
    """The block with first fills as initial values."""
    out = [_inside(s) for s in block]
    k = 0
    while k < len(out):
        s = out[k]
        if isinstance(s, n.Alloc) and s.init is None and s.buffer.space in ("fragment", "register"):
            for j in range(k + 1, len(out)):
                later = out[j]
                if s.buffer.name not in seen(later).buffers:
                    continue
                if _fills(later, s.buffer):
                    assert isinstance(later, n.Store)
                    value = later.value
                    init = value if not s.buffer.shape else build.broadcast(value, n.Region(s.buffer).type)
                    out[k] = replace(s, init=init)
                    del out[j]
                break
        k += 1
    return tuple(out)


def with_ready_barriers(block: n.Block) -> n.Block:
    """The block with a fence after the last of its barriers is initialized, as TileLang writes it."""
    last = max((k for k, s in enumerate(block) if _readies(s)), default=None)
    if last is None:
        return tuple(replace(s, body=with_ready_barriers(s.body)) if isinstance(s, (n.For, n.While)) else s for s in block)
    return (*block[:last + 1], n.Eval(build.call("fence_mbar_init"), origin=block[last].origin), *block[last + 1:])


def _readies(s: n.Stmt) -> bool:
    """Whether a statement initializes a barrier."""
    if isinstance(s, n.For):
        return any(_readies(x) for x in s.body)
    return isinstance(s, n.Eval) and s.call.fn == "mbar_init"


def _fills(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement gives every element of a buffer one literal value."""
    return isinstance(s, n.Store) and s.at == n.Region(b) and s.mask is None and not s.clip and _is_literal(s.value)


def _is_literal(e: n.Expr) -> bool:
    return isinstance(e, n.Const) or (isinstance(e, n.Cast) and isinstance(e.x, n.Const))


def _inside(s: n.Stmt) -> n.Stmt:
    if not blocks_of(s):
        return s
    match s:
        case n.For() | n.While():
            return replace(s, body=with_fills(s.body))
        case n.If():
            return replace(s, then=with_fills(s.then), orelse=with_fills(s.orelse))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=with_fills(r.body)) for r in s.roles))
        case _:
            return s
