"""The analytic forecast: how wide it is, what it says, and when it defers."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast import Analytic, Pair
from kir.learning.forecast.analytic import spread

H200 = target("h200")


def program(loop: str, index: str = "i * 128 + t") -> Program:
    return parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[1024, 65536]
  out Y: f32[1024, 128]
kernel main grid (b: 1024) threads 128
  for t in 0..128 parallel thread
    register s: f32 = 0.0
    {loop}
      s = s + X[b, {index}]
    Y[b, t] = s
""", "p.kir")


PLAIN, SCATTERED = program("for i in 0..N"), program("for i in 0..N", "t * 512 + i")


def test_it_tells_what_moves_and_by_how_much() -> None:
    seen = Analytic()(Pair(SCATTERED, PLAIN, {"N": 512}, H200))
    assert seen.median > 1.0 and seen.seconds[0] > seen.seconds[1] and not seen.defer
    moved = [abs(r.after - r.before) for r in seen.reasons]
    assert moved == sorted(moved, reverse=True) and {"latency", "dram", "l2", "launch"} <= {r.resource for r in seen.reasons}
    back = Analytic()(Pair(PLAIN, SCATTERED, {"N": 512}, H200))
    assert back.median == pytest.approx(1 / seen.median)


def test_a_step_that_moves_nothing_is_narrow_and_a_large_one_wide() -> None:
    same = Analytic()(Pair(PLAIN, PLAIN, {"N": 512}, H200))
    low, high = same.interval(0.8)
    assert same.median == pytest.approx(1.0) and high / low < 1.4
    assert spread(0.0, False, True) < spread(0.0, True, True) < spread(1.0, True, True) and spread(0.5, False, True) < spread(0.5, False, False)


def test_what_is_not_counted_defers_with_a_wide_answer() -> None:
    seen = Analytic()(Pair(program("while s < 10.0", "t"), PLAIN, {"N": 512}, H200))
    assert "while" in seen.defer
    sure = Analytic()(Pair(PLAIN, SCATTERED, {"N": 512}, H200))
    assert not sure.defer


@pytest.mark.parametrize(("threads", "wide", "least", "most"), [(128, 32, 0.0, 0.1), (64, 32, 0.5, 1.0), (256, 32, 0.2, 1.0), (128, 1 << 17, 0.9, 1.0)])
def test_a_program_that_writes_other_parts_of_its_outputs_or_is_refused_fails(threads: int, wide: int, least: float, most: float) -> None:
    def copying(threads: int, words: int) -> Program:
        return parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 128)) threads {threads}
  shared S: f32[{words}]
  for t in 0..{threads} parallel thread
    if b * 128 + t < N
      Y[b * 128 + t] = X[b * 128 + t]
""", "p.kir")
    seen = Analytic()(Pair(copying(128, 32), copying(threads, wide), {"N": 1 << 16}, H200))
    assert least <= seen.fails <= most


def test_a_size_of_zero_is_no_launch() -> None:
    with pytest.raises(KirError, match="KIR-E007"):
        Analytic()(Pair(PLAIN, PLAIN, {"N": 0}, H200))
