"""Steps that the threads of a CTA take together on one value each: found in a program, as text and back, and what they compute, by a run with symbols."""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.printer import expr_text, program_text
from kir.ir.types import DTYPES, DType, TileType, dtype_of
from kir.ir.visit import children, names_mentioned, statements, substitute, transform, walk
from kir.rewrite import Path
from kir.rewrite.match import block_and_index, counting
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.shared_arrays import declaration, uses
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, is_in_loop, is_scalar, whole

from ._scan_forms import ladder_of

if TYPE_CHECKING:
    import numpy as np

    from kir.analysis.algebra.equality import Answer

KINDS = ("own", "before")
"""Which values a thread folds: up to its own, or those before its own. (Totals have passes that say how they come about.)"""
MOST, KEPT, OPERATIONS = 14, 512, 6_000_000
"""Statements of the steps; texts whose meaning is kept; operations of a run with symbols."""
OWN = ("t", "given", "first", "X", "F", "Y", "total")


@dataclass(frozen=True)
class Steps:
    """Statements of the value `given` (a name) and the thread `t`, the memory that they share, and what a thread has of them in the end. They may read
    `first`, one value for all, which the sums then begin with. `every` is the sum of all values, where a thread has that too."""

    text: str
    body: n.Block
    shared: tuple[n.Buffer, ...]
    result: n.Expr
    threads: int
    dtype: DType
    every: n.Expr | None = None

    @property
    def begins_with_first(self) -> bool:
        return _reads_first(self.text, expr_text(self.result))


@dataclass(frozen=True)
class FoundSteps:
    """Steps in a program: so many statements from a place on, of a `value`; what they leave is `result` there, a fold with `op` of a kind that begins
    with `first`, where there is one."""

    steps: Steps
    value: n.Expr
    first: n.Expr | None
    inplace: bool
    shared: tuple[n.Buffer, ...]
    op: str
    kind: str
    result: n.Expr
    size: int
    every: n.Expr | None


# ------------------------------------------------------------------------------------------------------------------- as text
def _program(text: str, result: str, threads: int, dtype: str, every: str = "") -> str:
    lines, first = text.splitlines(), _reads_first(text, result)
    return "\n".join([*_tensors(threads, dtype, first), *([f"  out Z: {dtype}[{threads}]"] if every else []), f"kernel main grid () threads {threads}",
                      *(f"  {x}" for x in lines if x.startswith("shared ")), f"  for t in 0..{threads} parallel thread",
                      *(["    let first = F[0]"] if first else []), "    let given = X[t]",
                      *(f"    {x}" for x in lines if not x.startswith("shared ")), f"    Y[t] = {result}",
                      *([f"    Z[t] = {every}"] if every else []), ""])


def _tensors(threads: int, dtype: str, first: bool) -> list[str]:
    return ["kir 1", "program steps", f"  in X: {dtype}[{threads}]", *([f"  in F: {dtype}[1]"] if first else []), f"  out Y: {dtype}[{threads}]"]


def _reads_first(text: str, result: str) -> bool:
    return re.search(r"\bfirst\b", f"{text}\n{result}") is not None


@lru_cache(KEPT)
def _parsed(text: str, result: str, threads: int, dtype: str, every: str) -> Steps | None:
    from kir.ir.parser import parse_program
    try:
        program = parse_program(_program(text, result, threads, dtype, every))
    except KirError:
        return None
    *front, team = program.kernels[0].body
    tail = 2 if every else 1
    if not isinstance(team, n.For) or len(team.body) < 2 + tail:
        return None
    last = team.body[-tail:]
    if not all(isinstance(s, n.Store) for s in last):
        return None
    results = [s.value for s in last if isinstance(s, n.Store)]
    shared = tuple(s.buffer for s in front if isinstance(s, n.Alloc) and s.init is None)
    if len(shared) != len(front):
        return None
    return Steps(text, team.body[1 + _reads_first(text, result):-tail], shared, results[0], threads, DTYPES[dtype], results[1] if every else None)


def parsed(text: str, result: str, threads: int, dtype: DType, every: str = "") -> Steps | None:
    """Steps from their text; None for what is no such text."""
    return _parsed(text, result, threads, dtype.name, every)


