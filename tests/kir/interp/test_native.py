"""Loops that are compiled give the bits that the NumPy interpreter gives, and reach and find what it reaches and finds."""
from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.base.diagnostic import KirError
from kir.base.working import ending
from kir.interp import Result, run, run_within
from kir.interp.launch import largest_value
from kir.interp.native import loops
from kir.interp.native.signature import taken
from kir.interp.numerics.number import storage
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64, DType
from kir.problem import load_problem, problem_names
from kir.problem.problem import Problem
from tests.strategies import Env, expressions

pytestmark = pytest.mark.skipif(not loops.available(), reason="llvmlite is not installed")
DTYPES = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U32, U64, BOOL)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop that can be compiled is."""
    monkeypatch.setattr(loops, "LEAST", 0)


MOST_CHECKED = 3_000
"""Statements of a run that is checked too."""


def counts(of: Result) -> dict[str, Any]:
    """What a run counted, but for its statements: one store may stand for a loop around it."""
    return {**of.counters.to_json(), "steps": 0}


def same(p: n.Program, arrays: Mapping[str, Any], scalars: Mapping[str, int | float], most_steps: int = sys.maxsize) -> int:
    """All ways of running (compiled at once, compiled with optimizations, and by NumPy) give the same outputs (of NaN only that it is one), reach the same,
    and find the same, whether or not it is checked; there they count the same too. The statements that NumPy ran."""
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        ours, theirs = (run(p, arrays, scalars, cover=True, compiles=compiles, most_steps=most_steps) for compiles in (True, False))
        patch.setattr(loops, "HOT", -1)
        hot = run(p, arrays, scalars, cover=True, most_steps=most_steps)
        patch.undo()
        if theirs.counters.steps <= MOST_CHECKED:
            checked, by_numpy = (run(p, arrays, scalars, mode="check", cover=True, compiles=compiles) for compiles in (True, False))
            assert (checked.findings, checked.reached, counts(checked)) == (by_numpy.findings, by_numpy.reached, counts(by_numpy)), program_text(p)
            for name, a in checked.outputs.items():
                last = tuple(d - 1 for d in a.shape)
                assert checked.writer(name, last) == by_numpy.writer(name, last)
                assert a.dtype.kind in "fV" or np.array_equal(a, by_numpy.outputs[name])
    for name, a in (*ours.outputs.items(), *hot.outputs.items()):
        b = theirs.outputs[name]
        if a.dtype.kind in "fV" or a.dtype.name == "bfloat16":
            x, y = a.astype(np.float64), b.astype(np.float64)
            a, b = (v.view(f"u{v.dtype.itemsize}").copy() for v in (a, b))
            a[np.isnan(x)] = b[np.isnan(y)] = 0
            assert np.array_equal(np.isnan(x), np.isnan(y)), program_text(p)
        assert np.array_equal(a, b), f"{name}\n{program_text(p)}"
    assert ours.reached == hot.reached == theirs.reached, program_text(p)
    assert ours.findings == hot.findings == theirs.findings
    assert ours.counters.steps == hot.counters.steps == theirs.counters.steps or most_steps == sys.maxsize
    return theirs.counters.steps


# ------------------------------------------------------------------------------------------------------------- random loops

X, S = n.Buffer("X", F32, (build.const(16, I32),), "global"), n.Buffer("s", I32, (build.const(8, I32),), "shared")


@st.composite
def bodies(draw: st.DrawFn, env: Env, depth: int) -> n.Block:
    """Statements on scalars, to places of which some lie outside."""
    env = env.inner()
    out: list[n.Stmt] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("store", "store", "masked", "let", "if", "for") if depth else ("store", "masked", "let")))
        match kind:
            case "let":
                dtype = draw(st.sampled_from(DTYPES))
                value, name = draw(expressions(env, dtype, 2)), env.fresh(draw)
                out.append(n.Let((name,), value))
                env.values[name] = dtype
            case "if":
                out.append(n.If(draw(expressions(env, BOOL, 2)), draw(bodies(env, depth - 1)), draw(st.sampled_from([(), draw(bodies(env, depth - 1))]))))
            case "for":
                ends = n.Var(draw(st.sampled_from(["t", "c"])), I32), build.const(draw(st.integers(0, 3)), I32)
                var, inner = n.Var(env.fresh(draw), I32), env.inner()
                inner.values[var.name] = I32
                lo, hi = (build.const(0, I32), ends[0]) if draw(st.booleans()) else ends
                out.append(n.For(var, lo, hi, build.const(draw(st.sampled_from([1, 2])), I32), draw(bodies(inner, depth - 1))))
            case _:
                b = draw(st.sampled_from([b for b in env.buffers.values() if b is not X]))
                index = tuple(build.binary("mod", draw(expressions(env, I32, 1)), d) for d in b.shape)
                mask = draw(expressions(env, BOOL, 2)) if kind == "masked" else None
                read = n.Load(n.Region(X, (draw(expressions(env, I32, 1)),)), mask, draw(expressions(env, F32, 0)) if draw(st.booleans()) else None, True)
                value = build.cast(read, b.dtype) if kind == "masked" and not b.dtype.is_bool else draw(expressions(env, b.dtype, 3))
                out.append(n.Store(n.Region(b, index), value, mask))
    return tuple(out)


@st.composite
def kernels(draw: st.DrawFn) -> n.Program:
    """A kernel of a few CTAs and threads with one serial loop, whose registers are stored at its end."""
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3))
    registers = [n.Buffer(f"r{i}", d, () if draw(st.booleans()) else (build.const(4, I32),), "register") for i, d in enumerate(dtypes)]
    env = Env({"c": I32, "t": I32, "k": I32}, {b.name: b for b in (*registers, S, X)}, {"c", "t", "k", "s", "X"})
    c, t, k = (n.Var(x, I32) for x in "ctk")
    loop = n.For(k, build.const(0, I32), build.const(draw(st.integers(1, 5)), I32), build.const(1, I32), draw(bodies(env, 2)))
    outs = [n.Buffer(f"Y{i}", d, (build.const(3, I32), build.const(4, I32)), "global") for i, d in enumerate(dtypes)]
    ends = [n.Store(n.Region(y, (c, t)), n.Load(n.Region(r, tuple(build.const(1, I32) for _ in r.shape)))) for y, r in zip(outs, registers, strict=True)]
    starts = [n.Alloc(r, build.const(1.0 if r.dtype.is_float else True if r.dtype.is_bool else 1, r.dtype)) for r in registers]
    team = n.For(t, build.const(0, I32), build.const(4, I32), build.const(1, I32), (*starts, loop, *ends), "thread")
    body = (n.Alloc(S, build.const(3, I32)), team)
    kernel = n.Kernel("main", (n.Axis("c", build.const(3, I32)),), build.const(4, I32), body)
    params = (n.Param("X", "in", X), *(n.Param(y.name, "out", y) for y in outs))
    return n.Program("random", params=params, kernels=(kernel,))


@settings(max_examples=12)
@given(kernels())
def test_random_loops(p: n.Program) -> None:
    x = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0, 7.0, -1.0, 1e-8, 100.25, 2.0, -3.0], np.float32)
    steps = same(p, {"X": x}, {}, 1 << 40)
    for most in (steps, steps - 1, steps // 2):
        ours, theirs = (_ended(p, {"X": x}, most, compiles) for compiles in (True, False))
        assert ours == theirs and (ours == "") == (most == steps), "a run that is limited ends at the same statement"


def _ended(p: n.Program, arrays: Mapping[str, Any], most_steps: int, compiles: bool) -> str:
    try:
        run(p, arrays, most_steps=most_steps, compiles=compiles)
    except KirError as refused:
        return str(refused)
    return ""


def test_a_run_for_which_no_time_is_left_ends_and_one_for_which_there_is_does_not() -> None:
    """It is looked at the clock after some statements, not after each: what is short is done before."""
    text = ("kir 1\nprogram p\n  in X: f32[1]\n  out Y: f32[1]\nkernel main grid (b: 1) threads 1\n  register r: f32 = 0.0\n"
            "  for i in 0..{trips}\n    r = r + X[0]\n  Y[0] = r\n")
    long, short = (parse_program(text.format(trips=trips)) for trips in (1000, 4))
    arrays = {"X": np.ones(1, np.float32), "Y": np.zeros(1, np.float32)}
    with ending(time.monotonic() - 1.0):
        assert run(short, arrays, compiles=False).outputs["Y"][0] == 4.0
        with pytest.raises(KirError, match=r"KIR-I007.*the time that there was for it is over"):
            run(long, arrays, compiles=False)
    with ending(time.monotonic() + 1e6):
        assert run(long, arrays, compiles=False).outputs["Y"][0] == 1000.0


# ------------------------------------------------------------------------------------------------------------ every operation

INTEGER_OPS = ("add", "sub", "mul", "floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max", "and", "or", "xor", "shl", "shr")
FLOAT_OPS = ("add", "sub", "mul", "div", "min", "max")
CALLS = ("abs", "sqrt", "rsqrt", "rcp", "exp", "to_tf32", "fma")


def edges(dtype: DType) -> np.ndarray[Any, Any]:
    """Values of a dtype at which operations differ, then drawn ones."""
    kind, draw = storage(dtype), np.random.default_rng(0)
    if dtype.is_bool:
        return np.array([False, True] * 24)
    if dtype.is_integer:
        low, high = dtype.range
        drawn = draw.integers(low, high, 38, endpoint=True, dtype=kind).tolist()
        return np.array([0, 1, 2, 7, dtype.bits - 1, high, low, high - 1, low + 1, 0, *drawn], kind)
    special = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-7, 6e-8, 65504.0, 3e38, 1e-40, 2.5, 3.5]
    with np.errstate(all="ignore"):
        return np.array([*special, *(draw.normal(size=34) * 2.0 ** draw.integers(-20, 40, 34))]).astype(kind)


def operations(dtype: DType, x: n.Expr, y: n.Expr) -> list[n.Expr]:
    """Everything that is done with two values of a dtype."""
    ops = ("and", "or", "xor") if dtype.is_bool else INTEGER_OPS if dtype.is_integer else FLOAT_OPS
    out: list[n.Expr] = [n.Binary(op, x, y) for op in (*ops, *sorted(n.COMPARISONS))]
    out += [n.Cast(x, other) for other in DTYPES]
    out += [n.Cast(x, other, "bits") for other in DTYPES if other.bits == dtype.bits and BOOL not in (other, dtype)]
    out += [n.Select(n.Binary("lt", x, y), x, y), n.Unary("not" if not dtype.is_float else "neg", x)]
    if dtype.is_integer:
        out += [n.Unary("neg", x), n.Cast(x, F32, "rz"), n.Call("abs", (x,))]
    if dtype.is_float:
        out += [n.Cast(x, I32, "ru"), n.Cast(x, F16, "sat")]
        out += [n.Call(fn, (x, y, x) if fn == "fma" else (x,)) for fn in CALLS if fn != "to_tf32" or dtype == F32]
    return out


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in (I16, U64)], ids=str)
def test_every_operation(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    values = edges(dtype)
    size = build.const(len(values), I32)
    x, y = (n.Buffer(name, dtype, (size,), "global") for name in "XY")
    i, j = n.Var("i", I32), n.Var("j", I32)
    made = operations(dtype, n.Load(n.Region(x, (i,))), n.Load(n.Region(y, (j,))))
    outs = [n.Buffer(f"Z{k}", e.type, (size, size), "global") for k, e in enumerate(made) if isinstance(e.type, DType)]
    loop = n.For(j, build.const(0, I32), size, build.const(1, I32), tuple(n.Store(n.Region(z, (i, j)), e) for z, e in zip(outs, made, strict=True)))
    assert taken(loop)
    params = (n.Param("X", "in", x), n.Param("Y", "in", y), *(n.Param(z.name, "out", z) for z in outs))
    p = n.Program("all", params=params, kernels=(n.Kernel("main", (n.Axis("i", size),), build.const(1, I32), (loop,)),))
    called = loops._called
    ended: list[bool] = []

    def noted(*words: Any) -> bool:
        ended.append(called(*words))
        return ended[-1]
    monkeypatch.setattr(loops, "_called", noted)
    same(p, {"X": values, "Y": values[::-1].copy()}, {})
    assert ended == [True, True, True], "the checking mode has nothing to say of it either"


# ---------------------------------------------------------------------------------------------------- programs that people have

@pytest.mark.parametrize("name", [name for name in problem_names() if type(load_problem(name)) is Problem])
def test_naive_programs_of_the_problems(name: str) -> None:
    problem = load_problem(name)
    p = problem.naive
    shapes = sorted((s for s in problem.shapes_for(p) if "timed" not in s.tags), key=lambda s: np.prod(list(s.sizes.values())))
    wanted = {q.name for q in p.params}
    for at in (s for s in shapes if "one" not in s.tags):
        scalars = {k: v for k, v in problem.scalars(at).items() if k in wanted}
        same(p, {k: v for k, v in problem.inputs(at, 0, "normal").items() if k in wanted}, scalars)
        break


OUTSIDE = """kir 1
program p
  in X: f32[8]
  out Y: f32[4, 8]
