"""A skill that is wrongly materialized is put right: planted faults, each with the mend that makes the program right again."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.cards.card import Anchor, Carrier, Move, Parameter
from kir.learning.cards.mend import fault, mended
from kir.problem import load_problem
from kir.rewrite import Context
from tests.kir.learning.cards.test_card import a_card

COPIES = """kir 1
program summed
  size K: i32
  in X: f32[K]
  out Y: f32[128]
  fact K % 128 == 0
kernel main grid (i: 1) threads 32
  shared Xs: f32[128]
  fragment acc: f32[128] = 0.0
  for k in 0..K // 128
    copy X[k * 128 +: 128] -> Xs via cp_async grouped {vector=4}
    async_commit()
    async_wait(0)
    acc = acc + Xs
  Y = acc
"""
STAGED = """kir 1
program staged
  size K: i32
  in X: f32[K]
  out Y: f32[128]
  fact K % 128 == 0
  fact K >= 512
kernel main grid (i: 1) threads 32
  shared Xs: f32[3, 128]
  fragment acc: f32[128] = 0.0
  for s in 0..2
    copy X[s * 128 +: 128] -> Xs[s, 0 +: 128] via cp_async grouped {vector=4}
    async_commit()
  for k in 0..K // 128
    copy load(X[k * 128 + 256 +: 128] else 0.0 clip) -> Xs[(k + 2) % 3, 0 +: 128] via cp_async grouped {vector=4}
    async_commit()
    async_wait(2)
    acc = acc + Xs[k % 3, 0 +: 128]
  async_wait(0)
  Y = acc
"""
SIGNALLED = """kir 1
program signalled
  size K: i32
  in X: f32[K]
  out Y: f32[128]
  fact K % 128 == 0
  fact K >= 512
