"""Tile products that leave everything open, as CUDA: decided by passes, lowered to lanes, compiled, and run on the host."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.analysis import normalize
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.rewrite.meaning import difference, interpreted
from kir.rewrite.pipelines.pipeline import run
from kir.surface import backend
from tests.backends.conftest import Arrays
from tests.backends.cuda.host_cuda import agrees

GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: {dtype}[M, K] align 16
  in B: {dtype}[K, N] align 16
  out C: {out}[M, N] align 16
  fact N % 8 == 0
  fact K % 8 == 0
kernel main grid (pid: ceildiv(M, 32) * ceildiv(N, 32)) threads 64
  let pid_m = pid // ceildiv(N, 32)
  let pid_n = pid % ceildiv(N, 32)
  fragment acc: {acc}[32, 32] = 0{point}
  for k in 0..ceildiv(K, 32) pipelined {{stages=3}}
    let a = load(A[pid_m * 32 +: 32, k * 32 +: 32] else 0{point}:{dtype} clip)
    let b = load(B[k * 32 +: 32, pid_n * 32 +: 32] else 0{point}:{dtype} clip)
    mma acc += a * b{precision}
  let c = cast(acc, {out})
  C[pid_m * 32 +: 32, pid_n * 32 +: 32] = c clip
"""


def gemm(dtype: str = "f16", acc: str = "f32", out: str = "f16", precision: str = "") -> n.Program:
    point = "" if dtype[0] in "iu" else ".0"
    zero = "0:i32" if acc == "i32" else "0.0" + (":f16" if acc == "f16" else "")
    text = GEMM.format(dtype=dtype, acc=acc, out=out, point=point, precision=precision).replace(f"= 0{point}\n", f"= {zero}\n")
    if dtype == "f32":
        text = text.replace("0.0:f32 clip", "0.0 clip")
    return normalize(parse_program(text, "gemm.kir"))


def test_an_open_product_becomes_a_ring_with_tensor_cores() -> None:
    text = backend("cuda").emit(gemm()).text
    for part in ("copy_async<16>", "copy_async_wait<1>", "load_matrix_4(", "load_matrix_4_trans(", "mma_m16n8k16_f16(", "swizzled<"):
        assert part in text, part


def test_the_plan_is_a_pipeline_that_can_be_run_again() -> None:
    from kir.backends.cuda.lowering.planning import is_open, planned
    p = gemm()
    made, steps = planned(p, "main")
    assert is_open(p.kernels[0]) and not is_open(made.kernels[0])
    assert alpha_equal(run(p, "; ".join(steps)).program, made)
    assert difference(interpreted(p, {"M": 40, "N": 40, "K": 72}), interpreted(made, {"M": 40, "N": 40, "K": 72}), "reassociated(k)") == ""


def test_lowered_it_is_free_of_hazards() -> None:
    from kir.backends.cuda.lowering.thread_code import thread_code
    made = thread_code(gemm())[0]
    assert interpreted(made, {"M": 40, "N": 40, "K": 136}, checked=True).errors == ()


DTYPES = {"f16": ("f16", "f32", "f16", ""), "f16 into f16": ("f16", "f16", "f16", ""), "tf32": ("f32", "f32", "f32", " precision tf32"),
          "i8": ("i8", "i32", "i32", ""), "u8": ("u8", "i32", "i32", "")}


@pytest.mark.gxx
@pytest.mark.parametrize("what", ["f16", "f16 into f16", "tf32", "i8"])
def test_on_the_host_it_computes_what_the_interpreter_does(tmp_path: Path, what: str) -> None:
    random = np.random.default_rng(3)
    dtype, acc, out, precision = DTYPES[what]
    sizes = {"M": 40, "N": 40, "K": 72}
    kinds = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i8": np.int8, "u8": np.uint8}

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return (random.normal(size=shape) if dtype[0] == "f" else random.integers(0, 100, shape)).astype(kinds[dtype])
    arrays: Arrays = {"A": drawn(40, 72), "B": drawn(72, 40), "C": np.zeros((40, 40), kinds[out])}
    p = gemm(dtype, acc, out, precision)
    assert "mma_m16n8k" in backend("cuda").emit(p).text
    agrees(p, tmp_path, arrays, sizes, tolerance=2**-6 if acc == "f16" else 2**-9 if dtype[0] == "f" else 0.0)


@pytest.mark.nvcc
@pytest.mark.sass
@pytest.mark.parametrize("what", [*DTYPES, "bf16"])
def test_it_compiles_without_spills(what: str) -> None:
    cuda = backend("cuda")
    p = gemm(*DTYPES.get(what, ("bf16", "f32", "bf16", "")))
    for name in ("sm_80", "sm_90a")[:1 + (what == "f16")]:
        (made,) = cuda.compile(cuda.emit(p), target(name)).kernels
        assert made.spills == 0 and any(op in ("HMMA", "IMMA") for op in made.mix)


SKILLS = Path(__file__).parents[3] / "skills"


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_the_generated_gemm_takes_no_more_than_the_one_written_by_hand(name: str) -> None:
    """Registers, spills and shared memory of gemm_sm80.cu as it stands, and of what is written for the tiles that it is raised to."""
    from kir.rewrite import apply, sites
    from kir.rewrite.registry import pass_class
    from kir.surface.reading import load_expert
    cuda, source = backend("cuda"), SKILLS / "experts" / "gemm" / "gemm_sm80.cu"
    p = load_expert(f"{source}::gemm_sm80", SKILLS / "bindings" / "gemm_sm80.toml").program
    (site,) = sites(pass_class("lower-mma").with_options({}), p, "backward")
    emitted = cuda.emit(apply(p, site.params, site, "backward").program)
    (made,) = cuda.compile(emitted, target(name)).kernels
    function = "_Z9gemm_sm80ILi128ELi128ELi32ELi3EEvPK6__halfS2_PS0_iii"
    by_hand = replace(emitted, text=source.read_text(encoding="utf-8"), entries=(replace(emitted.entries[0], function=function),))
    (expert,) = cuda.compile(by_hand, target(name)).kernels
    assert made.spills == expert.spills == 0
    assert made.registers <= expert.registers and made.shared_bytes <= expert.shared_bytes, (made.record(), expert.record())
