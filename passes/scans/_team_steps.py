"""Steps that the threads of a CTA take together on one value each: found in a program, as text and back, and what they compute, by a run with symbols."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from kir.analysis.algebra.equality import Answer, equal_over_reals
from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.instructions import instruction
from kir.interp.launch import run
from kir.interp.numerics.number import storage
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import DTYPES, DType, TileType
from kir.ir.visit import children, names_mentioned, statements, substitute, transform, walk
from kir.rewrite import Path
from kir.rewrite.match import block_and_index, counting
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.shared_arrays import declaration, uses
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_scalar, whole

KINDS = ("own", "before")
"""Which values a thread folds: up to its own, or those before its own. (Totals have passes that say how they come about.)"""
MOST, KEPT, OPERATIONS = 12, 512, 6_000_000
"""Statements of the steps; texts whose meaning is kept; operations of a run with symbols."""
OWN = ("t", "given", "X", "Y", "total")


@dataclass(frozen=True)
class Steps:
    """Statements of the value `given` (a name) and the thread `t`, the memory that they share, and what a thread has of them in the end."""

    text: str
    body: n.Block
    shared: tuple[n.Buffer, ...]
    result: n.Expr
    threads: int
    dtype: DType


@dataclass(frozen=True)
class FoundSteps:
    """Steps in a program: so many statements from a place on, of a `value`; what they leave is `result` there, a fold with `op` of a kind."""

    steps: Steps
    value: n.Expr
    inplace: bool
    shared: tuple[n.Buffer, ...]
    op: str
    kind: str
    result: n.Expr
    size: int


# ------------------------------------------------------------------------------------------------------------------- as text
def _program(text: str, result: str, threads: int, dtype: str) -> str:
    lines = text.splitlines()
    return "\n".join(["kir 1", "program steps", f"  in X: {dtype}[{threads}]", f"  out Y: {dtype}[{threads}]", f"kernel main grid () threads {threads}",
                      *(f"  {x}" for x in lines if x.startswith("shared ")), f"  for t in 0..{threads} parallel thread", "    let given = X[t]",
                      *(f"    {x}" for x in lines if not x.startswith("shared ")), f"    Y[t] = {result}", ""])


@lru_cache(KEPT)
def _parsed(text: str, result: str, threads: int, dtype: str) -> Steps | None:
    try:
        program = parse_program(_program(text, result, threads, dtype))
    except KirError:
        return None
    *front, team = program.kernels[0].body
    if not isinstance(team, n.For) or len(team.body) < 3 or not isinstance(team.body[-1], n.Store):
        return None
    shared = tuple(s.buffer for s in front if isinstance(s, n.Alloc) and s.init is None)
    if len(shared) != len(front):
        return None
    return Steps(text, team.body[1:-1], shared, team.body[-1].value, threads, DTYPES[dtype])


def parsed(text: str, result: str, threads: int, dtype: DType) -> Steps | None:
    """Steps from their text; None for what is no such text."""
    return _parsed(text, result, threads, dtype.name)


def _as_steps(body: n.Block, shared: tuple[n.Buffer, ...], result: n.Expr, threads: int, dtype: DType) -> Steps | None:
    """Steps from statements: by way of their text, so that both are the same."""
    skeleton = parse_program(_program("", "given", threads, dtype.name))
    kernel = skeleton.kernels[0]
    team = kernel.body[0]
    assert isinstance(team, n.For)
    last = n.Store(build.region(n.Buffer("Y", dtype, (build.const(threads),), "global"), n.Var("t", team.var.of)), result)
    made = replace(skeleton, kernels=(replace(kernel, body=(*(n.Alloc(b) for b in shared), replace(team, body=(team.body[0], *body, last)))),))
    lines = program_text(made).splitlines()
    first = next(k for k, x in enumerate(lines) if x.startswith("    let given = "))
    text = "\n".join([*(x[2:] for x in lines if x.startswith("  shared ")), *(x[4:] for x in lines[first + 1:-1])])
    return parsed(text, expr_text(result), threads, dtype)


# ------------------------------------------------------------------------------------------------------------- what they mean
@lru_cache(KEPT)
def _computed(text: str, result: str, threads: int, dtype: str, kind: str, op: str) -> Answer:
    start = expr_text(identity(REDUCTIONS[op], DTYPES[dtype]))
    sign = {"add": "total + X[t]", "mul": "total * X[t]", "max": "max(total, X[t])", "min": "min(total, X[t])", "and": "total & X[t]", "or": "total | X[t]",
            "xor": "total ^ X[t]"}.get(op)
    if sign is None:
        return Answer("not decided", f"'{op}' has no serial form here")
    fold, put = f"    total = {sign}", "    Y[t] = total"
    loop = f"  for t in 0..{threads}"
    rounds = {"own": [loop, fold, put], "before": [loop, put, fold]}[kind]
    serial = "\n".join(["kir 1", "program steps", f"  in X: {dtype}[{threads}]", f"  out Y: {dtype}[{threads}]", "kernel main grid () threads 1",
                        f"  register total: {dtype} = {start}", *rounds, ""])
    try:
        return equal_over_reals(parse_program(_program(text, result, threads, dtype)), parse_program(serial), {}, OPERATIONS)
    except KirError as bad:
        return Answer("not decided", bad.diagnostics[0].message)


def computed(steps: Steps, kind: str, op: str) -> Answer:
    """Whether each thread is left what a fold of that kind gives, over the reals, for all values."""
    return _computed(steps.text, expr_text(steps.result), steps.threads, steps.dtype.name, kind, op)


@lru_cache(KEPT)
def _hazards(text: str, result: str, threads: int, dtype: str, loop: bool, later: bool) -> str:
    program = parse_program(_program(text, result, threads, dtype))
    kernel = program.kernels[0]
    *front, team = kernel.body
    assert isinstance(team, n.For)
    if loop:
        again = counting(n.Var("%round", team.var.of), 2, (*team.body, *((barrier(),) if later else ())))
        program = replace(program, kernels=(replace(kernel, body=(*front, replace(team, body=(again,)))),))
    values = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 5, threads).astype(storage(DTYPES[dtype]))
    try:
        found = run(program, {"X": values}, {}, mode="check")
    except KirError as bad:
        return bad.diagnostics[0].message
    return found.errors[0].diagnostic().message if found.errors else ""


def hazards(steps: Steps, loop: bool, later: bool) -> str:
    """What races in the steps, "" for nothing: what threads touch depends on their numbers alone, so that one run shows it. `loop`: they are taken again and
    again, with a barrier `later` in each round."""
    return _hazards(steps.text, expr_text(steps.result), steps.threads, steps.dtype.name, loop, later)


def _by_example(steps: Steps, op: str) -> tuple[str, ...]:
    """The kinds of fold that one run on numbers does not refute."""
    values = np.random.default_rng(7).integers(1, 100, steps.threads)
    fold: Any = {"add": np.cumsum, "max": np.maximum.accumulate, "min": np.minimum.accumulate, "or": np.bitwise_or.accumulate,
            "and": np.bitwise_and.accumulate, "xor": np.bitwise_xor.accumulate}.get(op)
    if fold is None or steps.dtype.is_bool or (steps.dtype.is_integer and steps.dtype.bits < 32) or (steps.dtype.is_float and op not in ("add", "max", "min")):
        return ()
    try:
        out = run(parse_program(_program(steps.text, expr_text(steps.result), steps.threads, steps.dtype.name)),
                  {"X": values.astype(storage(steps.dtype))}, {}).outputs["Y"].astype(np.float64)
    except KirError:
        return ()
    up = fold(values).astype(np.float64)
    same = {"own": up, "before": np.concatenate([[0.0], up[:-1]])}
    return tuple(k for k in KINDS if np.allclose(out if k != "before" else out[1:], same[k] if k != "before" else same[k][1:], rtol=1e-2))


# ---------------------------------------------------------------------------------------------------------- in a program
def found_steps(program: n.Program, path: Path, team: ThreadTeam) -> FoundSteps | None:
    """The shortest steps that begin at a path and leave each thread one fold of the threads' values."""
    block, i = block_and_index(program, path)
    near = block[i:i + MOST]
    if not any(_meets(s) for s in near) or any(isinstance(x, n.Call) and x.fn.startswith("shfl") for s in near for x in walk(s)):
        return None
    first = next((k for k in range(i, len(block)) if not (isinstance(s := block[k], n.Alloc) and is_scalar(s) and isinstance(s.init, n.Const))), i)
    start = block[first]
    value = start.value if isinstance(start, n.Store) else start.init if isinstance(start, n.Alloc) else None
    if isinstance(start, n.Store) and (start.at.buffer.space != "shared" or start.mask is not None or start.clip):
        return None
    if (value is None) != isinstance(start, n.For) or isinstance(value, n.Const):
        return None
    if value is not None and (isinstance(value.type, TileType) or any(isinstance(x, n.Region) and x.buffer.space == "shared" for x in walk(value))):
        return None
    for j in range(first + 1, min(len(block), i + MOST) + 1):
        if not all(map(_is_step, block[i:j])):
            return None
        if any(map(_meets, block[i:j])) and (found := _found(program, path, team, value, j - i)) is not None:
            return found
    return None


