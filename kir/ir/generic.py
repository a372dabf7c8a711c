"""Whether a program still needs a binding, and for what."""
from __future__ import annotations

from collections.abc import Iterator

from kir.diagnostic import Diagnostic, Origin
from kir.ir import nodes as n
from kir.ir.visit import walk


def is_generic(program: n.Program) -> bool:
    """Whether a binding is still needed: metas, symbolic dtypes, static branches or loops, or implicit extents remain."""
    return next(generic_parts(program), None) is not None


def generic_parts(program: n.Program) -> Iterator[Diagnostic]:
    """What a specialized program must not hold (KIR-V016)."""
    def found(what: str, origin: Origin | None = None) -> Diagnostic:
        return Diagnostic("KIR-V016", f"{what}: this program is generic", origin=origin, needs="a binding: specialize{binding}")
    for m in program.metas:
        yield found(f"the meta parameter '{m.name}' has no value yet")
    for q in program.params:
        if dict(q.attrs).get("implicit"):
            yield found(f"the size '{q.name}' is implicit")
        if (q.of.dtype if isinstance(q.of, n.Buffer) else q.of).is_symbolic:
            yield found(f"the parameter '{q.name}' has a symbolic dtype")
    origin: Origin | None = None
    for x in (x for part in (*program.kernels, *program.functions) for x in walk(part)):
        if isinstance(x, n.Stmt):
            origin = x.origin
        match x:
            case n.If() if x.static:
                yield found("a static branch", origin)
            case n.For() if x.kind == "static":
                yield found("a static loop", origin)
            case n.Alloc() | n.View() if x.buffer.dtype.is_symbolic:
                yield found(f"'{x.buffer.name}' has a symbolic dtype", origin)
            case n.Cast() if x.dtype.is_symbolic:
                yield found(f"a cast to the symbolic dtype {x.dtype}", origin)
            case _:
                pass
