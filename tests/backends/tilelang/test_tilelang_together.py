"""What lanes of a warp do together is done by all of them, however few of them store or take what comes of it."""
from __future__ import annotations

import pytest

from kir.gate.proved.compiled import judged
from kir.ir.parser import parse_program
from kir.surface import Translated, backend

VOTED = """kir 1
program voted
  size N: i32
  fact N >= 1
  in X: f32[N]
  inout Y: f32[N]
kernel main grid (b: ceildiv(N, 32)) threads 32
  for t in 0..32 parallel thread
    let x = load(X[b * 32 + t] else 1.0 clip)
    Y[b * 32 + t] = {} clip
"""


@pytest.mark.parametrize(("value", "first", "then"), [
    ("select(vote_any(x < 0.5), x, 2.0)", "lane_0 = (T.any_sync(x < 0.5) != 0)", "T.if_then_else(lane_0, x, 2.0)"),
    ("select(x < 0.0, shfl_xor(x, 1), x)", "lane_0 = T.shfl_xor(x, 1)", "T.if_then_else(x < 0.0, lane_0, x)"),
    ("select(x < 0.0, shfl_xor(shfl_xor(x, 1), 2), x)", "lane_1 = T.shfl_xor(lane_0, 2)", "T.if_then_else(x < 0.0, lane_1, x)"),
])
def test_a_store_asks_its_lanes_first(value: str, first: str, then: str) -> None:
    lines = [line.strip() for line in backend("tilelang").emit(parse_program(VOTED.format(value), "voted.kir")).text.splitlines()]
    assert first in lines and lines.index(first) < next(i for i, line in enumerate(lines) if then in line)


def test_a_vote_behind_the_edge_of_a_tensor_is_refused_in_what_was_compiled() -> None:
    """What TileLang made of it before: `kir gate --validate` shows the lanes that are missing."""
    text = """extern "C" __global__ void __launch_bounds__(32, 1) main_kernel(const float* __restrict__ X, float* __restrict__ Y, int N) {
  float x = (((int)blockIdx.x) * 32 + ((int)threadIdx.x)) < N ? X[(((int)blockIdx.x) * 32 + ((int)threadIdx.x))] : 1.0f;
  bool any = __any_sync((uint)4294967295, (x < 0.5f)) != 0;
  if ((((int)blockIdx.x) * 32 + ((int)threadIdx.x)) < N) {
    Y[(((int)blockIdx.x) * 32 + ((int)threadIdx.x))] = any ? x : 2.0f;
  }
}
"""
    program = parse_program(VOTED.format("select(vote_any(x < 0.5), x, 2.0)"), "voted.kir")
    vote = "__any_sync((uint)4294967295, (x < 0.5f)) != 0"
    late = text.replace(f"  bool any = {vote};\n", "").replace("any ?", f"({vote}) ?")
    assert judged(program, Translated("main", "main_kernel", text, 32)).status == "holds"
    assert judged(program, Translated("main", "main_kernel", late, 32)).status == "refuted"


@pytest.mark.parametrize(("threads", "size", "can"), [(32, 16, True), (64, 16, True), (128, 16, False), (128, 32, True), (96, 16, False)])
def test_a_product_is_written_where_its_warps_can_share_it_out(threads: int, size: int, can: bool) -> None:
    """Each has multiples of 16 rows and 8 columns; TileLang's compiler ends with an error otherwise."""
    text = (f"kir 1\nprogram p\n  in A: f16[{size}, 16]\n  in B: f16[16, {size}]\n  out C: f32[{size}, {size}]\nkernel main grid (b: 1) threads {threads}\n"
            f"  shared sA: f16[{size}, 16]\n  shared sB: f16[16, {size}]\n  fragment acc: f32[{size}, {size}] = 0.0\n  copy A -> sA\n  copy B -> sB\n"
            "  mma acc += sA * sB\n  copy acc -> C\n")
    refusals = backend("tilelang").accepts(parse_program(text, "p.kir"))
    assert bool(refusals) != can and (can or "shared out" in refusals[0].message)
