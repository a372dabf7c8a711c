"""What a kernel needs of an SM: shared memory, registers as a lower bound, and how many CTAs fit.

Registers are those of declared fragments, private arrays and the largest tile values that are live at once in one statement; a compiler
needs more. Lifetimes follow blocks: memory declared in one branch is free in the other.
"""
from __future__ import annotations

from math import prod

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.hardware.target import Architecture
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, walk

BASE_REGISTERS = 24
"""Registers of a thread that no buffer shows: addresses, indices, the stack of a call."""


@dataclass(frozen=True)
class Footprint:
    """Of one CTA: bytes of shared memory, 32-bit registers a thread (a lower bound), threads. None where a size is not known."""

    shared_bytes: int | None
    registers: int | None
    threads: int | None

    def ctas_per_sm(self, hardware: Architecture) -> int | None:
        """How many such CTAs one SM holds; 0 when not even one fits; None when it is not known."""
        if self.shared_bytes is None or self.registers is None or self.threads is None or self.threads <= 0:
            return None
        if self.shared_bytes > hardware.shared_per_cta or self.threads > hardware.max_threads_per_cta:
            return 0
        registers = min(self.registers, hardware.max_registers_per_thread)
        return min(_by_warps(self.threads, registers, hardware), _by_shared(self.shared_bytes, hardware), hardware.max_ctas_per_sm)


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def _by_warps(threads: int, registers: int, hardware: Architecture) -> int:
    """CTAs that the warp slots and register files of an SM hold: a warp's registers come from one partition (`cuda_occupancy.h`)."""
    warps = _up(-(-threads // hardware.warp_size), hardware.warp_unit)
    a_warp = _up(registers * hardware.warp_size, hardware.register_unit)
    held = hardware.registers_per_sm // hardware.warp_unit // a_warp * hardware.warp_unit
    return min(held, hardware.max_warps_per_sm) // warps


def _by_shared(size: int, hardware: Architecture) -> int:
    return hardware.shared_per_sm // _up(size + hardware.shared_reserved, hardware.shared_unit)


def footprint(program: n.Program, kernel: n.Kernel) -> Footprint:
    """The footprint of a kernel under the program's facts."""
    known = Facts.from_program(program)
    threads = known.domain(kernel.threads).value
    shared = _most(kernel.body, ("shared",), known)
    fragments = _most(kernel.body, ("fragment",), known)
    private = _most(kernel.body, ("register",), known)
    tiles = _largest_tile(kernel)
    registers = None
    if threads and fragments is not None and private is not None:
        spread = (fragments + tiles + threads * 4 - 1) // (threads * 4)
        registers = BASE_REGISTERS + spread + (private + 3) // 4
    return Footprint(shared, registers, threads)


def _bytes(b: n.Buffer, known: Facts) -> int | None:
    extents = [known.domain(d).value for d in b.shape]
    if any(e is None for e in extents):
        return None
    return (prod(e for e in extents if e is not None) * b.dtype.bits + 7) // 8


def _most(block: n.Block, spaces: tuple[str, ...], known: Facts) -> int | None:
    """The most bytes of a space that are declared at once in a block."""
    here, deepest = 0, 0
    for s in block:
        if isinstance(s, n.Alloc) and s.buffer.space in spaces:
            size = _bytes(s.buffer, known)
            if size is None:
                return None
            here += size
        inner = [_most(b, spaces, known) for b in blocks_of(s)]
        if any(i is None for i in inner):
            return None
        sizes = [i for i in inner if i is not None]
        deepest = max(deepest, here + (sum(sizes) if isinstance(s, n.Roles) else max(sizes, default=0)))
    return max(here, deepest)


def _largest_tile(kernel: n.Kernel) -> int:
    """Bytes of the largest tile value that a let or an operand holds."""
    most = 0
    for x in walk(kernel):
        if isinstance(x, n.Let) and isinstance(x.value.type, TileType):
            extents = [int_value(d) if isinstance(d, n.Expr) else d for d in x.value.type.shape]
            if all(e is not None for e in extents):
                most = max(most, prod(e for e in extents if e is not None) * x.value.type.dtype.bits // 8)
    return most
