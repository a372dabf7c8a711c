"""`kir optimize`: what it takes, what it writes, and what it refuses."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.learning.optimize.inputs import captured, definition, shape_for, subject
from kir.problem import load_problem
from tests.command_line import called

QUICK = ("--shape", "small", "--no-compile", "--surface", "cuda", "--budget", "candidates=1,seconds=500,plans=14")


def test_a_naive_program_becomes_a_kernel_with_its_report_and_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, log = tmp_path / "softmax.cu", tmp_path / "log.jsonl"
    code, said, err = called(capsys, "optimize", "--problem", "softmax", *QUICK, "-o", str(out), "--log", str(log))
    assert code == 0 and "times as fast" in said and "candidates gated" in said
    assert "__global__" in out.read_text()
    report = json.loads((tmp_path / "softmax.cu.json").read_text())
    assert report["best"]["steps"] and report["best"]["accepted"] and report["form"] == "kernel"
    assert "for other sizes the kernel as given is launched" in err, "facts narrower than the input's are told"
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "begin" and events[-1] == "end" and "best" in events

    policy = tmp_path / "policy.json"
    code, said, _ = called(capsys, "optimize", "--learn", str(log), "-o", str(policy))
    assert code == 0 and "from 1 searches" in said and json.loads(policy.read_text())["schema"] == "kir.policy/1"


@pytest.mark.parametrize(("words", "id"), [
    ((), "KIR-U026"),
    (("--problem", "softmax", "--budget", "candidates=0"), "KIR-U024"),
    (("--problem", "softmax", "--surface", "metal"), "KIR-C002"),
    (("--problem", "softmaxx"), "KIR-G901"),
    (("nowhere.cu", "--problem", "gemm"), "KIR-S018"),
    (("--problem", "softmax", "--on", "gpu"), "KIR-G004"),
    (("--problem", "softmax", "--gpus", "0"), "KIR-C002"),
    (("--learn", "log.jsonl"), "KIR-C002"),
    (("--problem", "softmax", "--shape", "small", "--shape", "long", "--log", "log.jsonl"), "KIR-C002"),
    (("--problem", "softmax", "--shape", "small", "--shape", "nowhere"), "KIR-G902"),
])
def test_what_is_refused_is_one_clear_error(words: tuple[str, ...], id: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = called(capsys, "optimize", *words)
    assert code in (1, 2) and err.count("error[") == 1 and id in err


def test_a_kernel_without_a_problem_and_a_wrong_policy_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "naive.kir"
    file.write_text((load_problem("softmax").folder / "naive.kir").read_text())
    code, _, err = called(capsys, "optimize", str(file))
    assert code == 2 and "KIR-U026" in err and "--problem" in err
    policy = tmp_path / "policy.json"
    policy.write_text("{}")
    code, _, err = called(capsys, "optimize", str(file), "--problem", "softmax", *QUICK, "--policy", str(policy))
    assert code == 1 and "KIR-U023" in err


def test_a_kernel_that_computes_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.kir"
    file.write_text((load_problem("softmax").folder / "naive.kir").read_text().replace("/ total", "- total"))
    code, _, err = called(capsys, "optimize", str(file), "--problem", "softmax", *QUICK)
    assert code == 1 and "KIR-U025" in err


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
    gemm = Path(__file__).parents[2] / "skills"
    file = tmp_path / "call.toml"
    file.write_text(f"# {gemm / 'experts/gemm/triton.py'}::gemm_persistent\n{(gemm / 'bindings/triton_gemm.toml').read_text()}")
    one = captured(file, "gemm")
    assert one.surface == "triton" and one.file.endswith("::gemm_persistent") and one.binding == file
    file.write_text("kernel = 'x'\n")
    with pytest.raises(KirError) as nameless:
        subject(str(file), None, "gemm")
    assert nameless.value.diagnostics[0].id == "KIR-U026"


def test_a_result_that_is_no_edit_of_the_file_is_written_whole_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skills = Path(__file__).parents[2] / "skills"
    patch = tmp_path / "out.patch"
    code, said, err = called(capsys, "optimize", str(skills / "problems/softmax/naive_triton.py"), "--bind", str(skills / "bindings/softmax_naive_triton.toml"),
                             "--problem", "softmax", "--shape", "small", "--no-compile", "--budget", "candidates=1,seconds=500,plans=14", "-o", str(patch))
    assert code == 0 and "times as fast" in said
    assert not patch.exists() and "triton.jit" in (tmp_path / "out.py").read_text()
    assert "no patch of the file" in err and "KIR-C102" in err
