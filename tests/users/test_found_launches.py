"""The binding of a user's kernel, found in the host code beside it."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir.binding import Binding
from kir.ir.rules.generic import is_generic
from kir.surface.finding import launches_of, under
from kir.surface.launches.questions import Question, all_answered
from kir.surface.reading import kernel_of, launched, load_expert, located
from tests.command_line import called
from tests.users.own_kernels import KERNELS, laid

FOUND = {
    "softmax with a scale (Triton)": (["m"], {"x_ptr": ["m", "n"], "y_ptr": ["m", "n"]}, {"BLOCK": 1024}, ["m >= 1", "n >= 1", "n <= 1024"]),
    "RMS norm as an autograd function (Triton)": (["M"], {"X": ["M", "N"], "W": ["N"], "Y": ["M", "N"]}, {"BLOCK_SIZE": 256},
                                                  ["M >= 1", "N >= 1", "N <= 16384"]),
    "autotuned GEMM, launched by a test (Triton)": (["ceildiv(M, BLOCK_M)", "ceildiv(N, BLOCK_N)"], {"a_ptr": ["M", "K"], "b_ptr": ["K", "N"]},
                                                    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, ["M >= 1", "K >= 1", "N >= 1"]),
    "RMS norm with a main program (CUDA)": (["m"], {"x": ["m", "n"], "w": ["n"], "y": ["m", "n"]}, {"threads_x": 256, "THREADS": 256}, ["m >= 1", "n >= 1"]),
    "bias and GELU as a torch extension (CUDA)": (["ceildiv(cols * rows, 256)"], {"x": ["rows", "cols"], "bias": ["cols"]},
                                                  {"threads_x": 256, "scalar_t": "f32"}, ["rows >= 1", "cols >= 1"]),
    "GEMM launched from another file (CUDA)": (["ceildiv(N, 16)", "ceildiv(M, 16)"], {"C": ["M", "N"]}, {"threads_x": 16, "threads_y": 16},
                                               ["M >= 1", "N >= 1", "K >= 1"]),
    "GEMM (TileLang)": ([], {}, {"block_M": 128, "block_N": 128, "block_K": 32, "dtype": "f16", "accum_dtype": "f32"}, ["M >= 1", "N >= 1", "K >= 1"]),
    "RMS norm (TileLang)": ([], {}, {"N": 256, "blk_m": 1}, ["M >= 1"]),
    "addition (TileLang)": ([], {}, {"block": 256, "threads": 128}, ["n >= 1"]),
}
"""Grid, shapes, compile-time values and facts of each."""


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_with_its_launch_needs_no_binding(name: str, tmp_path: Path) -> None:
    grid, shapes, metas, facts = FOUND[name]
    file = laid(tmp_path, name)
    binding, told = launched(str(file))
    assert binding is not None and [d.id for d in told] == ["KIR-S060"]
    assert binding.grid == grid and binding.metas == metas and binding.facts == facts
    assert {k: binding.tensors[k].shape for k in shapes} == shapes
    expert = load_expert(str(file))
    assert not is_generic(expert.program)
    assert Binding.parse(expert.binding) == binding


def test_strides_are_expressions_over_the_sizes(tmp_path: Path) -> None:
    binding, _ = launched(str(laid(tmp_path, "autotuned GEMM, launched by a test (Triton)")))
    assert binding is not None
    strides = {k: v for k, v in binding.scalars.items() if k.startswith("stride")}
    assert strides == {"stride_am": "K", "stride_ak": 1, "stride_bk": "N", "stride_bn": 1, "stride_cm": "N", "stride_cn": 1}
    assert {t.dtype for t in binding.tensors.values()} == {"f16"} and len(binding.configs) == 2


def test_what_nothing_says_is_assumed_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = laid(tmp_path, "RMS norm as an autograd function (Triton)")
    code, out, err = called(capsys, "parse", str(file), "--normal")
    assert code == 0 and "in W: f32[N]" in out
    assert "warning[KIR-S060]" in err and re.search(r"\bX\b[\w, ]* are f32", err) and "W has N elements: all that the kernel reaches" in err and "--ask" in err


def test_a_launch_that_says_nothing_of_an_argument_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNELS["softmax with a scale (Triton)"]["scaled.py"].partition("if __name__")[0]
    file = tmp_path / "scaled.py"
    file.write_text(text.replace("BLOCK=triton.next_power_of_2(n)", "BLOCK=block_for(x)"), encoding="utf-8")
    with pytest.raises(KirError) as refused:
        load_expert(str(file))
    assert refused.value.diagnostics[0].id == "KIR-S061" and "metas.BLOCK" in refused.value.diagnostics[0].message
    code, _, err = called(capsys, "bind", str(file), "--ask", "--yes")
    assert code == 0, err
    kept = tmp_path / "scaled.softmax_scale_kernel.bind.toml"
    assert "BLOCK = 64" in kept.read_text(encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and binding.metas == {"BLOCK": 64} and kept.name in told[0].message


PACKAGE = {
    "__init__.py": "", "ops/__init__.py": "", "utils/__init__.py": "from .blocks import settings, width\n",
    "utils/blocks.py": """import torch
