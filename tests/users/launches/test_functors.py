"""Objects that host code passes to kernels by value: structs of parameters, functors with members, lambdas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.printer import program_text
from kir.surface.reading import load_expert

STRUCT = """
struct Params { const float* a; const float* b; float* c; int n; float alpha; };
struct Relu { __device__ float operator()(float x) const { return x > 0.f ? x : 0.f; } };
template <int T, typename E> __global__ void f(Params p, E e) {
  int i = blockIdx.x * T + threadIdx.x;
  if (i < p.n) p.c[i] = e(p.alpha * p.a[i] + p.b[i]);
}
void run(const float* a, const float* b, float* c, int n, float alpha) {
  Params p{a, b, c, n, alpha};
  f<64><<<(n + 63) / 64, 64>>>(p, Relu());
}
"""
FUNCTOR = """
struct Axpb { const float* b; float alpha; __device__ float operator()(float x, int i) const { return fmaxf(x * alpha + b[i], 0.f); } };
template <typename E> __global__ void f(const float* a, float* c, int n, E e) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = e(a[i], i);
}
void run(const float* a, const float* b, float* c, int n, float alpha) {
  HOST
  f<<<(n + 63) / 64, 64>>>(a, c, n, EPI);
}
"""
BY_TEMPLATE = """
template <typename E> __global__ void f(int n, E e) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) e(i); }
template <typename E> void each(int n, E e) { f<<<(n + 63) / 64, 64>>>(n, e); }
void run(const float* a, const float* b, float* c, int n, float alpha) {
  each(n, [=] __device__(int i) { c[i] = fmaxf(a[i] * alpha + b[i], 0.f); });
}
"""
SWITCHED = """
#define SWITCH(COND, NAME, ...) [&] { if (COND) { constexpr static bool NAME = true; return __VA_ARGS__(); } \\
  else { constexpr static bool NAME = false; return __VA_ARGS__(); } }()
template <bool kRelu> __global__ void f(const float* a, const float* b, float* c, int n, float alpha) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) c[i] = kRelu ? fmaxf(a[i] * alpha + b[i], 0.f) : a[i];
}
void run(const float* a, const float* b, float* c, int n, float alpha, bool relu) {
  SWITCH(relu, kRelu, [&] { f<kRelu><<<(n + 63) / 64, 64>>>(a, b, c, n, alpha); });
}
"""
LAMBDA = "[=] __device__(float x, int i) {\n    return fmaxf(x * alpha + b[i], 0.f);\n  }"


@pytest.mark.parametrize("text", [
    STRUCT,
    FUNCTOR.replace("HOST", "Axpb e{b, alpha};").replace("EPI", "e"),
    FUNCTOR.replace("HOST", "").replace("EPI", "Axpb{b, alpha}"),
    FUNCTOR.replace("HOST", f"auto e = {LAMBDA};").replace("EPI", "e"),
    FUNCTOR.replace("HOST", "").replace("EPI", LAMBDA),
    FUNCTOR.replace("HOST", "const float* bias = b;").replace("EPI", LAMBDA.replace("[=]", "[alpha, bias]").replace("b[i]", "bias[i]")),
    BY_TEMPLATE, SWITCHED,
], ids=["a struct of all", "an object with a name", "an object without one", "a lambda with a name", "a lambda in its place", "named captures",
        "handed on by a template", "a launch in a lambda"])
def test_members_are_arguments_of_their_own(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.cu").write_text(text)
    program = load_expert(str(tmp_path / "f.cu")).program
    names = {p.name.rpartition("_")[2].replace("bias", "b"): p.name for p in program.params}
    assert {"a", "b", "c", "n", "alpha"} == set(names)
    assert all(f"{names[x]}: f32[n]" in program_text(program) for x in "abc")
    a, b = (np.random.default_rng(k).standard_normal(100).astype(np.float32) for k in (1, 2))
    found = run(program, {names["a"]: a, names["b"]: b, names["c"]: np.zeros(100, np.float32)}, {names["n"]: 100, names["alpha"]: 0.5})
    np.testing.assert_allclose(found.outputs[names["c"]], np.maximum(a * np.float32(0.5) + b, 0), rtol=1e-6)


@pytest.mark.parametrize(("host", "epi"), [
    ("auto scale = twice(alpha);", LAMBDA.replace("alpha", "scale")),        # whose type nothing here says
    ("", LAMBDA.replace("[=]", "[&]")),                                        # by reference to the host's memory
    ("", LAMBDA.replace("[=]", "[k = alpha]").replace("alpha +", "k +")),
])
def test_a_lambda_whose_captures_are_not_plain_is_refused(host: str, epi: str, tmp_path: Path) -> None:
    (tmp_path / "f.cu").write_text(FUNCTOR.replace("HOST", host).replace("EPI", epi))
    with pytest.raises(KirError):
        load_expert(str(tmp_path / "f.cu"))


def test_an_accessor_is_a_tensor_and_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "f.cu").write_text("""
template <typename T> __global__ void f(const torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x,
                                        torch::PackedTensorAccessor32<T, 2> y) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < x.size(1)) y[blockIdx.y][c] = x[blockIdx.y][c] * T(2);
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "twice", ([&] {
    f<scalar_t><<<dim3((x.size(1) + 63) / 64, x.size(0)), 64>>>(x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                                                y.packed_accessor32<scalar_t, 2>());
  }));
  return y;
}
""")
    text = program_text(load_expert(str(tmp_path / "f.cu")).program)
    assert "y_first[block_y, block_x * 64 + t] = x_first[block_y, block_x * 64 + t] * 2.0" in text and "x_first: f32[x_sizes__0, x_sizes__1]" in text
