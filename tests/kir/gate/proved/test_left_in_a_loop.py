"""Threads that leave the kernel in a loop around a barrier: what the others still write, and what those that have left did last."""
from __future__ import annotations

import numpy as np
import pytest

from kir.gate.proved import proved
from kir.interp import run
from kir.ir.parser import parse_program

HEAD = """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel p grid (b: ceildiv(N, 256)) threads 64
  shared S: f32[64]
  for t in 0..64 parallel thread
"""
LOOP = """    for i in 0..4
      if b * 256 + i * 64 + t >= N
        return
      S[t] = X[b * 256 + i * 64 + t]
      barrier()
      if t > 0
        Y[b * 256 + i * 64 + t] = S[t - 1]
      if t == 0
        Y[b * 256 + i * 64 + t] = 0.0
      barrier()
"""
FOUND = """    Y[b * 256 + t] = 1.0 where b * 256 + t < N
    for k in 0..N
      S[t] = X[k]
      barrier()
      if S[t] > 2.0 * cast(t, f32)
        return
      barrier()
"""
KEPT = LOOP.replace("      S[t] = X[b * 256 + i * 64 + t]\n", "")
CHAIN = """    register v: f32[4]
    for k in 0..4
      v[k] = load(X[b * 256 + t * 4 + k] else 0.0 clip)
      if k > 0
        v[k] = v[k] + v[k - 1]
    Y[b * 256 + t * 4] = v[3] where b * 256 + t * 4 < N
"""
BEGUN = KEPT.replace("    for i", "    S[t] = 1.0\n    barrier()\n    for i")
RIGHT = {"who leaves stays away": LOOP, "by what it wrote itself": FOUND,
         "nobody reads what is gone": BEGUN, "elements of each other": CHAIN}
WRONG = {"its neighbor has left before it wrote": (LOOP.replace("S[t - 1]", "S[63 - t]"), "undefined"),
         "who left comes again": (LOOP.replace("b * 256 + i * 64 + t >= N", "i == 0 & t == 5").replace("if t > 0", "if t > 0 & i > 0")
                                 .replace("= X[b * 256 + i * 64 + t]", "= 1.0").replace("= S[t - 1]", "= S[t - 1] where b * 256 + i * 64 + t < N")
                                 .replace("= 0.0", "= 0.0 where b * 256 + i * 64 + t < N"), "undefined"),
         "a round without its second barrier": (LOOP.removesuffix("      barrier()\n"), "race"),
         "written behind the last barrier by who leaves next": (LOOP + "      if t > 0\n        S[t - 1] = 0.0\n", "race"),
         "written before the loop, without a barrier": (BEGUN.replace("1.0\n    barrier()", "1.0").replace("S[t - 1]", "S[63 - t]"), "race"),
         "just written, and no barrier behind": ("    S[t] = 1.0\n    if 2 > t\n      return\n    if b * 256 + t < N\n      Y[b * 256 + t] = S[0]\n", "race"),
         "who comes to a return for all": ("""    S[t] = 1.0
    barrier()
    register a: f32 = 0.0
    for i in 0..2
      a = a + S[63 - t]
      if i * 2 > t
        continue
      if i >= N
        return
    barrier()
    S[t] = a
""", "race"),
         "written behind the loop": (KEPT.replace("S[t - 1]", "1.0")
                                     + "    S[t] = 1.0\n    barrier()\n    Y[b * 256 + t] = S[63 - t] where b * 256 + t < N\n", "undefined"),
         "elements before they are made": (CHAIN.replace("k > 0", "k < 3").replace("v[k - 1]", "v[k + 1]").replace("v[3]", "v[0]"), "undefined")}
ONLY_OPEN = {"who left comes again", "written behind the loop"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_return_in_a_loop_around_a_barrier_is_proved(name: str) -> None:
    found = proved(parse_program(HEAD + RIGHT[name]), 1)
    assert found.verdict == "proved", found.findings


@pytest.mark.parametrize("name", WRONG)
def test_what_those_that_left_leave_open_is_shown_by_a_run(name: str) -> None:
    text, kind = WRONG[name]
    program = parse_program(HEAD + text)
    found = proved(program, 3)
    assert found.status(kind) == ("undecided" if name in ONLY_OPEN else "refuted"), found.findings  # type: ignore[arg-type]  # one of the kinds
    assert any(f.kind == kind and f.what != "shown by a run" for f in found.findings), "a run shows it, and all is proved"
    if name in ONLY_OPEN:
        assert run(program, {"X": np.ones(200, np.float32), "Y": np.zeros(200, np.float32)}, {"N": 200}, mode="check").errors
