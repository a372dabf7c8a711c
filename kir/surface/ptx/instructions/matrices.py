"""Matrix instructions of PTX (ISA 9.7.14 to 9.7.16): ldmatrix and stmatrix, mma.sync, wgmma with its descriptors, tcgen05."""
from __future__ import annotations

from math import prod

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DTYPES, DType
from kir.surface.ptx.form.bits import KINDS, called, joined, pack, slice_of, unpack, vector
from kir.surface.ptx.form.syntax import Instruction, Memory, Name, Not, Operand, Place, Vector
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Reader


def _ldmatrix(r: Reader, i: Instruction) -> None:
    place, num, options = _matrix(r, i, i.operands[1])
    got = r.bind_effect("m", called("ldmatrix", {"num": num, **options}, place))
    for k, target in enumerate(r.items(i.operands[0], num)):
        r.write(target, pack(slice_of(got, 2 * k, 2)))


def _stmatrix(r: Reader, i: Instruction) -> None:
    place, num, options = _matrix(r, i, i.operands[0])
    parts = [unpack(r.value(o, KINDS["b32"]), place.buffer.dtype) for o in r.items(i.operands[1], num)]
    r.effect(n.Eval(called("stmatrix", options, place, joined(parts))))


def _matrix(r: Reader, i: Instruction, o: Operand) -> tuple[n.Region, int, dict[str, n.Attr]]:
    m = r.modifiers()
    m.flag("sync")
    m.flag("aligned")
    shape, number, trans = m.one("m8n8", "m16n16", "m8n16", "m16n8"), m.one("x1", "x2", "x4"), m.flag("trans")
    space = m.one("shared", "shared::cta")
    if shape != "m8n8" or any(x.startswith("b8") for x in m.left):
        raise r.refuse(f"matrices of shape {shape} or of bytes")
    m.kind("b16")
    m.done()
    if not number:
        raise r.fail("KIR-F302", f"'{i.parts[0]}' takes .x1, .x2 or .x4")
    place = r.region(o, 128, 1, space or "shared")
    if place.buffer.dtype.bits != 16:
        raise r.refuse(f"a matrix of '{place.buffer.name}', whose elements are {place.buffer.dtype}", "a view of 16-bit elements")
    return place, int(number[1:]), {"trans": True} if trans else {}


OPERANDS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "f8e4m3", "e5m2": "f8e5m2", "s8": "i8", "u8": "u8", "f64": "f64"}
"""Dtypes of the elements of matrices by their PTX type."""


