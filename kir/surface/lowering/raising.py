"""From threads back to tiles: the inverse of lowering, statement by statement, by proposing and comparing.

A kernel's loop over its threads is read from the top. For what stands next a tile statement is proposed (which one, says the code: what
is stored where, and how the addresses move with thread and slot); it is lowered in the state reached so far, and taken when that gives the
code that stands there, up to local names and barriers. So what is raised lowers to what it was raised from, by construction.
"""
from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import const, int_value, is_const
from kir.ir.canonical import alpha_equal, bound_names, rename
from kir.ir.visit import regions, substitute_buffers
from kir.rewrite.edit import names_in
from kir.surface.lowering.inverse.next_statement import NextStatement
from kir.surface.lowering.registers.anchors import NotRaised
from kir.surface.lowering.registers.barriers import Unit
from kir.surface.lowering.registers.state import Scratch, State
from kir.surface.lowering.statements import block
from kir.surface.lowering.tiled import is_tiled


def raised_kernel(program: n.Program, k: n.Kernel) -> n.Kernel:
    """A kernel that is one loop over its threads as statements of the CTA. Raises NotRaised."""
    front = [s for s in k.body if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.init is None]
    loop = k.body[-1] if k.body else None
    threads = int_value(k.threads)
    if not (isinstance(loop, n.For) and loop.kind == "thread" and len(front) == len(k.body) - 1 and is_const(loop.lo, 0)
            and int_value(loop.hi) == threads and threads):
        raise NotRaised("the kernel is not memory and one loop over its threads")
    scratch = {s.buffer.name: s.buffer for s in front if s.buffer.name.startswith("scratch_") and len(s.buffer.shape) == 1}
    small = {name: replace(b, shape=(const(0),), align=0) for name, b in scratch.items()}
    if any(not r.index and r.buffer.name in scratch for r in regions(loop)):
        raise NotRaised("memory between threads is read as a whole")
    body = tuple(substitute_buffers(s, small) for s in loop.body)
    facts = Facts.at(program, (k.name,))
    taken = names_in(program, k)
    state = State(program, replace(k, body=()), threads, loop.var, taken, facts.ranging(loop.var, const(0), const(threads)))
    state.constant |= {a.name for a in k.grid} | {p.name for p in program.params}
    state.spare = [Scratch(b.name, b.dtype) for b in small.values()]
    made = replace(k, body=(*(s for s in front if s.buffer.name not in scratch), *_Raiser(state, body, set(small)).block(body)))
    if not is_tiled(made):
        raise NotRaised("no statement of its threads is a part of a tile statement")
    if not _lowers_to(program, made, k):
        raise NotRaised("what is raised of its statements one by one is lowered otherwise as a whole")
    return made


def _lowers_to(program: n.Program, made: n.Kernel, k: n.Kernel) -> bool:
    """Whether lowering the raised kernel gives the one that it was raised from: how a fragment is distributed depends on what comes after it too."""
    from kir.surface.lowering import lowered_kernel
    try:
        again = lowered_kernel(program, made)[0]
    except KirError:
        return False
    return alpha_equal(replace(program, kernels=(again,), plan=()), replace(program, kernels=(k,), plan=()))


def _is_barrier(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn == "barrier"


class _Raiser(NextStatement):
    """Reads the body of a loop over threads. `state` is that of lowering what has been raised so far."""

    def block(self, body: n.Block) -> n.Block:
        """The tile statements of a block."""
        rest = [s for s in body if not _is_barrier(s)]
        out: list[n.Stmt] = []
        at = 0
        while at < len(rest):
            made, count = self._next(rest[at:])
            out += made
            at += count
        return tuple(out)

    def _next(self, rest: Sequence[n.Stmt]) -> tuple[n.Block, int]:
        """The tile statement that the code begins with, and how many statements of code it is."""
        for proposal in self._proposals(rest):
            trial = self._lowered(proposal)
            if trial is None:
                continue
            state, code = trial
            if 0 < len(code) <= len(rest) and _alike(code, tuple(rest[:len(code)])):
                self.state = state
                return (proposal,), len(code)
        s = rest[0]
        inner = self._control(s)
        if inner is not None:
            return (inner,), 1
        raise NotRaised(f"{type(s).__name__.lower()}{f' @{s.label}' if s.label else ''} is not what lowering a tile statement gives")

    def _lowered(self, s: n.Stmt) -> tuple[State, n.Block] | None:
        """The code of a proposal, and the state after it."""
        trial = copy.copy(self.state)
        trial.held, trial.busy, trial.items, trial.touches = dict(trial.held), set(), [], set()
        trial.scratch, trial.spare = [copy.copy(x) for x in trial.scratch], list(trial.spare)
        trial.taken, trial.counters, trial.constant = set(trial.taken), set(trial.counters), set(trial.constant)
        trial.shared, trial.in_flight = list(trial.shared), set(trial.in_flight)
        try:
            block(trial, (s,))
        except (KirError, TypeError, ValueError, IndexError):
            return None
        if not all(isinstance(u, Unit) for u in trial.items):
            return None
        code = tuple(x for u in trial.items if isinstance(u, Unit) for x in u.block)
        return trial, code

    def _control(self, s: n.Stmt) -> n.Stmt | None:
        """A loop or branch that all threads run alike."""
        state = self.state
        match s:
            case n.For() if s.kind != "thread" and not self._moves(s.lo, s.hi):
                with state.inside(loop=True):
                    state.facts = state.facts.ranging(s.var, s.lo, s.hi, s.step)
                    body = self._inner(s.body)
                return replace(s, body=body)
            case n.While() if not self._moves(s.cond):
                with state.inside(loop=True):
                    body = self._inner(s.body)
                return replace(s, body=body)
            case n.If() if not self._moves(s.cond):
                with state.inside():
                    then = self._inner(s.then)
                with state.inside():
                    orelse = self._inner(s.orelse)
                return replace(s, then=then, orelse=orelse)
            case _:
                return None

    def _inner(self, body: n.Block) -> n.Block:
        outer = self.state
        inner = copy.copy(outer)
        self.state = inner
        made = self.block(body)
        outer.scratch, outer.spare, outer.in_flight = self.state.scratch, self.state.spare, self.state.in_flight
        self.state = outer
        return made


def _alike(made: n.Block, code: n.Block) -> bool:
    """Whether two pieces of code are the same up to the names that they bind."""
    ours, theirs = list(bound_names(made)), list(bound_names(code))
    if len(ours) != len(theirs) or [type(s) for s in made] != [type(s) for s in code]:
        return False
    pairs = {a: b for a, b in zip(ours, theirs, strict=True) if a != b}
    return all(rename(s, pairs) == c for s, c in zip(made, code, strict=True))
