"""Normal forms of integers: unchanged meaning under wrapping arithmetic, one spelling, idempotent; and the hash is blind to local names."""
from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.types import BF16, F32, I8, I32, I64, U8, U32, DType, dtype_of
from kir.ir.visit import substitute, transform, walk
from tests.strategies import INTEGERS, integer_values

NAMES = ("a", "b", "c")
OPS = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "floordiv", "mod", "ceildiv", "tdiv", "trem", "shl", "shr")


LEAVES = st.one_of(st.sampled_from(NAMES), st.integers(-300, 300), st.integers(-2**63, 2**63))
OF_ONE, OF_TWO = st.sampled_from(("neg", "not")), st.sampled_from(OPS[:3] * 3 + OPS)


@cache
def raw_trees(depth: int = 4) -> st.SearchStrategy[Any]:
    """A tree (op, left, right), ("neg" or "not", x), a name or a number, before any normal form."""
    return _tree(depth)


@st.composite
def _tree(draw: st.DrawFn, depth: int) -> Any:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(LEAVES)
    if draw(st.integers(0, 5)) == 0:
        return draw(OF_ONE), draw(raw_trees(depth - 1))
    return draw(OF_TWO), draw(raw_trees(depth - 1)), draw(raw_trees(depth - 1))


def built(tree: Any, dtype: DType) -> n.Expr:
    if isinstance(tree, str):
        return n.Var(tree, dtype)
    if isinstance(tree, int):
        return build.const(tree, dtype)
    if len(tree) == 2:
        return build.unary(tree[0], built(tree[1], dtype))
    return build.binary(tree[0], built(tree[1], dtype), built(tree[2], dtype))


class Undefined(Exception):
    pass


def operate(op: str, x: int, y: int, dtype: DType) -> int:
    """Two's complement, written independently of `build.fold`."""
    if op in ("floordiv", "mod", "ceildiv", "tdiv", "trem"):
        if y == 0:
            raise Undefined
        toward_zero = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        value = {"floordiv": x // y, "mod": x - x // y * y, "ceildiv": -((-x) // y), "tdiv": toward_zero, "trem": x - toward_zero * y}[op]
    elif op in ("shl", "shr"):
        if not 0 <= y < dtype.bits:
            raise Undefined
        value = x * 2 ** y if op == "shl" else x // 2 ** y
    else:
        value = {"add": x + y, "sub": x - y, "mul": x * y, "min": min(x, y), "max": max(x, y), "and": x & y, "or": x | y, "xor": x ^ y}[op]
    modulus = 1 << dtype.bits
    value %= modulus
    return value - modulus if dtype.kind == "int" and value >= modulus // 2 else value


def evaluated(tree: Any, at: dict[str, int], dtype: DType) -> int:
    if isinstance(tree, str):
        return at[tree]
    if isinstance(tree, int):
        return operate("add", tree, 0, dtype)
    if len(tree) == 2:
        x = evaluated(tree[1], at, dtype)
        return operate("sub", 0, x, dtype) if tree[0] == "neg" else operate("sub", -1, x,
                                                                            dtype) if dtype.kind == "int" else dtype.range[1] - x
    return operate(tree[0], evaluated(tree[1], at, dtype), evaluated(tree[2], at, dtype), dtype)


def value(e: n.Expr, at: dict[str, int]) -> int:
    dtype = dtype_of(e.type)
    match e:
        case n.Const():
            return int(e.value)
        case n.Var():
            return at[e.name]
        case n.Unary():
            return evaluated((e.op, value(e.x, at)), {}, dtype) if e.op == "neg" else evaluated(("not", "x"), {"x": value(e.x, at)}, dtype)
        case n.Binary():
            return operate(e.op, value(e.a, at), value(e.b, at), dtype)
        case _:
            raise AssertionError(e)


@settings(max_examples=400, deadline=None)
@given(raw_trees(), st.sampled_from(INTEGERS), st.data())
def test_the_normal_form_means_what_was_written(tree: Any, dtype: DType, data: st.DataObject) -> None:
    at = {name: data.draw(integer_values(dtype)) for name in NAMES}
    try:
        wanted = evaluated(tree, at, dtype)
    except Undefined:
        assume(False)
    assert value(built(tree, dtype), at) == wanted


@settings(max_examples=300, deadline=None)
@given(raw_trees(), st.sampled_from((I32, I64, U32, I8)))
def test_building_a_normal_form_again_changes_nothing(tree: Any, dtype: DType) -> None:
    e = built(tree, dtype)
    again = transform(e, lambda old, new: _rebuilt(new))
    assert again == e


def _rebuilt(e: n.Node) -> n.Node:
    if isinstance(e, n.Binary):
        return build.binary(e.op, e.a, e.b)
    return build.unary(e.op, e.x) if isinstance(e, n.Unary) else e


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(5)), st.sampled_from((I32, U8)))
def test_sums_of_products_have_one_spelling(order: list[int], dtype: DType) -> None:
    a, b, c = (n.Var(x, dtype) for x in NAMES)
    terms = [build.mul(a, b), build.mul(c, 3), build.const(7, dtype), build.negate(a), build.mul(b, a)]
    total: n.Expr = build.const(0, dtype)
    for i in order:
        total = build.add(total, terms[i])
    straight = build.sub(build.add(build.mul(build.mul(a, b), 2), build.add(build.mul(c, 3), 7)), a)
    assert total == straight


