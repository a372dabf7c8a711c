"""Expressions of the source as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, U64, dtype_of

from ..intrinsics.inline_ptx import assembly
from ..intrinsics.standard_functions import FUNCTORS
from ..names.lookup import name_of, named_value, of_declarations, of_values
from ..source.source import Node, fragment
from ..source.syntax import text
from ..symbols.classes import Rec, align_of, leaf, size_of
from ..symbols.symbols import Alias, ClassTemplate, EnumType, Scope, Value
from ..types.c_types import Arr, CType, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values import literals
from ..values.conversions import as_tile, cast, condition, convert, zero_of
from ..values.emitter import reads_memory
from ..values.loads import rvalue
from ..values.memory import Place
from ..values.objects import assign, begun, new_object, pinned_place, pinned_value
from ..values.pointers import ChoosingPointer
from ..values.reading import Reading
from ..values.values import (
    Aimed,
    Builtin,
    Chosen,
    Group,
    Lambda,
    Located,
    Members,
    Nothing,
    Null,
    Overloads,
    Pack,
    Pointer,
    Record,
    Scalar,
    TypeName,
    Wide,
    Word,
)
from . import calls, operators, places
from .calls import expanded


def value(r: Reading, node: Node, scope: Scope) -> Value:
    """The value of an expression. Raises NotUnderstood with the smallest piece that is not read."""
    handler = _HANDLERS.get(node.type)
    if handler is None:
        raise NotUnderstood(f"an expression of the form {node.type.replace('_', ' ')}", node)
    try:
        return handler(r, node, scope)
    except NotUnderstood as bad:
        if bad.node is None:
            bad.node = node
        raise


# ------------------------------------------------------------------------------------------------------------------------ names


def _name(r: Reading, node: Node, scope: Scope) -> Value:
    found = named_value(r, node, scope)
    if isinstance(found, list):
        args = None
        last = node
        while last.type == "qualified_identifier" and (inner := name_of(last)) is not None:
            last = inner
        if last.type in ("template_function", "template_type"):
            listed = last.child_by_field_name("arguments")
            args = r.types.arguments(listed, scope) if listed is not None else ()
        return of_declarations(r, found, text(node), node, args)
    if isinstance(found, Builtin) and node.type == "qualified_identifier":
        return found
    return found


def _template_function(r: Reading, node: Node, scope: Scope) -> Value:
    name, listed = node.child_by_field_name("name"), node.child_by_field_name("arguments")
    assert name is not None and listed is not None
    found = named_value(r, name, scope)
    args = r.types.arguments(listed, scope)
    if isinstance(found, list):
        if any(isinstance(d, (ClassTemplate, Alias)) for d in found):
            return TypeName(r.types.of_template(text(name), args, scope, node))
        return of_declarations(r, found, text(name), node, args)
    if isinstance(found, Builtin):
        return Builtin(found.name, args)
    if isinstance(found, Overloads) and not found.functions and found.name and (whole := r.types.stood_for(found.name, args, scope, node)) is not None:
        return TypeName(whole)
    if isinstance(found, Overloads):
        return Overloads(found.functions, args, found.this, found.name)
    if isinstance(found, TypeName):  # a class by its own name, inside of it
        return TypeName(r.types.of_template(text(name), args, scope, node))
    raise NotUnderstood(f"'{text(node)}', which reads as a template, and '{text(name)}' is a value", node)


def _compared(r: Reading, node: Node, scope: Scope) -> Node | None:
    """`a < b >> c` as what it is where `a` is a value: a grammar of C++ without names takes `a<b>` for a template."""
    name: Node | None = node
    while name is not None and name.type == "binary_expression":
        name = name.child_by_field_name("left") if name == node else name.child_by_field_name("right")
    name = name.child_by_field_name("name") if name is not None and name.type == "template_function" else None
    if name is None or name.type != "identifier" or isinstance(named_value(r, name, scope), (list, Builtin, Overloads)):
        return None
    words = (node.text or b"").decode()
    before = len((node.text or b"")[:name.start_byte - node.start_byte].decode())
    return fragment(f"{words[:before]}({text(name)}){words[before + len(text(name)):]}")


def _called(r: Reading, left: Node, node: Node, scope: Scope) -> Node | None:
    """`a.m<b>(c)` as what it is where `a` has a template `m`: a grammar of C++ without names takes it for two comparisons."""
    inner = left.child_by_field_name("left") if left.type == "binary_expression" and text(left.child_by_field_name("operator") or left) == "<" else None
    name = inner.child_by_field_name("field") if inner is not None and inner.type == "field_expression" else None
    right = node.child_by_field_name("right")
    if inner is None or name is None or name.type != "field_identifier" or right is None or not text(right).startswith("("):
        return None
    block, position = r.m.block, len(r.m.block)
    found = value(r, inner, scope)
    del block[position:]  # it is read again, as what it is
    if not isinstance(found, Overloads) or not any(f.params for f in found.functions):
        return None
    words, at = (node.text or b""), name.start_byte - node.start_byte
    return fragment(f"{words[:at].decode()}template {words[at:].decode()}")


def _this(r: Reading, node: Node, scope: Scope) -> Value:
    at = next((s.this for s in scope.around() if s.this is not None), None)
    if at is None:
        raise NotUnderstood("'this' outside a class", node)
    return at


# ------------------------------------------------------------------------------------------------------------------- operators


def _binary(r: Reading, node: Node, scope: Scope) -> Value:
    left, op, right = node.child_by_field_name("left"), node.child_by_field_name("operator"), node.child_by_field_name("right")
    if left is None or op is None or right is None:
        raise NotUnderstood("an operator of unusual form", node)
    if (meant := of_values(r, node, scope)) is not None:
        return value(r, meant, scope)
    if text(op) == ">" and (meant := _compared(r, node, scope) or _called(r, left, node, scope)) is not None:
        return value(r, meant, scope)
    if (kind := _cast_of(r, left, op, right, scope)) is not None:
        return convert(r, operators.unary(r, text(op), value(r, right, scope), node), kind)
    sign = {"and": "&&", "or": "||", "bitand": "&", "bitor": "|", "xor": "^", "not_eq": "!="}.get(text(op), text(op))
    if sign in ("&&", "||"):
        return operators.short_circuit(r, sign, left, right, scope)
    a, b = in_order(r, left, right, scope)
    return operators.binary(r, sign, a, b, node)


def _cast_of(r: Reading, left: Node, op: Node, right: Node, scope: Scope) -> CType | None:
    """The type of `(T)-x`, which a grammar without names takes for a difference; None for what is one."""
    if left.type != "parenthesized_expression" or text(op) not in ("+", "-", "*", "&") or len(left.named_children) != 1:
        return None
    name = left.named_children[0]
    if name.type != "identifier" or right.type == "binary_expression":
        return None
    try:
        found = named_value(r, name, scope)
    except NotUnderstood:
        return None
    if isinstance(found, TypeName):
        return found.type
    kinds = [d for d in found if isinstance(d, (Alias, ClassTemplate, EnumType))] if isinstance(found, list) else []
    made = r.types.declared_as_type(kinds[0], scope) if kinds else None
    return made


def in_order(r: Reading, left: Node, right: Node, scope: Scope) -> tuple[Value, Value]:
    """Two operands; the first is kept where the second has effects on what it read."""
    a = value(r, left, scope)
    if not isinstance(a, (Located, Overloads)) or isinstance(a.type if isinstance(a, Located) else None, (Prim, Vec)):
        a = rvalue(r, a)
    position = len(r.m.block)
    block = r.m.block
    b = value(r, right, scope)
    if isinstance(a, Scalar) and reads_memory(a.expr) and r.m.block is block and r.m.effects_since(position):
        a = Scalar(r.m.let_at(position, "before", a.expr))
    return a, b


def _unary(r: Reading, node: Node, scope: Scope) -> Value:
    arg, op = node.child_by_field_name("argument"), node.child_by_field_name("operator")
    assert arg is not None and op is not None
    return operators.unary(r, text(op), value(r, arg, scope), node)


def _update(r: Reading, node: Node, scope: Scope) -> Value:
    arg, op = node.child_by_field_name("argument"), node.child_by_field_name("operator")
    assert arg is not None and op is not None
    at = value(r, arg, scope)
    prefix = op.start_byte < arg.start_byte
    if isinstance(at, (Members, Located)) and isinstance(at.type, Rec):
        return operators.overloaded(r, text(op), [at] if prefix else [at, Scalar(build.const(0))], node)
    old = pinned_value(r, rvalue(r, at), "old")
    new = operators.binary(r, text(op)[0], old, Scalar(build.const(1)), node)
    assign(r, at, new)
    return at if prefix else old


def _assignment(r: Reading, node: Node, scope: Scope) -> Value:
    left, op, right = node.child_by_field_name("left"), node.child_by_field_name("operator"), node.child_by_field_name("right")
    assert left is not None and op is not None and right is not None
    if (meant := of_values(r, node, scope)) is not None:
        return value(r, meant, scope)
    sign = text(op)
    if (made := _through_choice(r, left, sign, right, scope, node)) is not None:
        return made
    first = pinned_value(r, rvalue(r, value(r, right, scope)), "right") if _steps(left) & set(_identifiers(right)) else None
    at = value(r, left, scope)
    if right.type == "initializer_list" and isinstance(at, (Located, Members)):
        assign(r, at, braced(r, right, at.type, scope))
        return at
    b = value(r, right, scope) if first is None else first
    if isinstance(at, Aimed):
        raise NotUnderstood(f"a pointer to {at.type} that is set again", node)
    if isinstance(at, (Members, Located, Wide)) and isinstance(at.type, Rec) and (
        sign != "=" or calls.has_method(at.type, "operator=")
    ):
        return operators.overloaded(r, sign, [at, b], node)
    if isinstance(at, Located) and isinstance(at.type, (Vec, Rec)) and sign != "=":
        made = operators.user_operator(r, sign, [at, b], node)
        if made is not None:
            return made
    if sign != "=":
        held = begun(r, at) if isinstance(b, Word) else None
        b = operators.binary(r, sign[:-1], held or rvalue(r, at), b, node)
    elif isinstance(at, Group | Builtin | Nothing):
        raise NotUnderstood(f"an assignment to {text(left)}", node)
    assign(r, at, b)
    return at


def _steps(left: Node) -> set[str]:
    """The variables that the left side of an assignment steps (`a[i++] = i`): the right side comes before it (C++17, [expr.ass])."""
    found, stack = set(), [left]
    while stack:
        top = stack.pop()
        if top.type == "update_expression":
            found |= set(_identifiers(top))
        stack += top.named_children
    return found


def _through_choice(r: Reading, left: Node, sign: str, right: Node, scope: Scope, node: Node) -> Value | None:
    """`p[i] = v` and `*p = v` for a pointer into one of several arrays: a branch, with the store into each; None for other places."""
    base = left.child_by_field_name("argument") if left.type in ("subscript_expression", "pointer_expression") else None
    if base is None or base.type != "identifier" or text(left).startswith("&"):
        return None
    found = scope.find(text(base))
    if not isinstance(found, (Chosen, ChoosingPointer)):
        return None
    held = rvalue(r, found)
    at: Value = Scalar(build.const(0))
    if left.type == "subscript_expression":
        listed = left.child_by_field_name("indices")
        if listed is None or len(listed.named_children) != 1:
            return None
        at = rvalue(r, value(r, listed.named_children[0], scope))
    given = rvalue(r, value(r, right, scope))  # each way works it out once

    def store(pointer: Value) -> None:
        if isinstance(pointer, Chosen):
            with r.m.capture() as one:
                store(pointer.then)
            with r.m.capture() as other:
                store(pointer.orelse)
            r.m.emit(n.If(pointer.cond, tuple(one), tuple(other)))
            return
        place = places.element(r, pointer, at, node)
        assign(r, place, given if sign == "=" else operators.binary(r, sign[:-1], rvalue(r, place), given, node))
    store(held)
    return given


def _conditional(r: Reading, node: Node, scope: Scope) -> Value:
    cond_node, then, orelse = (node.child_by_field_name(k) for k in ("condition", "consequence", "alternative"))
    if cond_node is None or then is None or orelse is None:
        raise NotUnderstood("a choice without one of its values", node)
    cond = condition(r, value(r, cond_node, scope), cond_node)
    if isinstance(cond, n.Const):
        return value(r, then if cond.value else orelse, scope)
    return operators.conditional(r, cond, lambda: value(r, then, scope), lambda: value(r, orelse, scope), node)


def _comma(r: Reading, node: Node, scope: Scope) -> Value:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    assert left is not None and right is not None
    value(r, left, scope)
    return value(r, right, scope)


def _parenthesized(r: Reading, node: Node, scope: Scope) -> Value:
    inner = [c for c in node.named_children if c.type != "comment"]
    if len(inner) != 1:
        raise NotUnderstood("parentheses around nothing", node)
    return value(r, inner[0], scope)


def _cast(r: Reading, node: Node, scope: Scope) -> Value:
    kind, inner = node.child_by_field_name("type"), node.child_by_field_name("value")
    assert kind is not None and inner is not None
    if inner.type == "initializer_list":
        return braced(r, inner, r.types.base_type(kind, scope), scope)
    if _is_product(node, kind, inner, scope):
        a, b = in_order(r, fragment(text(kind)), inner.named_children[0], scope)
        return operators.binary(r, "*", a, b, node)
    return cast(r, r.types.base_type(kind, scope), value(r, inner, scope))


def _is_product(node: Node, kind: Node, inner: Node, scope: Scope) -> bool:
    """Whether `(a * (b)) * (c)`, which the grammar takes for a cast to a pointer to functions, is a product: where `a` is a value, and nothing that binds as
    closely stands before it."""
    name, d = kind.child_by_field_name("type"), kind.child_by_field_name("declarator")
    below = d.named_children[0].type if d is not None and d.type == "abstract_pointer_declarator" and d.named_children else ""
    if inner.type != "pointer_expression" or not text(inner).startswith("*") or name is None or below != "abstract_function_declarator":
        return False
    around = node.parent
    op = around.child_by_field_name("operator") if around is not None and around.type == "binary_expression" else None
    loose = op is not None and text(op) in ("+", "-", "<", ">", "<=", ">=", "==", "!=", "&&", "||")
    held = scope.find(text(name)) if loose or (around is not None and around.type in _AROUND_A_VALUE) else None
    return isinstance(held, Value) and not isinstance(held, TypeName)


_AROUND_A_VALUE = ("init_declarator", "assignment_expression", "argument_list", "parenthesized_expression", "return_statement", "subscript_argument_list")


# ------------------------------------------------------------------------------------------------------------------------ types


def type_of(r: Reading, node: Node, scope: Scope) -> CType:
    """The type of an expression. What reading it emits is dropped."""
    with r.m.capture():
        v = value(r, node, scope)
    if isinstance(v, (Scalar, Wide, Record, Members, Located, Pointer)):
        return v.type
    raise NotUnderstood(f"the type of {text(node)}", node)


def _sizeof(r: Reading, node: Node, scope: Scope) -> Value:
    kind, inner = node.child_by_field_name("type"), node.child_by_field_name("value")
    if text(node).replace(" ", "").startswith("sizeof..."):
        found = scope.find(text(node.named_children[-1]))
        if isinstance(found, Pack):
            return Scalar(build.const(len(found.items), U64))
    t = r.types.base_type(kind, scope) if kind is not None else None
    if t is None and inner is not None:
        name = inner.named_children[0] if inner.type == "parenthesized_expression" else inner
        try:
            t = r.types.base_type(name, scope) if name.type in ("identifier", "qualified_identifier", "template_function") else None
        except NotUnderstood:
            t = None
        if t is None:
            t = type_of(r, name, scope)
    if t is None:
        raise NotUnderstood("the size of this", node)
    return Scalar(build.const(size_of(t), U64))


def _alignof(r: Reading, node: Node, scope: Scope) -> Value:
    return Scalar(build.const(align_of(r.types.base_type(node.named_children[0], scope)), U64))


def _compound(r: Reading, node: Node, scope: Scope) -> Value:
    kind, listed = node.child_by_field_name("type"), node.child_by_field_name("value")
    if kind is None or listed is None:
        raise NotUnderstood("a literal of unusual form", node)
    if not listed.named_children and kind.type == "qualified_identifier" and (at := kind.child_by_field_name("name")) is not None and (
            text(at.child_by_field_name("name") or at) in FUNCTORS):
        return value(r, kind, scope)  # `cg::plus<float>{}`, which is no class here
    return braced(r, listed, r.types.base_type(kind, scope), scope)


def braced(r: Reading, node: Node, t: CType, scope: Scope) -> Value:
    """`{a, b, ..}` as a value of a type; what is left out is zero."""
    items = [c for c in node.named_children if c.type != "comment"]
    if isinstance(t, Rec) and t.instance.constructors:
        return r.construct(t, [value(r, c, scope) for c in items])
    if isinstance(t, Prim):
        return convert(r, value(r, items[0], scope), t) if items else Scalar(build.const(0, t.dtype))
    if isinstance(t, Rec) and items and (t.instance.together or t.instance.node.type == "union_specifier"):
        made = new_object(r, "value", t)
        for first, each in zip(t.instance.first_named(), items, strict=False):
            name, item = _designated(each) or (first, each)
            at = places.member(r, made, name, node)
            assert isinstance(at, (Located, Members))
            assign(r, at, braced(r, item, at.type, scope) if item.type == "initializer_list" else value(r, item, scope))
        return rvalue(r, made)
    if isinstance(t, Rec) and (any(c.type == "initializer_pair" for c in items) or (len(items) < len(t.instance.members()) and t.instance.begins()) or (
            _of_objects(r, items, t, scope))):
        return _aggregate(r, node, items, t, scope)
    if isinstance(t, Rec) and leaf(t) is None:
        members = t.instance.members()
        fields: dict[str, Value] = {}
        for k, m in enumerate(members):
            if k < len(items):
                item = items[k]
                fields[m.name] = braced(r, item, m.type, scope) if item.type == "initializer_list" else rvalue(r, value(r, item, scope))
            else:
                fields[m.name] = zero_of(r, m.type)
        return Record(fields, t)
    if isinstance(t, Ptr):
        return convert(r, value(r, items[0], scope), t) if items else Null()
    found = leaf(t)
    if found is None:
        raise NotUnderstood(f"a list of values as {t}", node)
    dtype, count = found
    if not items:
        return zero_of(r, t)
    flat: list[n.Expr] = []
    kinds: list[CType] = [t.of if isinstance(t, Arr) else Prim(dtype)] * len(items)
    if isinstance(t, Rec) and any(c.type == "initializer_list" for c in items):
        kinds = [m.type for m in t.instance.members()]
    for item, of in zip(items, kinds, strict=False):
        if item.type == "initializer_pair":
            raise NotUnderstood("a designated initializer", item)
        v = braced(r, item, of, scope) if item.type == "initializer_list" else rvalue(r, value(r, item, scope))
        if (isinstance(v, Scalar) and not isinstance(of, Rec | Vec | Arr)) or (isinstance(v, Scalar) and isinstance(of, Arr)):
            flat.append(converted(v.expr, dtype))
        else:
            v = convert(r, v, of)
            assert isinstance(v, Wide)
            size = leaf(of)
            assert size is not None
            tile = as_tile(r, v, dtype, size[1])
            flat += [build.call("pick", tile, build.const(k)) for k in range(size[1])]
    if len(flat) > count:
        raise NotUnderstood(f"{len(flat)} values for a {t}", node)
    flat += [build.const(0, dtype)] * (count - len(flat))
    return Wide(build.call("vec", *flat) if count <= 16 and count > 0 else _long_vector(r, flat, t), t)


def _of_objects(r: Reading, items: list[Node], t: Rec, scope: Scope) -> bool:
    """Whether an object, or what a member refers to, stands among the values of a list: then each value is a member's, and none a part of one."""
    pairs = list(zip(items, t.instance.members(), strict=False))
    return len(items) == len(pairs) and any(m.reference or (
        isinstance(m.type, Rec) and c.type != "initializer_list" and isinstance(type_of(r, c, scope), Rec)) for c, m in pairs)