def _as_steps(body: n.Block, shared: tuple[n.Buffer, ...], result: n.Expr, threads: int, dtype: DType, every: n.Expr | None) -> Steps | None:
    """Steps from statements: by way of their text, so that both are the same."""
    from kir.ir.parser import parse_program
    skeleton = parse_program(_program("", "given", threads, dtype.name))
    kernel = skeleton.kernels[0]
    team = kernel.body[0]
    assert isinstance(team, n.For)
    last = n.Store(build.region(n.Buffer("Y", dtype, (build.const(threads),), "global"), n.Var("t", team.var.of)), result)
    made = replace(skeleton, kernels=(replace(kernel, body=(*(n.Alloc(b) for b in shared), replace(team, body=(team.body[0], *body, last)))),))
    lines = program_text(made).splitlines()
    begin = next(k for k, x in enumerate(lines) if x.startswith("    let given = "))
    text = "\n".join([*(x[2:] for x in lines if x.startswith("  shared ")), *(x[4:] for x in lines[begin + 1:-1])])
    return parsed(text, expr_text(result), threads, dtype, expr_text(every) if every is not None else "")


# ------------------------------------------------------------------------------------------------------------- what they mean
@lru_cache(KEPT)
def _computed(text: str, result: str, threads: int, dtype: str, kind: str, op: str) -> Answer:
    from kir.analysis.algebra.equality import Answer, equal_over_reals
    from kir.ir.parser import parse_program

    first = _reads_first(text, result)
    start = "F[0]" if first else expr_text(identity(REDUCTIONS[op], DTYPES[dtype]))
    sign = {"add": "total + X[t]", "mul": "total * X[t]", "max": "max(total, X[t])", "min": "min(total, X[t])", "and": "total & X[t]", "or": "total | X[t]",
            "xor": "total ^ X[t]"}.get(op)
    if sign is None:
        return Answer("not decided", f"'{op}' has no serial form here")
    fold, put = f"    total = {sign}", "    Y[t] = total"
    loop = f"  for t in 0..{threads}"
    rounds = {"own": [loop, fold, put], "before": [loop, put, fold], "every": [loop, fold, loop, put]}[kind]
    serial = "\n".join([*_tensors(threads, dtype, first), "kernel main grid () threads 1", f"  register total: {dtype} = {start}", *rounds, ""])
    try:
        return equal_over_reals(parse_program(_program(text, result, threads, dtype)), parse_program(serial), {}, OPERATIONS)
    except KirError as bad:
        return Answer("not decided", bad.diagnostics[0].message)


def computed(steps: Steps, kind: str, op: str) -> Answer:
    """Whether each thread is left what a fold of that kind gives, over the reals, for all values."""
    said = _computed(steps.text, expr_text(steps.result), steps.threads, steps.dtype.name, kind, op)
    if steps.every is None or said.status != "proved":
        return said
    return _computed(steps.text, expr_text(steps.every), steps.threads, steps.dtype.name, "every", op)


@lru_cache(KEPT)
def _hazards(text: str, result: str, every: str, threads: int, dtype: str, loop: bool, later: bool) -> str:
    import numpy as np

    from kir.interp.launch import run
    from kir.interp.numerics.number import storage
    from kir.ir.parser import parse_program

    program = parse_program(_program(text, result, threads, dtype, every))
    kernel = program.kernels[0]
    *front, team = kernel.body
    assert isinstance(team, n.For)
    if loop:
        again = counting(n.Var("%round", team.var.of), 2, (*team.body, *((barrier(),) if later else ())))
        program = replace(program, kernels=(replace(kernel, body=(*front, replace(team, body=(again,)))),))
    values = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 5, threads).astype(storage(DTYPES[dtype]))
    try:
        found = run(program, _inputs(values, _reads_first(text, result)), {}, mode="check")
    except KirError as bad:
        return bad.diagnostics[0].message
    return found.errors[0].diagnostic().message if found.errors else ""


def hazards(steps: Steps, loop: bool, later: bool) -> str:
    """What races in the steps, "" for nothing: what threads touch depends on their numbers alone, so that one run shows it. `loop`: they are taken again and
    again, with a barrier `later` in each round."""
    every = expr_text(steps.every) if steps.every is not None else ""
    return _hazards(steps.text, expr_text(steps.result), every, steps.threads, steps.dtype.name, loop, later)


