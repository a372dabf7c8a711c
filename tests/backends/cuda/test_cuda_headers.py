"""What nvcc makes of a kernel behind the declarations that it names is what it makes behind all of the toolkit's headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends._process import run
from kir.backends.cuda import headers
from kir.backends.cuda.headers import Headers, parted
from kir.hardware import machine

HEAD = "#include <cmath>\n#include <cuda_fp16.h>\n"
ADDS = """extern "C" __global__ void add(const __half* X, float* Y, int n) {
  if (threadIdx.x < n) Y[threadIdx.x] = fmaxf(expf(__half2float(X[threadIdx.x] + X[0])), -INFINITY);
}
"""
CHOOSES = """template <typename T> __device__ T both(T a, T b) { return max(a, b) * static_cast<T>(2); }
extern "C" __global__ void choose(double* Y, const float* X, const __half2* Z, int n) {
  __shared__ float kept[32];
  kept[threadIdx.x % 32] = both(X[0], X[1]) + both(n, 3) + abs(X[2]);
  __syncthreads();
  Y[0] = both(Y[1], 1.5) + std::pow(X[3], 2) + __low2float(__hadd2(Z[0], Z[1]) * Z[2]) + atomicAdd(&kept[0], 1.0f) + pow(Y[2], n);
}
"""


def declared(text: str) -> list[frozenset[str] | None]:
    """The names of each declaration of a text."""
    return [part.declares for part in parted(text)]


@pytest.mark.parametrize(("text", "names"), [
    ("extern float expf(float x) noexcept (true);", {"expf"}),
    ("__attribute__((device)) __attribute__((always_inline)) inline int f(int a) { return g(a); }", {"f"}),
    ("template <typename T> struct same<T, T> : public yes { };", {"same"}),
    ("template <class A, class B> inline typename chosen<A, (A::n > 1)>::type put(A a, B b) { }", {"put"}),
    ("enum kind { first, second = 3 };", {"kind", "first", "second"}),
    ("typedef struct { int x; } pair_t;", {"pair_t"}),
    ("typedef int (*call)(void*);", {"call"}),
    ("using ::std::abs;", {"std", "abs"}),
    ("uint3 extern const threadIdx;", {"uint3", "threadIdx"}),
    ("some_attribute(3) float f(float);", {"some_attribute", "f"}),
    ("half::half(float x) : bits{0} { set(x); }", {"half"}),
])
def test_a_declaration_is_kept_with_each_name_that_it_may_declare(text: str, names: set[str]) -> None:
    (found,) = declared(text)
    assert found is not None and names <= found


def test_namespaces_stay_and_are_no_names_of_what_stands_in_them() -> None:
    parts = parted('namespace std { inline namespace v { int f(int); } extern "C" { int g; } }\nusing namespace std;\n#pragma once\nint h(std::t);')
    assert [part.text for part in parts if not part.named] == ["namespace std {", "inline namespace v {", "}", 'extern "C" {', "}", "}", "using namespace std;",
                                                              "#pragma once"]
    assert [set(part.declares or ()) for part in parts if part.named] == [{"f"}, {"g"}, {"h"}]


def test_overloads_operators_and_what_a_declaration_needs_are_kept_and_the_rest_is_not() -> None:
    parts = parted("struct half { int bits; };\nhalf operator+(half a, half b);\nstruct other { };\nother operator+(other a, other b);\n"
                   "float f(float);\ndouble f(double);\nhalf made(int);\nint unused(int);\n")
    shown = Headers(parts, {"MADE": "#define MADE made", "NOT": "#define NOT 1"}, (), {}).behind("int x = f(1) + MADE(2).bits;", 7)
    assert "double f" in shown and "float f" in shown and "half operator+" in shown and "#define MADE made" in shown and '# 7 "emitted.cu"' in shown
    assert "unused" not in shown and "other" not in shown and "NOT" not in shown


@pytest.mark.nvcc
@pytest.mark.parametrize("body", [ADDS, CHOOSES])
def test_the_ptx_is_that_of_nvcc(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.toolkit()
    assert found is not None
    monkeypatch.setattr(headers, "_LATER", 1)
    (tmp_path / "emitted.cu").write_text(f"// a kernel\n{HEAD}{body}")
    assert headers.compiled(found, "sm_90a", tmp_path)
    mine = (tmp_path / "emitted.ptx").read_text()
    run([found.nvcc.path, "-ptx", "-arch=sm_90a", *headers.OPTIONS, "emitted.cu", "-o", "emitted.ptx"], tmp_path, 60)
    assert (tmp_path / "emitted.ptx").read_text() == mine


@pytest.mark.nvcc
@pytest.mark.parametrize("text", [
    f"{HEAD}__global__ void wrong() {{ nowhere(); }}\n",
    f"{HEAD}__global__ void warned() {{ int unused; }}\n",
    f'#include "own.h"\n{HEAD}{ADDS}',
    f"#define HALF 1\n{HEAD}{ADDS}",
    ADDS,
])
def test_what_is_wrong_warned_of_or_included_otherwise_is_left_to_nvcc(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.toolkit()
    assert found is not None
    monkeypatch.setattr(headers, "_LATER", 1)
    (tmp_path / "emitted.cu").write_text(text)
    assert not headers.compiled(found, "sm_80", tmp_path)
