"""Loads, stores, atomics, prefetches and asynchronous copies of PTX (ISA 9.7.9, 9.7.13) as accesses to regions of buffers."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, TileType, dtype_of, shape_of
from kir.surface.ptx.form.bits import KINDS, UNSIGNED, Kind, called, joined, pack, piece, reinterpret, slice_of, unpack, vector
from kir.surface.ptx.form.operands import Descriptor
from kir.surface.ptx.form.syntax import Instruction, Memory, Operand
from kir.surface.ptx.instructions.moves import packed, r_result
from kir.surface.ptx.instructions.tensors import tensor_copy
from kir.surface.ptx.registers.policies import created, policy
from kir.surface.ptx.registers.reader import Handler, Modifiers, Reader

SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const")
SCOPES = ("cta", "cluster", "gpu", "sys")
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def _load(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    order = m.one("relaxed", "acquire")
    m.flag("weak")
    scope, space = m.one(*SCOPES), m.one(*SPACES)
    cache = policy(r, m, i, 2)
    count = VECTORS.get(m.one(*VECTORS), 1)
    kind = m.kind()
    m.done()
    place = r.region(i.operands[1], kind.bits, count, space)
    targets = r.items(i.operands[0], count)
    if order:
        if cache or count > 1 or shape_of(place.type):
            raise r.refuse("an ordered load of several elements")
        options: dict[str, n.Attr] = {**({"order": order} if order != "relaxed" else {}), **({"scope": scope} if scope not in ("", "gpu") else {})}
        got = r.bind_effect("x", called("atomic_load", options, place))
        r_result(r, targets[0], _signed(got, kind))
        return
    got = r.bind("x", build.load(place, r.condition(), cache=cache))
    for target, value in zip(targets, registers(r, got, kind.bits, count), strict=True):
        r_result(r, target, _signed(value, kind))


def _signed(e: n.Expr, kind: Kind) -> n.Expr:
    """A narrow value as the type that says how it widens."""
    return reinterpret(e, kind.dtype) if kind.bits < 32 and kind.dtype.kind == "int" else e


def registers(r: Reader, got: n.Expr, bits: int, count: int) -> list[n.Expr]:
    """What was read (a scalar or vector of a buffer's elements) as `count` registers of `bits` bits."""
    elements = got if isinstance(got.type, TileType) else build.call("vec", got)
    own = dtype_of(got.type)
    if own.bits > bits:
        ratio = own.bits // bits
        return [piece(unpack(piece(elements, k // ratio), UNSIGNED[bits]), k % ratio) for k in range(count)]
    each = bits // own.bits
    if each == 1:
        return [piece(elements, k) for k in range(count)]
    return [pack(slice_of(elements, k * each, each)) for k in range(count)]


def elements(r: Reader, values: list[n.Expr], to: DType, scalar: bool) -> n.Expr:
    """Registers as a scalar or vector of a buffer's elements."""
    bits = dtype_of(values[0].type).bits
    if to.bits > bits:
        ratio = to.bits // bits
        parts = [reinterpret(pack(packed(values[k:k + ratio]), UNSIGNED[to.bits]), to) for k in range(0, len(values), ratio)]
        return parts[0] if scalar else vector(parts)
    if to.bits == bits:
        parts = [reinterpret(v, to) for v in values]
        return parts[0] if scalar else vector(parts)
    return joined([unpack(v, to) for v in values])


def _store(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    order = m.one("relaxed", "release")
    m.flag("weak")
    scope, space = m.one(*SCOPES), m.one(*SPACES)
    cache = policy(r, m, i, 2)
    count = VECTORS.get(m.one(*VECTORS), 1)
    kind = m.kind()
    m.done()
    place = r.region(i.operands[0], kind.bits, count, space)
    values = [r.value(o, kind, narrowing=True) for o in r.items(i.operands[1], count)]
    made = elements(r, values, place.buffer.dtype, not shape_of(place.type))
    if order:
        if cache or shape_of(place.type):
            raise r.refuse("an ordered store of several elements")
        options: dict[str, n.Attr] = {**({"order": order} if order != "relaxed" else {}), **({"scope": scope} if scope not in ("", "gpu") else {})}
        r.effect(n.Eval(called("atomic_store", options, place, made)))
        return
    r.steps.append(n.Store(place, made, r.condition(), cache=cache))


def _atomic(r: Reader, i: Instruction) -> None:
    m, returns = r.modifiers(), i.parts[0] == "atom"
    if m.flag("async"):
        raise r.refuse("an asynchronous reduction")
    order, scope, space = m.one("relaxed", "acquire", "release", "acq_rel"), m.one(*SCOPES), m.one(*SPACES)
    op = m.one("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    m.flag("noftz")
    if op in ("inc", "dec") or any(x in VECTORS for x in m.left):
        raise r.refuse(f"the atomic operation '{i.opcode}'")
    name = m.type_name()
    m.done()
    kind, rest = KINDS[name], i.operands[1 if returns else 0:]
    place = r.region(rest[0], kind.bits, 1, space)
    own = place.buffer.dtype
    exact = op in ("min", "max") or kind.dtype.is_float
    if own != kind.dtype and (exact or own.bits != kind.bits or (own.is_float and op == "add")):
        raise r.refuse(f"'{i.opcode}' on elements of {own}", f"a view of '{place.buffer.name}' as {kind.dtype}")
    if len(rest) != (3 if op == "cas" else 2):
        raise r.fail("KIR-F302", f"'{i.parts[0]}' with {len(rest)} operands")
    args = [r.value(o, kind) for o in rest[1:]]
    values = [a if shape_of(a.type) else reinterpret(a, own) for a in args]
    options: dict[str, n.Attr] = {**({"order": order} if order not in ("", "relaxed") else {}), **({"scope": scope} if scope not in ("", "gpu") else {})}
    call = called(f"atomic_{op}", options, place, *values)
    if not returns:
        r.effect(n.Eval(call))
        return
    got = r.bind_effect("old", call)
    r.write(i.operands[0], pack(got) if shape_of(got.type) else got)


def _prefetch(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    if m.flag("tensormap"):
        m.one("param", "const")
        m.done()
        at = i.operands[0]
        held = r.held(at.base if isinstance(at, Memory) else at)
        if not isinstance(held, Descriptor):
            raise r.fail("KIR-F306", "this is not the address of a tensor map")
        r.effect(n.Eval(build.call("prefetch_descriptor", descriptor=held.map.name)))
        return
    space, level = m.one(*SPACES), m.one("L1", "L2")
    m.done()
    if not level:
        raise r.fail("KIR-F302", "a prefetch names .L1 or .L2")
    p = r.pointer(i.operands[0])
    r.effect(n.Eval(build.call("prefetch", r.region(i.operands[0], p.at.buffer.dtype.bits, 1, space), level=int(level[1:]))))


# ------------------------------------------------------------------------------------------------------ asynchronous copies
def _async(r: Reader, i: Instruction) -> None:
    m = r.modifiers(2)
    if m.flag("bulk"):
        _bulk(r, i, m)
    elif m.flag("commit_group"):
        r.effect(n.Eval(build.call("async_commit")))
    elif m.flag("wait_group") or m.flag("wait_all"):
        pending = r.constant(i.operands[0]) if i.operands else 0
        r.effect(n.Eval(build.call("async_wait", build.const(pending))))
    elif m.flag("mbarrier"):
        raise r.refuse("cp.async that arrives on an mbarrier")
    else:
        _piece(r, i, m)


def _piece(r: Reader, i: Instruction, m: Modifiers) -> None:
    """cp.async of 4, 8 or 16 bytes, zero-filled beyond its source size."""
    how = m.one("ca", "cg")
    if not (m.flag("shared") or m.flag("shared::cta")) or not m.flag("global"):
        raise r.fail("KIR-F302", "cp.async copies from .global to .shared")
    cache = policy(r, m, i, 3)
    m.done()
    size = r.constant(i.operands[2])
    if size not in (4, 8, 16) or (how == "cg" and size != 16):
        raise r.fail("KIR-F302", f"cp.async.{how} does not copy {size} bytes", needs="16" if how == "cg" else "4, 8 or 16")
    dst, src = r.region(i.operands[0], size * 8, 1, "shared"), r.region(i.operands[1], size * 8, 1, "global")
    if dst.buffer.dtype.bits != src.buffer.dtype.bits:
        raise r.refuse(f"a copy of {src.buffer.dtype} to {dst.buffer.dtype}", "views of one width")
    usual = how == ("cg" if size == 16 else "ca")
    policies = "_".join(x for x in ("" if usual else how, cache) if x)
    mask = None
    if len(i.operands) > 3 and "l2_evict" not in cache:
        mask = _filled(r, r.value(i.operands[3], KINDS["u32"]), size, src)
    if isinstance(mask, n.Const) and mask.value:
        mask = None
    other = None if mask is None else build.const(0, src.buffer.dtype)
    if dst.buffer.dtype != src.buffer.dtype:
        raise r.refuse(f"a copy of {src.buffer.dtype} to {dst.buffer.dtype}", "a view of one of them")
    r.effect(n.Copy(build.load(src, mask, other, cache=policies), dst, "cp_async", grouped=True))


def _filled(r: Reader, bytes_: n.Expr, size: int, src: n.Region) -> n.Expr:
    """Which elements are copied, when `bytes_` of `size` come from the source and the rest is zero."""
    if isinstance(bytes_, n.Cast):
        bytes_ = bytes_.x if dtype_of(bytes_.x.type).is_integer else bytes_
    if isinstance(bytes_, n.Const) and int(bytes_.value) in (0, size):
        return build.const(int(bytes_.value) == size, BOOL)
    if isinstance(bytes_, n.Select) and isinstance(bytes_.a, n.Const) and isinstance(bytes_.b, n.Const):
        if (int(bytes_.a.value), int(bytes_.b.value)) == (size, 0):
            return bytes_.cond
        if (int(bytes_.a.value), int(bytes_.b.value)) == (0, size):
            return build.invert(bytes_.cond)
    each = src.buffer.dtype.bytes
    count = build.cast(build.floordiv(bytes_, each), I32)
    return build.compare("lt", build.iota(size // each), count) if size > each else build.compare("lt", build.const(0), count)


def _bulk(r: Reader, i: Instruction, m: Modifiers) -> None:
    if m.flag("commit_group"):
        r.effect(n.Eval(build.call("bulk_commit")))
        return
    if m.flag("wait_group"):
        options: dict[str, n.Attr] = {"read": True} if m.flag("read") else {}
        r.effect(n.Eval(called("bulk_wait", options, build.const(r.constant(i.operands[0])))))
        return
    for what in ("prefetch", "L2::cache_hint"):
        if m.flag(what):
            raise r.refuse(f"a bulk copy with .{what}")
    tensor, reduces = m.flag("tensor"), m.one("add", "min", "max", "and", "or", "xor")
    if i.parts[1] == "reduce" or reduces:
        raise r.refuse("a bulk reduction")
    grouped = m.flag("bulk_group")
    if not grouped and not m.flag("mbarrier::complete_tx::bytes"):
        raise r.fail("KIR-F302", "a bulk copy completes on .mbarrier::complete_tx::bytes or in a .bulk_group")
    spaces = [x for x in m.left if x in SPACES]
    for x in spaces:
        m.left.remove(x)
    if tensor:
        tensor_copy(r, i, m, grouped)
        return
    if m.flag("multicast::cluster"):
        raise r.refuse("a bulk copy to several CTAs that is none of a tensor")
    m.done()
    if len(spaces) != 2:
        raise r.fail("KIR-F302", "a bulk copy names the space of its destination and of its source")
    dst, src = (_run(r, o, i.operands[2], space) for o, space in zip(i.operands, spaces, strict=False))
    if dst.buffer.dtype != src.buffer.dtype:
        raise r.refuse(f"a copy of {src.buffer.dtype} to {dst.buffer.dtype}", "a view of one of them")
    signal = None if grouped else r.mbarrier(i.operands[3])
    r.effect(n.Copy(build.load(src), dst, "bulk", signal=signal, grouped=grouped))


def _run(r: Reader, o: Operand, size: Operand, space: str) -> n.Region:
    """`size` bytes from an address on, as elements."""
    first = r.region(o, r.pointer(o).at.buffer.dtype.bits, 1, space)
    amount, each = r.value(size, KINDS["u32"]), first.buffer.dtype.bytes
    terms = build.polynomial(build.cast(amount, I32))
    if any(c % each for c in terms.values()):
        raise r.refuse(f"a size that may not be a multiple of {each} bytes")
    count = build.from_polynomial({k: c // each for k, c in terms.items()}, I32)
    last = first.index[-1]
    assert isinstance(last, n.Expr)
    return build.region(first.buffer, *first.index[:-1], build.span(last, count))


HANDLERS: dict[str, Handler] = {"ld": _load, "st": _store, "atom": _atomic, "red": _atomic, "prefetch": _prefetch, "cp": _async,
                                "createpolicy": created}
