"""Places: addresses and what they point to, elements, members and components."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import U8, U32, dtype_of

from ..names.lookup import of_declarations
from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import Rec
from ..symbols.symbols import Scope, Value
from ..types.c_types import VOID, Arr, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted, index32
from ..values.conversions import component, picked, pointing, scalar, type_text
from ..values.loads import rvalue
from ..values.memory import start
from ..values.objects import spilled
from ..values.pointers import Apart, Handle, MovingPointer, PointerArray
from ..values.reading import Reading
from ..values.values import Aimed, Builtin, Chosen, Dims, Group, Lambda, Located, Mapped, Members, Overloads, Pointer, Record, Remote, Scalar, TypeName, Wide
from . import operators

COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3}


def pointer(r: Reading, node: Node, scope: Scope) -> Value:
    """`&v` and `*v`."""
    arg, op = node.child_by_field_name("argument"), node.child_by_field_name("operator")
    assert arg is not None and op is not None
    if text(op) == "&":
        return _address_of_chosen(r, arg, scope) or address(r, r.value(arg, scope), arg)
    if _is_this(arg):
        return r.value(arg, scope)
    v = r.value(arg, scope)
    if isinstance(v, Members | Record | Located | Wide) and not isinstance(v, Aimed) and isinstance(v.type, Rec) and (
            made := operators.user_operator(r, "*", [v], node)) is not None:
        return made
    return pointed(r, rvalue(r, v), node)


def _address_of_chosen(r: Reading, node: Node, scope: Scope) -> Value | None:
    """`&(c ? a : b)[i]`, which is `(c ? a : b) + i`; None for another place."""
    base, listed = node.child_by_field_name("argument"), node.child_by_field_name("indices")
    while base is not None and base.type == "parenthesized_expression" and len(base.named_children) == 1:
        base = base.named_children[0]
    if node.type != "subscript_expression" or base is None or base.type != "conditional_expression" or listed is None or len(listed.named_children) != 1:
        return None
    return operators.binary(r, "+", rvalue(r, r.value(base, scope)), r.value(listed.named_children[0], scope), node)


def _is_this(node: Node) -> bool:
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node.type == "this"


def address(r: Reading, v: Value, node: Node) -> Value:
    """`&v`."""
    match v:
        case Located() if type(v) is Located:
            return Pointer(v.place, Ptr(v.type))
        case MovingPointer() if v.variable.array is not None and v.variable.index is not None:
            return Pointer(start(v.variable.offset).moved_by(build.mul(v.variable.index, 8)), Ptr(v.type))
        case MovingPointer() if v.variable.array is None:
            return Handle(v)
        case Members() if not isinstance(v, Aimed):
            return Aimed(v.type, v.fields)
        case Overloads() | Builtin() | Mapped():
            return v
        case Wide():
            at = spilled(r, v)
            return Pointer(at.place, Ptr(at.type))
    raise NotUnderstood(f"the address of {text(node)}", node)


def pointed(r: Reading, v: Value, node: Node) -> Value:
    """`*v`."""
    v = pointing(v)
    if isinstance(v, Handle):
        return v.to
    if isinstance(v, Pointer):
        if v.type.to == VOID:
            raise NotUnderstood("what a void pointer points to", node)
        return Located(v.place, v.type.to)
    if isinstance(v, Remote) and v.type in (Ptr(Prim(v.at.buffer.dtype)), Ptr(Prim(v.at.buffer.dtype), True)):
        return Apart(v.at)
    if isinstance(v, Aimed):
        return Members(v.type, v.fields)
    if isinstance(v, (Members, Lambda)):
        return v
    if isinstance(v, (Wide, Record)):
        return operators.overloaded(r, "*", [v], node)
    raise NotUnderstood(f"what {type_text(v)} points to", node)


def subscript(r: Reading, node: Node, scope: Scope) -> Value:
    """`a[i]`."""
    arg, listed = node.child_by_field_name("argument"), node.child_by_field_name("indices")
    assert arg is not None and listed is not None
    base = r.value(arg, scope)
    inner = [c for c in listed.named_children if c.type != "comment"]
    if len(inner) != 1:
        raise NotUnderstood("a subscript of several indices", node)
    at = r.value(inner[0], scope)
    return element(r, base, at, node)


def element(r: Reading, base: Value, at: Value, node: Node) -> Value:
    """`base[at]`."""
    if isinstance(base, Members) and "#array" in base.fields:
        return _element_of_records(r, base, at, node)
    if isinstance(base, PointerArray):
        return base.element(index32(scalar(r, at, node)))
    if isinstance(base, (Members, Located, Wide, Record)) and isinstance(base.type, Rec):
        return operators.overloaded(r, "[]", [base, at], node)
    if isinstance(base, Located) and isinstance(base.type, Arr):
        index = scalar(r, at, node)
        if len(base.place.outer) < len(base.place.store.dims):
            return Located(replace(base.place, outer=(*base.place.outer, index32(index))), base.type.of)
        return Located(base.place.shifted(index, base.type.of, r.m, subscript=True), base.type.of)
    if isinstance(base, Wide) and isinstance(base.type, Arr):
        return element(r, spilled(r, base), at, node)
    base = pointing(rvalue(r, base))
    if isinstance(base, Chosen):
        a, b = base.then, base.orelse
        return operators.conditional(r, base.cond, lambda: element(r, a, at, node), lambda: element(r, b, at, node), node)
    if isinstance(base, Scalar) and isinstance(rvalue(r, at), Pointer):
        base, at = rvalue(r, at), base
    if isinstance(base, Remote) and base.type == Ptr(Prim(base.at.buffer.dtype)) and not isinstance(base.at.index[-1], n.Span):
        return Apart(n.Region(base.at.buffer, (*base.at.index[:-1], build.add(base.at.index[-1], index32(scalar(r, at, node))))))
    if not isinstance(base, Pointer) or base.type.to == VOID:
        raise NotUnderstood(f"an element of {type_text(base)}", node)
    return Located(base.place.shifted(scalar(r, at, node), base.type.to, r.m), base.type.to)


def _element_of_records(r: Reading, base: Members, at: Value, node: Node) -> Value:
    of = base.fields["#array"]
    assert isinstance(of, TypeName) and isinstance(of.type, Arr)
    inner = of.type.of
    made = Members(base.type, {k: element(r, v, at, node) for k, v in base.fields.items() if k != "#array"})
    if isinstance(inner, Arr):
        made.fields["#array"] = TypeName(inner)
    return made


def field(r: Reading, node: Node, scope: Scope) -> Value:
    """`a.b`, `p->b`."""
    arg, name = node.child_by_field_name("argument"), node.child_by_field_name("field")
    assert arg is not None and name is not None
    base = r.value(arg, scope)
    args = None
    if name.type == "dependent_name":
        name = name.named_children[0]
    if name.type == "template_method":
        listed = name.child_by_field_name("arguments")
        args = r.types.arguments(listed, scope) if listed is not None else ()
        shown = name.child_by_field_name("name")
        assert shown is not None
        name = shown
    op = node.child_by_field_name("operator")
    if op is not None and text(op) == "->" and not _is_this(arg):
        base = pointed(r, rvalue(r, base), node)
    return member(r, base, text(name), node, args)


def member(r: Reading, base: Value, name: str, node: Node, args: tuple[Value, ...] | None = None) -> Value:
    """`base.name`."""
    if isinstance(base, Located) and type(base) is not Located:
        base = rvalue(r, base)
    if isinstance(base, (Members, Record, Located, Wide)) and isinstance(base.type, Rec):
        name = base.type.instance.aliases.get(name, name)
    match base:
        case Dims():
            if COMPONENTS.get(name, 3) > 2:
                raise NotUnderstood(f"the component '{name}'", node)
            return Scalar(converted(r.geometry.component(base.name, COMPONENTS[name]), U32))
        case Group():
            return Overloads((), args, base, name)
        case Members() if name in base.fields:
            return base.fields[name]
        case Record() if name in base.fields:
            return base.fields[name]
        case Located(type=Vec() as kind):
            k = _component(kind, name)
            if k is not None:
                return Located(base.place.moved(k * kind.dtype.bytes), Prim(kind.dtype))
        case Wide(type=Vec() as kind):
            k = _component(kind, name)
            if k is not None:
                return component(r, base, k)
        case Wide(type=Rec() as rec):
            layout = rec.instance.layout()
            kind_ = next((m.type for m in rec.instance.members() if m.name == name), None)
            if isinstance(kind_, Prim) and dtype_of(base.tile.type) == kind_.dtype:
                return picked(r, base.tile, layout.offsets[name] // kind_.dtype.bytes)
            if name in layout.offsets:
                return member(r, spilled(r, base), name, node, args)
        case Located(type=Rec() as rec):
            layout = rec.instance.layout()
            for m in rec.instance.members():
                if m.name == name:
                    return Located(base.place.moved(layout.offsets[name]), m.type)
        case Located(type=Prim(dtype=dtype)) | Scalar(dtype=dtype) if name == "__x" and dtype.is_float and dtype.bits == 8:
            return Scalar(build.cast(scalar(r, base, node), U8, "bits"))
        case Located(type=Prim()) if name in ("x", "__x"):
            raise NotUnderstood(f"the bits of a number as its member '{name}'", node)
    if isinstance(base, (Members, Record, Located, Wide)) and isinstance(base.type, Rec):
        found = base.type.instance.methods(name)
        if found:
            return Overloads(tuple(found), args, base, name)
        static = base.type.instance.member(name)
        if static is not None:
            return of_declarations(r, static, name, node, args)
        raise NotUnderstood(f"'{base.type}' has no member '{name}'", node)
    return Overloads((), args, base, name)


def _component(kind: Vec, name: str) -> int | None:
    k = COMPONENTS.get(name)
    return k if k is not None and k < kind.n else None
