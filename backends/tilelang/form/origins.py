"""Where statements came from, kept while a program is brought into another form: a statement's origin holds its path, too."""
from __future__ import annotations

from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.ir import nodes as n
from kir.surface import StatementPath


@dataclass(frozen=True)
class At(Origin):
    """An origin with the path of the statement in the program that is written, and the statement's own origin."""

    path: StatementPath = ()
    origin: Origin | None = None


def marked(program: n.Program) -> n.Program:
    """The program with the path of every statement in its origin."""
    return replace(program, kernels=tuple(replace(k, body=_block(k.body, (k.name,))) for k in program.kernels))


def _block(block: n.Block, path: StatementPath) -> n.Block:
    return tuple(_marked(s, (*path, i)) for i, s in enumerate(block))


def _marked(s: n.Stmt, path: StatementPath) -> n.Stmt:
    match s:
        case n.For() | n.While():
            s = replace(s, body=_block(s.body, (*path, "body")))
        case n.If():
            s = replace(s, then=_block(s.then, (*path, "then")), orelse=_block(s.orelse, (*path, "orelse")))
        case n.Roles():
            s = replace(s, roles=tuple(replace(r, body=_block(r.body, (*path, "roles", i, "body"))) for i, r in enumerate(s.roles)))
        case _:
            pass
    return sourced(s, At("", 0, 0, 0, 0, path=path, origin=s.origin))


def sourced(s: n.Stmt, origin: Origin | None) -> n.Stmt:
    """A statement with an origin."""
    made: n.Stmt = replace(s, origin=origin)  # type: ignore[type-var]  # every Stmt is a dataclass
    return made
