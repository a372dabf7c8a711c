"""Layouts against tables written out from the vendor's descriptions, element by element."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.diagnostic import KirError
from kir.ir.layouts import layout as terms
from kir.ir.layouts import layout_tables as y
from kir.ir.nodes import Layout
from kir.ir.types import BF16, F8E4M3, F16, F32, I4, I8, U8, DType

SWIZZLE_128 = Layout("swizzle", (3, 4, 3))


def strides(*s: int) -> Layout:
    return Layout("strides", s)


# ------------------------------------------------------------------------------------------------------------------- memory

@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_without_a_layout_memory_is_row_major(shape: list[int]) -> None:
    assert (y.table(None, shape, F32) == np.arange(np.prod(shape)).reshape(shape)).all()
    assert (y.table(Layout("auto"), shape, F32) == y.table(None, shape, F32)).all()


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("dtype", [U8, F16, F32], ids=str)
def test_tma_swizzles_exchange_16_byte_chunks_by_the_number_of_the_line(span: int, dtype: DType) -> None:
    """Rows of `span` bytes follow each other; in each, chunk c of 128-byte line r goes to chunk c xor (r mod span/16)."""
    columns = span // dtype.bytes
    got = y.byte_address(terms.tma_swizzle(span), (32, columns), np.ix_(np.arange(32), np.arange(columns)), dtype)
    for row in range(32):
        for column in range(columns):
            linear = row * span + column * dtype.bytes
            line = linear // 128
            chunk = linear % span // 16
            wanted = linear // span * span + (chunk ^ (line % (span // 16))) * 16 + linear % 16
            assert got[row, column] == wanted


def test_no_swizzle_is_no_layout_and_other_spans_do_not_exist() -> None:
    assert terms.tma_swizzle(0) is None
    with pytest.raises(KirError) as raised:
        terms.tma_swizzle(256)
    assert raised.value.diagnostics[0].id == "KIR-L002"


@given(st.integers(0, 3), st.integers(4, 5), st.integers(3, 4))
def test_swizzles_are_bijections_and_their_own_inverses(bits: int, base: int, shift: int) -> None:
    at = np.arange(1 << (bits + base + shift))
    once = y.swizzled(at, bits, base, shift)
    assert y.is_bijective(once)
    assert (y.swizzled(once, bits, base, shift) == at).all()
    assert (y.compose(once, y.inverse(once)) == at).all()


def test_strides_pad_and_transpose() -> None:
    assert (y.table(strides(1, 8), (8, 4), F32) == np.arange(32).reshape(4, 8).T).all()
    padded = y.table(strides(33, 1), (32, 32), F32)
    assert y.is_injective(padded) and not y.is_bijective(padded)
    assert not y.is_injective(y.table(strides(0, 1), (2, 4), F32))
    assert (y.table(Layout("strides", ((4, 1),)), (2, 4), F32) == y.table(strides(4, 1), (2, 4), F32)).all()


def test_compose_acts_from_the_right() -> None:
    both = Layout("compose", (SWIZZLE_128, strides(64, 1)))
    assert (y.table(both, (64, 64), F16) == y.table(SWIZZLE_128, (64, 64), F16)).all()
    padded = Layout("compose", (SWIZZLE_128, strides(72, 1)))
    linear = np.arange(8)[:, None] * 144 + np.arange(64)[None] * 2
    assert (y.table(padded, (8, 64), F16) * 2 == y.swizzled(linear, 3, 4, 3)).all()


def test_swizzles_keep_elements_whole() -> None:
    for dtype, layout in ((I4, SWIZZLE_128), (F32, Layout("swizzle", (3, 1, 3)))):
        with pytest.raises(KirError) as raised:
            y.table(layout, (8, 64), dtype)
        assert raised.value.diagnostics[0].id == "KIR-L003"


@pytest.mark.parametrize(("layout", "id"), [
    (Layout("swizle", (3, 4, 3)), "KIR-L001"), (Layout("swizzle", (3, 4)), "KIR-L002"), (Layout("swizzle", (3, 4, 1)), "KIR-L002"),
    (strides(1), "KIR-L002"), (strides(1, 2, 3), "KIR-L002"), (Layout("compose", (strides(8, 1), SWIZZLE_128)), "KIR-L002"),
    (Layout("compose", (3,)), "KIR-L002")])
def test_layouts_that_do_not_fit_are_refused(layout: Layout, id: str) -> None:
    with pytest.raises(KirError) as raised:
        y.table(layout, (8, 8), F16)
    assert raised.value.diagnostics[0].id == id


def test_layouts_without_an_inverse_are_refused() -> None:
    actions: tuple[Callable[[], object], ...] = (lambda: y.inverse(np.array([0, 0, 1])), lambda: y.compose(np.arange(4), np.array([4])))
    for action in actions:
        with pytest.raises(KirError) as raised:
            action()
        assert raised.value.diagnostics[0].id == "KIR-L004"


# ------------------------------------------------------------------------------------------------------------ bank conflicts

def _column(layout: Layout | None, width: int) -> int:
    """Passes of a warp reading column 0, rows 0 .. 31, of a 32 x 32 tile of f32."""
    return y.wavefronts(y.byte_address(layout, (32, 32), (np.arange(32), 0), F32), width)


def test_bank_conflicts_of_the_textbook() -> None:
    assert _column(None, 4) == 32
    assert _column(strides(33, 1), 4) == 1
    assert _column(SWIZZLE_128, 4) == 4
    assert y.bank_conflicts(np.zeros(32, np.int64)) == 0
    assert y.bank_conflicts(np.arange(32) * 4) == 0
    assert y.bank_conflicts(np.arange(32) * 8) == 1
    assert y.bank_conflicts(np.arange(32) * 16, 16) == 0


@pytest.mark.parametrize(("layout", "passes"), [(None, 8), (SWIZZLE_128, 1), (Layout("strides", (72, 1)), 1)])
def test_ldmatrix_rows_of_a_64_wide_tile(layout: Layout | None, passes: int) -> None:
    """Eight rows of 16 bytes, 128 bytes apart, lie in the same banks unless swizzled or padded."""
    assert y.wavefronts(y.byte_address(layout, (8, 64), (np.arange(8), 0), F16), 16) == passes


# ---------------------------------------------------------------------------------------------------------------- fragments

def _by_rule(threads: int, slots: int, rule: object) -> tuple[np.ndarray, np.ndarray]:
    assert callable(rule)
    places = [[rule(t, i) for i in range(slots)] for t in range(threads)]
    both = np.array(places)
    return both[..., 0], both[..., 1]


RULES = {
    "mma_m16n8k16_a": ((16, 16), F16, 32, 8, lambda t, i: (t // 4 if i < 2 or 4 <= i < 6 else t // 4 + 8,
                                                           t % 4 * 2 + (i & 1) + (8 if i >= 4 else 0))),
    "mma_m16n8k16_b": ((16, 8), BF16, 32, 4, lambda t, i: (t % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), t // 4)),
    "mma_m16n8k8_a": ((16, 8), F16, 32, 4, lambda t, i: (t // 4 if i < 2 else t // 4 + 8, t % 4 * 2 + (i & 1))),
    "mma_m16n8k8_b": ((8, 8), F16, 32, 2, lambda t, i: (t % 4 * 2 + i, t // 4)),
    "mma_m16n8k32_a": ((16, 32), F8E4M3, 32, 16,
                       lambda t, i: (t // 4 if i < 4 or 8 <= i < 12 else t // 4 + 8, t % 4 * 4 + (i & 3) + (16 if i >= 8 else 0))),
    "mma_m16n8k32_b": ((32, 8), I8, 32, 8, lambda t, i: (t % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), t // 4)),
    "mma_c": ((16, 8), F32, 32, 4, lambda t, i: (t // 4 if i < 2 else t // 4 + 8, t % 4 * 2 + (i & 1))),
    "wgmma_a": ((64, 16), F16, 128, 8,
                lambda t, i: (t // 32 * 16 + t % 32 // 4 + (0 if i < 2 or 4 <= i < 6 else 8), t % 4 * 2 + (i & 1) + (8 if i >= 4 else 0))),
}


@pytest.mark.parametrize("name", RULES)
def test_fragments_follow_the_formulas_of_the_ptx_isa(name: str) -> None:
    shape, dtype, threads, slots, rule = RULES[name]
    f = y.fragment(Layout(name), shape, dtype)
    rows, cols = _by_rule(threads, slots, rule)
    assert (f.threads, f.slots) == (threads, slots)
    assert (f.rows == rows).all() and (f.cols == cols).all()
    assert f.is_partition


def test_tf32_operands_follow_their_own_formulas() -> None:
    a, b = y.fragment(Layout("mma_m16n8k8_a"), (16, 8), F32), y.fragment(Layout("mma_m16n8k8_b"), (8, 8), F32)
    for t in range(32):
        assert [(int(r), int(c)) for r, c in zip(a.rows[t], a.cols[t], strict=True)] == [
            (t // 4, t % 4), (t // 4 + 8, t % 4), (t // 4, t % 4 + 4), (t // 4 + 8, t % 4 + 4)]
        assert [(int(r), int(c)) for r, c in zip(b.rows[t], b.cols[t], strict=True)] == [(t % 4, t // 4), (t % 4 + 4, t // 4)]


@pytest.mark.parametrize("n", [8, 64, 256])
def test_the_wgmma_accumulator(n: int) -> None:
    """Each warp has 16 rows; in each group of 8 columns a thread has two neighbors in row lane / 4 and two eight rows below."""
    f = y.fragment(Layout("wgmma_acc", (n,)), (64, n), F32)
    assert f.is_partition and f.slots == n // 2
    for t in (0, 1, 5, 31, 32, 77, 127):
        wanted = [(t // 32 * 16 + t % 32 // 4 + below, group * 8 + t % 4 * 2 + e) for group in range(n // 8) for below in (0, 8)
                  for e in (0, 1)]
        assert list(zip(f.rows[t].tolist(), f.cols[t].tolist(), strict=True)) == wanted


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_ldmatrix_gives_each_lane_two_elements_of_a_row(num: int, trans: bool) -> None:
    matrix, row, column = y.ldmatrix(num, trans)
    for lane in range(32):
        for i in range(2 * num):
            place = (lane // 4, lane % 4 * 2 + i % 2)
            assert (matrix[lane, i], row[lane, i], column[lane, i]) == (i // 2, *(place[::-1] if trans else place))


def test_ldmatrix_x4_loads_exactly_the_a_operand_of_m16n8k16() -> None:
    """Matrices in the order upper left, lower left, upper right, lower right, as the PTX ISA's register order needs."""
    matrix, row, column = y.ldmatrix(4)
    a = y.mma_a(16, 16)
    assert (row + 8 * (matrix % 2) == a.rows).all() and (column + 8 * (matrix // 2) == a.cols).all()
    matrix, row, column = y.ldmatrix(2, trans=True)
    b = y.mma_b(16, 16)
    assert (row + 8 * matrix == b.rows).all() and (column == b.cols).all()


def test_blocked_layouts_by_brute_force() -> None:
    size, lanes, warps, shape = (1, 4), (8, 4), (2, 2), (32, 64)
    f = y.fragment(Layout("blocked", (*size, *lanes, *warps)), shape, F32)
    assert f.is_partition and f.threads == 128 and f.slots == 16
    thread, _ = f.owner()
    for i in range(shape[0]):
        for j in range(shape[1]):
            lane = (i // size[0] % lanes[0]) * lanes[1] + j // size[1] % lanes[1]
            warp = (i // (size[0] * lanes[0]) % warps[0]) * warps[1] + j // (size[1] * lanes[1]) % warps[1]
            assert thread[i, j] == warp * 32 + lane
    assert (f.rows[0, :4].tolist(), f.cols[0, :4].tolist()) == ([0] * 4, [0, 1, 2, 3])


@given(st.sampled_from([((1, 4), (8, 4), (4, 1)), ((4, 1), (16, 2), (1, 2)), ((2, 2), (4, 8), (2, 2))]), st.sampled_from([(0, 1), (1, 0)]),
       st.integers(1, 2), st.integers(1, 2))
def test_blocked_layouts_are_partitions(parts: tuple[tuple[int, int], ...], order: tuple[int, int], down: int, along: int) -> None:
    size, lanes, warps = parts
    shape = (size[0] * lanes[0] * warps[0] * down, size[1] * lanes[1] * warps[1] * along)
    f = y.blocked(shape, size, lanes, warps, order)
    assert f.is_partition
    fast = order[0]
    second = f.rows[0, 1] if fast == 0 else f.cols[0, 1]
    assert f.slots == 1 or size[fast] == 1 or second == 1


def test_tiled_atoms_fill_a_tile() -> None:
    f = y.fragment(Layout("tiled", (Layout("mma_c"), (2, 2))), (64, 64), F32)
    assert f.is_partition and f.threads == 128 and f.slots == 32
    atom = y.mma_c()
    assert (f.rows[:32, :4] == atom.rows).all() and (f.rows[64:96, :4] == atom.rows + 32).all()
    assert (f.cols[:32, 4:8] == atom.cols + 8).all()
    assert y.fragment(Layout("tiled", (Layout("wgmma_acc", (64,)),)), (128, 64), F32).is_partition


@pytest.mark.parametrize(("layout", "shape", "id"), [
    (Layout("mma_c"), (32, 8), "KIR-L002"), (Layout("mma_d"), (16, 8), "KIR-L001"), (Layout("swizzle", (3, 4, 3)), (16, 8), "KIR-L001"),
    (Layout("blocked", (1, 4, 8, 4, 1, 1)), (12, 16), "KIR-L002"), (Layout("tiled", (Layout("mma_c"), (2, 2))), (24, 16), "KIR-L002"),
    (Layout("tiled", (Layout("auto"),)), (16, 8), "KIR-L002")])
def test_fragments_that_do_not_fit_are_refused(layout: Layout, shape: tuple[int, int], id: str) -> None:
    with pytest.raises(KirError) as raised:
        y.fragment(layout, shape, F32)
    assert raised.value.diagnostics[0].id == id


def test_elements_that_no_thread_holds_are_reported() -> None:
    hole = y.Fragment((2, 2), np.array([[0, 0]]), np.array([[0, 1]]))
    assert not hole.is_partition
    with pytest.raises(KirError) as raised:
        hole.owner()
    assert raised.value.diagnostics[0].id == "KIR-L004"
