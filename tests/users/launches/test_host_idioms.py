"""What host code says of a launch: in Python in the idioms of large packages, in C++ by a main program."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.ir.binding import Binding, fact_expressions
from kir.ir.build import const
from kir.ir.nodes import Var
from kir.ir.types import I32
from kir.learning.optimize.inputs import called_with
from kir.surface.launches.reach import small_sizes
from kir.surface.launches.values import decided, none_false
from kir.surface.reading import launched
from tests.command_line import called
from tests.users.test_found_launches import called_binding

HEAD = """import math
import torch
import triton
import triton.language as tl


@triton.jit
def copied(x, y, T, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    t, d = tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, BD)
    m = (t < T)[:, None] & (d < D)[None, :]
    at = t[:, None] * D + d[None, :]
    tl.store(y + at, tl.load(x + at, mask=m), mask=m)


"""
STARRED = """def run(x, beta):
    B, T, D, E = *x.shape, beta.shape[-1]
    y = torch.empty_like(x)
    copied[(triton.cdiv(B * T, 16),)](x, y, B * T, D, 16, triton.next_power_of_2(D))
    return y
"""
ONE_BY_ONE = """def run(x, y, lengths: torch.Tensor | None, scale: torch.Tensor | None = None):
    T, D = x.shape
    if scale is None:
        raise ValueError("a scale is needed")
    n = triton.cdiv(T, 16) if lengths is None else len(lengths)
    copied[(n,)](x, y, T, D, 16, 64)
"""
ROOT = """def run(x, y):
    N = x.numel()
    D = triton.next_power_of_2(math.ceil(math.sqrt(N)))
    T = triton.cdiv(N, D)
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, D)
"""
EXCHANGED = """def run(q, k):
    q = q.transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    B, S, H, D = q.shape
    copied[(triton.cdiv(S, 16),)](q, k, k.stride(1), D, 16, 64)
"""
RANKED = """def run(x, y):
    if x.ndim == 3:
        x = x.squeeze(0)
    T, D = x.shape
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
"""
ONLY_USUAL = """def run(x, y, dim=None):
    T, D = x.shape
    if dim is None:
        copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
    else:
        raise NotImplementedError
"""
PUT_AWAY = """def run(x, y):
    assert x.dim() == 3 and y.dim() == 3
    _, T, D = x.shape
    _, _, E = y.shape
    copied[(triton.cdiv(T, 16),)](x, y, T, y.stride(0), 16, 64)
"""
TURNS = """def run(x, y):
    T, D = x.shape
    copied[(triton.cdiv(T, 16),)](x, y, T, y.shape[1], 16, 64)


def test_run():
    for shape, block in (((40, 50), 16), ((3, 7), 32)):
        run(torch.randn(*shape, device="cuda"), torch.randn(*shape, device="cuda"))
"""
SAVED = """class Copied(torch.autograd.Function):
    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        T, D = x.shape
        copied[(triton.cdiv(T, ctx.rows),)](x, y, T, D, 16, 64)
"""
BROUGHT = """class Copy(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x) if self.out is None else self.out
        T, D = x.shape
        copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
