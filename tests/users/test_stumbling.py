"""What a new user stumbled over, each with its cure."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kir
from kir.base.diagnostic import UsageError
from kir.faces.cli._options import can_be_written
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.surface.oracles import named_for
from tests.command_line import called
from tests.users.own_kernels import laid

SOFTMAX = "softmax with a scale (Triton)"


@pytest.mark.parametrize("was, made, said", [
    ("BLOCK = 1024", 'BLOCK = "abc"', "the kernel takes a whole number"), ("BLOCK = 1024", "BLOCK = 3.5", "the kernel takes a whole number"),
    ('dtype = "f32"', 'dtype = "float17"', "there is no dtype 'float17'"), ('grid = ["m"]', "grid = 7", "field 'grid': it takes a list, in brackets"),
    ("[tensors.y_ptr]", 'grid = [', "is no TOML")])
def test_values_of_a_binding_are_checked_at_their_line(was: str, made: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, toml = laid(tmp_path, SOFTMAX), tmp_path / "b.toml"
    assert called(capsys, "bind", str(file), "-o", str(toml))[0] == 0
    toml.write_text(toml.read_text(encoding="utf-8").replace(was, made), encoding="utf-8")
    code, _, err = called(capsys, "parse", str(file), "--bind", str(toml), "--normal")
    assert code != 0 and said in err and f"{toml.name}:" in err


def test_the_output_of_a_template_is_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = laid(tmp_path, "RMS norm with a main program (CUDA)")
    code, out, err = called(capsys, "parse", str(file), "--normal")
    assert code == 0 and "out y: f32[m, n]" in out and "in x: f32[m, n]" in out, err
    code, out, err = called(capsys, "parse", str(file))
    assert code == 0 and "opaque cuda" in out and "--normal, which reads it as it is launched" in err and "kir explain reading-cuda" in err
    code, out, _ = called(capsys, "run", str(file), "--check", "--set", "m=2", "--set", "n=40")
    assert code == 0 and "0 error findings" in out


def test_a_kernel_that_nobody_launches_is_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lonely.cu"
    file.write_text("__global__ void lonely(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2.f; }\n", encoding="utf-8")
    assert "taken as proposed: metas.threads_x = " in called(capsys, "bind", str(file), "--ask", "--yes", "-o", str(tmp_path / "b.toml"))[1]
    code, _, err = called(capsys, "lineage", str(file), "-o", str(tmp_path / "out"))
    assert code == 1 and "KIR-S016" in err and "lonely.cu --ask, which asks for what is open" in err and not (tmp_path / "out").exists()


def test_a_problem_that_lacks_a_scalar_says_so_at_once_with_a_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = laid(tmp_path, SOFTMAX)
    code, _, err = called(capsys, "lineage", str(file), "--problem", "softmax", "-o", str(tmp_path / "out"))
    assert code == 2 and "the scalar 'scale'" in err and "--set scale=1.0" in err and not (tmp_path / "out").exists()
    code, _, err = called(capsys, "run", str(file), "--problem", "softmax")
    assert code == 2 and "the scalar 'scale'" in err and "--set scale=1.0" in err
    assert called(capsys, "run", str(file), "--problem", "softmax", "--set", "scale=1.0")[0] == 0
    code, out, err = called(capsys, "gate", str(file), "--problem", "softmax", "--set", "scale=1.0", "--target", "sm_90a")
    assert code == 0 and "accepted" in out, err
    code, _, err = called(capsys, "gate", str(file), "--problem", "softmax", "--set", "skale=1.0")
    assert code == 2 and "no scalar 'skale'" in err


def test_a_problem_is_found_in_a_kernel_of_other_names(tmp_path: Path) -> None:
    """Tensors that are called alike but for capitals, an output that is not asked for; what is modelled is of the problem's sizes."""
    text = (laid(tmp_path, "RMS norm with a main program (CUDA)")).read_text(encoding="utf-8")
    (tmp_path / "swapped.cu").write_text(text.replace("x, const float* __restrict__ w", "w, const float* __restrict__ x")
                                         .replace("(x, w,", "(w, x,"), encoding="utf-8")
    problem, binding = named_for(str(tmp_path / "swapped.cu"), "rmsnorm")
    assert isinstance(binding, Binding) and problem == "rmsnorm:f32" and {*binding.sizes} == {"N", "M"} and binding.grid == ["M"]
    assert {name: (t.name, t.shape) for name, t in binding.tensors.items()} == {"w": ("W", ["N"]), "x": ("X", ["M", "N"]), "y": ("Y", ["M", "N"])}
    kernel = kir.read(tmp_path / "swapped.cu", problem="rmsnorm")
    assert kir.run(kernel, "rmsnorm:f32", shape="odd").ok
    own = parse_program("kir 1\nprogram f\n  size n: i32\n  size m: i32\n  in X: f32[m, n]\n  in W: f32[n]\n  out Y: f32[m, n]\n"
                        "kernel f grid (i: m) threads 1\n  pass\n")
    wanted = load_problem("rmsnorm")
    assert wanted.sizes_of(own, wanted.shape("long")) == {"M": 8192, "N": 4096, "m": 8192, "n": 4096}


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in (tmp_path / "file" / "x", Path("/proc/x")):
        code, _, err = called(capsys, "lineage", "no_such_file.py", "-o", str(place))
        assert code == 2 and "KIR-C006" in err and "no_such_file" not in err
        assert called(capsys, "optimize", "no_such_file.py", "-o", str(place))[::2] == (code, err)
    assert can_be_written(tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    with pytest.raises(UsageError):
        can_be_written(Path("/proc/self/no/x"))


def test_what_is_asked_for_is_refused_with_a_way_on(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = laid(tmp_path, SOFTMAX)
    monkeypatch.chdir(tmp_path)
    code, _, err = called(capsys, "bind", str(file), "-o", "-")
    assert code == 2 and "leave -o out" in err and not Path("-").exists()
    code, _, err = called(capsys, "gate", str(file))
    assert code == 2 and f"kir check {file}" in err
    code, _, err = called(capsys, "gate", "no_such.cu")
    assert code == 2 and "there is no file no_such.cu" in err, "what is wrong first"
    gemm = ("run", "skills/problems/gemm/naive.kir", "--problem", "gemm", "--shape")
    code, _, err = called(capsys, *gemm, "huge")
    assert code == 2 and "or sizes, as in M=" in err
    assert called(capsys, *gemm, "M=4,N=5,K=6")[0] == 0
    code, _, err = called(capsys, "forecast", str(file))
    assert code == 2 and f"kir sites {file}" in err


def test_a_lineage_has_a_folder_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = laid(tmp_path, "addition (TileLang)")
    monkeypatch.chdir(tmp_path)
    code, out, _ = called(capsys, "lineage", str(file), "--steps", "1", "--surface", "cuda", "--json")
    assert json.loads(out)["files"]["report"] == "add.lineage/report.html" and (tmp_path / "add.lineage" / "lineage.json").is_file() and code in (0, 1)


@pytest.mark.torch
def test_a_function_of_pytorch_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = laid(tmp_path, SOFTMAX)
    (tmp_path / "right.py").write_text("import torch\n\ndef scaled(x, scale):\n    return torch.softmax(x * scale, dim=-1)\n\n"
                                       "def wrong(x, scale):\n    return torch.softmax(x + scale, dim=-1)\n", encoding="utf-8")
    code, out, err = called(capsys, "gate", str(file), "--against", "right:scaled", "--target", "sm_90a")
    assert code == 0 and "accepted" in out, err
    code, out, _ = called(capsys, "gate", str(file), "--against", "right:wrong", "--target", "sm_90a")
    assert code == 1 and "refused at correctness" in out
    code, _, err = called(capsys, "gate", str(file), "--against", "right:skaled")
    assert code == 2 and "did you mean 'scaled'" in err
    code, _, err = called(capsys, "gate", str(file), "--against", "nowhere:f")
    assert code == 2 and "KIR-S063" in err


def test_a_binary_is_no_source_and_its_bytes_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cu").write_bytes(b"\x7fELF\x02\x01\x00\xff\xfe")
    code, _, err = called(capsys, "parse", str(tmp_path / "k.cu"))
    assert code != 0 and "k.cu is no text: its byte 6 is zero" in err and "ELF" not in err


def test_a_file_that_is_too_large_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cu").write_text("// a line of a comment in a file of many lines\n" * 100_000, encoding="utf-8")
    code, _, err = called(capsys, "parse", str(tmp_path / "k.cu"))
    assert code != 0 and "k.cu has 4,700,000 characters" in err and "macro" not in err


def test_options_have_a_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    for words, near in ((("run", "--chek", "x"), "--check"), (("skills", "list", "--libary", "x"), "--library"), (("gate", "--aginst", "x"), "--against")):
        code, _, err = called(capsys, *words)
        assert code == 2 and f"there is no option {words[-2]}" in err and near in err
    code, _, err = called(capsys, "check", "--set", "n=3", "k.py")
    assert code == 2 and "kir run have it" in err and "did you mean" not in err, "what only other commands have"
    code, _, err = called(capsys, "check", "--frobnicate", "k.py")
    assert code == 2 and "kir check --help" in err and "did you mean" not in err, "what looks like nothing but for its dashes"


@pytest.mark.parametrize(("words", "said"), [
    pytest.param(("lineage", "k.py", "--surface", "opencl"), "one of cuda, tilelang, triton", id="a surface that nobody writes"),
    pytest.param(("gate", "k.py", "--surface", "trition"), "did you mean 'triton'?", id="one that is nearly one"),
    pytest.param(("lineage", "k.py", "--seconds", "-3"), "not in the range x>=0", id="less than no time"),
    pytest.param(("lineage", "k.py", "--workers", "-1"), "not in the range x>=0", id="fewer than nobody to work"),
    pytest.param(("capture", "k.py"), "kir capture -- python k.py", id="a script in the place of a command"),
    pytest.param(("explain", "."), "FILE[::KERNEL]", id="a folder explained"),
    pytest.param(("new", "pass", "My Pass"), "kir new pass my-pass", id="a name with a space"),
    pytest.param(("schema", "nothing"), "kir schema, which lists", id="a schema of no command"),
    pytest.param(("replay", "k.py"), "kir lineage k.py", id="a kernel in the place of its lineage"),
    pytest.param(("learn", "k.py"), "kir lineage FILE", id="a kernel to learn from"),
    pytest.param(("run", "skills/problems/gemm/naive.kir", "--set", "M"), "one of M, N, K", id="a size without a number"),
])
def test_what_cannot_be_meant_is_refused_before_any_work(words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text("raise SystemExit\n", encoding="utf-8")
    code, out, err = called(capsys, *words)
    assert code == 2 and said in err and not out


def test_kernels_of_one_name_are_told_apart_by_their_factories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text("import tilelang\nimport tilelang.language as T\n" + "".join(
        f"\n\ndef {name}(N):\n    @T.prim_func\n    def main(A: T.Tensor((N,), 'float32')):\n        with T.Kernel(1, threads=32):\n            A[0] = {k}\n"
        "    return main\n" for k, name in enumerate(("first", "second"))), encoding="utf-8")
    _, _, err = called(capsys, "parse", str(tmp_path / "k.py"))
    assert "name one: first, second" in err
    code, out, _ = called(capsys, "parse", f"{tmp_path / 'k.py'}::second")
    assert code == 0 and "A[0] = 1" in out


def test_shipped_things_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "lineages", "--json")
    names = [row["name"] for row in json.loads(out)["lineages"]]
    assert code == 0 and {"softmax_cuda", "gemm_sm90"} <= set(names)
    code, out, _ = called(capsys, "replay", "softmax_cuda")
    assert code == 0 and "11 of 11 transitions" in out
    code, out, _ = called(capsys, "problems", "--json")
    assert code == 0 and "softmax" in [row["name"] for row in json.loads(out)["problems"]]
    code, out, _ = called(capsys, "opt", "skills/problems/gemm/naive.kir", "-p", "gemm_sm90")
    assert code == 0 and "program gemm" in out


def test_a_pipeline_whose_holes_are_filled_is_tuned_in_its_space() -> None:
    from kir.learning.tune.space import find_space

    folder = Path(__file__).parents[2] / "skills" / "pipelines"
    found, meant = find_space(str(folder / "gemm_sm90.pipeline")), find_space("gemm_sm90")
    assert (found.name, found.text, found.parameters) == (meant.name, meant.text, meant.parameters)


def test_a_lineage_that_is_misspelt_has_a_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((("replay", "topk_row"), "KIR-S010"), (("report", "topk_row"), "KIR-S010"), (("explore", "topk_row", "--no-browser"), "KIR-S018")):
        code, _, err = called(capsys, *words)
        assert code == 2 and said in err and "did you mean 'topk_rows'" in err
    assert "kir lineages" in called(capsys, "replay", "nothing_like_it_at_all")[2]


def test_replay_says_which_gate_with_an_option_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "replay", "softmax_cuda", "--regate", "cpu", "--on", "skills/problems/gemm/naive.kir")
    assert code == 2 and "--regate" in err


@pytest.mark.parametrize("typed, word, found", [("kir li", 1, ["lineage", "lineages"]), ("kir run --ch", 2, ["--check"]),
                                                ("kir skills s", 2, ["search", "show"])])
def test_a_shell_completes_commands_and_options(typed: str, word: int, found: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", "from kir.faces.cli import main; main()"], capture_output=True, text=True, check=True,
                          env={**os.environ, "COMP_WORDS": typed, "COMP_CWORD": str(word), "_KIR_COMPLETE": "complete_bash"})
    assert done.stdout.split() == found


def test_what_makes_a_shell_complete_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "completion", "bash")
    assert code == 0 and "_KIR_COMPLETE=complete_bash" in out


