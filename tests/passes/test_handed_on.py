"""What one thread hands on to the others through shared memory, piece by piece, and who may read it when."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import passes, run
from kir.rewrite.driver import sites

CARRIED = """kir 1
program p
  size M: i32
  in X: f32[M, 2, 64]
  out Y: f32[M, 2, 64]
kernel main grid (row: M) threads 64
  shared slots: f32[64]
  shared tops: f32[2]
  shared carry: f32
  for t in 0..64 parallel thread
    if t == 0
      carry = 0.0
    barrier()
    for k in 0..2
      register s: f32 = X[row, k, t]
      slots[t] = s
      warp_sync()
      s = 0.0
      for u in 0..t % 32 + 1
        s = s + slots[t // 32 * 32 + u]
      warp_sync()
      if t % 32 == 31
        tops[t // 32] = s
      barrier()
      let before = carry + load(tops[0] where t // 32 > 0 else 0.0)
{tail}
      barrier()
"""


USE, HAND, MEET = ("Y[row, k, t] = before + s",), ("if t == 63", "  carry = before + s"), ("barrier()",)


@pytest.mark.parametrize(("tail", "why"), [
    ((*USE, *MEET, *HAND), ""),
    ((*MEET, *HAND, *MEET, *USE), "it is read once another piece is in it"),
    ((*MEET, *USE, *HAND), "others may read it while it is written"),
    ((*MEET, *HAND, "else", "  Y[row, k, t] = before + s"), "others read it in the other branch"),
    ((*MEET, "if before + s > 3.0e38", "  carry = before + s"), "all read it to see who writes"),
])
def test_what_is_handed_on_is_read_later_only_where_it_is_still_there(tail: tuple[str, ...], why: str) -> None:
    program = parse_program(CARRIED.format(tail="\n".join(f"      {line}" for line in tail)), "p.kir")
    if why:
        with pytest.raises(KirError, match="does not apply"):
            run(program, "~team-fold")
    else:
        assert "let before" not in program_text(run(program, "~team-fold").program)


@pytest.mark.parametrize(("after", "found"), [("", 1), ("      Z[row, o, t] = carry\n", 0)])
def test_a_carry_that_is_begun_again_is_handed_on_only_where_nobody_still_reads_it(after: str, found: int) -> None:
    text = """kir 1
program p
  size M: i32
  in X: f32[M, 2, 3, 64]
  out Y: f32[M, 2, 3, 64]
  out Z: f32[M, 2, 64]
kernel main grid (row: M) threads 64
  shared slots: f32[64]
  for t in 0..64 parallel thread
    for o in 0..2
      register carry: f32 = 0.0
      for k in 0..3
        slots[t] = X[row, o, k, t]
        barrier()
        register total: f32 = 0.0
        for u in 0..t + 1
          total = total + slots[u]
        Y[row, o, k, t] = carry + total
        register all: f32 = 0.0
        for w in 0..64
          all = all + slots[w]
        carry = carry + all
        barrier()
"""
    item = next(p for p in passes() if p.name == "carry-in-shared").with_options({})
    assert len(sites(item, parse_program(text + after, "p.kir"))) == found