import triton


def is_hip():
    return torch.version.hip is not None


def settings(n):
    most = 65536
    block = triton.next_power_of_2(n)
    if block > most:
        raise RuntimeError("too wide")
    warps = 4
    if block >= 32768:
        warps = 32 if not is_hip() else 16
    elif block >= 1024:
        warps = 8
    return block, warps


def width():
    return 2
""",
    "ops/scale.py": """import torch
import triton
import triton.language as tl

from package.utils import settings

_UP: tl.constexpr = tl.constexpr(1)
_MODES = {"up": _UP.value, "down": -1}
if torch.cuda.is_available():
    LEAST = 1
else:
    LEAST = 7


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, MODE: tl.constexpr, FACTOR: tl.constexpr, LEAST: tl.constexpr, GRAD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    if GRAD:
        x += LEAST
    tl.store(y_ptr + row * n + at, x * FACTOR * MODE - LEAST, mask=at < n)


def launch(x, mode, factor):
    if not isinstance(mode, int):
        mode = _MODES[mode]
    m, n = x.shape
    y = torch.empty_like(x)
    BLOCK, warps = settings(n)
    ctas = min(m, torch.cuda.get_device_properties(x.device).multi_processor_count)
    scale_kernel[(ctas,)](x, y, n, MODE=mode, FACTOR=factor, LEAST=LEAST, GRAD=x.requires_grad, BLOCK=BLOCK, num_warps=warps)
    return y


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode="up", factor=0.5):
        if isinstance(x, torch.distributed.tensor.DTensor):
            x = x.full_tensor()
        return launch(x, mode, factor)