NEW = {"pass": "try-pass", "frontend": "trylang", "backend": "trylist", "problem": "tryproblem"}


@pytest.mark.parametrize("kind", NEW)
def test_what_kir_new_writes_conforms(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "made"
    code, out, err = called(capsys, "new", kind, NEW[kind], "-o", str(folder))
    assert code == 0 and "next: " in out, err
    again, _, err = called(capsys, "new", kind, NEW[kind], "-o", str(folder))
    assert again == 2 and "is there already" in err
    module = NEW[kind].replace("-", "_")
    if kind != "problem":  # as pip would leave it: the package, and metadata with its entry point
        metadata = folder / f"kir_{module}-0.1.dist-info"
        metadata.mkdir()
        group = {"pass": "passes", "frontend": "frontends", "backend": "backends"}[kind]
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kir-{NEW[kind]}\nVersion: 0.1\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(f"[kir.{group}]\n{module} = kir_{module}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)], cwd=folder, text=True, check=False,
                          capture_output=True, env={**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": os.pathsep.join([str(folder), str(Path.cwd())])})
    assert done.returncode == 0, done.stdout


def test_a_name_that_is_none_or_taken_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Reverse", "tile"):
        code, _, err = called(capsys, "new", "pass", name, "-o", str(tmp_path / "x"))
        assert code == 2 and "KIR-C002" in err and not (tmp_path / "x").exists()


def test_a_broken_plugin_is_an_error_of_kir_plugins(tmp_path: Path) -> None:
    package, metadata = tmp_path / "kir_torn", tmp_path / "kir_torn-0.1.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "torn.py").write_text("import no_such_package_here\n", encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kir-torn\nVersion: 0.1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[kir.passes]\ntorn = kir_torn\n", encoding="utf-8")
    for path, code in ((str(tmp_path), 1), ("", 0)):
        done = subprocess.run([sys.executable, "-c", "from kir.faces.cli import main; main(['plugins'])"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([p for p in (path, str(Path.cwd())) if p])})
        assert done.returncode == code, done.stderr


def test_a_kept_binding_is_the_one_that_is_read(tmp_path: Path) -> None:
    from kir.surface.launches.remembered import remember, remembered

    file = laid(tmp_path, SOFTMAX)
    assert remembered(file, "k") is None
    path = remember(file, "k", Binding(kernel="k"))
    assert remembered(file, "k") == path == tmp_path / "scaled.k.bind.toml"


def test_long_steps_end_their_lines_between_words() -> None:
    from rich.console import Console

    from kir.faces.report.terminal import Chain, Stepped
    from kir.lineage.records.folder import opened

    step = 'reuse-operand{value="exp(x_ptr[pid_.." other=7}@main/sum'
    lines = Stepped(step).lines(30)
    assert "".join(x.strip() for x in lines).replace(" ", "") == step.replace(" ", "") and all(len(x) <= 30 for x in lines)
    assert lines[-1].strip().endswith("@main/sum") and Stepped("tile{axis=1}@i").lines(40) == ["tile{axis=1}@i"]
    assert all(len(x) <= 12 for x in Stepped("a" * 50 + "@b").lines(12))
    shown = {}
    for width in (80, 120):  # a narrow terminal has no column of intents, and hardly a step in pieces
        console = Console(width=width, file=io.StringIO())
        console.print(Chain(opened(Path("gemm_sm90")).read()))
        shown[width] = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert " intent " not in shown[80] and " intent " in shown[120] and len(shown[80].splitlines()) < 44


def test_the_paths_of_the_readme_are_there_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = called(capsys, "sites", "skills/problems/gemm/naive.kir", "--pass", "tile")
    assert code == 0 and "tile@main" in out, err
    code, out, err = called(capsys, "opt", "skills/problems/gemm/naive.kir", "-p", "skills/pipelines/gemm_sm90.pipeline")
    assert code == 0 and "program gemm" in out, err
    code, out, err = called(capsys, "parse", "skills/experts/softmax/softmax.cu", "--bind", "skills/bindings/cuda_softmax.toml")
    assert code == 0 and "program" in out, err
    code, _, err = called(capsys, "parse", "skills/no_such.kir")
    assert code == 2 and "there is no file skills/no_such.kir" in err


def test_a_file_of_several_kernels_is_checked_kernel_by_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "several.cu"
    file.write_text("""
__global__ void doubled(const float* x, float* y, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
__global__ void shifted(float* y, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = y[i] + y[0];
}
__global__ void launched_elsewhere(float* y) { y[threadIdx.x] = 0.0f; }
void run(const float* x, float* y, int n) {
    doubled<<<(n + 127) / 128, 128>>>(x, y, n);
    shifted<<<(n + 127) / 128, 128>>>(y, n);
}
""", encoding="utf-8")
    code, out, err = called(capsys, "check", str(file))
    assert code == 1 and "doubled proved for all sizes" in out and "shifted a counterexample" in out and "KIR-Y002" in err
    assert "KIR-S016" in err and "launched_elsewhere is generic" in err
    code, out, _ = called(capsys, "check", f"{file}::doubled", "--json")
    assert code == 0 and json.loads(out)["verdict"] == "proved"
    code, out, _ = called(capsys, "check", str(file), "--json")
    assert code == 1 and [each["verdict"] for each in json.loads(out)["programs"]] == ["proved", "refuted"]
