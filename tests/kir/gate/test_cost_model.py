"""Counted work against hand counts, occupancy against the vendor's tables, the order that the cost model gives, and realized steps."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kir.gate import kernel_cost, occupancy, realized, summary
from kir.gate.counts.work import count
from kir.hardware.target import ARCHITECTURES, target
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.surface import Artifact, CompiledKernel

NAIVE = load_problem("gemm").naive
TILE_TEXT = (Path(__file__).parents[2] / "backends" / "programs" / "gemm_tile.kir").read_text()
TILE = parse_program(TILE_TEXT, "gemm_tile.kir")
SIZES = {"M": 256, "N": 512, "K": 128}


def test_work_of_the_naive_gemm() -> None:
    work = count(NAIVE, NAIVE.kernels[0], SIZES)
    products = 256 * 512 * 128
    assert work.ctas == 256 * 512 and work.unknown == []
    assert work.requested == {"read global": products * 4, "write global": 256 * 512 * 2}
    assert work.operations == {"scalar f32": 2 * products}
    assert work.sectors == (2 * products + 256 * 512) * 32


def test_work_of_the_tiled_gemm() -> None:
    work = count(TILE, TILE.kernels[0], SIZES)
    ctas, steps = 2 * 4, 4
    assert work.ctas == ctas and work.overlapped
    assert work.requested["read global"] == ctas * steps * 2 * 128 * 32 * 2
    assert work.operations["tensor f16"] == 2 * 256 * 512 * 128
    assert work.sectors == work.requested["read global"] + work.requested["write global"]


def test_neighboring_threads_share_sectors() -> None:
    def text(index: str) -> str:
        return f"""kir 1
program p
  in X: f32[4096]
  out Y: f32[4096]
kernel main grid (b: 4) threads 128
  for t in 0..128 parallel thread
    Y[b * 128 + t] = X[{index}]
"""
    def sectors(index: str) -> float:
        p = parse_program(text(index), "p.kir")
        work = count(p, p.kernels[0], {})
        return work.sectors - 4 * 128 * 4
    assert sectors("b * 128 + t") == 4 * 128 * 4
    assert sectors("b * 128 + t * 2") == 4 * 128 * 8
    assert sectors("t * 32") == 4 * 128 * 32
    assert sectors("b") == 4 * 128 * 1


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "ctas", "limit"), [
    ("sm_80", 128, 32, 0, 16, "registers"), ("sm_80", 256, 32, 0, 8, "registers"), ("sm_80", 128, 64, 0, 8, "registers"),
    ("sm_80", 1024, 32, 0, 2, "registers"), ("sm_80", 32, 16, 0, 32, "ctas"), ("sm_80", 128, 32, 80 * 1024, 2, "shared"),
    ("sm_90a", 128, 32, 100 * 1024, 2, "shared"), ("sm_80", 128, 32, 164 * 1024, 0, "shared")])
def test_occupancy(arch: str, threads: int, registers: int, shared: int, ctas: int, limit: str) -> None:
    found = occupancy(ARCHITECTURES[arch], threads, registers, shared)
    assert (found.ctas, found.limit) == (ctas, limit)


def test_the_model_orders_what_everyone_knows_the_order_of() -> None:
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    for name in ("sm_80", "sm_90a"):
        at = target(name)
        naive, tiled = (kernel_cost(p, p.kernels[0], sizes, at) for p in (NAIVE, TILE))
        unstaged = parse_program(TILE_TEXT.replace(" pipelined {stages=3}", ""), "p.kir")
        small = parse_program(TILE_TEXT.replace("128", "32"), "p.kir")
        assert naive.seconds > 100 * tiled.seconds
        assert kernel_cost(unstaged, unstaged.kernels[0], sizes, at).seconds > tiled.seconds
        assert kernel_cost(small, small.kernels[0], sizes, at).seconds > tiled.seconds
        flops = 2 * 4096**3
        assert tiled.seconds > flops / at.device.tensor.f16


MADE = CompiledKernel("main", 64, 0, 1024, 128, {"FADD": 4, "LDG.128": 2}, {
    "ptx": ".visible .entry main(\n.param .u64 main_param_0\n)\n{\n\t.loc 1 4 2\n\tadd.f32 %f1, %f2, %f3; // sum\n\tret;\n}"},
    (("num_stages", 2),))


def artifact(kernel: CompiledKernel, name: str = "sm_80") -> Artifact:
    return Artifact("triton", name, (kernel,))


@pytest.mark.parametrize(("change", "reason"), [
    ({"registers": 40}, "registers 64 -> 40"), ({"shared_bytes": 0}, "shared bytes 1024 -> 0"), ({"threads": 256}, "threads 128 -> 256"),
    ({"mix": {"FADD": 4, "LDG.32": 8}}, "mix LDG.32 +8"),
    ({"texts": {"ptx": MADE.texts["ptx"].replace("add", "sub")}}, "order or operands of the PTX")])
def test_a_change_of_the_code_is_realized(change: dict[str, object], reason: str) -> None:
    found = realized(artifact(MADE), artifact(replace(MADE, **change)))  # type: ignore[arg-type]  # one field each
    assert found.realized and found.reason == reason


def test_names_positions_and_options_without_effect_are_not() -> None:
    text = MADE.texts["ptx"].replace("main", "kernel_2").replace(".loc 1 4 2", ".loc 1 9 9").replace("// sum", "")
    same = realized(artifact(MADE), artifact(replace(MADE, kernel="kernel_2", texts={"ptx": text})))
    assert not same and same.reason == "the compiler makes the same code of both"
    option = realized(artifact(MADE), artifact(replace(MADE, options=(("num_stages", 4),))))
    assert not option and option.reason == "the option num_stages had no effect"
    above = [artifact(replace(MADE, texts={**MADE.texts, "ttgir": text})) for text in ("a", "b")]
    restored = realized(*above)
    assert not restored and restored.reason == "the compiler restores it below TTGIR"


def test_what_was_not_compiled_is_never_realized() -> None:
    nothing = Artifact("triton", "sm_80", (), absent="Triton is not here")
    assert not realized(nothing, artifact(MADE)) and "Triton is not here" in realized(nothing, artifact(MADE)).reason
    assert not realized(artifact(MADE), artifact(MADE, "sm_90a"))
    assert not summary({})
    changed = artifact(replace(MADE, registers=9))
    both = summary({"sm_80": realized(artifact(MADE), artifact(MADE)), "sm_90a": realized(artifact(MADE), changed)})
    assert both.realized and both.reason == "registers 64 -> 9"


def test_a_loop_that_is_not_entered_costs_nothing() -> None:
    text = """kir 1
