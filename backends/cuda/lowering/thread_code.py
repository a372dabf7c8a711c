"""Tile programs as thread code before they are written: by a pass that knows the whole kernel where one is registered, else by the rules
of `kir.surface.lowering`, statement by statement."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.tiles.seen_through import seen_through
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import paths
from kir.ir.types import dtype_of
from kir.ir.visit import once, statements, substitute_buffers, transform, walk
from kir.rewrite.base import Miss, found_sites
from kir.rewrite.edit import names_in, replace_kernel
from kir.rewrite.registry import pass_class
from kir.surface import StatementPath
from kir.surface.lowering import is_tiled, lowered_kernel

from ..expressions.memory import bytes_of
from ..output.statements import POOL_STEP, STATIC_SHARED
from .planning import is_open, planned
from .rolling import in_loops, rolled
from .tensor_maps import described

LOWERING = ("lower-mma",)
"""Passes that are tried first, in this order: they lower whole kernels of a form of their own."""


def thread_code(program: n.Program) -> tuple[n.Program, dict[StatementPath, StatementPath], tuple[Diagnostic, ...]]:
    """The program with every tile kernel lowered, which statement each new one was written for, and why kernels were not lowered."""
    program, why_not = worded(program)
    refusals = list(why_not)
    places: dict[StatementPath, StatementPath] = {}
    for k in program.kernels:
        if not is_tiled(k) and not _multiplies(k):
            if (looped := in_loops(k, names_in(program, k))) != k:
                program = replace_kernel(program, k.name, looped)
            continue
        by_pass, why = _by_pass(*_prepared(program, k))
        if by_pass is not None:
            places |= _labeled(program, by_pass, k.name)
            program = replace_kernel(by_pass, k.name, in_pool(next(x for x in by_pass.kernels if x.name == k.name)))
            continue
        try:
            made, own = lowered_kernel(program, k)
        except KirError as refused:
            refusals += [*why, *refused.diagnostics]
            continue
        program = replace_kernel(program, k.name, in_pool(rolled(made, k)))
        places |= own
    return program, places, tuple(refusals)


def worded(program: n.Program) -> tuple[n.Program, tuple[Diagnostic, ...]]:
    """The program with what CUDA cannot say said in other words: functions as arithmetic, views of other elements seen through, boxes by tensor maps;
    and what has none."""
    return once(program, "_cuda_words", lambda: described(seen_through(_in_words(program))))


def _in_words(program: n.Program) -> n.Program:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.fn == "sigmoid" and new.of is None and isinstance(x := new.args[0], n.Expr):
            one = build.const(1.0, dtype_of(x.type))
            return build.binary("div", one, build.add(one, build.call("exp", build.unary("neg", x))))
        return new
    made: n.Program = transform(program, leave) if any(isinstance(x, n.Call) and x.fn == "sigmoid" for x in walk(program)) else program
    return made


def in_pool(k: n.Kernel) -> n.Kernel:
    """A kernel that was lowered, with what is decided of its shared arrays written down: in a pool each starts at a multiple of 128 bytes."""
    shared = [s.buffer for s in statements(k.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    if sum(bytes_of(b) for b in shared) <= STATIC_SHARED:
        return k
    placed = {b.name: replace(b, align=max(b.align, POOL_STEP)) for b in shared}
    made: n.Kernel = substitute_buffers(k, placed)
    return made


def _prepared(program: n.Program, k: n.Kernel) -> tuple[n.Program, n.Kernel]:
    """The program with a kernel's open products brought to tensor cores, where that can be done; else as it is."""
    if not is_open(k):
        return program, k
    try:
        made, _ = planned(program, k.name)
    except KirError:
        return program, k
    return made, next(x for x in made.kernels if x.name == k.name)


def _multiplies(k: n.Kernel) -> bool:
    """Whether a kernel has a product of tiles, be it of one thread."""
    return any(isinstance(s, n.Mma) for s in statements(k.body))


def _by_pass(program: n.Program, k: n.Kernel) -> tuple[n.Program | None, tuple[Diagnostic, ...]]:
    """The program with a kernel lowered by the first pass that applies to it; or why those that nearly did do not."""
    why: list[Diagnostic] = []
    for name in LOWERING:
        try:
            item = pass_class(name).with_options({})
        except KirError:
            continue
        found = item.match(program, (k.name,), k)
        for site in found_sites(found):
            return item.forward(program, site), ()
        if isinstance(found, Miss) and any(isinstance(s, n.Mma) and s.via == "mma_sync" for s in statements(k.body)):
            why.append(Diagnostic("KIR-B030", f"'{name}' does not apply: {found.reason}", anchor=k.name, origin=k.origin))
    return None, tuple(why)


def _labeled(before: n.Program, after: n.Program, kernel: str) -> dict[StatementPath, StatementPath]:
    """Where the statements of a lowered kernel come from, by labels that only one statement of the kernel has."""
    known: dict[str, list[StatementPath]] = {}
    for path, s in paths(before):
        if path[0] == kernel and s.label:
            known.setdefault(s.label, []).append(path)
    return {path: known[s.label][0] for path, s in paths(after)
            if path[0] == kernel and s.label in known and len(known[s.label]) == 1}


def placed(line: StatementPath, places: dict[StatementPath, StatementPath]) -> StatementPath:
    """The path in the program as it was given of a statement that was written for it."""
    while line and line not in places:
        line = line[:-1]
    return places.get(line, ())