def _meets(s: n.Stmt) -> bool:
    """Whether threads exchange values or wait for each other inside."""
    return any(isinstance(x, n.Call) and x.of is None and (instruction(x.fn).is_convergent or instruction(x.fn).effect == "sync") for x in walk(s))


def _is_step(s: n.Stmt) -> bool:
    """Whether a statement is one that steps may have."""
    return all(isinstance(x, (n.Let, n.Store, n.If, n.Alloc, n.Eval)) or (isinstance(x, n.For) and x.kind in ("serial", "unroll")) for x in statements((s,)))


def _found(program: n.Program, path: Path, team: ThreadTeam, value: n.Expr | None, size: int) -> FoundSteps | None:
    """The steps of so many statements, where they use nothing else and leave one result."""
    block, i = block_and_index(program, path)
    window, rest = block[i:i + size], block[i + size:]
    bound = set(bound_names(window))
    written = {s.at.buffer for s in statements(window) if isinstance(s, n.Store) and s.at.buffer.space == "register"}
    outer = {b for b in written if b.name not in bound}
    inplace = len(outer) == 1
    if len(outer) > 1:
        return None
    if inplace:
        own = next(iter(outer))
        if own.shape or (value is not None and value != whole(own)) or not any(isinstance(s, n.Alloc) and s.buffer == own for s in block[:i]):
            return None
        value = whole(own)
    if value is None or not isinstance(value.type, DType):
        return None
    shared = tuple(dict.fromkeys(x.buffer for s in window for x in walk(s) if isinstance(x, n.Region) and x.buffer.space == "shared"))
    reads = _results(rest, {*bound, *(b.name for b in shared), *(b.name for b in outer)})
    result = next(reads, None)
    if result is None or result.type != value.type or any(other != result for other in reads):
        return None
    for b in shared:
        home = declaration(program, path, b.name)
        inside = sum(isinstance(x, n.Region) and x.buffer == b for s in window for x in walk(s))
        after = sum(1 for s in rest for x in walk(s) if x == result) * sum(isinstance(x, n.Region) and x.buffer == b for x in walk(result))
        if home is None or home.init is not None or uses(program, path, b.name) != inside + after:
            return None
    steps = _of(window, shared, result, value, next(iter(outer)) if inplace else None, team)
    if steps is None:
        return None
    for op in dict.fromkeys(x.op for s in window for x in walk(s) if isinstance(x, n.Binary) and x.type == value.type and x.op in REDUCTIONS):
        for kind in _by_example(steps, op):
            if computed(steps, kind, op).status == "proved":
                return FoundSteps(steps, value, inplace, shared, op, kind, result, size)
    return None


