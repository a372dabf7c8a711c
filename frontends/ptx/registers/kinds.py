"""What kind of number each register holds: PTX moves bits, and says what they are only where it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice

from kir.base.dataclass import dataclass
from kir.ir.types import BF16, F16, F32, I32, I64, U16, DType
from kir.surface.ptx.form.bits import KINDS, UNSIGNED
from kir.surface.ptx.form.syntax import Form, Instruction, Memory, Operand, Vector

from ..flow.blocks import Block
from ..uses import registers

_WHOLE = frozenset({
    *("add", "sub", "mul", "mad", "fma", "neg", "abs", "min", "max", "div", "rem", "copysign", "testp"),
    *("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "atom", "red")})
_MATRIX = {"f16": ("f16x2",), "bf16": ("bf16x2",), "tf32": ("f32",), "f32": ("f32",)}


@dataclass
class Kinds:
    """Votes of the instructions that compute, shared by registers that are moved to one another."""

    form: Form
    parent: dict[str, str] = field(default_factory=dict)
    votes: dict[str, Counter[str]] = field(default_factory=dict)
    halves: dict[str, str] = field(default_factory=dict)

    def root(self, name: str) -> str:
        """The representative of a register's class."""
        at = name
        while (up := self.parent.get(at, at)) != at:
            at = up
        while self.parent.get(name, name) != at:
            self.parent[name], name = at, self.parent[name]
        return at

    def join(self, names: Iterable[str]) -> None:
        """Registers that hold the same bits at some time."""
        first, *rest = [self.root(n) for n in names] or [""]
        for other in rest:
            if other != first:
                self.parent[other] = first
                self.votes.setdefault(first, Counter()).update(self.votes.pop(other, Counter()))
                if other in self.halves:
                    self.halves.setdefault(first, self.halves.pop(other))

    def vote(self, o: Operand, kind: str) -> None:
        """An instruction takes or makes the registers of an operand as this."""
        if isinstance(o, Memory):
            return
        for name in registers(o):
            self.votes.setdefault(self.root(name), Counter())[kind] += 1

    def of(self, name: str, depth: int = 0) -> tuple[DType, int]:
        """The dtype of a register's elements, and how many it holds."""
        declared = self.form.registers[name]
        own = KINDS[declared]
        if own.dtype.is_float or own.dtype.is_bool:
            return own.dtype, 1
        root = self.root(name)
        votes = self.votes.get(root, Counter())
        floats = [(count, word) for word, count in votes.items() if KINDS[word].dtype.is_float and KINDS[word].bits == own.bits]
        if floats:
            best = KINDS[max(floats)[1]]
            return best.dtype, best.count
        if root in self.halves and depth < 4:
            dtype, _ = self.of(self.halves[root], depth + 1)
            if own.bits % dtype.bits == 0 and dtype.is_float:
                return dtype, own.bits // dtype.bits
        return {32: I32, 64: I64, 16: U16}.get(own.bits, UNSIGNED[own.bits]), 1


def kinds_of(blocks: Sequence[Block], form: Form) -> Kinds:
    """The kinds of a kernel's registers. An instruction of too few operands says nothing here, and is refused where it is read."""
    k = Kinds(form)
    for look in (_moved, _voted):
        for b in blocks:
            for i in b.instructions:
                with suppress(IndexError):
                    look(k, i)
    return k


def _moved(k: Kinds, i: Instruction) -> None:
    op = i.parts[0]
    if op == "mov" and len(i.operands) == 2:
        to, source = i.operands
        if isinstance(to, Vector) or isinstance(source, Vector):
            whole, parts = (source, to) if isinstance(to, Vector) else (to, source)
            names = list(registers(parts))
            for name in registers(whole):
                if names:
                    k.halves.setdefault(k.root(name), names[0])
            return
        k.join([*registers(to), *registers(source)])
    elif op == "selp":
        k.join(name for o in i.operands[:3] for name in registers(o))
    elif op == "shfl":
        k.join([*islice(registers(i.operands[0]), 1), *registers(i.operands[1])])


def _voted(k: Kinds, i: Instruction) -> None:
    op, types = i.parts[0], [p for p in i.parts[1:] if p in KINDS]
    if op == "mma" or op == "wgmma":
        names = [p for p in i.parts[1:] if p in _MATRIX]
        if op == "mma" and len(names) == 4:
            for o, word in zip(i.operands, names, strict=False):
                for kind in _MATRIX[word] if word != "f16" or o not in (i.operands[0], i.operands[3]) else ("f16x2",):
                    k.vote(o, kind)
        elif op == "wgmma" and len(names) == 3:
            k.vote(i.operands[0], "f32" if names[0] == "f32" else "f16x2")
            if isinstance(i.operands[1], Vector):
                k.vote(i.operands[1], _MATRIX[names[1]][0])
        return
    if not types:
        return
    if op == "cvt" and len(types) == 2:
        k.vote(i.operands[0], types[0])
        for o in i.operands[1:]:
            k.vote(o, types[1])
    elif op in ("setp", "set"):
        for o in i.operands[1:3]:
            k.vote(o, types[-1])
    elif op in _WHOLE and "wide" not in i.parts:
        for o in i.operands:
            k.vote(o, types[-1])
    elif op in ("ld", "st"):
        k.vote(i.operands[0 if op == "ld" else 1], types[-1])


FLOATS16 = (F16, BF16)
__all__ = ["F32", "FLOATS16", "Kinds", "kinds_of"]
