"""Equality over the reals: what field laws rewrite is proved, what differs at some point never is."""
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kir.analysis.algebra.equality import equal_over_reals
from kir.analysis.algebra.normal import Normal
from kir.analysis.algebra.terms import Term, Terms, Undecided
from kir.ir.parser import parse_program

Tree = Any
"""An expression: a name, a number, or an operation with its operands."""
POINTS = ({"x": 0.3, "y": -1.7, "z": 2.2}, {"x": -0.9, "y": 0.45, "z": 1.1}, {"x": 1.9, "y": 1.3, "z": -0.6}, {"x": -2.1, "y": -0.2, "z": -1.4})

LEAVES = st.sampled_from(["x", "y", "z"]) | st.integers(-3, 3).map(float) | st.sampled_from([0.5, 1.5, -0.25])
TREES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.tuples(st.sampled_from(["add", "sub", "mul", "max", "min"]), inner, inner), st.tuples(st.sampled_from(["exp", "sigmoid", "abs"]), inner),
    st.tuples(st.just("over"), inner, inner)), max_leaves=7)


def built(terms: Terms, e: Tree) -> Term:
    """The term of a tree; `over` divides by one plus an exponential, which is never zero."""
    if isinstance(e, str):
        return terms.make("in", e)
    if isinstance(e, float):
        return terms.number(e)
    parts = [built(terms, x) for x in e[1:]]
    if e[0] == "over":
        return terms.div(parts[0], terms.add(terms.number(Fraction(1)), terms.exp(parts[1])))
    return terms.call(e[0], parts)


def evaluated(e: Tree, at: dict[str, float]) -> float:
    """The same in float64."""
    if isinstance(e, str):
        return at[e]
    if isinstance(e, float):
        return e
    a, *rest = (evaluated(x, at) for x in e[1:])
    b = rest[0] if rest else 0.0
    try:
        return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "max": lambda: max(a, b), "min": lambda: min(a, b),
                "exp": lambda: math.exp(a), "sigmoid": lambda: 1 / (1 + math.exp(-a)), "abs": lambda: abs(a), "over": lambda: a / (1 + math.exp(b))}[e[0]]()
    except OverflowError:
        return math.inf


def rewritten(e: Tree, draw: Any) -> Tree:
    """A tree that field laws, and those of exponentials and maxima, make of another."""
    if not isinstance(e, tuple):
        return e
    op, *parts = (e[0], *(rewritten(x, draw) for x in e[1:]))
    which = draw(st.integers(0, 4))
    same: Tree = (op, *parts)
    if op in ("add", "mul", "max", "min") and which == 0:
        same = (op, parts[1], parts[0])
    elif op in ("add", "mul", "max", "min") and which == 1 and isinstance(parts[1], tuple) and parts[1][0] == op:
        same = (op, (op, parts[0], parts[1][1]), parts[1][2])
    elif op == "mul" and which == 2 and isinstance(parts[1], tuple) and parts[1][0] in ("add", "sub"):
        same = (parts[1][0], (op, parts[0], parts[1][1]), (op, parts[0], parts[1][2]))
    elif op == "sub" and which == 3:
        same = ("add", parts[0], ("mul", -1.0, parts[1]))
    elif op == "exp" and isinstance(parts[0], tuple) and parts[0][0] == "add":
        same = ("mul", ("exp", parts[0][1]), ("exp", parts[0][2]))
    elif op == "max" and which == 4:
        same = ("add", parts[0], ("max", 0.0, ("sub", parts[1], parts[0])))
    elif op == "over" and which == 2:
        same = ("mul", ("over", 1.0, parts[1]), parts[0])
    elif op == "sigmoid":
        same = ("over", 1.0, ("mul", -1.0, parts[0]))
    return same


def changed(e: Tree, draw: Any) -> Tree:
    """The same tree with one constant or sign of another kind."""
    if not isinstance(e, tuple):
        return e + draw(st.sampled_from([0.5, -1.0, 2.0])) if isinstance(e, float) else ("mul", -1.0, e)
    k = draw(st.integers(1, len(e) - 1))
    return (*e[:k], changed(e[k], draw), *e[k + 1:])


def proved(a: Tree, b: Tree) -> bool:
    terms, normal = Terms(), Normal()
    try:
        return normal.equal(built(terms, a), built(terms, b))
    except Undecided:
        return False


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_laws_make_of_an_expression_is_proved_equal(data: Any) -> None:
    e = data.draw(TREES)
    terms, normal = Terms(), Normal()
    try:
        built(terms, e)
    except Undecided:
        assume(False)
    assert normal.equal(built(terms, e), built(terms, rewritten(e, data.draw)))


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_what_differs_somewhere_is_never_proved_equal(data: Any) -> None:
    e = data.draw(TREES)
    other = changed(rewritten(e, data.draw), data.draw)
    if proved(e, other):
        for at in POINTS:
            a, b = evaluated(e, at), evaluated(other, at)
            assert not (math.isfinite(a) and math.isfinite(b)) or abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


