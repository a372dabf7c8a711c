"""What host code says of a launch by functions of its own, by other files of its package, and by the environment."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.surface.reading import launched
from tests.command_line import called
from tests.users.launches.test_host_idioms import HEAD, STARRED
from tests.users.test_found_launches import called_binding


def test_a_kernel_is_launched_from_elsewhere_in_its_package(tmp_path: Path) -> None:
    """`pack/kernels/copy.py` by `pack/functional.py`: where the kernel's own folder launches nothing."""
    (folder := tmp_path / "pack" / "kernels").mkdir(parents=True)
    for each in (folder.parent, folder):
        (each / "__init__.py").write_text("", encoding="utf-8")
    (folder / "copy.py").write_text(HEAD, encoding="utf-8")
    (folder.parent / "functional.py").write_text(f"import torch, triton\nfrom .kernels.copy import copied\n\n\n{STARRED}", encoding="utf-8")
    (tmp_path / "other.py").write_text(f"import torch, triton\nfrom pack.kernels.copy import copied\n\n\n{STARRED}".replace("16", "32"), encoding="utf-8")
    binding, said = launched(f"{folder / 'copy.py'}::copied")
    assert binding is not None and binding.metas["BT"] == 16, said


def test_what_the_environment_may_set_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text("import os\n" + HEAD +
                    "ROWS = 32 if os.environ.get('WIDE', '0') == '1' else 16\n\n\n" + STARRED.replace("T, D, 16,", "T, D, ROWS,"), encoding="utf-8")
    assert called_binding(file).metas["BT"] == 16


