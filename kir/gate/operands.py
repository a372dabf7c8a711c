"""What else a program may give by right: operands of its products in tf32 cut off, and functions without the errors of their approximations.

`precision tf32` says that f32 operands lose 13 of their bits, not how: tensor cores ignore those bits (PTX ISA, `mma` and `wgmma` with .tf32), a
surface may round to nearest before. Both are right, and over a long sum they drift apart by more than the order of additions does.
`tanh.approx` may be off by 2^-11: a program that computes the function itself is no less right than the one that it is compared with.
"""
from __future__ import annotations

from typing import Any

from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.ir.visit import once_for_each, transform

COARSE = {"tanh_approx": "tanh", "sin_approx": "sin", "cos_approx": "cos"}
"""Approximations whose errors a comparison of programs tells from rounding, and the functions that they stand for."""


@once_for_each
def otherwise(program: n.Program) -> n.Program | None:
    """The program with operands of its products in tf32 cut off (the interpreter rounds them to nearest), and with coarse approximations computed in full
    (the interpreter gives them their errors); None where it has neither."""
    seen: list[n.Node] = []

    def leave(old: n.Node, new: n.Node) -> Any:
        if isinstance(new, n.Mma) and new.precision == "tf32" and dtype_of(new.a.type) == F32:
            seen.append(new)
            return n.Mma(new.acc, _cut(new.a), _cut(new.b), new.via, new.precision, new.pending, new.attrs, new.label, new.origin)
        if isinstance(new, n.Call) and new.fn == "mma_sync" and all(not isinstance(x, n.Region) for x in new.args) and dtype_of(new.args[0].type) == F32:
            seen.append(new)
            return n.Call(new.fn, tuple(x if i > 1 or isinstance(x, n.Region) else _cut(x) for i, x in enumerate(new.args)), new.attrs, new.of)
        if isinstance(new, n.Call) and new.fn in COARSE and new.of is None:
            seen.append(new)
            return n.Call(COARSE[new.fn], new.args)
        return new

    out: n.Program = transform(program, leave)
    return out if seen else None


def _cut(e: n.Expr) -> n.Expr:
    return n.Call("to_tf32", (e,), (("rounding", "rz"),))