HEAD = "kir 1\nprogram p\n  size N: i32\n  in X: f32[2, N]\n  out Y: f32[2, N]\nkernel main grid (row: 2) threads 32\n"
SOFTMAX = """  register total: f32 = 0.0
  for i in 0..N
    total = total + exp(X[row, i])
  for i in 0..N
    Y[row, i] = exp(X[row, i]) / total
"""
ONLINE = """  register top: f32 = -inf
  register total: f32 = 0.0
  for i in 0..N
    let next = max(top, X[row, i])
    total = total * exp(top - next) + exp(X[row, i] - next)
    top = next
  for i in 0..N
    Y[row, i] = exp(X[row, i] - top) / total
"""
BY_WARP = """  for t in 0..32 parallel thread
    register top: f32 = -inf
    for i in 0..ceildiv(N, 32)
      top = max(top, load(X[row, i * 32 + t] else -inf clip))
    let across = top
    for k in 0..5
      let other = shfl_xor(top, 1 << k)
      top = max(top, other)
    register total: f32 = 0.0
    for i in 0..ceildiv(N, 32)
      total = total + exp2((load(X[row, i * 32 + t] else -inf clip) - top) * 1.4426950408889634)
    for k in 0..5
      let other = shfl_xor(total, 1 << k)
      total = total + other
    for i in 0..ceildiv(N, 32)
      Y[row, i * 32 + t] = exp(load(X[row, i * 32 + t] else -inf clip) - top) * rcp_approx(total) clip
"""
SHARED = """  shared s: f32[32]
  for t in 0..32 parallel thread
    register total: f32 = 0.0
    for i in 0..ceildiv(N, 32)
      total = total + exp(load(X[row, i * 32 + t] else -inf clip))
    s[t] = total
    for k in 0..5
      barrier()
      if t < 16 >> k
        s[t] = s[t] + s[t + (16 >> k)]
    barrier()
    for i in 0..ceildiv(N, 32)
      Y[row, i * 32 + t] = exp(load(X[row, i * 32 + t] else -inf clip)) / s[0] clip
"""


@pytest.mark.parametrize("other", [ONLINE, BY_WARP, SHARED])
@pytest.mark.parametrize("size", [3, 34])
def test_ways_of_a_softmax_are_equal(other: str, size: int) -> None:
    found = equal_over_reals(parse_program(HEAD + SOFTMAX), parse_program(HEAD + other), {"N": size})
    assert (found.status, found.elements) == ("proved", 2 * size), found


@pytest.mark.parametrize(("text", "old", "new"), [
    (ONLINE, " * exp(top - next)", ""), (ONLINE, "exp(X[row, i] - next)", "exp(X[row, i])"), (ONLINE, "max(top,", "min(top,"),
    (BY_WARP, "0..5\n      let other = shfl_xor(total", "0..4\n      let other = shfl_xor(total"), (BY_WARP, "1.4426950408889634", "1.4426"),
    (SHARED, "s[t + (16 >> k)]", "s[t + (8 >> k)]"), (SHARED, "/ s[0]", "/ s[1]")])
def test_a_wrong_softmax_is_not_proved(text: str, old: str, new: str) -> None:
    assert old in text
    assert equal_over_reals(parse_program(HEAD + SOFTMAX), parse_program(HEAD + text.replace(old, new)), {"N": 5}).status == "not decided"


@pytest.mark.parametrize(("body", "why"), [
    ("  if X[row, 0] > 0.0\n    Y[row, 0] = 1.0\n", "depends on the inputs"), ("  Y[row, 0] = X[row, 0]\n", "is not written"),
    ("  for i in 0..N\n    Y[row, i] = X[row, i + 1]\n", "lies outside")])
def test_what_is_not_followed_is_not_decided(body: str, why: str) -> None:
    program = parse_program(HEAD + body)
    found = equal_over_reals(program, program, {"N": 4})
    assert found.status == "not decided" and why in found.why


def test_too_much_work_is_not_decided() -> None:
    program = parse_program(HEAD + SOFTMAX)
    assert equal_over_reals(program, parse_program(HEAD + ONLINE), {"N": 64}, most=50).why == "it is too large"


WHOLE = "kir 1\nprogram p\n  in X: i32[4]\n  in Y: i32[4]\n  out Z: i32[4]\nkernel main grid (i: 4) threads 1\n  Z[i] = {value}\n"


@pytest.mark.parametrize(("a", "b", "status"), [
    ("max(X[i], Y[i])", "max(Y[i], max(X[i], -2147483648))", "proved"), ("min(X[i], Y[i])", "min(min(Y[i], X[i]), Y[i])", "proved"),
    ("(X[i] ^ Y[i]) ^ X[i]", "Y[i]", "proved"), ("X[i] * (Y[i] + 3)", "X[i] * 3 + Y[i] * X[i]", "proved"), ("X[i] | (Y[i] | X[i])", "Y[i] | X[i]", "proved"),
    ("max(X[i] + 1, Y[i] + 1)", "max(X[i], Y[i]) + 1", "not decided"),  # a sum may wrap
    ("max(X[i], Y[i])", "min(X[i], Y[i])", "not decided"), ("X[i] ^ Y[i]", "X[i] | Y[i]", "not decided"), ("X[i] // 2 + X[i] // 2", "X[i]", "not decided")])
def test_whole_numbers_wrap(a: str, b: str, status: str) -> None:
    assert equal_over_reals(parse_program(WHOLE.format(value=a)), parse_program(WHOLE.format(value=b)), {}).status == status


@pytest.mark.parametrize(("fact", "size", "why"), [("", 0, "no output has an element"), ("  fact N >= 2\n", 1, "the fact N >= 2 does not hold")])
def test_nothing_is_proved_where_nothing_is_computed_or_promised(fact: str, size: int, why: str) -> None:
    text = f"kir 1\nprogram p\n  size N: i32\n{fact}  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (b: N) threads 1\n  Y[b] = X[b]\n"
    program = parse_program(text)
    answer = equal_over_reals(program, program, {"N": size})
    assert answer.status == "not decided" and why in answer.why
    assert equal_over_reals(program, program, {"N": 3}).status == "proved"
