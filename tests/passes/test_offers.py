"""What passes offer by themselves where a parameter is left open: conditions that the place decides."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.analysis import normalize
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.nodes import Copy, For, If, Store
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.visit import substitute_buffers, walk
from kir.passes.bounds.branch_interior import BranchInterior
from kir.passes.bounds.guard_value import GuardValue
from kir.passes.bounds.run_on import RunOn
from kir.passes.grid.version_kernel import VersionKernel
from kir.passes.loops.jam_loop import JamLoop
from kir.passes.numerics.online_normalize import OnlineNormalize
from kir.passes.redundancy.tabulate import Tabulate
from kir.problem import load_problem
from kir.rewrite import passes, sites
from kir.rewrite.driver import apply, misses
from kir.rewrite.match.independence import own_place
from kir.rewrite.registry import pass_class

PANELS = """kir 1
program panels
  in X: f32[M, N]
  out Y: f32[M, N]
  size M: i32
  size N: i32
kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 64)) threads 64
  shared kept: f32[16, 64]
  @fill copy load(X[i * 16 +: 16, j * 64 +: 64] else 0.0 clip) -> kept
  @put Y[i * 16 +: 16, j * 64 +: 64] = kept clip
"""
FOLDS = """kir 1
program folds
  in X: f32[M, N]
  out T: f32[M]
  size M: i32
  size N: i32
kernel main grid (i: M) threads 1
  register top: f32 = -inf
  register sum: f32 = 0.0
  register square: f32 = 0.0
  for j in 0..N
    top = max(top, X[i, j] * 2.0)
    sum = sum + exp(X[i, j] * 3.0)
    square = square + X[i, j] * X[i, j]
  T[i] = top + sum + square
"""
ELEMENT = """kir 1
program rows
  in X: f32[M, 24]
  out Y: f32[M, 24]
  size M: i32
kernel main grid (i: M) threads 1
  for j in 0..32
    let x = load(X[i, j] else 0.0 clip)
    Y[i, j] = x clip
"""


def test_a_move_that_may_end_early_offers_the_conditions_under_which_it_does_not() -> None:
    program = parse_program(PANELS)
    rows, columns = "i * 16 + 16 <= M", "j * 64 + 64 <= N"
    offered = [each for each in sites(BranchInterior(edge="store"), program) if each.path == ("main", 1)]
    assert [each.params.options()["when"] for each in offered] == [f"{rows} & {columns}", rows, columns], "all axes, then each by itself"
    for each in offered:
        (branch,) = [x for x in walk(apply(program, each.params, each).program.kernels[0]) if isinstance(x, If)]
        assert isinstance(branch.then[0], Copy) and isinstance(branch.orelse[0], Store), "carried out, and undone exactly"
    facts = PANELS.replace("kernel", "  fact M % 16 == 0\n  fact N % 64 == 0\nkernel")
    assert not sites(BranchInterior(edge="store"), parse_program(facts)), "what never ends early has nothing to branch on"


def test_a_loaded_element_offers_the_bounds_and_the_value_past_them() -> None:
    program = parse_program(ELEMENT)
    (site,) = sites(GuardValue(value="load(X[i, j] else 0.0 clip)"), program)
    assert site.params.options() == {"value": "load(X[i, j] else 0.0 clip)", "when": "j < 24", "other": "0.0"}
    assert not sites(GuardValue(value="load(X[i, j] else 0.0 clip)"), parse_program(ELEMENT.replace("0..32", "0..24"))), "no index lies past the end"


def test_what_a_loop_folds_up_offers_that_the_loop_has_not_ended_and_what_counts_as_nothing() -> None:
    program = parse_program(FOLDS)
    offered = {value: [each.params.options() for each in sites(GuardValue(value=value), program)] for value in ("X[i, j] * 2.0", "X[i, j] * 3.0", "X[i, j]")}
    assert offered["X[i, j] * 2.0"] == [{"value": "X[i, j] * 2.0", "when": "j < N", "other": "-inf"}], "the neutral element of the fold itself"
    assert offered["X[i, j] * 3.0"] == [{"value": "X[i, j] * 3.0", "when": "j < N", "other": "-inf"}], "nothing comes of an exponential"
    assert [each["other"] for each in offered["X[i, j]"]] == ["-inf", "0.0"], "in a product nothing comes of 0; of a maximum of products nothing is offered"
    for value in offered:
        for site in sites(GuardValue(value=value), program):
            assert apply(program, site.params, site)


ROWS = """kir 1
program rows
  size N: i32
  fact N <= 65536
  in X: f32[N, N]
  in V: f32[N]
  out Y: f32[N]
