"""What tests bring about: what a `while` asks in later rounds, outcomes of tests that tell, places without an element, and what fills in behind an edge."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kir.gate.cases import RelativeCase, relative_case, tensor_names
from kir.gate.claims import outcomes
from kir.gate.claims.drawn import never_drawn
from kir.gate.claims.flow import Flow
from kir.gate.claims.ranges import filled_behind, truths
from kir.gate.claims.ways import Way, taken
from kir.gate.claims.ways import ways as ways_of
from kir.ir.nodes import If, Program
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text
from kir.problem import load_problem

HALVED = """kir 1
program halved
  in X: f32[M]
  out Y: f32[M]
  size M: i32
kernel main grid (i: M) threads 1
  register t: f32 = abs(X[i])
  register left: i32 = 3
  while left > 0 & t > 0.01
    t = t * 0.5
    left = left - 1
  Y[i] = t
"""
COUNTED = """kir 1
program counted
  in X: f32[M, N]
  in T: f32[M]
  out Y: i32[M]
  size M: i32
  size N: i32
kernel main grid (i: M) threads 32
  let x = select(iota(64) < N, load(X[i, 0 +: 64] else 0.0 clip), 0.0)
  let same = iota(64) < {end} & x == T[i]
  Y[i] = reduce(select(same, 1, 0), axis=0, op=sum)
"""
GREATEST = """kir 1
program greatest
  in X: f32[M, N]
  out Y: f32[M]
  size M: i32
  size N: i32
kernel main grid (i: M) threads 32
  register top: f32 = -inf
  for c in 0..N step 64
    top = max(top, reduce(select(c + iota(64) < N, load(X[i, c +: 64] else 0.0 clip), -inf), axis=0, op=max))
  Y[i] = top
"""


def ways(program: Program) -> dict[str, Way]:
    """All outcomes, by their words."""
    return {expr_text(way.cond): way for way, _ in outcomes._outcomes(program, Flow(program), {p.name: p.name for p in program.params})}


def test_a_loop_asks_again_behind_each_round_and_a_test_counts_where_it_tells() -> None:
    program = parse_program(HALVED, "halved.kir")
    found = ways(program)
    ended = found["t > 0.01 & ~(left > 0)"]
    case = relative_case(program, {"M": 3}, "normal", 1)
    assert isinstance(case, RelativeCase)
    assert taken(program, [ended], [case]) == {id(ended)}
    assert outcomes._told(program, [ended], [case]) == {id(ended)}  # a fourth half were another answer
    assert taken(program, [ended], [replace(case, inputs={"X": np.zeros(3, np.float32)})]) == set()


def test_places_behind_the_edge_of_what_is_loaded_hold_no_element() -> None:
    for end, harmless in (("N", True), ("N - 1", False)):
        program = parse_program(COUNTED.format(end=end), "counted.kir")
        way = next(way for text, way in ways(program).items() if "& ~(iota" in text)
        whole = outcomes._whole(way.cond, outcomes._lets(program)["main"])
        assert outcomes._of_no_element(program, way, whole) is harmless


MASKED = """kir 1
program masked
  in X: u32[M]
  in T: u32[1]
  in C: i32[1]
  out Y: i32[1]
  size M: i32
kernel main grid (i: 1) threads 32
  let held = C[0]
  let key = load(X[0 +: 64] where iota(64) < held else {fill}:u32 clip)
  let above = iota(64) < {end} & (key & T[0]) {op} T[0]
  Y[0] = reduce(select(above, 1, 0), axis=0, op=sum)
"""


@pytest.mark.parametrize("fill, end, op, never", [
    ("0", "held", ">", True), ("0", "held", "<", False), ("1", "held", ">", False), ("0", "held - 1", ">", False), ("0", "held", "==", False)])
def test_what_a_masked_load_is_filled_with_is_what_stands_where_its_mask_does_not_hold(fill: str, end: str, op: str, never: bool) -> None:
    program = parse_program(MASKED.format(fill=fill, end=end, op=op), "masked.kir")
    way = next(way for text, way in ways(program).items() if "& ~(iota" in text)
    whole = outcomes._whole(way.cond, outcomes._lets(program)["main"])
    assert way.holds and (True not in truths(filled_behind(whole), {})) is never


def test_what_fills_in_behind_an_edge_is_no_number_of_a_greater_of_two() -> None:
    program = parse_program(GREATEST, "greatest.kir")
    signs = {sign for _, sign in outcomes._outcomes(program, Flow(program), {"X": "X", "Y": "Y"}) if sign[0] == "max"}
    assert signs == {("max", (), frozenset({"X"}))}


DROPPED = """kir 1
program dropped
  in X: f32[M]
  out Y: f32[M]
  size M: i32
kernel main grid (i: M) threads 1
  Y[i] = select({asked}, {then}, X[i])
