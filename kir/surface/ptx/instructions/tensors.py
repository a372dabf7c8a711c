"""Copies by the tensor memory accelerator (PTX ISA 9.7.9.27): a box of the tensor that a map describes, from or to shared memory."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.surface.ptx.form.bits import KINDS
from kir.surface.ptx.form.operands import Descriptor
from kir.surface.ptx.form.syntax import Instruction, Memory, Operand, Vector
from kir.surface.ptx.registers.reader import Modifiers, Reader, mbarrier


def tensor_copy(r: Reader, i: Instruction, m: Modifiers, grouped: bool) -> None:
    """A copy of a map's box. Coordinates stand with the fastest dimension first. Raises KirError KIR-F302, KIR-F304, KIR-F306."""
    rank, many = m.one("1d", "2d", "3d", "4d", "5d"), m.flag("multicast::cluster")
    m.flag("tile")
    if m.flag("im2col"):
        raise r.refuse("a load of pixels by an im2col map, which does not say of how many taps the tensor's view has", "the program as IR text (.kir)")
    m.done()
    there, here = (i.operands[0], i.operands[1]) if grouped else (i.operands[1], i.operands[0])
    if not isinstance(there, Memory) or not there.rest or not isinstance(there.rest[0], Vector):
        raise r.fail("KIR-F302", "a tensor copy names [map, {coordinates}]")
    held = r.held(there.base)
    if not isinstance(held, Descriptor):
        raise r.fail("KIR-F306", "this is not the address of a tensor map")
    box, at = held.map.box, [r.value(v, KINDS["s32"]) for v in there.rest[0].items]
    if len(at) != len(box) or rank != f"{len(box)}d":
        raise r.fail("KIR-F302", f"{len(at)} coordinates for a tensor map of {len(box)} dimensions")
    if dict(held.map.attrs).get("merge") or dict(held.map.attrs).get("mode", "tiled") != "tiled":
        raise r.refuse("a tensor map that merges dimensions or is im2col, given by its coordinates")
    inside, kept = _inside(r, here, box)
    outside = build.region(held.buffer, *(build.span(c, extent) if k in kept else c
                                          for k, (c, extent) in enumerate(zip(reversed(at), box, strict=True))))
    options: dict[str, n.Attr] = {"descriptor": held.map.name}
    if grouped:
        r.effect(n.Copy(build.load(inside), outside, "tma", clip=True, grouped=True, attrs=n.attrs(**options)))
        return
    if many:
        if len(i.operands) != 4:
            raise r.fail("KIR-F302", "a multicast names the CTAs that it goes to")
        options["multicast"] = r.constant(i.operands[3])
    zero = build.const(0, held.buffer.dtype)
    r.effect(n.Copy(build.load(outside, other=zero, clip=True), inside, "tma", signal=mbarrier(r, i.operands[2]), attrs=n.attrs(**options)))


def _inside(r: Reader, o: Operand, box: tuple[int, ...]) -> tuple[n.Region, set[int]]:
    """The part of shared memory that a box fills, and which of its dimensions keep an axis there: all, or those that are longer than one."""
    p = r.pointer(o)
    b, index = p.at.buffer, p.at.index
    shape = [build.int_value(d) for d in b.shape]
    for kept in (list(range(len(box))), [k for k, extent in enumerate(box) if extent > 1] or [len(box) - 1]):
        extents = [box[k] for k in kept]
        lead = len(shape) - len(extents)
        if lead < 0 or isinstance(p.bytes, n.Expr) or p.bytes or shape[lead + 1:] != extents[1:] or (shape[lead] or 0) < extents[0]:
            continue
        if all(build.is_const(x, 0) for x in index[lead + 1:] if isinstance(x, n.Expr)):
            spans = [build.span(x, extent) for x, extent in zip(index[lead:], extents, strict=True) if isinstance(x, n.Expr)]
            return build.region(b, *index[:lead], *spans), set(kept)
    raise r.refuse(f"a box of {list(box)} that is no whole part of '{b.name}'",
                   f"shared memory shaped as the box ('{b.name}' under [arrays] of the binding)")
