"""From tiles to threads: each statement of a CTA as statements of its threads, joined into one loop over them with computed barriers.

`lowered(program)` gives the program with every kernel that works on tiles written for threads; kernels of threads stay as they are. It
decides nothing that is not written in the program or follows from it by the rules of `choice` and `barriers`.

Order: registers, tiled, tiles, inverse, roles, tensor_products, statements, raising.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from kir.analysis.facts import Facts
from kir.analysis.tiles.fragments import Spread
from kir.base.diagnostic import Diagnostic, KirError, Origin
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.canonical import bound_names
from kir.ir.paths import Path, paths
from kir.ir.types import I32, dtype_of
from kir.surface.lowering.registers.barriers import joined
from kir.surface.lowering.registers.plan import planned
from kir.surface.lowering.registers.state import ROUNDS, State, refuse
from kir.surface.lowering.roles import has_roles, lowered_roles
from kir.surface.lowering.statements import block
from kir.surface.lowering.tensor_products import asked_for, given_back, known
from kir.surface.lowering.tiled import is_tiled
from kir.surface.lowering.tiles.warpgroups import started

MARK = "<lowered>"
"""The file of the marks that statements carry while they are lowered: their number in reading order."""
__all__ = ["Places", "is_tiled", "lowered", "lowered_kernel", "lowered_with_places"]


Places = Mapping[Path, Path]
"""Path of a statement in the lowered program -> path of the statement that it was written for."""


def lowered(program: n.Program) -> n.Program:
    """The program with kernels of tiles written for threads. Raises KirError KIR-B030, located, for what has no form for threads."""
    return lowered_with_places(program)[0]


def lowered_with_places(program: n.Program) -> tuple[n.Program, Places]:
    """`lowered`, and which statement each new one was written for."""
    places: dict[Path, Path] = {}
    kernels = []
    for k in program.kernels:
        made, own = lowered_kernel(program, k) if is_tiled(k) else (k, {})
        kernels.append(made)
        places |= own
    return (replace(program, kernels=tuple(kernels)) if places else program), places


def lowered_kernel(program: n.Program, k: n.Kernel) -> tuple[n.Kernel, Places]:
    """One kernel, written as a loop over the threads of its CTA. Raises KirError KIR-B030."""
    every = list(paths(replace(program, kernels=(k,))))
    k = planned(program, replace(k, body=_numbered(k.body, count(1))))
    threads = int_value(k.threads)
    if threads is None:
        raise refuse("the number of threads is not known when the program is compiled", "a binding that names it")
    taken = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces} | {f.name for f in program.functions}
    taken |= {a.name for a in k.grid} | set(bound_names(k.body)) | {kernel.name for kernel in program.kernels}
    facts = Facts.in_kernel(program, k.name)
    for axis in k.grid:
        dtype = dtype_of(axis.extent.type)
        facts = facts.ranging(n.Var(axis.name, dtype), n.Const(0, dtype), axis.extent)
    name = next(x for x in ("t", *(f"t_{i}" for i in range(len(taken) + 1))) if x not in taken)
    taken.add(name)

    def begun(spreads: Mapping[str, Spread]) -> State:
        state = State(program, k, threads, n.Var(name, I32), set(taken), facts)
        state.facts = facts.ranging(state.thread, const(0), const(threads))
        state.constant |= {a.name for a in k.grid} | {p.name for p in program.params}
        state.spreads |= spreads
        return state
    state = begun({})
    try:
        if has_roles(k):
            if state.in_tensor:
                raise refuse("products into tensor memory by a role", "a kernel without roles")
            state.taken.discard(name)
            made = replace(k, body=lowered_roles(state, k, block))
        else:
            block(state, k.body)
            for _ in range(ROUNDS):
                if not state.wanted:
                    break
                state = begun({**state.spreads, **state.wanted})
                block(state, k.body)
            inside = (*asked_for(state), *started(state), *known(state), *joined(state.items, state.aliases.may_be_one), *given_back(state))
            state.shared += [n.Alloc(bar) for bar, _ in state.boxes]
            loop = n.For(state.thread, const(0), const(threads), const(1), inside, "thread", label="thread_loop")
            made = replace(k, body=state.finished((loop,)))
    except KirError as refused:
        raise KirError(*(_located(d, k, every) for d in refused.diagnostics)) from refused
    made = replace(made, body=_told_apart(made.body))
    own = {path: every[s.origin.line - 1][0] for path, s in paths(replace(program, kernels=(made,)))
           if s.origin is not None and s.origin.file == MARK}
    return replace(made, body=_mapped(made.body, lambda s: every[s.origin.line - 1][1].origin
                                      if s.origin is not None and s.origin.file == MARK else s.origin)), own


def _told_apart(body: n.Block) -> n.Block:
    """A block into which declarations were moved from inside others: those keep a label that nothing else in the block has."""
    labels = Counter(s.label for s in body)
    return tuple(replace(s, label=None) if isinstance(s, n.Alloc) and s.label and labels[s.label] > 1 else s for s in body)


def _numbered(body: n.Block, numbers: Iterator[int]) -> n.Block:
    """A block whose statements have their number in reading order as their origin."""
    return _mapped(body, lambda _: Origin(MARK, next(numbers), 1, 1, 1))


def _mapped(body: n.Block, origin: Callable[[n.Stmt], Origin | None]) -> n.Block:
    """A block whose statements have other origins, those inside them after them."""
    out: list[n.Stmt] = []
    for s in body:
        changes: dict[str, Any] = {"origin": origin(s)}
        match s:
            case n.For() | n.While():
                changes["body"] = _mapped(s.body, origin)
            case n.If():
                changes["then"] = _mapped(s.then, origin)
                changes["orelse"] = _mapped(s.orelse, origin)
            case n.Roles():
                changes["roles"] = tuple(replace(r, body=_mapped(r.body, origin)) for r in s.roles)
            case _:
                pass
        out.append(replace(s, **changes))  # type: ignore[type-var]  # every Stmt is a dataclass
    return tuple(out)


def _located(d: Diagnostic, k: n.Kernel, every: Sequence[tuple[Path, n.Stmt]]) -> Diagnostic:
    """A refusal with the place of the statement that it is marked with."""
    if d.origin is None or d.origin.file != MARK:
        return replace(d, anchor=d.anchor or k.name, origin=d.origin or k.origin)
    path, s = every[d.origin.line - 1]
    return replace(d, anchor="/".join(map(str, (*path[:-1], s.label or path[-1]))), origin=s.origin)
