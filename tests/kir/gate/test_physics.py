"""The cost model's effects, each by itself: more work is never faster, and what hardware does worse is slower."""
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.gate import kernel_cost, occupancy, program_cost
from kir.gate.cost import throughput
from kir.gate.counts.numbers import evaluate
from kir.gate.counts.places import banks
from kir.gate.counts.schedule import Clock, run
from kir.gate.counts.trace import Access, Barrier, Item, Loop, Op, Wait
from kir.hardware.target import ARCHITECTURES, Pipes, target
from kir.ir.build import add, mod, var
from kir.ir.parser import parse_program

H200 = target("h200")
CLOCK = Clock(Pipes(), lambda unit: 4096.0, lambda access: 500.0)


def seconds(text: str, **sizes: int) -> float:
    return sum(c.seconds for c in program_cost(parse_program(text, "p.kir"), sizes, H200))


def copied(index: str, threads: int = 256, align: str = "", grid: int = 4096) -> str:
    return f"""kir 1
program p
  in X: f32[{grid * threads * 32}]{align}
  out Y: f32[{grid * threads}]
kernel main grid (b: {grid}) threads {threads}
  for t in 0..{threads} parallel thread
    Y[b * {threads} + t] = X[{index}]
"""


def test_scattered_lanes_are_slower_than_neighbors_and_never_get_faster_with_distance() -> None:
    took = [seconds(copied(f"(b * 256 + t) * {apart}", grid=65536)) for apart in (1, 2, 8, 32)]
    assert took == sorted(took) and took[-1] > 2 * took[0]


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_banks_serve_conflicting_words_in_turn(ways: int) -> None:
    lanes = np.arange(32)
    assert banks(lanes * 4 * ways, 4) == ways
    assert banks(np.zeros(32, np.int64), 4) == 1  # one word for all is read once
    assert banks(lanes * 16, 16) == 4  # 512 bytes, 128 a cycle
    assert banks(lanes[:8] * 16, 16) == 1  # a matrix of ldmatrix


def test_a_transpose_through_rows_of_one_bank_is_slower_than_through_padded_rows() -> None:
    def text(strides: str) -> str:
        return f"""kir 1
program p
  in X: f32[4096, 4096]
  out Y: f32[4096, 4096]
kernel main grid (a: 128, b: 128) threads 1024
  shared tile: f32[32, 32]{strides}
  for t in 0..1024 parallel thread
    for r in 0..64
      tile[t // 32, t % 32] = X[a * 32 + t // 32, b * 32 + t % 32]
      barrier()
      Y[b * 32 + t // 32, a * 32 + t % 32] = tile[t % 32, t // 32]
"""
    assert seconds(text("")) > 1.2 * seconds(text(" strides [33, 1]"))


def test_more_bytes_are_never_faster_and_a_last_wave_costs() -> None:
    took = [seconds(copied("b * 256 + t", grid=grid)) for grid in (128, 1024, 8192, 65536)]
    assert took == sorted(took) and took[-1] > 4 * took[-2]
    heavy = """kir 1
program p
  in X: f32[1024, 256]
  out Y: f32[1024, 256]
kernel main grid (b: {grid}) threads 1024
  shared big: f32[40000]
  for t in 0..1024 parallel thread
    register s: f32 = 0.0
    for i in 0..2000
      s = s + exp(s)
    Y[b, t % 256] = s
"""
    full, more = seconds(heavy.format(grid=132)), seconds(heavy.format(grid=133))
    assert more > 1.7 * full  # one CTA an SM: the 133rd waits for a whole wave


def test_one_thread_in_a_loop_is_bound_by_latency_and_more_warps_hide_it() -> None:
    def loop(warps: int) -> list[Item]:
        read = Op("memory", 1.0, 1.0, 1.0, (), "x", Access("X", "read", warps, warps, warps, 0.0))
        return [Loop("i", 1000.0, 1.0, [read, Op("fma", 1.0, 1.0, 4.0, ("x", "s"), "s")])]
    one, many = run(loop(1), 1.0, CLOCK), run(loop(16), 16.0, CLOCK)
    assert one.cycles > 1000 * 500 and many.cycles < 1.2 * one.cycles
    assert many.busy["issue"] == pytest.approx(16 * one.busy["issue"])


def test_unrolled_loads_are_under_way_together_as_far_as_a_thread_holds_them() -> None:
    def took(together: float, most: float) -> float:
        read = Op("memory", 1.0, 1.0, 1.0, (), "x", Access("X", "read", 1.0, 1.0, 1.0, 0.0), most=most)
        return run([Loop("i", 64.0, together, [read, Op("fma", 1.0, 1.0, 4.0, ("x",), "y")])], 1.0, CLOCK).cycles
    assert took(1.0, 0.0) > took(64.0, 1.0) > took(64.0, 4.0) > took(64.0, 16.0)


