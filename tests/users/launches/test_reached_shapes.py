"""Shapes of tensors whose callers are not seen: as far as the kernel reaches at sizes that tell one axis from another."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.surface.reading import launched
from tests.command_line import called
from tests.users.test_found_launches import called_binding

CACHE = """__global__ void kept(const float* cache, const int* lens, float* out, int most) {
  float sum = 0.f;
  for (int i = 0; i < lens[blockIdx.x]; ++i) sum += cache[(blockIdx.x * most + i) * 32 + threadIdx.x];
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}
void run(const float* c, const int* l, float* o, int rows, int most) { kept<<<rows, 32>>>(c, l, o, most); }
"""
PARTS = """__global__ void parts(const float* x, float* out, int rows, int cols) {
  int c = blockIdx.x * 32 + threadIdx.x;
  if (c >= cols) return;
  float sum = 0.f;
  for (int r = blockIdx.y * 16; r < blockIdx.y * 16 + 16 && r < rows; ++r) sum += x[r * cols + c];
  out[blockIdx.y * cols + c] = sum;
}
void run(const float* x, float* o, int rows, int cols) { parts<<<dim3((cols + 31) / 32, (rows + 15) / 16), 32>>>(x, o, rows, cols); }
"""
GROUPS = """__global__ void scaled(const int* words, const float* scales, float* out, int cols) {
  int row = blockIdx.x;
  for (int w = threadIdx.x; w < cols / 8; w += 32) out[row * (cols / 8) + w] = words[row * (cols / 8) + w] * scales[row * (cols / 64) + w * 8 / 64];
}
void run(const int* w, const float* s, float* o, int rows, int cols) { scaled<<<rows, 32>>>(w, s, o, cols); }
"""
BAG = """__global__ void bag(const float* table, const int* at, const int* ends, float* out, int bags) {
  float sum = 0.f;
  for (int i = ends[blockIdx.x]; i < ends[blockIdx.x + 1]; ++i) sum += table[at[i] * 32 + threadIdx.x];
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}
void run(const float* t, const int* a, const int* e, float* o, int bags) { bag<<<bags, 32>>>(t, a, e, o, bags); }
"""
FIXED = """__global__ void fixed(const float* x, float* out) {
  int n = blockIdx.x / 8, g = blockIdx.x % 8;
  for (int i = threadIdx.x; i < 192; i += 32) out[(n * 8 + g) * 192 + i] = x[(n * 8 + g) * 192 + i] * 2.f;
}
void run(const float* x, float* o, int batch) { fixed<<<batch * 8, 32>>>(x, o); }
"""
NEXT = """__global__ void next(const float* x, float* out, int rows, int cols) {
  __shared__ float held[2][16];
  held[0][threadIdx.x] = x[blockIdx.x * cols + threadIdx.x];
  for (int k = 0; k < cols; k += 16) {
    if (k + 16 < cols) held[(k / 16 + 1) % 2][threadIdx.x] = x[blockIdx.x * cols + k + 16 + threadIdx.x];
    out[blockIdx.x * cols + k + threadIdx.x] = held[k / 16 % 2][threadIdx.x] * 2.f;
  }
}
void run(const float* x, float* o, int rows, int cols) { next<<<rows, 16>>>(x, o, rows, cols); }
"""
CAPPED = """__global__ void capped(const float* x, float* out, const int* lens, int cols) {
  float sum = 0.f;
  for (int k = threadIdx.x; k < min(lens[blockIdx.x], cols); k += 32) sum += x[blockIdx.x * cols + k];
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}
void run(const float* x, float* o, const int* l, int rows, int cols) { capped<<<rows, 32>>>(x, o, l, cols); }
"""

REFLECTED = """__global__ void reflect(const float* x, float* y, int n, int pad) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n + 2 * pad) return;
  int j = i - pad;
  if (j < 0) j = -j;
  if (j >= n) j = 2 * n - 2 - j;
  y[i] = x[j];
}
void run(const float* x, float* y, int n, int pad) { assert(pad < n); assert(pad > 0); reflect<<<(n + 2 * pad + 127) / 128, 128>>>(x, y, n, pad); }
"""


@pytest.mark.parametrize(("text", "shapes"), [
    pytest.param(REFLECTED, {"x": ["n"], "y": ["n + pad * 2"]}, id="a size and another on both of its sides"),
    pytest.param(CAPPED, {"x": ["rows", "cols"], "lens": ["rows"]}, id="rows up to a length in memory, but no further than their end"),
    pytest.param(CACHE, {"cache": ["most * rows", 32], "lens": ["rows"]}, id="rows up to a length in memory"),
    pytest.param(PARTS, {"x": ["rows", "cols"], "out": ["(ceildiv(rows, 16))", "cols"]}, id="as many rows as the grid has along its other axis"),
    pytest.param(GROUPS, {"words": ["rows", "(cols // 8)"], "scales": ["rows * (cols // 64)"]}, id="nothing is reached unless a size has a whole part"),
    pytest.param(BAG, {"table": ["table_rows", 32], "at": ["at_elements"], "ends": ["bags + 1"]}, id="a table of a length of its own"),
    pytest.param(FIXED, {"x": ["batch", 1536], "out": ["batch", 1536]}, id="groups of a number, of which each has a number of elements"),
    pytest.param(NEXT, {"x": ["rows", "cols"], "out": ["rows", "cols"]}, id="whole tiles, the next of which is fetched ahead"),
])
def test_a_shape_is_what_the_kernel_reaches(text: str, shapes: dict[str, list[str | int]], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    binding = called_binding(tmp_path / "k.cu")
    assert {name: [str(d) for d in binding.tensors[name].shape] for name in shapes} == {name: [str(d) for d in shape] for name, shape in shapes.items()}


FUNCTOR = """struct Mish { __device__ float operator()(float v) const { return v * tanhf(log1pf(expf(v))); } };
template <typename T, typename F> __global__ void mapped(const T* x, T* y, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
void run(const float* x, float* y, int n) { BEFORE mapped<<<(n + 127) / 128, 128>>>(x, y, n, OF); }
"""


@pytest.mark.parametrize(("before", "of"), [("", "Mish()"), ("", "Mish{}"), ("Mish op;", "op")])
def test_a_functor_is_of_the_class_that_the_host_makes(before: str, of: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(FUNCTOR.replace("BEFORE", before).replace("OF", of), encoding="utf-8")
    binding = called_binding(tmp_path / "k.cu")
    assert (binding.metas["T"], binding.metas["F"]) == ("f32", "Mish") and binding.tensors["x"].shape == ["n"]


WARPS = """__global__ void parts(const float* x, float* y, int n) {{
  __shared__ float s[{threads}];
  int t = threadIdx.x, lane = t % 32, i = blockIdx.x * {threads} + t;
  s[t] = i < n ? x[i] : 0.f;
  __syncwarp();
  for (int d = 16; d > 0; d /= 2) {{
    float v = lane < d ? s[t + d] : 0.f;
    __syncwarp();
    if (lane < d) s[t] += v;
    __syncwarp();
  }}
  if (lane == 0) y[blockIdx.x * {warps} + t / 32] = s[t];
}}
void launch(const float* x, float* y, int n) {{ parts<<<(n + {threads} - 1) / {threads}, {threads}>>>(x, y, n); }}
"""


@pytest.mark.parametrize("warps", [2, 4, 8])
def test_each_warp_of_a_grid_has_an_element(warps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many elements as x was what was taken for y, and `kir check` showed a place beyond it."""
    file = tmp_path / "parts.cu"
    file.write_text(WARPS.format(warps=warps, threads=32 * warps), encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None and binding.tensors["y"].shape == [f"ceildiv(n, {32 * warps})", warps]
    code, out, _ = called(capsys, "check", str(file))
    assert code == 0 and "proved for all sizes" in out


TURNS = """__global__ void turns(const float* x, float* y, int n) {{
  __shared__ float s[32];
  int t = threadIdx.x;
  for (int k = 0; k < n; ++k) {{
    if (t < 32) {{
      s[t] = x[((long long)blockIdx.x * n + k) * 32 + t];
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    }} else {{
      asm volatile("bar.sync 1, {count};" ::: "memory");
      y[((long long)blockIdx.x * n + k) * 32 + t - 32] = s[63 - t];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }}
  }}
}}
void run(const float* x, float* y, int m, int n) {{ turns<<<m, 64>>>(x, y, n); }}
"""


@pytest.mark.parametrize(("count", "said"), [(64, ""), (32, "named barrier 1 is met by 64 threads here, by 32 elsewhere (line 6)"),
                                             (96, "named barrier 1 is met by 64 threads here, by 96 elsewhere")])
def test_a_hazard_that_ends_every_run_is_why_shapes_stay_open(count: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That y's shape is open was all that `kir check` said of a kernel that hangs."""
    file = tmp_path / "turns.cu"
    file.write_text(TURNS.format(count=count), encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == int(bool(said)) and ("error[KIR-S061]" in err) == bool(said)
    assert not said or f"shapes are not found by runs, which go wrong: at n = 3, m = 2: {said}"[:70] in err


@pytest.mark.parametrize(("source", "launch", "shapes"), [
    ("float* s, const float* x, int n, int k) {\n  const int t = threadIdx.x, i = blockIdx.x * 64 + t;\n"
     "  if (i < n && t < k) atomicAdd(s + t, x[i]);\n", "s, x, n, 5", {"s": [5], "x": ["n"]}),  # as many, whatever n is
    ("const int* a, int n, const int* b, int m, int* y) {\n  const int i = blockIdx.x * 64 + threadIdx.x;\n"
     "  if (i < n) y[i] = a[i];\n  if (i < m) y[n + i] = b[i];\n", "a, n, b, m, y", {"a": ["n"], "b": ["m"], "y": ["n + m"]}),
    ("const float* a, float* y, int n, int cols, int many, int pitch) {\n  const int i = blockIdx.x * 64 + threadIdx.x;\n"
     "  if (i >= n) return;\n  float s = cols;\n  for (int j = 0; j < many; ++j) s += a[j * pitch + i];\n  y[i] = s;\n", "a, y, n, cols, many, pitch",
     {"a": ["many * pitch"], "y": ["n"]}),  # of what places depend on
    ("const float* a, float* y, int n, int width) {\n  const int i = blockIdx.x * 64 + threadIdx.x;\n  float s = 0.f;\n"
     "  for (int j = 0; j < (width + 7) / 8; ++j)\n    for (int e = 0; e < 8; ++e) s += a[i * width + j * 8 + e];\n  y[i] = s;\n", "a, y, n, width",
     {"a": ["n", "width"], "y": ["n"]}),  # widths of whole eights
])
def test_a_shape_is_of_the_sizes_that_places_depend_on(source: str, launch: str, shapes: dict[str, list[str | int]], tmp_path: Path) -> None:
    head = source.split(") {")[0]
    (tmp_path / "k.cu").write_text(f"__global__ void k({source}}}\nvoid go({head}) {{ k<<<(n + 63) / 64, 64>>>({launch}); }}\n")
    found = called_binding(tmp_path / "k.cu")
    assert {name: list(t.shape) for name, t in found.tensors.items()} == shapes


def test_classes_of_the_file_are_template_arguments_and_a_truth_is_a_byte(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""struct Twice { __device__ float operator()(float v) const { return 2.f * v; } };
template <int T_> struct Tile { static constexpr int T = T_; };
template <class P, class F> __global__ void k(const float* x, float* y, int n, F f = F()) {
  extern __shared__ float held[];
  bool* there = (bool*)(held + P::T);
  const int i = blockIdx.x * P::T + threadIdx.x;
  held[threadIdx.x] = i < n ? x[i] : 0.f;
  there[threadIdx.x] = i < n;
  __syncthreads();
  if (there[threadIdx.x]) y[i] = f(held[threadIdx.x]);
}
void go(const float* x, float* y, int n) {
  using P = Tile<64>;
  const int threads = 64;
  k<P, Twice><<<(n + 63) / 64, threads, threads * (sizeof(float) + sizeof(bool))>>>(x, y, n);
}
""")
    found = called_binding(tmp_path / "k.cu")
    assert (found.metas["P"], found.metas["F"], found.metas["shared_bytes"]) == ("Tile<64>", "Twice", 320)
    assert found.tensors["y"].shape == ["n"]


def test_constants_of_an_enumeration_are_choices_of_a_dispatch_macro_and_no_sizes(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""namespace pack {
enum class Order { kNone, kBig = 3U, kLittle };
#define WITH_ORDER(order, ORDER, ...)              \\
  if (order == Order::kBig) {                      \\
    constexpr Order ORDER = Order::kBig;           \\
    __VA_ARGS__                                    \\
  } else {                                         \\
    constexpr Order ORDER = Order::kLittle;        \\
    __VA_ARGS__                                    \\
  }
template <Order ORDER> __global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = ORDER == Order::kBig ? x[i] : -x[i];
}
void go(const float* x, float* y, int n, Order order) {
  WITH_ORDER(order, ORDER, {
    auto kernel = k<ORDER>;
    const dim3 threads(64);
    void* args[] = {&x, &y, &n};
    cudaLaunchKernel((void*)kernel, dim3((n + 63) / 64), threads, args, 0, nullptr);
  });
}
}
""")
    found = called_binding(tmp_path / "k.cu")
    assert found.metas["ORDER"] == 3 and found.sizes == ["n"] and [t.shape for t in found.tensors.values()] == [["n"], ["n"]]


def test_a_record_that_a_caller_hands_in_is_its_members(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""struct Sizes { int rows, cols; /* of x */ };
struct Params {
  const float* __restrict__ x;
  float *y = nullptr, *z;
  Sizes of;
  float scale{1.f};
  bool twice;
  __host__ __device__ int count() const { return of.rows * of.cols; }
};
__global__ void k(const Params p) {
  const int i = blockIdx.y * p.of.cols + blockIdx.x * 64 + threadIdx.x;
  if (blockIdx.x * 64 + threadIdx.x < p.of.cols) { p.y[i] = p.x[i] * p.scale; p.z[i] = p.twice ? 2.f : 1.f; }
}
void go(const Params& params, cudaStream_t stream) { k<<<dim3((params.of.cols + 63) / 64, params.of.rows), 64, 0, stream>>>(params); }
""")
    found = called_binding(tmp_path / "k.cu")
    assert {name: list(t.shape) for name, t in found.tensors.items()} == {f"p_{x}": ["rows", "cols"] for x in "xyz"}
    assert sorted(found.sizes) == ["cols", "rows"] and found.grid == ["ceildiv(cols, 64)", "rows"]


ROWS = """import torch, triton
import triton.language as tl


@triton.jit
def words(w_ptr, s_ptr, o_ptr, N, stride_w, stride_o, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + row * stride_w + n // 8, mask=n < N, other=0)
    tl.store(o_ptr + row * stride_o + n, (w >> (n % 8) * 4) & 15 * tl.load(s_ptr + n, mask=n < N, other=0), mask=n < N)


def run(w, s):
    out = torch.empty((w.shape[0], s.numel()), dtype=torch.int32, device="cuda")
    words[(w.shape[0], triton.cdiv(s.numel(), 32))](w, s, out, s.numel(), w.stride(0), out.stride(0), BLOCK=32)
    return out


def seen():
    return run(torch.zeros(4, 32, dtype=torch.int32, device="cuda"), torch.ones(256, dtype=torch.int32, device="cuda"))
"""
TURNED = """import torch, triton
import triton.language as tl


@triton.jit
def turned(q_ptr, q_stride, k_ptr, k_stride, c_ptr, c_stride, seq, tables: tl.constexpr, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    p = tl.program_id(0)
    d = tl.arange(0, D)
    c = tl.load(c_ptr + tl.where(tables == 1, p % seq * c_stride, p * c_stride) + d)
    q = q_ptr + p * q_stride + tl.arange(0, H)[:, None] * D + d[None, :]
    k = k_ptr + p * k_stride + tl.arange(0, G)[:, None] * D + d[None, :]
    tl.store(q, tl.load(q) * c[None, :])
    tl.store(k, tl.load(k) * c[None, :])


def run(q, k, c):
    q = q.transpose(1, 2)
    k = k.transpose(1, 2)
    batch, seq, heads, dim = q.shape
    q, k = q.contiguous(), k.contiguous()
    turned[(batch * seq,)](q, q.stride(1), k, k.stride(1), c, c.stride(-2), seq, c.shape[0], heads, k.shape[2], dim)
"""


@pytest.mark.parametrize(("text", "facts", "said"), [
    pytest.param(ROWS, {"stride_w >= ceildiv(N, 8)"}, "stride_w >= ceildiv(N, 8)", id="the part of a size that a row is in the call that is seen"),
    pytest.param(TURNED, {"c_stride >= 32"}, "tables is 1", id="a row of so many elements, and axes that only one tensor names"),
])
def test_a_row_is_as_long_as_what_is_read_of_it(text: str, facts: set[str], said: str, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """A stride of which nothing says how large it is would be 1, so that the check would show a read beyond the last row."""
    (tmp_path / "k.py").write_text(text, encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert facts <= set(binding.facts)
    _, out, err = called(capsys, "check", str(tmp_path / "k.py"))
    assert "a counterexample" not in out.split("indices within 32 bits")[0] and said in err, out + err


def test_an_inner_axis_that_nobody_names_is_what_the_kernel_walks(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("""import torch, triton
import triton.language as tl


@triton.jit
def products(a_ptr, b_ptr, c_ptr, K, N, a_batch, b_batch, b_row, BLOCK: tl.constexpr):
    i, n = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        total += tl.load(a_ptr + i * a_batch + k) * tl.load(b_ptr + i * b_batch + k * b_row + n, mask=n < N, other=0)
    tl.store(c_ptr + i * N + n, total, mask=n < N)


def run(a, b):
    batch, K = a.shape
    _, _, N = b.shape
    c = torch.empty((batch, N))
    products[(batch, triton.cdiv(N, 32))](a, b, c, K, N, a.stride(0), b.stride(0), b.stride(1), BLOCK=32)
    return c
""", encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.tensors["b_ptr"].shape == ["batch", "K", "N"] and binding.scalars["b_batch"] in ("K * N", "N * K")


def test_a_row_that_a_table_chooses_is_as_long_as_the_compile_time_value_that_it_is_read_over(tmp_path: Path) -> None:
    """Rows, their number a batch and their length were sizes of their own, and the check showed a read beyond the last one."""
    (tmp_path / "k.py").write_text("""import torch, triton
import triton.language as tl


@triton.jit
def picked(kv, at, out, kv_b, kv_n, kv_d, at_b, at_k, most, D: tl.constexpr):
    b, d = tl.program_id(0), tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    for k in range(most):
        row = tl.load(at + b * at_b + k * at_k)
        total += tl.load(kv + b * kv_b + row * kv_n + d * kv_d)
    tl.store(out + b * D + d, total)


def run(kv, at):
    out = torch.empty((at.shape[0], 64))
    picked[(at.shape[0],)](kv, at, out, kv.stride(0), kv.stride(1), kv.stride(2), at.stride(0), at.stride(1), at.shape[1], D=64)
    return out
""", encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert [str(d) for d in binding.tensors["kv"].shape[::2]] == [str(binding.grid[0]), "64"]


def test_blocks_of_which_a_table_says_how_many_there_are_are_as_wide_as_high(tmp_path: Path) -> None:
    """Of `_, BS, _ = blocks.shape` nothing says what the last is; with tables of zeros and ones the kernel did not reach all blocks."""
    (tmp_path / "k.py").write_text("""import torch, triton
import triton.language as tl


@triton.jit
def summed(blocks, ends, out, BS: tl.constexpr):
    g, r = tl.program_id(0), tl.arange(0, BS)
    total = 0.0
    for row in range(tl.load(ends + g), tl.load(ends + g + 1)):
        total += tl.sum(tl.sum(tl.load(blocks + row * BS * BS + r[:, None] * BS + r[None, :]), 1), 0)
    tl.store(out + g, total)


def run(blocks, ends):
    n, BS, _ = blocks.shape
    out = torch.empty((ends.shape[0] - 1,))
    summed[(ends.shape[0] - 1,)](blocks, ends, out, BS=BS)


if __name__ == "__main__":
    run(torch.ones(8, 16, 16), torch.zeros(4, dtype=torch.int32))
""", encoding="utf-8")
    assert called_binding(tmp_path / "k.py").tensors["blocks"].shape == ["n", 16, 16]


def test_a_step_that_bears_a_tensor_s_name_is_the_length_of_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a number of its own it was any, and the check showed a read beyond the table."""
    (tmp_path / "k.py").write_text("""import torch, triton
import triton.language as tl


@triton.jit
def turned(q, table, table_row_stride, T, half, D: tl.constexpr):
    t, d = tl.program_id(0), tl.arange(0, D)
    by = tl.load(table + t % half * table_row_stride + d)
    tl.store(q + t * D + d, by * tl.load(q + t * D + d))


def run(q, table, half):
    table = table.squeeze()
    T, D = q.shape
    turned[(T,)](q, table, table.stride(0), T, half, D)


run(torch.randn(128, 64, device="cuda"), torch.randn(1, 32, 64, device="cuda"), 32)
""", encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.scalars["table_row_stride"] == "table_row_stride" and binding.tensors["table"].shape[1] == "table_row_stride"
    code, out, err = called(capsys, "check", str(tmp_path / "k.py"))
    assert code == 0 and "a counterexample" not in out.split("indices within 32 bits")[0] and "the length of a row of table" in err, out + err


def test_a_stride_that_is_widened_before_it_is_used_is_the_host_s(tmp_path: Path) -> None:
    """As a number of its own, whose dtype alone was known, it could be less than a row."""
    (tmp_path / "k.py").write_text("""import torch, triton
import triton.language as tl


@triton.jit
def halved(x, x_row_stride, N, BLOCK: tl.constexpr):
    x += tl.program_id(0) * tl.cast(x_row_stride, tl.int64)
    n = tl.arange(0, BLOCK)
    tl.store(x + n, 0.5 * tl.load(x + n, mask=n < N), mask=n < N)


def run(x):
    T, N = x.shape
    halved[(T,)](x, x.stride(0), N, triton.next_power_of_2(N))
""", encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert (binding.scalars["x_row_stride"], binding.dtypes) == ("N", {})
