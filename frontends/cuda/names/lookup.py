"""Names of the source: what a plain or qualified one stands for, and the values of constants."""

from __future__ import annotations

import re

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I64

from ..source.source import Node, fragment
from ..source.syntax import text
from ..symbols.classes import Rec, is_static, leaf
from ..symbols.symbols import Alias, ClassTemplate, Enumerator, EnumType, Function, Scope, Value, Variable
from ..types.c_types import Arr, Auto, CType
from ..types.errors import NotUnderstood, endless
from ..values.conversions import convert, scalar
from ..values.loads import rvalue
from ..values.memory import Place, Store
from ..values.reading import MAX_CALLS, Reading
from ..values.shared_arrays import shared_array
from ..values.values import Builtin, Lambda, Located, Overloads, Scalar, TypeName, integer


def named_value(r: Reading, node: Node, scope: Scope) -> Value | list[object]:
    """What a plain or qualified name stands for; a list of declarations for types and functions."""
    if node.type == "qualified_identifier":
        inner = scope_of(r, node, scope)
        name = name_of(node)
        assert name is not None
        if isinstance(inner, Scope):
            if name.type == "qualified_identifier":
                return named_value(r, name, seen_from(scope, inner))
            shown = name.child_by_field_name("name") if name.type in ("template_function", "template_type") else name
            found = inner.own(text(shown or name))
            if found is not None:
                return found
            if node.child_by_field_name("scope") is None and name.type == "identifier":  # `::tanhf`
                return r.library.value(text(name), node)
        return r.library.qualified_value(node, scope)
    found = scope.find(text(node))
    if found is not None:
        return found
    return r.library.value(text(node), node)


def name_of(node: Node) -> Node | None:
    """What stands last in a qualified name: also behind the word `template`."""
    name = node.child_by_field_name("name")
    while name is not None and name.type == "dependent_name":
        name = name.named_children[0]
    return name


def of_values(r: Reading, node: Node, scope: Scope) -> Node | None:
    """`a < b && c > -1`, `a < b && c > (d)`, `a < b && c >= d` as what they are where `a` is a value: a grammar of C++ without names takes `a<b && c>` for
    a template, and the last for an assignment to it."""
    first: Node | None = node
    nearest = "left"
    while first is not None and first.type in ("binary_expression", "call_expression", "assignment_expression"):
        found_at, nearest = ("left", "right") if first.type == "assignment_expression" else (nearest, nearest)
        first = first.child_by_field_name("function" if first.type == "call_expression" else found_at)
    name = first.child_by_field_name("name") if first is not None and first is not node and first.type == "template_function" else None
    if name is None or name.type != "identifier":
        return None
    found = scope.find(text(name))
    if found is None or isinstance(found, (list, Builtin, Overloads, TypeName, Lambda)):
        return None
    words, begin, end = (node.text or b""), name.start_byte - node.start_byte, name.end_byte - node.start_byte
    return fragment(f"{words[:begin].decode()}({text(name)}){words[end:].decode()}")


def seen_from(scope: Scope, inner: Scope) -> Scope:
    """Where the rest of a qualified name is looked up: in what it has named so far, its template arguments in the scope that it stands in."""
    return Scope(scope, scope.unit, using=[inner], this=scope.this)


def scope_of(r: Reading, node: Node, scope: Scope) -> Scope | None:
    """The namespace or class that a qualified name starts in; None for one of a library."""
    left = node.child_by_field_name("scope")
    if left is None:
        return r.index.root
    if left.type in ("namespace_identifier", "identifier", "type_identifier"):
        found = scope.find(text(left))
        if isinstance(found, TypeName):
            return found.type.instance.scope if isinstance(found.type, Rec) else None
        for d in found if isinstance(found, list) else ():
            if isinstance(d, Scope):
                return d
            if isinstance(d, EnumType):
                return d.scope
            if isinstance(d, Alias) and (listed := _enumeration(r, d)) is not None:
                return listed
            made = r.types.declared_as_type(d, scope)
            if isinstance(made, Rec):
                return made.instance.scope
        return None
    if left.type in ("template_type", "dependent_type", "decltype"):
        try:
            made = r.types.base_type(left, scope)
        except NotUnderstood:
            if left.type == "template_type":
                return None
            raise
        return made.instance.scope if isinstance(made, Rec) else None
    return None


def _enumeration(r: Reading, d: Alias, depth: int = 0) -> Scope | None:
    """The enumerators of the enumeration that an alias stands for; None for an alias of something else."""
    if d.type.type not in ("type_identifier", "qualified_identifier", "type_descriptor") or depth > MAX_CALLS:
        return None
    node = d.type if d.type.type != "type_descriptor" else d.type.child_by_field_name("type") or d.type
    if node.type == "qualified_identifier":
        inner, name = scope_of(r, node, d.scope), node.child_by_field_name("name")
        found = inner.own(text(name)) if inner is not None and name is not None else None
    else:
        found = d.scope.find(text(node))
    for each in found if isinstance(found, list) else ():
        if isinstance(each, EnumType):
            return each.scope
        if isinstance(each, Alias) and each is not d:
            return _enumeration(r, each, depth + 1)
    return None


