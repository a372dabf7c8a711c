"""`kir optimize`: what it takes, what it writes, and what it refuses."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.printer import program_text
from kir.learning.optimize.inputs import as_tuned, captured, definition, shape_for, subject
from kir.learning.optimize.judge import modelled
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.pool.tasks import judged, task_of
from kir.problem import load_problem
from tests.command_line import called
from tests.users.own_kernels import laid

SKILLS = Path(__file__).parents[3] / "skills"
NAIVE, BOUND = str(SKILLS / "problems/softmax/naive_triton.py"), str(SKILLS / "bindings/softmax_naive_triton.toml")
QUICK = ("--shape", "small", "--no-compile", "--surface", "cuda", "--budget", "candidates=1,seconds=500,plans=14")


def test_a_naive_program_becomes_a_kernel_with_its_report_and_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, log = tmp_path / "softmax.cu", tmp_path / "log.jsonl"
    code, said, err = called(capsys, "optimize", "--problem", "softmax", *QUICK, "-o", str(out), "--log", str(log))
    assert code == 0 and "times as fast" in said and "1 candidate gated" in said and "us  as it is\n" not in said
    assert "called only where N <= 128\n" in said, "what no step needs is not promised"
    assert "__global__" in out.read_text()
    report = json.loads((tmp_path / "softmax.cu.json").read_text())
    assert report["best"]["steps"] and report["best"]["accepted"] and report["form"] == "kernel"
    assert "for other sizes the kernel as given is launched" in err, "facts narrower than the input's are told"
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "begin" and events[-1] == "end" and "best" in events

    policy = tmp_path / "policy.json"
    code, said, _ = called(capsys, "optimize", "--learn", str(log), "-o", str(policy))
    learned = json.loads(policy.read_text())
    assert code == 0 and "from 1 searches" in said and learned["schema"] == "kir.policy/1" and learned["off"]["h200"], "what is known of devices stays"


def test_an_interrupted_search_writes_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that has nothing tells that a file of its name is not its own."""
    (out := tmp_path / "softmax.cu").write_text("of an earlier run")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr("kir.learning.optimize.search.Search._search", stopped)
    code, said, err = called(capsys, "optimize", "--problem", "softmax", *QUICK, "-o", str(out))
    assert code == 130 and "nothing was tried" in said and "; interrupted" in said and "Traceback" not in err
    assert f"{out} is of an earlier run: this one did not write it" in err.replace("\n", "") and out.read_text() == "of an earlier run"


