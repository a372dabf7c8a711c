"""What a program is made of, in names that an order of cards can be learned by: which statements stand in which, what they compute, of which dtypes, how
large things are in powers of two."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import children, statements, walk
from kir.learning.cards.facts import kind

OPERATIONS = (n.Binary, n.Unary, n.Call, n.Select, n.Cast)
MANY = (2, 4, 8, 16)
"""Counts of one kind of statement that are told apart."""


def traits(program: n.Program) -> frozenset[str]:
    """The names, of all kernels together."""
    return frozenset((*_traits(program), *_sizes(program)))


def _sizes(program: n.Program) -> Iterator[str]:
    """How much there is of it, in powers of two: statements, loops and named values; the largest value of each kind of statement, in operations; what is
    loaded and converted without a name; what is computed more than once, and the text that this would save."""
    counts, largest, texts = Counter[str](), Counter[str](), Counter[str]()
    named, loads, converted = set[str](), set[str](), set[str]()
    for s in (s for k in program.kernels for s in statements(k.body) if not isinstance(s, n.Roles)):
        counts.update(["statements", *(["loops"] if isinstance(s, n.For) else ["lets"] if isinstance(s, n.Let) else [])])
        if isinstance(s, n.Let):
            named.add(expr_text(s.value))
        own = [x for x in children(s) if not isinstance(x, n.Stmt)]
        largest[kind(s)] = max(largest[kind(s)], *(sum(isinstance(x, OPERATIONS) for x in walk(e)) for e in own), 0)
        for x in (x for e in own for x in walk(e)):
            if isinstance(x, n.Load) and x.at.buffer.space == "global":
                loads.add(expr_text(x))
            elif isinstance(x, n.Cast):
                converted.add(expr_text(x))
            elif isinstance(x, (n.Binary, n.Call, n.Select)):
                texts[expr_text(x)] += 1
    twice = {text: count for text, count in texts.items() if count > 1}
    sizes = {**counts, **{f"largest {name}": size for name, size in largest.items()}, "loads without a name": len(loads - named),
             "loads with a name": len(loads & named), "conversions without a name": len(converted - named), "computed twice": len(twice),
             "saved": max((len(text.split()) * (count - 1) for text, count in twice.items()), default=0)}
    yield from (f"{name} {1 << max(0, size - 1).bit_length() if size else 0}" for name, size in sizes.items())


def _traits(program: n.Program) -> Iterator[str]:
    for param in program.params:
        if isinstance(param.of, n.Buffer):
            yield f"tensor of {param.of.dtype.name}"
            yield f"{len(param.of.shape)} axes"
    for kernel in program.kernels:
        yield f"grid of {len(kernel.grid)}"
        yield f"threads {_power(kernel.threads)}"
        counts = Counter[str]()
        for statement in kernel.body:
            yield from _in(statement, "kernel", 0, counts)
        for name, count in counts.items():
            yield from (f"{least} of {name}" for least in MANY if count >= least)


def _in(node: n.Node, around: str, depth: int, counts: Counter[str]) -> Iterator[str]:
    """A statement, what it computes, and what stands in it."""
    if isinstance(node, n.Stmt):
        name = kind(node)
        counts[name] += 1
        yield f"{name} in {around}"
        if isinstance(node, n.For):
            depth += 1
            yield f"{node.kind} loop"
            yield f"loops {depth} deep"
            yield f"trips {_power(node.hi)}"
        for part in children(node):
            yield from _in(part, name, depth, counts)
    elif isinstance(node, n.Expr):
        for e in walk(node):
            yield from _expression(e, around)
    else:
        for part in children(node):
            yield from _in(part, around, depth, counts)


def _expression(e: n.Node, around: str) -> Iterator[str]:
    match e:
        case n.Call():
            yield f"{e.fn} in {around}"
        case n.Binary() | n.Unary():
            yield f"{e.op} in {around}"
        case n.Cast():
            yield f"to {e.dtype.name}"
        case n.Load():
            yield f"{e.at.buffer.space} load in {around}"
            if e.mask is not None or e.clip:
                yield f"guarded load in {around}"
        case n.Select():
            yield f"select in {around}"
        case _:
            return
    if isinstance(e, n.Expr) and isinstance(e.type, TileType):
        yield f"tile of {len(shape_of(e.type))} axes"
        if dtype_of(e.type).is_float:
            yield f"tile of {dtype_of(e.type).name}"


def _power(e: n.Expr | int) -> str:
    """The least power of two from a known number on; else that it is not known."""
    value = e if isinstance(e, int) else int_value(e)
    return "unknown" if value is None else str(1 << max(0, value - 1).bit_length())
