"""Real walks: tile programs go back to naive with the registered passes, and are rebuilt exactly."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kir.ir.parser import parse_program
from kir.lineage.engine import PassEngine
from kir.lineage.judge import CpuJudge
from kir.lineage.plan import plan
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Header, Lineage, chained
from kir.lineage.replay import replay
from kir.lineage.walk import Budget, Judge, Walk
from tests.kir.lineage.paper_judge import SOFTMAX, PaperJudge

GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, N]
  out C: f16[M, N]
  fact M >= 1
  fact N >= 1
  fact K >= 1
kernel main grid (pid: ceildiv(M, 32) * ceildiv(N, 32)) threads 128
  let panel = pid // (ceildiv(N, 32) * 8)
  let height = min(ceildiv(M, 32) - panel * 8, 8)
  let m = panel * 8 + pid % (ceildiv(N, 32) * 8) % height
  let n = pid % (ceildiv(N, 32) * 8) // height
  fragment acc: f32[32, 32] = 0.0
  @k_loop for k in 0..ceildiv(K, 16) pipelined {stages=3}
    let a = load(A[m * 32 +: 32, k * 16 +: 16] else 0.0:f16 clip)
    let b = load(B[k * 16 +: 16, n * 32 +: 32] else 0.0:f16 clip)
    mma acc += a * b
  C[m * 32 +: 32, n * 32 +: 32] = cast(acc, f16) clip
"""

CHUNK = """kir 1
program chunk_rows
  in Q: f32[8, 8]
  in K: f32[8, 8]
  in V: f32[8, 4]
  out O: f32[8, 4]
kernel main grid (c: 2) threads 32
  fragment s: f32[4, 4] = 0.0
  for p in 0..2
    mma s += Q[c * 4 +: 4, p * 2 + c % 2 * 4 +: 2] * trans(K[c * 4 +: 4, p * 2 + c % 2 * 4 +: 2], 1, 0) via fma
  let kept = select(expand(iota(4), axis=1) >= iota(4), s, 0.0)
  fragment o: f32[4, 4] = 0.0
  mma o += kept * V[c * 4 +: 4, 0 +: 4] via fma
  O[c * 4 +: 4, 0 +: 4] = o
"""
RECURRENCE = """kir 1
program linear_state
  in Q: f32[6, 4]
  in K: f32[6, 4]
  in V: f32[6, 4]
  out O: f32[6, 4]
kernel main grid (b: 1) threads 32
  fragment h: f32[4, 4] = 0.0
  for t in 0..6
    h = h * 0.5 + expand(K[t, 0 +: 4], axis=1) * V[t, 0 +: 4]
    let q = Q[t, 0 +: 4] * 0.25
    let o = reduce(h * expand(q, axis=1), axis=0, op=sum)
    O[t, 0 +: 4] = o
"""


def walked(text: str, problem: str, folder: Path, judge: Judge | None = None, surface: str = "kir") -> tuple[Lineage, PassEngine]:
    header = Header(expert="expert", source="expert.kir", surface=surface, problem=problem, targets=("sm_80",))
    engine, place, start = PassEngine.of(header), Folder(folder), parse_program(text, "expert.kir")
    judge = judge or CpuJudge.of(header, start)
    place.begin(header)
    first = judge.gate(start)
    assert first.accepted, first.reason
    done = Walk(start, engine, judge, place, Budget(), delayed=plan(start, engine).delayed).run(first)
    place.finish(chained(header, done.start, first.record, first.emitted, done.steps, done.outcome))
    return place.read(), engine


@pytest.mark.parametrize(("text", "problem", "intents"), [(GEMM, "gemm", 6), (SOFTMAX, "softmax", 5), (CHUNK, "", 5), (RECURRENCE, "", 5)],
                         ids=["gemm", "softmax", "rows of scores that are summed first", "a recurrence of a matrix"])
def test_a_tile_program_goes_back_to_naive(text: str, problem: str, intents: int, tmp_path: Path) -> None:
    lineage, engine = walked(text, problem, tmp_path, PaperJudge())
    assert lineage.outcome.ended == "naive", [each.message for each in lineage.outcome.violations]
    assert len({step.intent for step in lineage.accepted}) >= intents
    measures = [state.measure for state in lineage.states]
    assert all(after < before for before, after in pairwise(measures))
    outcome = replay(lineage, Folder(tmp_path), engine)
    assert outcome.ok and all(each.exact for each in outcome.transitions)


@pytest.mark.triton
def test_the_gate_judges_each_state_and_what_reaches_the_compiler(tmp_path: Path) -> None:
    lineage, engine = walked(SOFTMAX, "softmax", tmp_path, surface="triton")
    assert lineage.outcome.ended == "naive"
    for step in lineage.accepted:
        assert step.gate["accepted"] and step.gate["correctness"]["ok"] and step.emitted
        assert step.realization is not None and (step.realization.realized or step.realization.reason)
    assert 0 < lineage.outcome.realized <= len(lineage.accepted)
    assert lineage.states[-1].modelled["sm_80"] > lineage.start.modelled["sm_80"]
    assert replay(lineage, Folder(tmp_path), engine, CpuJudge.of(lineage.header)).ok


def test_a_tile_is_written_out_before_a_product_takes_it_apart() -> None:
    """Of single elements of a named tile nobody can tell afterwards that they were the name's."""
    program = parse_program("""kir 1
program p
  in A: f32[16, 16]
  in B: f32[16, 16]
  out C: f32[16, 16]
kernel main grid (i: 1) threads 1
  let b = B * exp(B)
  fragment c: f32[16, 16] = 0.0
  mma c += A * b via fma
  C = c
""")
    engine = PassEngine()
    first, second, *_ = engine.candidates(program)
    assert (first.name, second.name) == ("reuse-operand", "panel-product")
    assert all(each.name != "reuse-operand" for each in engine.candidates(engine.backward(program, second).program))
