"""Inline PTX assembly: text with operand constraints -> statements and expressions of the IR.

`read_asm` is for frontends: CUDA's `asm(..)` and Triton's `inline_asm_elementwise` are the same texts. What PTX says wrongly (an unknown
instruction, operands that do not fit) and what the IR cannot say are refused at their place in the text.

Order: cleanup, form, registers, instructions, table, writing.
"""
from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, did_you_mean
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.surface.ptx.cleanup import cleaned
from kir.surface.ptx.form.bits import Kind, reinterpret
from kir.surface.ptx.form.bits import pack as pack_bits
from kir.surface.ptx.form.bits import unpack as unpack_bits
from kir.surface.ptx.form.operands import AsmOperand, Descriptor, Matrix, Pointer
from kir.surface.ptx.form.syntax import Instruction, Label, Name, Text, parse
from kir.surface.ptx.instructions import arithmetic, collective, matrices, memory, moves
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Reader

HANDLERS: dict[str, Handler] = {**arithmetic.HANDLERS, **moves.HANDLERS, **memory.HANDLERS, **collective.HANDLERS, **matrices.HANDLERS}


@dataclass(frozen=True)
class Opcode:
    """A row of `grammars/ptx.toml`: family, least and most operands, and what it is (a node, rows of the instruction table, or why not).
    `written` are rows that backends write as it, and that are not read from it."""

    name: str
    family: str
    operands: tuple[int, int]
    node: str
    rows: tuple[str, ...]
    why: str
    written: tuple[str, ...] = ()


@cache
def opcodes() -> dict[str, Opcode]:
    """All opcodes that are known, by the first part of their name."""
    out = {}
    for family, rows in tomllib.loads(resources.files("kir.grammars").joinpath("ptx.toml").read_text()).items():
        for name, row in rows.items():
            count = row["operands"]
            least, most = (count, count) if isinstance(count, int) else count
            out[name] = Opcode(name, family, (least, most), row.get("node", ""), tuple(row.get("row", "").split()), row.get("why", ""),
                               tuple(row.get("written", "").split()))
    return out


@dataclass(frozen=True)
class Meaning:
    """What an asm statement does: `statements` in order, then `outputs` are the values of the operands that it writes (`=`, `+`), in order;
    None for one that no instruction writes, whose value is undefined."""

    statements: tuple[n.Stmt, ...]
    outputs: tuple[n.Expr | None, ...]
    addresses: tuple[Pointer | None, ...] = ()


def read_asm(text: str, operands: Sequence[AsmOperand], fresh: Callable[[str], str], special: Mapping[str, n.Expr] | None = None,
             origin: Origin | None = None, spinning: bool = False, peers: Callable[[n.Buffer], n.Buffer | None] | None = None) -> Meaning:
    """The meaning of an asm text with its operands in the order of their numbers. `fresh` gives unused names; `special` maps special
    registers (`tid.x`, `laneid`) to their values; `origin` is the place of the statement; `spinning` says that the code around it runs
    it again until a try of an mbarrier succeeds;
    `peers` gives the buffer that shows a shared one in every CTA of the cluster. Raises KirError, located: KIR-F300 (syntax),
    KIR-F301 (an instruction or modifier that is unknown), KIR-F302 (wrong operands), KIR-F304 (no meaning in the IR), KIR-F306 (an
    address that is no place in a buffer)."""
    form = parse(Text(text, origin))
    r = Reader(form, operands, fresh, special or {})
    r.spinning, r.peers = spinning, peers
    for number, o in enumerate(operands):
        if o.value is not None:
            r.registers[number] = [(None, o.value)]
    items = _without_policies(form.items)
    while items:
        _step(r, items)
    outputs = [_output(r, number, o) for number, o in enumerate(operands) if o.is_output]
    steps, values = cleaned(r.steps, [o for o in outputs if isinstance(o, n.Expr)], r.locals)
    left = iter(values)
    addresses = tuple(o if isinstance(o, Pointer) else None for o in outputs)
    return Meaning(steps, tuple(next(left) if isinstance(o, n.Expr) else None for o in outputs), addresses)


