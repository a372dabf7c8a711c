"""What must be whole numbers, since a kernel takes it for places: a dtype that nothing says is no floating-point one then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk

_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def whole_numbers(program: n.Program) -> frozenset[str]:
    """The tensors and scalars of a generic program whose values are parts of an index, seeds of random numbers, or compared for equality with a whole
    number."""
    held: dict[str, n.Expr] = {}
    for k in program.kernels:
        for s in walk(k):
            if isinstance(s, n.Let) and len(s.names) == 1:
                held[s.names[0]] = s.value
    scalars = {p.name for p in program.params if isinstance(p.of, DType)}
    out: set[str] = set()
    for k in program.kernels:
        for x in walk(k):
            match x:
                case n.Region(index=index):
                    for i in index:
                        out.update(_sources(i.lo if isinstance(i, n.Span) else i, held, scalars))
                case n.Call(fn="philox", args=args):
                    for a in args:
                        out.update(_sources(a, held, scalars) if isinstance(a, n.Expr) else ())
                case n.Binary(op="eq" | "ne", a=n.Cast(x=a), b=n.Cast(x=b)) if _is_whole(a) or _is_whole(b):
                    out.update((*_sources(a, held, scalars), *_sources(b, held, scalars)))
                case _:
                    pass
    return frozenset(out)


def _is_whole(e: n.Expr) -> bool:
    dtype = getattr(e.type, "dtype", e.type)
    return isinstance(dtype, DType) and not dtype.is_symbolic and dtype.is_integer


def _sources(e: n.Node, held: Mapping[str, n.Expr], scalars: set[str], deep: int = 0) -> Iterator[str]:
    """The tensors that a value is loaded from, and the scalars in it; not what it is chosen by."""
    match e:
        case n.Var(name=name) if name in held and deep < 32:
            yield from _sources(held[name], held, scalars, deep + 1)
        case n.Var(name=name) if name in scalars:
            yield name
        case n.Load(at=at):
            yield at.buffer.name
        case n.Region(buffer=buffer):
            yield buffer.name
        case n.Cast(x=x) | n.Unary(x=x):
            yield from _sources(x, held, scalars, deep)
        case n.Binary(op=op, a=a, b=b) if op not in _COMPARED:
            yield from _sources(a, held, scalars, deep)
            yield from _sources(b, held, scalars, deep)
        case n.Call(fn="broadcast" | "expand_dims" | "reshape", args=args):
            for each in args:
                yield from _sources(each, held, scalars, deep)
        case _:
            return