""",
}
"""A package whose launch rests on helpers of other modules, and on defaults of whoever calls it."""


def test_helpers_of_other_modules_and_defaults_of_callers_are_followed(tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        (file := tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    binding, told = launched(str(tmp_path / "package" / "ops" / "scale.py"))
    assert binding is not None
    assert binding.metas == {"MODE": 1, "FACTOR": 0.5, "LEAST": 1, "GRAD": False, "BLOCK": 1024} and binding.options["num_warps"] == 8
    assert binding.grid == ["min(m, 132)"] and "multi_processor_count is 132" in "".join(told[0].notes)
    assert "x needs no gradient" in "".join(told[0].notes) and "n <= 1024" in binding.facts


def test_a_helper_that_is_not_there_leaves_its_question(tmp_path: Path) -> None:
    """Nor does a module that imports itself, or one that is no Python, do harm."""
    broken = {"utils/blocks.py": "from package.utils.blocks import settings\n", "utils/__init__.py": "from .blocks import settings\ndef (\n"}
    for name, text in {**PACKAGE, **broken}.items():
        (file := tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    with pytest.raises(KirError, match=r"KIR-S061.*metas.BLOCK"):
        launched(str(tmp_path / "package" / "ops" / "scale.py"))


def test_without_a_launch_a_kernel_stays_generic(tmp_path: Path) -> None:
    text = KERNELS["softmax with a scale (Triton)"]["scaled.py"].partition("def softmax_scale(")[0]
    (tmp_path / "alone.py").write_text(text, encoding="utf-8")
    with pytest.raises(KirError) as refused:
        load_expert(str(tmp_path / "alone.py"))
    assert refused.value.diagnostics[0].id == "KIR-S016"


def test_launches_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = laid(tmp_path, "addition (TileLang)")
    file.write_text(file.read_text(encoding="utf-8") + "\n\ndef wide(a, b):\n    n = a.shape[0]\n    return elementwise_add(n, block=512)(a, b)\n",
                    encoding="utf-8")
    code, _, err = called(capsys, "parse", str(file), "--normal")
    assert code == 0 and "tl_add.py:23 launches it with block = 512" in err
    code, out, _ = called(capsys, "bind", str(file), "--launch", "23")
    assert code == 0 and "block = 512" in out and " (--launch " in out, "the other one is named in the binding"
    code, _, err = called(capsys, "bind", str(file), "--launch", "7")
    assert code == 2 and "KIR-S062" in err


def test_a_refusal_of_the_host_is_a_fact(tmp_path: Path) -> None:
    file = laid(tmp_path, "softmax with a scale (Triton)")
    text = file.read_text(encoding="utf-8").partition("if __name__")[0]
    made = "    y = torch.empty_like(x)"
    file.write_text(text.replace(made, "    assert n % 8 == 0\n    if n > 512:\n        raise ValueError\n" + made), encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None and {"n % 8 == 0", "n <= 512"} <= set(binding.facts)


def test_a_cuda_check_is_a_fact_and_a_driver_launch_is_read(tmp_path: Path) -> None:
    file = tmp_path / "scale.cu"
    file.write_text('''
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
void run(CUmodule mod, CUdeviceptr unused, int n) {
    CUfunction f;
    float *x, *y;
    if (n % 4 != 0) throw 1;
    cuModuleGetFunction(&f, mod, "scale");
    cudaMalloc(&x, sizeof(float) * n);
    cudaMalloc(&y, sizeof(float) * n);
    void* args[] = {&x, &y, &n};
    cuLaunchKernel(f, (n + 127) / 128, 1, 1, 128, 1, 1, 0, 0, args, 0);
}
''', encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None
    assert binding.grid == ["ceildiv(n, 128)"] and binding.tensors["x"].shape == ["n"] and "n % 4 == 0" in binding.facts and binding.metas["threads_x"] == 128


def test_answers_are_asked_for_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    file = laid(tmp_path, "RMS norm as an autograd function (Triton)")
    monkeypatch.setattr("sys.stdin", io.StringIO("float17\nf16\nf16\nf16\n\n"))
    code, _, err = called(capsys, "bind", str(file), "--ask")
    assert code == 0 and "no dtype 'float17'" in err and err.count("which dtype has X?") == 2
    kept = Binding.read(tmp_path / "rms._rms_fwd.bind.toml")
    monkeypatch.setattr("sys.stdin", io.StringIO("f16\n"))
    (tmp_path / "rms._rms_fwd.bind.toml").unlink()
    code, _, err = called(capsys, "bind", str(file), "--ask")
    assert code == 2 and "there was no answer to 'which dtype has W?'" in err and "--yes" in err and not list(tmp_path.glob("*.toml"))
    assert {t.dtype for t in kept.tensors.values()} == {"f16"} and kept.tensors["W"].shape == ["N"]


TUNED = """import torch, triton
import triton.language as tl
from elsewhere import tuned_for


@tuned_for("sums")
@triton.jit
def sums_kernel(x_ptr, y_ptr, at_ptr, B, D: tl.constexpr, H: tl.constexpr, GIVEN: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLS)
    inside = (rows < B * H)[:, None] & (cols < D)[None, :]
    x = tl.load(x_ptr + rows[:, None] * D + cols[None, :], mask=inside, other=0.0)
    if GIVEN:
        x += tl.load(at_ptr + cols)[None, :]
    tl.store(y_ptr + rows, tl.sum(x, axis=1), mask=rows < B * H)


def sums(x, at=None, step: int = 1):
    B, H, D = x.shape
    assert step == 2 ** (step.bit_length() - 1)
    y = torch.empty((B * H,), device=x.device)
    grid = lambda meta: (triton.cdiv(B if at is None else len(at), step) * triton.cdiv(H, meta["ROWS"]),)
    sums_kernel[grid](x, y, at, B, D, H, at is not None)
    return y
