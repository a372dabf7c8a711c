"""What becomes of how people write kernels: loops that run once, `continue`, records, results of branches, axes of one element, sums as strides. Each is
told by a line that the normal form has or has not, and means what it meant."""
from __future__ import annotations

import pytest

from kir.analysis.normal.regions import raised
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite.meaning import difference, interpreted

HEAD = """kir 1
program p
  size N: i32
  size H: i32
  in X: f32[N]
  in V: i32[N]
  in P: f32[N, H + 1]
  out Y: f32[N]
  out Q: f32[N, H + 1]
  fact N >= 1
  fact H >= 1
"""
Q = "  view global Q_flat: f32[H * N + N] at Q\n"
SWAPPED = """  for t in 0..32 parallel thread
    register u: f32 = X[t]
    register v: f32 = X[t] * 2.0
    for k in 0..3
      register c: f32
      register d: f32
      if V[t] > k
        c = v + 1.0
        d = u
      else
        c = u
        d = v
      u = c
      v = d
    Y[t] = u - v
"""
RECORD = """  for i in 0..N
    register p: f32[2] = 0.0
    p[0] = X[i]
    register q: f32[2]
    q = select(V[i] > 0, vec(p[1], p[0]), p)
    p = q
    Y[i] = p[0] - p[1]
"""
FORMS = {
    "a grid that covers all": ("(b: ceildiv(N, 32)) threads 32", "  for t in 0..32 parallel thread\n    for i in b * 32 + t..N step ceildiv(N, 32) * 32\n"
                               "      Y[i] = X[i]\n", ("if b * 32 + t < N",), ("for i",)),
    "one that does not": ("(b: 1) threads 32", "  for t in 0..32 parallel thread\n    for i in t..N step ceildiv(N, 64) * 32\n      Y[i] = X[i]\n",
                           ("for i",), ()),
    "one whose loop begins later": ("(b: ceildiv(N, 32)) threads 32",
                                    "  for t in 0..32 parallel thread\n    for i in b * 32 + t - 32..N step ceildiv(N, 32) * 32\n"
                                    "      Y[max(i, 0)] = X[max(i, 0)] where i >= 0\n", ("for i",), ()),
    "iterations left out": ("(b: 1) threads 1", "  for i in 0..N\n    Y[i] = 0.0\n    if V[i] > 0\n      continue\n"
                            "    if V[i] < -1\n      Y[i] = 3.0\n      continue\n"
                            "    Y[i] = X[i]\n", ("if V[i] <= 0", "else"), ("continue",)),
    "comparisons of floats have no opposite": ("(b: 1) threads 1", "  for i in 0..N\n    Y[i] = 0.0\n    if X[i] > 0.0\n      continue\n    Y[i] = X[i]\n",
                                               ("if ~(X[i] > 0.0)",), ("continue",)),
    "what is read, or a number": ("(b: 1) threads 32", "  shared S: f32[32]\n  for t in 0..32 parallel thread\n    if t < N\n      S[t] = X[t]\n    else\n"
                                  "      S[t] = 0.0\n    barrier()\n    if t < N\n      Y[t] = S[t]\n", ("S[t] = load(X[t] else 0.0 clip)",), ("else\n",)),
    "a record": ("(b: 1) threads 1", RECORD, ("select(V[i] > 0, p_0, 0.0)",), ("f32[2]",)),
    "a record that is a place": ("(b: 1) threads 1", RECORD.replace("p[0] - p[1]", "p[V[i] & 1] - p[1]"), ("register p: f32[2]",), ()),
    "results that change places": ("(b: 1) threads 32", SWAPPED, ("_kept",), ("register c",)),
    "a result that is read again": ("(b: 1) threads 32", SWAPPED.replace("v = d", "v = d + c"), ("register c",), ()),
    "an axis of one element": ("(b: 1) threads 1", "  for i in 0..N\n    fragment m: f32[1, 2] = 0.0\n    m[0, 0] = X[i]\n"
                               "    for k in 0..2\n      m[0, k] = m[0, k] + 1.0\n"
                               "    Y[i] = m[0, 0] * m[0, 1]\n", ("fragment m: f32[2]",), ()),
    "a stride that is a sum": ("(i: N) threads 1", Q + "  for j in 0..H + 1\n    Q_flat[i * H + i + j] = P[i, j]\n", ("Q[i, j] = P[i, j]",), ("Q_flat",)),
    "a place that leaves its row": ("(i: N) threads 1", Q + "  for j in 0..H\n    Q_flat[i * H + i + j + 1] = P[i, j]\n  Q_flat[i * H + i] = P[i, 0]\n",
                                    ("Q[i, j + 1]",), ("Q_flat",)),
    "one that may": ("(i: N) threads 1", Q + "  for j in 0..H + 2\n    if i * H + i + j < H * N + N\n      Q_flat[i * H + i + j] = P[i, min(j, H)]\n",
                     ("Q_flat[",), ()),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_a_way_to_write_comes_to_one_form(name: str) -> None:
    grid, body, has, lacks = FORMS[name]
    program = parse_program(f"{HEAD}kernel p grid {grid}\n{body}", "p.kir")
    made = raised(program)
    text = program_text(made)
    assert all(x in text for x in has), text
    assert not any(x in text for x in lacks), text
    if name != "one that may":
        only = {"N": 32 if "parallel" in body and "t < N" not in body else 29, "H": 3}
        assert difference(interpreted(program, only), interpreted(made, only)) == ""


def test_what_holds_of_signs_is_kept() -> None:
    text = f"{HEAD}kernel p grid (i: N) threads 1\n  Y[i] = cast(cast(cast(V[i], u64), i64), f32)\n  Q[i, 0] = cast(cast(cast(V[i], u32), i64), f32)\n"
    made = program_text(raised(parse_program(text, "p.kir")))
    assert "cast(cast(V[i], i64), f32)" in made and "cast(cast(cast(V[i], u32), i64), f32)" in made
