"""Programs of several kernels: each made fast by itself, put back, and judged as one."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.base.diagnostic import KirError
from kir.gate import gate_cpu
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.parser import parse_program
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.report import data
from kir.learning.optimize.search import KERNELS, Budget, Search
from kir.learning.optimize.several import alone, fused, put_back, together
from kir.learning.optimize.sources import LineageSource
from kir.learning.optimize.starts import Start, starts
from kir.problem import load_problem
from kir.rewrite import Context

PROBLEM = load_problem("softmax")
TWO = parse_program("""kir 1
program softmax
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
  workspace T: f32[M]
kernel tops grid (row: M) threads 1
  register top: f32 = -inf
  @max_loop for j in 0..N
    top = max(top, cast(X[row, j], f32))
  @store_T T[row] = top
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum_loop for j1 in 0..N
    total = total + exp(cast(X[row, j1], f32) - T[row])
  @store_loop for j2 in 0..N
    Y[row, j2] = cast(exp(cast(X[row, j2], f32) - T[row]) / total, f16)
""", "two.kir")


def test_each_kernel_is_made_fast_and_the_whole_is_judged() -> None:
    setting = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")
    found = Search(TWO, setting, CpuJudge(setting, compiles=False), (LineageSource(only=("rmsnorm_tilelang", "softmax_tilelang")),), given_surface="cuda",
                   budget=Budget(candidates=2, plans=24, seconds=1e4), from_starts=[Start("as it is", TWO)]).run()
    assert found.best is not None and found.best.plan.family == KERNELS and {name for name, _ in found.best.plan.parts} == {"tops", "main"}
    assert all(k.threads != const(1) for k in found.best.program.kernels) and found.speedup > 10
    assert gate_cpu(found.best.program, PROBLEM, "kir", []).accepted
    steps = [row["step"] for row in data(found)["best"]["steps"]]
    assert any("@tops" in s for s in steps) and any("@main" in s for s in steps)


def test_the_budget_of_the_whole_stops_the_search_of_a_kernel() -> None:
    """Also while one kernel is searched by itself, before there is a plan for all."""
    setting = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")
    made = Search(TWO, setting, CpuJudge(setting, compiles=False), (LineageSource(only=("softmax_tilelang",)),), given_surface="cuda",
                  budget=Budget(candidates=2, seconds=1e-6), from_starts=[Start("as it is", TWO)])
    found = made.run()
    assert found.best is None and found.ended == "1e-06 s are over" and found.built == 0


FUSED = {
    "a row's two kernels": (TWO, "fuse-kernels"),
    "the epilogue of a product": (parse_program("""kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, N]
  out C: f16[M, N]
  workspace raw: f32[M, N]
kernel main grid (j: N, i: M) threads 1
  register acc: f32 = 0.0
  for k in 0..K
    acc = acc + cast(A[i, k], f32) * cast(B[k, j], f32)
  raw[i, j] = acc
kernel out grid (j: N, i: M) threads 1
  C[i, j] = cast(raw[i, j], f16)
""", "epilogue.kir"), "fuse-epilogue"),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_search_also_begins_from_kernels_that_are_fused(name: str) -> None:
    program, by = FUSED[name]
    problem = load_problem(program.name)
    setting = Setting(problem, problem.tagged("timed")[0], target("h200"), "triton")
    found = [s for s in starts(program, setting, 0.0) if "2 kernels fused" in s.name]
    assert len(found) == 1 and len(found[0].program.kernels) == 1 and found[0].steps[0].startswith(by)
    assert gate_cpu(found[0].program, problem, "kir", []).accepted


def test_kernels_that_need_one_another_whole_are_not_fused() -> None:
    turned = replace(TWO, kernels=(TWO.kernels[0], replace(TWO.kernels[1], grid=(replace(TWO.kernels[1].grid[0], extent=const(7)),))))
    assert fused(turned, Context(target("h200"))) == (turned, ())


def test_a_kernel_put_back_as_it_was_changes_nothing() -> None:
    for k in TWO.kernels:
        one = alone(TWO, k.name)
        assert [p.role for p in one.params if p.name == "T"] == ["out" if k.name == "tops" else "in"] and not one.workspaces
        assert put_back(TWO, k.name, one) == TWO


def test_what_one_launch_plan_cannot_say_is_refused() -> None:
    one = alone(TWO, "tops")
    chosen = replace(one, plan=(n.Dispatch(((const(True), (n.Launch("tops"),)),)),))
    named = replace(one, kernels=(*one.kernels, replace(one.kernels[0], name="main")))
    for made, words in ((chosen, "by the sizes"), (named, "'main'")):
        with pytest.raises(KirError, match="KIR-U029") as refused:
            put_back(TWO, "tops", made)
        assert words in refused.value.diagnostics[0].message


def test_the_least_sum_comes_first() -> None:
    rows = {"a": [(1.0, "a1"), (5.0, "a2")], "b": [(1.0, "b1"), (2.0, "b2"), (9.0, "b3")], "none": []}
    assert list(together(rows)) == [{"a": "a1", "b": "b1"}, {"a": "a1", "b": "b2"}, {"a": "a2", "b": "b1"}, {"a": "a2", "b": "b2"},
                                    {"a": "a1", "b": "b3"}, {"a": "a2", "b": "b3"}]