def _results(rest: n.Block, names: set[str]) -> Iterator[n.Expr]:
    """What statements read of some memory and values, as whole expressions."""
    def visit(x: n.Node) -> Iterator[n.Expr]:
        if names.isdisjoint(names_mentioned(x)):
            return
        if (isinstance(x, n.Load) and x.at.buffer.name in names) or (isinstance(x, n.Var) and x.name in names):
            assert isinstance(x, n.Expr)
            yield x
            return
        if isinstance(x, n.Region) and x.buffer.name in names:
            yield n.Load(x)
            yield n.Const(0, DTYPES["bool"])  # it is written, or handed on: no single result
        for y in children(x):
            yield from visit(y)
    for s in rest:
        yield from visit(s)


def _of(window: n.Block, shared: tuple[n.Buffer, ...], result: n.Expr, value: n.Expr, own: n.Buffer | None, team: ThreadTeam) -> Steps | None:
    """The steps of statements, of the value `given`."""
    assert isinstance(value.type, DType)
    given, t = n.Var("given", value.type), n.Var("t", team.thread.of)
    body: n.Block = window
    if own is not None:
        body = (n.Alloc(own, given), *body)
    else:
        body = tuple(transform(s, lambda a, b: given if b == value else b) for s in body)
    names = {x: f"{x}_" for x in (*bound_names(body), *(b.name for b in shared)) if x in OWN}
    held = tuple(replace(b, name=names.get(b.name, b.name)) for b in shared)
    body = tuple(substitute(rename(s, names), {team.thread.name: t}) for s in body)
    last = substitute(rename(result, names), {team.thread.name: t})
    bound = {*bound_names(body), "t", "given"}
    there = {*bound, *(b.name for b in held)}
    for x in (x for s in (*body, last) for x in walk(s)):
        if (isinstance(x, n.Var) and x.name not in bound) or (isinstance(x, n.Region) and x.buffer.name not in there):
            return None
    body = tuple(_plain(s) for s in body)
    return _as_steps(body, held, last, team.threads, value.type)


def _plain(s: n.Stmt) -> n.Stmt:
    """A statement without labels and origins."""
    made: n.Stmt = transform(s, lambda a, b: replace(b, label=None, origin=None) if isinstance(b, n.Stmt) else b)  # type: ignore[type-var]  # all are dataclasses
    return made