def _without_policies(items: Sequence[Instruction | Label]) -> list[Instruction | Label]:
    """The items without L2 policies that a statement makes in registers of its own, for accesses of its own alone: they say nothing of values."""
    policies = [i for i in items if isinstance(i, Instruction) and i.parts[0] == "createpolicy" and i.guard is None and i.operands]
    names = {i.operands[0] for i in policies if isinstance(i.operands[0], Name) and not i.operands[0].special}
    out: list[Instruction | Label] = []
    for i in items:
        if isinstance(i, Instruction) and i in policies and i.operands[0] in names:
            continue
        if isinstance(i, Instruction) and "L2::cache_hint" in i.parts and i.operands and i.operands[-1] in names:
            i = replace(i, parts=tuple(p for p in i.parts if p != "L2::cache_hint"), operands=i.operands[:-1])
        out.append(i)
    left = [str(o) for i in out if isinstance(i, Instruction) for o in i.operands]
    return list(items) if any(f"name='{name.name}'" in o for name in names for o in left) else out


def _output(r: Reader, number: int, o: AsmOperand) -> n.Expr | Pointer | None:
    made = r.merged(r.registers.get(number, []), None)
    if made is None:
        return None
    if isinstance(made, Pointer) and made.at.buffer.space == "cluster":
        return made
    if not isinstance(made, n.Expr):
        raise r.form.text.fail("KIR-F304", f"operand %{number} is an address that the asm leaves behind", (0, len(r.form.text.text)))
    return made if o.dtype is None or o.dtype == dtype_of(made.type) else reinterpret(made, o.dtype)


def _step(r: Reader, items: list[Instruction | Label]) -> None:
    """Reads the first of what is left."""
    first = items[0]
    if isinstance(first, Label):
        taken = waiting(items)
        if taken is None:
            if any(isinstance(x, Instruction) and x.parts[0] == "bra" for x in items):
                raise r.form.text.fail("KIR-F304", "a jump other than the loop around a try of an mbarrier", first.span)
            del items[0]
            return
        wait, count = taken
        _under(r, wait)
        collective.waited(r, wait)
        del items[:count]
        return
    del items[0]
    row = opcodes().get(first.parts[0])
    if row is None:
        r.here = first
        raise r.fail("KIR-F301", f"there is no instruction '{first.parts[0]}'", did_you_mean(first.parts[0], list(opcodes())))
    if not _under(r, first):
        return
    if row.why:
        raise r.refuse(f"'{row.name}': {row.why}")
    least, most = row.operands
    if not least <= len(first.operands) <= most:
        shown = least if least == most else f"{least} to {most}"
        raise r.fail("KIR-F302", f"'{first.opcode}' takes {shown} operands, not {len(first.operands)}")
    try:
        HANDLERS[row.name](r, first)
    except (IndexError, KeyError, ValueError) as bad:  # operands that one of its forms has and this one not; a shape that is no number
        raise r.fail("KIR-F302", f"'{first.opcode}' has operands or a shape that do not fit") from bad


def _under(r: Reader, i: Instruction) -> bool:
    """Takes an instruction's guard; False where it never holds."""
    r.here, r.guard = i, None
    if i.guard is None:
        return True
    of, holds = i.guard
    cond = r.value(of, PREDICATE)
    if isinstance(cond, n.Const):
        return bool(cond.value) == holds
    if isinstance(cond, n.Unary) and cond.op == "not":
        cond, holds = cond.x, not holds
    r.guard = (r.bind("p", cond), holds)
    return True


def waiting(items: Sequence[Instruction | Label]) -> tuple[Instruction, int] | None:
    """The try of an mbarrier in a loop until it succeeds, and how many items the loop has: `L: try P; @!P bra L;`, or
    `L: try P; @P bra D; bra L; D:`."""
    label, *rest = items
    assert isinstance(label, Label)
    if not rest or not isinstance(rest[0], Instruction) or rest[0].parts[:2] not in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
        return None
    wait, done = rest[0], rest[0].operands[0]
    after = [x for x in rest[1:4] if not (isinstance(x, Instruction) and x.parts[0] == "nanosleep")]

    def jumps(x: Instruction | Label, to: str | None, when: bool | None) -> str | None:
        if isinstance(x, Instruction) and x.parts in (("bra",), ("bra", "uni")) and len(x.operands) == 1 and isinstance(x.operands[0], Name):
            guard = None if x.guard is None else x.guard[1] if x.guard[0] == done else not when
            if guard == when and (to is None or x.operands[0].name == to):
                return x.operands[0].name
        return None

    if after and jumps(after[0], label.name, False):
        return wait, 3
    if len(after) >= 3 and jumps(after[1], label.name, None):
        out = jumps(after[0], None, True)
        if out is not None and isinstance(after[2], Label) and after[2].name == out:
            return wait, 5
    return None


__all__ = ["AsmOperand", "Descriptor", "Kind", "Matrix", "Meaning", "Opcode", "Pointer", "opcodes", "pack_bits", "read_asm", "unpack_bits", "waiting"]
