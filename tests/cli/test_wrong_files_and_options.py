"""What somebody meets who knows none of this: files that are not what they should be, options that belong to others, plugins with faults."""
from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kir.base.diagnostic import error
from kir.base.registry import Broken
from kir.ir.parser import parse_program
from kir.lineage import candidates
from kir.lineage.engine import PassEngine
from kir.rewrite import Found, Pass
from kir.rewrite import Path as Place
from kir.rewrite.registry import pass_class, pass_names
from kir.rewrite.registry import passes as registered
from tests.command_line import called

ROOT = Path(__file__).parents[2]
GEMM = str(ROOT / "skills" / "problems" / "gemm" / "naive.kir")
KERNEL = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef one(X, n, B: tl.constexpr):\n    tl.store(X + tl.program_id(0), 1.0)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made current, with the files that go wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.kir").write_bytes(b"kir 1\n\xc3\x28")
    (tmp_path / "empty.kir").touch()
    (tmp_path / "empty.py").touch()
    (tmp_path / "empty.cu").touch()
    (tmp_path / "words.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.kir").write_text(Path(GEMM).read_text().replace(" C", " C2").replace("@store_C ", ""))
    (tmp_path / "one.py").write_text(KERNEL)
    (tmp_path / "two.py").write_text(KERNEL + KERNEL.partition("\n\n\n")[2].replace("one", "two"))
    (tmp_path / "noise.toml").write_bytes(b"\xff")
    (tmp_path / "words.toml").write_text('kernel = "one"\nhello\n')
    return tmp_path


@pytest.mark.parametrize(("line", "code", "said"), [
    ("parse nois.kir", 2, "there is no file nois.kir; did you mean 'noise.kir'?"),
    ("parse noise.kir", 2, "noise.kir is no text: its byte 6 is not UTF-8"),
    ("parse folder", 2, "folder is a folder"),
    ("parse empty.kir", 1, "it is empty"),
    ("parse empty.py", 2, "a function under @triton.jit with an effect, such as a store (triton)"),
    ("parse empty.cu", 2, "a __global__ function (cuda)"),
    ("parse words.txt", 2, "no frontend reads files that end in .txt"),
    ("parse two.py", 2, "several kernels; name one: one, two"), ("parse two.py", 2, "two.py::one"),
    ("parse one.py::oen", 2, "there is no kernel 'oen' in one.py; did you mean 'one'?"),
    ("parse one.py::zzz", 2, "it has one"),
    ("parse one.py --bind nois.toml", 2, "there is no binding nois.toml"),
    ("parse one.py --bind noise.toml", 2, "is no text: its byte 0"),
    ("parse one.py --bind folder", 2, "the binding folder is a folder"),
    ("parse one.py --bind words.toml", 1, "--> words.toml:2:6"),
    ("bind GEMM", 2, "is IR text, and this command takes a source file"),
    ("sites one.py", 1, "--ask, which asks for what is open; or -o one.toml"),
    ("opt GEMM -p nope.pipeline", 2, "there is no file nope.pipeline"),
    ("opt GEMM -p unroll --assume KIR-P999", 2, "no pass declares such a precondition"),
    ("opt GEMM -p unroll --guard x", 2, "--guard x: no pass declares"),
    ("opt GEMM --shape square", 2, "--shape needs --tuned"),
    ("opt GEMM --write", 2, "--write needs --in-place"),
    ("opt GEMM -p mma", 1, "kir sites"),
    ("sites GEMM --target h200", 2, "--target needs --package"),
    ("passes --cases x", 2, "--cases needs --check NAME"),
    ("passes mmaa", 2, "did you mean 'mma'"),
    ("explain mma", 2, "kir passes mma"),
    ("gate GEMM --problem gemm --shape cube", 2, "--shape needs --on gpu"),
    ("gate GEMM --problem gemm --no-panel", 2, "--no-panel needs --on gpu"),
    ("gate GEMM --problem gemm --surface nope", 2, "there is no backend 'nope'"),
    ("gate GEMM --problem gemm --emit folder --surface kuda", 2, "did you mean 'cuda'"),
    ("run GEMM --set Q=3", 2, "'gemm' has no size or scalar 'Q'"),
    ("run GEMM --set K=-1", 2, "a size is a whole number"),
    ("run GEMM --set K=3000000000", 2, "0 to 2147483647, as its dtype holds"),
    ("forecast GEMM GEMM --shape K=3000000000", 2, "at most 2147483647, as its dtype holds"),
    ("optimize GEMM --problem gemm --shape M=1,N=1,K=3000000000", 2, "K = 3000000000 is more than 2147483647"),
    ("run GEMM --set M=3 --problem gemm", 2, "problem 'gemm' gives 'M'"),
    ("run GEMM --problem softmax", 2, "reads 'A', which problem 'softmax' does not have"),
    ("gate GEMM --problem softmax", 2, "reads 'A', which problem 'softmax' does not have"),
    ("lineage GEMM --problem softmax", 2, "reads 'A', which problem 'softmax' does not have"),
    ("optimize GEMM --problem softmax", 2, "reads 'A', which problem 'softmax' does not have"),
    ("gate other.kir --problem gemm", 2, "writes 'C2', which problem 'gemm' does not ask for"),
    ("run GEMM --shape tail", 2, "--shape needs --problem"),
    ("run GEMM --problem gemm --shape tial", 2, "did you mean 'tall' or 'tail'?"),
    ("run GEMM --set M=300000000 --set N=300000000 --set K=1", 1, "KIR-C007"),
    ("bind one.py -o folder", 1, "KIR-C006] folder: is a directory"),
    ("corpus folder", 2, "'folder' holds no file"),
    ("corpus words.txt", 2, "a package, a folder or a file of Python or CUDA source"),
    ("skills apply", 2, "kir skills apply --help"),
])
def test_what_goes_wrong_is_said(folder: Path, capsys: pytest.CaptureFixture[str], line: str, code: int, said: str) -> None:
    found, out, err = called(capsys, *(GEMM if word == "GEMM" else word for word in line.split()))
    assert (found, out) == (code, "") and said in err and "Traceback" not in err and "KIR-C003" not in err
    assert not [each for each in folder.iterdir() if each.name.endswith(".partial")]