def of_declarations(r: Reading, found: list[object], name: str, node: Node, args: tuple[Value, ...] | None = None) -> Value:
    """The value of declared names: functions, constants, types."""
    functions = tuple(d for d in found if isinstance(d, Function))
    if functions:
        return Overloads(functions, args, None, name)
    d = found[0]
    match d:
        case Variable():
            return variable(r, d, node, args)
        case Enumerator():
            return enumerator(r, d)
        case ClassTemplate() if args:
            return TypeName(r.types.of_template(d.name, args, d.scope, node))
        case ClassTemplate() | Alias() | EnumType():
            made = r.types.declared_as_type(d, d.scope)
            if made is not None:
                return TypeName(made)
    raise NotUnderstood(f"'{name}' as a value", node)


def enumerator(r: Reading, e: Enumerator) -> Value:
    """The value of an enumerator."""
    if e.init is not None:
        return rvalue(r, r.value(e.init, e.scope))
    if e.after is None:
        return integer(0)
    return Scalar(build.add(scalar(r, enumerator(r, e.after)), 1))


def device_tensor(r: Reading, d: Variable, node: Node, constant: bool) -> Value | None:
    """A variable of the device (`__device__`, or `__constant__` that the host fills) as a tensor of the program, of its name; None for one whose value is
    written beside it, which is a constant. Raises NotUnderstood for one of several dtypes, and for a name that the kernel has otherwise."""
    words = {text(c) for c in d.node.children if c.type in ("type_qualifier", "storage_class_specifier")}
    if d.init is not None and (constant or words & {"const", "constexpr"}):
        return None
    kind = _sized(d, r.types.declared_type(d.node, d.declarator, d.scope)[0])
    row = leaf(kind)
    if row is None:
        raise NotUnderstood(f"the variable '{d.name}' of the device, which is {kind}", node)
    dtype, count = row
    if d.name not in r.devices:
        if d.name in r.m.taken:
            raise NotUnderstood(f"the variable '{d.name}' of the device, whose name the kernel gives to something else", node)
        buffer = n.Buffer(d.name, dtype, (build.const(count),), "global")
        store = Store(d.name, "global", dtype, (), build.const(count * dtype.bytes, I64), tensor=buffer)
        r.m.taken.add(d.name)
        r.stores.append(store)
        r.devices[d.name] = store
    made = Located(Place(r.devices[d.name], (), build.const(0, I64), "volatile" in words), kind)
    if not d.params:
        r.constants[id(d)] = made
    return made


def _sized(d: Variable, kind: CType) -> CType:
    """The type of an array whose size its list of values says."""
    if isinstance(kind, Arr) and kind.n == 0 and d.init is not None and d.init.type == "initializer_list":
        return Arr(kind.of, len([c for c in d.init.named_children if c.type != "comment"]))
    return kind


def _set_by_host(r: Reading, name: str) -> bool:
    """Whether a call that copies to, or asks for the address of, a symbol (`cudaMemcpyToSymbol`, ..) names a variable."""
    call = re.compile(rb"Symbol\w*\s*(?:<[^;()]*>\s*)?\([^;]*\b" + re.escape(name.encode()) + rb"\b")
    return any(call.search(u.text) is not None for u in r.sources.units)


def variable(r: Reading, d: Variable, node: Node, args: tuple[Value, ...] | None) -> Value:
    """A constant of a namespace or class. Raises NotUnderstood for one that is no constant."""
    if d.params and args is None:
        raise NotUnderstood(f"the template '{d.name}' without arguments", node)
    if not d.params and id(d) in r.constants:
        return r.constants[id(d)]
    words = {text(c) for c in d.node.children if c.type in ("type_qualifier", "storage_class_specifier")}
    if not d.params and "register" in words:  # `__shared__` outside of the kernel: as if in it
        made = r.constants[id(d)] = shared_array(r, d.node, d.declarator, d.name, "extern" in words, d.scope)
        return made
    if (not d.params and words & {"inline", "__inline__"} and d.scope.parent is None) or (words & {"inline", "__inline__"} and d.init is None):
        made_tensor = device_tensor(r, d, node, "__inline__" in words)
        if made_tensor is not None:
            return made_tensor
    filled = "__inline__" in words and d.init is not None and not _set_by_host(r, d.name)
    if not words & {"const", "constexpr"} and not (is_static(d) and d.init is not None) and not filled:
        raise NotUnderstood(f"the variable '{d.name}' of the device, which lives longer than the kernel", node)
    if d.init is None or d.reading:
        raise NotUnderstood(f"the constant '{d.name}', whose value is not given here", node)
    scope = d.scope.inner(**r.types.bound(d.params, args or (), d.scope, node)) if d.params else d.scope
    if r.depth >= MAX_CALLS:
        raise endless(f"the templates that '{d.name}' is a constant of", scope.unit.origin(d.node))
    d.reading = True
    r.depth += 1
    try:
        kind = _sized(d, r.types.declared_type(d.node, d.declarator, scope)[0])
        value = rvalue(r, r.value(d.init, scope)) if d.init.type != "initializer_list" else r.braced(d.init, kind, scope)
        made = value if isinstance(kind, (Auto, Arr)) else convert(r, value, kind)
    except RecursionError:
        raise endless(f"the templates that '{d.name}' is a constant of", scope.unit.origin(d.node)) from None
    finally:
        d.reading = False
        r.depth -= 1
    if not d.params:
        r.constants[id(d)] = made
    return made
