"""Counted work against hand counts, occupancy against the vendor's tables, the order that the cost model gives, and realized steps."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kir.gate import kernel_cost, occupancy, program_cost, realized, summary
from kir.gate.cost import CLUSTER_CYCLES, Cost
from kir.gate.counts.values import LOCAL
from kir.gate.counts.work import MERGED, declared
from kir.hardware.target import ARCHITECTURES, target
from kir.ir.parser import parse_program
from kir.learning.tune.rank import given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.rewrite import Context, Pipeline, run
from kir.surface import Artifact, CompiledKernel

NAIVE = load_problem("gemm").naive
TILE_TEXT = (Path(__file__).parents[2] / "backends" / "programs" / "gemm_tile.kir").read_text()
TILE = parse_program(TILE_TEXT, "gemm_tile.kir")


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


@pytest.mark.parametrize(("rows", "words", "spilled"), [(1, 4096 // 256, False), (64, 64 * 4096 // 256, True)])
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
    assert declared(p, p.kernels[0], {}).live == ((words + rows // 256, 1),)
    cost = kernel_cost(p, p.kernels[0], {}, target("sm_90a"), surface="triton")
    assert ("spills" in cost.parts) == spilled


@pytest.mark.parametrize(("surface", "precision", "units"), [
    ("triton", "tf32", 1), ("triton", "tf32x3", 3), ("triton", "ieee", 0), ("tilelang", "tf32", 0), ("cuda", "tf32", 0)])
def test_a_product_by_scalar_units_is_one_of_matrix_units_where_triton_is_told_a_precision(surface: str, precision: str, units: int) -> None:
    """As many products as the precision has parts of."""
    p = parse_program(f"""kir 1
program product
  in A: f32[4096, 64]
  in B: f32[64, 64]
  out C: f32[4096, 64]
kernel main grid (m: 64) threads 128
  fragment acc: f32[64, 64] = 0.0
  mma acc += A[m * 64 +: 64, 0 +: 64] * B[0 +: 64, 0 +: 64] via fma{"" if precision == "ieee" else f" precision {precision}"}
  C[m * 64 +: 64, 0 +: 64] = acc
""", "p.kir")
    cost = kernel_cost(p, p.kernels[0], {}, target("h200"), surface=surface)
    assert ("tensor" in cost.parts) == (units > 0) and cost.work is not None and cost.work.tensor == units * 2 * 4096 * 64 * 64


def test_a_cta_of_triton_has_whole_warps_that_share_its_tiles() -> None:
    text = """kir 1
program p
  in X: f32[512, 4096]
  out Y: f32[512, 4096]
kernel main grid (r: 512) threads 1
  let x = X[r, 0 +: 4096]
  Y[r, 0 +: 4096] = exp(x - reduce(x, axis=0, op=max))
"""
    one, warp = (parse_program(text.replace("threads 1", f"threads {threads}"), "p.kir") for threads in (1, 32))
    at = target("h200")
    found, other = (kernel_cost(p, p.kernels[0], {}, at, surface="triton") for p in (one, warp))
    assert found.parts == other.parts and "spills" not in found.parts
    assert kernel_cost(one, one.kernels[0], {}, at, surface="tilelang").seconds > 4 * found.seconds  # TileLang takes what is written


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
    assert declared(p, p.kernels[0], {}).live == ((64 * 16, 32),)


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
    assert declared(p, p.kernels[0], {}).live == ((8 * tile + 32, 1), (2 * tile + 32, 8)), "`b` is read by products alone; the accumulator stays"


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
    assert declared(p, p.kernels[0], {}).registers == words


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
    a, b = (kernel_cost(p, p.kernels[0], {}, target("sm_90a")) for p in (plane, line))
    assert a.seconds == pytest.approx(b.seconds, rel=0.3)


def test_persistent_ctas_that_find_no_work_are_not_counted() -> None:
    """Eight blocks of work, dealt to eight CTAs or to 132 of which eight have some, take about the same."""
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
    assert a.seconds == pytest.approx(b.seconds, rel=0.1)


@pytest.mark.parametrize(("changed", "least"), [("launch main {pdl=true}", 1.8), ("", 1.0)])
def test_ctas_begin_at_half_the_rate_where_the_next_launch_may_begin_beside(changed: str, least: float) -> None:
    def seconds(plan: str) -> float:
        program = parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: N) threads 32
  Y[b] = X[b]
plan
  {plan}
""", "p.kir")
        return sum(c.seconds for c in program_cost(program, {"N": 1 << 22}, target("h200")))
    assert least - 0.2 < seconds(changed or "launch main") / seconds("launch main") < least + 0.3