def _aggregate(r: Reading, node: Node, items: list[Node], t: Rec, scope: Scope) -> Value:
    """A class without constructors from values in order, or by name (`{.a = 1}`); members that are left out begin as their class says, else with zero."""
    made = new_object(r, "value", t)
    given: dict[str, Node] = {}
    for m, item in zip(t.instance.members(), items, strict=False):
        name, what = _designated(item) or (m.name, item)
        given[name] = what
    for m in t.instance.members():
        if m.name not in given:
            calls.begin(r, made, t, m, True)
            continue
        item = given.pop(m.name)
        if m.reference:
            if not isinstance(made, Members):
                raise NotUnderstood(f"what the member '{m.name}' refers to", item)
            held = value(r, item, scope)
            made.fields[m.name] = pinned_place(r, held, m.name) if isinstance(held, Located | Members) else held
            continue
        v = braced(r, item, m.type, scope) if item.type == "initializer_list" else value(r, item, scope)
        assign(r, places.member(r, made, m.name, node), v)
    if given:
        raise NotUnderstood(f"a {t} with a member '{next(iter(given))}'", node)
    return rvalue(r, made)


def _designated(item: Node) -> tuple[str, Node] | None:
    """The member of `.a = 1`, and what it begins with; None for a value without a name."""
    if item.type != "initializer_pair":
        return None
    named, what = item.child_by_field_name("designator"), item.child_by_field_name("value")
    if named is None or named.type != "field_designator" or what is None:
        raise NotUnderstood("a designated initializer of this form", item)
    return text(named).lstrip(".").strip(), what