def test_a_full_disk_is_said_and_leaves_no_half_file(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", full)
    found, _, err = called(capsys, "bind", "one.py", "-o", "out.toml")
    assert found == 1 and "KIR-C006] a file cannot be written: no space left" in err and "KIR-C003" not in err
    assert not [each for each in folder.iterdir() if each.name.startswith((".", "out"))]


def test_a_mark_of_byte_order_is_no_part_of_a_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("marked.kir", Path(GEMM).read_text()), ("marked.py", KERNEL), ("marked.cu", "__global__ void f(float* x) { x[0] = 1.0f; }\r\n")):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert called(capsys, "parse", name)[0] == 0
    (folder / "latin.cu").write_bytes("// Größe\n__global__ void f(float* x) { x[0] = 1.0f; }\n".encode("latin-1"))
    assert called(capsys, "parse", "latin.cu")[0] == 0


def test_a_skeleton_is_refused_until_it_is_filled_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "to be filled in: grid, tensors.X.shape" in called(capsys, "bind", "one.py", "-o", "one.toml")[1]
    code, _, err = called(capsys, "parse", "one.py", "--bind", "one.toml")
    assert code == 1 and "KIR-F012" in err and "--> one.toml:7:9" in err and "tensors.X.shape" in err


def test_a_program_may_begin_with_comments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "noted.kir").write_text(f"# What this is.\n\n# More of it.\n{Path(GEMM).read_text()}")
    assert called(capsys, "parse", "noted.kir") == called(capsys, "parse", GEMM)


def test_an_instruction_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "trans(x, 1, 0)" in called(capsys, "explain", "trans")[1]
    (folder / "odd.kir").write_text(Path(GEMM).read_text().replace("cast(acc, f16)", "cast(atan2(acc), f16)"))
    code, _, err = called(capsys, "parse", "odd.kir")
    assert code == 1 and "'atan2' takes 2 operands, not 1" in err and "kir explain atan2" in err


def test_kernels_of_surfaces_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.py").write_text(KERNEL.replace("1.0", "2.0"))
    code, out, _ = called(capsys, "diff", "one.py", "other.py::one")
    assert code == 0 and "-   X[pid_0] = cast(1.0, $<X>)\n+   X[pid_0] = cast(2.0, $<X>)" in out
    for name, block in (("a.cu", 64), ("b.cu", 128)):  # as their host code launches them
        (folder / name).write_text(f"__global__ void f(float* y, int n) {{ int i = blockIdx.x * {block} + threadIdx.x; if (i < n) y[i] = 1.f; }}\n"
                                   f"void g(float* y, int n) {{ f<<<(n + {block - 1}) / {block}, {block}>>>(y, n); }}\n")
    code, out, _ = called(capsys, "diff", "a.cu", "b.cu")
    assert code == 0 and "- kernel f grid (block_x: ceildiv(n, 64)) threads 64\n+ kernel f grid (block_x: ceildiv(n, 128)) threads 128" in out


def test_brackets_in_tables_are_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "k[metas]").mkdir()
    (folder / "k[metas]" / "t.cu").write_text("template <typename T> __global__ void f(T* x) { x[0] = T(1); }\n")
    assert "[metas]" in called(capsys, "corpus", "k[metas]", "--restart", "-j", "1")[1]