def test_copies_that_are_begun_rounds_ahead_hide_their_latency() -> None:
    def took(depth: int) -> float:
        copy = Op("memory", 1.0, 1.0, 1.0, (), None, Access("X", "read", 1.0, 1.0, 1.0, 0.0), apart="copy")
        return run([Loop("i", 100.0, 1.0, [copy, Wait("copy", depth, depth), Op("fma", 20.0, 1.0, 4.0)])], 4.0, CLOCK).cycles
    assert took(0) > took(1) > 2.5 * took(3)


def test_a_barrier_costs_more_with_more_warps() -> None:
    took = [run([Loop("i", 100.0, 1.0, [Barrier()])], float(warps), CLOCK).cycles for warps in (1, 8, 32)]
    assert took == sorted(took) and took[2] > 2 * took[0]


def test_ctas_of_an_sm_queue_for_what_they_share() -> None:
    rates = [throughput(n, 1.0, 9.0) for n in (1, 2, 5, 10, 40)]
    assert rates == sorted(rates) and rates[0] == pytest.approx(0.1) and rates[-1] < 1.0 and rates[-1] > 0.95


def test_single_warps_are_not_rounded_up_to_four() -> None:
    assert occupancy(ARCHITECTURES["sm_90a"], 32, 32, 0).ctas == 32 and occupancy(ARCHITECTURES["sm_90a"], 256, 255, 0).ctas == 1


def test_a_warm_l2_is_never_slower() -> None:
    p = parse_program(copied("b * 256 + t"), "p.kir")
    cold, warm = (kernel_cost(p, p.kernels[0], {}, H200, warm=w).seconds for w in (False, True))
    assert warm < cold


def test_a_pointer_that_is_counted_up_is_the_place_it_stands_for() -> None:
    def text(place: str, counted: str, step: str) -> str:
        return f"""kir 1
program p
  in X: f32[1024, 4096]
  out Y: f32[1024, 32]
kernel main grid (b: 1024) threads 32
  for t in 0..32 parallel thread
    register s: f32 = 0.0
{counted}    for i in 0..128
      s = s + X[b, {place}]
{step}    Y[b, t] = s
"""
    plain = seconds(text("i * 32 + t", "", ""))
    counted = seconds(text("at", "    register at: i32 = t\n", "      at = at + 32\n"))
    assert counted == pytest.approx(plain, rel=0.25)


def test_numbers_of_lanes() -> None:
    t = var("t")
    assert list(np.asarray(evaluate(mod(add(t, 3), 4), {"t": np.arange(4)}))) == [3, 0, 1, 2]
    assert evaluate(var("unknown"), {}) is None and evaluate(add(t, 1), {"t": add(var("u"), 1), "u": 5}) == 7


def test_a_size_of_zero_is_refused() -> None:
    text = """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 128)) threads 128
  for t in 0..128 parallel thread
    if b * 128 + t < N
      Y[b * 128 + t] = X[b * 128 + t]
"""
    with pytest.raises(KirError, match="KIR-E007"):
        seconds(text, N=0)
    assert seconds(text, N=1) > 0.0


def test_faster_devices_are_faster() -> None:
    p = parse_program(copied("b * 256 + t", grid=65536), "p.kir")
    slow = replace(H200, device=replace(H200.device, bandwidth=H200.device.bandwidth / 2))
    assert kernel_cost(p, p.kernels[0], {}, slow).seconds > 1.3 * kernel_cost(p, p.kernels[0], {}, H200).seconds


@pytest.mark.parametrize("carried", [4.0, 60.0])
@pytest.mark.parametrize("fresh", [0.125, 4.0])
def test_a_loop_unrolled_in_part_is_never_slower_than_one_that_is_not(carried: float, fresh: float) -> None:
    """Rounds that each load, add to what all before them made, and store; of one straight piece of code a second passes as the first does."""
    access = Access("X", "read", 1.0, 4.0, fresh, 4096.0)
    body: list[Item] = [Op("memory", 1.0, 1.0, 1.0, (), "x", access, most=16.0), Op("fma", 1.0, 1.0, carried, ("total", "x"), "total"),
                        Op("shared", 1.0, 1.0, 0.0, ("total",))]
    took = [run([Loop("i", 1024.0, together, body)], 4.0, CLOCK).cycles for together in (1.0, 2.0, 4.0, 8.0, 16.0, 1024.0)]
    assert took[0] >= 1024 * 500.0 and all(b <= 1.001 * a for a, b in pairwise(took))
    assert run([Loop("i", 2048.0, 4.0, body)], 4.0, CLOCK).cycles == pytest.approx(2 * took[2], rel=0.02)


def test_a_load_in_inline_ptx_has_an_address_of_its_own() -> None:
    """Of loads that an unrolled loop makes, those under a cache policy take instructions that the others share; in Triton's code they do not."""
    text = """kir 1
program p
  in X: f32[1048576, 32]
  out Y: f32[1048576]
kernel main grid (b: 4096) threads 256
  for t in 0..256 parallel thread
    register sum: f32 = 0.0
    for i in 0..32 unroll
      sum = sum + load(X[b * 256 + t, i]CACHE)
    Y[b * 256 + t] = sum
"""
    def issued(text: str, surface: str) -> float:
        return sum(c.work.instructions for c in program_cost(parse_program(text, "p.kir"), {}, H200, surface=surface) if c.work is not None)
    plain, cached = text.replace("CACHE", ""), text.replace("CACHE", " cache nc")
    warps = 1048576 / 32
    assert issued(cached, "cuda") == pytest.approx(issued(plain, "cuda") + warps * 32 * 4.0, rel=0.01)
    assert issued(cached, "triton") == issued(plain, "triton")


