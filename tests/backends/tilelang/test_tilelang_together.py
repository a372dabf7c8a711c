"""What lanes of a warp do together is done by all of them, however few of them store or take what comes of it."""
from __future__ import annotations

import pytest

from kir.gate.proved.compiled import judged
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
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


@pytest.mark.parametrize(("head", "last", "many", "waits"), [
    ("", "", "ceildiv(L, 64)", False),  # as often as not: L >= 1
    ("  let length = lengths[0]\n", "", "ceildiv(length, 64)", True),  # what data say may be 0
    ("", "", "ceildiv(max(b - 1, 0), 64)", True),  # 0 in the first blocks
    ("  let length = lengths[0]\n", "  copy Qs -> O[b * 64 +: 64, 0 +: 64] clip\n", "ceildiv(length, 64)", True),
    ("  let length = lengths[0]\n", "", "ceildiv(max(length, 1), 64)", False),
])
def test_a_copy_waits_where_it_stands_before_a_pipelined_loop_that_may_not_run(head: str, last: str, many: str, waits: bool) -> None:
    """By TMA it lands when its memory is another buffer's: TileLang waits for it in the loop."""
    program = parse_program(f"""kir 1
program p
  size L: i32
  in lengths: i32[1]
  in Q: f16[L, 64]
  in K: f16[L, 64]
  out O: f16[L, 64]
  fact L >= 1
  fact L <= 65536
kernel main grid (b: ceildiv(L, 64)) threads 128
{head}  shared Qs: f16[64, 64]
  shared Ks: f16[64, 64]
  fragment acc: f32[64, 64] = 0.0
  copy load(Q[b * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Qs
  for j in 0..{many} pipelined {{stages=2}}
    copy load(K[j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Ks
    mma acc += Qs * trans(Ks, 1, 0)
  O[b * 64 +: 64, 0 +: 64] = cast(acc, f16) clip
{last}""", "p.kir")
    text = backend("tilelang").emit(program).text
    assert text.count("disable_tma=True") == ("Qs, disable_tma=True)" in text) == waits
    unpipelined = backend("tilelang").emit(parse_program(program_text(program).replace(" pipelined {stages=2}", ""), "p.kir")).text
    assert "disable_tma" not in unpipelined, "it waits at once"
