"""Classes instantiated: a template under arguments becomes a class with bases and declarations of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir.types import BOOL

from ..source.source import Node, Unit
from ..source.syntax import text
from ..symbols.classes import ClassInstance, Rec, Together
from ..symbols.symbols import ClassTemplate, EnumType, Function, Scope, Value, Variable
from ..types.c_types import Named
from ..types.errors import Incomplete, NotUnderstood
from ..values.reading import Reading
from ..values.values import Scalar, TypeName


def _constant_of(base: Named) -> Value | None:
    """The `value` that a class has from `std::true_type` and the like."""
    if base.name in ("true_type", "false_type"):
        return Scalar(build.const(base.name == "true_type", BOOL))
    return base.args[-1] if base.name in ("bool_constant", "integral_constant") and base.args and isinstance(base.args[-1], Scalar) else None


def _overlaid(child: Node) -> tuple[Node, list[str]] | None:
    """A union without a name of one declaration (`union { T x, r, s; };`): the declaration, and its names, which are all one member. None for anything
    else."""
    body = _nameless(child)
    if body is None or _kind(child) != "union_specifier":
        return None
    parts = [c for c in body.named_children if c.type == "field_declaration"]
    if len(parts) != 1 or len(parts) != sum(c.type != "comment" for c in body.named_children):
        return None
    names = [text(d) for d in parts[0].children_by_field_name("declarator")]
    return (parts[0], names) if names else None


def _kind(child: Node) -> str:
    kind = child.child_by_field_name("type")
    return kind.type if kind is not None else ""


def _nameless(child: Node) -> Node | None:
    """The body of a union or struct without a name inside a class."""
    kind = child.child_by_field_name("type") if child.type == "field_declaration" else None
    if kind is None or kind.type not in ("union_specifier", "struct_specifier") or kind.child_by_field_name("name") is not None:
        return None
    return None if child.children_by_field_name("declarator") else kind.child_by_field_name("body")


def _spread(r: Reading, child: Node, scope: Scope, unit: Unit, of: ClassInstance) -> Together | None:
    """A union or struct without a name, its members declared as ones of the class around it; None for a child that is none."""
    body = _nameless(child)
    if body is None:
        return None
    parts: list[Together | str] = []
    for c in body.named_children:
        inner = _spread(r, c, scope, unit, of)
        if inner is not None:
            parts.append(inner)
            continue
        before = set(scope.decls)
        r.index.one(c, scope, unit, None)
        parts += [name for name, found in scope.decls.items() if name not in before and any(isinstance(d, Variable) for d in found)]
    return Together(_kind(child) == "union_specifier", tuple(parts))


def using_enum(r: Reading, node: Node, scope: Scope) -> bool:
    """`using enum C::E;`: the enumerators of an enumeration inside a class, named where it stands. False for another declaration."""
    named = next((c for c in node.named_children), None)
    if named is None or named.type != "qualified_identifier" or not any(text(c) == "enum" for c in node.children):
        return False
    *owner, last = text(named).split("::")
    found = r.index.resolve_namespace("::".join(owner[:-1]), scope) if len(owner) > 1 else scope
    known = found.find(owner[-1]) if found is not None else None
    kind = next((d for d in known if isinstance(d, ClassTemplate)), None) if isinstance(known, list) else None
    if kind is None:
        return False
    inside = r.types.of_template(kind.name, (), kind.scope, named)
    enums = inside.instance.scope.decls.get(last, []) if isinstance(inside, Rec) else []
    for e in enums:
        if isinstance(e, EnumType):
            for name, values in e.scope.decls.items():
                for d in values:
                    scope.declare(name, d)
    return bool(enums)


def instantiate(r: Reading, t: ClassTemplate, node: Node | None, parent: Scope, values: dict[str, object], arguments: tuple[object, ...],
                known: Callable[[Rec], None] | None = None) -> Rec:
    """The class under template bindings; it is `known` before its bases and members are, which may name it."""
    if node is None or node.child_by_field_name("body") is None:
        raise Incomplete(f"the class '{t.name}', which is only declared", t.name, (t, *arguments))
    scope = Scope(parent, t.unit, t.name, values=dict(values))  # type: ignore[arg-type]  # bindings are values
    shown = f"{t.name}<{', '.join(map(str, arguments))}>" if arguments else t.name
    made = ClassInstance(shown, t, node, scope, r.types, arguments)
    scope.instance = made
    rec = Rec(made)
    scope.values[t.name] = TypeName(rec)
    if known is not None:
        known(rec)
    for c in node.children:
        if c.type == "base_class_clause":
            for b in c.named_children:
                if b.type in ("type_identifier", "template_type", "qualified_identifier"):
                    base = r.types.base_type(b, scope)
                    if isinstance(base, Named) and (value := _constant_of(base)) is not None:
                        scope.values["value"] = value
                        continue
                    if not isinstance(base, Rec):
                        raise NotUnderstood(f"the base class {text(b)}", b)
                    made.bases.append(base.instance)
    body = node.child_by_field_name("body")
    assert body is not None
    for child in body.named_children:
        if child.type == "using_declaration" and using_enum(r, child, scope):
            continue
        overlaid = _overlaid(child)
        if overlaid is None:
            together = _spread(r, child, scope, t.unit, made)
            if together is None:
                r.index.one(child, scope, t.unit, None)
            else:
                made.together.append(together)
            continue
        r.index.one(overlaid[0], scope, t.unit, None)
        first, *others = overlaid[1]
        for name in others:
            made.aliases[name] = first
        for name in others:
            scope.decls.pop(name, None)
    for decls in scope.decls.values():
        for d in decls:
            if isinstance(d, Function) and not d.friend:
                d.owner = made
    constructors = [d for d in scope.decls.get(t.name, []) if isinstance(d, Function)]
    scope.decls[t.name] = [replace(d, arguments=None) for d in constructors]  # `C<T>(T x)`: the arguments are those of the class
    return rec
