"""Divisions that C++ spells out of the truncating one, recognized: rounding down, the remainder that goes with it, and rounding up."""

from __future__ import annotations

from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of

QUOTIENTS, REMAINDERS = ("tdiv", "floordiv"), ("trem", "mod")


def recognized(e: n.Expr, lets: Mapping[str, n.Expr]) -> n.Expr:
    """`e` as a `floordiv`, `mod` or `ceildiv` where that is what it computes; `lets` are the values of names."""
    if isinstance(e, n.Select):
        return _remainder(e, lets) or e
    if not dtype_of(e.type).is_integer:
        return e
    terms = build.polynomial(e)
    if len(terms) != 2:
        return e
    quotient: n.Binary | None = None
    correction: tuple[n.Expr, int] | None = None
    for monomial, c in terms.items():
        if len(monomial) != 1:
            return e
        atom = _known(monomial[0], lets)
        if isinstance(atom, n.Binary) and atom.op in QUOTIENTS and c == 1:
            quotient = atom
        elif isinstance(atom, n.Cast) and dtype_of(atom.x.type).is_bool and c in (1, -1):
            correction = atom.x, c
    if quotient is None or correction is None:
        return e
    cond, sign = correction
    a, b = quotient.a, quotient.b
    same = _inexact(cond, a, b, lets)
    if same is None:
        return e
    if sign == 1 and same:
        return build.ceildiv(a, b)
    if sign == -1 and not same:
        return build.floordiv(a, b)
    return e


def _known(e: n.Expr, lets: Mapping[str, n.Expr]) -> n.Expr:
    return lets.get(e.name, e) if isinstance(e, n.Var) else e


def _inexact(cond: n.Expr, a: n.Expr, b: n.Expr, lets: Mapping[str, n.Expr]) -> bool | None:
    """Whether a condition says that a / b leaves a remainder and the signs are the same (True) or differ (False)."""
    if not isinstance(cond, n.Binary):
        return None
    if dtype_of(a.type).kind == "uint" and _leaves(cond, a, b, lets):
        return True
    if cond.op != "and":
        return None
    for left, right in ((cond.a, cond.b), (cond.b, cond.a)):
        if _leaves(left, a, b, lets):
            return _signs(right, a, b)
    return None


def _leaves(cond: n.Expr, a: n.Expr, b: n.Expr, lets: Mapping[str, n.Expr]) -> bool:
    """Whether a condition says that a / b leaves a remainder."""
    if not isinstance(cond, n.Binary) or cond.op != "ne" or not build.is_const(cond.b, 0):
        return False
    r = _known(cond.a, lets)
    r = _known(r.x, lets) if isinstance(r, n.Cast) and r.rounding == "rn" and dtype_of(r.x.type).is_integer else r
    return isinstance(r, n.Binary) and r.op in REMAINDERS and (r.a, r.b) == (a, b)


def _signs(e: n.Expr, a: n.Expr, b: n.Expr) -> bool | None:
    """Whether a condition says that two numbers have the same sign (True), or different ones (False)."""
    if isinstance(e, n.Unary) and e.op == "not":
        inner = _signs(e.x, a, b)
        return None if inner is None else not inner
    negative = n.Binary("lt", a, build.const(0, dtype_of(a.type)))
    if e == negative and isinstance(b, n.Const):
        return bool(int(b.value) < 0)
    if isinstance(e, n.Binary) and e.op in ("eq", "ne"):
        other = build.compare("lt", b, 0)
        if {e.a, e.b} == {negative, other} or (e.a == negative and e.b == other):
            return e.op == "eq"
    return None


def _remainder(e: n.Select, lets: Mapping[str, n.Expr]) -> n.Expr | None:
    r = _known(e.b, lets)
    if not isinstance(r, n.Binary) or r.op not in REMAINDERS or not isinstance(e.cond, n.Binary) or e.cond.op != "and":
        return None
    if e.a != build.add(e.b, r.b):
        return None
    for left, right in ((e.cond.a, e.cond.b), (e.cond.b, e.cond.a)):
        if isinstance(left, n.Binary) and left.op == "ne" and build.is_const(left.b, 0) and left.a == e.b and _signs(right, e.b, r.b) is False:
            return build.mod(r.a, r.b)
    return None