def test_updates_of_one_place_wait_for_one_another() -> None:
    def seconds(body: str, shared: str = "") -> float:
        program = parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[1024, 4096]
  out Y: f32[1024]
kernel main grid (b: 1024) threads 32
  shared S: f32[1]
  for i in 0..4096
    {body}
  Y[b] = S[0]
""", "p.kir")
        return sum(c.seconds for c in program_cost(program, {"N": 1}, target("h200")))
    assert seconds("atomic_add(&S[0], X[b, i])") > 1.2 * seconds("S[0] = S[0] + X[b, i]")


def test_clusters_cost_what_their_ctas_lose_together_and_loads_of_peers_that_wait_for_stores() -> None:
    space, problem, device = find_space("gemm_sm90_nt_skinny"), load_problem("gemm_nt:bf16"), target("h100")
    values = space.values({"rows": 64, "columns": 64, "stages": 6, "parts": 2}, given_of(space, problem, problem.shapes[0], device))
    steps = Pipeline.parse(space.filled(values)).steps
    assert str(steps[-1]).startswith("stage-epilogue{space=fragment}")
    at_once, in_turn = (run(problem.naive, Pipeline(taken), Context(device)).program for taken in (steps, steps[:-1]))
    sizes = {"M": 64, "N": 4096, "K": 4096}
    alone = replace(at_once, kernels=(replace(at_once.kernels[0], cluster=()), *at_once.kernels[1:]))
    free, fast, slow = (program_cost(p, sizes, device)[0] for p in (alone, at_once, in_turn))
    assert fast.seconds > free.seconds + 0.5 * CLUSTER_CYCLES / device.device.clock
    assert slow.work is not None and fast.work is not None
    assert slow.work.cycles > fast.work.cycles + 15 * 180.0  # 16 elements a thread, each load after the store before it
    four = replace(at_once, kernels=(replace(at_once.kernels[0], cluster=(1, 1, 4)), *at_once.kernels[1:]))
    assert program_cost(four, sizes, device)[0].work.together == 132 - 8  # type: ignore[union-attr]  # it is counted


ROWS = """kir 1
program rows
  size M: i32
  size N: i32
  in X: f32[M, N] align 16
  out Y: f32[M] align 16
  fact M >= 1
  fact N >= 1
"""
TILES = f"""{ROWS}kernel rows grid (row: ceildiv(M, 4)) threads 128
  fragment parts: f32[4, 128] = 0.0
  for column in 0..ceildiv(N, 128)
    let x = load(X[row * 4 +: 4, column * 128 +: 128] else 0.0 clip)
    parts = parts + x
  Y[row * 4 +: 4] = reduce(parts, axis=1, op=sum) clip
"""
STAYING = TILES.replace("row: ceildiv(M, 4)", "cta: 132").replace("  fragment", "  for row in cta..ceildiv(M, 4) step 132\n  fragment")
STAYING = "\n".join(f"  {line}" if line.startswith(("  fragment", "  for column", "    let", "    parts", "  Y[")) else line for line in STAYING.split("\n"))
THREADS = f"""{ROWS}kernel rows grid (row: M) threads 128
  for t in 0..128 parallel thread
    register sum: f32 = 0.0
    for column in 0..ceildiv(N, 128)
      HELD x = load(X[row, column * 128 + t] else 0.0 clip)
      sum = sum + x
    if t == 0
      Y[row] = sum
"""


BY_HAND = f"""{ROWS}kernel rows grid (row: M) threads 128
  for t in 0..128 parallel thread
    register sum: f32 = 0.0
    for column in 0..N step 512
{"".join(f"      sum = sum + X[row, column + t * 4 + {i}]{chr(10)}" for i in range(4))}    Y[row] = sum
"""
ALONE = f"""{ROWS}kernel rows grid (row: M) threads 1
  register sum: f32 = 0.0
  for column in 0..N // 4
    for i in 0..4
      sum = sum + X[row, column * 4 + i]
  Y[row] = sum