def _mma(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    m.flag("aligned")
    if not m.flag("sync") or any(x.startswith(("sp", "kind", "block_scale")) for x in m.left):
        raise r.refuse("a sparse or scaled matrix product")
    shape = next((x for x in m.left if x.startswith("m") and "n" in x), "")
    layouts = [x for x in m.left if x in ("row", "col")]
    if m.flag("satfinite") or any(x in m.left for x in ("xor", "and", "popc")):
        raise r.refuse("a matrix product that saturates, or of single bits")
    types = [x for x in m.left if x not in (shape, "row", "col")]
    if len(types) != 4:
        raise r.fail("KIR-F302", "a matrix product names its shape and four types")
    if layouts != ["row", "col"] or not shape.startswith("m16n8k"):
        raise r.refuse(f"a matrix product of shape {shape} and layouts {', '.join(layouts)}", "m16n8k.., row.col")
    d, a, b, c = types
    if a not in OPERANDS or b not in OPERANDS or a != b or d != c or d not in ("f32", "f16", "s32"):
        raise r.refuse(f"a matrix product of {a} and {b} into {d}")
    k, of = int(shape.removeprefix("m16n8k")), DTYPES[OPERANDS[a]]
    if k * of.bits not in (128, 256):
        raise r.fail("KIR-F302", f"there is no mma of shape {shape} on {a}")
    count = 16 * k * of.bits // 1024
    left, right = (joined([unpack(r.value(o, KINDS["b32"]), of) for o in r.items(x, size)])
                   for x, size in ((i.operands[1], count), (i.operands[2], count // 2)))
    acc = KINDS[d]
    if d == "f16":
        into = joined([unpack(r.value(o, KINDS["b32"]), acc.dtype) for o in r.items(i.operands[3], 2)])
    else:
        into = vector([r.value(o, acc) for o in r.items(i.operands[3], 4)])
    got = r.bind_effect("d", n.Call("mma_sync", (left, right, into), n.attrs(shape=shape)))
    for at, target in enumerate(r.items(i.operands[0], 2 if d == "f16" else 4)):
        piece_ = pack(slice_of(got, 2 * at, 2)) if d == "f16" else build.call("pick", got, build.const(at))
        r.write(target, piece_)



# -------------------------------------------------------------------------------------------------------------------- wgmma
SPANS = {1: 128, 2: 64, 3: 32}
"""Bytes that a swizzle spans, by its code in a descriptor."""


def _wgmma(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    how = m.one("fence", "commit_group", "wait_group", "mma_async")
    if how == "mma_async":
        _product(r, i)
        return
    args = [build.const(r.constant(i.operands[0]))] if how == "wait_group" else []
    row = {"fence": "wgmma_fence", "commit_group": "wgmma_commit", "wait_group": "wgmma_wait"}[how]
    r.effect(n.Eval(build.call(row, *args)))


def wgmma_form(r: Reader, i: Instruction) -> tuple[str, DType, int, int, bool, list[int]]:
    """What a wgmma.mma_async says beside its operands: its shape, the dtype of both factors, columns, depth, whether the left factor is in registers, and for
    each factor in shared memory that may lie either way whether its sums' axis is the outer one (1). Refuses what the IR cannot say."""
    m = r.modifiers()
    for x in ("mma_async", "sync", "aligned"):
        m.flag(x)
    if any(x.startswith("sp") or x == "satfinite" for x in m.left):
        raise r.refuse("a sparse or saturating wgmma")
    shape = next((x for x in m.left if x.startswith("m64n")), "")
    types = [x for x in m.left if x != shape]
    if not shape or len(types) != 3 or len(i.operands) < 4:
        raise r.fail("KIR-F302", "wgmma names its shape and three types, and takes three operands and a predicate at least")
    d, a, b = types
    if a != b or a not in OPERANDS or d != "f32":
        raise r.refuse(f"a wgmma of {a} and {b} into {d}")
    of, columns, depth = DTYPES[OPERANDS[a]], int(shape[4:].split("k")[0]), int(shape.split("k")[1])
    if depth * of.bytes != 32 or columns % 8 or not 8 <= columns <= 256:
        raise r.fail("KIR-F302", f"there is no wgmma of shape {shape} on {a}")
    wide = of.bits == 16
    settings = [r.constant(o) for o in i.operands[4:]]
    in_registers = isinstance(i.operands[1], Vector)
    majors = settings[2:] if wide else []
    if len(settings) != 2 + (0 if not wide else 1 if in_registers else 2) or any(x not in (0, 1) for x in majors):
        raise r.fail("KIR-F302", f"'{i.opcode}' takes the signs of its operands" + (" and how those in shared memory lie" if wide else ""))
    if settings[:2] != [1, 1]:
        raise r.refuse("a wgmma that negates an operand")
    return shape, of, columns, depth, in_registers, majors


def _product(r: Reader, i: Instruction) -> None:
    """wgmma.mma_async: the accumulators are registers that it writes until it is waited for, its operands places in shared memory."""
    shape, of, columns, depth, in_registers, majors = wgmma_form(r, i)
    acc = _registers(r, r.items(i.operands[0], columns // 2), DTYPES["f32"])
    minor_b = bool(majors[-1]) if majors else False
    right = _described(r, i.operands[2], of, depth, columns, minor_b)
    options: dict[str, n.Attr] = {"shape": shape}
    if in_registers:
        left = _registers(r, r.items(i.operands[1], 4), of)
    else:
        minor_a = bool(majors[0]) if majors else False
        left = _described(r, i.operands[1], of, depth, 64, minor_a)
        options |= {"trans_a": True} if minor_a else {}
    options |= {} if minor_b else {"trans_b": True}
    _scaled(r, i.operands[3], acc)
    r.effect(n.Eval(n.Call("wgmma", (acc, left, right), n.attrs(**options))))
    for o in r.items(i.operands[0], columns // 2):
        r.untouched(o)


def _scaled(r: Reader, o: Operand, acc: n.Region) -> None:
    """The accumulators count as zeros where the scale of D is not one."""
    scale = build.const(bool(r.constant(o)), BOOL) if not isinstance(o, (Name, Place)) else r.value(o, PREDICATE)
    zero = n.Store(acc, build.const(0.0, acc.buffer.dtype))
    if isinstance(scale, n.Const):
        if not scale.value:
            r.effect(zero)
        return
    r.effect(n.If(build.invert(scale), (zero,)))


def _registers(r: Reader, items: tuple[Operand, ...], of: DType) -> n.Region:
    """The part of one private array that consecutive registers are."""
    regions = [r.operands[o.number].place if isinstance(o, Place) and o.number < len(r.operands) else None for o in items]
    first = regions[0]
    if first is None or any(x is None or x.buffer != first.buffer for x in regions) or first.buffer.space != "register":
        raise r.refuse("registers of wgmma that are not one array of the thread", "an array, each element an operand in its order")
    if first.buffer.dtype != of:
        raise r.refuse(f"registers of {first.buffer.dtype} as operands of {of}")
    shape = [build.int_value(x) or 1 for x in first.buffer.shape]
    places = [_flat(x, shape) for x in regions if x is not None]
    each = 32 // of.bits
    if any(not build.is_const(build.sub(x, places[0]), k * each) for k, x in enumerate(places)):
        raise r.refuse("registers of wgmma that are not consecutive elements of an array")
    count = each * len(places)
    if count == prod(shape) and build.is_const(places[0], 0):
        return n.Region(first.buffer)
    index: list[n.Expr | n.Span] = []
    for k, i in enumerate(first.index):
        lo = i.lo if isinstance(i, n.Span) else i
        rest = prod(shape[k + 1:])
        if count % rest == 0 and rest <= count:
            if count // rest > shape[k] or any(not build.is_const(x.lo if isinstance(x, n.Span) else x, 0) for x in first.index[k + 1:]):
                raise r.refuse("registers of wgmma that are no whole part of an array")
            return build.region(first.buffer, *index, build.span(lo, count // rest), *(build.span(build.const(0), x) for x in shape[k + 1:]))
        index.append(lo)
    raise r.refuse("registers of wgmma that are no whole part of an array")


def _flat(x: n.Region, shape: list[int]) -> n.Expr:
    """The number of the first element of a place."""
    at: n.Expr = build.const(0)
    for i, extent in zip(x.index, shape, strict=True):
        at = build.add(build.mul(at, extent), i.lo if isinstance(i, n.Span) else i)
    return at


def _described(r: Reader, o: Operand, of: DType, depth: int, width: int, minor: bool, version: int = 0) -> n.Region:
    """The matrix that a descriptor names: `width` rows or columns by `depth`, `minor` where those are contiguous rather than k. `version` are bits
    46 to 48 of it."""
    held = r.operand_matrix(o)
    if held is None:
        raise r.refuse("an operand of wgmma that is not made of an address in shared memory by masks and shifts", "a matrix descriptor")
    p, b = held.at, held.at.at.buffer
    code, group, panel = held.bits >> 62 & 3, (held.bits >> 32 & 0x3FFF) << 4, (held.bits >> 16 & 0x3FFF) << 4
    if code not in SPANS or held.bits >> 46 & 0xFFFF & ~0xC000 != version:
        raise r.refuse("a matrix of wgmma without a swizzle, or that begins inside one")
    if b.dtype != of or p.bytes:
        raise r.refuse(f"a matrix of {of} in '{b.name}', whose elements are {b.dtype}")
    span, size = SPANS[code], of.bytes
    shape = [build.int_value(x) or 0 for x in b.shape]
    if len(shape) < 2 or shape[-1] * size != span:
        raise r.refuse(f"a matrix in '{b.name}' of shape {shape}, whose rows are not the {span} bytes of its swizzle",
                       f"'{b.name}' under [arrays] of the binding, its last axis of {span // size}")
    if group != 8 * span:
        raise r.refuse(f"groups of eight rows {group} bytes apart, where rows have {span}")
    *lead, row, column = p.at.index
    assert isinstance(row, n.Expr) and isinstance(column, n.Expr)
    if not minor:
        return build.region(b, *lead, build.span(row, width), build.span(column, depth))
    if width * size <= span:
        return build.region(b, *lead, build.span(row, depth), build.span(column, width))
    if not lead or width * size % span or not build.is_const(column, 0) or panel != shape[-2] * span:
        raise r.refuse(f"panels of columns {panel} bytes apart in '{b.name}' of shape {shape}",
                       f"'{b.name}' under [arrays] of the binding as panels, rows, {span // size} columns")
    *lead, first = lead
    assert isinstance(first, n.Expr)
    return build.region(b, *lead, build.span(first, width * size // span), build.span(row, depth), build.span(column, span // size))


# ------------------------------------------------------------------------------------------------------------------ tcgen05
def _tcgen05(r: Reader, i: Instruction) -> None:
    """Tensor memory: allocation, products of one CTA, loads of a row a thread, and their order."""
    m = r.modifiers()
    how = m.one("alloc", "dealloc", "relinquish_alloc_permit", "mma", "commit", "ld", "wait::ld", "fence::before_thread_sync", "fence::after_thread_sync")
    if not how or m.flag("cta_group::2") or any(x.startswith("multicast") for x in m.left):
        raise r.refuse("an instruction of tensor memory that the table has no row for", "products, loads and allocations of one CTA")
    for part in ("cta_group::1", "sync", "aligned"):
        m.flag(part)
    if how == "mma" and len(i.operands) != 5:
        raise r.refuse("a product of tensor memory with lanes left out, or without its descriptor and predicate")
    if len(i.operands) != (count := {"mma": 5, "alloc": 2, "dealloc": 2, "ld": 2, "commit": 1}.get(how, 0)):
        raise r.fail("KIR-F302", f"'{i.opcode}' takes {count} operands, not {len(i.operands)}")
    if how == "mma":
        _tensor_product(r, i)
        return
    if how == "ld":
        if not m.flag("32x32b") or not (number := m.starting("x")).isdigit() or m.left != ["b32"]:
            raise r.refuse("a load of tensor memory of another shape than 32 lanes of 32 bits")
        acc = _registers(r, r.items(i.operands[0], int(number)), DTYPES["f32"])
        r.effect(n.Eval(build.call("tcgen05_ld", acc, _address(r, i.operands[1]))))
        for o in r.items(i.operands[0], int(number)):
            r.untouched(o)
        return
    args: list[n.Expr | n.Region] = []
    if how == "alloc":
        m.one("shared::cta")
        args = [r.region(i.operands[0], 32, 1, "shared"), build.const(r.constant(i.operands[1]))]
    elif how == "dealloc":
        args = [r.value(i.operands[0], KINDS["b32"]), build.const(r.constant(i.operands[1]))]
    elif how == "commit":
        if not m.flag("mbarrier::arrive::one") or not m.flag("shared::cluster"):
            raise r.refuse("a commit of tensor memory to a barrier that is not named by its address in shared memory")
        args = [r.mbarrier(i.operands[0])]
    for part in ("b32", "b64"):
        m.flag(part)
    m.done()
    row = {"relinquish_alloc_permit": "relinquish", "wait::ld": "wait_ld", "fence::before_thread_sync": "fence_before",
           "fence::after_thread_sync": "fence_after"}.get(how, how)
    r.effect(n.Eval(build.call(f"tcgen05_{row}", *args)))


def _address(r: Reader, o: Operand) -> n.Expr:
    """An address in tensor memory."""
    if not isinstance(o, Memory) or isinstance(o.base, Not):
        raise r.fail("KIR-F302", "an address [..] is needed here")
    return build.add(r.value(o.base, KINDS["u32"]), o.offset) if o.offset else r.value(o.base, KINDS["u32"])


def _tensor_product(r: Reader, i: Instruction) -> None:
    """tcgen05.mma of 16-bit operands into f32, by what its instruction descriptor says (PTX ISA, "Instruction descriptor")."""
    if "kind::f16" not in i.parts or any(x not in ("kind::f16", "mma", "cta_group::1", "tcgen05") for x in i.parts):
        raise r.refuse("a product of tensor memory of another kind than f16")
    code = r.constant(i.operands[3])
    kinds, columns, rows = [code >> 7 & 7, code >> 10 & 7], (code >> 17 & 0x3F) << 3, (code >> 24 & 0x1F) << 4
    if kinds[0] != kinds[1] or kinds[0] > 1 or code & ~0x1F7F9FB0 or code >> 4 & 3 != 1 or rows != 128 or columns % 16 or not 16 <= columns <= 256:
        raise r.refuse(f"a product of tensor memory of descriptor {code:#x}", "f16 or bf16 into f32, 128 rows, 16 to 256 columns by 16")
    of, minor_a, minor_b = DTYPES[("f16", "bf16")[kinds[0]]], bool(code >> 15 & 1), bool(code >> 16 & 1)
    left, right = _described(r, i.operands[1], of, 16, rows, minor_a, 1), _described(r, i.operands[2], of, 16, columns, minor_b, 1)
    options: dict[str, n.Attr] = {"shape": f"m128n{columns}k16"}
    options |= {"trans_a": True} if minor_a else {}
    options |= {} if minor_b else {"trans_b": True}
    r.effect(n.Eval(n.Call("tcgen05_mma", (_address(r, i.operands[0]), left, right, _number(r, r.value(i.operands[4], PREDICATE))), n.attrs(**options))))


def _number(r: Reader, e: n.Expr) -> n.Expr:
    """A predicate as the number that it asks of whether it is zero, or as 0 or 1."""
    e = next((s.value for s in r.steps if isinstance(s, n.Let) and isinstance(e, n.Var) and s.names == (e.name,)), e)
    if isinstance(e, n.Binary) and e.op == "ne" and build.is_const(e.b, 0):
        return e.a.x if isinstance(e.a, n.Cast) and e.a.rounding == "bits" and e.a.x.type == DTYPES["i32"] else e.a
    return build.cast(e, DTYPES["i32"])


HANDLERS: dict[str, Handler] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "mma": _mma, "wgmma": _wgmma, "tcgen05": _tcgen05}