def test_a_kernel_that_a_length_chooses_is_launched_at_that_length(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(HEAD + HEAD[HEAD.index("@triton.jit"):].replace("copied", "wider") + """def run(x, y):
    T, D = x.shape
    if D == 16:
        f = copied
    elif D == 32:
        f = wider
    f[(triton.cdiv(T, D),)](x, y, T, D, 16, D)
""", encoding="utf-8")
    for kernel, length in (("copied", 16), ("wider", 32)):
        binding, said = launched(f"{file}::{kernel}")
        assert binding is not None and (binding.metas["D"], binding.tensors["x"].shape) == (length, ["T", length]), said


@pytest.mark.parametrize("said", ["1 if x <= 1 else 1 << (x - 1).bit_length()", "2 ** (x - 1).bit_length()", "2 ** math.ceil(math.log2(x))"])
def test_the_next_power_of_two_in_the_words_of_python(said: str, tmp_path: Path) -> None:
    """A function that gives 1 for what is no more than 1 was one that gives 1."""
    file, (early, _, rest) = tmp_path / "k.py", said.rpartition(" else ")
    text = "".join(f"    {line}\n" for line in ([f"if {early.partition(' if ')[2]}:", "    return 1"] if early else []))
    file.write_text(HEAD + f"def power(x: int) -> int:\n{text}    return {rest}\n\n\n" +
                    STARRED.replace("triton.next_power_of_2(D)", "power(D)"), encoding="utf-8")
    binding = called_binding(file)
    assert binding.metas["BD"] == 64 == binding.metas["D"]


@pytest.mark.parametrize("said", ["int(math.log2(D))", "D.bit_length() - 1"])
def test_a_logarithm_goes_with_the_number_that_it_is_of(said: str, tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(HEAD + STARRED.replace("triton.next_power_of_2(D)", said), encoding="utf-8")
    binding = called_binding(file)
    assert (binding.metas["D"], binding.metas["BD"]) == (64, 6)


def test_what_is_worked_out_of_a_fixed_number_is_none_of_its_own(tmp_path: Path) -> None:
    """Rows a CTA follow from its threads, and whole numbers of the host's do not wrap: `rows * 32` threads by 256 are an eighth of the rows."""
    file = tmp_path / "rows.cu"
    file.write_text("""
__global__ void rows_of_ones(float* x, int n) {
  int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (i < n) x[i] = 1.0f;
}
void run(float* x, int n, int block) {
  int per = block / 32;
  GRID
  rows_of_ones<<<grid, block>>>(x, n);
}
int main() { float* x; int n = 1000; cudaMalloc(&x, n * sizeof(float)); run(x, n, 256); }
""")
    text = file.read_text()
    for grid in ("int grid = (n + per - 1) / per;", "int grid = ceil_div(n * 32, block);", "int grid = (n * 32 + block - 1) / block;"):
        file.write_text(text.replace("GRID", grid))
        binding, _ = launched(str(file))
        assert binding is not None and (binding.sizes, binding.grid) == (["n"], ["ceildiv(n, 8)"]), grid


def test_arguments_that_are_handed_over_as_one_are_what_their_use_says(tmp_path: Path) -> None:
    """As the host function of a contest takes them."""
    file = tmp_path / "k.py"
    file.write_text(HEAD + """def custom_kernel(data):
    x, y, rows = data
    T, D = x.shape
    copied[(triton.cdiv(T, rows),)](x, y, T, D, 16, triton.next_power_of_2(D))
    return y
""", encoding="utf-8")
    binding = called_binding(file)
    assert (binding.grid, binding.tensors["x"].shape, binding.tensors["y"].shape) == (["ceildiv(T, rows)"], ["T", 1024], ["T", 1024])


def test_a_constant_of_a_function_that_is_called_is_no_size(tmp_path: Path) -> None:
    file = tmp_path / "sums.cu"
    file.write_text("""
__global__ void whole(float* out, const float* parts, int count) {
  if (threadIdx.x < count) atomicAdd(out, parts[threadIdx.x]);
}
void sum(float* out, float* parts) {
  const int blocks = 264;
  whole<<<1, 512>>>(out, parts, blocks);
}
int main() { float *parts, *out; cudaMalloc(&parts, 264 * sizeof(float)); cudaMalloc(&out, sizeof(float)); sum(out, parts); }
""")
    binding, _ = launched(str(file))
    assert binding is not None and (binding.sizes, binding.scalars["count"], binding.tensors["parts"].shape) == ([], 264, [264])
    assert binding is not None and (binding.sizes, binding.scalars["count"], binding.tensors["parts"].shape) == ([], 264, [264])


def test_a_constant_of_a_class_template_is_known_to_host_code(tmp_path: Path) -> None:
    """`x128::size`, of a pack of 16 bytes, by names that stand for other names."""
    file = tmp_path / "packs.cu"
    file.write_text("""
#include <cuda_bf16.h>
template <class T> struct alignas(16) Pack {
  __device__ T& operator[](int k) { return of[k]; }
  static constexpr int size = sizeof(int4) / sizeof(T);
  T of[size];
};
typedef __nv_bfloat16 floatX;
using x128 = Pack<floatX>;
__global__ void ones(floatX* out, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
  for (int k = 0; k < x128::size; ++k) if (i + k < n) out[i + k] = (floatX)1.0f;
}
void run(floatX* out, int n) {
  const int block = 128;
  ones<<<(n + block * x128::size - 1) / (block * x128::size), block>>>(out, n);
}
""")
    binding, _ = launched(str(file))
    assert binding is not None and (binding.sizes, binding.grid, binding.tensors["out"].dtype) == (["n"], ["ceildiv(n, 1024)"], "bf16")


def test_a_quotient_and_its_rest_are_what_divmod_says(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(HEAD + """def run(x, y):
    T, D = x.shape
    tiles, rest = divmod(T, 16)
    copied[(tiles + (rest != 0),)](x, y, T, D, 16, triton.next_power_of_2(D))


def test():
    x = torch.randint(20, 40, (100, 64), dtype=torch.uint8, device="cuda").view(torch.float8_e5m2)
    run(x, torch.empty_like(x))
""", encoding="utf-8")
    binding = called_binding(file)
    assert (binding.grid, binding.tensors["x"].shape, binding.tensors["x"].dtype) == (["ceildiv(T, 16)"], ["T", 64], "f8e5m2")


def test_a_call_that_only_compiles_is_no_launch_and_a_grid_that_the_kernel_asks_for_is_a_size(tmp_path: Path) -> None:
    """As many programs as fit the device by what the compiled kernel says of itself: any number is right, as the kernel steps by it."""
    file = tmp_path / "k.py"
    file.write_text("""import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, T, BLOCK: tl.constexpr):
    for k in range(tl.program_id(0), tl.cdiv(T, BLOCK), tl.num_programs(0)):
        t = k * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + t, 2 * tl.load(x + t, mask=t < T), mask=t < T)


def run(x):
    y = torch.empty_like(x)
    T = x.numel()
    kernel = doubled.warmup(x, y, T, BLOCK=128, num_warps=8, grid=(1,))
    kernel._init_handles()
    kernel[(min(T, 132 * (65536 // kernel.n_regs)), 1, 1)](x, y, T)
    return y


run(torch.randn(1000, device="cuda"))
""", encoding="utf-8")
    binding = called_binding(file)
    assert (binding.grid, binding.metas, binding.options) == (["programs"], {"BLOCK": 128}, {"num_warps": 8}) and "programs >= 1" in binding.facts


@pytest.mark.parametrize(("test", "facts"), [("n % 4", {"n % 4 == 0"}), ("n % 4 || n > 60000", {"n % 4 == 0", "n <= 60000"}), ("n % 4 && n > 7", set())])
def test_a_number_that_is_tested_as_a_truth_is_none_in_cuda(test: str, facts: set[str], tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(f"""__global__ void k(const float* x, float* y, int n) {{
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = x[i];
}}
void run(const float* x, float* y, int n) {{ if ({test}) return; k<<<(n + 127) / 128, 128>>>(x, y, n); }}
""", encoding="utf-8")
    assert {f for f in called_binding(file).facts if f != "n >= 1"} == facts


def test_shapes_that_no_run_shows_say_which_statement_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "timed.cu").write_text("__global__ void timed(const float* x, float* y) { int i = threadIdx.x; long now = clock64(); y[i] = x[i] + now; }\n"
                                       "void run(const float* x, float* y) { timed<<<1, 64>>>(x, y); }\n")
    code, _, err = called(capsys, "check", str(tmp_path / "timed.cu"))
    assert code == 1 and "KIR-S061" in err and "shapes are not found by runs: line 1 is kept as text: a reading of the clock" in err
