"""Tensor maps for copies via tma that name none, as TileLang's are: its compiler makes them, and here they are parameters of the kernel.

A map is of the tensor, of the box that the copy moves and of the swizzle in which it comes to lie in shared memory; copies of the same boxes share one. What
a map cannot say (CUDA driver API, cuTensorMapEncodeTiled) is refused at the copy.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.facts import Facts
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.paths import paths
from kir.ir.visit import statements, substitute_buffers, transform

from ..expressions.memory import strides_of, swizzle_of
from ..spelling.literals import refuse

CHUNK, MOST_IN_BOX, MOST_DIMENSIONS, BOX_ALIGN = 16, 256, 5, 128
"""Bytes that rows, strides and addresses are multiples of; elements of a box along a dimension; dimensions of a tensor; bytes that a box in shared
memory starts at a multiple of."""


def described(program: n.Program) -> tuple[n.Program, tuple[Diagnostic, ...]]:
    """The program in which each copy via tma names a tensor map, and why some do not."""
    open_ = [(path, s) for path, s in paths(program) if isinstance(s, n.Copy) and _is_open(s)]
    if not open_:
        return program, ()
    taken = {p.name for p in program.params} | {m.name for m in program.tensor_maps} | {w.buffer.name for w in program.workspaces}
    made: dict[tuple[str, tuple[int, ...], n.Attrs], n.TensorMap] = {}
    named: dict[n.Copy, str] = {}
    refusals: list[Diagnostic] = []
    facts = Facts.from_program(program)
    for path, s in open_:
        try:
            of, box, options = _map(program, s, facts)
        except KirError as bad:
            refusals += [replace(d, anchor="/".join(map(str, path)), origin=s.origin) for d in bad.diagnostics]
            continue
        key = (of, box, options)
        if key not in made:
            name = next(x for i in range(len(taken) + 1) if (x := f"{of}_map{i or ''}") not in taken)
            taken.add(name)
            made[key] = n.TensorMap(name, of, box, options)
        named[s] = made[key].name

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Copy) and old in named and isinstance(new, n.Copy):
            return replace(new, attrs=tuple(sorted((*new.attrs, ("descriptor", named[old])))))
        return new
    kernels = tuple(_aligned(transform(k, leave)) for k in program.kernels)
    return replace(program, tensor_maps=(*program.tensor_maps, *made.values()), kernels=kernels), tuple(refusals)


def _is_open(s: n.Copy) -> bool:
    """Whether a copy moves a box, and something waits for that, and it names no map. Those that nothing waits for are no choice of the program's:
    other rules lower them."""
    return s.via == "tma" and (s.signal is not None or s.grouped) and not dict(s.attrs).get("descriptor")


def _map(program: n.Program, s: n.Copy, facts: Facts) -> tuple[str, tuple[int, ...], n.Attrs]:
    """The tensor, the box and the options of the map that a copy needs. Raises KirError KIR-B002 where there is none."""
    far, near = (s.src.at, s.dst) if s.src.at.buffer.space == "global" else (s.dst, s.src.at)
    b = far.buffer
    if near.buffer.space != "shared" or b.name not in {p.name for p in program.params if p.of == b}:
        raise refuse("KIR-B002", f"a copy via tma between '{b.name}' and '{near.buffer.name}'", "a tensor of the program, and shared memory")
    box = tuple(_extent(i) for i in far.index) if far.index else tuple(int_value(d) or 0 for d in b.shape)
    if not box or len(box) > MOST_DIMENSIONS or not all(0 < x <= MOST_IN_BOX for x in box):
        raise refuse("KIR-B002", f"no tensor map has a box of {' x '.join(str(x or '?') for x in box)} elements of '{b.name}'",
                     f"at most {MOST_IN_BOX} neighbors along each of at most {MOST_DIMENSIONS} dimensions: several copies")
    row, each = box[-1] * b.dtype.bytes, CHUNK // b.dtype.bytes
    *outer, inner = strides_of(b)
    if row % CHUNK or not is_const(inner, 1):
        raise refuse("KIR-B002", f"rows of {row} bytes of '{b.name}' are no box of a tensor map", f"dense rows of multiples of {CHUNK} bytes")
    for stride in outer:
        if not facts.divides(each, stride):
            raise refuse("KIR-B002", f"rows of '{b.name}' are not known to start at multiples of {CHUNK} bytes, as a tensor map asks",
                         f"a fact that {each} divides its row length, such as N % {each} == 0")
    swizzle = swizzle_of(near.buffer)
    if swizzle is None:
        return b.name, box, ()
    bits, base, shift = swizzle
    if (base, shift) != (4, 3) or row != CHUNK << bits:
        raise refuse("KIR-B002", f"'{near.buffer.name}' is swizzled over {CHUNK << bits} bytes, and its rows have {row}",
                     "rows of as many bytes as the swizzle spans")
    return b.name, box, n.attrs(swizzle=row)


def _extent(i: n.Expr | n.Span) -> int:
    """Elements along a dimension; 0 where they are not neighbors, or how many is not known."""
    if not isinstance(i, n.Span):
        return 1
    step = i.step if isinstance(i.step, int) else int_value(i.step)
    return (int_value(i.extent) or 0) if step == 1 else 0


def _aligned(k: n.Kernel) -> n.Kernel:
    """The kernel with shared memory of boxes where hardware wants it: swizzled boxes at multiples of what their pattern repeats after."""
    near = [x for s in statements(k.body) if isinstance(s, n.Copy) and s.via == "tma" for x in (s.src.at.buffer, s.dst.buffer) if x.space == "shared"]
    wanted = {b.name: (1024 if swizzle_of(b) else BOX_ALIGN) for b in near}
    moved = {b.name: replace(b, align=max(b.align, wanted[b.name])) for b in near if b.align < wanted[b.name]}
    made: n.Kernel = substitute_buffers(k, moved) if moved else k
    return made