"""
FIRST_AXES = """def run(x):
    b, t = x.shape[:2]
    y = torch.empty_like(x)
    copied[(triton.cdiv(b * t, 16),)](x, y, b * t, x.numel() // (b * t), 16, 64)
"""
# an optimizer: tensors and numbers out of lists and dictionaries that nobody shows
HELD = """class Copying:
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "y" not in state:
                    state["y"] = torch.zeros_like(p.data, dtype=torch.float32)
                copied[lambda meta: (triton.cdiv(p.numel(), meta["BT"]),)](p.grad, state["y"], p.numel(), 1, BT=16, BD=group["width"])
"""


def _bound(folder: Path, host: str) -> Binding:
    (folder / "k.py").write_text(HEAD + host, encoding="utf-8")
    return called_binding(folder / "k.py")


@pytest.mark.parametrize(("host", "grid", "scalar", "shapes"), [
    pytest.param(STARRED, "ceildiv(T, 16)", "T", {"x": ["T", 64]}, id="a shape with a star among others, of which the kernel sees rows"),
    pytest.param(ONE_BY_ONE, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="one argument is None, another is not"),
    pytest.param(RANKED, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="a branch for tensors of another rank"),
    pytest.param(ONLY_USUAL, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="a launch that only the usual call comes to"),
    pytest.param(PUT_AWAY, "ceildiv(T, 16)", "T", {"x": ["x_0", "T", "D_2"], "y": ["T", "y_1", "E"]}, id="what is put away under one name is not one size"),
    pytest.param(TURNS, "ceildiv(T, 16)", "T", {"x": ["T", 50], "y": ["T", 50]}, id="one turn of a loop makes tensors of one shape"),
    pytest.param(SAVED, "ceildiv(T, rows)", "T", {"x": ["T", 1024]}, id="tensors and numbers that another call has saved"),
    pytest.param(BROUGHT, "ceildiv(T, 16)", "T", {"x": ["T", 1024], "y": ["T", 1024]}, id="a result that a caller may bring along"),
    pytest.param(HELD, "ceildiv(T, 16)", "T", {"x": ["T"], "y": ["T"]}, id="what an optimizer keeps of its parameters"),
    pytest.param(FIRST_AXES, "ceildiv(T, 16)", "T", {"x": ["T"]}, id="the first axes of a shape whose rank is open, of which the kernel sees the product"),
])
def test_what_the_host_says(host: str, grid: str, scalar: str, shapes: dict[str, list[str | int]], tmp_path: Path) -> None:
    binding = _bound(tmp_path, host)
    assert binding.grid == [grid] and binding.scalars["T"] == scalar
    assert {k: binding.tensors[k].shape for k in shapes} == shapes


@pytest.mark.parametrize(("size", "block", "told"), [
    ("x.element_size()", 1024, True), ("x.dtype.itemsize", 1024, True), ("x.itemsize", 1024, True), ("torch.empty_like(y).element_size()", 2048, False),
    ("y.dtype.itemsize", 2048, False)])
def test_the_bytes_of_an_element_bound_a_block(size: str, block: int, told: bool, tmp_path: Path) -> None:
    """As the layer norm of Triton's tutorials has it: at most so many bytes a block."""
    (file := tmp_path / "k.py").write_text(HEAD + f"""def run(x):
    T, D = x.reshape(-1, x.shape[-1]).shape
    y = torch.empty(T, D, dtype=torch.float16)
    copied[(T,)](x, y, T, D, 1, min(4096 // {size}, triton.next_power_of_2(4096)))
""", encoding="utf-8")
    binding, said = launched(str(file))
    assert binding is not None and binding.metas["BD"] == block
    assert any("has 4 bytes" in note for note in said[0].notes) == told


def test_a_number_that_only_a_default_gives_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "k.py").write_text(HEAD + """def run(x, y, first=0):
    copied[(x.shape[0],)](x, y, first, 64, 16, 64)
""", encoding="utf-8")
    binding, said = launched(str(file))
    assert binding is not None and binding.scalars["T"] == 0 and any("first is 0, as it is by default" in note for note in said[0].notes)


def test_a_root_is_a_number_of_its_own_of_which_one_is_taken(tmp_path: Path) -> None:
    binding = _bound(tmp_path, ROOT)
    assert binding.metas["D"] == 32 and binding.grid == ["ceildiv(ceildiv(N, 32), 16)"]


def test_tensors_with_two_axes_exchanged_keep_them_all(tmp_path: Path) -> None:
    """Of `q` the axes are named, `k` has as many, and as long ones where nothing is asked of it; its rows are as far apart as its heads need."""
    binding = _bound(tmp_path, EXCHANGED)
    assert len(binding.tensors["x"].shape) == len(binding.tensors["y"].shape) == 4
    assert binding.scalars["T"] == "H * 64" and binding.tensors["x"].strides is None


def test_a_copy_is_a_tensor_of_its_own(tmp_path: Path) -> None:
    """Beside what is the same memory by another name."""
    text = HEAD + "def run(x):\n    T, D = x.shape\n    copied[(triton.cdiv(T, 16),)](x, {}, T, D, 16, 64)\n"
    for out, same in (("x.clone()", False), ("torch.clone(x)", False), ("x.clamp(0)", False), ("x.detach()", True), ("x", True)):
        (tmp_path / "k.py").write_text(text.format(out), encoding="utf-8")
        binding, _ = launched(str(tmp_path / "k.py"))
        assert binding is not None and bool(binding.joined) is same, out