def _by_example(steps: Steps, op: str) -> tuple[str, ...]:
    """The kinds of fold that one run on numbers does not refute."""
    import numpy as np

    from kir.interp.launch import run
    from kir.interp.numerics.number import storage
    from kir.ir.parser import parse_program

    values = np.random.default_rng(7).integers(1, 100, steps.threads)
    fold: Any = {"add": np.cumsum, "max": np.maximum.accumulate, "min": np.minimum.accumulate, "or": np.bitwise_or.accumulate,
            "and": np.bitwise_and.accumulate, "xor": np.bitwise_xor.accumulate}.get(op)
    if fold is None or steps.dtype.is_bool or (steps.dtype.is_integer and steps.dtype.bits < 32) or (steps.dtype.is_float and op not in ("add", "max", "min")):
        return ()
    try:
        out = run(parse_program(_program(steps.text, expr_text(steps.result), steps.threads, steps.dtype.name)),
                  _inputs(values.astype(storage(steps.dtype)), steps.begins_with_first), {}).outputs["Y"].astype(np.float64)
    except KirError:
        return ()
    up = fold(np.concatenate([values[:1], values]) if steps.begins_with_first else values).astype(np.float64)[-len(values):]
    before = np.concatenate([values[:1] if steps.begins_with_first else [0.0], up[:-1]])
    begin = 0 if steps.begins_with_first else 1
    return tuple(k for k in KINDS if np.allclose(out[begin:] if k == "before" else out, before[begin:] if k == "before" else up, rtol=1e-2))


def _inputs(values: np.ndarray[Any, Any], first: bool) -> dict[str, np.ndarray[Any, Any]]:
    """What steps are tried on: the sums begin with the first value once more, where they begin with one."""
    return {"X": values, "F": values[:1]} if first else {"X": values}


# ---------------------------------------------------------------------------------------------------------- in a program
def found_steps(program: n.Program, path: Path, team: ThreadTeam) -> FoundSteps | None:
    """The shortest steps that begin at a path and leave each thread one fold of the threads' values."""
    block, i = block_and_index(program, path)
    near = block[i:i + MOST]
    if not any(_meets(s) for s in near) or any(_has_its_own_pass(x, team) for s in near for x in walk(s)):
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


def _has_its_own_pass(x: n.Node, team: ThreadTeam) -> bool:
    """Whether a node is an exchange of lanes that another pass undoes: a ladder of them, or one that is no scan's."""
    if isinstance(x, n.For):
        return ladder_of(x, team.thread, team.threads) is not None
    return isinstance(x, n.Call) and x.fn.startswith("shfl") and x.fn != "shfl_up"


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
    touched = tuple(dict.fromkeys(x.buffer for s in window for x in walk(s) if isinstance(x, n.Region) and x.buffer.space == "shared"))
    begins = [b for b in touched if not b.shape and not _stored(window, b)]
    shared = tuple(b for b in touched if b not in begins)
    first = whole(begins[0]) if begins else None
    left = {*bound, *(b.name for b in shared), *(b.name for b in outer)}
    if len(begins) > 1 or (first is not None and (first.type != value.type or not _stays(window, rest, begins[0], left))):
        return None
    results: list[n.Expr] = []
    for read in _results(rest, left):
        if read not in results:
            results.append(read)
            if len(results) > 2 or read.type != value.type:
                return None
    if not results:
        return None
    for result, *more in (results, results[::-1]) if len(results) == 2 else (results,):
        made = _one_result(program, path, team, (window, rest, shared), value, first, next(iter(outer)) if inplace else None, result, more[0] if more else None)
        if made is not None:
            return made
    return None


def _one_result(program: n.Program, path: Path, team: ThreadTeam, parts: tuple[n.Block, n.Block, tuple[n.Buffer, ...]], value: n.Expr, first: n.Expr | None,
                own: n.Buffer | None, result: n.Expr, every: n.Expr | None) -> FoundSteps | None:
    """The steps of a window, with what is left to a thread, and the sum of all values beside it."""
    window, rest, shared = parts
    results = (result,) if every is None else (result, every)
    if every is not None and is_in_loop(program, path):
        read = max(k for k, s in enumerate(rest) if every in walk(s))
        if not any(is_call(s, "barrier") for s in rest[read + 1:]):
            return None  # the slots of the next round would be written while these are added up
    for b in shared:
        home = declaration(program, path, b.name)
        inside = sum(isinstance(x, n.Region) and x.buffer == b for s in window for x in walk(s))
        after = sum(sum(1 for s in rest for x in walk(s) if x == r) * sum(isinstance(x, n.Region) and x.buffer == b for x in walk(r)) for r in results)
        if home is None or home.init is not None or uses(program, path, b.name) != inside + after:
            return None
    steps = _of(window, shared, results, value, first, own, team)
    if steps is None:
        return None
    for op in dict.fromkeys(x.op for s in window for x in walk(s) if isinstance(x, n.Binary) and x.type == value.type and x.op in REDUCTIONS):
        for kind in _by_example(steps, op):
            if computed(steps, kind, op).status == "proved" and not hazards(steps, is_in_loop(program, path), any(is_call(s, "barrier") for s in rest)):
                return FoundSteps(steps, value, first, own is not None, shared, op, kind, result, len(window), every)
    return None