def _long_vector(r: Reading, flat: list[n.Expr], t: CType) -> n.Expr:
    """More values than one `vec` takes: an array filled element by element."""
    made = new_object(r, "values", t)
    assert isinstance(made, Located)
    dtype = dtype_of(flat[0].type)
    if all(x == flat[0] for x in flat):
        return build.call("broadcast", flat[0], build.const(len(flat)))
    row = Place(made.place.store, made.place.outer, made.place.byte)
    if row.store.dims:
        raise NotUnderstood("a long list of values of an array of arrays")
    for k, x in enumerate(flat):
        r.m.emit(n.Store(row.moved(k * dtype.bytes).region(dtype, None), x))
    return n.Load(row.region(dtype, len(flat)))


def _lambda(r: Reading, node: Node, scope: Scope) -> Value:
    """A lambda: what it captures by copy keeps the value that it has now, all else is seen as it is when the lambda is called."""
    captures, body = node.child_by_field_name("captures"), node.child_by_field_name("body")
    if captures is None or body is None:
        return Lambda(node, scope, scope.unit)
    items = [x.strip() for x in text(captures).strip("[]").split(",")]
    begun_here = [c for c in captures.named_children if c.type == "lambda_capture_initializer"]
    referred = {x[1:].strip() for x in items if x.startswith("&")}
    copied = (set(_identifiers(body)) if "=" in items else {x for x in items if x.isidentifier()}) - referred - {
        text(c.named_children[0]) for c in begun_here}
    inside = scope.inner()
    for name in sorted(copied):
        found = scope.find(name)
        if isinstance(found, Located) and isinstance(found.type, Prim | Ptr | Vec) and found.place.store.space == "register":
            inside.values[name] = pinned_value(r, rvalue(r, found), name)
    for each in begun_here:  # `[m = k + 4]`, `[&m = k]`
        parts = each.named_children
        if len(parts) != 2 or parts[0].type != "identifier":
            raise NotUnderstood("a capture of unusual form", each)
        v = value(r, parts[1], scope)
        inside.values[text(parts[0])] = v if text(each).startswith("&") else pinned_value(r, rvalue(r, v), text(parts[0]))
    return Lambda(node, inside if inside.values else scope, scope.unit)


