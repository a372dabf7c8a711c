"""Declarations in a function's body: what a name is bound to, and where it lives."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import walk

from ..expressions import calls
from ..expressions.places import element, member
from ..names.mutation_analysis import function_body, mutated
from ..source.source import Node, fragment
from ..source.syntax import declared_name, text
from ..symbols.classes import Rec, leaf
from ..symbols.symbols import Scope, Value, Variable
from ..types.c_types import Arr, Auto, CType, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from ..values.conversions import component, convert, type_text, zero_of
from ..values.loads import rvalue
from ..values.objects import assign, choosing, initialized, new_object, pinned_place, pinned_value
from ..values.reading import Reading
from ..values.shared_arrays import shared_array
from ..values.shared_pool_views import carved
from ..values.values import Aimed, Chosen, Located, Members, Nothing, Null, Pointer, Record, Scalar, TypeName, Wide


def declaration(r: Reading, node: Node, scope: Scope, within: Node | None = None) -> None:
    """Local variables; `within` is a node of the function that they are in, where that is not the declaration's own tree."""
    words = {text(c) for c in node.children if c.type in ("storage_class_specifier", "type_qualifier")}
    kind_node = node.child_by_field_name("type")
    if kind_node is not None and kind_node.type in ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier") and (
        kind_node.child_by_field_name("body") is not None
    ):
        r.index.one(kind_node, scope, scope.unit, None)
    for d in node.children_by_field_name("declarator"):
        name_node = declared_name(d)
        if name_node is None:
            raise NotUnderstood("a declaration of unusual form", node)
        init = (d if d.type == "init_declarator" else node).child_by_field_name("value")  # the declaration's own where it is a condition
        if name_node.type == "structured_binding_declarator":
            _structured(r, name_node, init, scope)
            continue
        name = text(name_node)
        if "register" in words:
            scope.values[name] = shared_array(r, node, d, name, "extern" in words, scope)
            continue
        inner = d.child_by_field_name("declarator") if d.type == "init_declarator" else d
        if inner is not None and inner.type == "function_declarator":
            scope.values[name] = _vexing(r, node, inner, name, scope)
            continue
        if "constexpr" in words and init is not None and kind_node is not None and "static" not in words:
            kind, _ = r.types.declared_type(node, d, scope)
            if isinstance(kind, (Prim, Auto)) and init.type != "initializer_list":
                v = rvalue(r, r.value(init, scope))
                scope.values[name] = convert(r, v, kind) if not isinstance(kind, Auto) else v
                continue
        if "static" in words:
            scope.declare(name, Variable(name, node, d, init, scope, scope.unit))
            scope.values.pop(name, None)
            continue
        _variable(r, node, d, init, name, words, scope, within or node)


def _variable(r: Reading, node: Node, d: Node, init: Node | None, name: str, words: set[str], scope: Scope, within: Node) -> None:
    kind, reference = r.types.declared_type(node, d, scope)
    r.hint = name
    if init is None:
        if reference:
            raise NotUnderstood(f"the reference '{name}' without a value", d)
        made = new_object(r, name, kind)
        if isinstance(kind, Rec) and kind.instance.begins():
            calls.initialize(r, made, kind, [])
        scope.values[name] = made
        return
    if init.type in ("initializer_list",):
        if isinstance(kind, Rec) and kind.instance.constructors:
            made = new_object(r, name, kind)
            calls.initialize(r, made, kind, [r.value(c, scope) for c in init.named_children if c.type != "comment"])
            scope.values[name] = made
            return
        kind = _sized(kind, init)
        if isinstance(kind, Arr) and isinstance(kind.of, Rec) and leaf(kind) is None:
            scope.values[name] = _records(r, init, name, kind, scope)
            return
        v: Value = r.braced(init, kind, scope)
    elif init.type == "argument_list":
        args = calls.arguments(r, init, scope)
        if isinstance(kind, Rec):
            made = new_object(r, name, kind)
            calls.initialize(r, made, kind, args)
            scope.values[name] = made
            return
        v = r.construct(kind, args)
    else:
        v = r.value(init, scope)
    if reference:
        part = carved(r, name, kind, v) if type(v) is Located else None
        if part is not None:
            scope.values[name] = part
            return
        if isinstance(v, (Located, Members)) and (isinstance(kind, Auto) or v.type == kind or isinstance(kind, Rec)):
            scope.values[name] = pinned_place(r, v, name)
            return
    changed = mutated(r, function_body(within), scope)
    scope.values[name] = local_value(r, name, v, kind, name in changed, f"{name}[]" in changed)


def _records(r: Reading, init: Node, name: str, kind: Arr, scope: Scope) -> Value:
    """An array of records of several dtypes, an element for each value of a list, the others as their class begins or zero."""
    assert isinstance(kind.of, Rec)
    items = [c for c in init.named_children if c.type != "comment"]
    given = [r.braced(c, kind.of, scope) if c.type == "initializer_list" else r.value(c, scope) for c in items]
    made = new_object(r, name, kind)
    for k in range(kind.n):
        each = given[k] if k < len(given) else calls.construct(r, kind.of, []) if kind.of.instance.begins() else zero_of(r, kind.of)
        assign(r, element(r, made, Scalar(build.const(k)), init), each)
    return made


