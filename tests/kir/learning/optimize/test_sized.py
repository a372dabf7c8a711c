"""Kernels at sizes at which nothing interprets them: a size that is a number of their file, and one that is asked for on a device."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kir.analysis import normalize
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import I32
from kir.learning.optimize.forms.sized import NUMBER, _Apart, _with_size, at_its_own
from kir.learning.optimize.inputs import judged_for, launched, shape_for, subject, varied, with_sizes
from kir.learning.optimize.judge import GpuJudge
from kir.learning.optimize.plan import Setting
from kir.problem.problem import shape_of

SQUARE = """
#define N 4096
__global__ void product(const float* A, const float* B, float* C) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < N && col < N) {
        float acc = 0.f;
        for (int k = 0; k < N; k++) acc += A[row * N + k] * B[k * N + col];
        C[row * N + col] = acc;
    }
}
int main() {
    float *A, *B, *C;
    cudaMalloc(&A, N * N * sizeof(float)); cudaMalloc(&B, N * N * sizeof(float)); cudaMalloc(&C, N * N * sizeof(float));
    product<<<dim3(N / 16, N / 16), dim3(16, 16)>>>(A, B, C);
}
"""


@pytest.mark.parametrize("text,name,value", [
    ("#define N 4096  // rows", "N", "4096"), ("static constexpr int ROWS = 512;", "ROWS", "512"), ("const int K = 1024;", "K", "1024")])
def test_numbers_of_a_file(text: str, name: str, value: str) -> None:
    found = NUMBER.search(f"int x;\n{text}\n")
    assert found is not None and (found["name"], found["value"]) == (name, value)
    assert NUMBER.search("#define N (4096 * 2)\nfor (int i = 0; i < 512; i++)\n") is None


def test_a_number_that_decides_what_is_computed_is_none() -> None:
    text = "kir 1\nprogram p\n  in X: f32[{n}]\n  out Y: f32[{n}]\nkernel p grid (i: {n}) threads 1\n  Y[i] = X[{n} - 1 - i] * {by}\n"
    read = [parse_program(text.format(n=x, by="2.0")) for x in (512, 256, 128, 64)]
    assert "Y[i] = X[N - i - 1] * 2.0" in program_text(normalize(_with_size(read, (512, 256, 128, 64), n.Var("N", I32))))
    with pytest.raises(_Apart):
        _with_size([*read[:3], parse_program(text.format(n=64, by="3.0"))], (512, 256, 128, 64), n.Var("N", I32))


def test_a_number_of_a_file_is_a_size_and_what_is_too_large_to_be_interpreted_is_timed_there_and_judged_elsewhere(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "square.cu"
    file.write_text(SQUARE)
    given = subject(str(file))
    one = with_sizes(given)
    assert one.sizes == {"N": 4096} and shape_for(one, "").sizes == {"N": 4096} and with_sizes(one) is one
    assert "in A: f32[N, N]" in program_text(one.program) and "acc = acc + A[row, k] * B[k, col]" in program_text(one.program), "rows, as places keep to them"
    assert "N % 16 == 0" in [expr_text(f) for f in one.program.facts] and "N = 4096 is tried at other values" in one.assumed[0]
    own = at_its_own(one.program, {"N": 4096})
    assert [p.name for p in own.params] == [p.name for p in given.program.params] and "f32[4096, 4096]" in program_text(own), "which its file can say again"
    at = shape_of(one.problem, "N=8192")
    where = judged_for(one, at)
    assert where is not None and 64 <= where.sizes["N"] <= 1024, "8192 cubed takes the interpreter hours"
    assert judged_for(one, shape_of(one.problem, "N=128")) is None
    asked: list[tuple[str, bool, bool]] = []
    wrong = [""]

    def gate(gpu: object, program: object, problem: Any, surface: str, options: Any) -> Any:
        name, = options.shapes
        assert name in [s.name for s in problem.shapes]
        asked.append((name, options.interpret, options.replay))
        row = SimpleNamespace(kind="measured", shape=name, seconds=1e-3, interval=(1e-3, 2e-3))
        return SimpleNamespace(accepted=not wrong[0], reason=wrong[0], profile=[row], device=None)
    monkeypatch.setattr("kir.gate.gpu.gate_gpu", gate)
    gpu = cast(Any, SimpleNamespace(turns=SimpleNamespace(waited=0.0, had=0.0)))
    judge = GpuJudge(gpu, Setting(one.problem, at, target("h200"), "cuda", where), replays=True)
    assert judge.judge(one.program, "cuda").accepted and asked == [(at.name, False, False)]
    assert judge.again(one.program, "cuda").seconds == 1e-3 and asked[1:] == [(where.name, True, True), (at.name, False, False)]
    wrong[0] = "C[0] is nan"
    assert judge.again(one.program, "cuda").reason == "C[0] is nan" and len(asked) == 4, "what is wrong is not timed"
    usual = replace(judge, setting=replace(judge.setting, judged=None))
    assert not usual.again(one.program, "cuda").accepted and asked[-1] == (at.name, True, True)


TEAM = """
#define WIDTH 64
#define THREADS 128
__global__ void sums(const float* X, float* Y, int rows) {
    __shared__ float part[THREADS];
    float s = 0.f;
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) s += X[blockIdx.x * WIDTH + i];
    part[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
        for (int k = 0; k < THREADS; k++) total += part[k];
        Y[blockIdx.x] = total;
    }
}
void launch(const float* X, float* Y, int rows) { sums<<<rows, THREADS>>>(X, Y, rows); }
"""


def test_a_number_of_a_file_that_says_how_many_threads_there_are_is_one_of_its_own_parameters(tmp_path: Path) -> None:
    """The launch follows it. Other threads than the loops count with would leave elements out: the launch alone is not changed then. What a tensor is wide is
    no such number."""
    file = tmp_path / "team.cu"
    file.write_text(TEAM)
    one = subject(f"{file}::sums")
    found = [*varied(one, Setting(one.problem, shape_for(one, ""), target("h200"), "cuda"))]
    assert [plan.point for _, plan in found] == [{"THREADS": v} for v in (256, 64, 512, 32)]
    assert [expr_text(start.program.kernels[0].threads) for start, _ in found] == ["256", "64", "512", "32"]


@pytest.mark.parametrize(("step", "rolled"), [("THREADS", False), ("blockDim.x", True), ("stride", True)])
def test_a_loop_that_goes_on_by_the_threads_of_the_launch_is_timed_as_its_file_has_it(step: str, rolled: bool, tmp_path: Path) -> None:
    """nvcc writes no rounds of it out; KIR's own text, with the number, is a candidate then."""
    file = tmp_path / "team.cu"
    file.write_text(TEAM.replace("float s = 0.f;", "float s = 0.f; int stride = blockDim.x;").replace("i += THREADS", f"i += {step}"))
    one = subject(f"{file}::sums")
    timed = launched(one)
    assert (timed is not None) == rolled and (timed is None or program_text(timed).count("unroll {factor=1}") == 1)
    points = [plan.point for _, plan in varied(one, Setting(one.problem, shape_for(one, ""), target("h200"), "cuda"))]
    assert ({} in points) == rolled
    assert not any(int(point.get("threads_x", 0)) > 128 for point in points), "an array of 128 has no place for more threads"