def _identifiers(node: Node) -> Iterator[str]:
    if node.type == "identifier":
        yield text(node)
    for each in node.named_children:
        yield from _identifiers(each)


def _fold(r: Reading, node: Node, scope: Scope) -> Value:
    """`(.. op pack)` from the left, `(pack op ..)` from the right, each also with a first value."""
    op = next((text(c) for c in node.children if not c.is_named and text(c) not in ("(", ")", "...")), None)
    left, right = (side if side is not None and side.is_named else None for side in (node.child_by_field_name("left"), node.child_by_field_name("right")))
    if op is None or (left is None and right is None):
        raise NotUnderstood("a fold of unusual form", node)
    from_left = left is None or (right is not None and not any(isinstance(scope.find(x), Pack) for x in _identifiers(left)))
    pack, start = (right, left) if from_left else (left, right)
    assert pack is not None
    before = [value(r, start, scope)] if start is not None and from_left else []
    items = [*before, *expanded(r, pack, scope), *([value(r, start, scope)] if start is not None and not from_left else [])]
    if not items:
        if op in ("&&", "||"):
            return Scalar(build.const(op == "&&", BOOL))
        raise NotUnderstood("a fold over nothing", node)

    def joined(a: Value, b: Value) -> Value:
        if op in ("&&", "||"):
            return Scalar((build.logical_and if op == "&&" else build.logical_or)(condition(r, a, node), condition(r, b, node)))
        return b if op == "," else operators.binary(r, op, a, b, node)
    if from_left or op == ",":
        return reduce(joined, items)
    return reduce(lambda b, a: joined(a, b), reversed(items))


