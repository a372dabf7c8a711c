"""`kir check`, as a user calls it."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from kir.learning.corpus.proved import Job, apart, proved_all, table
from tests.command_line import called
from tests.kir.gate.proved.programs import HEAD, RIGHT, WRONG


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.kir"
    path.write_text(HEAD + text)
    return path


def _wrong(name: str) -> str:
    base, old, new, _ = WRONG[name]
    return RIGHT[base].replace(old, new, 1)


def test_a_proof_and_a_counterexample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "check", str(_file(tmp_path, "right", RIGHT["reversed in shared memory"])))
    assert code == 0 and "proved for all sizes" in out and not err
    code, out, err = called(capsys, "check", str(_file(tmp_path, "wrong", _wrong("a barrier dropped"))))
    assert code == 1 and "a counterexample" in out
    assert "KIR-Y002" in err and "wrong.kir:9" in err and "races with" in err


def test_an_index_beyond_32_bits_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "check", str(_file(tmp_path, "flat", _wrong("an index beyond 32 bits"))))
    assert code == 0 and "at which indices fit 32 bits" in out and "warning[KIR-Y002] main: not at all sizes: " in err


def test_json_names_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "check", str(_file(tmp_path, "wrong", _wrong("no mask on the store"))), "--json")
    data = json.loads(out)
    assert code == 1 and data["verdict"] == "refuted" and data["kinds"]["bounds"] == "refuted" and data["kinds"]["barrier"] == "proved"
    found = next(f for f in data["findings"] if f["kind"] == "bounds")
    assert found["sizes"]["N"] % 64 and "outside its shape" in found["shown"]


AHEAD = """__global__ void ahead(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i + 1] - x[i];
}
torch::Tensor launch(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    ahead<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
MISSPELT = """import tilelang
import tilelang.language as T


@tilelang.jit
def twice(N, block=256):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as b:
            x = T.alloc_shared((block,), "float32")
            T.copy(X[b * block], x)
            for i in T.Parralel(block):
                x[i] = x[i] * 2.0
            T.copy(x, Y[b * block])
    return main


k = twice(1 << 20)
"""


def test_one_mistake_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "ahead.cu").write_text(AHEAD, encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == 1 and err.count("error[KIR-Y002]") == 1 and "read of x[1] is outside its shape [1]" in err
    assert "ahead.cu:3:" in err and "undefined when the program ends" not in err


def test_what_is_not_followed_is_told_once_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "misspelt.py").write_text(MISSPELT, encoding="utf-8")
    code, out, _ = called(capsys, "check", str(file))
    said = "".join(out.split())  # however long the folder's name is, and wherever the lines of a table are broken
    assert code == 0 and said.count("notdecided:") == 1 and "misspelt.py:12:13(main/opaque)" in said
    assert "didyoumean'Parallel'" in said and "(8kindsofobligations)" in said


def test_a_kernel_that_nothing_launches_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "alone.cu").write_text(AHEAD.partition("torch::Tensor launch")[0], encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == 1 and "no launch of it was found in its file or folder" in err and "--ask" in err


@pytest.mark.parametrize("words", [[], ["--package", "x"], ["--package", "x", "-o", "out", "file.kir"], ["file.kir", "-o", "out"]])
def test_options_that_do_not_belong_together(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "check", *words)
    assert code == 2 and "KIR-C002" in err


def test_many_kernels_the_worst_first_and_each_once(tmp_path: Path) -> None:
    jobs = [Job(str(_file(tmp_path, "right", RIGHT["leader"])), None, "right"), Job(str(_file(tmp_path, "wrong", _wrong("rows overlap"))), None, "wrong"),
            Job(str(_file(tmp_path, "none", "kernel main")), None, "none")]
    rows = proved_all(jobs, tmp_path / "out")
    assert [(r["kernel"], r["verdict"]) for r in rows] == [("wrong", "refuted"), ("right", "proved"), ("none", "refused")]
    kept = (tmp_path / "out" / "kernels.jsonl").read_text()
    assert proved_all(jobs, tmp_path / "out") == rows
    assert (tmp_path / "out" / "kernels.jsonl").read_text() == kept
    (tmp_path / "out" / "kernels.jsonl").write_text(kept[:-20])
    assert [r["verdict"] for r in proved_all(jobs, tmp_path / "out")] == ["refuted", "proved", "refused"]
    text = "\n".join(table(rows))
    assert "| 3 | 2 | 1 | 1 | 0 | 100 % of those read |" in text and "Not read: 1 for KIR-" in text


def test_a_kernel_may_take_so_much_processor_time_whatever_else_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_end(job: Job, runs: int) -> None:
        while True:
            pass
    monkeypatch.setattr("kir.learning.corpus.proved.one", without_end)
    row = apart(Job("any.kir"), 0.5, 0)
    assert row["verdict"] == "undecided" and row["why"] == "it took more than 0.5 seconds" and 0.5 <= row["seconds"] < 3
