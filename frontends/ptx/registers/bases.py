"""Which registers hold addresses, and from where they start: a parameter, or memory that the text declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.surface.ptx.form.syntax import Form, Instruction, Memory, Name, Operand, Variable, Vector

from ..flow.blocks import Block
from ..uses import registers, written

NUMBER = ""
"""What stands for no address."""
_PASSING = frozenset({"mov", "cvta", "add", "sub", "selp", "cvt", "mad", "mapa"})


def pointer_parameters(blocks: Sequence[Block], form: Form, parameters: Sequence[Variable], given: Mapping[str, bool]) -> frozenset[str]:
    """The parameters that are addresses: as they are declared, as `given` says, or else as they are used."""
    wide = [p for p in parameters if p.words and p.words[0] in ("u64", "b64", "s64") and p.count == 1]
    sure = {p.name for p in wide if given.get(p.name, "ptr" in p.words)}
    open_ = {p.name for p in wide if p.name not in sure and p.name not in given}
    if not open_ or any("ptr" in p.words for p in wide):
        return frozenset(sure)
    bases = bases_of(blocks, form, frozenset(sure | open_))
    used = set()
    for b in blocks:
        for i in b.instructions:
            for o in i.operands:
                if isinstance(o, Memory) and isinstance(o.base, Name) and not o.base.special:
                    used.add(bases.get(o.base.name, NUMBER))
            if i.parts[0] == "cvta":
                used |= {bases.get(name, NUMBER) for name in registers(i.operands[1])}
    return frozenset(sure | (used & open_))


def bases_of(blocks: Sequence[Block], form: Form, pointers: frozenset[str]) -> dict[str, str]:
    """For each register the name that its address starts from; NUMBER for one that holds none, or one of several."""
    found: dict[str, str] = {}
    mixed: set[str] = set()
    changed = True
    while changed:
        changed = False
        for b in blocks:
            for i in b.instructions:
                base = _made(i, form, pointers, found)
                if base is None:
                    continue
                for name in written(i):
                    before = found.get(name)
                    if name in mixed or before == base:
                        continue
                    if before is not None:
                        mixed.add(name)
                        base = NUMBER
                    found[name] = base
                    changed = True
    return found


def _made(i: Instruction, form: Form, pointers: frozenset[str], found: Mapping[str, str]) -> str | None:
    """What the result of an instruction starts from; None where that is not known yet."""
    op = i.parts[0]
    if op == "ld" and "param" in i.parts:
        at = i.operands[1]
        named = isinstance(at, Memory) and isinstance(at.base, Name) and at.base.name in pointers and at.offset == 0
        return at.base.name if named and isinstance(at, Memory) and isinstance(at.base, Name) and not isinstance(i.operands[0], Vector) else NUMBER
    if op not in _PASSING:
        return NUMBER
    if op == "cvt" and not any(p in ("u64", "s64", "b64") for p in i.parts):
        return NUMBER
    if op == "mov" and any(isinstance(o, Vector) for o in i.operands):
        return NUMBER
    operands = i.operands[1:3] if op in ("add", "sub", "selp") else i.operands[1:2]
    if op == "mad":
        operands = i.operands[3:4]
    kinds = [_held(o, form, found) for o in operands]
    if op in ("add", "sub"):
        addresses = [k for k in kinds if k]
        if None in kinds and not addresses:
            return None
        return addresses[0] if len(addresses) == 1 else NUMBER
    known = {k for k in kinds if k is not None}
    return None if not known else known.pop() if len(known) == 1 else NUMBER


def _held(o: Operand, form: Form, found: Mapping[str, str]) -> str | None:
    if not isinstance(o, Name) or o.special:
        return NUMBER
    return found.get(o.name) if o.name in form.registers else o.name


__all__ = ["NUMBER", "bases_of", "pointer_parameters"]
