"""Cache policies that a register holds: read as words of an access, and written as what makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.frontends.cuda.frontend import CudaFrontend
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.visit import walk
from kir.surface import backend

SOURCE = """
__global__ void kernel(float* to, const float* from) {
  unsigned long long held;
  asm("createpolicy.POLICY" : "=l"(held));
  float x;
  asm("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(x) : "l"(from + threadIdx.x), "l"(REGISTER));
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" :: "l"(to + threadIdx.x), "f"(x), "l"(held) : "memory");
}
"""


def program(folder: Path, policy: str, register: str = "held") -> n.Program:
    file = folder / "kernel.cu"
    file.write_text(SOURCE.replace("POLICY", policy).replace("REGISTER", register))
    return CudaFrontend().instantiate(file, "kernel", Binding(metas={"threads_x": 32}))


@pytest.mark.parametrize("priority", ["evict_first", "evict_last"])
def test_a_policy_of_all_lines_is_a_word_of_the_access(tmp_path: Path, priority: str) -> None:
    made = program(tmp_path, f"fractional.L2::{priority}.b64 %0, 1.0;")
    nodes = [x for k in made.kernels for s in k.body for x in walk(s)]
    assert not any(isinstance(x, n.Opaque) for x in nodes)
    assert {x.cache for x in nodes if isinstance(x, (n.Load, n.Store))} == {f"l2_{priority}"}
    binding = Binding(grid=["1"], metas={"threads_x": 32}, tensors={"to": Tensor([32], "f32"), "from": Tensor([32], "f32")})
    text = backend("cuda").emit(specialize(made, binding)).text
    assert text.count(f"createpolicy.fractional.L2::{priority}.b64") == 2 and text.count(".L2::cache_hint") == 2
    (tmp_path / "again.cu").write_text(text)
    again = CudaFrontend().parse(tmp_path / "again.cu", "kernel")
    assert {x.cache for k in again.kernels for s in k.body for x in walk(s) if isinstance(x, (n.Load, n.Store))} == {f"l2_{priority}"}


@pytest.mark.parametrize("policy, register, why", [
    ("fractional.L2::evict_first.b64 %0, 0.5;", "held", "of a part of the lines"),
    ("fractional.L2::evict_last.L2::evict_first.b64 %0, 1.0;", "held", "of a part of the lines"),
    ("fractional.L2::evict_first.b64 %0, 1.0;", "0ull", "that nothing says"),
])
def test_other_policies_stay_text(tmp_path: Path, policy: str, register: str, why: str) -> None:
    lost = [x.reason for k in program(tmp_path, policy, register).kernels for s in k.body for x in walk(s) if isinstance(x, n.Opaque)]
    assert any(why in reason for reason in lost), lost