kernel main grid (c: 4) threads 1
  for i in 0..{end}
    {store}
"""


@pytest.mark.parametrize(("end", "store"), [("9", "Y[c, i] = X[i]"), ("8", "Y[c, i] = X[i + c]"), ("8", "Y[c, i + c] = X[i]"), ("8 step 0", "Y[c, i] = X[i]")])
def test_what_is_wrong_is_said_as_ever(end: str, store: str) -> None:
    p = parse_program(OUTSIDE.format(end=end, store=store), "p.kir")
    x = np.arange(8, dtype=np.float32)
    said: list[tuple[Any, bytes]] = []
    for compiles in (True, False):
        try:
            made = run(p, {"X": x}, {}, compiles=compiles)
            said.append((made.findings, made.outputs["Y"].tobytes()))
        except Exception as fault:
            said.append((str(fault), b""))
    assert said[0] == said[1] and said[0][0]


CHECKED = """kir 1
program p

  in X: f32[8, 8]
  in J: i32[8]
  out Y: f32[8, 8]
  inout W: f32[8]
kernel main {team}
{deep}register acc: f32{init}
{deep}register known: f32 = 1.0
{deep}{before}
{deep}for i in 0..8
{deep}  {body}
{deep}{after}
"""
"""Kernels of which `told` says whether the checking mode leaves the loop to compiled code, `found` what it finds."""
TEAMS = ("grid (c: 8) threads 1", "grid (c: 8) threads 64", "grid (b: 2) threads 4\n  for t in 0..4 parallel thread\n    let c = b * 4 + t")
LOOPS = [
    ("acc = acc + X[c, i]", " = 0.0", "", "Y[c, 0] = acc", True, {"KIR-I012"}),
    ("acc = acc + exp(X[c, i] - known) * known", " = 0.0", "", "Y[c, 0] = acc", True, {"KIR-I012"}),
    ("Y[c, i] = X[c, i] + known", " = 0.0", "", "", True, set()),
    ("Y[c, J[i]] = X[c, i]", " = 0.0", "", "", True, set()),
    ("Y[c, i] = select(i < 4, X[c, i], 1.0) where (i < 6) & (c > 1)", " = 0.0", "", "", True, {"KIR-I012"}),
    ("Y[c, i] = load(X[c, i + 2] else 2.0 clip)", " = 0.0", "", "", True, set()),
    ("acc = acc + X[c, i]", "", "", "Y[c, 0] = acc", False, {"KIR-I012"}),
    ("Y[c, i] = load(X[c, i + 2] clip)", " = 0.0", "", "", False, {"KIR-I012"}),
    ("Y[0, i] = X[c, i]", " = 0.0", "", "", False, {"KIR-I014", "KIR-I012"}),
    ("Y[0, i] = X[0, i]", " = 0.0", "", "", False, {"KIR-I014", "KIR-I012"}),
    ("Y[(c + i) % 8, 0] = X[c, i]", " = 0.0", "Y[c, 0] = known", "", False, {"KIR-I012", "KIR-I014"}),
    ("Y[c, i + c] = X[c, i]", " = 0.0", "", "", False, {"KIR-I010", "KIR-I012"}),
    ("acc = acc + W[i]", " = 0.0", "", "W[c] = acc", False, {"KIR-I012", "KIR-I014"}),
    ("Y[c, i] = Y[c, i] + known", " = 0.0", "", "", False, {"KIR-I012"}),
    ("Y[c, i] = X[c, i]\n{deep}  Y[c, 7] = known", " = 0.0", "", "", False, set()),
    ("W[c] = W[c] + X[c, i]", " = 0.0", "", "", True, {"KIR-I012"}),
    ("W[c] = W[c] + X[c, i] where i < 5", " = 0.0", "", "", True, {"KIR-I012"}),
    ("W[c] = W[c] * load(X[c, i + 2] else known clip)", " = 0.0", "", "", True, {"KIR-I012"}),
    ("W[c] = W[c] + X[c, i] where c + i > 99", " = 0.0", "", "", False, {"KIR-I012"}),
    ("W[i] = W[i] + X[c, i]", " = 0.0", "", "", False, {"KIR-I012", "KIR-I014"}),
    ("W[0] = W[0] + X[0, i]", " = 0.0", "", "", False, {"KIR-I012", "KIR-I014"}),
    ("W[c] = W[c] + X[c, i]", " = 0.0", "W[c] = known", "", False, {"KIR-I012"}),
    ("W[c] = W[c] + X[c, i]", " = 0.0", "", "W[(c + 1) % 8] = known", True, {"KIR-I012", "KIR-I014"}),
    ("W[c] = W[(c + 1) % 8] + X[c, i]", " = 0.0", "", "", False, {"KIR-I012", "KIR-I014"}),
    ("Y[c, i] = select(i < 6, load(X[c, i + 2] clip), known)", " = 0.0", "", "", True, set()),
    ("Y[c, i] = select(i < 6, exp(load(X[c, i + 2] clip)), known)", " = 0.0", "", "", True, set()),
    ("Y[c, i] = select(i < 7, load(X[c, i + 2] clip), known)", " = 0.0", "", "", False, {"KIR-I012"}),
    ("let x = load(X[c, i + 2] clip)\n{deep}  acc = acc + select(i < 6, x, 0.0)", " = 0.0", "", "Y[c, 0] = acc", True, {"KIR-I012"}),
    ("let x = load(X[c, i] where i < c)\n{deep}  acc = acc + select(i < c, exp2(x) * x, 0.0)", " = 0.0", "", "Y[c, 0] = acc", True, {"KIR-I012"}),
    ("let x = load(X[c, i] where i < c)\n{deep}  acc = acc + select(x > 0.0, 1.0, 0.0)", " = 0.0", "", "Y[c, 0] = acc", False, {"KIR-I012"}),
    ("let j = load(J[i] where i < c)\n{deep}  Y[c, select(i < c, j, i)] = known", " = 0.0", "", "", True, {"KIR-I012"}),
    ("let j = load(J[i] where i < 3)\n{deep}  Y[c, j % 8] = known", " = 0.0", "", "", False, {"KIR-I012"}),
    ("let x = load(X[c, i] where i < 7)\n{deep}  if x > 0.0\n{deep}    acc = known", " = 0.0", "", "Y[c, 0] = acc", False, {"KIR-I012"}),
    ("acc = acc + load(X[c, i] where i < 4 else load(X[c, i] where i < 6 else 1.0))", " = 0.0", "", "Y[c, 0] = acc", True, {"KIR-I012"}),
    ("acc = acc + load(X[c, i] where i < 4 else load(X[c, i] where i < 6))", " = 0.0", "", "Y[c, 0] = acc", False, {"KIR-I012"}),
]


@pytest.mark.parametrize(("body", "init", "before", "after", "told", "found"), LOOPS, ids=[f"{x[0][:34]} {i}" for i, x in enumerate(LOOPS)])
@pytest.mark.parametrize("team", TEAMS)
def test_the_checking_mode_finds_what_it_found(body: str, init: str, before: str, after: str, told: bool, found: set[str], team: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "    " if "thread\n" in team else "  "
    whole = CHECKED.format(body=body.replace("{deep}", deep), init=init, before=before, after=after, team=team, deep=deep)
    text = "\n".join(line for line in whole.splitlines() if line.strip())
    p = parse_program(text, "p.kir")
    called, ended = loops._called, list[bool]()

    def noted(m: Any, *words: Any) -> bool:
        got = called(m, *words)
        ended.extend([got] if m.checking else [])
        return got
    monkeypatch.setattr(loops, "_called", noted)
    x = np.linspace(-2, 3, 64, dtype=np.float32).reshape(8, 8)
    arrays = {"X": x, "J": np.array([3, 1, 0, 2, 7, 5, 6, 4], np.int32), "W": np.ones(8, np.float32)}
    with np.errstate(all="ignore"):
        ours, theirs = (run(p, arrays, {}, mode="check", compiles=compiles, cover=True) for compiles in (True, False))
    assert (ours.findings, counts(ours), ours.reached) == (theirs.findings, counts(theirs), theirs.reached)
    assert all(np.array_equal(a.view(np.uint32), theirs.outputs[name].view(np.uint32)) for name, a in ours.outputs.items())
    assert {each.id for each in ours.findings} == found
    assert (ended == [True]) == told


@pytest.mark.parametrize("body", ["let x = X[i]\n    if x > 0.0\n      break", "Y[c, 0 +: 8] = X[0 +: 8]"])
def test_jumps_and_tiles_are_left_to_numpy(body: str) -> None:
    p = parse_program(OUTSIDE.format(end="8", store=body), "p.kir")
    loop = p.kernels[0].body[0]
    assert isinstance(loop, n.For) and not taken(loop)


COUNTED = """kir 1
program p
  in X: f32[4, 8]
  inout Y: f32[4, 8]