program p
  size K: i32
  in A: f16[64, 64]
  out C: f32[64, 64]
kernel main grid (i: 1) threads 128
  shared As: f16[64, 64] layout swizzle(3, 4, 3)
  fragment acc: f32[64, 64] = 0.0
  for k in 1..K
    As = A
    mma acc += As * As via wgmma
  C = acc
"""
    p = parse_program(text, "p.kir")
    work = count(p, p.kernels[0], {"K": 1})
    assert work.operations == {} and work.requested == {"write global": 64 * 64 * 4} and work.shared == 64 * 64 * 2
    assert count(p, p.kernels[0], {"K": 3}).operations == {"tensor f16": 2 * 2 * 64**3}


@pytest.mark.parametrize(("layout", "times"), [("", 8), (" layout swizzle(3, 4, 3)", 1), (" layout swizzle(1, 4, 3)", 4), (" strides [72, 1]", 1)])
def test_rows_of_an_operand_that_lie_in_the_same_banks_are_read_one_after_the_other(layout: str, times: int) -> None:
    text = f"""kir 1
program p
  in A: f16[64, 64]
  in B: f16[64, 64]
  out C: f32[64, 64]
kernel main grid (i: 1) threads 128
  shared As: f16[64, 64]{layout}
  shared Bs: f16[64, 64] layout swizzle(3, 4, 3)
  fragment acc: f32[64, 64] = 0.0
  As = A
  Bs = B
  mma acc += As * Bs via mma_sync
  C = acc
"""
    p, tile = parse_program(text, "p.kir"), 64 * 64 * 2
    assert count(p, p.kernels[0], {}).requested["read shared"] == 2 * tile * (times + 1)  # warps in two rows and two columns
    assert count(p, p.kernels[0], {}, as_written=False).requested["read shared"] == 4 * tile
    q = parse_program(text.replace("via mma_sync", "via wgmma"), "q.kir")
    assert count(q, q.kernels[0], {}).requested["read shared"] == 2 * tile


@pytest.mark.parametrize(("rows", "words", "spilled"), [(1, 4096 // 256, 0), (64, 64 * 4096 // 256, 24 + 64 * 16 - 255)])
def test_tiles_that_no_thread_can_hold_are_spilled(rows: int, words: int, spilled: int) -> None:
    """A tile that is read later is held by the threads of its team; `d` is read last where the second one is named, `m` is a row of few."""
    axis = 0 if rows == 1 else 1
    place, spread = ("r", "m") if rows == 1 else (f"r * {rows} +: {rows}", "expand(m, axis=1)")
    p = parse_program(f"""kir 1
program p
  in X: f32[4096, 4096]
  out Y: f32[4096, 4096]
