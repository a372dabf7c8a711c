"""The generic program of what was read: statements to teams, roles of parameters, sizes that are used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from kir.ir import nodes as n
from kir.ir.visit import statements, walk

from ..._python.project import Module
from ..state.guards import guarded
from ..state.layouts import laid_out
from ..state.reader import Reader
from ..state.reading_state import Part
from ..teams.declaration_cleanup import (
    in_their_branch,
    with_conditions,
    with_fills,
    with_known_effects,
    with_quotients,
    with_ready_barriers,
    without_unread,
)
from ..teams.placement import Placing
from ..teams.thread_variables import accessed


def program(r: Reader, module: Module, node: cst.FunctionDef, name: str) -> n.Program:
    """The program of a function that was read."""
    def opaque(s: n.Stmt, reason: str) -> n.Stmt:
        return n.Opaque("tilelang", source_of(module, s), reason, ("*",), ("*",), origin=s.origin)

    kernels = []
    for k, part in enumerate(r.parts or (Part(r.grid, r.threads, r.cluster, r.attrs, ()),)):
        block = (*r.out.block, *part.block)
        body = laid_out(r, in_their_branch(with_quotients(with_conditions(without_unread(block, frozenset(r.joined)))), frozenset(r.hoisted)))
        placing = Placing(part.threads, r.thread, r.thread_name, frozenset(r.reducers), r.out.fresh, opaque, lambda e, where: guarded(r, e, where),
                          part.attrs.get("tl_disable_thread_storage_sync") is not True)
        body = with_known_effects(with_ready_barriers(with_fills(placing.body(body))), frozenset(q.name for q in r.params))
        kernels.append(n.Kernel(f"{name}_{k + 1}" if k else name, part.grid, part.threads, body, part.cluster, n.attrs(**part.attrs),
                                origin=module.origin(node)))
    body = tuple(s for k in kernels for s in k.body)
    params = _roles(r, body)
    used = _used(kernels, params)
    sizes = tuple(p for p in r.sizes.values() if p.name in used)
    return n.Program(name, tuple(r.metas.values()), (*sizes, *params), workspaces=tuple(r.workspaces), kernels=tuple(kernels))


def source_of(module: Module, s: n.Stmt) -> str:
    """The text of a statement, from where it stands."""
    if s.origin is None:
        return "?"
    lines = module.text.splitlines()[s.origin.line - 1: s.origin.end_line]
    return "\n".join(lines).strip() or "?"


def _roles(r: Reader, body: n.Block) -> tuple[n.Param, ...]:
    """The parameters with the roles that the body gives them."""
    read, written = accessed(body)
    views = {s.buffer.name: s.at.buffer.name for s in statements(body) if isinstance(s, n.View)}

    def base(x: str) -> str:
        while x in views:
            x = views[x]
        return x

    read, written = {base(x) for x in read}, {base(x) for x in written}
    if any(isinstance(s, n.Opaque) and "*" in s.writes for s in statements(body)):
        written |= {q.name for q in r.params}
        read |= written
    out = []
    for q in r.params:
        if isinstance(q.of, n.Buffer):
            q = replace(q, role="inout" if q.name in read and q.name in written else "out" if q.name in written else "in")
        out.append(q)
    return tuple(out)


def _used(kernels: Iterable[n.Kernel], params: tuple[n.Param, ...]) -> set[str]:
    """Names that the program mentions anywhere."""
    parts: list[n.Node] = [x for k in kernels for x in (*k.body, k.threads, *(a.extent for a in k.grid))]
    for q in params:
        if isinstance(q.of, n.Buffer):
            parts += [*q.of.shape, *(q.of.strides or ())]
    return {x.name for p in parts for x in walk(p) if isinstance(x, n.Var)}
