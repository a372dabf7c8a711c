"""Loops that count in other ways than `for` does: what is read as a loop with a count, and what it computes."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.interp import run
from kir.ir.printer import program_text
from tests.frontends.cuda.reading import read
from tests.frontends.reading import opaque_statements

BINDING = ('kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 64\nshared_bytes = 1024\n[tensors]\nx = {shape = [128], dtype = "f32"}\n'
           'y = {shape = [64], dtype = "f32", role = "out"}\n')
HEAD = "__global__ void k(const float* x, float* y) {\n  const int t = threadIdx.x;\n"
X = np.random.default_rng(3).integers(-9, 9, 128).astype(np.float32)


def result(tmp_path: Path, source: str) -> np.ndarray:
    file = tmp_path / "k.cu"
    file.write_text(source)
    program = read(file, "k", BINDING)
    assert not opaque_statements(program)
    found = run(program, {"x": X}, {}, mode="check")
    assert found.errors == ()
    return np.asarray(found.outputs["y"])


MACRO = """#define LOOP(i, n) \\
  long _at = (long)blockIdx.x * blockDim.x + threadIdx.x; \\
  for (long i = _at; _at < (n); _at += blockDim.x * gridDim.x, i = _at)
"""


@pytest.mark.parametrize(("step", "counts"), [("blockDim.x * gridDim.x", True), ("(int)x[0]", False)])
def test_a_while_that_steps_by_all_threads_counts(step: str, counts: bool, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(const float* x, float* y) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  float s = 0.f;\n"
                                   f"  while (i < 64) {{ s += x[i]; i += {step}; }}\n  y[threadIdx.x] = s;\n}}\n")
    assert ("while" not in program_text(read(tmp_path / "k.cu", "k", BINDING))) == counts


@pytest.mark.parametrize(("loop", "counts"), [
    ("int i = 32; while (i != 0) BODY i /= 2; }", True),
    ("unsigned i = 32; while (i >= 1) BODY i >>= 1; }", True),
    ("for (int k = 2; k <= 64; k *= 2) for (int i = k / 2; i > 0; i >>= 1) BODY }", True),
    ("for (unsigned k = 2; k <= 64; k *= 2) for (unsigned i = k / 2; i > 0; i /= 2) BODY }", True),
    ("int i = 24; while (i != 0) BODY i /= 2; }", False),             # no power of two
    ("int i = 32; while (i != 1) BODY i /= 2; }", False),
    ("int i = 32; while (i != 0) BODY i /= 2; } s[t] += i;", False),  # what is left is looked at
    ("int i = 32; while (i > 0) BODY if (t == 70) i = 1; i /= 2; }", False),
])
def test_a_while_that_halves_counts(loop: str, counts: bool, tmp_path: Path) -> None:
    body = "{ if (t < i) s[t] += s[t + i]; __syncthreads();"
    source = HEAD + "  __shared__ float s[64];\n  s[t] = x[t];\n  __syncthreads();\n  " + loop.replace("BODY", body) + "\n  y[t] = s[t];\n}\n"
    (tmp_path / "k.cu").write_text(source)
    assert ("while" not in program_text(read(tmp_path / "k.cu", "k", BINDING))) == counts
    want = X[:64].copy()
    for first in [1, 2, 4, 8, 16, 32] if "k *= 2" in loop else [24] if "24" in loop else [32]:
        while first:
            want[:first] += want[first:2 * first]
            first //= 2
    if "!= 1" not in loop:
        np.testing.assert_array_equal(result(tmp_path, source), want)


@pytest.mark.parametrize(("body", "counts"), [
    ("y[i] = x[i] * 2.f;", True),
    ("if (x[i] < 0.f) continue; y[i] = x[i];", False),
    ("y[i] = x[i]; if (x[i] > 100.f) _at += 64;", False),
    ("y[i] = x[i] * 2.f; } y[0] = (float)_at; {", False),
])
def test_a_loop_that_counts_in_a_variable_of_its_own(body: str, counts: bool, tmp_path: Path) -> None:
    """As the loop macros of packages are written. One whose counter is moved, looked at afterwards, or not moved on by a `continue` stays a `while`."""
    source = MACRO + "__global__ void k(const float* x, float* y) {\n  LOOP(i, 64) { " + body + " }\n}\n"
    file = tmp_path / "k.cu"
    file.write_text(source)
    text = program_text(read(file, "k", BINDING))
    assert ("while" not in text) == counts
    if counts:
        np.testing.assert_array_equal(result(tmp_path, source), X[:64] * 2)


@pytest.mark.parametrize(("loop", "end"), [
    ("int c = 0; while (c < 8 && c + 4 * t < 250) { s += x[(c + t) % 128]; c++; }", "min(t * -4 + 250, 8)"),
    ("int c = 0; while (c < 8 && s < 100.f) { s += x[(c + t) % 128]; c++; }", "while"),
    ("int c = 0; while (c < 8 && c + 4 * c < 250) { s += x[(c + t) % 128]; c++; }", "while"),
])
def test_a_while_with_several_ends_counts_to_the_first(loop: str, end: str, tmp_path: Path) -> None:
    source = HEAD + f"  float s = 0.f;\n  {loop}\n  y[t] = s;\n}}\n"
    (tmp_path / "k.cu").write_text(source)
    text = program_text(read(tmp_path / "k.cu", "k", BINDING))
    assert end in text and ("while" in text) == (end == "while")
    if end != "while":
        np.testing.assert_array_equal(result(tmp_path, source), [sum(X[(c + t) % 128] for c in range(min(8, 250 - 4 * t))) for t in range(64)])


def test_a_sum_that_begins_again_is_a_variable_of_its_own_unless_it_folds_what_threads_share(tmp_path: Path) -> None:
    folds = "for (int i = t; i < 128; i += 64) s += {};"
    again = HEAD + f"  float s = 0.f;\n  {folds.format('x[i]')}\n  float m = s / 2;\n  s = 0.f;\n  {folds.format('x[i] * x[i] - m')}\n  y[t] = s * m;\n}}\n"
    (tmp_path / "k.cu").write_text(again)
    text = program_text(read(tmp_path / "k.cu", "k", BINDING))
    assert "register s: f32 = 0.0" in text and "register s_1: f32 = 0.0" in text
    m = (X[:64] + X[64:]) / 2
    np.testing.assert_allclose(result(tmp_path, again), m * (X[:64] ** 2 + X[64:] ** 2 - 2 * m), rtol=1e-6)
    shared = HEAD + ("  __shared__ float all[64];\n  float s = 0.f;\n  " + folds.format("x[i]") + "\n  all[t] = s;\n  __syncthreads();\n  s = 0.f;\n"
                     "  for (int w = 0; w < 64; ++w) s += all[w];\n  y[t] = s;\n}\n")
    (tmp_path / "k.cu").write_text(shared)
    assert "register s_1" not in program_text(read(tmp_path / "k.cu", "k", BINDING))


def test_a_place_in_a_tile_with_a_border_is_written_out(tmp_path: Path) -> None:
    source = HEAD + ("  __shared__ float s[66];\n  int at = t % 32 + 1;\n  s[at + 32 * (t / 32)] = x[t];\n  if (t == 0) { s[0] = 0.f; s[65] = 0.f; }\n"
                     "  __syncthreads();\n  y[t] = s[at + 32 * (t / 32) - 1] + s[at + 32 * (t / 32)];\n}\n")
    (tmp_path / "k.cu").write_text(source)
    text = program_text(read(tmp_path / "k.cu", "k", BINDING))
    assert "let at" not in text
    np.testing.assert_array_equal(result(tmp_path, source), np.concatenate([[0], X[:63]]) + X[:64])
