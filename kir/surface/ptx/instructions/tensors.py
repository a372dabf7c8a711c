"""Copies by the tensor memory accelerator (PTX ISA 9.7.9.27): a box of the tensor that a map describes, from or to shared memory."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.surface.ptx.form.bits import KINDS
from kir.surface.ptx.form.operands import Descriptor
from kir.surface.ptx.form.syntax import Instruction, Memory, Vector
from kir.surface.ptx.registers.reader import Modifiers, Reader


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
    inside, kept = r.box(here, box, held.map, held.buffer.dtype)
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
    r.effect(n.Copy(build.load(outside, other=zero, clip=True), inside, "tma", signal=r.mbarrier(i.operands[2]), attrs=n.attrs(**options)))

