"""What is found of launches in host code that nobody here wrote before: nothing that the text says is asked for, and nothing is bound wrongly."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.lineage.engine import PassEngine
from kir.rewrite.meaning import difference, interpreted
from kir.surface.reading import launched, load_expert
from tests.laws.walks import walked
from tests.round_trips import CUDA as CUDA_TRIP
from tests.users import unseen_kernels, unseen_products
from tests.users.unseen_kernels import HALO, TILELANG, Unseen

CUDA = unseen_kernels.CUDA | unseen_products.CUDA
TRITON = unseen_kernels.TRITON | unseen_products.TRITON
WALKS = unseen_kernels.WALKS | unseen_products.WALKS


def _found(file: Path, kernel: str, each: Unseen) -> None:
    binding, _ = launched(f"{file}::{kernel}" if kernel else str(file))
    assert binding is not None
    assert {k: binding.tensors[k].shape for k in each.shapes} == each.shapes
    assert {k: binding.metas[k] for k in each.metas} == each.metas
    assert set(each.facts) == {f for f in binding.facts if not f.endswith(">= 1")}
    held = {**binding.dtypes, **{k: t.dtype for k, t in binding.tensors.items()}}
    assert {k: held[k] for k in each.dtypes or {}} == (each.dtypes or {})
    assert {k: binding.scalars[k] for k in each.scalars or {}} == (each.scalars or {})
    assert each.grid is None or binding.grid == each.grid
    assert each.arrays is None or binding.arrays == each.arrays


@pytest.mark.parametrize("name", CUDA)
def test_a_cuda_kernel_that_nobody_named_is_bound_as_its_launch_says(name: str, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(CUDA[name].text, encoding="utf-8")
    _found(tmp_path / "own.cu", "", CUDA[name])


@pytest.mark.parametrize("name", TRITON)
def test_a_triton_kernel_that_nobody_named_is_bound_as_its_launch_says(name: str, tmp_path: Path) -> None:
    each, kernel = TRITON[name]
    (tmp_path / "own.py").write_text(each.text, encoding="utf-8")
    _found(tmp_path / "own.py", kernel, each)


def test_extents_of_a_list_of_sizes_stay_sizes(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(TILELANG.text, encoding="utf-8")
    _found(tmp_path / "own.py", "", TILELANG)
    binding, _ = launched(str(tmp_path / "own.py"))
    assert binding is not None and binding.sizes == ["batch", "rows"]


@pytest.mark.parametrize("name", WALKS)
def test_a_kernel_that_nobody_named_is_walked_to_a_naive_program_of_the_same_meaning(name: str, tmp_path: Path) -> None:
    each = WALKS[name]
    file = tmp_path / f"own.{each.suffix}"
    file.write_text(each.text, encoding="utf-8")
    expert = load_expert(f"{file}::{each.kernel}" if each.kernel else str(file)).program
    found = walked(PassEngine(), expert, each.last).program
    assert is_naive(found) == ()
    assert difference(interpreted(expert, each.sizes, 1), interpreted(found, each.sizes, 1), "reassociated(k)") == ""


HALVES = """#include <cuda_fp16.h>
__global__ void gated(const half* g, half* y, int n) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < n) {
    half2 v = reinterpret_cast<const half2*>(&g[i])[0];
    reinterpret_cast<half2*>(&y[i])[0] = __hmul2(v, h2rcp(__hadd2(__float2half2_rn(1.0f), h2exp(__hneg2(v)))));
    y[i] = __hfma(hsqrt(__habs(y[i])), y[i], hlog2(y[i]));
  }
}
void run(const half* g, half* y, int n) { gated<<<(n / 2 + 127) / 128, 128>>>(g, y, n); }
"""


def test_functions_of_halves_are_written_back(tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(HALVES, encoding="utf-8")
    program = normalize(raised(load_expert(str(tmp_path / "own.cu")).program))
    CUDA_TRIP.is_read_back(program, tmp_path, 0)


def test_a_tensor_that_no_shape_fits_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(HALO, encoding="utf-8")
    with pytest.raises(KirError) as refused:
        launched(str(tmp_path / "own.cu"))
    assert refused.value.diagnostics[0].id == "KIR-S061" and "tensors.x.shape" in refused.value.diagnostics[0].message


def test_a_run_says_how_far_it_reached_where_it_is_asked() -> None:
    program = parse_program("""kir 1
program p
  size n: i32
  in x: f32[n]
  in i: i32[n]
  out y: f32[64]
kernel k grid (b: n) threads 32
  for t in 0..32 parallel thread
    if t < 3
      y[b * 4 + t] = load(x[i[b]] where t < 2 else 0.0)
""")
    x, i = np.ones(5, np.float32), np.array([3, 0, 1, 0, 2], np.int32)
    found = run(program, {"x": x, "i": i}, ends=True)
    assert dict(found.ends) == {"x": 4, "i": 5, "y": 19} and not found.errors
    assert dict(run(program, {"x": x, "i": i}).ends) == {}