"""
APART = BY_HAND.replace("+ t * 4 + 0", "+ t").replace("+ t * 4 + 1", "+ t + 128").replace("+ t * 4 + 2", "+ t + 256").replace("+ t * 4 + 3", "+ t + 384")
HALVES = ALONE.replace("X: f32", "X: f16").replace("X[row, column * 4 + i]", "cast(X[row, column * 4 + i], f32)")


@pytest.mark.parametrize(("text", "surface"), [
    (BY_HAND, "cuda"), (APART, "cuda"), (ALONE, "cuda"), (ALONE, "triton"), (HALVES, "triton"),
    (TILES, "triton"), (TILES, "cuda"), (STAYING, "triton"), (STAYING, "cuda"),
    (THREADS.replace("HELD x", "let x"), "cuda"), (THREADS.replace("HELD x", "register x: f32"), "cuda")],
    ids=["neighbors by hand", "rows apart by hand", "one thread", "one thread of Triton", "one thread of half words", "tiles", "tiles as threads",
         "tiles of CTAs that stay", "these as threads", "a name", "a register"])
def test_what_is_loaded_is_moved_whoever_loads_it_and_wherever_it_is_kept(text: str, surface: str) -> None:
    """All of X once, to 3 % where few CTAs stand for all: by tiles, by threads, by CTAs that take turns, into a name or as what a register begins with."""
    program, sizes, h200 = parse_program(text, "rows.kir"), {"M": 8192, "N": 8192}, target("h200")
    cost = kernel_cost(program, program.kernels[0], sizes, h200, surface=surface)
    whole = (2 if "X: f16" in text else 4) * 8192 * 8192
    assert 0.97 * whole <= cost.compulsory <= 1.01 * whole and cost.seconds >= cost.compulsory / h200.device.bandwidth
    assert cost.work is not None and cost.work.dram == pytest.approx(cost.compulsory, rel=0.03)


ROW_BY_ROW = "  let bx = pid % ceildiv(N, 128)\n  let by = pid // ceildiv(N, 128)\n"
IN_PANELS = """  let width = ceildiv(N, 128) * 8
  let panel = pid // width
  let first = panel * 8
  let height = min(ceildiv(M, 128) - first, 8)
  let by = first + pid % width % height
  let bx = pid % width // height
"""
TURNS = "kernel main grid (cta: 396) threads 128\n  for pid in cta..ceildiv(M, 128) * ceildiv(N, 128) step 396\n"


@pytest.mark.parametrize("order", [ROW_BY_ROW, IN_PANELS], ids=["row by row", "in panels"])
def test_ctas_that_take_turns_share_what_their_neighbors_read(order: str) -> None:
    """A GEMM of a CTA a tile, and one of as many CTAs as run at the same time, which deal the same tiles among them in the same order: bytes of L2 and of DRAM
    are the same, and of tiles that are walked in panels fewer than of those walked row by row."""
    head, tile = TILE_TEXT.split("kernel main")
    body = order + tile.split("\n", 1)[1]
    plain = f"{head}kernel main grid (pid: ceildiv(M, 128) * ceildiv(N, 128)) threads 128\n{body}"
    turns = head + TURNS + "".join(f"  {line}\n" for line in body.splitlines())
    sizes = {"M": 16000, "N": 16384, "K": 4096}  # the last turn is not whole, and neither is the last panel
    a, b, rows = (kernel_cost(p, p.kernels[0], sizes, target("h200"), surface="triton").work
                  for p in (parse_program(plain, "p.kir"), parse_program(turns, "p.kir"), parse_program(plain.replace(order, ROW_BY_ROW), "p.kir")))
    assert a is not None and b is not None and rows is not None and a.together == b.together == 396
    assert b.dram == pytest.approx(a.dram, rel=0.05) and b.l2 == pytest.approx(a.l2, rel=0.05)
    assert order == ROW_BY_ROW or a.dram < 0.7 * rows.dram


def test_what_is_read_again_is_in_l1_where_it_fits_between_the_two_times() -> None:
    """A row summed and divided by its sum: by a CTA a row, and by CTAs that take turns over the rows, all of X comes from L2 once; where each CTA sums 512 KiB
    of one row and then divides them, in two loops that begin at a place of its own, twice."""
    row = """kernel rows grid (row: M) threads 128
  for t in 0..128 parallel thread
    register sum: f32 = 0.0
    for i in 0..N // 128
      sum = sum + X[row, i * 128 + t]
    for j in 0..N // 128
      Y[row, j * 128 + t] = X[row, j * 128 + t] / sum
