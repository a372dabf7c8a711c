"""Bindings as text, and what specialize refuses."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kir.base.diagnostic import KirError
from kir.ir import binding as bindings
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor, expressions, fact_expressions, plain_expression
from kir.ir.bindings.specialize import specialize
from kir.ir.dtype_terms import join, quotient, resolve, with_float
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import BF16, F16, F32, I8, I32, DType

TEXT = """kir 1
program p
  meta BLOCK: int
  meta MODE: str
  meta SCALE: any = 2
  meta T: dtype = "select(is(MODE,wide),f32,X)"
  in X: $<X>[X_extent]
  out Y: $<Y>[Y_extent]
  scalar N: i32
  size X_extent: i64 {implicit=true}
  size Y_extent: i64 {implicit=true}
  size grid_0: i32 {implicit=true}
kernel p grid (pid_0: grid_0) threads 128
  let i = pid_0 * BLOCK + iota(BLOCK)
  let x = cast(load(X[i] where i < N else cast(0, $<X>)), $<T>)
  static if meta_is(MODE, value=wide)
    Y[i] = cast(x * cast(SCALE, $<T>), $<Y>) where i < N
  else
    Y[i] = cast(x, $<Y>) where i < N
"""
BINDING = Binding(
    kernel="p", sizes=["N"], facts=["N >= 1"], grid=["ceildiv(N, BLOCK)"], metas={"BLOCK": 64, "MODE": "wide"},
    tensors={"X": Tensor(shape=["N"], dtype="f16"), "Y": Tensor(shape=["N"], dtype="bf16")}, options={"num_warps": 4},
)


def test_a_binding_is_its_text() -> None:
    assert Binding.parse(BINDING.text()) == BINDING


def test_specialize_decides_metas_dtypes_branches_and_grid() -> None:
    made = specialize(parse_program(TEXT), BINDING)
    expected = """kir 1
program p
  size N: i32
  in X: f16[N] align 16
  out Y: bf16[N] align 16
  fact N >= 1
kernel p grid (pid_0: ceildiv(N, 64)) threads 128
  let i = pid_0 * 64 + iota(64)
  let x = cast(load(X[i] where i < N else 0.0:f16), f32)
  Y[i] = cast(x * 2.0, bf16) where i < N
"""
    from kir.ir.printer import program_text
    assert program_text(made) == program_text(parse_program(expected))


@pytest.mark.parametrize(
    ("change", "id_", "words"),
    [
        ({"metas": {"BLOK": 64}}, "KIR-F011", "did you mean 'BLOCK'"),
        ({"metas": {"MODE": "wide"}}, "KIR-F012", "no value for BLOCK"),
        ({"grid": []}, "KIR-F012", "no grid"),
        ({"grid": ["ceildiv(Q, 2)"]}, "KIR-F011", "'Q' is not defined"),
        ({"tensors": {"X": Tensor(shape=["N"], dtype="f16")}}, "KIR-F012", "'Y'"),
        ({"tensors": {"X": Tensor(shape=["N"], dtype="float16"), "Y": Tensor(shape=["N"], dtype="f16")}}, "KIR-F011", "no dtype 'float16'"),
    ],
)
def test_what_a_binding_lacks_or_misspells_is_named(change: dict[str, Any], id_: str, words: str) -> None:
    with pytest.raises(KirError) as caught:
        specialize(parse_program(TEXT), replace(BINDING, **change))
    assert caught.value.diagnostics[0].id == id_
    assert words in str(caught.value)


DECLARED = """kir 1
program p
  meta CAP: any
  meta T: dtype = "quotient(CAP)"
  in X: f32[X_extent]
  out Y: f32[Y_extent]
  scalar N: i64
  size X_extent: i64 {implicit=true}
  size Y_extent: i64 {implicit=true}
  size grid_0: i32 {implicit=true}
kernel p grid (pid_0: grid_0) threads 128
  let i = cast(pid_0, i64) * N
  fragment capped: $<T>[1]
  static if ~meta_is(CAP, value=None)
    capped = cast(X[i], $<T>) / cast(CAP, $<T>)
  else
    Y[i] = X[i]
