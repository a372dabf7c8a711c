"""Bad input on the command line: one located error with a way out, exit code 1, no traceback, and nothing written."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import called

BINDING = """kernel = "k"
grid = [1]
[metas]
threads_x = 128
[tensors.x]
shape = [128]
dtype = "f32"
"""
MMA = ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2}, {%3, %4, %5, %6}, {%7, %8}, {%0, %1, %2};",
       ': "+f"(x[0]), "+f"(x[1]), "+f"(x[2]) : "r"(1), "r"(1), "r"(1), "r"(1), "r"(1), "r"(1)')
DOUBLED = "".join(f"#define {a} {b} {b} {b} {b} {b} {b} {b} {b}\n" for a, b in zip("ABCDEFG", "BCDEFGH", strict=True))
BAD = {
    "broken C++": ("__global__ void k(float* x) {\n  if (x[0] > 0 { x[0] = 1.f; }\n}\n", "KIR-F210", 2, "is missing here"),
    "a macro without end": (DOUBLED + "#define H 1 + 1 +\n__global__ void k(float* x) { x[0] = A 0; }\n", "KIR-F204", 9, "expands without end"),
    "a recursive function template": ("template <int N> __device__ int f() { return f<N + 1>() + 1; }\n__global__ void k(float* x) { x[0] = f<0>(); }\n",
                                      "KIR-F207", 1, "needs:"),
    "a recursive class template": ("template <int N> struct S { static constexpr int v = S<N + 1>::v + 1; };\n"
                                   "__global__ void k(float* x) { x[0] = S<0>::v; }\n", "KIR-F207", 1, "needs:"),
    "PTX with wrong operands": (f'__global__ void k(float* x) {{\n  asm volatile("{MMA[0]}" {MMA[1]});\n}}\n', "KIR-F302", 2, "3 registers where"),
    "PTX with a size that is none": ('__global__ void k(float* x) {\n  __shared__ float s[4];\n  asm volatile("cp.async.cg.shared.global [%0], [%1], 12;" '
                                     ':: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(x));\n}\n', "KIR-F302", 3, "needs:"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_source_is_one_located_error_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text, id, line, words = BAD[name]
    file, binding, out = tmp_path / "bad.cu", tmp_path / "k.toml", tmp_path / "out"
    file.write_text(text)
    binding.write_text(BINDING)
    for arguments in (("run", str(file), "--bind", str(binding)), ("lineage", str(file), "--bind", str(binding), "-o", str(out))):
        code, _, err = called(capsys, *arguments)
        assert code == 1 and f"error[{id}]" in err and re.search(rf"bad\.cu:{line}:\d+", err) and words in err, err
        assert "Traceback" not in err and "internal error" not in err
    assert not out.exists()


@pytest.mark.parametrize(("kernel", "id", "words"), [
    ("k<4>", "KIR-F209", "no argument for the template parameter 'T'"), ("k<4, nosuch>", "KIR-F209", "'nosuch'"),
    ("kk<4, float>", "KIR-S018", "there is no kernel")])
def test_an_instantiation_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str], kernel: str, id: str, words: str) -> None:
    file = tmp_path / "bad.cu"
    file.write_text("template <int N, typename T> __global__ void k(T* x) { x[threadIdx.x] = N; }\n")
    code, _, err = called(capsys, "parse", f"{file}::{kernel}")
    assert code in (1, 2) and f"error[{id}]" in err and words in err


def test_a_target_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, binding, out = tmp_path / "k.cu", tmp_path / "k.toml", tmp_path / "out"
    file.write_text("__global__ void k(float* x) { x[threadIdx.x] = 1.f; }\n")
    binding.write_text(BINDING)
    code, _, err = called(capsys, "lineage", str(file), "--bind", str(binding), "--target", "sm_12", "-o", str(out))
    assert code == 2 and "error[KIR-C005]" in err and "did you mean 'sm_120'" in err and not out.exists()


@pytest.mark.nvcc
def test_a_target_that_lacks_an_instruction_is_refused_where_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, binding, out = tmp_path / "k.cu", tmp_path / "k.toml", tmp_path / "out"
    file.write_text('__global__ void k(float* x) {\n  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");\n  x[threadIdx.x] = 1.f;\n}\n')
    binding.write_text(BINDING)
    code, _, err = called(capsys, "lineage", str(file), "--bind", str(binding), "--target", "sm_80", "-o", str(out))
    assert code == 1 and "KIR-S015" in err and "error[KIR-V036] sm_80 has no setmaxnreg" in err and "k.cu:2:" in err
    assert not out.exists()