kernel main grid (c: 4) threads 32
  for i in 0..8
    {body}
"""


@pytest.mark.parametrize(("body", "read"), [
    ("Y[c, i] = X[c, i]", 32),
    ("Y[c, i] = load(X[c, i] where i < 3 else 0.0)", 12),
    ("Y[c, i] = load(X[c, i + 5] else 0.0 clip)", 12),
    ("if c > 1\n      Y[c, i] = X[c, i] + load(X[c, i + 5] else 0.0 clip)", 16 + 6),
    ("if c > 1\n      Y[c, i] = X[0, i]", 8),  # what all lanes read is read once
    ("Y[c, i] = load(X[0, i] where c > i else 0.0)", 3),
])
@pytest.mark.parametrize("mode", ["fast", "check"])
@pytest.mark.parametrize("compiles", [True, False])
def test_what_is_read_is_counted_and_nothing_that_a_mask_or_a_branch_leaves_out(body: str, read: int, mode: Any, compiles: bool) -> None:
    p = parse_program(COUNTED.format(body=body), "p.kir")
    made = run(p, {"X": np.ones((4, 8), np.float32), "Y": np.ones((4, 8), np.float32)}, {}, mode=mode, compiles=compiles)
    assert made.counters.bytes["read global"] == 4 * read


UPDATED = """kir 1
program p
  in X: f32[4, 8]
  in J: i32[8]
  inout H: i32[8]
  inout S: f32[8]
