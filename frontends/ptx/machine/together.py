"""Barriers of a whole kernel, whose threads are known."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL
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
    collective.HANDLERS["shfl"](r, i)


HANDLERS: dict[str, Handler] = {"bar": _barrier, "barrier": _barrier, "shfl": _shuffle}
