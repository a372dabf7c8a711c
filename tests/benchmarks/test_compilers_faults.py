"""What releases of TileLang made of right kernels: a lost barrier is found, and a text that has its barriers is proved."""
from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checks.compilers_faults import FOLDER, TEXTS, Text, as_said, judged, otherwise, page
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.visit import walk
from tests.programs import from_source


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: f"{t.kernel}-{t.release}")
def test_a_text_is_judged_as_its_row_says(text: Text) -> None:
    done = judged(text)
    assert as_said(text, done)
    if text.kind == "values":
        assert "and" in otherwise(text)
    elif text.kind:
        assert any(f.kind == text.kind and f.shown for f in done.findings)


def test_a_right_text_without_its_barrier_is_not_proved(tmp_path: Path) -> None:
    """The must-fail side of each right row."""
    for text in (t for t in TEXTS if not t.kind and t.surface == "tilelang"):
        source = text.path.read_text()
        at = source.rindex("__syncthreads();")
        broken = Text(text.kernel, text.release, "race", text.issue)
        (tmp_path / text.path.name).write_text(source[:at] + source[at + len("__syncthreads();"):])
        done = judged(broken, tmp_path / text.path.name)
        assert as_said(broken, done), text


def test_ptx_that_lacks_its_barrier_or_its_mask_is_not_right(tmp_path: Path) -> None:
    """The must-fail side of the right rows of Triton: `spread` without the mask of a store is 3.8.0's fault, and without a barrier another."""
    right = next(t for t in TEXTS if t.surface == "triton" and t.kernel == "spread" and not t.kind)
    source = right.path.read_text()
    for i, broken in enumerate((source.replace("\tbar.sync \t0;\n", "", 1), source.replace("@%p1 st.shared", "st.shared", 1))):
        (tmp_path / f"{i}.ptx").write_text(broken)
        assert broken != source and not as_said(right, judged(right, tmp_path / f"{i}.ptx")), i


def test_the_page_has_a_row_for_each_text() -> None:
    rows = [(t, judged(t)) for t in TEXTS[:2]]
    written = "\n".join(page(rows))
    assert written.count("`kir check") == 2 and "1 texts with a fault" in written and all((FOLDER / f"{t.kernel}.toml").is_file() for t in TEXTS)


REDUCED = """#include <tl_templates/cuda/reduce.h>
extern "C" __global__ void __launch_bounds__(128, 1) reduced(const float* __restrict__ X, float* __restrict__ Y) {
  extern __shared__ __align__(1024) uchar buf_dyn_shmem[];
  void* workspace = ((void*)((char*)buf_dyn_shmem + 0));
  float part[1];
  part[0] = X[((int)threadIdx.x)];
  part[0] = tl::AllReduce<tl::SumOp, 128, 1, 0, tl::NamedBarrier<128>>::run(part[0], (&(((float*)workspace)[0])));
  Y[((int)threadIdx.x)] = part[0];
}
"""


def test_a_reduction_of_tilelang_s_own_header_is_read(tmp_path: Path) -> None:
    """Four named barriers, two steps through memory, five shuffles; nothing stays text."""
    binding = Binding.parse('kernel = "reduced"\ngrid = [1]\n[metas]\nthreads_x = 128\nshared_bytes = 512\n'
                            '[tensors.X]\nshape = [128]\ndtype = "f32"\nrole = "in"\n[tensors.Y]\nshape = [128]\ndtype = "f32"\nrole = "out"\n')
    p = from_source(tmp_path, "reduced.cu", REDUCED, "reduced", binding.text())
    calls = [x.fn for x in walk(p) if isinstance(x, n.Call)]
    assert not [x for x in walk(p) if isinstance(x, n.Opaque)] and sum("named_barrier" in c for c in calls) == 4 and calls.count("shfl_xor") >= 1


def test_what_ptxas_makes_of_a_sign_is_told_by_release() -> None:
    told = "\n".join(page([]))
    assert "| nvcc 13.0.88 sm_80 | right" in told and "| nvcc 13.0.88 sm_90a | a sign is lost" in told
