"""Tensor maps that a kernel writes itself, field by field, as Triton's do: what the fields say must be the tensor that the binding gives."""

from __future__ import annotations

from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64
from kir.ir.visit import transform
from kir.surface.ptx.form.bits import Kind
from kir.surface.ptx.form.operands import Descriptor, Pointer
from kir.surface.ptx.form.syntax import Instruction, Memory, Operand
from kir.surface.ptx.instructions import collective
from kir.surface.ptx.registers.reader import Handler, Reader

from .machine import Machine

_ELEMENTS = {0: ("u8", "i8", "f8e4m3", "f8e5m2"), 1: ("u16", "i16"), 2: ("u32",), 3: ("i32",), 4: ("u64",), 5: ("i64",), 6: ("f16",), 7: ("f32",),
             9: ("f64",), 10: ("bf16",)}
"""Dtypes by the number of an element's type (PTX ISA, `tensormap.replace`)."""
_SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}


@dataclass
class Drawn:
    """A map that is being written: the fields so far, by their name and number."""

    fields: dict[tuple[str, int], n.Expr] = field(default_factory=dict)
    address: Pointer | None = None


def _tensormap(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    if i.parts[1] == "replace" and i.parts[2] == "tile":
        _replace(r, i)
    elif i.parts[1] == "cp_fenceproxy":
        r.written_maps[_key(r, i.operands[0])] = _finished(r, r.drawn_maps.get(_key(r, i.operands[1])))
    else:
        raise r.refuse("a tensor map that is changed in memory")


def _key(r: Machine, o: Operand) -> tuple[str, n.Expr]:
    p = r.pointer(o)
    return p.at.buffer.name, plain(r, r.bytes_of(p))


def _replace(r: Machine, i: Instruction) -> None:
    what, at = i.parts[3], i.operands[0]
    if not isinstance(at, Memory):
        raise r.fail("KIR-F302", "a field of a tensor map is written at an address")
    drawn = r.drawn_maps.setdefault(_key(r, at), Drawn())
    value = i.operands[-1]
    if what == "global_address":
        r.drawn_maps[_key(r, at)] = drawn = Drawn()
        held = r.held(value)
        if not isinstance(held, Pointer):
            raise r.refuse("a tensor map of an address that is not known as a place in a buffer")
        drawn.address = held
        return
    number = r.constant(i.operands[1]) if len(i.operands) == 3 else 0
    drawn.fields[what, number] = r.value(value, Kind(I64 if what == "global_stride" else I32))


def _finished(r: Machine, drawn: Drawn | None) -> Descriptor:
    """The descriptor, where its fields are those of a whole tensor of the binding."""
    if drawn is None or drawn.address is None:
        raise r.refuse("a tensor map whose fields are not known")
    f = {k: plain(r, v) for k, v in drawn.fields.items()}

    def number(what: str, k: int = 0) -> int:
        found = f.get((what, k))
        if not isinstance(found, n.Const):
            raise r.refuse(f"a tensor map whose {what} is not known when it is compiled")
        return int(found.value)

    name, rank = drawn.address.at.buffer.name, number("rank") + 1
    shape = r.shapes.get(name)
    dtype = r.symbols[name].own
    if shape is None or dtype is None or not build.is_const(r.bytes_of(drawn.address), 0):
        raise r.refuse("a tensor map that the kernel makes of a part of a tensor, or of one whose shape no binding says")
    if len(shape) != rank or dtype.name not in _ELEMENTS.get(number("elemtype"), ()):
        raise r.refuse(f"a tensor map of {rank} dimensions of a tensor of {len(shape)}")
    stride: n.Expr = build.const(dtype.bytes)
    for k in range(rank):
        stated = shape[rank - 1 - k]
        if not _equal(f.get(("global_dim", k)), stated, r) or number("element_stride", k) != 1:
            raise r.refuse(f"a tensor map whose dimension {k} is not that of '{name}'")
        if k and not _equal(f.get(("global_stride", k - 1)), stride, r):
            raise r.refuse(f"a tensor map whose rows are not as far apart as those of '{name}'")
        stride = build.mul(stride, stated)
    swizzle = _SWIZZLES.get(number("swizzle_mode"))
    if swizzle is None or number("interleave_layout") or number("fill_mode"):
        raise r.refuse("a tensor map with an interleave, or one that fills with other than zero")
    box = tuple(number("box_dim", rank - 1 - k) for k in range(rank))
    made = n.TensorMap(r.fresh("map"), r.called(name), box, n.attrs(**({"swizzle": swizzle} if swizzle else {})))
    found = next((d for d in r.made_maps if (d.map.of, d.map.box, d.map.attrs) == (made.of, made.box, made.attrs)), None)
    if found is None:
        found = Descriptor(made, r.boxed_as(name, rank))
        r.made_maps.append(found)
    return found


def plain(r: Machine, e: n.Expr) -> n.Expr:
    """An integer with what its names stand for, without conversions between widths."""
    return narrowed(expanded(r, e))


def expanded(r: Machine, e: n.Expr, depth: int = 0) -> n.Expr:
    """An integer with what its names stand for."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Var) and new.name in r.numbers.made and depth < 30:
            return expanded(r, r.numbers.made[new.name], depth + 1)
        return new

    made: n.Expr = transform(e, leave)
    return made


def narrowed(e: n.Expr) -> n.Expr:
    """Sums and products in i32, whatever width they are worked out in."""
    match e:
        case n.Cast() if e.rounding in ("rn", "bits"):
            return narrowed(e.x)
        case n.Const():
            return build.const(int(e.value), I32)
        case n.Var():
            return n.Var(e.name, I32)
        case n.Binary(op="add" | "sub" | "mul"):
            return build.binary(e.op, narrowed(e.a), narrowed(e.b))
    return e if e.type == I32 else build.cast(e, I32)


def _equal(a: n.Expr | None, b: n.Expr, r: Machine) -> bool:
    """Whether two integers are the same sum of products over the sizes."""
    if a is None:
        return False
    bound: n.Expr = transform(a, lambda old, new: r.sizes.get(new.name, new) if isinstance(new, n.Var) else new)
    return dict(build.polynomial(narrowed(bound))) == dict(build.polynomial(narrowed(b)))


def _fence(r: Reader, i: Instruction) -> None:
    """A fence for tensor maps in memory orders nothing else."""
    assert isinstance(r, Machine)
    if any(p.startswith("tensormap") for p in i.parts):
        return
    collective.HANDLERS["fence"](r, i)


HANDLERS: dict[str, Handler] = {"tensormap": _tensormap, "fence": _fence}