"""


def test_the_usual_call_leaves_out_what_is_none_by_default_and_a_tuner_s_tiles_are_assumed(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TUNED, encoding="utf-8")
    binding, told = launched(str(tmp_path / "sums.py"))
    assert binding is not None and binding.absent == ["at_ptr"] and binding.metas["GIVEN"] is False
    assert {k: binding.metas[k] for k in ("D", "H", "ROWS", "COLS")} == {"D": 64, "H": 64, "ROWS": 64, "COLS": 64}, "two of each: smaller than one alone"
    assert "D, H, ROWS and COLS are 64" in "".join(told[0].notes), "what is alike is said once"
    assert binding.grid == ["ceildiv(64, ROWS) * ceildiv(B, n_step)"], "the step is a number though it is said to be a power of two"


def test_a_caller_ties_sizes_to_tensors_and_both_ways_of_a_branch_are_followed(tmp_path: Path) -> None:
    caller = """
def inner(x, y, B, H, D):
    sums_kernel[(triton.cdiv(B * H, 32),)](x, y, None, B, D, H, False, ROWS=32, COLS=64)
    return y


def other(x):
    return x


def outer(x):
    B, H, D = x.shape
    y = torch.empty((B * H,), device=x.device)
    if x.stride(0) == x.data_ptr() and x.size(0) > 7:
        assert B % 8 == 0
        return other(x)
    return inner(x, y, B, H, D)
"""
    (tmp_path / "sums.py").write_text(TUNED.partition("def sums(")[0] + caller, encoding="utf-8")
    binding, _ = launched(str(tmp_path / "sums.py"))
    assert binding is not None and binding.sizes == ["B"] and binding.tensors["x_ptr"].shape == ["B", 64, 64], "D and H are the tensor's, and compile-time"
    assert binding.tensors["y_ptr"].shape == ["B * 64"] and binding.facts == ["B >= 1"], "what the other way checks is no promise of this one"


def test_only_the_own_package_of_those_installed_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following torch and triton themselves took twenty seconds, and taught nothing."""
    site = tmp_path / "site-packages"
    other = {"other/__init__.py": "from other.deep import *\n", "other/deep.py": "def settings(n):\n    return 32, 4\n"}
    for name, text in {**{f"package/{k}": v for k, v in PACKAGE.items()}, **other}.items():
        (file := site / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("import triton.language as tl\n", "import triton.language as tl\nimport other\n"), encoding="utf-8")
    read: list[Path] = []
    whole = Path.read_bytes

    def noted(self: Path) -> bytes:
        read.append(self)
        return whole(self)
    monkeypatch.setattr(Path, "read_bytes", noted)
    binding, _ = launched(str(site / "package" / "ops" / "scale.py"))
    assert binding is not None and binding.metas["BLOCK"] == 1024
    assert site / "package" / "utils" / "blocks.py" in read and not [p for p in read if "other" in p.parts]


VECTORS = """
#define BY_WIDTH(width, WIDTH, ...) \\
  switch (width) { \\
    case 4: { constexpr unsigned WIDTH = 4; __VA_ARGS__ break; } \\
    case 1: { constexpr unsigned WIDTH = 1; __VA_ARGS__ break; } \\
    default: { throw 1; } \\
  }
template <unsigned WIDTH>
__global__ void twice(const float* x, float* y, unsigned d, unsigned stride_x, unsigned stride_y) {
  for (unsigned i = (threadIdx.y * 32 + threadIdx.x) * WIDTH; i < d; i += blockDim.y * 32 * WIDTH)
    for (unsigned j = 0; j < WIDTH; j++)
      if (i + j < d) y[blockIdx.x * stride_y + i + j] = 2.0f * x[blockIdx.x * stride_x + i + j];
}
void run(const float* x, float* y, unsigned rows, unsigned d, unsigned stride_x, unsigned stride_y) {
  const unsigned width = std::gcd(16 / sizeof(float), d);
  const unsigned threads = std::min<unsigned>(1024, d / width);
  const unsigned warps = (threads + 31) / 32;
  dim3 grid(rows), block(32, warps);
  BY_WIDTH(width, WIDTH, { twice<WIDTH><<<grid, block>>>(x, y, d, stride_x, stride_y); });
}
"""


