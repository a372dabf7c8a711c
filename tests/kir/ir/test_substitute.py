"""Substitution replaces what was there, once."""
from __future__ import annotations

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, known_value, sub, var
from kir.ir.types import BOOL, I32, U8, DType, Type
from kir.ir.visit import substitute
from tests.strategies import Env, expressions, literals


def test_a_sum_that_collapses_to_the_replaced_name_is_not_replaced_again() -> None:
    i = var("i")
    mirrored = sub(const(15), i)
    assert substitute(mirrored, {"i": mirrored}) == i
    assert substitute(add(sub(i, var("j")), 3), {"i": var("j"), "j": i}) == add(sub(var("j"), i), 3)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_value_at_literals_is_what_the_expression_folds_to(data: st.DataObject) -> None:
    env: dict[str, Type] = {"a": I32, "b": I32, "u": U8, "p": BOOL, "q": BOOL}
    e = data.draw(expressions(Env(values=env), data.draw(st.sampled_from((I32, U8, BOOL)))))
    at = {name: data.draw(literals(dtype)) for name, dtype in env.items() if name != "q" and isinstance(dtype, DType)}
    known, put_in = known_value(e, at), substitute(e, at)
    event("known" if known is not None else "not known")
    assert known is None or (isinstance(put_in, n.Const) and (put_in.value, type(put_in.value)) == (known, bool if put_in.dtype.is_bool else int))
    assert known_value(add(var("a"), var("b")), at) is not None and known_value(add(var("a"), var("missing")), at) is None


def test_a_number_as_a_condition_is_whether_it_is_zero() -> None:
    assert [build.cast(build.const(x), BOOL) for x in (0, 1, 7)] == [n.Const(x, BOOL) for x in (False, True, True)]
