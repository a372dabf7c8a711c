"""Domains, order and simplification agree with evaluation; proofs that are claimed hold for every value."""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.analysis import Facts, normalize, simplify
from kir.analysis import domain as d
from kir.analysis.normal.narrow import narrowed_lets
from kir.analysis.normal.rows import WHOLE
from kir.analysis.order import at_most, less
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, var
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import F32, I8, I32, U8, U32, DType
from kir.ir.visit import substitute, walk

SMALL = st.integers(-6, 12)


@st.composite
def domains(draw: st.DrawFn) -> d.Domain:
    lo = draw(st.integers(-8, 8))
    modulus = draw(st.integers(1, 6))
    return d.between(lo, lo + draw(st.integers(0, 14)), modulus, draw(st.integers(0, 5)))


def members(x: d.Domain) -> list[int]:
    assert x.lo is not None and x.hi is not None
    if x.is_empty:
        return []
    return [v for v in range(x.lo, x.hi + 1) if (v == x.residue if x.modulus == 0 else (v - x.residue) % x.modulus == 0)]


def holds(x: d.Domain, value: int) -> bool:
    return (x.lo is None or value >= x.lo) and (x.hi is None or value <= x.hi) and \
        (value == x.residue if x.modulus == 0 else (value - x.residue) % x.modulus == 0)