def test_a_dispatch_over_a_number_takes_its_first_case_and_the_block_follows(tmp_path: Path) -> None:
    (tmp_path / "twice.cu").write_text(VECTORS, encoding="utf-8")
    binding, told = launched(str(tmp_path / "twice.cu"))
    assert binding is not None and {k: binding.metas[k] for k in ("threads_x", "threads_y", "WIDTH")} == {"threads_x": 32, "threads_y": 8, "WIDTH": 4}
    assert binding.tensors["x"].shape == ["rows", "stride_x"] and binding.tensors["y"].shape == ["rows", "stride_y"], "rows apart by their strides"
    assert {"d % 4 == 0", "stride_x >= d", "stride_x % 4 == 0", "stride_y >= d"} <= set(binding.facts), "what gcd divides; rows that do not run together"
    assert "d up to 1024" in "".join(told[0].notes) and "stride_x >= d" in "".join(told[0].notes)


GATED = """import torch, triton
import triton.language as tl


@triton.jit
def gated_kernel(a_ptr, b_ptr, c_ptr, stride, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    a = tl.load(a_ptr + row * stride + cols)
    tl.store(c_ptr + row * stride + cols, a * tl.load(b_ptr + row * stride + cols))


def gated(a, b):
    width = a.shape[-1]
    a, b = a.view(-1, width), b.view(-1, width)
    rows = a.shape[0]
    c = torch.empty_like(a)
    gated_kernel[(rows,)](a, b, c, c.stride(-2), N=width)
    return c
"""


def test_an_extent_that_nobody_compares_is_as_far_as_the_kernel_reaches(tmp_path: Path) -> None:
    """The host code never says that both tensors have as many rows."""
    (tmp_path / "gated.py").write_text(GATED, encoding="utf-8")
    binding, told = launched(str(tmp_path / "gated.py"))
    assert binding is not None and len(binding.sizes) == 1
    assert binding.tensors["a_ptr"].shape == binding.tensors["b_ptr"].shape == [binding.sizes[0], 1024]
    assert f"b_ptr has {binding.sizes[0]} x 1024 elements: all that the kernel reaches" in "".join(told[0].notes)


@pytest.mark.parametrize("said", [
    "assert a.dtype == torch.bfloat16 and b.dtype == torch.float16",
    "if a.dtype != torch.bfloat16 or not b.dtype == torch.float16:\n        raise TypeError",
])
def test_a_dtype_that_every_call_must_have_is_said(said: str, tmp_path: Path) -> None:
    (tmp_path / "gated.py").write_text(GATED.replace("    width =", f"    {said}\n    width ="), encoding="utf-8")
    binding, told = launched(str(tmp_path / "gated.py"))
    assert binding is not None and [binding.tensors[x].dtype for x in ("a_ptr", "b_ptr", "c_ptr")] == ["bf16", "f16", "bf16"]
    assert not any(word in note for note in told[0].notes for word in ("a_ptr is bf16", "b_ptr is f16")), "nothing of it is assumed"


def test_rows_of_a_tensor_that_are_a_stride_apart_are_no_longer_than_that(tmp_path: Path) -> None:
    """The host code shows the width of one tensor alone: the other is as many rows of its stride, and a row of the kernel fits into it."""
    text = GATED.replace("c_ptr, stride, N: tl.constexpr", "c_ptr, stride, b_stride, width, N: tl.constexpr")
    text = text.replace("b_ptr + row * stride", "b_ptr + row * b_stride")
    text = text.replace("stride + cols)", "stride + cols, mask=cols < width)").replace("a, b = a.view(-1, width), b.view(-1, width)", "a = a.view(-1, width)")
    text = text.replace("c.stride(-2), N=width", "c.stride(-2), b.stride(-2), width, N=triton.next_power_of_2(width)")
    (tmp_path / "gated.py").write_text(text, encoding="utf-8")
    binding, told = launched(str(tmp_path / "gated.py"))
    assert binding is not None and binding.tensors["b_ptr"].shape[1] == "b_stride"
    (width,) = (x for x in binding.sizes if x not in binding.tensors["b_ptr"].shape)
    assert f"b_stride >= {width}" in binding.facts and f"b_stride >= {width}" in "".join(told[0].notes)


