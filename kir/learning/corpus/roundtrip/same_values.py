"""Values that a program works out twice under two names, as one."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_

from kir.ir import nodes as n
from kir.ir.visit import blocks_of, statements, substitute, walk


def worked_out_once(body: n.Block, pure: Callable[[n.Expr], bool], writes: Callable[[n.Stmt, set[str]], bool]) -> n.Block:
    """The body with the first name of a pure value in place of a second one that the same block gives it, where nothing between them writes what it reads:
    neither by its own name nor by that of a view of the same memory."""
    of = {s.buffer.name: s.at.buffer.name for s in statements(body) if isinstance(s, n.View)}
    groups: dict[str, set[str]] = {}
    for name in {*of, *of.values()}:
        groups.setdefault(_base(of, name), {_base(of, name)}).add(name)

    def read(e: n.Expr) -> set[str]:
        names = {x.buffer.name for x in walk(e) if isinstance(x, n.Region)}
        return names.union(*(groups.get(_base(of, x), {x}) for x in names))

    def settled(block: n.Block) -> n.Block:
        out: list[n.Stmt] = []
        known: list[tuple[n.Expr, n.Var, set[str]]] = []
        rest = list(block)
        while rest:
            s = rest.pop(0)
            if isinstance(s, n.Let) and len(s.names) == 1 and pure(s.value):
                first = next((v for e, v, _ in known if e == s.value), None)
                if first is not None:
                    rest = [substitute(t, {s.names[0]: first}) for t in rest]
                    continue
                known.append((s.value, n.Var(s.names[0], s.value.type), read(s.value)))
            elif not isinstance(s, n.View):
                known = [x for x in known if not x[2] or not writes(s, x[2])]
            out.append(with_blocks(s, settled) if blocks_of(s) else s)
        return tuple(out)
    return settled(body)


def _base(of: dict[str, str], name: str) -> str:
    while name in of:
        name = of[name]
    return name


def with_blocks(s: n.Stmt, fn: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with each block in it as `fn` makes it; itself, with what is known of it, where that changes nothing."""
    made = [fn(block) for block in blocks_of(s)]
    if all(len(new) == len(old) and all(map(is_, new, old)) for new, old in zip(made, blocks_of(s), strict=True)):
        return s
    left = iter(made)
    match s:
        case n.For() | n.While():
            return replace(s, body=next(left))
        case n.If():
            return replace(s, then=next(left), orelse=next(left))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=next(left)) for r in s.roles))
        case _:
            return s
