"""Barriers of a whole kernel, whose threads are known."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, dtype_of
from kir.surface.ptx.form.bits import KINDS
from kir.surface.ptx.form.syntax import Instruction, Name, Pair
from kir.surface.ptx.instructions import collective
from kir.surface.ptx.registers.reader import Handler, Reader

from .machine import Machine


def _barrier(r: Reader, i: Instruction) -> None:
    """A barrier of as many threads as there are is one of all."""
    assert isinstance(r, Machine)
    words = set(i.parts[1:])
    if words <= {"sync", "aligned", "cta"} and "sync" in words and len(i.operands) == 2 and r.threads is not None:
        number, count = (r.value(o, KINDS["s32"]) for o in i.operands)
        if build.is_const(number, 0) and build.is_const(count, r.threads):
            r.effect(n.Eval(build.call("barrier")))
            return
    collective.HANDLERS[i.parts[0]](r, i)


def _shuffle(r: Reader, i: Instruction) -> None:
    """Whether the lane that a value is taken from was in range is seldom asked."""
    assert isinstance(r, Machine)
    first = i.operands[0]
    if isinstance(first, Pair):
        inside = first.second
        if isinstance(inside, Name) and inside.name in r.read:
            clamp = r.constant(i.operands[3])
            if not ({"bfly", "idx"} & set(i.parts)) or clamp != 31:
                raise r.refuse("a shuffle that says whether its source is in range")
            r.write(inside, build.const(True, BOOL))
        i = replace(i, operands=(first.first, *i.operands[1:]))
    value = r.held(i.operands[1]) if isinstance(i.operands[1], Name) else None
    collective.HANDLERS["shfl"](r, i)
    to = i.operands[0]
    got = r.registers.get(to.name, [(None, None)])[-1][1] if isinstance(to, Name) else None
    if isinstance(got, n.Var) and isinstance(value, n.Expr) and dtype_of(value.type).is_integer:  # some lane's value
        known = r.numbers.of(value)
        r.numbers.ranges[got.name] = (known.lo, known.hi)


def _elect(r: Reader, i: Instruction) -> None:
    """One lane of a whole warp: the first."""
    assert isinstance(r, Machine)
    first = i.operands[0]
    if not isinstance(first, Pair) or r.constant(i.operands[1]) not in (-1, 0xFFFFFFFF):
        raise r.refuse("a lane that the hardware chooses among some")
    if isinstance(first.first, Name) and first.first.name in r.read:
        r.result(first.first, build.const(0, KINDS["s32"].dtype))
    lane = r.special["laneid"]
    r.write(first.second, r.bind("p", build.compare("eq", lane, 0)))


HANDLERS: dict[str, Handler] = {"bar": _barrier, "barrier": _barrier, "shfl": _shuffle, "elect": _elect}
