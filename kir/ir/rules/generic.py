"""Whether a program still needs a binding, and for what."""
from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kir.base.diagnostic import Diagnostic, Origin
from kir.ir import nodes as n
from kir.ir.visit import children, once


def is_generic(program: n.Program) -> bool:
    """Whether a binding is still needed: metas, symbolic dtypes, static branches or loops, or implicit extents remain."""
    return next(generic_parts(program), None) is not None


def generic_parts(program: n.Program) -> Iterator[Diagnostic]:
    """What a specialized program must not hold (KIR-V016)."""
    for m in program.metas:
        yield _generic(f"the meta parameter '{m.name}' has no value yet")
    for q in program.params:
        if dict(q.attrs).get("implicit"):
            yield _generic(f"the size '{q.name}' is implicit")
        if (q.of.dtype if isinstance(q.of, n.Buffer) else q.of).is_symbolic:
            yield _generic(f"the parameter '{q.name}' has a symbolic dtype")
    for part in (*program.kernels, *program.functions):
        for node in children(part):
            yield from once(node, "_generic", partial(_generic_in, node))


def _generic_in(node: n.Node, origin: Origin | None = None) -> tuple[Diagnostic, ...]:
    """What is generic in a node of a kernel; that of a statement is worked out once."""
    what = ""
    match node:
        case n.If() if node.static:
            what = "a static branch"
        case n.For() if node.kind == "static":
            what = "a static loop"
        case n.Alloc() | n.View() if node.buffer.dtype.is_symbolic:
            what = f"'{node.buffer.name}' has a symbolic dtype"
        case n.Cast() if node.dtype.is_symbolic:
            what = f"a cast to the symbolic dtype {node.dtype}"
        case _:
            pass
    origin = node.origin if isinstance(node, n.Stmt) else origin
    found: list[Diagnostic] = [_generic(what, origin)] if what else []
    for x in children(node):
        found += once(x, "_generic", partial(_generic_in, x)) if isinstance(x, n.Stmt) else _generic_in(x, origin)
    return tuple(found)


def _generic(what: str, origin: Origin | None = None) -> Diagnostic:
    return Diagnostic("KIR-V016", f"{what}: this program is generic", origin=origin, needs="a binding: specialize{binding}")
