"""The library of matching and rewriting: what it finds in a small program, and what its edits make of it."""
from __future__ import annotations

import pytest

from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.types import I32, I64
from kir.rewrite import Context, Rewritten
from kir.rewrite.match import (
    allocated,
    block_and_index,
    counting,
    edited,
    fits_shared,
    fresh_at,
    fresh_names,
    fresh_var,
    is_counted,
    is_read,
    loads_of,
    matched,
    names_at,
    node_as,
    regions_of,
    shared_bytes,
    sibling,
    span_of,
    splice,
    whole_warps,
    within_shared,
)

PROGRAM = parse_program("""\
kir 1
program sums
  in A: f32[64]
  out B: f32[64]
kernel main grid (g: 1) threads 1
  shared kept: f32[64]
  register total: f32 = 0.0
  @fill for i in 0..64
    kept[i] = A[i]
  for j in 1..64 step 2
    total = total + kept[j]
  B[0] = total
""")
KERNEL = PROGRAM.kernels[0]
LOOP, ODD = ("main", 2), ("main", 3)


def test_what_match_found_is_found_again_with_its_type() -> None:
    assert node_as(PROGRAM, LOOP, n.For).label == "fill"
    assert node_as(PROGRAM, ("main",), n.Kernel) is KERNEL
    with pytest.raises(AssertionError):
        node_as(PROGRAM, LOOP, n.Store)
    with pytest.raises(AssertionError):
        matched(None)
    assert matched(0) == 0


def test_edits_of_a_block() -> None:
    block, i = block_and_index(PROGRAM, LOOP)
    assert i == 2 and block == KERNEL.body
    gone = splice(PROGRAM, LOOP, ()).kernels[0].body
    assert gone == (*block[:2], *block[3:])
    twice = splice(PROGRAM, LOOP, (block[0],), 0, 0).kernels[0].body
    assert twice == (*block[:2], block[0], *block[2:])
    assert splice(PROGRAM, LOOP, (), 1, None).kernels[0].body == block[:3]
    inner = edited(PROGRAM, (*LOOP, "body", 0), (), at=0)
    assert isinstance(inner, Rewritten) and node_as(inner.program, LOOP, n.For).body == ()
    assert edited(PROGRAM, ODD, (), -1, at=-1).path == LOOP
    assert sibling(("main", 3, "body", 2), -2) == ("main", 3, "body", 0)


def test_counted_loops() -> None:
    loop, odd = node_as(PROGRAM, LOOP, n.For), node_as(PROGRAM, ODD, n.For)
    assert is_counted(loop) and is_counted(loop, of=I32, plain=True)
    assert not is_counted(odd) and not is_counted(loop, ("unroll",)) and not is_counted(loop, of=I64) and not is_counted(KERNEL.body[0])
    assert counting(loop.var, 64, loop.body, label="fill") == loop


def test_accesses_by_name() -> None:
    assert span_of(KERNEL.body, "kept") == (0, 3) and span_of(KERNEL.body, "C") is None
    assert len(loads_of(KERNEL, "kept")) == 1 and len(regions_of(KERNEL, "kept")) == 2
    assert is_read(KERNEL.body[2:], "A") and not is_read(KERNEL, "B")
    assert [b.name for b in allocated(KERNEL, "shared")] == ["kept"]
    assert [b.name for b in allocated(KERNEL.body)] == ["kept", "total"]


def test_fresh_names() -> None:
    assert fresh_at(PROGRAM, LOOP, "kept") == "kept_1" and fresh_at(PROGRAM, LOOP, "new") == "new"
    taken = names_at(PROGRAM, LOOP)
    assert [fresh_var("i", taken).name for _ in range(2)] == ["i_1", "i_2"]
    assert fresh_names(node_as(PROGRAM, LOOP, n.For).body, taken) == {}
    assert fresh_names((KERNEL.body[2],), taken) == {"i": "i_3"}


def test_capacity_of_shared_memory() -> None:
    assert shared_bytes(KERNEL) == 256 and shared_bytes(KERNEL, lambda b: 3, more=1) == 769
    assert fits_shared(256, Context()).kind == "proved"
    refusal = fits_shared(1 << 20, Context(), "smaller tiles")
    assert refusal.kind == "refuted" and refusal.needs == "smaller tiles"
    assert refusal.reason == "1048576 bytes of shared memory are needed; sm_80 has 166912 a CTA"
    assert within_shared(1 << 20, Context()).reason == "1048576 bytes of shared memory do not fit"
    unsized = shared_bytes(KERNEL, size=lambda b: None)
    assert not isinstance(unsized, int) and fits_shared(unsized, Context()) is unsized
    assert whole_warps(128, Context()).reason == "4 whole warps" and not whole_warps(100, Context())