@settings(max_examples=150, deadline=None)
@given(domains(), domains())
def test_domain_operations_hold_every_result(a: d.Domain, b: d.Domain) -> None:
    operations: dict[Callable[[d.Domain, d.Domain], d.Domain], Callable[[int, int], int]] = {
        d.add: lambda x, y: x + y, d.multiply: lambda x, y: x * y, d.least: min, d.greatest: max,
        d.floordiv: lambda x, y: x // y, d.mod: lambda x, y: x % y}
    for x, y in itertools.product(members(a), members(b)):
        for operation, exact in operations.items():
            if operation in (d.floordiv, d.mod) and y == 0:
                continue
            assert holds(operation(a, b), exact(x, y)), (operation.__name__, str(a), str(b), x, y)
        assert holds(d.join(a, b), x) and holds(d.join(a, b), y)
    both = set(members(a)) & set(members(b))
    met = d.meet(a, b)
    assert all(holds(met, v) for v in both)


@cache
def expressions(dtype: DType, names: tuple[str, ...]) -> st.SearchStrategy[n.Expr]:
    leaves = st.one_of(st.sampled_from([var(x, dtype) for x in names]), st.integers(-9, 9).map(lambda v: const(v, dtype)))
    positive = st.integers(1, 9).map(lambda v: const(v, dtype))
    signed = st.sampled_from([*range(-9, 0), *range(1, 10)]).map(lambda v: const(v, dtype)) if dtype.kind == "int" else positive

    def grow(inner: st.SearchStrategy[n.Expr]) -> st.SearchStrategy[n.Expr]:
        return st.one_of(
            st.builds(build.binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
            st.builds(build.binary, st.sampled_from(["floordiv", "mod", "ceildiv", "tdiv", "trem"]), inner, positive),
            st.builds(build.binary, st.sampled_from(["floordiv", "mod", "tdiv", "trem"]), inner, signed),
        )
    return st.recursive(leaves, grow, max_leaves=8)


def evaluate(e: n.Expr, values: dict[str, int], dtype: DType) -> int | bool:
    made = substitute(e, {k: const(v, dtype) for k, v in values.items()})
    assert isinstance(made, n.Const), expr_text(made)
    assert not isinstance(made.value, float)
    return made.value


@pytest.mark.parametrize("dtype", [I32, I8, U8], ids=str)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_simplified_expressions_have_the_same_value(dtype: DType, data: st.DataObject) -> None:
    """i8 wraps at once, so that a proof that forgets wrapping shows; what is taken from an unsigned number is added as a large one."""
    least = -5 if dtype.kind == "int" else 1
    step = data.draw(st.integers(1, 4))
    known = Facts().ranging(var("x", dtype), const(0, dtype), const(20, dtype), const(step, dtype))
    known = known.ranging(var("y", dtype), const(least, dtype), const(7, dtype))
    e = data.draw(expressions(dtype, ("x", "y")))
    f = data.draw(expressions(dtype, ("x", "y")))
    simple, within = simplify(e, known), known.domain(e)
    below, comparison = at_most(e, f, known), simplify(build.compare("lt", e, f), known)
    for x in range(0, 20, step):
        for y in range(least, 7, 3):
            values = {"x": x, "y": y}
            value = evaluate(e, values, dtype)
            assert evaluate(simple, values, dtype) == value, (expr_text(e), expr_text(simple), values)
            assert holds(within, int(value)), (expr_text(e), str(within), values)
            if below:
                assert value <= evaluate(f, values, dtype), (expr_text(e), expr_text(f), values)
            assert evaluate(comparison, values, dtype) == (value < evaluate(f, values, dtype))


@pytest.mark.parametrize("op", sorted(n.COMPARISONS))
@pytest.mark.parametrize("value", [8.0, 7.5, -3.0, -2.25, 300.0, 16777215.0, 16777216.0, math.nan, math.inf])
def test_a_whole_number_compared_as_a_floating_point_one_is_what_it_was(op: str, value: float) -> None:
    for dtype, numbers in ((I32, (-(1 << 31), -16777217, -4, -3, -2, 0, 7, 8, 9, 300, 16777214, 16777215, 16777217, (1 << 31) - 1)), (U8, (0, 7, 8, 255))):
        for mirrored in (False, True):
            x, y = n.Cast(var("x", dtype), F32), const(value, F32)
            made = simplify(build.compare(op, *((y, x) if mirrored else (x, y))), Facts())
            if not any(isinstance(e, n.Cast) for e in walk(made)):
                compared = getattr(operator, op)
                for number in numbers:
                    seen = float(np.float32(number))
                    assert evaluate(made, {"x": number}, dtype) == (compared(value, seen) if mirrored else compared(seen, value)), (expr_text(made), number)
            else:
                assert not abs(value) < 1 << 24 or not dtype.range[0] <= value <= dtype.range[1]


def test_the_last_of_unsigned_numbers_is_not_below_itself() -> None:
    """`block < blocks - 1`, as CUDA counts: the last block is not."""
    block, blocks = (n.Cast(var(x), U32) for x in ("b", "blocks"))
    known = Facts().ranging(var("blocks"), const(1), const(65536)).ranging(var("b"), const(0), var("blocks"))
    last = build.sub(blocks, const(1, U32))
    assert not less(block, last, known) and not less(last, block, known)


def test_bounds_of_loops_and_grids_prove_order_between_symbols() -> None:
    known = Facts().knowing(build.compare("le", var("M"), 65536)).knowing(build.compare("ge", var("M"), 0))
    tile = known.ranging(var("t"), const(0), build.ceildiv(var("M"), 64))
    assert less(build.mul(var("t"), 64), var("M"), tile)
    assert not less(build.add(build.mul(var("t"), 64), 63), var("M"), tile)
    whole = known.knowing(build.compare("eq", build.mod(var("M"), 64), 0)).ranging(var("t"), const(0), build.floordiv(var("M"), 64))
    assert less(build.add(build.mul(var("t"), 64), 63), var("M"), whole)


@pytest.mark.parametrize(("lo", "hi", "step"), [(7, -1, -2), (9, 3, -4), (5, 5, -1), (0, 6, 2)])
def test_what_is_known_of_a_loops_variable_holds_for_each_of_its_values(lo: int, hi: int, step: int) -> None:
    i = var("i")
    known = Facts().ranging(i, const(lo), const(hi), const(step))
    for value in range(lo, hi, step):
        assert holds(known.domain(i), value)
        assert all(evaluate(fact, {"i": value}, I32) for fact in known.holds)
    downwards = Facts().knowing(build.compare("ge", var("B"), 1)).ranging(i, var("M"), const(-1), build.negate(var("B")))
    assert downwards.domain(i).lo == 0 and at_most(i, var("M"), downwards)


def test_a_remainder_has_the_sign_of_what_is_divided() -> None:
    """By -2 it is 0 or 1 of numbers from 0 on: it is not at most 0, which `mod` would be."""
    known = Facts().ranging(var("x", I32), const(0), const(8))
    rest = build.binary("trem", var("x", I32), const(-2))
    assert str(known.domain(rest)) == str(d.between(0, 7)) and not at_most(rest, const(0), known)
    assert simplify(build.binary("min", rest, const(0)), known) != rest


def test_nothing_is_known_of_a_shift_by_more_places_than_there_are() -> None:
    known = Facts()
    assert known.domain(n.Binary("shl", const(8), const(2))) == d.exactly(32) and known.domain(n.Binary("shr", const(8), const(2))) == d.exactly(2)
    for places in (32, 1 << 62, -1):
        for op in ("shl", "shr"):
            found = known.domain(n.Binary(op, const(8), n.Const(places, I32)))
            assert found.value is None
    for op, most, wanted in (("shl", 5, d.between(8, 128)), ("shr", 5, d.between(0, 8)), ("shl", 33, d.between(*I32.range))):
        by = var("s", I32)
        assert known.ranging(by, const(0), const(most), const(1)).domain(n.Binary(op, const(8), by)) == wanted


def test_facts_are_those_of_the_place() -> None:
    p = parse_program("""kir 1
program p
  size N: i32
  out Y: i32[N]
  fact N % 8 == 0
  fact N <= 4096
kernel main grid (b: N // 8) threads 1
  let first = b * 8
  for i in 0..8 step 2
    if i < 4
      Y[first + i] = i
    else
      Y[first + i] = 0
""")
    known = Facts.at(p, ("main", 1, "body", 0, "then", 0))
    assert str(known.domain(var("i"))) == "0..2 = 0 mod 2"
    assert known.divides(8, var("first")) and not known.divides(16, var("first"))
    assert less(build.add(var("first"), var("i")), var("N"), known)
    assert known.domain(var("N")).is_multiple_of(8)
    other = Facts.at(p, ("main", 1, "body", 0, "orelse", 0))
    assert str(other.domain(var("i"))) == "4..6 = 0 mod 2"


def test_a_product_that_may_wrap_keeps_only_powers_of_two() -> None:
    known = Facts().knowing(build.compare("eq", build.mod(var("N"), 12), 0)).knowing(build.compare("ge", var("N"), 0))
    square = build.mul(var("N"), var("N"))
    assert known.domain(square).is_multiple_of(16) and not known.domain(square).is_multiple_of(3)


def test_normalize_takes_decided_branches_and_drops_what_is_dead() -> None:
    p = parse_program("""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: 1) threads 1
  let four = 4
  let unused = X[0]
  for i in 0..four
    let same = i
    if same < four
      Y[min(same, 7)] = X[(same * 4 + 3) // 4]
    else
      Y[0] = 1.0
""")
    made = normalize(p)
    assert program_text(made).endswith("""  for i in 0..4
    Y[i] = X[i]
""")
    assert normalize(made) == made


def test_the_panel_order_of_a_widened_triton_kernel_is_proved_and_narrowed() -> None:
    """What 64-bit arithmetic with C's division computes is what the plain quotients do: signs follow from the grid."""
    p = parse_program("""kir 1
program p
  size M: i32
  size N: i32
  out C: i32[M, N]
  fact M >= 1
  fact M <= 1048576
  fact N >= 1
  fact N <= 1048576
kernel main grid (pid: ceildiv(M, 128) * ceildiv(N, 128)) threads 128
  let group_id = tdiv(cast(pid, i64), cast(tdiv(N + 127, 128) * 8, i64))
  let group_size = min(cast(tdiv(M + 127, 128), i64) - group_id * 8:i64, 8:i64)
  let pid_m = group_id * 8:i64 + trem(cast(pid, i64), group_size)
  let pid_n = tdiv(trem(cast(pid, i64), cast(tdiv(N + 127, 128) * 8, i64)), group_size)
  C[trem(cast(iota(128), i64) + pid_m * 128:i64, cast(M, i64)), 0] = broadcast(cast(pid_n, i32), 128)
""")
    text = program_text(normalize(narrowed_lets(normalize(p))))
    assert "i64" not in text.partition("  C[")[0] and "tdiv" not in text
    assert "let group_size = min(ceildiv(M, 128) - group_id * 8, 8)" in text
    assert "let pid_m = group_id * 8 + pid % group_size" in text


def test_without_bounds_on_sizes_nothing_is_narrowed_that_may_wrap() -> None:
    p = parse_program("""kir 1
program p
  size N: i32
  out C: i64[1]
kernel main grid (pid: 1) threads 1
  let wide = cast(N, i64) + 1:i64
  let quotient = tdiv(N + 127, 128)
  C[0] = wide + cast(quotient, i64)
""")
    text = program_text(normalize(p))
    assert "tdiv(N + 127, 128)" in text and "cast(N + 1" not in text


def test_a_let_over_whole_numbers_stays_out_of_places_of_a_wrapping_dtype() -> None:
    """An unsigned value is one whole number: what stands within it keeps its dtype, though the same name is known over whole numbers."""
    i = n.Var("i", I32)
    known = Facts(lets={"i": build.mul(n.Var("t", WHOLE), 2)})
    inside = n.Cast(n.Binary("add", n.Cast(i, U32), const(1, U32)), WHOLE)
    assert known.expanded(build.add(n.Var("i", WHOLE), inside)) == build.add(build.mul(n.Var("t", WHOLE), 2), inside)


def test_a_sum_of_very_many_names_keeps_them() -> None:
    """A loop that is written out a thousand times: sums of sums would be as deep as Python goes."""
    lines = "".join(f"  let v{k} = X[i + {k}]\n  let h{k} = {f'h{k - 1} + ' if k else ''}v{k}\n" for k in range(1100))
    program = parse_program(f"kir 1\nprogram p\n  size N: i32\n  in X: u64[N + 1100]\n  out Y: u64[N]\nkernel k grid (i: N) threads 1\n{lines}  Y[i] = h1099\n")
    made = normalize(program)
    assert made == normalize(made)
    known = Facts.at(made, ("k", len(made.kernels[0].body) - 1))
    store = made.kernels[0].body[-1]
    assert isinstance(store, n.Store) and len(build.polynomial(known.expanded(store.value))) < 300


def test_a_bound_of_a_size_less_a_number_is_one_of_the_size() -> None:
    program = parse_program("kir 1\nprogram p\n  size W: i32\n  size V: i32\n  out Y: f32[W]\n  fact W - 2 >= 1\n  fact 7 > V + 3\n"
                            "kernel main grid (i: W) threads 1\n  Y[i] = 1.0\n", "p")
    known = Facts.from_program(program)
    assert known.domain(var("W", I32)).lo == 3 and known.domain(var("V", I32)).hi == (1 << 31) - 1, "a sum that may wrap says nothing"
