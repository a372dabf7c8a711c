"""Fresh names at a place of a program, and the values that names need."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, Type
from kir.ir.visit import names_read
from kir.rewrite.edit import Path, fresh, kernel_of, names_in


def names_at(program: n.Program, path: Path) -> set[str]:
    """Every name in view somewhere in the kernel of a path; `fresh` adds those that it gives.

        taken = names_at(program, site.path)
        slots, own = fresh("slots", taken), fresh("own", taken)
    """
    return names_in(program, kernel_of(program, path))


def fresh_at(program: n.Program, path: Path, base: str) -> str:
    """One name that is not taken in the kernel of a path.

        held = fresh_at(program, site.path, "held")
        n.Buffer(held, F32, (), "register")
    """
    return fresh(base, names_at(program, path))


def fresh_var(base: str, taken: set[str], of: Type = I32) -> n.Var:
    """A variable with a name that is not taken (and is taken from now on).

        i, j = fresh_var("i", taken), fresh_var("j", taken)
        t = fresh_var("t", taken, loop.var.of)
    """
    return n.Var(fresh(base, taken), of)


def fresh_names(block: n.Block, taken: set[str]) -> dict[str, str]:
    """A name of its own, not taken, for each that a block binds: what a copy of it is renamed by.

        rename(s, fresh_names(loop.body, taken))
        fresh_names(block, taken)["x"] == "x_1"
    """
    return {name: fresh(name, taken) for name in dict.fromkeys(bound_names(block))}


def values_for(block: Sequence[n.Stmt], names: Iterable[str]) -> tuple[n.Let, ...]:
    """The values of a block with one of these names, and those that they are worked out of, in their order.

        values_for(kernel.body[:at], names_read(store))
    """
    used, kept = set(names), list[n.Let]()
    for s in reversed(block):
        if isinstance(s, n.Let) and not used.isdisjoint(s.names):
            used |= names_read(s.value)
            kept.append(s)
    return tuple(reversed(kept))
