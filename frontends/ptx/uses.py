"""What each instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from kir.surface.ptx.form.syntax import Instruction, Memory, Name, Not, Operand, Pair, Vector

SILENT = frozenset({"st", "red", "bar", "barrier", "fence", "membar", "cp", "prefetch", "prefetchu", "bra", "brx", "ret", "exit", "trap", "brkpt",
                    "nanosleep", "stmatrix", "setmaxnreg", "griddepcontrol", "call", "discard", "applypriority", "wmma_store", "pmevent"})
"""Opcodes that write no register."""


def registers(o: Operand) -> Iterator[str]:
    """The names in an operand."""
    match o:
        case Name(special=False) if o.name != "_":
            yield o.name
        case Not():
            yield from registers(o.of)
        case Vector():
            for x in o.items:
                yield from registers(x)
        case Pair():
            yield from registers(o.first)
            yield from registers(o.second)
        case Memory():
            yield from registers(o.base)
            for y in o.rest:
                yield from registers(y)
        case _:
            pass


def written(i: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    first = i.operands[0] if i.operands else None
    op, how = i.parts[0], i.parts[1] if len(i.parts) > 1 else ""
    if first is None or isinstance(first, Memory) or op in SILENT:
        return []
    if op == "wgmma" and how != "mma_async":
        return []
    if op == "mbarrier" and how not in ("try_wait", "test_wait", "arrive", "arrive_drop", "pending_count"):
        return []
    if op == "wmma" and how == "store":
        return []
    return list(registers(first))


def read(i: Instruction) -> list[str]:
    """The registers that an instruction reads: one that it may leave as it was, too."""
    out = list(registers(i.guard[0])) if i.guard is not None else []
    changed = written(i)
    for k, o in enumerate(i.operands):
        if k or not changed or (i.parts[0] == "wgmma"):
            out += registers(o)
    return out


__all__ = ["read", "registers", "written"]