def test_a_table_that_is_looked_up_keeps_its_length(tmp_path: Path) -> None:
    """How far an index reaches is in its values, so that no small run shows it."""
    text = GATED.replace("tl.load(b_ptr + row * stride + cols)", "tl.load(b_ptr + tl.load(i_ptr + row) * stride + cols)")
    text = text.replace("b_ptr, c_ptr", "b_ptr, i_ptr, c_ptr")
    text = text.replace("gated(a, b)", "gated(a, b, i: torch.Tensor)")
    text = text.replace("(a, b, c,", "(a, b, i.to(torch.int64), c,")
    (tmp_path / "looked_up.py").write_text(text, encoding="utf-8")
    binding, _ = launched(str(tmp_path / "looked_up.py"))
    assert binding is not None and binding.tensors["i_ptr"].dtype == "i64"
    assert binding.tensors["b_ptr"].shape[0] != binding.tensors["a_ptr"].shape[0] and len(binding.sizes) >= 2


ROTATED = """
import torch
import triton
import triton.language as tl


@triton.jit
def rotated_kernel(x_ptr, cos_ptr, out_ptr, heads, HALF: tl.constexpr):
    pid, at = tl.program_id(0), tl.arange(0, HALF)
    c = tl.load(cos_ptr + pid // heads * HALF + at)
    a, b = tl.load(x_ptr + pid * 2 * HALF + at), tl.load(x_ptr + pid * 2 * HALF + HALF + at)
    tl.store(out_ptr + pid * 2 * HALF + at, a * c)
    tl.store(out_ptr + pid * 2 * HALF + HALF + at, b * c)


def rotated(x, cos):
    length, heads, width = x.shape
    out = torch.empty_like(x)
    rotated_kernel[(length * heads,)](x, cos, out, heads, HALF=64)
    return out
"""


def test_an_extent_that_tensors_share_and_nothing_else_is_as_far_as_the_kernel_reaches(tmp_path: Path) -> None:
    """The host code never says that a width that it leaves open is that of two halves."""
    (tmp_path / "rotated.py").write_text(ROTATED, encoding="utf-8")
    binding, _ = launched(str(tmp_path / "rotated.py"))
    assert binding is not None and len(binding.sizes) == 2
    assert binding.tensors["x_ptr"].shape == binding.tensors["out_ptr"].shape == [*binding.sizes, 128]


