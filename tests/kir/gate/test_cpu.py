"""The CPU gate: what it accepts, what it refuses and at which stage, and that its record is reproducible."""
from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kir.backends._process import run
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.working import ending, left
from kir.gate import Verdict, gate_cpu
from kir.gate.artifacts import ArtifactCache
from kir.gate.cpu import profiled
from kir.hardware.target import Target, target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.problem.ordering import split
from kir.surface import Artifact, CompiledKernel, Emitted, Entry

TARGETS = (target("sm_80"), target("sm_90a"))
NAIVE = load_problem("softmax").naive
SHARED = """kir 1
program softmax
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
kernel main grid (row: M) threads 32
  shared sum: f32[32]
  for t in 0..32 parallel thread
    register top: f32 = -inf
    for k1 in 0..N
      top = max(top, cast(X[row, k1], f32))
    register part: f32 = 0.0
    for j in t..N step 32
      part = part + exp(cast(X[row, j], f32) - top)
    sum[t] = part
    barrier()
    register total: f32 = 0.0
    for k in 0..32
      total = total + sum[k]
    for j1 in t..N step 32
      Y[row, j1] = cast(exp(cast(X[row, j1], f32) - top) / total, f16)
"""


def edited(p: Program, old: str, new: str) -> Program:
    from kir.ir.printer import program_text
    text = program_text(p)
    assert old in text
    return parse_program(text.replace(old, new), "edited.kir")


def gate(p: Program, problem: str = "softmax", surface: str = "kir", targets: Sequence[Target] = ()) -> Verdict:
    return gate_cpu(p, load_problem(problem), surface, targets)


def test_a_right_program_is_accepted_on_every_shape_and_distribution() -> None:
    verdict = gate(NAIVE)
    assert verdict.accepted and verdict.stage == "profile" and verdict.correctness is not None
    runs = verdict.correctness.runs
    wanted = load_problem("softmax")
    assert {r.shape for r in runs} >= {s.name for s in wanted.shapes if not {"timed", "one"} & set(s.tags)}
    assert {split(r.distribution)[0] for r in runs} == {*wanted.distributions, "times 0.0"}
    assert {r.seed for r in runs} >= {0, 1}
    modes = [r.mode for r in runs]
    assert modes == sorted(modes, reverse=True) and 1 <= modes.count("check") <= 7
    assert all(r.ok and r.worst <= 1 for r in runs)


def test_the_record_is_json_and_the_same_each_time() -> None:
    first, second = (json.dumps(gate(NAIVE).record, sort_keys=True, allow_nan=False) for _ in range(2))
    assert first == second
    assert json.loads(first)["schema"] == "kir.verdict/1"


SUM = """kir 1
program total
  size N: i32
  fact N >= 1
  in X: f32[N]
  out Y: f32[1]
kernel main grid (b: 1) threads 1
  register s: f32 = 0.0
  for k in 0..N
    s = s + X[k]
  Y[0] = s
"""


@pytest.mark.parametrize(("old", "new", "status"), [
    ("    s = s + X[k]", "    s = s + X[N - 1 - k]", "proved"), ("  Y[0] = s", "  Y[0] = sqrt(s * s) * select(s < 0.0, -1.0, 1.0)", "not decided")])
def test_the_record_says_what_the_algebra_knows_where_it_is_asked_for(old: str, new: str, status: str) -> None:
    against, candidate = parse_program(SUM, "sum.kir"), parse_program(SUM.replace(old, new), "sum.kir")
    verdict = gate_cpu(candidate, None, "kir", [], against, algebra=True, hazards=True)
    assert verdict.accepted and verdict.correctness is not None and verdict.correctness.algebra is not None, verdict.reason
    assert verdict.record["correctness"]["hazards"]["status"] == "proved" and "races" in verdict.record["correctness"]["hazards"]["kinds"]
    said = verdict.record["correctness"]["algebra"]
    assert said["status"] == status and said["sizes"]["N"] > 1 and bool(said["why"]) is (status != "proved")
    assert not {"algebra", "hazards"} & gate_cpu(candidate, None, "kir", [], against).record["correctness"].keys()