kernel main grid (row: N) threads 1
  register top: f32 = -inf
  for j in 0..row + 1
    register s: f32 = 0.0
    for d in 0..64
      s = s + X[row, d] * X[j, d]
    top = max(top, s * 0.5)
  register total: f32 = 0.0
  for k in 0..row + 1
    let p = exp(X[row, k] - top)
    total = total + p * V[k]
  Y[row] = total
"""


def test_a_value_that_a_loop_made_is_guarded_by_its_end_and_whole_tiles_need_no_guard() -> None:
    program = parse_program(ROWS)
    assert [each.params.options()["when"] for each in sites(GuardValue(value="s * 0.5"), program)] == ["j < row + 1"], "of a maximum, minus infinity"
    products = [each.params.options() for each in sites(GuardValue(value="X[row, d] * X[j, d]"), program)]
    assert [each["when"] for each in products] == ["j < row + 1"] and products[0]["other"] == "0.0", "64 iterations fill every tile"


def test_the_tile_of_a_load_is_guarded_by_what_hangs_over() -> None:
    program = parse_program(PANELS.replace("= kept clip", "= load(X[i * 16 +: 16, j * 64 +: 64] else 0.0 clip) clip"))
    offered = sites(GuardValue(value="load(X[i * 16 +: 16, j * 64 +: 64] else 0.0 clip)"), program)
    assert [each.params.options()["when"] for each in offered] == ["expand(iota(16), axis=1) + i * 16 < M & iota(64) + j * 64 < N"]
    assert apply(program, offered[0].params, offered[0])
    every = parse_program(PANELS.replace("= kept clip", "= load(X else 0.0 clip) clip").replace("X: f32[M, N]", "X: f32[16, 64]").replace(
        "load(X[i", "load(X[0"))
    assert not sites(GuardValue(value="load(X else 0.0 clip)"), every), "a whole tensor has no indices"
    whole = parse_program(program_text(program).replace("\nkernel", "\n  fact M % 16 == 0\n  fact N % 64 == 0\nkernel", 1))
    assert not sites(GuardValue(value="load(X[i * 16 +: 16, j * 64 +: 64] else 0.0 clip)"), whole)


def test_a_loop_runs_on_to_the_end_of_a_tile_under_masks_of_which_nothing_comes() -> None:
    program = parse_program(ROWS)
    offered = [(each.path[1], *each.params.options().values()) for each in sites(RunOn(), program)]
    ends = ["row // 128 * 128 + 128", "row // 64 * 64 + 64"]
    assert offered == [*((1, end, ("s * 0.5",), "j <= row", "-inf") for end in ends), *((3, end, ("X[row, k]",), "k <= row", "-inf") for end in ends),
                       *((3, end, ("p * V[k]",), "k <= row", "0.0") for end in ends)], "the shortest value, or what is folded in"
    for each in sites(RunOn(), program):
        assert apply(program, each.params, each), "carried out, and undone exactly"
    tail = parse_program("kir 1\nprogram tail\n  in X: f32[24]\n  out Y: f32[1]\nkernel main grid (i: 1) threads 1\n  register s: f32 = 0.0\n"
                         "  for t in 0..1\n    for j in 0..24 - t * 32\n      s = s + X[t * 32 + j]\n  Y[i] = s\n")
    (site,) = sites(RunOn(), tail)
    assert site.params.options() == {"end": "32", "values": ("X[j + t * 32]",), "when": "j + t * 32 < 24", "other": "0.0"}, "as far as the next tile begins"
    assert not sites(RunOn(), parse_program(ELEMENT)), "what is stored past the end is not nothing"


def test_the_scale_of_a_maximum_is_that_of_the_differences_under_its_exponential() -> None:
    text = ROWS.replace("top = max(top, s * 0.5)", "top = max(top, s)").replace("exp(X[row, k] - top)", "exp2(X[row, k] * 0.25 - top * 0.25)")
    assert [each.params.options() for each in sites(OnlineNormalize(base="exp2"), parse_program(text))] == [{"base": "exp2"}, {"base": "exp2", "scale": 0.25}]


def test_a_fold_is_kept_for_all_iterations_of_the_loops_around_it() -> None:
    program = parse_program("kir 1\nprogram grid\n  in X: f32[8, 32, 4]\n  out Y: f32[8, 4]\nkernel main grid (b: 1) threads 1\n  for i in 0..8\n"
                            "    for j in 0..4\n      register s: f32 = 0.0\n      for k in 0..32\n        s = s + X[i, k, j]\n      Y[i, j] = s\n")
    offered = [each.params.options() for each in sites(Tabulate(), program)]
    assert offered == [{"index": ("i", "j"), "extent": (8, 4), "hoist": 2}, {"index": ("j",), "extent": (4,)}], "furthest out first"
    for each in sites(Tabulate(), program):
        assert apply(program, each.params, each)
    assert not sites(Tabulate(), parse_program(program_text(program).replace("in 0..4", "in 0..b + 4"))), "a number of places that is not known"


def test_a_version_is_offered_for_the_lengths_of_rows_that_are_not_known_to_be_multiples() -> None:
    program = parse_program(PANELS.replace("out Y: f32[M, N]", "in Z: f32[N, M]\n  out Y: f32[M, N]").replace("@put Y[", "let z = Z[0, 0]\n  @put Y["))
    assert [each.params.options()["sizes"] for each in sites(VersionKernel(), program)] == [("N", "M")]
    (site,) = sites(VersionKernel(), parse_program(PANELS.replace("kernel", "  fact N % 2 == 0\nkernel")))
    assert site.params.options()["sizes"] == ("N",), "a multiple of 2 is not yet one of 8"
    assert not sites(VersionKernel(), parse_program(PANELS.replace("kernel", "  fact N % 16 == 0\nkernel")))


def test_a_place_of_three_digits_is_an_iterations_own_where_their_product_does_not_wrap() -> None:
    """`Y[i / (T * V)][i / V % T][i % V]`, as an elementwise kernel over three axes has it."""
    text = ("kir 1\nprogram p\n  size T: i32\n  size V: i32\n  out Y: f32[4, T, V]\n{}kernel main grid (b: 1) threads 1\n  for i in 0..T * V * 4\n"
            "    Y[i // (T * V), i // V % T, i % V] = 1.0\n")
    small = "  fact T >= 1\n  fact V >= 1\n  fact T <= 99\n  fact V <= 99\n"
    for facts, own in ((small, True), (small.replace("  fact T <= 99\n", ""), False), (small.replace("T >= 1", "T >= 0"), False)):
        program = parse_program(text.format(facts))
        (loop,) = program.kernels[0].body
        assert isinstance(loop, For) and isinstance(store := loop.body[0], Store)
        assert own_place(program, ("main", 0, "body", 0), store.at, loop) == own


def test_places_that_a_range_of_64_bits_decides_are_not_tried_one_by_one() -> None:
    wide = parse_program("kir 1\nprogram wide\n  size N: i64\n  out Y: f32[N]\nkernel main grid (i: 1) threads 1\n  for j: i64 in 0:i64..N\n"
                         "    Y[j * 3:i64 % N] = 1.0\n")
    (loop,) = wide.kernels[0].body
    assert isinstance(loop, For) and isinstance(store := loop.body[0], Store)
    assert not own_place(wide, ("main", 0, "body", 0), store.at, loop), "unknown, and no error: such a range has no length"


def test_iterations_run_in_step_with_the_long_loops_or_those_that_hold_others_and_each_statement_may_have_a_loop() -> None:
    program = parse_program("""kir 1