def test_a_parameter_of_a_factory_that_nothing_uses_is_no_fault_of_its_launch(tmp_path: Path) -> None:
    file = laid(tmp_path, "addition (TileLang)")
    text = file.read_text(encoding="utf-8")
    assert "threads=128" in text
    file.write_text(text.replace("threads=128", "spare=3, threads=128", 1), encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None and binding.metas == {"block": 256, "threads": 128}
    assert not is_generic(load_expert(str(file)).program)


BOXED = """import torch, triton
import triton.language as tl


@triton.jit
def boxed_kernel(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    y.store([i, j], x.load([i, j]) * 2)


def run(x, y, M, N):
    boxed_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](described(x), described(y), M, N, BM=32, BN=32)
"""


def test_an_answer_of_too_few_axes_for_a_box_leaves_the_other_questions(tmp_path: Path) -> None:
    file = tmp_path / "boxed.py"
    file.write_text(BOXED)
    reader, _ = kernel_of(file, "boxed_kernel")
    found = launches_of(reader, file, "boxed_kernel")[0]
    asked: list[str] = []

    def answer(question: Question, wrong: str) -> str:
        asked.append(".".join(question.field))
        return "64" if question.field == ("tensors", "x", "shape") else question.proposal or "ceildiv(M, 4), N"
    made = all_answered(found.binding, found.assumed, under(reader, file, "boxed_kernel"), answer)
    assert {k: t.shape for k, t in made.tensors.items()} == {"x": [64], "y": ["ceildiv(M, 4)", "N"]}, asked


BARRED = """import torch, triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, BACK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + (n - 1 - at if BACK else at), tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def thrice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 3, mask=at < n)


def newer():
    return False


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


def width(x):
    if x.dtype is torch.float32:
        return 128
    if x.dtype is torch.float16:
        return 256
    raise TypeError("another dtype")


def run(x, out, thrice: bool = False):
    x_own = x.contiguous()
    wide = width(x)
    n = x_own.numel()
    if n == 0:
        if out is not x_own:
            out.copy_(x_own)
        return out
    if newer():
        double_kernel[(triton.cdiv(n, 64),)](x_own, out, n, BLOCK=64)
        return out
    if thrice:
        thrice_kernel[(triton.cdiv(n, 128),)](x_own, out, n, BLOCK=128)
    else:
        twice_kernel[(triton.cdiv(n, wide),)](x_own, out, n, BLOCK=wide, BACK=thrice)
    return out
"""


def test_what_returns_before_a_launch_is_no_way_to_it_and_a_flag_is_what_its_branch_needs(tmp_path: Path) -> None:
    (tmp_path / "barred.py").write_text(BARRED)
    first, second, third = (launched(f"{tmp_path / 'barred.py'}::{name}_kernel")[0] for name in ("twice", "thrice", "double"))
    assert first is not None and first.grid == ["ceildiv(n, 128)"] and first.metas == {"BLOCK": 128, "BACK": False}
    assert second is not None and second.grid == ["ceildiv(n, 128)"] and second.metas == {"BLOCK": 128}
    assert third is not None and third.grid == ["ceildiv(n, 64)"] and third.metas == {"BLOCK": 64}
    assert first.tensors["x_ptr"].shape == second.tensors["x_ptr"].shape == ["n"]


BLOCKS = """#pragma once
namespace launch {
constexpr int THREADS = 512;
inline int blocks(const long n, const long threads = THREADS) {
  if (!(n > 0)) { throw 1; }
  auto count = (n - 1) / threads + 1;
  return static_cast<int>(count);
}
inline int deep(int n) { return deep(n); }
inline int grown(int n, int by) { return n * by; }
}
"""


@pytest.mark.parametrize(("grid", "found"), [("blocks(n)", "(n - 1) // 512 + 1"), ("blocks(n, 256)", "(n - 1) // 256 + 1"), ("deep(n)", "?"), ("gone(n)", "?"),
                                             ("grown(n)", "?")])
def test_a_short_function_of_a_header_says_how_large_the_grid_is(grid: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "blocks.h").write_text(BLOCKS, encoding="utf-8")
    file = tmp_path / "scale.cu"
    file.write_text(f"""#include "include/blocks.h"
__global__ void scale(float* x, int n) {{
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.f;
}}
void run(float* x, int n) {{ scale<<<launch::{grid}, 512>>>(x, n); }}
""", encoding="utf-8")
    code = called_binding(file)
    assert code.grid == [found] and code.metas["threads_x"] == 512


def called_binding(file: Path) -> Binding:
    """The binding of the launch that is taken first, with what is open."""
    path, name = located(str(file))
    reader, ref = kernel_of(path, name)
    return launches_of(reader, path, ref.name)[0].binding


@pytest.mark.parametrize(("name", "text"), [
    ("none.cu", "__global__ void k(float* x, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = 2.f * x[i];\n}\n"),
    ("none.py", "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x, n, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n"
                "    tl.store(x + i, 2.0 * tl.load(x + i, mask=i < n), mask=i < n)\n")])
def test_a_file_beside_with_a_kernel_of_the_same_name_launches_its_own(name: str, text: str, tmp_path: Path) -> None:
    file, other = tmp_path / name, tmp_path / f"other{Path(name).suffix}"
    file.write_text(text, encoding="utf-8")
    launch = ("\nvoid go(float* x, int n) { k<<<(n + 255) / 256, 256>>>(x, n); }\n" if name.endswith(".cu") else
              "\n\ndef go(x):\n    n = x.numel()\n    k[(triton.cdiv(n, 256),)](x, n, B=256)\n")
    other.write_text(text + launch, encoding="utf-8")
    assert launched(str(file)) == (None, ()) and launched(str(other))[0] is not None
    declared = "__global__ void k(float* x, int n);\n" if name.endswith(".cu") else "import triton\nfrom none import k\n"
    other.write_text(declared + launch, encoding="utf-8")
    assert launched(str(file))[0] is not None
