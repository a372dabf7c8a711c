"""Plans that need no kernel like it: what the form of a naive kernel alone says."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kir.gate.cost import program_cost
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.search import Budget, Search
from kir.learning.optimize.several import taken
from kir.learning.optimize.sources import PassSource, TileSource, contiguous_axis
from kir.learning.optimize.starts import Start
from kir.problem import Shape

FORMS = {
    "the place of the least of a column": ("""kir 1
program least
  size G: i32
  size R: i32
  size C: i32
  in X: f32[G, R, C]
  out Y: i32[G, C]
kernel main grid (c: C, g: G) threads 1
  register at: i32 = 0
  for j in 0..R
    if X[g, j, c] < X[g, at, c]
      at = j
  Y[g, c] = at
""", {"G": 32, "R": 512, "C": 1023}, "tiles folded", 2.0),
    "the sum of a column": ("""kir 1
program sums
  size G: i32
  size R: i32
  size C: i32
  in X: f32[G, R, C]
  out Y: f32[G, C]
kernel main grid (c: C, g: G) threads 1
  register s: f32 = 0.0
  for j in 0..R
    s = s + X[g, j, c]
  Y[g, c] = s
""", {"G": 32, "R": 512, "C": 1023}, "tiles folded", 2.0),
    "an element of an image": ("""kir 1
program shifted
  size G: i32
  size W: i32
  in X: f32[G, 3, W, W]
  out Y: f32[G, 3, W - 1, W - 1]
kernel main grid (x: W - 1, y: W - 1, gc: G * 3) threads 1
  let g = gc // 3
  let c = gc % 3
  Y[g, c, y, x] = X[g, c, y + 1, x + 1] - X[g, c, y, x]
""", {"G": 128, "W": 257}, "tiles across", 3.0),
}


HEADS = """kir 1
program heads
  size B: i32
  size L: i32
  in P: f32[B, 16, L, L]
  in V: f32[B, 16, L, 64]
  out Y: f32[B, 16, L, 64]
kernel main grid (r: L, c: 64, h: B * 16) threads 1
  let b = h // 16
  let a = h % 16
  register s: f32 = 0.0
  for k in 0..L
    s = s + P[b, a, r, k] * V[b, a, k, c]
  Y[b, a, r, c] = s
"""


def test_places_that_are_parts_of_one_do_not_keep_a_product_from_tensor_cores() -> None:
    """Of attention written naively: the grid has no fourth axis, and no tile along 64 columns hangs over."""
    program, sizes = parse_program(HEADS, "heads"), {"B": 4, "L": 512}
    problem = SimpleNamespace(spec=SimpleNamespace(operator=""), dtype="f32", name="heads")
    setting = Setting(cast(Any, problem), Shape(name="timed", tags=("timed",), sizes=sizes), target("h200"), "triton")
    search = Search(program, setting, CpuJudge(setting), (TileSource(),), budget=Budget(seconds=1e4, plans=10), from_starts=[Start("as it is", program)])
    best = min(search.proposals(10), key=lambda c: c.seconds)
    assert best.plan.family == "tiles cores" and not best.left


@pytest.mark.parametrize("name", FORMS)
def test_a_form_alone_says_how_a_kernel_comes_near_what_the_device_allows(name: str) -> None:
    """Without anything stored: the naive program is more than 30 times slower than reading and writing its tensors once; of the first plans one is near."""
    text, sizes, family, times = FORMS[name]
    program = parse_program(text, name)
    problem = SimpleNamespace(spec=SimpleNamespace(operator=""), dtype="f32", name=name)
    setting = Setting(cast(Any, problem), Shape(name="timed", tags=("timed",), sizes=sizes), target("h200"), "triton")
    search = Search(program, setting, CpuJudge(setting), (TileSource(),), budget=Budget(seconds=1e4, plans=12), from_starts=[Start("as it is", program)])
    found = search.proposals(8)
    (cost,) = program_cost(program, sizes, setting.target, None, "triton")
    least = cost.compulsory / setting.target.device.bandwidth
    best = min(found, key=lambda c: c.seconds)
    assert cost.seconds > 30 * least and best.seconds < times * least and best.plan.family == family
    assert contiguous_axis(program.kernels[0]) == 0


@pytest.mark.parametrize(("value", "spread"), [("X[r, c] * 2.0", True), ("X[r, c] + X[r, C - 1 - c]", True), ("Y[r, max(c - 1, 0)] + X[r, c]", False)])
def test_loops_over_results_that_need_nothing_of_one_another_become_axes_of_the_grid(value: str, spread: bool) -> None:
    """A row's elements are CTAs of their own, where no element needs the one before it."""
    program = parse_program("kir 1\nprogram p\n  size R: i32\n  size C: i32\n  in X: f32[R, C]\n  inout Y: f32[R, C]\nkernel main grid (r: R) threads 1\n"
                            f"  for c in 0..C\n    Y[r, c] = {value}\n")
    problem = SimpleNamespace(spec=SimpleNamespace(operator=""), dtype="f32", name="p")
    setting = Setting(cast(Any, problem), Shape(name="timed", tags=("timed",), sizes={"R": 512, "C": 4096}), target("h200"), "cuda")
    plans = {family: next(stream) for family, _, stream in TileSource().streams(program, setting)}
    assert ("tiles spread" in plans) == spread
    if spread:
        assert next(iter(plans)) == "tiles spread", "nothing is folded: first of all"
        made = taken(program, plans["tiles spread"], setting.context, {}).program
        assert len(made.kernels[0].grid) == 2 and not any(isinstance(s, n.For) for s in made.kernels[0].body)


@pytest.mark.parametrize(("rows", "kept"), [(64 * 64, []), (64 * 2000, [132, 528, 1056])])
def test_ctas_stay_only_where_there_are_more_of_them(rows: int, kept: list[int]) -> None:
    """The cost model thinks CTAs without work as busy as the others."""
    program = parse_program("kir 1\nprogram p\n  size R: i32\n  in X: f32[R]\n  out Y: f32[R]\nkernel main grid (r: ceildiv(R, 64)) threads 128\n"
                            "  Y[r * 64 +: 64] = load(X[r * 64 +: 64] else 0.0:f32 clip) clip\n")
    setting = Setting(cast(Any, None), Shape(name="timed", tags=("timed",), sizes={"R": rows}), target("h200"), "triton")
    plans = PassSource(table={"persistent": {"ctas": ()}}).plans(program, setting)
    assert sorted(cast(int, p.steps[0].options.get("ctas", 132)) for p in plans) == kept


def test_a_time_that_is_less_than_moving_the_tensors_takes_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the cost model, which sees nothing of what a candidate moves, makes no candidate the best."""
    text, sizes, *_ = FORMS["the sum of a column"]
    program = parse_program(text, "sums")
    problem = cast(Any, SimpleNamespace(spec=SimpleNamespace(operator=""), dtype="f32", name="sums"))
    setting = Setting(problem, Shape(name="timed", tags=("timed",), sizes=sizes), target("h200"), "triton")
    given = program_cost(program, sizes, setting.target, None, "triton")
    monkeypatch.setattr("kir.learning.optimize.search.modelled", lambda p, *x: given if p == program else [replace(c, seconds=1e-9) for c in given])
    search = Search(program, setting, CpuJudge(setting), (TileSource(),), budget=Budget(seconds=1e4, plans=6), from_starts=[Start("as it is", program)])
    assert not search.proposals(8) and search.pruned["the cost model does not see all that it moves"] >= 4