def _stored(block: n.Block, b: n.Buffer) -> bool:
    """Whether statements do more with a buffer than to read it."""
    return sum(isinstance(x, n.Region) and x.buffer == b for s in block for x in walk(s)) != sum(
        isinstance(x, n.Load) and x == whole(b) for s in block for x in walk(s))


def _stays(window: n.Block, rest: n.Block, b: n.Buffer, left: set[str]) -> bool:
    """Whether a value that steps read may as well be read where something of what they have `left` is: nothing meets after it in the steps, and the only
    statement that writes it does so in one branch, behind a barrier and behind all other reads."""
    at = next(k for k, s in enumerate(window) if any(x == whole(b) for x in walk(s)))
    if any(map(_meets, window[at:])):
        return False
    reads = [k for k, s in enumerate(rest) if not left.isdisjoint(names_mentioned(s))]
    writes = [k for k, s in enumerate(rest) if _stored((s,), b)]
    if not writes:
        return True
    branch, others = rest[writes[0]], [k for k in reads if k != writes[0]]
    last = max(others, default=-1)
    return len(writes) == 1 and last < writes[0] and any(is_call(s, "barrier") for s in rest[last + 1:writes[0]]) and isinstance(branch, n.If) and (
        not branch.orelse and len(branch.then) == 1 and isinstance(branch.then[0], n.Store) and left.isdisjoint(names_mentioned(branch.cond)))


def _results(rest: n.Block, names: set[str]) -> Iterator[n.Expr]:
    """What statements read of some memory and values, as whole expressions: what is made of nothing else counts as one."""
    def inside(x: n.Expr) -> bool:
        return (isinstance(x, n.Load) and x.at.buffer.name in names) or (isinstance(x, n.Var) and x.name in names) or (
            isinstance(x, n.Binary) and x.op in REDUCTIONS and inside(x.a) and inside(x.b))

    def visit(x: n.Node) -> Iterator[n.Expr]:
        if names.isdisjoint(names_mentioned(x)):
            return
        if isinstance(x, n.Binary) and inside(x):
            yield x
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


def _of(window: n.Block, shared: tuple[n.Buffer, ...], results: tuple[n.Expr, ...], value: n.Expr, first: n.Expr | None, own: n.Buffer | None,
        team: ThreadTeam) -> Steps | None:
    """The steps of statements, of the value `given`."""
    assert isinstance(value.type, DType)
    given, t = n.Var("given", value.type), n.Var("t", team.thread.of)
    body: n.Block = window
    if first is not None:
        body = tuple(transform(s, lambda a, b: n.Var("first", dtype_of(value.type)) if b == first else b) for s in body)
    if own is not None:
        body = (n.Alloc(own, given), *body)
    else:
        body = tuple(transform(s, lambda a, b: given if b == value else b) for s in body)
    names = {x: f"{x}_" for x in (*bound_names(body), *(b.name for b in shared)) if x in OWN}
    held = tuple(replace(b, name=names.get(b.name, b.name)) for b in shared)
    body = tuple(substitute(rename(s, names), {team.thread.name: t}) for s in body)
    last = [substitute(rename(x, names), {team.thread.name: t}) for x in results]
    bound = {*bound_names(body), "t", "given", "first"}
    there = {*bound, *(b.name for b in held)}
    for x in (x for s in (*body, *last) for x in walk(s)):
        if (isinstance(x, n.Var) and x.name not in bound) or (isinstance(x, n.Region) and x.buffer.name not in there):
            return None
    body = tuple(_plain(s) for s in body)
    return _as_steps(body, held, last[0], team.threads, value.type, last[1] if len(last) > 1 else None)


def _plain(s: n.Stmt) -> n.Stmt:
    """A statement without labels and origins."""
    made: n.Stmt = transform(s, lambda a, b: replace(b, label=None, origin=None) if isinstance(b, n.Stmt) else b)  # type: ignore[type-var]  # all are dataclasses
    return made
