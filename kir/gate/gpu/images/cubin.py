"""What a cubin could remember and what it could look at, read from the cubin itself: it is what is launched, whoever wrote the text.

A kernel's outputs are a function of its arguments. Memory that belongs to a module (`__device__` variables) lives from call to call, so that a
kernel could count its calls or keep its answers there: every such variable must hold after a call what it held before, `__constant__` ones
too, which a pointer can write. Constants do, and so do counters that are zero again, and what headers bring along and nobody uses. The heap
of device code is such memory without a name: a block that is allocated again holds what it held. A clock tells a kernel whether it is
watched; no kernel needs one.

Sections and symbols as in ELF; the encoding of the four instructions that read a special register was found by compiling for sm_80 to sm_120
and disassembling with nvdisasm 12.8 (tests/kir/gate/gpu/test_cubin.py compiles them again).
"""
from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.surface import Image

READS = frozenset({0x919, 0x9C3, 0x805, 0x8CB})
"""S2R, S2UR, CS2R, CS2UR: the low 12 bits of an instruction of 16 bytes; bits 72 to 79 name the register."""
CLOCKS = {0x50: "%clock", 0x51: "%clock_hi", 0x52: "%globaltimer", 0x53: "%globaltimer_hi", **{0x64 + i: f"%pm{i}" for i in range(8)}}
COUNTER = "%gridid"
"""The number of a launch. It is read from constant memory, as arguments are: only PTX tells it from them."""
HEAP = frozenset({"malloc", "__nv_malloc", "__nv_aligned_device_malloc", "aligned_malloc"})
"""Functions of the driver that give memory of the heap, as the code of a kernel names them."""
OBJECT, FUNCTION = 1, 2
"""Kinds of ELF symbols."""
RESERVED = ("$str", "__cudart_", "__unnamed_")
"""How symbols begin that compilers make themselves, and never write: texts of printf and assert, tables of the math library."""


@dataclass(frozen=True)
class Memory:
    """A module's variable, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def memory(cubin: bytes) -> tuple[Memory, ...]:
    """Variables in device memory that a module brings along, but for those that compilers make. Raises ValueError for what is no cubin."""
    return tuple(Memory(name, size) for name, kind, of, size in _symbols(cubin) if kind == OBJECT and size and (
        of in (".nv.global", ".nv.constant3") or (of == ".nv.global.init" and not name.startswith(RESERVED))))


def heap(cubin: bytes) -> tuple[str, ...]:
    """Functions that the code calls for memory of the device's heap. Raises ValueError for what is no cubin."""
    return tuple(sorted({name for name, kind, of, _ in _symbols(cubin) if kind == FUNCTION and not of and name in HEAP}))


def _symbols(cubin: bytes) -> Iterator[tuple[str, int, str, int]]:
    """Name, kind, section (none: it is the driver's) and size of each symbol."""
    sections = _sections(cubin)
    for table in (s for s in sections if s.kind == 2):
        strings = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, 24):
            name, info, _, section, _, size = struct.unpack_from("<IBBHQQ", cubin, at)
            yield _text(cubin, strings + name), info & 0xF, sections[section].name if section < len(sections) else "", size


def clocks(cubin: bytes) -> tuple[str, ...]:
    """Clocks, timers and counters that the code reads. Raises ValueError for what is no cubin."""
    found = set()
    for s in _sections(cubin):
        if s.name.startswith(".text."):
            for low, high in struct.iter_unpack("<QQ", cubin[s.offset: s.offset + s.size // 16 * 16]):
                if low & 0xFFF in READS and (high >> 8) & 0xFF in CLOCKS:
                    found.add(CLOCKS[(high >> 8) & 0xFF])
    return tuple(sorted(found))


def require_closed(images: Sequence[Image], ptx: Sequence[str] = ()) -> None:
    """Refuse what could tell one call from another by itself; `ptx` are the texts that the images came from, where they are known. Raises KirError
    KIR-G930 for memory of the heap, KIR-G931 for a clock or a counter of launches, KIR-G932 for what is no cubin."""
    for image in images:
        try:
            read = clocks(image.cubin)
            memory(image.cubin)
            allocates = heap(image.cubin)
        except (ValueError, struct.error, IndexError) as fault:
            raise error("KIR-G932", f"the image of {image.function} is no cubin: {fault}", needs="SASS of the device at hand") from None
        if read:
            raise error("KIR-G931", f"{image.function} reads {', '.join(read)}: what it computes could depend on whether it is timed")
        if allocates:
            raise error("KIR-G930", f"{image.function} calls {', '.join(allocates)}: what lies on the device's heap outlives the call")
    if any(COUNTER in text for text in ptx):
        raise error("KIR-G931", f"a kernel reads {COUNTER}: what it computes could depend on how many launches there were before")


def watched(image: Image) -> list[list[str | int]]:
    """Names and sizes of variables that must be found unchanged after each call."""
    return [[m.name, m.size] for m in memory(image.cubin)]


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("it does not begin as an ELF file of 64 bits")
    start, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    rows = [struct.unpack_from("<IIQQQQI", cubin, start + i * size) for i in range(count)]
    strings = rows[names][4]
    return [_Section(_text(cubin, strings + r[0]), r[1], r[4], r[5], r[6]) for r in rows]


def _text(cubin: bytes, at: int) -> str:
    return cubin[at: cubin.index(b"\0", at)].decode(errors="replace")


__all__ = ["Memory", "clocks", "heap", "memory", "require_closed", "watched"]