@pytest.mark.parametrize(("words", "id"), [
    ((), "KIR-U026"),
    (("--problem", "softmax", "--budget", "candidates=0"), "KIR-U024"),
    (("--problem", "softmax", "--budget", "candidats=3"), "did you mean 'candidates'"),
    (("--problem", "softmax", "--surface", "metal"), "KIR-C002"),
    (("--problem", "softmaxx"), "KIR-G901"),
    (("nowhere.cu", "--problem", "gemm"), "KIR-S018"),
    ((json.__file__,), "KIR-S018"),
    ((str(Path(__file__).parents[3] / "README.md"),), "KIR-S018"),
    (("--problem", "softmax", "--on", "gpu"), "KIR-G004"),
    (("--problem", "softmax", "--gpus", "0"), "KIR-C002"),
    (("--problem", "softmax", "--in-place"), "KIR-C105"),
    ((NAIVE, "--bind", BOUND, "--problem", "softmax", "-o", NAIVE), "KIR-C002"),
    (("--learn", "log.jsonl"), "KIR-C002"),
    (("--problem", "softmax", "--shape", "small", "--shape", "long", "--log", "log.jsonl"), "KIR-C002"),
    (("--problem", "softmax", "--shape", "small", "--shape", "nowhere"), "KIR-G902"),
])
def test_what_is_refused_is_one_clear_error(words: tuple[str, ...], id: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = called(capsys, "optimize", *words)
    assert code in (1, 2) and err.count("error[") == 1 and id in err


ROWS = '''
import torch
import triton
import triton.language as tl


@triton.jit
def weighted_rows(x, w, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * columns + at, mask=at < columns, other=0.0) * tl.load(w + at, mask=at < columns, other=0.0), axis=0)
    tl.store(out + row, total)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], device=x.device)
    weighted_rows[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=128)
    return out
'''


def test_a_kernel_that_no_problem_is_named_for_must_compute_what_it_computes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is read as its host code launches it, made fast at large sizes, and may be judged by other processes."""
    file, out = tmp_path / "rows.py", tmp_path / "rows.cu"
    file.write_text(ROWS)
    code, said, err = called(capsys, "optimize", str(file), "--no-compile", "--surface", "cuda", "--budget", "candidates=3,seconds=500,plans=40",
                             "-o", str(out))
    assert code == 0 and "times as fast" in said and "columns=8192" in said and "what weighted_rows computes" in said, err
    assert "KIR-S060" in err and "__global__" in out.read_text()
    report = json.loads((tmp_path / "rows.cu.json").read_text())
    assert "x and w are f32" in report["assumed"] and "  taken for granted, as nothing says it: x and w are f32; " in said
    assert report["limit"]["seconds"] > 4 * 8192 * 8192 / 5e12, "every tensor is moved once"
    assert report["limit"]["share"] == pytest.approx(report["limit"]["seconds"] / report["best"]["seconds"]), "of the time that is told"
    one = subject(str(file))
    task = task_of(Setting(one.problem, shape_for(one, ""), target("h200"), "cuda"), one.program, "cuda", compiles=False)
    wrong = replace(one.program, kernels=tuple(replace(k, body=k.body[:-1]) for k in one.program.kernels))
    assert judged(task)["accepted"] and not judged(replace(task, text=program_text(wrong)))["accepted"]


def test_a_kernel_with_a_tuner_begins_with_what_the_tuner_would_choose(tmp_path: Path) -> None:
    """By the model, at the sizes that count: what is faster than the first configuration alone is no gain."""
    file, configs = tmp_path / "rows.py", '[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((16, 1), (2048, 8))]'
    above = f'@triton.autotune(configs={configs}, key=["columns"])\n'
    file.write_text(ROWS.replace("@triton.jit", f"{above}@triton.jit").replace(", BLOCK=128", ""))
    first = subject(str(file))
    setting = Setting(first.problem, shape_for(first, ""), target("h200"), "triton")
    one = as_tuned(first, setting)
    times = [sum(c.seconds for c in modelled(x.program, setting, "triton")) for x in (first, one)]
    assert times[1] < times[0] and one.assumed[0] == "of its tuner's 2 configurations the fastest by the model (BLOCK = 2048, num_warps = 8)"
    assert one.problem is not first.problem and as_tuned(one, setting) is one


def test_sizes_that_facts_keep_small_make_the_others_no_smaller(tmp_path: Path) -> None:
    """A head of 64 numbers is no reason to time a kernel at 64 tokens."""
    file = tmp_path / "halves.kir"
    file.write_text("kir 1\nprogram halves\n  size M: i32\n  size D: i32\n  size E: i32\n  in X: f32[M, D]\n  in W: f32[E]\n  out Y: f32[M, D]\n"
                    "  fact D // 2 == 32\n  fact E <= 16\n  fact E >= 1\nkernel main grid (m: M) threads 1\n  for d in 0..D\n    Y[m, d] = X[m, d] * W[0]\n")
    sizes = shape_for(subject(str(file)), "").sizes
    assert sizes["D"] == 64 and sizes["E"] == 16 and sizes["M"] >= 1 << 17


def test_a_kernel_is_made_fast_at_the_sizes_that_its_file_calls_it_with(tmp_path: Path) -> None:
    """Those of its main program, where they are more than a test's; else, and where they are asked for, others."""
    file = laid(tmp_path, "softmax with a scale (Triton)")
    one = subject(str(file))
    assert shape_for(one, "").sizes == {"m": 512, "n": 781} and shape_for(one, "m=64,n=128").sizes == {"m": 64, "n": 128}
    file.write_text(file.read_text().replace("torch.randn(512, 781", "torch.randn(5, 781"))
    assert shape_for(subject(str(file)), "").sizes["m"] >= 4096
    one = subject(str(file), problem="softmax")  # rows of 1,024 at most: none of its timed shapes, and no reason to be fast at the small ones
    assert not one.problem.timed_for(one.program) and shape_for(one, "").sizes == {"M": 8192, "N": 1024}
    file.write_text(file.read_text().replace("torch.randn(5, 781", "torch.randn(65536, 5552"))
    large = subject(str(file))
    assert shape_for(large, "").sizes == {"m": 65536, "n": 5552}, "nothing is interpreted at them"
    assert shape_for(large, "", "gpu").sizes == {"m": 16384, "n": 1388}, "on a device the interpreter says at them what is right"


def test_a_kernel_with_a_hazard_is_not_taken_for_what_must_be_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "race.kir"
    file.write_text("kir 1\nprogram race\n  size N: i32\n  in X: f32[N]\n  out Y: f32[1]\n  fact N >= 2\n"
                    "kernel race grid (c: 1) threads 32\n  for t in 0..32 parallel thread\n    if t < N\n      Y[0] = X[t]\n")
    code, _, err = called(capsys, "optimize", str(file), *QUICK[2:], "--log", str(tmp_path / "log"))
    assert code == 1 and "KIR-U025" in err and "the kernel as given is not right" in err and "kir check FILE, which says where" in err
    file.write_text(file.read_text().replace("if t < N", "if t < 1"))
    code, _, err = called(capsys, "optimize", str(file), *QUICK[2:], "--log", str(tmp_path / "log"))
    assert code == 0, "mended, it is searched under the same command: the log has nothing of another"


def test_a_kernel_of_one_size_that_is_too_large_to_be_tried_is_not_called_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.kir"
    file.write_text("kir 1\nprogram one\n  in X: f32[67108864]\n  out Y: f32[67108864]\nkernel main grid (c: 67108864) threads 1\n  Y[c] = X[c] * 2.0\n")
    code, _, err = called(capsys, "optimize", str(file), *QUICK[2:])
    assert code == 1 and "KIR-U025" in err and "cannot be tried: nothing is a size" in err and "kir bind FILE" in err


def test_a_wrong_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "naive.kir"
    file.write_text((load_problem("softmax").folder / "naive.kir").read_text())
    policy = tmp_path / "policy.json"
    for text, why in (("{}", "of the form 'unknown'"), ('{"schema": "kir.policy/9"}', "of the form 'kir.policy/9'"), ("[1, 2]", "it holds no object"),
                      ('{"schema": "kir.policy/1", "searches": 1, "weights": {"a": NaN}}', "a weight is no number"), ('{"schema"', "is no policy")):
        policy.write_text(text)
        code, _, err = called(capsys, "optimize", str(file), "--problem", "softmax", *QUICK, "--policy", str(policy))
        assert code == 1 and "KIR-U023" in err and why in err


def test_a_kernel_that_computes_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.kir"
    file.write_text((load_problem("softmax").folder / "naive.kir").read_text().replace("/ total", "- total"))
    code, _, err = called(capsys, "optimize", str(file), "--problem", "softmax", *QUICK)
    assert code == 1 and "KIR-U025" in err


def test_a_problem_is_meant_in_the_dtypes_of_the_kernel_unless_it_is_asked_for_in_others(tmp_path: Path) -> None:
    file = tmp_path / "rows.kir"
    file.write_text((load_problem("softmax").folder / "naive.kir").read_text().replace("f16", "f32"))
    asked = ("softmax", "softmax:bf16")
    assert [subject(str(file), problem=name).problem.name for name in asked] == ["softmax:f32", "softmax:bf16"], "the other dtype is refused later"
    with pytest.raises(KirError, match="KIR-C002"):
        subject(str(file), problem="gemm")


DEFINITION = {"name": "my_softmax", "op_type": "softmax", "axes": {"M": {"type": "const", "value": 4}, "N": {"type": "const", "value": 128}},
              "inputs": {"X": {"shape": ["M", "N"], "dtype": "bfloat16"}}, "outputs": {"Y": {"shape": ["M", "N"], "dtype": "bfloat16"}}, "reference": ""}


def test_a_definition_of_flashinfer_trace_is_read_as_the_problem_that_it_is(tmp_path: Path) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({**DEFINITION, "name": "softmax_bf16"}))
    one = definition(file)
    assert one.problem.name == "softmax:bf16" and one.sizes == {"M": 4, "N": 128}
    assert shape_for(one, "").sizes == {"M": 4, "N": 128}
    file.write_text(json.dumps({**DEFINITION, "inputs": {"Q": {"shape": ["M"], "dtype": "bool"}}}))
    with pytest.raises(KirError) as unknown:
        definition(file)
    assert unknown.value.diagnostics[0].id == "KIR-U027"
    file.write_text("[1]")
    with pytest.raises(KirError) as broken:
        definition(file)
    assert broken.value.diagnostics[0].id == "KIR-U027"


