"""Widening a scalar kernel into tiles, and narrowing it back to the very same program."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.analysis.tiles.retile import CannotRetile, Narrow
from kir.analysis.tiles.tile_axes import TileAxes
from kir.analysis.tiles.widen import Widen
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import kernel_lines, program_text
from kir.ir.rules.verify import verify

NAIVE = """kir 1
program g
  in A: bf16[M, K]
  in B: bf16[K, N]
  in V: f32[M]
  out C: bf16[M, N]
  size M: i32
  size N: i32
  size K: i32
kernel main grid (n: N, m: M) threads 1
  register acc: f32 = 0.0
  for k in 0..K
    let a = A[m, k]
    let b = B[k, n]
    acc = acc + cast(a, f32) * cast(b, f32)
  let s = V[m] + 1.0
  C[m, n] = cast(acc * s, bf16)
"""


def naive() -> n.Kernel:
    return parse_program(NAIVE).kernels[0]


def widen(k: n.Kernel, axis: str, extent: int) -> n.Kernel:
    lo = build.mul(build.var(axis + "_tile"), extent)
    return replace(k, body=Widen.of(k.body, build.var(axis), lo, extent).block(k.body))


def narrow(k: n.Kernel, axis: str, extent: int) -> n.Kernel:
    lo = build.mul(build.var(axis + "_tile"), extent)
    axes = TileAxes(k)
    [swept] = [c for c in axes.classes() if any(x == lo for x, _ in c.sweeps)]
    return replace(k, body=Narrow(axes, swept, lo, build.var(axis)).block(k.body))


def contract(k: n.Kernel, extent: int) -> n.Kernel:
    loop = k.body[1]
    assert isinstance(loop, n.For)
    tile = build.var("k_tile")
    body = Widen.of(loop.body, loop.var, build.mul(tile, extent), extent, contract=True).block(loop.body)
    return replace(k, body=(k.body[0], replace(loop, var=tile, hi=build.ceildiv(loop.hi, extent), body=body), *k.body[2:]))


def expand_loop(k: n.Kernel, extent: int) -> n.Kernel:
    loop = k.body[1]
    assert isinstance(loop, n.For)
    lo, axes = build.mul(build.var("k_tile"), extent), TileAxes(k)
    [swept] = [c for c in axes.classes() if any(x == lo for x, _ in c.sweeps)]
    body = Narrow(axes, swept, lo, build.var("k")).block(loop.body)
    return replace(k, body=(k.body[0], replace(loop, var=build.var("k"), hi=build.var("K"), body=body), *k.body[2:]))


def test_every_value_that_depends_on_the_row_gains_an_axis() -> None:
    text = "\n".join(kernel_lines(widen(widen(naive(), "n", 128), "m", 64)))
    assert "fragment acc: f32[64, 128] = 0.0" in text
    assert "let a = A[m_tile * 64 +: 64, k]" in text
    assert "acc = acc + expand(cast(a, f32), axis=1) * cast(b, f32)" in text or "expand(a, axis=1)" in text
    assert "C[m_tile * 64 +: 64, n_tile * 128 +: 128] = cast(acc * expand(s, axis=1), bf16)" in text


@pytest.mark.parametrize("order", ["mn", "nm"])
def test_narrowing_undoes_widening_in_any_order(order: str) -> None:
    k = naive()
    wide = widen(widen(k, "n", 128), "m", 128)
    for axis in order:
        wide = narrow(wide, axis, 128)
    assert wide == k


def test_a_rank_1_loop_contracts_to_a_panel_product_and_back() -> None:
    rank1 = widen(widen(naive(), "n", 128), "m", 64)
    panels = contract(rank1, 32)
    assert any(isinstance(s, n.Mma) for s in panels.body[1].body)  # type: ignore[attr-defined]  # it is the loop
    assert "let a = A[m_tile * 64 +: 64, k_tile * 32 +: 32]" in "\n".join(kernel_lines(panels))
    assert expand_loop(panels, 32) == rank1


def test_a_scalar_sum_contracts_to_a_reduction_and_back() -> None:
    summed = contract(naive(), 32)
    assert "acc = acc + reduce(cast(a, f32) * cast(b, f32), axis=0, op=sum)" in "\n".join(kernel_lines(summed))
    assert expand_loop(summed, 32) == naive()


def test_control_flow_that_depends_on_the_row_is_refused() -> None:
    k = parse_program(NAIVE.replace("  let s = V[m] + 1.0\n", "  let s = V[m] + 1.0\n  if m > 3\n    acc = 0.0\n")).kernels[0]
    with pytest.raises(CannotRetile, match="control flow depends on 'm'"):
        widen(k, "m", 64)
    assert widen(k, "n", 64) != k


def test_one_place_for_all_rows_is_refused() -> None:
    k = parse_program(NAIVE.replace("  C[m, n] =", "  C[0, n] =")).kernels[0]
    with pytest.raises(CannotRetile, match="stored at one place"):
        widen(k, "m", 64)


def test_a_mask_over_more_axes_than_its_place_spreads_the_place() -> None:
    """Every row of a tile reads the same elements, each row some of them: the place has an index for each element of the mask."""
    program = parse_program("""kir 1
program p
  in X: f32[128]
  out Y: f32[64, 128]
kernel main grid (m: 64) threads 128
  let x = load(X[0 +: 128] where iota(128) + m < 128 else 0.0)
  Y[m, 0 +: 128] = x
""")
    kernel = program.kernels[0]
    made = replace(program, kernels=(replace(kernel, body=Widen.of(kernel.body, build.var("m"), build.const(0), 16).block(kernel.body)),))
    assert verify(made) == ()
    assert "X[broadcast(iota(128), 16, 128)]" in program_text(made)


@pytest.mark.parametrize(("statement", "said"), [
    ("atomic_add(&S[0], 1.0)", "'atomic_add' changes memory once for each 'm'"),
    ("let old = atomic_add(&S[0], 1.0)", "'atomic_add' changes memory once for each 'm'"),
    ('opaque cuda reads nothing writes S because "a call" text "count();"', "text that is not understood is executed once for each 'm'"),
    ('hole h contract "c" writes S', "a hole is filled once for each 'm'"),
])
def test_what_counts_how_often_it_is_executed_is_not_done_once_for_a_tile(statement: str, said: str) -> None:
    kernel = parse_program(f"""kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  inout S: f32[1]
kernel main grid (m: 64) threads 1
  {statement}
  Y[m] = X[m]
""").kernels[0]
    with pytest.raises(CannotRetile, match=said):
        Widen.of(kernel.body, build.var("m"), build.const(0), 16).block(kernel.body)
