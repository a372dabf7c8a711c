"""Operators on values: the usual conversions, pointer arithmetic, conditions that guard what they evaluate, and overloaded operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, I64, U8, U32, dtype_of
from kir.ir.visit import transform, walk

from ..names import overloads
from ..source.source import Node
from ..symbols.classes import Rec, size_of
from ..symbols.symbols import Candidate, Function, Scope, Value
from ..types.c_types import ANY_POINTER, VOID, Arr, Prim, Vec, promoted, usual
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted, divided
from ..values import descriptors
from ..values.conversions import as_tile, condition, present, scalar, type_text
from ..values.emitter import has_effect
from ..values.loads import rvalue
from ..values.objects import assign, initialized, new_object, pinned, spilled
from ..values.reading import Reading
from ..values.values import Aimed, Chosen, Located, Members, Null, Pointer, Record, Scalar, Wide, constant
from . import residues

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr"}
COMPARING = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def binary(r: Reading, sign: str, a: Value, b: Value, node: Node) -> Value:
    """`a sign b`."""
    if isinstance(a, Aimed) or isinstance(b, Aimed):
        if sign in ("==", "!=") and isinstance(b if isinstance(a, Aimed) else a, Null):
            return Scalar(build.const(sign == "!=", BOOL))
        raise NotUnderstood(f"the operator {sign} on a pointer to an object", node)
    if any(isinstance(x, (Members, Record, Wide, Located)) and isinstance(x.type, (Rec, Vec)) for x in (a, b)):
        made = user_operator(r, sign, [a, b], node)
        if made is not None:
            return made
    a, b = (rvalue(r, spilled(r, x) if isinstance(x, Wide) and isinstance(x.type, Arr) else x) for x in (a, b))
    if residues.is_residue(a, b, sign):
        return residues.combined(r, sign, a, b, node)
    if descriptors.is_word(a, b, sign):
        return descriptors.combined(r, sign, a, b, node)
    if sign in "+-" and isinstance(b, Scalar) and (made := r.calls.conversion(r, a, ANY_POINTER)) is not None:
        a = rvalue(r, made)
    if isinstance(a, (Pointer, Null)) or isinstance(b, (Pointer, Null)):
        return _pointers(r, sign, a, b, node)
    if isinstance(a, Wide) and isinstance(b, Wide):
        return _vectors(r, sign, a, b, node)
    if isinstance(a, Chosen) and isinstance(b, Scalar) and sign in "+-":
        return Chosen(a.cond, binary(r, sign, a.then, b, node), binary(r, sign, a.orelse, b, node))
    return Scalar(numbers(r, sign, scalar(r, a, node), scalar(r, b, node), node))


def numbers(r: Reading, sign: str, a: n.Expr, b: n.Expr, node: Node | None = None) -> n.Expr:
    """An operator on numbers, with the usual arithmetic conversions."""
    if sign == ",":
        return b
    da, db = dtype_of(a.type), dtype_of(b.type)
    if sign in ("<<", ">>"):
        d = promoted(da)
        return build.binary(ARITHMETIC[sign], converted(a, d), converted(b, d))
    if sign in COMPARING:
        if da.is_bool and db.is_bool and sign in ("==", "!="):
            return build.binary(COMPARING[sign], a, b)
        d = usual(da, db)
        x, y = signed(r, converted(a, d), converted(b, d))
        return build.binary(COMPARING[sign], x, y)
    if sign not in ARITHMETIC:
        raise NotUnderstood(f"the operator {sign}", node)
    d = usual(da, db)
    if da.is_bool and db.is_bool and sign in ("&", "|", "^"):
        return converted(build.binary(ARITHMETIC[sign], a, b), I32)
    x, y = converted(a, d), converted(b, d)
    if sign in ("/", "%") and d.is_integer:
        plain = d.kind == "uint" or (r.m.is_nonnegative(x) and r.m.is_nonnegative(y))
        if build.is_const(y, 0):
            raise NotUnderstood("a division by zero", node)
        small, divisor = signed(r, x, y)
        return converted(build.binary(({"/": "floordiv", "%": "mod"} if plain else {"/": "tdiv", "%": "trem"})[sign], small, divisor), d)
    if sign in ("%", "&", "|", "^") and d.is_float:
        raise NotUnderstood(f"the operator {sign} on {d}", node)
    return build.binary(ARITHMETIC[sign], x, y)


def signed(r: Reading, *operands: n.Expr) -> tuple[n.Expr, ...]:
    """Unsigned numbers as i32 where all of them are known to be below 2^31: signs then say nothing, and index arithmetic stays in i32."""
    if dtype_of(operands[0].type) != U32:
        return operands
    for e in operands:
        found = r.m.range_of(e)
        if found is None or found[0] < 0 or found[1] >= 1 << 31:
            return operands
    return tuple(converted(e, I32) for e in operands)


def _vectors(r: Reading, sign: str, a: Wide, b: Wide, node: Node) -> Value:
    """half2 and bfloat162 have arithmetic of their own."""
    if isinstance(a.type, Vec) and isinstance(b.type, Vec) and a.type.dtype == b.type.dtype and a.type.dtype.name in ("f16", "bf16"):
        x, y = (as_tile(r, v, a.type.dtype, a.type.n) for v in (a, b))
        if sign in ("+", "-", "*", "/"):
            return Wide(build.binary(ARITHMETIC[sign], x, y), a.type)
        if sign in ("==",):
            return Scalar(build.call("reduce", build.cast(build.binary("eq", x, y), I32), axis=0, op="min"))
    raise NotUnderstood(f"{type_text(a)} {sign} {type_text(b)}", node)


def _pointers(r: Reading, sign: str, a: Value, b: Value, node: Node) -> Value:
    if sign in ("==", "!="):
        if isinstance(a, Null) and isinstance(b, Null):
            return Scalar(build.const(sign == "==", BOOL))
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Pointer | Chosen) and (isinstance(y, Null) or constant(y) == 0):
                there = present(r, x)
                return Scalar(there if sign == "!=" else build.invert(there))
    if isinstance(a, Pointer) and isinstance(b, Pointer):
        if a.place.store is b.place.store and a.place.outer == b.place.outer:
            if sign in COMPARING:
                return Scalar(build.binary(COMPARING[sign], a.place.byte, b.place.byte))
            if sign == "-":
                size = 1 if a.type.to == VOID else size_of(a.type.to)
                whole = build.sub(a.place.byte, b.place.byte)
                count = divided(whole, size)
                return Scalar(converted(count if count is not None else build.binary("tdiv", whole, build.const(size, dtype_of(whole.type))), I64))
        raise NotUnderstood("an operation on pointers into different arrays", node)
    if sign == "+" and isinstance(b, Pointer):
        a, b = b, a
    if isinstance(a, Pointer) and sign in ("+", "-") and isinstance(b, Scalar):
        by = b.expr if sign == "+" else build.negate(converted(b.expr, I64 if a.place.store.is_global else I32))
        of = Prim(U8) if a.type.to == VOID else a.type.to
        return Pointer(a.place.shifted(by, of, r.m), a.type)
    raise NotUnderstood(f"the operator {sign} on a pointer", node)


def unary(r: Reading, sign: str, v: Value, node: Node) -> Value:
    """`sign v`."""
    sign = {"not": "!", "compl": "~"}.get(sign, sign)
    if isinstance(v, (Members, Record, Wide, Located)) and isinstance(v.type, (Rec, Vec)):
        made = user_operator(r, sign, [v], node)
        if made is not None:
            return made
    v = rvalue(r, v)
    if (made_residue := residues.negated(sign, v)) is not None:
        return made_residue
    if sign == "!":
        return Scalar(build.invert(condition(r, v, node)))
    if isinstance(v, Wide) and isinstance(v.type, Vec) and sign == "-":
        return Wide(build.negate(as_tile(r, v, v.type.dtype, v.type.n)), v.type)
    e = scalar(r, v, node)
    e = converted(e, promoted(dtype_of(e.type)))
    match sign:
        case "-":
            return Scalar(build.negate(e))
        case "+":
            return Scalar(e)
        case "~":
            return Scalar(build.invert(e))
    raise NotUnderstood(f"the operator {sign}", node)


# ------------------------------------------------------------------------------------------------------------- guarded evaluation


def guarded(r: Reading, e: n.Expr, cond: n.Expr) -> n.Expr:
    """An expression that is evaluated only where a condition holds: its loads carry it as their mask, but for those that are inside their
    array whatever the condition says, or that the condition itself reads."""
    read = {x for x in walk(cond) if isinstance(x, n.Load)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and _may_be_outside(r, new) and new not in read:
            mask = cond if new.mask is None else build.logical_and(cond, new.mask)
            other = new.other if new.other is not None else build.const(0, dtype_of(new.type))
            return replace(new, mask=mask, other=other)
        return new

    def enter(x: n.Node) -> bool:
        return not (isinstance(x, n.Load) and x.mask is not None and _holds(x.mask, cond))  # nothing in it is evaluated elsewhere

    made: n.Expr = transform(e, leave, enter)
    return made


def _holds(mask: n.Expr, cond: n.Expr) -> bool:
    """Whether a mask has a condition among what it asks for."""
    return mask == cond or (isinstance(mask, n.Binary) and mask.op == "and" and (_holds(mask.a, cond) or _holds(mask.b, cond)))


def _may_be_outside(r: Reading, x: n.Load) -> bool:
    """Whether a load must not be made where it is not asked for. What a thread holds as one value, or in a fragment, is always there."""
    space = x.at.buffer.space
    return space != "fragment" and (space != "register" or bool(x.at.index)) and not _inside(r, x.at)


def _inside(r: Reading, at: n.Region) -> bool:
    """Whether a place is known to lie in its array."""
    for i, extent in zip(at.index, at.buffer.shape, strict=False):
        lo, count = (i.lo, build.int_value(i.extent)) if isinstance(i, n.Span) else (i, 1)
        found, size = r.m.range_of(lo), build.int_value(extent)
        if found is None or size is None or count is None or found[0] < 0 or found[1] + count > size:
            return False
    return True


def may_fault(r: Reading, e: n.Expr) -> bool:
    """Whether evaluating a value where it is not wanted may reach outside memory."""
    return any(isinstance(x, n.Load) and x.at.index and _may_be_outside(r, x) for x in walk(e))


def short_circuit(r: Reading, sign: str, left: Node, right: Node, scope: Scope) -> Value:
    """`a && b`, `a || b`: b is evaluated only where it decides."""
    a = condition(r, r.value(left, scope), left)
    if isinstance(a, n.Const):
        if bool(a.value) == (sign == "||"):
            return Scalar(a)
        return Scalar(condition(r, r.value(right, scope), right))
    with r.m.capture() as made:
        b = condition(r, r.value(right, scope), right)
    made = _needed(made, b)
    wanted = a if sign == "&&" else build.invert(a)
    if not made:
        return Scalar(build.binary("and" if sign == "&&" else "or", a, guarded(r, b, wanted)))
    a = pinned(r, a, "holds")
    wanted = a if sign == "&&" else build.invert(a)
    at = initialized(r, "both" if sign == "&&" else "either", Scalar(a), Prim(BOOL))
    with r.m.capture() as inner:
        inner += made
        assign(r, at, Scalar(b))
    r.m.emit(n.If(wanted, tuple(inner)))
    return at


def _needed(made: list[n.Stmt], *values: Value | n.Expr) -> list[n.Stmt]:
    """Statements without the values that nothing uses: those of functions that were read in place, and understood as a whole."""
    out: list[n.Stmt] = []
    used = {x.name for v in values for x in (walk(v) if isinstance(v, n.Expr) else walk(v.expr) if isinstance(v, Scalar) else ()) if isinstance(x, n.Var)}
    for s in reversed(made):
        if isinstance(s, n.Let) and not has_effect(s.value) and not used & set(s.names):
            continue
        used |= {x.name for x in walk(s) if isinstance(x, n.Var)}
        out.insert(0, s)
    return out


def conditional(r: Reading, cond: n.Expr, then: Callable[[], Value], orelse: Callable[[], Value], node: Node) -> Value:
    """`cond ? a : b`."""
    block = r.m.block
    with r.m.capture() as first:
        a = then()
        a = a if isinstance(a, Members) else rvalue(r, a)
    with r.m.capture() as second:
        b = orelse()
        b = b if isinstance(b, Members) else rvalue(r, b)
    assert r.m.block is block
    if isinstance(a, Aimed) or isinstance(b, Aimed):
        raise NotUnderstood("a choice between pointers to objects", node)
    if isinstance(a, (Pointer, Null, Chosen)) or isinstance(b, (Pointer, Null, Chosen)):
        if first or second:
            raise NotUnderstood("a choice between pointers with effects", node)
        return _chosen(cond, a, b)
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        d = a.dtype if a.dtype == b.dtype else usual(a.dtype, b.dtype)
        x, y = converted(a.expr, d), converted(b.expr, d)
        first, second = _needed(first, a), _needed(second, b)
        if not first and not second:
            return Scalar(selected(r, cond, x, y))
        kind: Prim = Prim(d)
        at: Value = new_object(r, "chosen", kind)
        values: tuple[Value, Value] = (Scalar(x), Scalar(y))
    elif isinstance(a, Wide) and isinstance(b, Wide) and a.type == b.type:
        if not first and not second and a.tile.type == b.tile.type and not may_fault(r, a.tile) and not may_fault(r, b.tile):
            return Wide(build.select(cond, a.tile, b.tile), a.type)
        at, values = new_object(r, "chosen", a.type), (a, b)
    elif isinstance(a, (Record, Members)) and isinstance(b, (Record, Members)) and a.type == b.type:
        at, values = new_object(r, "chosen", a.type), (a, b)
    else:
        raise NotUnderstood(f"a choice between {type_text(a)} and {type_text(b)}", node)
    with r.m.capture() as one:
        one += first
        assign(r, at, values[0])
    with r.m.capture() as two:
        two += second
        assign(r, at, values[1])
    r.m.emit(n.If(cond, tuple(one), tuple(two)))
    if isinstance(at, Members):
        return Record({k: rvalue(r, v) for k, v in at.fields.items()}, at.type)
    return rvalue(r, at)  # a value: what is written to it would be lost


def _chosen(cond: n.Expr, a: Value, b: Value) -> Value:
    if isinstance(a, Pointer) and isinstance(b, Pointer) and a.place.store is b.place.store and a.place.outer == b.place.outer:
        return Pointer(replace(a.place, byte=build.select(cond, a.place.byte, b.place.byte)), a.type)
    return Chosen(cond, a, b)


def selected(r: Reading, cond: n.Expr, a: n.Expr, b: n.Expr) -> n.Expr:
    """`cond ? a : b` of numbers: a load as a whole is a masked load, loads further down are guarded."""
    if isinstance(a, n.Load) and a.mask is None and a.at.index and a.at.buffer.space not in ("register", "fragment") and not may_fault(r, b):
        return replace(a, mask=cond, other=b)
    inverse = build.invert(cond)
    if isinstance(b, n.Load) and b.mask is None and b.at.index and b.at.buffer.space not in ("register", "fragment") and not may_fault(r, a):
        return replace(b, mask=inverse, other=a)
    if isinstance(a, n.Cast) and may_fault(r, a) and isinstance(b, n.Const) and isinstance(a.x, n.Load) and a.x.mask is None and a.rounding == "rn" and (
        build.is_const(b, 0.0) or build.is_const(b, 0)
    ):
        return build.cast(replace(a.x, mask=cond, other=build.const(0, dtype_of(a.x.type))), a.dtype)
    return build.select(cond, guarded(r, a, cond), guarded(r, b, inverse))


# ------------------------------------------------------------------------------------------------------------- overloaded operators


def user_operator(r: Reading, sign: str, args: list[Value], node: Node) -> Value | None:
    """The result of an operator that the program defines; None when it defines none that fits as the operands are: operators are looked for in every
    namespace, and in some of them anything can be made of an object."""
    before, r.converting = r.converting, True
    try:
        method, chosen = _operator(r, f"operator{sign}", args, node)
    finally:
        r.converting = before
    if method is not None:
        return r.calls.invoke(r, method, args[1:], args[0], node)
    return None if chosen is None else r.calls.invoke(r, chosen, args, None, node)


def _operator(r: Reading, name: str, args: list[Value], node: Node) -> tuple[Candidate | None, Candidate | None]:
    """The method of the first operand that an operator is, or the function."""
    first = args[0]
    if isinstance(first, (Members, Record, Located, Wide)) and isinstance(first.type, Rec):
        found = first.type.instance.methods(name)
        fitting = overloads.fitting(r, tuple(found), None, args[1:], node)
        if fitting is not None:
            return fitting, None
    scope: Scope | None = r.index.root
    spaces = [scope] if scope is not None else []
    for x in args:
        if isinstance(x, (Members, Record, Located, Wide)) and isinstance(x.type, Rec):
            spaces += list(x.type.instance.scope.around())
    spaces += r.index.every_namespace()
    functions: list[Function] = []
    for s in spaces:
        functions += [d for d in s.decls.get(name, ()) if isinstance(d, Function) and d.owner is None and d not in functions]
    return None, overloads.fitting(r, tuple(functions), None, args, node)


def overloaded(r: Reading, sign: str, args: list[Value], node: Node) -> Value:
    """`user_operator`, or a refusal."""
    made = user_operator(r, sign, args, node)
    if made is None:
        raise NotUnderstood(f"the operator {sign} on {type_text(args[0])}", node)
    return made