def test_the_algebra_knows_tensors_by_what_the_problem_calls_them() -> None:
    from kir.ir.printer import program_text

    text = re.sub(r"\bY\b", "made", re.sub(r"\bX\b", "given", program_text(NAIVE)))
    verdict = gate_cpu(parse_program(text, "other.kir"), load_problem("softmax"), "kir", [], names={"given": "X", "made": "Y"}, algebra=True)
    assert verdict.correctness is not None and verdict.correctness.algebra is not None and verdict.correctness.algebra.status == "proved"


@pytest.mark.parametrize(("old", "new"), [
    ("register total: f32 = 0.0", "register total: f32 = 1.0"), ("exp(cast(X[row, j1], f32) - top)", "exp(cast(X[row, j1], f32))"),
    ("for j1 in 0..N", "for j1 in 1..N"), ("for j2 in 0..N", "for j2 in 0..N - 1"),
    ("cast(exp(cast(X[row, j2], f32) - top) / total, f16)", "cast(cast(exp(cast(X[row, j2], f32) - top) / total, f8e4m3), f16)")])
def test_a_wrong_program_is_refused_for_correctness(old: str, new: str) -> None:
    verdict = gate(edited(NAIVE, old, new))
    assert not verdict.accepted and verdict.stage == "correctness" and verdict.reason
    assert json.dumps(verdict.record, allow_nan=False)


def test_a_hazard_is_refused_although_the_values_are_right() -> None:
    right = parse_program(SHARED, "p.kir")
    safe = gate_cpu(right, None, "kir", (), NAIVE)
    assert safe.correctness is not None and safe.correctness.relative and safe.accepted
    flat = parse_program(SHARED.replace(" - top", ""), "p.kir")
    assert "nan" in gate_cpu(flat, None, "kir", (), NAIVE).reason, "exponentials that overflow"
    racy = parse_program(SHARED.replace("    barrier()\n", ""), "p.kir")
    verdict = gate_cpu(racy, None, "kir", (), NAIVE)
    assert not verdict.accepted and verdict.stage == "correctness"
    assert verdict.correctness is not None and verdict.correctness.findings
    assert any("sum" in str(d) for d in verdict.correctness.findings)


def test_relative_correctness_refuses_other_values() -> None:
    other = edited(NAIVE, " / total, f16)", " / (total + 1.0), f16)")
    verdict = gate_cpu(other, None, "kir", (), NAIVE)
    assert not verdict.accepted and verdict.stage == "correctness" and "reference program" in verdict.reason


def test_what_the_surface_cannot_say_is_refused_and_ir_text_is_only_reported() -> None:
    p = parse_program(SHARED, "p.kir")
    refused = gate(p, surface="triton")
    assert not refused.accepted and refused.stage == "compile" and refused.reason.startswith("KIR-B002")
    assert refused.correctness is None and refused.profile == ()


def test_an_unverified_program_goes_no_further() -> None:
    from kir.ir.nodes import Let, Var
    from kir.ir.types import F32
    broken = replace(NAIVE, kernels=(replace(NAIVE.kernels[0], body=(Let(("x",), Var("nowhere", F32)), *NAIVE.kernels[0].body)),))
    verdict = gate(broken)
    assert not verdict.accepted and verdict.stage == "compile" and "KIR-V" in verdict.reason


def test_no_shape_that_the_facts_allow_is_no_evidence() -> None:
    verdict = gate(edited(NAIVE, "  in X", "  fact N % 1009 == 0\n  fact N < 1009\n  in X"))
    assert not verdict.accepted and "no shape" in verdict.reason


def test_nothing_to_judge_by_is_an_error() -> None:
    with pytest.raises(KirError) as refused:
        gate_cpu(NAIVE, None, "kir", ())
    assert refused.value.diagnostics[0].id == "KIR-G001"


