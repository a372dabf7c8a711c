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
