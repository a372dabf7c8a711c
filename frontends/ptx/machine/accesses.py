"""Loads, stores and copies of a whole kernel: parameters, masks that keep what was there, memory under the dtype of what is moved."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, BOOL, F16, F32, MBARRIER, U32, DType, TileType, dtype_of, shape_of
from kir.surface.ptx.form.bits import KINDS, reinterpret
from kir.surface.ptx.form.operands import Pointer
from kir.surface.ptx.form.syntax import Instruction, Memory, Name, Operand, Vector
from kir.surface.ptx.instructions import collective, matrices, memory, moves
from kir.surface.ptx.instructions.moves import r_result
from kir.surface.ptx.registers.policies import policy
from kir.surface.ptx.registers.reader import Handler, Reader

from ..flow.blocks import Waiting
from .machine import Machine
from .tensor_maps import plain

POLICY = n.Const(0, U32)
"""What stands for an L2 policy, which changes no value."""


def taken(m: Machine, o: Operand) -> DType | None:
    """As what the registers of an operand are computed with."""
    first = o.items[0] if isinstance(o, Vector) else o
    if not isinstance(first, Name) or first.special or first.name not in m.form.registers:
        return None
    dtype, _ = m.kinds.of(first.name)
    return None if dtype.is_bool else dtype


def hinted(r: Reader, i: Instruction) -> Instruction:
    """An instruction without its L2 policy, which says nothing of values."""
    if "L2::cache_hint" not in i.parts:
        return i
    made = replace(i, parts=tuple(p for p in i.parts if p != "L2::cache_hint"), operands=i.operands[:-1])
    r.here = made
    return made


def _load(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    i = hinted(r, i)
    if any(x in i.parts for x in ("relaxed", "acquire")):
        r.wants(taken(r, i.operands[0]))
        memory.HANDLERS["ld"](r, i)
        return
    m = r.modifiers()
    m.flag("weak")
    space = m.one(*memory.SPACES)
    for x in ("param::entry", "param::func"):
        space = "param" if m.flag(x) else space
    cache = policy(r, m)
    count = memory.VECTORS.get(m.one(*memory.VECTORS), 1)
    name = m.type_name()
    kind = KINDS[name]
    m.done()
    if space == "param":
        _parameter(r, i, name, count)
        return
    targets = r.items(i.operands[0], count)
    r.wants(taken(r, i.operands[0]))
    place = r.region(i.operands[1], kind.bits, count, space)
    mask, other = r.condition(), None
    if mask is not None:
        other = _before(r, targets, place, kind.bits)
    guard, r.guard = r.guard, None if other is not None else r.guard
    got = r.bind("x", build.load(place, mask, other, cache=cache))
    for target, value in zip(targets, memory.registers(r, got, kind.bits, count), strict=True):
        narrow = reinterpret(value, kind.dtype) if kind.bits < 16 or (kind.bits < 32 and kind.dtype.kind == "int") else value
        r_result(r, target, narrow)
    r.guard = guard


def _before(r: Machine, targets: tuple[Operand, ...], place: n.Region, bits: int) -> n.Expr | None:
    """What the registers hold where a masked load leaves them, as elements of what is loaded; None where that is nothing."""
    held = []
    for o in targets:
        if not isinstance(o, Name) or (not r.registers.get(o.name) and o.name not in r.lasting):
            return None
        if o.name in r.lasting:
            return None
        got = r.held(o)
        if not isinstance(got, n.Expr) or dtype_of(got.type).bits != bits or isinstance(got.type, TileType):
            return None
        held.append(got)
    return memory.elements(r, held, place.buffer.dtype, not shape_of(place.type))


def _parameter(r: Machine, i: Instruction, name: str, count: int) -> None:
    at, kind = i.operands[1], KINDS[name]
    if not isinstance(at, Memory) or not isinstance(at.base, Name) or at.base.name in r.form.registers:
        raise r.refuse("a parameter that is found by an address")
    known = at.base.name
    symbol = r.symbols.get(known)
    if symbol is not None and kind.bits == 64 and count == 1 and at.offset == 0:
        if symbol.name in r.scalars and r.bases.get(str(getattr(i.operands[0], "name", ""))) != known:
            r.write(i.operands[0], r.scalars[known])
            return
        r.write(i.operands[0], Pointer(symbol.start, 0))
        return
    value = r.scalars.get(known)
    if value is None or count != 1 or at.offset != 0 or not isinstance(value.type, DType):
        raise r.refuse("a parameter that is a record")
    if value.type.is_bool:
        r_result(r, i.operands[0], build.cast(value, kind.dtype))
        return
    if value.type.bits < kind.bits:
        raise r.refuse(f"a parameter of {value.type} read as {kind.bits} bits")
    if value.type.bits > kind.bits:
        value = build.cast(value, kind.dtype)
    r_result(r, i.operands[0], reinterpret(value, kind.dtype) if kind.bits < 32 else value)


def _store(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    i = hinted(r, i)
    if "async" in i.parts or "bulk" in i.parts:
        raise r.refuse("an asynchronous store")
    r.wants(taken(r, i.operands[1]))
    memory.HANDLERS["st"](r, i)


def _atomic(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    i = hinted(r, i)
    word = next((p for p in i.parts[1:] if p in KINDS), "")
    r.wants(KINDS[word].dtype if word else None)
    memory.HANDLERS[i.parts[0]](r, i)


def _copy(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    i = hinted(r, i)
    if i.parts[:4] == ("cp", "async", "bulk", "tensor") and r.written_maps:
        i = _known_map(r, i)
    if i.parts[:3] == ("cp", "async", "bulk") or len(i.operands) < 3:
        memory.HANDLERS["cp"](r, i)
        return
    if "mbarrier" in i.parts:
        raise r.refuse("cp.async that arrives on an mbarrier")
    at = i.operands[1]
    p = r.pointer(at)
    r.wants(r.symbols[p.at.buffer.name].own or F16)
    memory.HANDLERS["cp"](r, i)


def _known_map(r: Machine, i: Instruction) -> Instruction:
    """A copy by a map that the kernel wrote, with that map in place of its address."""
    for k, o in enumerate(i.operands[:2]):
        if isinstance(o, Memory) and o.rest and isinstance(o.rest[0], Vector) and isinstance(o.base, Name):
            held = r.held(o.base)
            if isinstance(held, Pointer):
                found = r.written_maps.get((held.at.buffer.name, plain(r, r.bytes_of(held))))
                if found is None:
                    raise r.refuse("a copy by a tensor map that is not known")
                name = f"%{found.map.name}"
                r.maps[name] = found
                made = replace(o, base=Name(name))
                return replace(i, operands=(*i.operands[:k], made, *i.operands[k + 1:]))
    return i


def _matrix(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    dtype = taken(r, i.operands[0 if i.parts[0] == "ldmatrix" else 1])
    r.wants(dtype if dtype in (F16, BF16) else F16)
    matrices.HANDLERS[i.parts[0]](r, i)


def _mov(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    moves.HANDLERS["mov"](r, i)


def _cvta(r: Reader, i: Instruction) -> None:
    """A generic address and one in its space are the same place."""
    assert isinstance(r, Machine)
    r.write(i.operands[0], r.held(i.operands[1]))


def _policy(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    r.write(i.operands[0], build.const(0, KINDS["b64"].dtype))


def _local(m: Machine) -> DType:
    return F32 if m.wanted is None else m.wanted


def _mbarrier(r: Reader, i: Instruction) -> None:
    """Waits are recognized with the loops around them."""
    assert isinstance(r, Machine)
    r.wants(MBARRIER)
    if i.parts[1] == "inval":
        if r.again:
            raise r.refuse("an mbarrier that is given up and initialized again")
        return  # nothing is left to be done with it
    if isinstance(i, Waiting):
        collective.waited(r, i)
        r.write(i.operands[0], build.const(True, BOOL))
        return
    collective.HANDLERS["mbarrier"](r, i)


HANDLERS: dict[str, Handler] = {"ld": _load, "st": _store, "atom": _atomic, "red": _atomic, "cp": _copy, "ldmatrix": _matrix, "stmatrix": _matrix,
                                "mov": _mov, "cvta": _cvta, "createpolicy": _policy, "mbarrier": _mbarrier}