def test_a_recorded_call_names_its_kernel(tmp_path: Path) -> None:
    gemm = Path(__file__).parents[3] / "skills"
    file = tmp_path / "call.toml"
    file.write_text(f"# {gemm / 'experts/gemm/triton.py'}::gemm_persistent\n{(gemm / 'bindings/triton_gemm.toml').read_text()}")
    one = captured(file, "gemm")
    assert one.surface == "triton" and one.file.endswith("::gemm_persistent") and one.binding == file
    file.write_text("kernel = 'x'\n")
    with pytest.raises(KirError) as nameless:
        subject(str(file), None, "gemm")
    assert nameless.value.diagnostics[0].id == "KIR-U026"


def test_a_result_that_is_no_edit_of_the_file_is_written_whole_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file of its own: the user's, which may be called as the patch is, stays as it is, also where it was to be edited itself."""
    mine, log = tmp_path / "out.py", tmp_path / "log.jsonl"
    mine.write_text(before := Path(NAIVE).read_text())
    for how in (("-o", str(tmp_path / "out.patch")), ("--in-place",)):
        code, said, err = called(capsys, "optimize", str(mine), "--bind", BOUND, "--problem", "softmax", "--shape", "small", "--no-compile",
                                 "--budget", "candidates=1,seconds=500,plans=14", "--log", str(log), *how)
        assert code == 0 and "times as fast" in said
        assert mine.read_text() == before and not (tmp_path / "out.patch").exists() and "triton.jit" in (tmp_path / "out_faster.py").read_text()
        assert "but the whole kernel" in err and "KIR-C102" in err
        (tmp_path / "out_faster.py").unlink()