def test_integers_wrap_and_floats_are_left_alone() -> None:
    assert build.add(build.const(127, I8), 1) == build.const(-128, I8)
    assert build.mul(build.const(200, U8), 2) == build.const(144, U8)
    x, y = n.Var("x", F32), n.Var("y", F32)
    assert build.add(y, x) != build.add(x, y)
    assert build.sub(x, x) == n.Binary("sub", x, x)
    assert build.add(x, 0.0) == n.Binary("add", x, build.const(0.0, F32))
    assert build.const(0.0, F32) != build.const(-0.0, F32)
    assert build.const(float("nan"), BF16) == build.const(float("nan"), BF16)


def test_a_parameter_that_looks_like_a_numbered_name_is_not_confused_with_one() -> None:
    def program(value: str) -> n.Program:
        head = "kir 1\nprogram p\n  size _0: i32\n  out C: i32[8]\nkernel main grid () threads 1\n"
        return parse_program(f"{head}  let x = 5\n  C[0] = x + {value}\n")
    assert content_hash(program("x")) != content_hash(program("_0"))


def test_what_callers_see_stays_in_the_hash() -> None:
    text = "kir 1\nprogram p\n  size M: i32\n  out C: i32[M]\nkernel main grid (i: M) threads 1\n  C[i] = 1\n"
    p = parse_program(text)
    assert content_hash(parse_program(text.replace("M", "L"))) != content_hash(p)
    assert content_hash(parse_program(text.replace("= 1", "= 2"))) != content_hash(p)
    assert content_hash(parse_program(text.replace("(i:", "(row:").replace("C[i]", "@s C[row]"))) == content_hash(p)


def test_substitution_renews_the_normal_form() -> None:
    i, m = n.Var("i", I32), n.Var("M", I32)
    e = build.add(build.mul(i, m), build.const(4))
    assert substitute(e, {"i": build.add(m, 1)}) == build.add(build.add(build.mul(m, m), m), 4)
    assert substitute(e, {"i": build.const(0)}) == build.const(4)


def test_shared_subtrees_stay_shared() -> None:
    text = "kir 1\nprogram p\n  out C: i32[8]\nkernel main grid () threads 1\n  let x = 5\n  C[0] = x\n  C[1] = x + 1\n"
    p = parse_program(text)
    q = transform(p, lambda old, new: build.const(6) if isinstance(new, n.Const) and new.value == 5 else new)
    assert q.kernels[0].body[1] is p.kernels[0].body[1]
    assert [x for x in walk(q) if isinstance(x, n.Const) and x.value == 5] == []