kernel main grid (i: 1) threads 32
  shared Xs: f32[2, 128]
  shared full: mbarrier[2]
  fragment acc: f32[128] = 0.0
  for s in 0..2
    mbar_init(&full[s], 1)
  fence_mbar_init()
  for k in 0..K // 128
    mbar_arrive_expect(&full[k % 2], 512)
    copy X[k * 128 +: 128] -> Xs[k % 2, 0 +: 128] via bulk signal full[k % 2]
    mbar_wait(&full[k % 2], k // 2 % 2)
    acc = acc + Xs[k % 2, 0 +: 128]
  Y = acc
"""
TURNED = """kir 1
program turned
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[N, M]
kernel main grid (a: ceildiv(M, 32), b: ceildiv(N, 32)) threads 32
  shared S: f32[32, 32]
  for t in 0..32 parallel thread
    for i in 0..32
      S[i, i ^ t] = load(X[a * 32 + i, b * 32 + t] else 0.0 clip)
    barrier()
    for j in 0..32
      Y[b * 32 + j, a * 32 + t] = S[t, j ^ t] clip
"""
FLAT = """kir 1
program flat
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (a: ceildiv(M, 2), b: ceildiv(N, 32)) threads 64
  view global Y_flat: f32[M * N] at Y
  for t in 0..64 parallel thread
    Y_flat[(a * 2 + t // 32) * N + b * 32 + t % 32] = load(X[a * 2 + t // 32, b * 32 + t % 32] else 0.0 clip) * 2.0
"""
RINGED = TURNED.replace("f32[32, 32]", "f32[2, 32, 32]").replace("S[", "S[1, ")
PRODUCT = """kir 1
program product
  in A: f16[64, 64]
  in B: f16[64, 64]
  out C: f32[64, 64]
kernel main grid (i: 1) threads 128
  shared As: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  shared Bs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  fragment acc: f32[64, 64] = 0.0
  copy A -> As
  copy B -> Bs
  barrier()
  fence_async()
  barrier()
  @dot mma acc += As * Bs via wgmma
  C = acc
"""
SWIZZLE = a_card("swizzle-shared.alloc", anchor=Anchor(node="alloc", pattern="alloc(..)", places=2), carrier=Carrier(kind="pass", steps=(Move(
    step="swizzle-shared", parameters=(Parameter(name="bits", role="fixed", values=(3,), kernels=(3,)), Parameter(name="align", role="fixed", values=(1024,),
                                                                                                        kernels=(3,)))),)))


@pytest.mark.parametrize(("right", "taken", "put", "problem", "finding", "how"), [
    pytest.param(COPIES, "    async_wait(0)\n", "", "", "KIR-V015", "async_wait(0) before main/k/store(dst=acc)", id="missing wait"),
    pytest.param(STAGED, "    async_wait(2)\n", "", "", "KIR-I014", "async_wait(2) before main/k/store(dst=acc)", id="wait that leaves two in flight"),
    pytest.param(SIGNALLED, "    mbar_wait(&full[k % 2], k // 2 % 2)\n", "", "", "KIR-V015", "mbar_wait behind main/k/copy(dst=Xs)", id="missing phase"),
    pytest.param(SIGNALLED, "  fence_mbar_init()\n", "", "", "KIR-I015", "fence_mbar_init before main/k", id="missing fence of mbarriers"),
    pytest.param(TURNED, "    barrier()\n", "", "", "KIR-I014", "barrier before main/t/j", id="missing barrier"),
    pytest.param(TURNED, "S[t, j ^ t] clip", "S[t, j ^ t]", "", "KIR-I010", "the accesses of main/t/j/store(dst=Y) end with their buffers", id="missing mask"),
    pytest.param(TURNED, "S[t, j ^ t]", "S[t, j ^ (t + 1) % 32]", "transpose", "", "the columns of 'S' exchanged by row at every access", id="wrong phase"),
    pytest.param(TURNED, "S[t, j ^ t]", "S[t, j ^ t % 16]", "transpose", "", "the columns of 'S' exchanged by row at every access", id="half a phase"),
    pytest.param(RINGED, "S[1, t, j ^ t]", "S[1, t, j ^ t // 2]", "transpose", "", "the columns of 'S' exchanged by row at every access", id="in a ring"),
])
def test_a_planted_fault_is_found_and_put_right(right: str, taken: str, put: str, problem: str, finding: str, how: str) -> None:
    oracle = load_problem(problem) if problem else None
    assert fault(parse_program(right), oracle)[0] == "" and right.count(taken) == 1
    made = mended(parse_program(right.replace(taken, put)), (), oracle)
    assert made.fault.startswith(finding) and made.how == how
    assert content_hash(made.program) == content_hash(parse_program(right))


def test_a_store_of_a_flat_view_ends_with_the_rows_of_its_tensor() -> None:
    made = mended(parse_program(FLAT))
    assert made.how == "the accesses of main/t/store(dst=Y_flat) end with the dimensions of their tensors" and made.fault.startswith("KIR-I010")
    assert "Y[a * 2 + t // 32, b * 32 + t % 32] = load(X[a * 2 + t // 32, b * 32 + t % 32] else 0.0 clip) * 2.0 clip\n" in program_text(made.program)


def test_a_layout_that_the_target_does_not_take_is_undone_and_done_again_by_its_card() -> None:
    hopper = Context(target("sm_90a"))
    wrong = parse_program(PRODUCT.replace("layout swizzle(3, 4, 3)", "layout swizzle(1, 4, 3)", 1))
    assert fault(parse_program(PRODUCT), None, hopper)[0] == "" and fault(wrong, None, hopper)[0].startswith("KIR-V032")
    made = mended(wrong, (SWIZZLE,), None, hopper)
    assert made.how == "swizzle-shared{bits=1 align=1024} done again as swizzle-shared{align=1024}"
    assert content_hash(made.program) == content_hash(parse_program(PRODUCT))
    with pytest.raises(KirError) as caught:
        mended(wrong, (), None, hopper)
    assert caught.value.diagnostics[0].id == "KIR-S027"


def test_what_is_right_is_left_alone_and_what_no_mend_makes_right_is_said() -> None:
    with pytest.raises(KirError) as caught:
        mended(parse_program(TURNED))
    assert caught.value.diagnostics[0].id == "KIR-S026" and caught.value.diagnostics[0].attempt == "--problem NAME"
    with pytest.raises(KirError) as caught:
        mended(parse_program(TURNED.replace("S[t, j ^ t]", "S[t, j ^ t] + 1.0")), (), load_problem("transpose"))
    assert caught.value.diagnostics[0].id == "KIR-S027"
