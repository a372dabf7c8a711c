"""A kernel's instructions as basic blocks."""

from __future__ import annotations

from collections.abc import Sequence

from kir.base.dataclass import dataclass
from kir.surface.ptx import waiting
from kir.surface.ptx.form.syntax import Form, Instruction, Label, Name, Number, Place

from ..uses import read, written

PURE = frozenset(["selp", "setp", "mov", "nanosleep", "not", "and", "or", "xor", "add", "sub", "mul", "mad", "shl", "shr", "bfe", "cvt", "cvta"])
"""Opcodes beside the try of an mbarrier that only compute."""
EXIT = -1
"""The block after the last: where a thread ends."""


@dataclass(frozen=True)
class Waiting(Instruction):
    """The try of an mbarrier in a loop until it succeeds."""


@dataclass(frozen=True)
class Block:
    """Instructions that run one after another; then `taken` is next where the guard `cond` holds, and else `after` (EXIT: the thread ends)."""

    instructions: tuple[Instruction, ...]
    cond: tuple[Name | Place, bool] | None
    taken: int
    after: int
    end: tuple[int, int] = (0, 0)

    @property
    def next(self) -> tuple[int, ...]:
        """The blocks that may come next."""
        return (self.after,) if self.cond is None or self.taken == self.after else (self.taken, self.after)


def blocks_of(form: Form) -> list[Block]:
    """The blocks of a body that can be reached, the first one first. Raises KirError KIR-F302 for a jump to a label that is not there, and KIR-F304
    for one to a place that is computed."""
    items = _waits(form.items)
    labels: dict[str, int] = {}
    cut: list[list[Instruction]] = [[]]
    targets = {o.name for x in items if isinstance(x, Instruction) and x.parts[0] == "bra" for o in x.operands if isinstance(o, Name)}
    for x in items:
        if isinstance(x, Label):
            if x.name not in targets:
                continue  # it names a line for debuggers
            if cut[-1]:
                cut.append([])
            labels[x.name] = len(cut) - 1
        else:
            cut[-1].append(x)
            if x.parts[0] in ("bra", "ret", "exit", "brx"):
                cut.append([])
    if not cut[-1]:
        labels = {k: (EXIT if v == len(cut) - 1 else v) for k, v in labels.items()}
        cut.pop()
    out = []
    for k, block in enumerate(cut):
        after = k + 1 if k + 1 < len(cut) else EXIT
        last = block[-1]
        if last.parts[0] not in ("bra", "ret", "exit", "brx"):
            out.append(Block(tuple(block), None, after, after, last.span))
            continue
        target = EXIT if last.parts[0] in ("ret", "exit") else _target(form, last, labels)
        if last.guard is None:
            out.append(Block(tuple(block[:-1]), None, target, target, last.span))
        else:
            out.append(Block(tuple(block[:-1]), last.guard, target, after, last.span))
    return _reached([_tried(k, b) for k, b in enumerate(out)]) or [Block((), None, EXIT, EXIT)]


def _tried(k: int, b: Block) -> Block:
    """A block that tries an mbarrier and begins again until that succeeds, as one that waits for it: only numbers that follow from the try stand beside it,
    and with its success the jump leads on."""
    tries = [i for i in b.instructions if i.parts[0] == "mbarrier" and len(i.parts) > 1 and i.parts[1] in ("try_wait", "test_wait")]
    if k not in b.next or b.cond is None or b.taken == b.after or len(tries) != 1:
        return b
    known: dict[str, int] = {}
    later = {name for i in b.instructions for name in written(i)}
    for i in b.instructions:
        if i is tries[0]:
            if any(name in later for name in read(i)):
                return b
            later -= set(written(i))
            if isinstance(i.operands[0], Name):
                known[i.operands[0].name] = 1
            continue
        if i.parts[0] not in PURE or i.guard is not None or any(name in later for name in read(i)):
            return b
        later -= set(written(i))
        value = _number(i, known)
        if value is not None and isinstance(i.operands[0], Name):
            known[i.operands[0].name] = value
    of, holds = b.cond
    truth = known.get(of.name) if isinstance(of, Name) else None
    if truth is None:
        return b
    to = b.taken if bool(truth) == holds else b.after
    if to == k:
        return b
    made = tuple(Waiting(i.parts, i.operands, i.guard, i.span) if i is tries[0] else i for i in b.instructions)
    return Block(made, None, to, to, b.end)


def _number(i: Instruction, known: dict[str, int]) -> int | None:
    """The result of an instruction on numbers that are known."""
    values = [o.value if isinstance(o, Number) else known.get(o.name) if isinstance(o, Name) else None for o in i.operands[1:]]
    if any(not isinstance(v, int) for v in values):
        return None
    v = [int(x) for x in values if x is not None]
    match i.parts[0]:
        case "mov":
            return v[0]
        case "selp":
            return v[0] if v[2] else v[1]
        case "setp" if len(v) == 2 and i.parts[1] in ("eq", "ne"):
            return int((v[0] == v[1]) == (i.parts[1] == "eq"))
        case "and" | "or" | "xor":
            return {"and": v[0] & v[1], "or": v[0] | v[1], "xor": v[0] ^ v[1]}[i.parts[0]]
        case "not" if i.parts[1] == "pred":
            return int(not v[0])
    return None


def _target(form: Form, jump: Instruction, labels: dict[str, int]) -> int:
    to = jump.operands[0] if jump.operands else None
    if jump.parts[0] == "brx" or not isinstance(to, Name):
        raise form.text.fail("KIR-F304", "a jump to a place that is computed", jump.span)
    if to.name not in labels:
        raise form.text.fail("KIR-F302", f"there is no label '{to.name}'", jump.span)
    return labels[to.name]


def _waits(items: Sequence[Instruction | Label]) -> list[Instruction | Label]:
    """The items, each loop around a try of an mbarrier as one instruction."""
    out: list[Instruction | Label] = []
    k = 0
    while k < len(items):
        found = waiting(items[k:k + 8]) if isinstance(items[k], Label) else None
        if found is None:
            out.append(items[k])
            k += 1
            continue
        i, count = found
        first = items[k]
        out += [first, Waiting(i.parts, i.operands, i.guard, i.span)]
        last = items[k + count - 1]
        if isinstance(last, Label):
            out.append(last)
        k += count
    return out


def _reached(blocks: list[Block]) -> list[Block]:
    """Those that the first leads to, renumbered; empty ones that lead to one place are passed by."""
    through: dict[int, int] = {EXIT: EXIT}

    def end(k: int) -> int:
        seen = set()
        while k != EXIT and not blocks[k].instructions and blocks[k].cond is None and k not in seen:
            seen.add(k)
            k = blocks[k].after
        return k

    for k in range(len(blocks)):
        through[k] = end(k)
    order: list[int] = []
    waiting_ = [through[0]] if blocks else []
    while waiting_:
        k = waiting_.pop()
        if k == EXIT or k in order:
            continue
        order.append(k)
        waiting_ += [through[x] for x in reversed(blocks[k].next)]
    number = {old: new for new, old in enumerate(order)} | {EXIT: EXIT}
    return [Block(b.instructions, b.cond, number[through[b.taken]], number[through[b.after]], b.end) for b in (blocks[k] for k in order)]


__all__ = ["EXIT", "Block", "Waiting", "blocks_of"]
