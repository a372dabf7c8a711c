"""Names that an asm statement only passed on."""
from __future__ import annotations

from collections.abc import Sequence

from kir.ir import nodes as n
from kir.ir.visit import names_read, substitute, walk


def cleaned(steps: Sequence[n.Stmt], outputs: Sequence[n.Expr], locals: set[str]) -> tuple[tuple[n.Stmt, ...], tuple[n.Expr, ...]]:
    """Locals that are used once, or not at all, written where they are used. One that reads memory stays where it is unless nothing that
    has effects comes after it."""
    steps, outputs = list(steps), list(outputs)
    at = 0
    while at < len(steps):
        s = steps[at]
        if isinstance(s, n.Let) and s.names[0] in locals:
            name, after = s.names[0], steps[at + 1:]
            uses = sum(_uses(x, name) for x in (*after, *outputs))
            reads = any(isinstance(x, n.Load) for x in walk(s.value))
            fixed = reads and any(not (isinstance(x, n.Let) and x.names[0] in locals) for x in after)
            if uses == 0 or (uses == 1 and not fixed) or _is_renaming(s.value):
                steps[at:] = [substitute(x, {name: s.value}) for x in after]
                outputs = [substitute(x, {name: s.value}) for x in outputs]
                continue
        at += 1
    return tuple(steps), tuple(outputs)


def _is_renaming(e: n.Expr) -> bool:
    """The bits of a name, or a piece of one."""
    bare = e.x if isinstance(e, n.Cast) and e.rounding == "bits" else e
    if isinstance(bare, n.Call) and bare.of is None and bare.fn in ("pick", "pack", "unpack"):
        return all(isinstance(a, (n.Var, n.Const)) or (isinstance(a, n.Expr) and _is_renaming(a)) for a in bare.args)
    return isinstance(bare, n.Var)


def _uses(x: n.Node, name: str) -> int:
    return sum(isinstance(y, n.Var) and y.name == name for y in walk(x)) if name in names_read(x) else 0
