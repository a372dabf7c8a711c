"""A kernel's structured blocks as statements."""

from __future__ import annotations

from collections.abc import Sequence

from kir.base.diagnostic import did_you_mean
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL
from kir.surface.ptx import HANDLERS as INLINE
from kir.surface.ptx import opcodes
from kir.surface.ptx.form.syntax import Instruction
from kir.surface.ptx.registers.reader import PREDICATE, Handler

from ..flow.blocks import PURE, Block
from ..flow.structure import Branch, Code, Flag, Item, Leave, Loop, When
from ..uses import written
from . import accesses, numbers, products, tensor_maps, together
from .machine import Machine, located

HANDLERS: dict[str, Handler] = {**INLINE, **numbers.HANDLERS, **accesses.HANDLERS, **together.HANDLERS, **products.HANDLERS, **tensor_maps.HANDLERS}
UNLISTED = frozenset({"createpolicy"})
"""Opcodes that inline assembly may not hold, for what they make outlives the statement."""


class Run:
    """Runs blocks on a machine; `flags` are the registers of jumps over others."""

    def __init__(self, machine: Machine, blocks: Sequence[Block]) -> None:
        self.m, self.blocks = machine, blocks
        self.flags: dict[int, n.Buffer] = {}

    def statements(self, items: Sequence[Item]) -> tuple[n.Stmt, ...]:
        """The statements of items in order."""
        m = self.m
        before, m.steps = m.steps, []
        try:
            for x in items:
                self._item(x)
            return tuple(m.steps)
        finally:
            m.steps = before

    def _item(self, x: Item) -> None:
        m = self.m
        match x:
            case Code():
                m.entered()
                for i in self.blocks[x.block].instructions:
                    self._step(i)
                m.fenced()
            case Branch():
                m.guard = None
                cond = m.value(x.cond[0], PREDICATE)
                test = m.bind("p", cond if x.cond[1] else build.invert(cond))
                then = self.statements(x.then)
                orelse = self.statements(x.orelse)
                if orelse and isinstance(orelse[-1], n.Jump):  # what comes then is all that comes
                    m.steps += [n.If(build.invert(test), orelse), *then]
                elif then and isinstance(then[-1], n.Jump):
                    m.steps += [n.If(test, then), *orelse]
                elif then:
                    m.steps.append(n.If(test, then, orelse))
                elif orelse:
                    m.steps.append(n.If(build.invert(test), orelse))
            case Loop():
                m.steps.append(n.While(build.const(True, BOOL), self.statements(x.body)))
            case Leave():
                assert x.how in ("break", "continue", "return")
                m.steps.append(n.Jump(x.how))  # type: ignore[arg-type]  # one of the three
            case Flag():
                m.steps.append(n.Store(n.Region(self._flag(x.to)), build.const(x.up, BOOL)))
            case When():
                up: n.Expr = build.load(n.Region(self._flag(x.flags[0])))
                for f in x.flags[1:]:
                    up = build.logical_or(up, build.load(n.Region(self._flag(f))))
                m.steps.append(n.If(up if x.up else build.invert(up), self.statements(x.body)))

    def _moves(self, i: Instruction) -> bool:
        """Whether an instruction only moves registers, or computes what no tensor core takes: compilers do not keep its order with a fence of wgmma, for
        whoever hands out registers does."""
        return i.parts[0] == "mov" or (i.parts[0] in PURE and not any(name in self.m.arrays for name in written(i)))

    def _flag(self, to: int) -> n.Buffer:
        if to not in self.flags:
            self.flags[to] = n.Buffer(self.m.fresh("skip"), BOOL, (), "register")
        return self.flags[to]

    def _step(self, i: Instruction) -> None:
        m = self.m
        at = len(m.steps)
        m.here, m.guard = i, None
        if m.fence is not None and not self._moves(i) and "mma_async" not in i.parts:
            m.fenced()
        if i.parts[0] == "call":
            raise m.refuse("a call of a function")
        if i.guard is not None:
            of, holds = i.guard
            cond = m.value(of, PREDICATE)
            if isinstance(cond, n.Const):
                if bool(cond.value) != holds:
                    return
            else:
                if isinstance(cond, n.Unary) and cond.op == "not":
                    cond, holds = cond.x, not holds
                m.guard = (m.bind("p", cond), holds)
        row = opcodes().get(i.parts[0])
        if row is None:
            raise m.fail("KIR-F301", f"there is no instruction '{i.parts[0]}'", did_you_mean(i.parts[0], list(opcodes())))
        handler = HANDLERS.get(row.name)
        if handler is None or (row.why and row.name not in OWN):
            raise m.refuse(f"'{row.name}': {row.why or 'it is not read'}")
        least, most = row.operands
        extra = 1 if "L2::cache_hint" in i.parts else 2 if i.parts[:3] == ("fence", "proxy", "tensormap::generic") else 0
        if not least <= len(i.operands) <= most + extra:
            raise m.fail("KIR-F302", f"'{i.opcode}' takes {least} to {most} operands, not {len(i.operands)}")
        m.wanted = None
        handler(m, i)
        for k in range(at, len(m.steps)):
            m.steps[k] = located(m.steps[k], m)
        m.guard = None


OWN = frozenset({*numbers.HANDLERS, *accesses.HANDLERS, *together.HANDLERS, *products.HANDLERS, *tensor_maps.HANDLERS})
"""Opcodes that are read here otherwise than in inline assembly."""
__all__ = ["Run"]