def _seconds(text: str, surface: str) -> float:
    p = parse_program(text, "p.kir")
    return kernel_cost(p, p.kernels[0], {}, target("h200"), surface=surface).seconds


@pytest.mark.parametrize("turned", [False, True])
def test_tilelang_reads_operands_of_scalar_products_in_each_round_from_where_they_lie(turned: bool) -> None:
    def text(a: str, b: str) -> str:
        staged = "".join(f"    copy {x}[{at}] -> {x}s\n" for x, at, held in (("A", "c * 128 +: 128, k * 32 +: 32", a), ("B", row, b)) if held.endswith("s"))
        b = b if b.endswith("s") else f"B[{row}]"
        return f"""kir 1
program p
  in A: f16[2048, 1024]
  in B: f16[1024, 1024]
  out Y: f32[2048, 128]
kernel main grid (c: 16) threads 128
  fragment acc: f32[128, 128] = 0.0
  shared As: f16[128, 32]
  shared Bs: f16[{"128, 32" if turned else "32, 128"}]
  for k in 0..32
{staged}    mma acc += {a if a.endswith("s") else "A[c * 128 +: 128, k * 32 +: 32]"} * {f"trans({b}, 1, 0)" if turned else b} via fma
  Y[c * 128 +: 128, 0 +: 128] = acc
"""
    row = "0 +: 128, k * 32 +: 32" if turned else "k * 32 +: 32, 0 +: 128"
    none, right, both = (_seconds(text(*held), "tilelang") for held in (("A", "B"), ("A", "Bs"), ("As", "Bs")))
    assert none > 1.05 * right and (turned or right > 1.05 * both), "each round waits for what it reads, and memory is farther than shared memory"
    assert _seconds(text("A", "B"), "triton") < none / 2, "Triton brings operands to registers first"


@pytest.mark.parametrize("surface", ["triton", "tilelang"])
def test_loops_of_few_rounds_whose_bounds_are_numbers_are_written_out_whole(surface: str) -> None:
    def taken(loops: str, at: str) -> float:
        return _seconds(f"kir 1\nprogram p\n  in X: f32[64, 8192]\n  out Y: f32[64]\nkernel main grid (r: 64) threads 32\n  register s: f32 = 0.0\n"
                        f"{loops}s = s + X[r, {at}]\n  Y[r] = s\n", surface)
    flat = taken("  for j in 0..8192\n    ", "j")
    few, many = (taken(f"  for j in 0..{8192 // k}\n    for i in 0..{k}\n      ", f"j * {k} + i") for k in (16, 128))
    assert few < 0.8 * flat, "sixteen loads under way, not four"
    assert few < 0.8 * many, "a hundred are too many to be written out"


def test_a_condition_is_asked_in_the_rounds_of_the_loops_that_it_names() -> None:
    def taken(cond: str) -> float:
        return _seconds(f"kir 1\nprogram p\n  in X: f32[64, 4096]\n  out Y: f32[64]\nkernel main grid (r: 1) threads 32\n  for i in 0..64\n    if {cond}\n"
                        "      register s: f32 = 0.0\n      for j in 0..4096\n        s = s + X[i, j]\n      Y[i] = s\n", "cuda")
    assert taken("i < 2") > 100 * taken("i < 0"), "the middle round is not all that there is"
    assert taken("i < 64") == taken("i >= 0") >= taken("i < 2")


def test_who_returns_early_for_what_was_read_is_the_exception() -> None:
    def taken(last: str) -> float:
        return _seconds("kir 1\nprogram p\n  inout X: f32[64, 4096]\n  inout Y: f32[64]\nkernel main grid (r: 1) threads 32\n  let y = Y[r]\n  if y == 5.0\n"
                        f"    for i in 0..64\n      X[0, i] = 0.0\n{last}  Y[r] = 1.0\n", "cuda")
    assert taken("    return\n") < taken("")


@pytest.mark.parametrize("ctas", [65, 528, 2112])
def test_ctas_that_find_no_work_are_none_however_many_they_are(ctas: int) -> None:
    p = parse_program(f"kir 1\nprogram p\n  in X: f32[64, 4096]\n  out Y: f32[64, 4096]\nkernel main grid (r: {ctas}) threads 128\n"
                      f"  for tile in r..64 step {ctas}\n    for t in 0..128 parallel thread\n      for i in 0..32\n"
                      "        Y[tile, i * 128 + t] = X[tile, i * 128 + t]\n", "p.kir")
    work = kernel_cost(p, p.kernels[0], {}, target("h200")).work
    assert work is not None and work.ctas == pytest.approx(64, abs=2)
