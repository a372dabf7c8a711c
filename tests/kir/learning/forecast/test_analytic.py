"""The analytic forecast: how wide it is, what it says, and when it defers."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.gate.cost import program_cost
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.forecast import Analytic, Pair
from kir.learning.forecast.analytic import spread
from kir.learning.forecast.terms import refused, staged, unhidden
from kir.surface import Artifact, CompiledKernel

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


def test_what_is_not_hidden_tells_two_apart_that_are_bound_alike() -> None:
    twice = parse_program(program_text(PLAIN).replace("s = s + X[b, i * 128 + t]", "s = s + X[b, i * 128 + t] * 2.0 + 1.0"), "p.kir")
    plain, more = (program_cost(p, {"N": 512}, H200) for p in (PLAIN, twice))
    assert 0.0 < unhidden(plain) < unhidden(more)
    code = [Artifact("cuda", "sm_90a", (CompiledKernel("main", 32, 0, 0, 128, {"FFMA": count}),)) for count in (100, 800)]
    assert unhidden(plain, code[0]) < unhidden(plain, code[1])
    seen = Analytic()(Pair(twice, PLAIN, {"N": 512}, H200))
    assert "not hidden" in {r.resource for r in seen.reasons} and seen.pays in ("yes", "unsure")


REFUSED = {
    "a wait for fewer groups than none": ("cuda", "shared S: f32[128]\n  async_wait(-1)\n  Y[b, 0] = 1.0", 1),
    "a wait for all groups": ("cuda", "shared S: f32[128]\n  async_wait(0)\n  Y[b, 0] = 1.0", 0),
    "threads beyond a shared array": ("cuda", "shared S: f32[64]\n  for t in 0..128 parallel thread\n    S[t] = 1.0", 1),
    "threads that a branch keeps inside": ("cuda", "shared S: f32[64]\n  for t in 0..128 parallel thread\n    if t < 64\n      S[t] = 1.0", 0),
    "the last round beyond it": ("cuda", "shared S: f32[64]\n  for t in 0..32 parallel thread\n    for i in 0..3\n      S[i * 32 + t] = 1.0", 1),
    "rounds inside it": ("cuda", "shared S: f32[96]\n  for t in 0..32 parallel thread\n    for i in 0..3\n      S[i * 32 + t] = 1.0", 0),
    "a load that Triton has no policy for": ("triton", "let x = load(X[b, 0 +: 128] cache cs)\n  Y[b, 0 +: 128] = x", 1),
    "the same plain": ("triton", "let x = X[b, 0 +: 128]\n  Y[b, 0 +: 128] = x", 0),
    "more threads than rows, where all rows are there": ("cuda", "shared S: f32[64]\n  for t in 0..128 parallel thread\n    if t < N\n      S[t] = 1.0", 1),
    "no more rows than fit": ("cuda", "shared S: f32[64]\n  for t in 0..128 parallel thread\n    if t < N - 448\n      S[t] = 1.0", 0),
    "a tile of the registers of a team": ("tilelang", "register R: f32[128] = 0.0\n  Y[b, 0 +: 128] = R * 2.0", 0),
    "a tile of the registers of the only thread": ("tilelang threads 1", "register R: f32[128] = 0.0\n  Y[b, 0 +: 128] = R * 2.0", 1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_known_to_fail_is_refused_before_a_compiler_is_asked(what: str) -> None:
    words, body, count = REFUSED[what]
    surface, _, threads = words.partition(" ")
    head = f"kir 1\nprogram p\n  size N: i32\n  in X: f32[1024, 128]\n  out Y: f32[1024, 128]\nkernel main grid (b: 1024) {threads or 'threads 128'}\n  "
    p = parse_program(head + body, "p.kir")
    assert refused(p, H200.architecture, surface, {"N": 512}) == count
    assert (Analytic()(Pair(p, p, {"N": 512}, H200, surface=surface)).fails > 0.9) == bool(count)


@pytest.mark.parametrize(("stages", "columns", "fits"), [(3, 256, False), (3, 128, True), (2, 256, False)])
def test_what_triton_stages_is_counted(stages: int, columns: int, fits: bool) -> None:
    p = parse_program(f"""kir 1
program p
  in A: f16[4096, 4096]
  in B: f16[4096, 4096]
  out C: f16[4096, 4096]
kernel main grid (m: 16, n: {4096 // columns}) threads 256
  fragment acc: f32[256, {columns}] = 0.0
  for k in 0..64 pipelined {{stages={stages}}}
    mma acc += A[m * 256 +: 256, k * 64 +: 64] * B[k * 64 +: 64, n * {columns} +: {columns}]
  fragment c: f16[256, {columns}]
  c = cast(acc, f16)
  copy c -> C[m * 256 +: 256, n * {columns} +: {columns}] via tma
""", "p.kir")
    assert staged(p) == stages * (64 * (256 + columns) * 2 + 8) + 256 * columns * 2
    assert (staged(p) <= H200.architecture.shared_per_cta) == fits