def test_help_is_one_json_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    for line, code in (("parse --help", 0), ("skills", 2), ("skills apply --help", 0), ("carrier --help", 0)):
        found, out, _ = called(capsys, *line.split(), "--json")
        value = json.loads(out)
        assert found == code and value["schema"] == "kir.help/1" and value["usage"].startswith(f"Usage: kir {line.split()[0]}")
        assert "--json" in value["usage"]


def test_what_a_command_prints_leaves_one_json_object(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from kir.faces.cli import main; main()", "capture", "--json", "-o", "out", "--", sys.executable, "-c", "print('hi')"]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    value = json.loads(done.stdout)
    assert done.returncode == 1 and value["bindings"] == [] and "hi" in done.stderr
    assert [d["id"] for d in value["diagnostics"]] == ["KIR-C122"] and "no launch" in value["diagnostics"][0]["message"]


def test_a_pass_is_shown_at_length(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "passes", "unroll")
    assert code == 0 and "factor: int" in out and "KIR-P520  the unrolled iterations divide the loop's range  (validity, shape)" in out
    assert "pipeline: `unroll{factor=2}@main/loop`" in out
    code, out, _ = called(capsys, "explain", "KIR-P520")
    assert code == 0 and "the unrolled iterations divide the loop's range" in out and "--assume" in out and "kir passes unroll" in out


def test_a_pass_that_applies_nowhere_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "sites", GEMM, "--pass", "mma")[1].startswith("mma applies nowhere\n  no kernel or statement")
    assert "swizzle-shared applies nowhere\n" in called(capsys, "sites", GEMM, "--pass", "swizzle-shared")[1]


class Faulty(Pass):
    """A pass whose match breaks."""

    name = "faulty"
    intent = "faulty"
    claim = "It breaks."

    def match(self, program: object, path: Place, node: object) -> Found:
        raise AttributeError("no such thing")

    match_inverse = match


def test_passes_that_cannot_be_used_are_no_silent_gap_in_the_sites(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = pass_class

    def unusable(name: str) -> type[Pass]:
        if name == "tile":
            raise error("KIR-X003", "'tile' of another cannot be used: RuntimeError: boom")
        return known(name)
    monkeypatch.setattr("kir.faces.api.places.pass_class", unusable)
    clash = Broken("unroll", "another", "its name clashes with kir.passes.loops.unroll")
    monkeypatch.setattr("kir.base.registry.Registry.broken", lambda registry: (clash,))
    code, out, err = called(capsys, "sites", GEMM)
    assert code == 0 and "tile@main" not in out and "stage-panels@main" in out
    assert "warning[KIR-X003] 'tile' of another cannot be used" in err and "'unroll' of another cannot be used: its name clashes" in err


def test_what_a_refusal_says_to_try_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths with spaces and letters of any alphabet are quoted."""
    file = tmp_path / "nä ive.kir"
    file.write_text(Path(GEMM).read_text())
    code, _, err = called(capsys, "opt", str(file), "-p", "tile{axis=9}")
    assert code == 1 and f"= try:     kir sites '{file}' --pass tile" in err


def test_a_place_from_which_nothing_leads_back_is_not_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of 64 in tiles of 128 would be undone as rows of 128: the place is none, and asked for it says why."""
    file = tmp_path / "rows.kir"
    file.write_text("kir 1\nprogram p\n  size M: i32\n  in X: f32[M, 64]\n  out Y: f32[M, 64]\nkernel main grid (r: M) threads 1\n"
                    "  @each for j in 0..64\n    Y[r, j] = X[r, j] * 2.0\n")
    assert "tile-loop@main/each" not in called(capsys, "sites", str(file))[1]
    code, out, _ = called(capsys, "sites", str(file), "--pass", "tile-loop")
    assert code == 0 and out.startswith("tile-loop applies nowhere\n  tile-loop@main/each  the inverse of tile-loop is not exact here")
    out = called(capsys, "sites", str(file), "--pass", "tile-loop", "--near")[1]
    assert "tile-loop@main/each  does not apply: the inverse" in out


def test_a_pass_that_breaks_disturbs_no_other(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names, known = pass_names(), pass_class
    monkeypatch.setattr("kir.rewrite.registry.pass_names", lambda: (*names, "faulty"))
    monkeypatch.setattr("kir.faces.api.places.pass_class", lambda name: Faulty if name == "faulty" else known(name))
    monkeypatch.setattr(candidates, "passes", lambda: iter([*registered(), Faulty]))
    code, out, err = called(capsys, "sites", GEMM)
    assert code == 0 and "tile@main  applies" in out and "warning[KIR-X006] 'faulty' failed here: AttributeError: no such thing" in err
    assert 'raise AttributeError("no such thing")' in err
    engine = PassEngine()
    assert list(engine.candidates(parse_program(Path(GEMM).read_text())))
    assert "failed in a walk, which went on without it" in engine.failures["faulty"].message
