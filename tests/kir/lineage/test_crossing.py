"""Steps learned from one kernel on another: what is carried, what is adapted, what is refused, and the law that a lineage's own steps lead home."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from kir.faces.cli._main import run as kir
from kir.faces.report.terminal import crossed_text
from kir.ir.binding import Binding, Tensor
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.convergence import common_form
from kir.lineage.crossing import cross
from kir.lineage.records.folder import Folder, opened
from kir.lineage.records.record import Lineage
from kir.rewrite import run
from kir.surface import backend
from kir.surface.reading import load_expert, promised
from tests.kir.lineage.paper_judge import PaperJudge

SKILLS = Path(__file__).parents[3] / "skills"
NAIVE = SKILLS / "problems" / "gemm" / "naive.kir"
BINDINGS = SKILLS / "bindings"
PIPELINE = ("multi-threaded-block{threads=128}; tile{axis=1 extent=64}; tile{axis=0 extent=64}; stage-panels{extent=32}@main/k_loop; mma; "
            "stage-shared{value=\"load(A[64 * i +: 64, 32 * k +: 32] else 0.0:f16 clip)\"}; pipeline@main/k")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lineage, Folder]:
    """A lineage of a GEMM that was made from the naive one by seven steps."""
    folder = tmp_path_factory.mktemp("crossing")
    steps = PIPELINE.split("; ")
    expert = parse_program(NAIVE.read_text())
    for step in steps[:5]:
        expert = run(expert, step).program
    (folder / "expert.kir").write_text(program_text(expert))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kir.lineage.judge.CpuJudge.of", lambda header, expert: PaperJudge())
        assert kir(["lineage", str(folder / "expert.kir"), "--problem", "gemm", "--surface", "cuda", "-o", str(folder / "out")]) == 0
    there = opened(folder / "out")
    return there.read(), there


def test_on_its_own_naive_program_a_lineage_leads_to_its_expert(learned: tuple[Lineage, Folder]) -> None:
    lineage, folder = learned
    done = cross(lineage, folder, folder.program(lineage.states[-1]))
    assert done.meets and [each.outcome for each in done.steps] == ["carried"] * len(lineage.accepted)
    assert content_hash(done.program) == lineage.start.content


@pytest.mark.parametrize(("file", "binding", "undone"), [
    ("naive.kir", None, False), ("naive.cu", "gemm_naive_cuda.toml", False), ("naive_triton.py", "gemm_naive_triton.toml", True),
])
def test_every_step_is_carried_to_the_naive_kernel_of_each_surface(learned: tuple[Lineage, Folder], file: str, binding: str | None, undone: bool) -> None:
    lineage, folder = learned
    target = load_expert(str(NAIVE.with_name(file)), BINDINGS / binding if binding else None).program
    done = cross(lineage, folder, target, backend("cuda").accepts)
    assert done.meets and bool(done.undone) == undone
    assert all(each.outcome == "carried" for each in done.steps)
    assert common_form(done.program) == common_form(folder.program(lineage.start))
    assert [p.name for p in done.program.params] == [p.name for p in target.params] and done.program.facts == target.facts


BLOCKS = """#include <cuda_fp16.h>
__global__ void product(const __half* left, const __half* right, __half* result, int rows, int cols, int inner) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    float sum = 0.0f;
    for (int p = 0; p < inner; p++) sum += __half2float(left[r * inner + p]) * __half2float(right[p * cols + c]);
    result[r * cols + c] = __float2half(sum);
}
"""


def test_a_first_version_in_blocks_of_threads_is_undone_before_it_is_crossed_to(learned: tuple[Lineage, Folder], tmp_path: Path) -> None:
    """Other names, blocks in two dimensions, a guard with an early return: what people write first is one thread an element, spread already."""
    lineage, folder = learned
    (tmp_path / "p.cu").write_text(BLOCKS)
    shapes = {"left": ["rows", "inner"], "right": ["inner", "cols"], "result": ["rows", "cols"]}
    binding = tmp_path / "p.toml"
    binding.write_text(Binding(kernel="product", sizes=["rows", "cols", "inner"], grid=["ceildiv(cols, 16)", "ceildiv(rows, 16)"],
                               metas={"threads_x": 16, "threads_y": 16}, tensors={k: Tensor(shape=list(v), dtype="f16") for k, v in shapes.items()},
                               facts=[f for x in ("rows", "cols", "inner") for f in (f"{x} >= 1", f"{x} <= 16384")]).text())
    done = cross(lineage, folder, load_expert(f"{tmp_path / 'p.cu'}::product", binding).program, backend("cuda").accepts)
    assert done.meets and all(each.carried for each in done.steps)
    assert [x in done.undone for x in ("~early-exit", "~spread-threads", "~coarsen-grid")] == [True] * 3
    assert f"carried to p.cu, its naive program in other words after {done.undone}" in crossed_text(lineage, done, "p.cu", "cuda", None)


NUMBERED = """#include <cuda_fp16.h>
__global__ void product(const half* left, const half* right, half* result, int rows, int cols, int inner) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  int r = i / cols, c = i % cols;
  float sum = 0.f;
  for (int k = 0; k < inner; ++k) sum += __half2float(left[r * inner + k]) * __half2float(right[k * cols + c]);
  result[i] = __float2half(sum);
}
"""


def test_a_first_version_with_one_number_for_each_element_gets_its_rows_and_columns_back(learned: tuple[Lineage, Folder], tmp_path: Path) -> None:
    lineage, folder = learned
    (tmp_path / "p.cu").write_text(NUMBERED)
    shapes = {"left": ["rows", "inner"], "right": ["inner", "cols"], "result": ["rows", "cols"]}
    binding = tmp_path / "p.toml"
    binding.write_text(Binding(kernel="product", sizes=["rows", "cols", "inner"], grid=["ceildiv(rows * cols, 256)"], metas={"threads_x": 256},
                               tensors={k: Tensor(shape=list(v), dtype="f16") for k, v in shapes.items()},
                               facts=[f for x in ("rows", "cols", "inner") for f in (f"{x} >= 1", f"{x} <= 16384")]).text())
    done = cross(lineage, folder, load_expert(f"{tmp_path / 'p.cu'}::product", binding).program, backend("cuda").accepts)
    assert done.meets and all(each.carried for each in done.steps), (done.undone, [(each.text, each.reason) for each in done.steps])
    assert "~linear-grid{" in done.undone and "named=false" in done.undone


def test_what_a_surface_cannot_say_is_left_out_or_adapted_with_the_reason(learned: tuple[Lineage, Folder]) -> None:
    lineage, folder = learned

    def says(program: Program) -> tuple[object, ...]:
        return backend("triton").accepts(program) if "mma" not in program_text(program) else refuse

    from kir.base.diagnostic import Diagnostic
    refuse = (Diagnostic("KIR-B002", "this surface has no matrix product"),)
    done = cross(lineage, folder, parse_program(NAIVE.read_text()), says)  # type: ignore[arg-type]  # diagnostics
    left = [each for each in done.steps if not each.carried]
    assert left[0].outcome == "unsaid" and "no matrix product" in left[0].reason
    assert "mma" not in program_text(done.program)


def test_preconditions_are_judged_on_the_other_kernel(learned: tuple[Lineage, Folder]) -> None:
    lineage, folder = learned
    inplace = parse_program(NAIVE.read_text().replace("out C: f16[M, N]", "inout C: f16[M, N]").replace("cast(acc, f16)", "cast(acc, f16) + C[j, i]")
                            .replace("in B: f16[K, N]", "in B: f16[K, N]\n  fact M == N"))
    done = cross(lineage, folder, inplace)
    assert not done.meets
    refused = [each for each in done.steps if each.outcome == "refused"]
    assert refused and all("KIR-P" in each.reason for each in refused)


def test_promises_of_the_caller_decide(tmp_path: Path) -> None:
    program = promised(parse_program(NAIVE.read_text()), ["K % 16 == 0"])
    assert "fact K % 16 == 0" in program_text(program)


def test_the_command_says_what_became_of_each_step(learned: tuple[Lineage, Folder], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lineage, folder = learned
    out = tmp_path / "fast.cu"
    words = ["replay", str(folder.root), "--on", str(NAIVE.with_name("naive.cu")), "--bind", str(BINDINGS / "gemm_naive_cuda.toml"), "-o", str(out)]
    assert kir([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["carried"] == len(told["steps"]) == len(lineage.accepted) and told["emit"] == "cuda" and told["meets"]
    assert out.read_text() == told["text"] and "__global__" in told["text"]
    assert kir(words) == 0
    assert f"{len(lineage.accepted)} of {len(lineage.accepted)} steps" in capsys.readouterr().out


ROWS = """
__global__ void rows(const float* in, float* out, float* tops, int R, int C) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= R) return;
  float m = -INFINITY, z = 0.f;
  for (int j = 0; j < C; ++j) m = fmaxf(m, in[row * C + j]);
  for (int j = 0; j < C; ++j) z += expf(in[row * C + j] - m);
  for (int j = 0; j < C; ++j) out[row * C + j] = expf(in[row * C + j] - m) / z;
  tops[row] = MORE;
}
"""


@pytest.mark.parametrize(("more", "code"), [("m", 0), ("__shfl_up_sync(0xffffffff, m, threadIdx.x)", 1)])
def test_steps_of_another_operator_are_refused_one_by_one_and_the_kernel_is_written_if_it_can_be(
        more: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A product's steps on a softmax in blocks of threads: no step's options are forced on another pass, and what Triton cannot say is undone."""
    (tmp_path / "rows.cu").write_text(ROWS.replace("MORE", more))
    binding = Binding(kernel="rows", sizes=["R", "C"], facts=["R >= 1", "R <= 8192", "C >= 1", "C <= 8192"], grid=["ceildiv(R, 64)"],
                      metas={"threads_x": 64}, tensors={"in": Tensor(shape=["R", "C"], dtype="f32"), "out": Tensor(shape=["R", "C"], dtype="f32"),
                                                        "tops": Tensor(shape=["R"], dtype="f32")})
    (tmp_path / "rows.toml").write_text(binding.text())
    words = ["replay", str(SKILLS / "lineages" / "gemm_tilelang"), "--on", str(tmp_path / "rows.cu"), "--bind", str(tmp_path / "rows.toml"),
             "--emit", "triton", "--json"]
    assert kir(words) == code
    told = json.loads(capsys.readouterr().out)
    assert len(told["steps"]) == 11 and all(each["reason"] for each in told["steps"] if each["outcome"] not in ("carried", "elsewhere"))
    assert (told["text"] is None) == bool(code) and told["accepted"] is None


def test_options_of_another_kernel_need_one(learned: tuple[Lineage, Folder], capsys: pytest.CaptureFixture[str]) -> None:
    assert kir(["replay", str(learned[1].root), "--emit", "cuda"]) == 2
    assert "--emit needs --on FILE" in capsys.readouterr().err
    assert kir(["replay", str(learned[1].root), "--on", "nothing.cu"]) == 2
    assert "KIR-S018" in capsys.readouterr().err