ROUTED = """import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def routed(count, experts):
    n = T.dynamic("n")

    @T.prim_func
    def weights(x: T.Tensor((n, count), "float32"), y: T.Tensor((n, experts), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
            t = T.get_thread_binding()
            kept = T.alloc_local((count,), "float32")
            for i in T.unroll(count):
                kept[i] = x[b * 128 + t, i]
            for e in T.serial(experts):
                y[b * 128 + t, e] = kept[0]
    return weights


def run(x, experts):
    y = torch.empty(x.shape[0], experts)
    routed(x.shape[1], experts)(x, y)
    return y
"""


def test_what_each_thread_holds_is_taken_for_few(tmp_path: Path) -> None:
    (file := tmp_path / "routed.py").write_text(ROUTED, encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and binding.metas == {"count": 8, "experts": 64} and binding.sizes == ["n"]
    assert "assumed, as nothing says it: count is 8" in str(told[0].notes)


@pytest.mark.parametrize(("loop", "taken"), [("tl.static_range(K)", 8), ("range(K)", 1024), ("tl.static_range(0, K, 16)", 1024)])
def test_what_is_unrolled_step_by_step_is_taken_for_few(loop: str, taken: int, tmp_path: Path) -> None:
    (file := tmp_path / "summed.py").write_text(f"""import torch
import triton
import triton.language as tl


@triton.jit
def summed(x, y, n, K: tl.constexpr, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for k in {loop}:
        total += tl.load(x + rows * K + k, mask=rows < n, other=0.0)
    tl.store(y + rows, total, mask=rows < n)


def run(x):
    y = torch.empty(x.shape[0])
    summed[(triton.cdiv(x.shape[0], 64),)](x, y, x.shape[0], x.shape[1], 64)
    return y
""", encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None and binding.metas == {"K": taken, "B": 64}


POOLED = """#include <cuda_runtime.h>
extern __shared__ float held[];
__global__ void block_sum(const float* x, float* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) held[t] += held[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, held[0]);
}
int main(int argc, char** argv) {
    int n = atoi(argv[1]), threads = 128;
    float *x, *out;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    block_sum<<<(n + threads - 1) / threads, threads, threads * sizeof(float)>>>(x, out, n);
}
"""


def test_a_number_of_the_command_line_is_a_size_and_a_pool_may_stand_outside_of_the_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "pooled.cu").write_text(POOLED, encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and binding.grid == ["ceildiv(n, 128)"] and not told[0].notes
    code, out, _ = called(capsys, "check", str(file))
    assert code == 0 and "proved for all sizes" in out
    file.write_text(POOLED.replace("        __syncthreads();\n", ""), encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == 1 and "KIR-Y002" in err and "races with" in err
    file.write_text(POOLED.replace("threads * sizeof(float)>>>", "64>>>"), encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == 1 and "outside its shape [16]" in err


def test_the_length_of_a_container_is_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "squares.cu").write_text("""#include <vector>
__shared__ float last;
__global__ void squares(const float* x, float* y, size_t n) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i] * x[i];
}
int main() {
    std::vector<float> h(1000000, 1.0f);
    size_t n = h.size();
    float *x, *y;
    cudaMalloc((void**)&x, h.size() * sizeof(float));
    cudaMalloc((void**)&y, n * sizeof(float));
    squares<<<120, 256>>>(x, y, n);
}
""", encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and binding.sizes == ["n"] and binding.tensors["x"].shape == binding.tensors["y"].shape == ["n"] and not told[0].notes
    assert called(capsys, "check", str(file))[0] == 0
    file.write_text(POOLED.replace("extern __shared__ float held[];", "__shared__ float held[128];"), encoding="utf-8")
    assert called(capsys, "check", str(file))[0] == 0, "an array of fixed size may stand there too"


@pytest.mark.parametrize(("condition", "fact"), [("flag > 0", ""), ("(flag & 2) != 0", ""), ("flag == 1 && n > 3", ""), ("i < flag", "flag >= 1"),
                                                 ("n % flag == 0", "flag >= 1")])
def test_a_number_that_only_chooses_may_be_any(condition: str, fact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.cu"
    file.write_text(f"""__global__ void turned(const float* x, float* y, int n, int flag) {{
  __shared__ float s[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0.f;
  if ({condition}) __syncthreads();
  if (i < n) y[i] = s[127 - threadIdx.x];
}}
void run(const float* x, float* y, int n, int flag) {{ turned<<<(n + 127) / 128, 128>>>(x, y, n, flag); }}
""", encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None and [f for f in binding.facts if "flag" in f] == [fact] * bool(fact)
    if condition == "flag > 0":
        code, _, told = called(capsys, "check", str(file))
        assert code == 1 and "flag = 0" in told


def test_small_sizes_keep_what_is_said_of_one_alone() -> None:
    facts = ["n % 64 == 0", "n % 128 == 64", "m % 128 == 64", "m % 4 == 0", "h >= 1"]
    found = small_sizes(Binding(kernel="k", sizes=["n", "m", "h"], facts=facts, grid=["n // 64", "m // 64"]))
    assert found is not None and found["n"] % 128 == found["m"] % 128 == 64 and found["n"] != found["m"] and max(found.values()) < 400


def test_conditions_asked_together_are_what_each_decides() -> None:
    names = {x: Var(x, I32) for x in ("a", "b")}
    texts = ["a % b == 0", "ceildiv(a, b) >= 2", "min(a, 7) <= max(b, 3)", "a // (b - 2) < 5", "a - b * 2 != -3", "a > b"]
    facts = [*fact_expressions(texts, names), const(True)]
    for a in range(-4, 9):
        for b in range(-2, 5):
            values = {"a": a, "b": b}
            for some in (facts, *([f] for f in facts)):
                assert none_false(some, ("a", "b"))(values) == all(decided(f, values) is not False for f in some), (some, values)


GONE = """import triton, triton.language as tl
from elsewhere import tile_for

@triton.jit
def k(x, y, n, B: tl.constexpr, HAS_SCALE: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 2 if HAS_SCALE else v, mask=i < n)

def go(x, y):
    k[(tile_for(x),)](x, y, x.numel(), tile_for(x), tile_for(y))
"""


def test_every_question_has_a_proposal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(GONE, encoding="utf-8")
    code, _, err = called(capsys, "bind", str(tmp_path / "k.py"), "--ask", "--yes", "-o", str(tmp_path / "k.toml"))
    text = (tmp_path / "k.toml").read_text(encoding="utf-8")
    assert code == 0 and "B = 64" in text and "HAS_SCALE = false" in text and 'grid = ["ceildiv(n, B)"]' in text and '"?"' not in text, err


ELSEWHERE = """
__global__ void scaled(const float * x, float * y, const int k) {
    const int i = blockDim.x*blockIdx.x + threadIdx.x;
    if (i >= k) { return; }
    y[i] = 2.0f * x[i];
}
static void go(const float * x, float * y, const int k, cudaStream_t stream) {
    const launch_params params = launch_params(blocks_of(k), PER_BLOCK, 0, stream);
    launch_with(scaled, params, x, y, k);
}
"""


def test_the_proposed_grid_has_a_thread_for_each_thing_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cu").write_text(ELSEWHERE, encoding="utf-8")
    code, _, err = called(capsys, "bind", str(tmp_path / "k.cu"), "--ask", "--yes", "-o", str(tmp_path / "k.toml"))
    text = (tmp_path / "k.toml").read_text(encoding="utf-8")
    assert code == 0 and 'grid = ["ceildiv(k, 256)"]' in text and "threads_x = 256" in text, err + text


ALIKE = """
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, (tl.load(x_ptr + i, mask=i < n) * 2.0).to(tl.bfloat16), mask=i < n)


def double(x, other):
    y = torch.empty_like(x)
    doubled[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""


@pytest.mark.parametrize(("made", "dtype"), [("torch.empty_like(x)", "bf16"), ("torch.empty_like(x, dtype=other)", "f32")])
def test_what_a_result_is_made_like_has_the_dtype_that_the_kernel_gives_it(made: str, dtype: str, tmp_path: Path) -> None:
    """A launch for an input of f32 and a result of bf16 that is made like it would never be taken."""
    (tmp_path / "alike.py").write_text(ALIKE.replace("torch.empty_like(x)", made), encoding="utf-8")
    binding, told = launched(str(tmp_path / "alike.py"))
    assert binding is not None and [binding.tensors[x].dtype for x in ("x_ptr", "y_ptr")] == [dtype, "bf16"]
    assert any("x_ptr is f32" in note for note in told[0].notes) == (dtype == "f32")


IN_ROWS = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, s0, s1, D: tl.constexpr):
    at = tl.program_id(0) * s0 + tl.program_id(1) * s1 + {}
    tl.store(y + at, tl.load(x + at))


def run(x):
    y = torch.empty_like(x)
    scaled[(x.shape[0], 4)](x, y, x.stride(0), x.stride(1), 64)
"""


@pytest.mark.parametrize(("last", "axes"), [("tl.arange(0, D)", 3), ("tl.arange(0, D) * s1", 2)])
def test_a_tensor_that_is_read_in_rows_has_an_axis_whose_stride_nobody_passes(last: str, axes: int, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(IN_ROWS.format(last), encoding="utf-8")
    assert len(called_binding(tmp_path / "k.py").tensors["x"].shape) == axes


CALLED_WITH_NUMBERS = """
__global__ void scale(const float* x, float* y, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < cols) y[blockIdx.y * cols + c] = 2.0f * x[blockIdx.y * cols + c];
}
void launch(const float* x, float* y, int rows, int cols) {
  scale<<<dim3((cols + 127) / 128, rows), 128>>>(x, y, rows, cols);
}
int main() {
  float *x, *y;
  cudaMalloc(&x, 8192 * 4096 * 4);
  cudaMalloc(&y, 8192 * 4096 * 4);
  launch(x, y, 8192, 4096);
}
"""


def test_a_main_program_that_calls_with_numbers_leaves_the_function_its_sizes(tmp_path: Path) -> None:
    """What is called with 8192 x 4096 is a launch over its sizes: at those alone a kernel is too large to be looked at. Where nothing else launches it, the
    numbers are the kernel's."""
    (tmp_path / "scale.cu").write_text(CALLED_WITH_NUMBERS)
    binding, _ = launched(str(tmp_path / "scale.cu"))
    assert binding is not None and binding.sizes == ["cols", "rows"] and binding.tensors["x"].shape == ["rows", "cols"]
    assert called_with(str(tmp_path / "scale.cu")) == {"cols": 4096, "rows": 8192}
    direct = CALLED_WITH_NUMBERS.replace("launch(x, y, 8192, 4096)", "scale<<<dim3(32, 8192), 128>>>(x, y, 8192, 4096)")
    (tmp_path / "scale.cu").write_text(direct[:direct.index("void launch")] + direct[direct.index("int main"):])
    binding, _ = launched(str(tmp_path / "scale.cu"))
    assert binding is not None and binding.sizes == [] and binding.scalars["cols"] == 4096


STATISTICS = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(X, Mean, Rstd, Most, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    y = (x - tl.load(Mean + row)) * tl.load(Rstd + row) / tl.load(Most + row)
    tl.store(Y + row * N + cols, y, mask=cols < N)


def launch(x, mean, rstd, most):
    m, n = x.shape
    y = torch.empty_like(x)
    scaled[(m,)](x, mean, rstd, most, y, n, BLOCK=triton.next_power_of_2(n))


if __name__ == "__main__":
    x = torch.randn(512, 768, device="cuda", dtype=torch.float16)
    launch(x, x.float().mean(1), torch.rsqrt(torch.var(x.float(), dim=-1, keepdim=True) + 1e-5), x.amax(dim=1))
"""


def test_what_is_computed_of_a_tensor_on_the_way_has_its_dtype_and_the_axes_that_are_left(tmp_path: Path) -> None:
    (tmp_path / "statistics_.py").write_text(STATISTICS)
    binding, told = launched(str(tmp_path / "statistics_.py"))
    assert binding is not None and not any("Mean" in note or "Rstd" in note or "Most" in note for d in told for note in d.notes)
    assert {k: (t.dtype, t.shape) for k, t in binding.tensors.items()} == {
        "X": ("f16", ["m", "n"]), "Mean": ("f32", ["m"]), "Rstd": ("f32", ["m", 1]), "Most": ("f16", ["m"]), "Y": ("f16", ["m", "n"])}


COUNTED = """import torch
import triton
import triton.language as tl


@triton.jit
def hist(x, h, n, bins, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(h + v, 1, mask=(i < n) & (v >= 0) & (v < bins))


def launch(x, bins: int):
    h = torch.zeros((bins,), device=x.device, dtype=torch.int32)
    n = x.numel()
    hist[(triton.cdiv(n, 256),)](x, h, n, bins, B=256)
    return h


if __name__ == "__main__":
    launch(torch.randint(0, 10, (1000,), dtype=torch.int32), 10)
"""


def test_a_number_that_is_passed_and_is_a_length_stays_the_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a size of its own the length was another one than what the kernel compares with: `kir check` showed a place beyond it."""
    file = tmp_path / "hist.py"
    file.write_text(COUNTED, encoding="utf-8")
    found = called_binding(file)
    assert found.tensors["h"].shape == [10] and found.scalars["bins"] == 10 and found.tensors["x"].shape == ["n"]
    code, out, _ = called(capsys, "check", str(file))
    assert code == 0 and "proved for all sizes" in out


CHOSEN = """#include <cuda_runtime.h>
enum class Mode { Sum, Mean = 4 };
template <Mode MODE, int WIDTH>
__global__ void pooled(const float* x, float* y, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.f;
  for (int k = 0; k < WIDTH; ++k) sum += x[row * WIDTH + k];
  y[row] = MODE == Mode::Mean ? sum / WIDTH : sum;
}
template <int WIDTH>
static void run(const float* x, float* y, int rows) {
  pooled<Mode::Mean, WIDTH><<<(rows + 127) / 128, 128>>>(x, y, rows);
}
extern "C" void pool(const float* x, float* y, int rows, int width) {
  switch (width) {
    case 8: run<8>(x, y, rows); break;
    case 16: run<16>(x, y, rows); break;
  }
}
"""


def test_template_arguments_come_from_who_calls_the_template_that_launches(tmp_path: Path) -> None:
    """An enumerator is the number that it is where the kernel stands; the template itself, first in the file, says nothing of its own parameter."""
    (tmp_path / "pooled.cu").write_text(CHOSEN)
    binding, _ = launched(str(tmp_path / "pooled.cu"))
    assert binding is not None and (binding.metas["MODE"], binding.metas["WIDTH"]) == (4, 8)
    assert binding.tensors["x"].shape == ["rows", 8] and binding.tensors["y"].shape == ["rows"]


@pytest.mark.parametrize(("test", "facts"), [
    ("if n % 256:\n        raise ValueError", {"n % 256 == 0"}), ("assert not n % 256", {"n % 256 == 0"}),
    ("if n % 256 or bins % 8:\n        return None", {"n % 256 == 0", "bins % 8 == 0"}), ("if n % 256 and bins % 8:\n        return None", set())])
def test_a_number_that_is_tested_as_a_truth_is_none(test: str, facts: set[str], tmp_path: Path) -> None:
    file = tmp_path / "hist.py"
    body, main = COUNTED.replace("    hist[", f"    {test}\n    hist["), "\n\nif __name__"
    file.write_text(body[:body.index(main)] + "\n", encoding="utf-8")
    assert {f for f in called_binding(file).facts if "%" in f} == facts


def test_a_length_that_is_written_beside_a_callers_tensors_stays_that_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a size it was any number, and a right histogram of 64 bins was shown a bin beyond them."""
    file = tmp_path / "hist.py"
    file.write_text("""import torch
import triton
import triton.language as tl


@triton.jit
def hist(x, h, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(h + v, 1, mask=(i < n) & (v >= 0) & (v < 64))


def launch(x):
    n = x.numel()
    h = torch.zeros((64,), dtype=torch.int32)
    hist[(triton.cdiv(n, 256),)](x, h, n, B=256)
    return h
""", encoding="utf-8")
    assert called_binding(file).tensors["h"].shape == [64]
    assert called(capsys, "check", str(file))[0] == 0
    file.write_text(f"{file.read_text()}\n\nlaunch(torch.zeros((1000,), dtype=torch.int32))\n", encoding="utf-8")
    assert called_binding(file).tensors["h"].shape == [64] and called_binding(file).tensors["x"].shape == ["n"], "a call that is shown has its own lengths"