kernel main {team}
{deep}for i in 0..8
{deep}  {body}
"""


@pytest.mark.parametrize(("body", "compiled", "fault"), [
    ("atomic_add(&H[J[i]], 1)", True, False),
    ("if X[c, i] > 0.0\n{deep}    atomic_max(&H[(J[i] + c) % 8], i * c)", True, False),
    ("atomic_add(&S[J[i]], X[c, i] * 1.1)", True, False),  # in the order of the lanes
    ("atomic_add(&H[H[i] % 8], H[0])", True, False),  # what is read is read by all before the first update
    ("atomic_xor(&H[i], c + 5, sem=relaxed)", True, False),
    ("assertion(0 <= J[i] & J[i] < 8)\n{deep}  assume(X[c, i] < 100.0)\n{deep}  atomic_add(&H[J[i]], 1)", True, False),
    ("assertion(J[i] < 6)\n{deep}  atomic_add(&H[J[i]], 1)", True, True),
    ("atomic_add(&H[J[i] + 1], 1)", True, True),
    ("if c > 1\n{deep}    assertion(X[c, i] > X[0, i])", True, False),
    ("let was = atomic_add(&H[J[i]], 1)\n{deep}  S[i] = cast(was, f32)", False, False),
    ("atomic_add(&H[J[i]], 1, c > 1)", False, False),
])
@pytest.mark.parametrize("team", ["grid (c: 4) threads 1", "grid (b: 2) threads 2\n  for t in 0..2 parallel thread\n    let c = b * 2 + t"])
def test_updates_and_assertions(body: str, compiled: bool, fault: bool, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "    " if "thread\n" in team else "  "
    p = parse_program(UPDATED.format(team=team, deep=deep, body=body.replace("{deep}", deep)), "p.kir")
    ended: list[bool] = []
    called = loops._called

    def noted(m: Any, *words: Any) -> bool:
        got = called(m, *words)
        ended.extend([] if m.checking else [got])
        return got
    monkeypatch.setattr(loops, "_called", noted)
    x = np.linspace(-2, 3, 32, dtype=np.float32).reshape(4, 8)
    arrays = {"X": x, "J": np.array([3, 1, 0, 2, 7, 5, 3, 3], np.int32), "H": np.arange(8, dtype=np.int32), "S": np.ones(8, np.float32)}
    same(p, arrays, {})
    assert ended == ([not fault] * 2 if compiled else [])
    ours, theirs = (run(p, arrays, {}, compiles=compiles).counters.to_json() for compiles in (True, False))
    assert ours == theirs


def test_zeros_of_either_sign_are_told_apart_wherever_they_lie() -> None:
    text = OUTSIDE.format(end="8", store="Y[c, i] = max(X[i], -X[i])")
    made = run(parse_program(text, "p.kir"), {"X": np.array([0.0, -0.0] * 4, np.float32)}, {})
    assert not np.signbit(made.outputs["Y"]).any()


THROUGH = """kir 1
program p
  size W: i32
  in X: f32[4, 8]
  inout Y: f32[4, 12]
