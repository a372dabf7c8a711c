"""Private arrays that the rounds of a recurrence hand on, which a program without them could not have.

Such an array is declared before a serial loop each round of which gives results of its own, and changes the array by what it holds. An axis of it belongs
to the state where a round goes along it to one number, or to a place that its values decide: other axes only hold several states side by side, and could be
work items of their own. What a round computes by going along the state as it was, and needs once the state has begun to change, it hands on too: the next
state of a product with a matrix, beside the one that it is still computed from.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kir.ir import nodes as n
from kir.ir.visit import blocks_of, names_read, statements, walk


def states(kernel: n.Kernel, outputs: Collection[str]) -> frozenset[str]:
    """Names of the private arrays all axes of which belong to the state of a recurrence."""
    out: set[str] = set()
    for block in _blocks(kernel.body):
        for k, s in enumerate(block):
            loop = _recurrence(s.buffer, block[k + 1:], outputs) if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.shape else None
            if isinstance(s, n.Alloc) and loop is not None:
                out |= {s.buffer.name, *_meanwhile(s.buffer, loop.body)}
    return frozenset(out)


def _blocks(block: n.Block) -> Iterator[n.Block]:
    yield block
    for s in block:
        for inner in blocks_of(s):
            yield from _blocks(inner)


def _recurrence(b: n.Buffer, rest: Sequence[n.Stmt], outputs: Collection[str]) -> n.For | None:
    """The first of the loops that follow that is a recurrence of which an array holds the state."""
    return next((loop for loop in statements(tuple(rest)) if isinstance(loop, n.For) and loop.kind == "serial" and _hands_on(b, loop, outputs)), None)


def _meanwhile(state: n.Buffer, body: n.Block) -> Iterator[str]:
    """Names of the arrays of a round, with no more axes than the state has, of which elements are computed by going along the state as it was, and that are
    read once it has begun to change."""
    changes = next((k for k, s in enumerate(body) if _writes(s, state)), len(body))
    for k, s in enumerate(body[:changes]):
        if not (isinstance(s, n.Alloc) and s.buffer.space == "register" and 0 < len(s.buffer.shape) <= len(state.shape)):
            continue
        filled = any(_writes(x, s.buffer) and any(_goes_along((x,), state, axis, {}) for axis in range(len(state.shape))) for x in body[k + 1:changes])
        if filled and any(_read(x, s.buffer) for x in body[changes:]):
            yield s.buffer.name


def _writes(s: n.Stmt, b: n.Buffer) -> bool:
    return any(isinstance(x, n.Store) and x.at.buffer.name == b.name for x in statements((s,)))


def _hands_on(b: n.Buffer, loop: n.For, outputs: Collection[str]) -> bool:
    """Whether each round of a loop stores results of its own, changes the array by what it holds, and goes along each axis of it."""
    written = [s for s in statements(loop.body) if isinstance(s, n.Store) and s.at.buffer.name == b.name]
    given = any(isinstance(s, n.Store) and s.at.buffer.name in outputs and loop.var.name in _names(s.at) for s in statements(loop.body))
    anew = any(isinstance(s, n.Alloc) and s.buffer.name == b.name for s in statements(loop.body))
    made = {name for s in statements(loop.body) for name in _made_of(s, b)}
    if anew or not given or not written or not all(_read(s.value, b) or _reads(s.value, made) for s in written):
        return False
    return all(_goes_along(loop.body, b, axis, {}) for axis in range(len(b.shape)))


def _made_of(s: n.Stmt, b: n.Buffer) -> Iterator[str]:
    """Other private memory that a statement begins with, or writes to, what it reads of an array."""
    if isinstance(s, n.Alloc) and s.init is not None and _read(s.init, b):
        yield s.buffer.name
    elif isinstance(s, n.Store) and s.at.buffer.space == "register" and s.at.buffer.name != b.name and _read(s.value, b):
        yield s.at.buffer.name


def _reads(e: n.Node, names: Collection[str]) -> bool:
    return any(isinstance(x, n.Load) and x.at.buffer.name in names for x in walk(e))


def _names(at: n.Region) -> set[str]:
    return {name for i in at.index for name in names_read(i)}


def _read(e: n.Node, b: n.Buffer) -> list[n.Region]:
    """The places of an array that an expression reads."""
    return [x.at for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.name == b.name]


def _goes_along(block: n.Block, b: n.Buffer, axis: int, inside: dict[str, set[str]]) -> bool:
    """Whether what is read along an axis ends in something that is one for the whole axis, or a value says where it is read. `inside` are the loops around
    the block, each with the names that are declared in it."""
    for s in block:
        if isinstance(s, n.For):
            own = {x.buffer.name for x in statements(s.body) if isinstance(x, n.Alloc)}
            if _goes_along(s.body, b, axis, {**inside, s.var.name: own}):
                return True
            continue
        if any(_goes_along(x, b, axis, inside) for x in blocks_of(s)):
            return True
        into = next((x.at for x in (s, *(y for z in blocks_of(s) for y in z)) if isinstance(x, n.Store) and x.at.buffer.space == "register"), None)
        for at in _read(s, b):
            i = at.index[axis] if axis < len(at.index) else None
            if not isinstance(i, n.Expr):
                continue
            if any(isinstance(x, n.Load) for x in walk(i)):
                return True
            named = names_read(i) & inside.keys()
            if into is not None and any(name not in _names(into) and into.buffer.name not in inside[name] for name in named):
                return True
    return False