def _type_as_value(r: Reading, node: Node, scope: Scope) -> Value:
    return TypeName(r.types.base_type(node, scope))


_HANDLERS: dict[str, Callable[[Reading, Node, Scope], Value]] = {
    "number_literal": literals.number,
    "true": lambda r, node, s: Scalar(build.const(True, BOOL)),
    "false": lambda r, node, s: Scalar(build.const(False, BOOL)),
    "null": lambda r, node, s: Null(),
    "nullptr": lambda r, node, s: Null(),
    "char_literal": literals.character,
    "string_literal": literals.string,
    "concatenated_string": literals.string,
    "raw_string_literal": literals.string,
    "identifier": _name,
    "type_identifier": _name,
    "qualified_identifier": _name,
    "namespace_identifier": _name,
    "template_function": _template_function,
    "this": _this,
    "binary_expression": _binary,
    "unary_expression": _unary,
    "update_expression": _update,
    "assignment_expression": _assignment,
    "conditional_expression": _conditional,
    "comma_expression": _comma,
    "parenthesized_expression": _parenthesized,
    "cast_expression": _cast,
    "pointer_expression": places.pointer,
    "subscript_expression": places.subscript,
    "field_expression": places.field,
    "call_expression": calls.call,
    "sizeof_expression": _sizeof,
    "alignof_expression": _alignof,
    "lambda_expression": _lambda,
    "compound_literal_expression": _compound,
    "fold_expression": _fold,
    "gnu_asm_expression": assembly,
    "primitive_type": _type_as_value,
    "type_descriptor": _type_as_value,
    "sized_type_specifier": _type_as_value,
    "template_type": _type_as_value,
    "decltype": _type_as_value,
    "condition_clause": _parenthesized,
}
