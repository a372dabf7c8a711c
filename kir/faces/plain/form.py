"""The plain form of a naive program, for people: made of it by exact steps, and read only. A lineage ends in the program itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.normal.normal_form import normalize
from kir.analysis.order import after
from kir.analysis.simplify import is_true, simplify
from kir.faces.plain.grid import divided, flattened, shortened, untangled, without_units
from kir.faces.plain.loops import joined, once, one_branch, shrunk, split, without_return
from kir.faces.plain.naming import named
from kir.faces.plain.sums import by_hand
from kir.faces.plain.values import counted_in_i32, in_plain_words, settled
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, outer_names
from kir.ir.names import Names
from kir.ir.visit import updated

ROUNDS = 12
"""Most rounds; each leaves fewer loops, axes or branches, and the last one changes nothing."""


def plain(program: n.Program) -> n.Program:
    """The program in plain words: it computes the same, bit for bit. Its expressions are in the order in which they are written by hand."""
    aliased = any(dict(p.attrs).get("alias") for p in program.params)
    for _ in range(ROUNDS):
        before = program
        program = replace(program, kernels=tuple(_kernel(program, k, aliased) for k in program.kernels))
        program = normalize(program)
        if program == before:
            break
    return by_hand(named(replace(program, facts=_needed(program))))


def _kernel(program: n.Program, k: n.Kernel, aliased: bool) -> n.Kernel:
    names = Names({*outer_names(program), *(a.name for a in k.grid), *bound_names(k.body)})
    k = settled(without_units(replace(k, body=without_return(k.body))))
    known = Facts.at(replace(program, kernels=(k,)), (k.name,))
    k = replace(k, body=_block(k.body, known, names.fresh, aliased))
    k = shortened(k, Facts.in_kernel(program, k.name))
    known = Facts.in_kernel(program, k.name)
    k = flattened(k, known, names.fresh, aliased)
    return divided(k, known, names.fresh)


def _block(body: n.Block, known: Facts, fresh: Callable[[str], str], aliased: bool) -> n.Block:
    out: list[n.Stmt] = []
    for s in body:
        for made in _stmt(s, known, fresh, aliased):
            out.append(made)
            known = after(known, made)
    return one_branch(tuple(out))


def _stmt(s: n.Stmt, known: Facts, fresh: Callable[[str], str], aliased: bool) -> n.Block:
    s = in_plain_words(s, known)
    match s:
        case n.For():
            s = counted_in_i32(s, known)
            if len(only := once(s, known)) != 1 or only[0] is not s:
                return _block(only, known, fresh, aliased)
            s = untangled(joined(split(s, known, fresh), known, fresh), known, fresh, aliased)
            if len(fewer := shrunk(s, known)) != 1 or fewer[0] is not s:
                return _block(fewer, known, fresh, aliased)
            return (updated(s, body=_block(s.body, known.ranging(s.var, s.lo, s.hi, s.step), fresh, aliased)),)
        case n.If():
            then = _block(s.then, known.knowing(s.cond), fresh, aliased)
            return (updated(s, then=then, orelse=_block(s.orelse, known, fresh, aliased)),)
        case n.While():
            return (updated(s, body=_block(s.body, known, fresh, aliased)),)
        case _:
            return (s,)


def _needed(program: n.Program) -> tuple[n.Expr, ...]:
    """The facts that the others do not say."""
    facts = list(program.facts)
    for fact in program.facts:
        rest = [f for f in facts if f is not fact]
        if is_true(simplify(fact, Facts.from_program(replace(program, facts=tuple(rest))))):
            facts = rest
    return tuple(facts)