"""
    head = ROWS.replace("Y: f32[M]", "Y: f32[M, N]")
    stay = "kernel rows grid (cta: 132) threads 128\n  for row in cta..M step 132\n" + "".join(f"  {line}\n" for line in row.splitlines()[1:])
    nested = row.replace("0..N // 128\n      Y[row, j * 128 + t] = X[row, j * 128 + t]", "0..N // 512\n      for i2 in 0..4\n"
                         "        Y[row, j * 512 + i2 * 128 + t] = X[row, j * 512 + i2 * 128 + t]")
    parts = row.replace("row: M", "part: 8, row: M").replace("0..N // 128", "part * 1024..part * 1024 + 1024")
    for text, sizes, times in ((row, (8192, 2048), 1), (stay, (8192, 2048), 1), (nested, (8192, 2048), 1), (parts, (16, 1048576), 2)):
        program = parse_program(head + text, "rows.kir")
        cost = kernel_cost(program, program.kernels[0], dict(zip("MN", sizes, strict=True)), target("h200"))
        x = 4 * 8192 * 2048
        assert cost.work is not None and cost.work.l2 == pytest.approx((2 + (times - 1) * MERGED) * x, rel=0.03), text


STRIDED = """kir 1
program scaled
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: 1024) threads 256
  for t in 0..256 parallel thread
    for i in b * 256 + t..N step min(N, 1024 * 256)
      Y[i] = X[i] * 2.0
"""
IN_TURN = """kir 1
program summed
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M]
kernel main grid (b: M) threads 32
  for t in 0..32 parallel thread
    register acc: f32 = 0.0
    for i in 0..ceildiv(N, 32) unroll {factor=%d}
      acc = acc + X[b, i * 32 + t]
    Y[b] = acc
"""


def test_a_loop_that_each_thread_begins_at_its_own_place_moves_all_that_it_walks_over() -> None:
    """A grid-stride loop reads and writes each element once: by its threads, not by one of them."""
    p = parse_program(STRIDED, "p.kir")
    (cost,) = program_cost(p, {"N": 1 << 26}, target("h200"))
    assert cost.compulsory == pytest.approx(2 * 4 * 2**26, rel=0.05) and cost.parts["dram"] > 1e-4


def test_a_loop_of_a_length_that_no_compiler_knows_is_not_written_out_whole() -> None:
    """`#pragma unroll` alone makes four rounds one where a size decides how many there are."""
    whole, four, one = (program_cost(parse_program(IN_TURN % k, "p.kir"), {"M": 2048, "N": 8192}, target("h200"))[0].seconds for k in (0, 4, 1))
    assert whole == pytest.approx(four) and four < one


def _cost(text: str, surface: str = "cuda", sizes: Mapping[str, int] | None = None) -> Cost:
    p = parse_program(text, "p.kir")
    return kernel_cost(p, p.kernels[0], sizes or {}, target("h200"), surface=surface)


@pytest.mark.parametrize(("tiles", "share"), [(1, 0.5), (2, 1.0), (3, 1.5)])
def test_of_two_warpgroups_that_take_turns_each_does_its_own_tiles(tiles: int, share: float) -> None:
    """Both together make as many products as there are tiles; a CTA of one is as fast as the warpgroup that has it."""
    cost = _cost(f"""kir 1
program p
  in A: f16[{64 * tiles}, 1024]
  in B: f16[1024, 64]
  out C: f32[{64 * tiles}, 64]
kernel main grid (c: 1) threads 256
  shared As: f16[64, 1024]
  shared Bs: f16[1024, 64]
  for wg in 0..2 parallel warpgroup
    for i in wg..{tiles} step 2
      fragment acc: f32[64, 64] = 0.0
      mma acc += As * Bs via wgmma
      C[i * 64 +: 64, 0 +: 64] = acc
""")
    assert cost.work is not None and cost.work.tensor == 2 * share * 2 * 64 * 64 * 1024


def test_an_array_with_an_index_is_in_local_memory() -> None:
    """Registers have no number that only a run knows: counts of digits lie in memory, and each update waits for the one before."""
    text = """kir 1
program p
  in X: i32[4096]
  out Y: i32[256]
kernel main grid (c: 1) threads 1
  register counts: i32[256] = 0
  for i in 0..4096
    counts[PLACE] = counts[PLACE] + 1
  Y[0] = counts[0]
"""
    by_digit, known = (_cost(text.replace("PLACE", place)) for place in ("X[i] % 256", "7"))
    assert by_digit.work is not None and known.work is not None
    assert by_digit.work.registers < 64 < known.work.registers and "spills" not in by_digit.parts
    assert by_digit.parts["latency"] > 4096 * 2 * LOCAL / target("h200").device.clock > known.parts["latency"]


@pytest.mark.parametrize("surface", ["triton", "tilelang"])
def test_rows_of_a_product_are_reduced_within_four_lanes(surface: str) -> None:
    text = """kir 1
program p
  in A: f16[64, 64]
  in B: f16[64, 64]
  in X: f32[64, 64]
  out Y: f32[64]