kernel main grid (c: 4) threads 32
  view global V(i, j): f32[8, 10] at X[i // 2, i % 2 + j * W - 1]{fill}
  register s: f32 = 0.0
  for j in 0..{end}
    s = s + {load}
    {store}
"""


@pytest.mark.parametrize(("fill", "end", "load", "store", "compiled", "fault"), [
    (" fill -1.0", 10, "V[c * 2, j]", "Y[c, j] = s", True, False),  # places outside X are the fill
    (" fill -1.0", 10, "load(V[c * 2 - 1, j + 1] else 5.0 clip)", "Y[c, j] = s where s > 3.0", True, False),
    (" fill -1.0", 11, "V[c, j]", "Y[c, j] = s", True, True),  # outside the view itself
    ("", 8, "V[c * 2 + 1, j]", "Y[c, j] = s", True, False),
    ("", 9, "V[c * 2 + 1, j]", "Y[c, j] = s", True, True),  # outside X, and nothing is said of that
    ("", 8, "V[c * 2 + 1, j]", "X[c, j] = s", True, False),
    ("", 8, "V[c * 2 + 1, j]", "V[c * 2 + 1, j] = s", False, False),
])
def test_functional_views(fill: str, end: int, load: str, store: str, compiled: bool, fault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = THROUGH.format(fill=fill, end=end, load=load, store=store)
    p = parse_program(text.replace("in X", "inout X") if store.startswith("X") else text, "p.kir")
    ended: list[bool] = []
    called = loops._called

    def noted(*words: Any) -> bool:
        ended.append(called(*words))
        return ended[-1]
    monkeypatch.setattr(loops, "_called", noted)
    arrays = {"X": np.arange(32, dtype=np.float32).reshape(4, 8), "Y": np.zeros((4, 12), np.float32)}
    same(p, arrays, {"W": 1})
    assert ended == ([not fault] * 2 if compiled else [])


def test_what_a_view_shows_is_not_held_by_a_cta() -> None:
    p = parse_program(THROUGH.format(fill=" fill 0.0", end=8, load="V[c, j]", store="Y[c, j] = s"), "p.kir")
    assert largest_value(p.kernels[0]) == 1


def test_a_run_with_an_end_ends_at_the_first_error_or_after_so_many_statements() -> None:
    """A CSR product with unsigned bounds was run for minutes on negative row pointers."""
    p = parse_program("""
kir 1
program csr
  in P: i32[2]
  in X: f32[4]
  out Y: f32[1]
kernel main grid (b: 1) threads 1
  register s: f32 = 0.0
  for i: u32 in cast(P[0], u32)..cast(P[1], u32)
    s = s + X[cast(i, i64) % 4:i64] * 2.0
  for j: u32 in cast(P[0], u32)..cast(P[1], u32)
    s = s + X[cast(j, i64)]
  Y[0] = s
""", "p.kir")
    x = np.ones(4, np.float32)
    found = run_within(100, p, {"P": np.array([0, 4], np.int32), "X": x}, {})
    assert found is not None and not found.errors and found.outputs["Y"][0] == 12
    assert run_within(100, p, {"P": np.array([0, -1], np.int32), "X": x}, {}) is None
    beyond = run_within(100, p, {"P": np.array([0, 9], np.int32), "X": x}, {})
    assert beyond is not None and beyond.errors
