"""Loops that are compiled give the bits that the NumPy interpreter gives, and reach and find what it reaches and finds."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.interp import run
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


def same(p: n.Program, arrays: Mapping[str, Any], scalars: Mapping[str, int | float]) -> None:
    """Both ways of running give the same outputs (of NaN only that it is one), reach the same, and find the same."""
    with np.errstate(all="ignore"):
        ours, theirs = (run(p, arrays, scalars, cover=True, compiles=compiles) for compiles in (True, False))
    for name, a in ours.outputs.items():
        b = theirs.outputs[name]
        if a.dtype.kind in "fV":
            x, y = a.astype(np.float64), b.astype(np.float64)
            a, b = (v.view(f"u{v.dtype.itemsize}").copy() for v in (a, b))
            a[np.isnan(x)] = b[np.isnan(y)] = 0
            assert np.array_equal(np.isnan(x), np.isnan(y)), program_text(p)
        assert np.array_equal(a, b), f"{name}\n{program_text(p)}"
    assert ours.reached == theirs.reached, program_text(p)
    assert ours.findings == theirs.findings


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


@settings(max_examples=60)
@given(kernels())
def test_random_loops(p: n.Program) -> None:
    loop = next(s for s in p.kernels[0].body[-1].body if isinstance(s, n.For))  # type: ignore[attr-defined]  # the team's
    taken(loop)
    x = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0, 7.0, -1.0, 1e-8, 100.25, 2.0, -3.0], np.float32)
    same(p, {"X": x}, {})
