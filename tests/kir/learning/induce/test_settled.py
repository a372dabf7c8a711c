"""Programs that are one but for where values are named; what stands within a loop may be drawn before it."""
from __future__ import annotations

from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.learning.cards.card import Move, Parameter
from kir.learning.cards.facts import expressions
from kir.learning.cards.use import _choices
from kir.learning.induce.settled import settled, settled_hash
from kir.passes.grid.tile import Tile
from tests.kir.learning.cards.test_card import a_card

HEAD = """kir 1
program normalize
  in X: f32[M, 256]
  out Y: f32[M, 256]
  size M: i32
kernel main grid (row: M) threads 1
"""
NAMED = HEAD + """  let x = X[row, 0 +: 256]
  let y = row + 2
  register t: f32 = 0.0
  let total = reduce(x, axis=0, op=sum)
  t = t + total
  Y[y, 0 +: 256] = x / t
"""


def test_where_a_value_is_named_makes_no_other_program() -> None:
    first = parse_program(NAMED)
    other = parse_program(NAMED.replace("  let x = X[row, 0 +: 256]\n", "").replace("  let total", "  let kept = X[row, 0 +: 256]\n  let total").replace(
        "reduce(x", "reduce(kept").replace("= x /", "= kept /"))
    assert content_hash(first) != content_hash(other) and settled_hash(first) == settled_hash(other)
    assert settled_hash(first) != settled_hash(parse_program(NAMED.replace("= x / t", "= X[row, 0 +: 256] / t"))), "what is loaded again is another program"
    assert settled(settled(first)) == settled(first)


def test_a_value_that_reads_memory_passes_nothing_that_may_change_it() -> None:
    stored = NAMED.replace("  in X", "  inout X").replace("  let total", "  X[row, 0] = 1.0\n  let total")
    before, behind = parse_program(stored), parse_program(stored.replace("  let x = X[row, 0 +: 256]\n", "").replace(
        "  X[row, 0] = 1.0\n", "  X[row, 0] = 1.0\n  let x = X[row, 0 +: 256]\n"))
    assert settled_hash(before) != settled_hash(behind)
    shared = HEAD.replace("threads 1", "threads 32") + "  shared s: f32[1]\n  let a = s[0]\n  barrier()\n  Y[row, 0] = a\n"
    waits = parse_program(shared), parse_program(shared.replace("  let a = s[0]\n  barrier()\n", "  barrier()\n  let a = s[0]\n"))
    assert settled_hash(waits[0]) != settled_hash(waits[1])


def test_what_a_loop_computes_anew_each_time_may_be_drawn_before_it() -> None:
    program = parse_program(HEAD + "  for j in 0..256\n    Y[row, j] = X[row, j] / sqrt(X[row, 0])\n")
    found = [text for _, text in expressions(program, ("main", 0))]
    assert found == ["sqrt(X[row, 0])", "X[row, 0]"], "what names the loop's index is not the same before it"


def test_values_that_were_used_together_are_tried_together() -> None:
    program = parse_program(HEAD + "  Y[row, 0 +: 256] = X[row, 0 +: 256]\n")
    move = Move(step="tile", parameters=(Parameter(name="axis", role="chosen", values=(0, 1), low=0, high=1),
                                         Parameter(name="extent", role="chosen", values=(128, 256, 16), low=16, high=256)), ways=((0, 128), (1, 16)))
    card = a_card(carrier=a_card().carrier.model_copy(update={"steps": (move,)}))
    some = [(each.axis, each.extent) for each in _choices(Tile, move, card, program) if isinstance(each, Tile)]
    assert some[:2] == [(0, 128), (1, 16)] and len(some) == len(set(some)) == 6