kernel main grid (r: {4096 // rows}) threads 256
  let x = X[{place}, 0 +: 4096]
  let m = reduce(x, axis={axis}, op=max)
  let d = x - {spread}
  Y[{place}, 0 +: 4096] = exp(d)
""", "p.kir")
    work = count(p, p.kernels[0], {})
    assert work.live == ((words + rows // 256, 1),)
    cost = kernel_cost(p, p.kernels[0], {}, target("sm_90a"))
    assert cost.parts.get("spills", 0.0) == pytest.approx(2 * spilled / 4 * 250e-9)


def test_tiles_that_a_persistent_cta_holds_are_spilled_each_time() -> None:
    p = parse_program("""kir 1
program p
  in X: f32[4096, 4096]
  out Y: f32[4096, 4096]
kernel main grid (c: 2) threads 256
  for r in 0..32
    let x = X[c * 2048 + r * 64 +: 64, 0 +: 4096]
    Y[c * 2048 + r * 64 +: 64, 0 +: 4096] = exp(x)
""", "p.kir")
    assert count(p, p.kernels[0], {}).live == ((64 * 16, 32),)


def test_a_bound_that_a_name_stands_for_is_known() -> None:
    p = parse_program("""kir 1
program p
  in X: f32[4096, 4096]
  out Y: f32[4096, 4096]
kernel main grid (c: 2) threads 256
  let last = c * 8 + 4
  let w = exp(X[0 +: 64, 0 +: 1024])
  for r in 0..last
    let x = X[r * 64 +: 64, 0 +: 4096]
    Y[c * 2048 + r * 64 +: 64, 0 +: 4096] = exp(x)
  Y[0 +: 64, 0 +: 1024] = w
""", "p.kir")
    assert count(p, p.kernels[0], {}, 0).live == ((64 * 20, 4),) and count(p, p.kernels[0], {}, 1).live == ((64 * 20, 12),)


def test_tiles_that_only_products_read_are_in_shared_memory_and_places_passed_more_often_count() -> None:
    p = parse_program("""kir 1
program p
  in X: f16[64, 512]
  out Y: f32[64, 64]
kernel main grid (c: 1) threads 128
  fragment acc: f32[64, 64] = 0.0
  let big = exp(X[0 +: 64, 0 +: 512])
  Y[0, 0] = cast(reduce(reduce(big, axis=1, op=max), axis=0, op=max), f32)
  for k in 0..8
    let a = X[0 +: 64, k * 64 +: 64]
    let b = X[0 +: 64, k * 64 +: 64]
    let s = exp(a)
    mma acc += s * b
    mma acc += a * trans(b, 1, 0)
    Y = acc + cast(s, f32)
  Y = acc
""", "p.kir")
    tile = 64 * 64 * 2 // (4 * 128)
    assert count(p, p.kernels[0], {}).live == ((8 * tile, 1), (2 * tile, 8)), "`b` is read by products alone"


@pytest.mark.parametrize(("more", "words"), [("", 32), ("    Y = acc + cast(a, f32)\n", 32 + 16)])
def test_fragments_that_only_products_read_take_no_registers(more: str, words: int) -> None:
    p = parse_program(f"""kir 1
program p
  in X: f16[64, 512]
  out Y: f32[64, 64]
kernel main grid (c: 1) threads 128
  fragment acc: f32[64, 64] = 0.0
  fragment a: f16[64, 64]
  fragment b: f16[64, 64]
  for k in 0..8
    a = X[0 +: 64, k * 64 +: 64]
    b = X[0 +: 64, k * 64 +: 64]
    mma acc += a * b
{more}  Y = acc
""", "p.kir")
    assert count(p, p.kernels[0], {}).registers == words


def test_ctas_that_differ_are_looked_at_whatever_the_grid_is_like() -> None:
    """The same CTAs, of which each does as much as its number says, in a grid of two axes and in one of one axis."""
    def text(grid: str, row: str) -> str:
        return f"""kir 1
program p
  in X: f32[4096, 4096]
  out Y: f32[4096, 4096]
kernel main grid ({grid}) threads 128
  let first = {row}
  for k in 0..first + 1
    Y[first, k * 128 +: 128] = exp(X[first, k * 128 +: 128])
"""
    plane, line = (parse_program(x, "p.kir") for x in (text("a: 32, b: 64", "a"), text("c: 2048", "c % 32")))
    costs = [kernel_cost(p, p.kernels[0], {}, target("sm_90a")) for p in (plane, line)]
    a, b = (c.work for c in costs)
    assert a is not None and b is not None and a.sectors == b.sectors and costs[0].seconds == pytest.approx(costs[1].seconds, rel=1e-6)
    exact = 64 * sum(range(1, 33)) * 128 * 4 * 2
    assert a.sectors == pytest.approx(exact, rel=0.15) and a.uneven == pytest.approx(32 / 16.5, rel=0.15)


def test_persistent_ctas_that_find_no_work_are_not_counted() -> None:
    """Eight blocks of work, dealt to eight CTAs or to 132 of which eight have some, take the same."""
    def text(grid: str, loop: str, block: str) -> str:
        return f"""kir 1
program p
  in X: f32[8, 128]
  out Y: f32[8, 128]
kernel main grid ({grid}) threads 128
{loop}  Y[{block}, 0 +: 128] = exp(X[{block}, 0 +: 128])
"""
    plain = parse_program(text("b: 8", "", "b"), "p.kir")
    dealt = parse_program(text("c: 132", "  for b in c..8 step 132\n  ", "b"), "p.kir")
    a, b = (kernel_cost(p, p.kernels[0], {}, target("sm_90a")) for p in (plain, dealt))
    assert a.work is not None and b.work is not None and (a.work.ctas, b.work.ctas) == (8, 8)
    assert a.work.sectors == b.work.sectors and a.seconds == pytest.approx(b.seconds, rel=0.02)