program columns
  in A: f32[64, 16]
  in B: f32[64, 16]
  out C: f32[16, 16]
  out D: f32[16]
kernel main grid (z: 1) threads 1
  for i in 0..16
    register total: f32[16] = 0.0
    register most: f32 = 0.0
    for k in 0..64
      for j in 0..16
        total[j] = total[j] + A[k, i] * B[k, j]
      most = max(most, A[k, i])
      D[i] = most
    for q in 0..16
      C[i, q] = total[q]
""")
    for text, first in ((program_text(program), (0,)), (program_text(program).replace("0..64", "0..16"), (0, 1, 2))):
        short = parse_program(text)
        offered = [site.params for site in sites(JamLoop(), short) if isinstance(site.params, JamLoop) and site.path == sites(JamLoop(), short)[0].path]
        assert {each.enter for each in offered} == {(0,), (0, 1, 2)} and (offered[0].enter, offered[0].cuts) == (first, ())
        loops = set[tuple[tuple[int, ...], bool, int]]()
        for item in offered:
            made = apply(short, item, next(site for site in sites(item, short) if site.params == item)).program
            k = next(x for x in walk(made) if isinstance(x, For) and x.var.name == "k")
            loops.add((item.enter, bool(item.cuts), sum(isinstance(x, For) for x in k.body)))
        assert loops == {((0,), False, 1), ((0,), True, 3), ((0, 1, 2), False, 2), ((0, 1, 2), True, 3)}


SQUARE = """kir 1
program p
  size M: i32
  in B: f32[M]
  out Y: f32[M, 64]
