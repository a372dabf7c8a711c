"""The arithmetic of fragment layouts agrees with their tables."""
from __future__ import annotations

import numpy as np
import pytest

from kir.analysis.tiles.fragments import element_of, layout_of, slot_of, spread
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.layouts.layout_tables import fragment
from kir.ir.types import BF16, F16, F32, I8, DType

L = n.Layout
CASES: list[tuple[n.Layout, tuple[int, int], DType]] = [
    (L("mma_c"), (16, 8), F32), (L("mma_m16n8k16_a"), (16, 16), F16), (L("mma_m16n8k16_b"), (16, 8), BF16),
    (L("mma_m16n8k8_a"), (16, 8), F32), (L("mma_m16n8k8_a"), (16, 8), F16), (L("mma_m16n8k8_b"), (8, 8), F32),
    (L("mma_m16n8k32_a"), (16, 32), I8), (L("mma_m16n8k32_b"), (32, 8), I8), (L("wgmma_acc", (24,)), (64, 24), F32),
    (L("wgmma_a"), (64, 16), F16), (L("blocked", ((1, 4), (8, 4), (2, 1))), (32, 48), F32),
    (L("blocked", ((2, 1), (4, 8), (1, 4), (0, 1))), (16, 64), F32), (L("tiled", (L("mma_c"), (2, 3))), (64, 72), F32),
    (L("tiled", (L("mma_m16n8k16_a"), (2, 1))), (64, 48), F16), (L("tiled", (L("wgmma_acc", (16,)), (1, 2))), (64, 96), F32),
]


@pytest.mark.parametrize(("layout", "shape", "dtype"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_elements_and_slots_are_those_of_the_tables(layout: n.Layout, shape: tuple[int, int], dtype: DType) -> None:
    wanted = fragment(layout, shape, dtype)
    made = spread(layout, shape, dtype)
    assert (made.team, made.size) == (wanted.threads, wanted.slots)
    again = spread(layout_of(made), shape, dtype)
    assert again == made
    for t in range(0, wanted.threads, 5):
        for slot in range(0, wanted.slots, 3):
            at = element_of(layout, shape, dtype, const(t), const(slot))
            assert tuple(map(int_value, at)) == (wanted.rows[t, slot], wanted.cols[t, slot])
            assert tuple(map(int_value, slot_of(layout, shape, dtype, at))) == (t, slot)
    threads, slots = wanted.owner()
    assert np.array_equal(np.sort(threads.reshape(-1) * wanted.slots + slots.reshape(-1)), np.arange(threads.size))


def test_what_does_not_fit_is_refused() -> None:
    for layout, shape in ((L("mma_c"), (16, 16)), (L("tiled", (L("mma_c"), (3, 1))), (64, 8)), (L("swizzle", (3, 4, 3)), (8, 8)),
                          (L("blocked", ((1, 4), (8, 4), (2, 1))), (8, 8)), (L("tiled", (L("blocked"),)), (8, 8))):
        with pytest.raises(KirError) as refused:
            spread(layout, shape, F16)
        assert refused.value.diagnostics[0].id in ("KIR-L001", "KIR-L002")
    gap = L("spread", ((32,), (0,), (2,), (2,), (1,), (1,)))
    with pytest.raises(KirError) as refused:
        slot_of(gap, (64, 2), F32, (const(3), const(0)))
    assert refused.value.diagnostics[0].id == "KIR-L004"
