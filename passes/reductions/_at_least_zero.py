"""Memory that never holds a number below zero: a maximum over it may begin with zero."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import blocks_of, statements, walk
from kir.rewrite.match.exchange import fold_at
from kir.rewrite.match.local_buffers import own_parts


def below_zero(kernel: n.Kernel, buffer: n.Buffer) -> n.Stmt | None:
    """A statement that may give `buffer` a number below zero or a NaN, or one from which that comes; None where there is none. It looks at who writes
    what, in any order; a maximum over one shared value or more, as many as a literal says, is what they are, whatever it begins with."""
    lets = {s.names[0]: s.value for s in statements(kernel.body) if isinstance(s, n.Let) and len(s.names) == 1}
    begun = {id(block[i]): source for block in _blocks(kernel.body) for i in range(len(block)) if (source := _maximum_of(block, i)) is not None}
    waiting, known = [buffer.name], {buffer.name}
    while waiting:
        name = waiting.pop()
        for s in statements(kernel.body):
            value = _written(s, name)
            if value is None:
                continue
            needed = {begun[id(s)]} if id(s) in begun else None if isinstance(value, bool) else _needs(value, lets)
            if needed is None:
                return s
            waiting += needed - known
            known |= needed
    return None


def _blocks(block: n.Block) -> Iterator[n.Block]:
    yield block
    for s in block:
        for inner in blocks_of(s):
            yield from _blocks(inner)


def _maximum_of(block: n.Block, i: int) -> str | None:
    """The shared memory over which a maximum begins at a statement that says from what."""
    found = fold_at(block, i)
    return found[0].slots.name if found is not None and found[0].op == "max" and found[0].count > 0 and not found[0].onto else None


def _written(s: n.Stmt, name: str) -> n.Expr | bool | None:
    """What a statement gives elements of a buffer; False where that is not known, None where it gives nothing."""
    match s:
        case n.Alloc():
            return s.init if s.buffer.name == name else None
        case n.Store() if s.at.buffer.name == name:
            return s.value
        case n.Opaque():
            return False if name in s.writes or "*" in s.writes else None
        case n.Hole():
            return False if any(r.buffer.name == name for r in s.writes) else None
    parts = [x for part in own_parts(s) for x in walk(part)]
    read = {id(x.at) for x in parts if isinstance(x, n.Load)}
    given = any((isinstance(x, n.Region) and x.buffer.name == name and id(x) not in read) or (isinstance(x, n.Call) and x.of is not None) for x in parts)
    return False if given else None


def _needs(e: n.Expr, lets: Mapping[str, n.Expr]) -> set[str] | None:
    """The memory of a CTA that must hold no number below zero for `e` to be none, and no NaN; None where that is not enough."""
    match e:
        case n.Const():
            return set() if e.value >= 0 else None
        case n.Var():
            return _needs(lets[e.name], lets) if e.name in lets else None
        case n.Binary() if e.op == "max":
            a, b = _needs(e.a, lets), _needs(e.b, lets)
            return b if a is None else a if b is None or len(a) <= len(b) else b
        case n.Binary() if e.op in ("add", "min"):
            return _both(_needs(e.a, lets), _needs(e.b, lets))
        case n.Select():
            return _both(_needs(e.a, lets), _needs(e.b, lets))
        case n.Cast() if isinstance(own := e.x.type, DType) and own.is_float and e.dtype.is_float and e.rounding != "bits":
            return _needs(e.x, lets)
        case n.Load() if e.at.buffer.space != "global":
            other = set() if e.mask is None else None if e.other is None else _needs(e.other, lets)
            return _both({e.at.buffer.name}, other)
        case n.Call() if e.fn in ("shfl_xor", "shfl_down", "shfl_up", "shfl") and e.args and isinstance(first := e.args[0], n.Expr):
            return _needs(first, lets)
        case _:
            return None


def _both(a: set[str] | None, b: set[str] | None) -> set[str] | None:
    return None if a is None or b is None else a | b
