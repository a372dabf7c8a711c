"""Layouts as terms: where the elements of a buffer lie in memory, and which thread's register holds which element of a fragment.

Memory layouts map an index to an offset: `strides(s0, s1, ..)` in elements, `swizzle(bits, base, shift)` on byte offsets (bit group
`base ..` is xored with the group `shift` above it, as in CuTe's Swizzle<bits, base, shift>), `compose(outer, .., inner)`, and nothing for
row-major. Fragment layouts map an index to (thread, register slot): `mma_m16n8k16_a` and kin, `wgmma_acc(n)`, `wgmma_a`,
`blocked(..)`, `tiled(atom, [warps, ..])`, `spread(..)` (`kir.analysis.tiles.fragments`). `kir.ir.layouts.layout_tables` evaluates all of them.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from kir.base.diagnostic import Diagnostic, KirError, did_you_mean, error
from kir.ir.nodes import Layout

ADDRESS_BITS = 31
"""Bits of an offset in bytes: what a swizzle moves about."""
MEMORY = ("strides", "swizzle", "compose", "auto")
FRAGMENTS = ("mma_m16n8k8_a", "mma_m16n8k8_b", "mma_m16n8k16_a", "mma_m16n8k16_b", "mma_m16n8k32_a", "mma_m16n8k32_b", "mma_c",
             "wgmma_acc", "wgmma_a",
             "blocked", "tiled")
"""Names of fragment layouts. Those of mma take the dtype's width from the buffer."""


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major array."""
    out, step = [], 1
    for d in reversed(shape):
        out.append(step)
        step *= d
    return tuple(reversed(out))


def arrangement(layout: Layout | None, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """Strides in elements, and the byte swizzles in the order in which they act. Raises KirError KIR-L001 and KIR-L002."""
    if layout is None or layout.name == "auto":
        return row_major(shape), ()
    wrong = next(rules(layout, len(shape)), None)
    if wrong is not None:
        raise KirError(wrong)
    numbers = integers(layout)
    if layout.name == "strides":
        return numbers, ()
    if layout.name == "swizzle":
        return row_major(shape), ((numbers[0], numbers[1], numbers[2]),)
    strides = row_major(shape)
    swizzles: tuple[tuple[int, int, int], ...] = ()
    for part in reversed(layout.args):
        assert isinstance(part, Layout)
        inner, more = arrangement(part, shape)
        strides = strides if part.name == "swizzle" else inner
        swizzles += more
    return strides, swizzles


def integers(layout: Layout) -> tuple[int, ...]:
    """The integer arguments of a layout, one list of them spread out."""
    out: list[int] = []
    for a in layout.args:
        if isinstance(a, tuple):
            out += a
        elif isinstance(a, int):
            out.append(a)
    return tuple(out)


def rules(layout: Layout, rank: int) -> Iterator[Diagnostic]:
    """What is wrong with a layout of a buffer of that rank: unknown names (KIR-L001), wrong arguments (KIR-L002)."""
    numbers = integers(layout)
    if layout.name == "strides" and (len(numbers) != rank or len(numbers) != sum(len(a) if isinstance(a,
                                                                                                      tuple) else 1 for a in layout.args)):
        yield Diagnostic("KIR-L002", f"strides({', '.join(map(str, numbers))}) for {rank} dimensions",
                         needs="one stride a dimension, in elements")
    elif layout.name == "swizzle" and (len(layout.args) != 3 or len(numbers) != 3 or min(numbers) < 0 or abs(numbers[2]) < numbers[0]
                                       or sum(numbers) > ADDRESS_BITS):
        yield Diagnostic("KIR-L002", f"swizzle({', '.join(map(str, layout.args))})",
                         needs=f"bits, base and shift, with shift >= bits, of together at most {ADDRESS_BITS}")
    elif layout.name == "compose":
        for i, part in enumerate(layout.args):
            if not isinstance(part, Layout) or part.name not in MEMORY:
                yield Diagnostic("KIR-L002", f"argument {i} of compose is no memory layout", needs=f"one of {', '.join(MEMORY)}")
            elif part.name not in ("swizzle", "compose") and i != len(layout.args) - 1:
                yield Diagnostic("KIR-L002", f"'{part.name}' acts on indices, so it must come last in compose")
            else:
                yield from rules(part, rank)
    elif layout.name == "spread":
        lists = [a for a in layout.args if isinstance(a, tuple)]
        if len(lists) != 6 or len(layout.args) != 6 or any(len({len(a) for a in part}) != 1 for part in (lists[:3], lists[3:])):
            yield Diagnostic("KIR-L002", "spread(..) with other than extents, axes and steps of the digits of the thread, then of the slot",
                             needs="six lists, three of one length and three of one length")
        elif any(not -1 <= a < rank for a in (*lists[1], *lists[4])) or any(e < 1 for e in (*lists[0], *lists[3])):
            yield Diagnostic("KIR-L002", f"spread(..) with a digit outside the {rank} axes of its fragment",
                             needs="extents of 1 or more, and axes that there are")
    elif layout.name not in MEMORY and layout.name not in FRAGMENTS:
        yield Diagnostic("KIR-L001", f"there is no layout '{layout.name}'", attempt=did_you_mean(layout.name, (*MEMORY, *FRAGMENTS)))


def tma_swizzle(span: int) -> Layout | None:
    """The layout that TMA writes to shared memory with a swizzle span of 0, 32, 64 or 128 bytes: chunks of 16 bytes are xored with the
    number of the 128-byte line (CUDA driver API, CUtensorMapSwizzle). Raises KirError KIR-L002 for another span."""
    if span == 0:
        return None
    if span not in (32, 64, 128):
        raise error("KIR-L002", f"a swizzle span of {span} bytes", needs="0, 32, 64 or 128")
    return Layout("swizzle", (span.bit_length() - 5, 4, 3))