"""
FLAT = Binding(kernel="p", recorded=True, grid=["4"], scalars={"N": 8}, dtypes={"N": "i32"}, absent=["CAP"],
               tensors={"X": Tensor(shape=[32], dtype="f32"), "Y": Tensor(shape=[32], dtype="f32")})


def test_a_dtype_that_the_source_declares_stands_and_what_no_branch_uses_needs_none() -> None:
    """A caller's 32-bit integer is converted to the 64 bits declared; a buffer of a branch that is not taken has no dtype."""
    made = program_text(specialize(parse_program(DECLARED), FLAT))
    assert "let i = cast(pid_0, i64) * 8:i64" in made and "capped" not in made
    with pytest.raises(KirError, match="declares 'N' as i64, and the binding says f32") as caught:
        specialize(parse_program(DECLARED), replace(FLAT, dtypes={"N": "f32"}))
    assert caught.value.diagnostics[0].id == "KIR-F011"
    with pytest.raises(KirError, match="does not decide the dtype"):
        specialize(parse_program(DECLARED.replace("    Y[i] = X[i]", "    capped = 1.0")), FLAT)


def test_unknown_fields_are_errors_with_the_nearest() -> None:
    with pytest.raises(KirError, match="did you mean 'tensors'"):
        Binding.parse("tensor = 3\n")


def test_dtype_terms() -> None:
    x, y = DType("X", "symbolic", 0), DType("Y", "symbolic", 0)
    term = quotient(join(with_float(x), y))
    assert resolve(term, {"X": I8, "Y": BF16}, {}) == F32
    assert resolve(join(x, y), {"X": F16, "Y": BF16}, {}) == F16
    assert resolve(DType("select(and(is(M,a),not(lt(N,3))),X,f32)", "symbolic", 0), {"X": I8}, {"M": "a", "N": 5}) == I8
    assert resolve(join(x, y), {"X": F16}, {}).is_symbolic


def test_what_masked_loads_give_elsewhere_is_the_bindings_to_say() -> None:
    program = parse_program(TEXT.replace(" else cast(0, $<X>)", ""))
    plain, zero = (program_text(specialize(program, replace(BINDING, elsewhere=how))) for how in ("", "zero"))
    assert "load(X[i] where i < N)" in plain and "load(X[i] where i < N else 0.0:f16)" in zero
    assert Binding.parse('elsewhere = "zero"').text() == 'elsewhere = "zero"\n'
    with pytest.raises(KirError, match="elsewhere"):
        Binding.parse('elsewhere = "one"')


SIZES = {"M": n.Var("M", I32), "N": n.Var("N", I32), "block": n.Const(64, I32)}
TERMS = st.recursive(st.sampled_from([*SIZES, "0", "1", "64", "1048576"]), lambda inner: st.one_of(
    st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    st.tuples(inner, st.sampled_from(["+", "*"]), inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
    st.tuples(st.sampled_from(["ceildiv", "min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")), max_leaves=6)


@given(TERMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), TERMS)
def test_plain_texts_are_read_as_the_parser_of_the_ir_reads_them(a: str, relation: str, b: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bindings, "plain_expression", lambda text, sizes: None)
        wanted, facts = expressions({"x": a}, SIZES, "size")["x"], fact_expressions([f"{a} {relation} {b}"], SIZES)
    assert plain_expression(a, SIZES) in (wanted, None)
    assert plain_expression(f"{a} {relation} {b}", SIZES) in (facts[0], None)
    assert expressions({"x": a}, SIZES, "size")["x"] == wanted
    assert fact_expressions([f"{a} {relation} {b}"], SIZES) == facts


@pytest.mark.parametrize("text", ["M.shape", "M if N else 1", "M ** 2", "M / 2", "'M'", "True", "M < N < 4", "K", "-M", "4294967296", "M; N"])
def test_other_texts_are_left_to_the_parser_of_the_ir(text: str) -> None:
    assert plain_expression(text, SIZES) is None


VALUES = st.recursive(
    st.sampled_from(["", "zero", "N", 3, True, 2.5, math.inf, "?"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["X", "shape", "dtype", "of", "box", "attrs", "align"]), inner, max_size=3),
    max_leaves=8)


@given(st.dictionaries(st.sampled_from([f.name for f in fields(Binding)]), VALUES, max_size=2))
def test_what_is_read_is_what_the_types_say(held: dict[str, Any]) -> None:
    """A binding is read exactly where pydantic, which words the complaints, finds that its content is of the types that are declared."""
    try:
        wanted = TypeAdapter(Binding).validate_json(json.dumps(held))
    except ValidationError:
        with pytest.raises(KirError, match="KIR-F010"):
            Binding.parse(tomli_w.dumps(held))
    else:
        assert Binding.parse(tomli_w.dumps(held)) == wanted