"""


@pytest.mark.parametrize(("then", "drawn", "said"), [("0.0", 0.5, "no test brings about"), ("0.0", 9.0, ""), ("1.0", 9.0, "no test brings about")],
                         ids=["nothing brings it about", "what the problem draws does", "it is wrong there"])
def test_what_no_search_brings_about_may_be_drawn_by_the_problem(then: str, drawn: float, said: str) -> None:
    judge = parse_program(DROPPED.format(asked="abs(X[i]) > 4.0", then="0.0"))
    program = parse_program(DROPPED.format(asked="X[i] * X[i] > 16.0", then=then))
    names, flow = {p.name: p.name for p in program.params}, Flow(program)

    def case(value: float) -> RelativeCase:
        made = relative_case(judge, {"M": 3}, "normal", 0)
        assert isinstance(made, RelativeCase)
        x = np.full(3, value, np.float32)
        return replace(made, inputs={"X": x}, expected={"Y": np.where(abs(x) > 4.0, np.float32(0.0), x)}, also=None, exactly=None)
    cases = [case(0.25), case(0.75)]
    found = list(outcomes.unseen(program, flow, names, [(judge, Flow(judge), names)], cases, {}, lambda: iter(()), rest=lambda: iter([case(drawn)])))
    assert [said in d.message for d in found] == ([True] if said else [])


PARTED = """kir 1
program parted
  size G: i32
  size T: i32
  size N: i32
  size K: i32
  in A: f16[T, K]
  in B: f16[G, N, K]
  in offsets: i32[G + 1]
  out C: f16[T, N]
kernel main grid (pid: 132) threads 1
  for g in 0..G
    let first = offsets[g]
    let rows = -first + offsets[g + 1]
    let seen = max(first, 0)
    let height = max(rows, 0)
    let far = {asked}
    for t in (pid + seen) % 132..height * N step 132
      C[first + t // N, t % N] = 0.0:f16 where t // N < rows & t // N < T clip
"""


@pytest.mark.parametrize("asked, never", [("0", {"~(first >= 0)", "~(rows >= 0)", "t // N < rows & ~(t // N < T)"}),
                                          ("max(rows, 1)", {"~(first >= 0)", "~(rows >= 0)", "t // N < rows & ~(t // N < T)"}),
                                          ("min(offsets[G], T)", {"~(first >= 0)", "~(rows >= 0)", "t // N < rows & ~(t // N < T)", "T < offsets[G]"})])
def test_what_no_draw_of_a_partition_brings_about_is_not_asked(asked: str, never: set[str]) -> None:
    """Elements lie from zero to what is parted, none before the one ahead of it; an empty piece, and one of a single thing, are drawn."""
    problem, program = load_problem("gemm_grouped"), parse_program(PARTED.format(asked=asked))
    names = tensor_names(program, problem, {})
    flow = Flow(program)
    ways = [*(way for way, _ in outcomes._outcomes(program, flow, names)), *ways_of(program, flow)]
    assert {outcomes._words(way) for way in ways if never_drawn(program, problem, names, way)} == never
    assert not any(never_drawn(program, load_problem("gemm"), {}, way) for way in ways)


GROUPS = """kir 1
program groups
  size G: i32
  size T: i32
  in X: f32[T]
  in offsets: i32[G + 1]
  out Y: f32[T]
kernel main grid (g: G) threads 1
  let first = offsets[g]
  let rows = -first + offsets[g + 1]
  for i in 0..T
    if {cond}
      Y[i] = X[i]
"""


@pytest.mark.parametrize("cond, holds, never", [
    ("rows < 0", True, True), ("rows >= 0", False, True), ("i < rows & i >= T", True, True), ("i < rows & ~(i < T)", True, True),
    ("rows < 1", True, False),  # a group may be empty
    ("rows < 0", False, False), ("first - offsets[g + 1] < 0", True, False),  # it has elements
    ("i < rows & i >= G", True, False), ("i + 1 < rows & i + 2 >= T", True, False),  # all may be of one group
    ("offsets[g + 1] - X_at < 0", True, False)])
def test_parts_that_follow_one_another_are_neither_negative_nor_more_than_the_whole(cond: str, holds: bool, never: bool) -> None:
    problem = load_problem("gemm_grouped")
    program = parse_program(GROUPS.replace("{cond}", cond).replace("X_at", "offsets[g + 2 - 2]" if never else "cast(X[i], i32)"))
    names = {"offsets": "offsets", "T": "T", "G": "G"}
    found = [w for w in ways_of(program, Flow(program)) if w.holds == holds and isinstance(w.node, If)]
    assert [never_drawn(program, problem, names, w) for w in found] == [never]
    drawn_anyhow = load_problem("fmha_varlen")
    assert not never_drawn(program, drawn_anyhow, {"offsets": "lengths"}, found[0]), "lengths follow no order"