kernel main grid (c: 1) threads 128
  fragment s: f32[64, 64] = 0.0
  mma s += A * B
  let p = exp(TILE)
  Y = reduce(p, axis=1, op=max)
"""
    own, other = (_cost(text.replace("TILE", tile), surface).tallies for tile in ("s", "X + s[0, 0]"))
    assert own["shared"] < other["shared"] and other["barriers"] > own["barriers"]


def test_a_tile_without_a_name_takes_registers_where_it_is_loaded_whole() -> None:
    text = """kir 1
program p
  in X: f32[64, 1024]
  out Y: f32[64]
kernel main grid (c: 1) threads 128
  Y = reduce(X[0 +: 64, 0 +: 1024], axis=1, op=sum)
"""
    triton, tilelang = (_cost(text, surface) for surface in ("triton", "tilelang"))
    assert "spills" in triton.parts and "spills" not in tilelang.parts


def test_a_fragment_takes_registers_until_it_is_last_named() -> None:
    text = """kir 1
program p
  in A: f16[64, 64]
  in B: f16[64, 64]
  out Y: f32[64, 64]
kernel main grid (c: 1) threads 128
  fragment s: f32[64, 64] = 0.0
  mma s += A * B
  let p = exp(s)
  let q = p * LAST
  Y = q
"""
    gone, kept = (parse_program(text.replace("LAST", last), "p.kir") for last in ("p", "s"))
    assert [declared(p, p.kernels[0], {}).live for p in (gone, kept)] == [((32, 1),), ((64, 1),)]


def test_copies_begun_right_behind_the_wait_have_a_round_more() -> None:
    text = """kir 1
program p
  in A: f16[64, 4096]
  out Y: f32[32, 32]
kernel main grid (c: 1) threads 32
  shared As: f16[3, 64, 64]
  fragment acc: f32[64, 64] = 0.0
  for t in 0..32 parallel thread
    register a: f16[8]
    register acc_1: f32[4] = 0.0
    for k in 0..64
      async_wait(1)
      barrier()
FIRST      acc_1[0 +: 4] = mma_sync(a[0 +: 8], a[0 +: 4], acc_1[0 +: 4], shape=m16n8k16)
LAST    Y[t, 0] = acc_1[0]
"""
    copy = "      copy A[t, k * 64 +: 8] -> As[k % 3, t, 0 +: 8] via cp_async grouped\n      async_commit()\n"
    first, last = (_cost(text.replace("FIRST", a).replace("LAST", b)) for a, b in ((copy, ""), ("", copy)))
    assert first.parts["latency"] < last.parts["latency"]


def test_a_view_is_the_memory_that_it_names_and_what_counts_rounds_waits_for_nothing() -> None:
    text = """kir 1
program p
  in X: f32[64, 4096]
  out Y: f32[64]
kernel main grid (row: 64) threads 1
VIEW  register top: f32 = 0.0
  for j in 0..4096
    top = max(top, FIRST)
NEXT  for j1 in 0..4096
    top = top + X[row, j1]
  Y[row] = top
"""
    plain = _cost(text.replace("VIEW", "").replace("FIRST", "X[row, j]").replace("NEXT", ""))
    counted = _cost(text.replace("VIEW", "  view global flat: f32[262144] at X\n  register at: i32 = row * 4096\n").replace("FIRST", "flat[at]")
                    .replace("NEXT", "    at = at + 1\n"))
    assert counted.compulsory == plain.compulsory and counted.parts["l2"] == plain.parts["l2"]
    assert counted.parts["latency"] < 1.1 * plain.parts["latency"]


def test_tilelang_adds_a_warpgroup_that_copies_where_pipelined_loops_have_products() -> None:
    text = """kir 1
program p
  in A: f16[64, 4096]
  in B: f16[4096, 64]
  out C: f32[64, 64]
kernel main grid (c: 1) threads 128
  fragment acc: f32[64, 64] = 0.0
  for k in 0..64KIND
    mma acc += A[0 +: 64, k * 64 +: 64] * B[k * 64 +: 64, 0 +: 64]
  C = acc
"""
    asked = [("", "tilelang"), (" pipelined {stages=2}", "tilelang"), (" pipelined {stages=2}", "triton")]
    plain, ahead, triton = (_cost(text.replace("KIND", kind), surface).work for kind, surface in asked)
    assert plain is not None and ahead is not None and triton is not None
    assert (plain.threads, ahead.threads, triton.threads) == (128, 256, 128) and ahead.registers == 240