kernel main grid (i: ceildiv(M, 64)) threads 128
  shared Xs: f16[64, 32]
  shared Bs: f32[64]
  fragment acc: f32[64, 64] = 0.0
  shared Ys: f32[32, 32]
  shared Zs: f32[64, 64]
  Bs = select(i * 64 + iota(64) < M, load(B[i * 64 +: 64] else 0.0 clip), 0.0)
  mma acc += Xs * trans(Xs, 1, 0)
  acc = acc * expand(Bs, axis=1)
  Ys[-32 +: 64, 0 +: 64] = -acc where expand(iota(64), axis=1) >= 32 & iota(64) < 32
  copy Zs -> Y[i * 64 +: 64, 0 +: 64] clip
"""


def test_a_tile_whose_size_stands_beside_other_axes_has_no_other_size() -> None:
    """FlashQLA's kkt-solve: a product of a tile with itself, of whose two sides one counts tokens of the tile and one does not."""
    item = next(p for p in passes() if p.name == "grow-tile").with_options({})
    assert any("spelled out where it is not known" in said for _, said in misses(item, parse_program(SQUARE, "p.kir"), "backward"))


@pytest.mark.parametrize("name", ["Y", "X", "Wt"])
def test_images_whose_rows_lie_apart_are_no_matrix(name: str) -> None:
    """A flat view of such a tensor shows other elements (found by probes around the step)."""
    item, program = pass_class("implicit-gemm").with_options({}), normalize(load_problem("conv2d_1x1").naive)
    assert len(sites(item, program)) == 1
    apart = {p.name: replace(p.of, strides=(*(build.mul(d, 1000) for d in p.of.shape[:-1]), build.const(1)))
             for p in program.params if p.name == name and isinstance(p.of, n.Buffer)}
    made = substitute_buffers(program, apart)
    assert sites(item, made) == () and "a tensor has rows that do not follow one another in memory" in [said for _, said in misses(item, made, "forward")]