def local_value(r: Reading, name: str, v: Value, kind: CType, changed: bool, within: bool = False) -> Value:
    """What a local variable is bound to: a place of its own where it changes, or (`within`) where an array in it does."""
    if isinstance(v, Aimed) and isinstance(kind, (Auto, Ptr)):
        return v
    if isinstance(v, Members) and (isinstance(kind, Auto) or v.type == kind):
        made = new_object(r, name, v.type)
        assign(r, made, v)
        return made
    v = rvalue(r, v)
    if not isinstance(v, (Scalar, Wide, Record, Pointer, Members)):
        if isinstance(kind, Prim | Ptr | Rec) and not isinstance(kind, Auto):
            v = convert(r, v, kind)
        if isinstance(v, Chosen) and isinstance(kind, Ptr) and changed:
            return choosing(r, name, v, kind)
        if isinstance(v, Null) and isinstance(kind, Ptr) and changed:
            return new_object(r, name, kind)  # it points nowhere until it is set
        return v if not isinstance(v, Nothing) else _nothing(name)
    made_value = convert(r, v, kind) if not isinstance(kind, Auto) else v
    if not isinstance(made_value, (Scalar, Wide, Record, Pointer, Members)):
        return made_value
    t: CType = made_value.type if isinstance(kind, Auto) else kind
    changed |= within and isinstance(t, Rec) and (_has_array(t) or bool(t.instance.methods("operator[]")))
    if changed or isinstance(t, Arr) or isinstance(made_value, (Record, Members)):
        if isinstance(t, Ptr) and isinstance(made_value, Pointer) and not changed:
            return pinned_value(r, made_value, name)
        return initialized(r, name, made_value, t)
    if isinstance(made_value, Scalar) and _is_plain(made_value.expr):
        return made_value
    if isinstance(made_value, Scalar) and not isinstance(made_value.expr, n.Const):
        return Scalar(r.m.let(name, made_value.expr))
    return pinned_value(r, made_value, name)


def _has_array(t: CType) -> bool:
    return isinstance(t, Arr) or (isinstance(t, Rec) and any(_has_array(m.type) for m in t.instance.members()))


def _is_plain(e: n.Expr) -> bool:
    """Conditions on indices, and choices between two numbers, which say more where they are used than under a name."""
    if isinstance(e, n.Select):
        return isinstance(e.a, n.Const) and isinstance(e.b, n.Const) and _is_plain(e.cond)
    if not isinstance(e.type, DType) or not e.type.is_bool:
        return False
    if isinstance(e, n.Binary) and e.op in ("and", "or"):
        return _is_plain(e.a) and _is_plain(e.b)
    integers = isinstance(e, n.Binary) and dtype_of(e.a.type).is_integer
    return integers and not any(isinstance(x, (n.Load, n.Call)) for x in walk(e))


def _nothing(name: str) -> Value:
    raise NotUnderstood(f"'{name}', whose value is the result of a void call")


def _sized(kind: CType, init: Node) -> CType:
    """The type of an array whose size its initializer says."""
    if isinstance(kind, Arr) and kind.n == 0:
        return Arr(kind.of, len([c for c in init.named_children if c.type != "comment"]))
    return kind


def _structured(r: Reading, names: Node, init: Node | None, scope: Scope) -> None:
    if init is None:
        raise NotUnderstood("a structured binding without a value", names)
    v = r.value(init, scope)
    words = [text(c) for c in names.named_children if c.type == "identifier"]
    if isinstance(v, Members | Record | Located | Wide) and isinstance(v.type, Rec) and v.type.instance.name.startswith("array<") and (
            [m.name for m in v.type.instance.members()] == ["held"]):  # std::array is taken apart as the array in it
        v = member(r, v, "held", names)
    by_reference = names.parent is not None and "reference" in names.parent.type and isinstance(v, Members | Located)

    def bind(parts: list[Value]) -> None:
        if len(parts) != len(words):
            raise NotUnderstood(f"a structured binding of {len(words)} names to {len(parts)} members", names)
        for word, part in zip(words, parts, strict=True):
            scope.values[word] = pinned_place(r, part, word) if by_reference and isinstance(part, Members | Located) else pinned_value(r, rvalue(r, part), word)

    if isinstance(v, (Members, Record)):
        return bind([x for k, x in v.fields.items() if k != "#array"])
    if isinstance(v, Located | Wide) and isinstance(v.type, Rec):
        return bind([member(r, v, m.name, names) for m in v.type.instance.members()])
    held = v if isinstance(v, Located) and isinstance(v.type, Arr) else rvalue(r, v)
    if isinstance(held, Wide | Located) and isinstance(held.type, Vec | Arr):
        return bind([component(r, held, k) if isinstance(held, Wide) and isinstance(held.type, Vec) else element(r, held, Scalar(build.const(k)), names)
                     for k in range(held.type.n)])
    raise NotUnderstood(f"a structured binding of {type_text(v)}", names)


def _vexing(r: Reading, node: Node, d: Node, name: str, scope: Scope) -> Value:
    """`T x(y);`, which reads like a declaration of a function."""
    kind_node, listed = node.child_by_field_name("type"), d.child_by_field_name("parameters")
    assert kind_node is not None and listed is not None
    kind = r.types.base_type(kind_node, scope)
    args: list[Value] = []
    for p in listed.named_children:
        inner = p.child_by_field_name("type")
        if p.type != "parameter_declaration" or inner is None:
            raise NotUnderstood("the declaration of a function inside a function", node)
        if p.child_by_field_name("declarator") is None:
            args.append(r.value(inner, scope))
            continue
        first = inner if inner.type == "type_identifier" else None
        if first is None or isinstance(found := scope.find(text(first)), TypeName) or not isinstance(found, Value):
            raise NotUnderstood("the declaration of a function inside a function", node)
        args.append(r.value(fragment(f"({text(p)})"), scope))  # `T x(y[i]);` and `T x(y * z);`, where `y` is a value
    if isinstance(kind, Rec):
        made = new_object(r, name, kind)
        calls.initialize(r, made, kind, args)
        return made
    return local_value(r, name, r.construct(kind, args), kind, True)