@pytest.mark.triton
def test_compiled_for_each_target_with_modelled_times() -> None:
    verdict = gate(NAIVE, surface="triton", targets=TARGETS)
    assert verdict.accepted and [a.target for a in verdict.artifacts] == ["sm_80", "sm_90a"]
    assert set(verdict.modelled()) == {"sm_80", "sm_90a"} and all(t > 0 for t in verdict.modelled().values())
    assert all(row.kind == "modelled" for row in verdict.profile)
    assert verdict.emitted is not None and "tl.exp" in verdict.emitted.text
    assert verdict.tools["triton"]


@pytest.mark.triton
def test_a_configuration_that_cannot_be_launched_is_refused() -> None:
    text = (Path(__file__).parents[2] / "backends" / "programs" / "gemm_tile.kir").read_text()
    large = text.replace("stages=3", "stages=6").replace("K, 32", "K, 128").replace("k * 32 +: 32", "k * 128 +: 128")
    verdict = gate(parse_program(large, "p.kir"), "gemm", "triton", TARGETS[:1])
    assert not verdict.accepted and verdict.stage == "compile" and verdict.reason.startswith("KIR-G003")


class Counting:
    """A backend that counts how often it compiles."""

    surface: str = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        return ()

    def emit(self, program: Program) -> Emitted:
        return Emitted("counting", "0" * 64, "text", (), (Entry("main", "main", (), (), 32),))

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        return emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        self.calls += 1
        kernel = CompiledKernel("main", 10, 0, 64, 32, {"FADD": 3}, {"ptx": emitted.text}, (("num_warps", 1),))
        return Artifact("counting", target.architecture.name, (kernel,), (("tool", "1"),))


def test_artifacts_are_kept_by_content_and_damage_is_harmless(tmp_path: Path) -> None:
    by, cache = Counting(), ArtifactCache(tmp_path)
    emitted = by.emit(NAIVE)
    first = cache.compiled(by, emitted, TARGETS[0])
    assert cache.compiled(by, emitted, TARGETS[0]) == first and by.calls == 1
    cache.compiled(by, emitted, TARGETS[1])
    cache.compiled(by, replace(emitted, text="other"), TARGETS[0])
    assert by.calls == 3
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    assert cache.compiled(by, emitted, TARGETS[0]) == first and by.calls == 4


def test_long_loops_are_checked_on_fewer_cases_and_the_record_says_so() -> None:
    padded = edited(NAIVE, "    top = max(top, cast(X[row, j], f32))", "    top = max(top, cast(load(X[row, j] else -inf:f16 clip), f32))")
    padded = edited(padded, "for j in 0..N", "for j in 0..9000")
    short, long = gate(NAIVE).correctness, gate(padded).correctness
    assert short is not None and long is not None and short.ok and long.ok
    assert short.left_out == () and 0 < len(long.left_out) < len(short.runs)
    assert len(long.runs) < len(short.runs) and not {f"{r.shape} {r.distribution} {r.seed}" for r in long.runs} & set(long.left_out)
    assert len({r.shape for r in long.runs}) >= 2 and any(r.distribution != "normal" for r in long.runs) and long.runs[-1].mode == "check"


def test_a_size_that_is_unrolled_over_is_small_where_it_is_compiled() -> None:
    program = parse_program("""kir 1
program gather
  size n: i32
  size k: i32
  in X: f32[n, k]
  out Y: f32[n]
kernel main grid (i: n) threads 1
  register sum: f32 = 0.0
  for j in 0..k unroll
    sum = sum + X[i, j]
  Y[i] = sum
""", "gather.kir")
    assert profiled(program, None) == [("large", {"n": 4096, "k": 8})]
    assert profiled(edited(program, " unroll", ""), None)[0][1]["k"] > 4096
    assert profiled(edited(program, " unroll", ""), None, program) == [("large", {"n": 4096, "k": 8})]  # a state of a lineage, beside its expert


def test_compilers_end_when_nobody_waits_for_them_any_more(tmp_path: Path) -> None:
    with ending(time.monotonic() - 1), pytest.raises(KirError) as refused:
        run(["sleep", "600"], tmp_path, 600)
    assert refused.value.diagnostics[0].id == "KIR-B011"
    assert left(5.0) == 5.0
