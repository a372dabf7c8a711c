"""Single occurrences in a program: where a node stands, what is around it, and another node in its place.

Equal nodes are often one object, so that an occurrence is told by its address: the fields and indices that lead to it from the program.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.build import int_value
from kir.ir.types import DType, Type, dtype_of
from kir.ir.visit import blocks_of, buffers_named, rebuild, statements, walk

Step = tuple[str, int | None]
"""A field, and the index in it where it is a tuple."""
Address = tuple[Step, ...]


@dataclass(frozen=True)
class Change:
    """What stands in the place of a node: a node of the same type, or for a statement a block. `how` says it in a few words."""

    how: str
    new: n.Node | n.Block


@dataclass(frozen=True, eq=False)
class Site:
    """One occurrence. `parents` are the nodes that hold it, the program first; `anchor` names the innermost statement."""

    program: n.Program
    address: Address
    node: n.Node
    parents: tuple[n.Node, ...]
    anchor: str

    @property
    def parent(self) -> n.Node:
        """The node that holds it directly."""
        return self.parents[-1]

    @property
    def field(self) -> str:
        """The field of its parent in which it stands."""
        return self.address[-1][0]

    @cached_property
    def statement(self) -> n.Stmt | None:
        """The innermost statement that it is in (itself, if it is one)."""
        return next((x for x in (self.node, *reversed(self.parents)) if isinstance(x, n.Stmt)), None)

    @cached_property
    def loops(self) -> tuple[n.For | n.While, ...]:
        """The loops around it that make one trip after another, the outermost first."""
        return tuple(x for x in self.parents if isinstance(x, n.While) or (isinstance(x, n.For) and x.kind not in ("thread", "warp", "warpgroup")))

    @cached_property
    def kernel(self) -> n.Kernel | None:
        """The kernel that it is in."""
        return next((x for x in self.parents if isinstance(x, n.Kernel)), None)

    @cached_property
    def in_index(self) -> bool:
        """Whether it is part of an index, and not of a value."""
        return any(isinstance(x, (n.Region, n.Span)) for x in self.parents)

    def carried(self, buffer: n.Buffer) -> bool:
        """Whether a trip of a loop around this place hands `buffer` to the next: it is declared outside and written inside."""
        return any(buffer.name in _written(loop) and buffer.name not in _declared(loop) for loop in self.loops)

    def initial(self, buffer: n.Buffer) -> n.Const | None:
        """The constant that a buffer of the kernel, or a workspace, holds at first; None where it is no constant."""
        for root in (self.kernel, *self.program.functions):
            for s in statements(root.body) if root is not None else ():
                if isinstance(s, n.Alloc) and s.buffer.name == buffer.name:
                    return s.init if isinstance(s.init, n.Const) else _first_store(root.body if root is not None else (), buffer)
        found = next((w.init for w in self.program.workspaces if w.buffer.name == buffer.name), None)
        return found if isinstance(found, n.Const) else None


def _first_store(block: n.Block, buffer: n.Buffer) -> n.Const | None:
    """The constant of the first store to a buffer, in reading order."""
    first = next((s for s in statements(block) if isinstance(s, n.Store) and s.at.buffer.name == buffer.name), None)
    return first.value if first is not None and isinstance(first.value, n.Const) else None


def _written(loop: n.Stmt) -> frozenset[str]:
    """Names of buffers that the statements inside a loop write."""
    kept: dict[str, Any] = loop.__dict__
    if "_written_inside" not in kept:
        out: set[str] = set()
        for block in blocks_of(loop):
            for s in statements(block):
                match s:
                    case n.Store():
                        out.add(s.at.buffer.name)
                    case n.Copy():
                        out.add(s.dst.buffer.name)
                    case n.Mma():
                        out.add(s.acc.buffer.name)
                    case n.Eval():
                        out |= {a.buffer.name for a in s.call.args if isinstance(a, n.Region)}
                        out |= {a.at.buffer.name for a in s.call.args if isinstance(a, n.Address)}
                    case _:
                        pass
        kept["_written_inside"] = frozenset(out)
    found: frozenset[str] = kept["_written_inside"]
    return found


def _declared(loop: n.Stmt) -> frozenset[str]:
    return frozenset(s.buffer.name for block in blocks_of(loop) for s in statements(block) if isinstance(s, (n.Alloc, n.View)))


def sites(program: n.Program) -> Iterator[Site]:
    """Every occurrence of a statement and of an expression in the kernels and device functions, in reading order. Declarations of memory (shapes,
    strides) are not entered: they are the same at every mention."""
    names = {id(s): text for text, _, s in anchors(program)}

    def below(node: n.Node, address: Address, parents: tuple[n.Node, ...], anchor: str) -> Iterator[Site]:
        anchor = names.get(id(node), anchor)
        if isinstance(node, (n.Expr, n.Stmt, n.Region)):
            yield Site(program, address, node, parents, anchor)
        inside = (*parents, node)
        for name in node.tree_fields:
            value = getattr(node, name)
            if isinstance(value, n.Node) and not isinstance(value, (n.Buffer, n.Layout)):
                yield from below(value, (*address, (name, None)), inside, anchor)
            elif isinstance(value, tuple):
                for i, each in enumerate(value):
                    if isinstance(each, n.Node) and not isinstance(each, (n.Buffer, n.Layout)):
                        yield from below(each, (*address, (name, i)), inside, anchor)

    for field in ("kernels", "functions"):
        for i, root in enumerate(getattr(program, field)):
            yield from below(root, ((field, i),), (program,), root.name)


def put(node: n.Node, address: Address, new: n.Node | n.Block) -> Any:
    """The tree with `new` at an address; a block takes the place of one statement. Expressions are built anew in normal form."""
    if not address:
        return new
    (name, index), rest = address[0], address[1:]
    value = getattr(node, name)
    if index is None:
        return rebuild(node, {name: put(value, rest, new)})
    made = put(value[index], rest, new)
    return rebuild(node, {name: (*value[:index], *(made if isinstance(made, tuple) else (made,)), *value[index + 1:])})


# ------------------------------------------------------------------------------------------------------------- what rules ask

def is_float(of: Type) -> bool:
    """Whether a value, or a tile of them, is of a float dtype."""
    try:
        return dtype_of(of).is_float
    except (TypeError, ValueError, AttributeError):
        return False


def is_whole(of: Type) -> bool:
    """Whether a value, or a tile of them, is of an integer dtype."""
    try:
        return dtype_of(of).is_integer
    except (TypeError, ValueError, AttributeError):
        return False


def loads(e: n.Node) -> Iterator[n.Load]:
    """The reads of memory in an expression."""
    return (x for x in walk(e) if isinstance(x, n.Load))


def reads(e: n.Node, buffer: n.Buffer) -> bool:
    """Whether an expression reads a buffer."""
    return buffer.name in buffers_named(e) and any(x.at.buffer.name == buffer.name for x in loads(e))


def number(e: n.Node | None) -> float | None:
    """The value of a float literal."""
    return float(e.value) if isinstance(e, n.Const) and isinstance(e.dtype, DType) and e.dtype.is_float else None


def trips(loop: n.For) -> int | None:
    """How many trips a loop makes, where that is known."""
    lo, hi, step = (int_value(x) for x in (loop.lo, loop.hi, loop.step))
    return None if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
