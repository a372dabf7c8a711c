"""Classes instantiated: a template under arguments becomes a class with bases and declarations of its own."""

from __future__ import annotations

from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import ClassInstance, Rec
from ..symbols.symbols import ClassTemplate, Function, Scope
from ..types.errors import NotUnderstood
from ..values.reading import Reading
from ..values.values import TypeName


def _overlaid(child: Node) -> tuple[Node, list[str]] | None:
    """A union without a name of one declaration (`union { T x, r, s; };`): the declaration, and its names, which are all one member. None for anything else.
    Raises NotUnderstood for one of several declarations."""
    kind = child.child_by_field_name("type") if child.type == "field_declaration" else None
    body = kind.child_by_field_name("body") if kind is not None and kind.type == "union_specifier" else None
    if child.children_by_field_name("declarator") or body is None or kind is None or kind.child_by_field_name("name") is not None:
        return None
    parts = [c for c in body.named_children if c.type == "field_declaration"]
    if len(parts) != 1 or len(parts) != sum(c.type != "comment" for c in body.named_children):
        raise NotUnderstood("a union of several types inside a class", child)
    return parts[0], [text(d) for d in parts[0].children_by_field_name("declarator")]


def instantiate(r: Reading, t: ClassTemplate, node: Node | None, parent: Scope, values: dict[str, object], arguments: tuple[object, ...]) -> Rec:
    """The class under template bindings."""
    if node is None:
        raise NotUnderstood(f"the class '{t.name}', which is only declared")
    scope = Scope(parent, t.unit, t.name, values=dict(values))  # type: ignore[arg-type]  # bindings are values
    shown = f"{t.name}<{', '.join(map(str, arguments))}>" if arguments else t.name
    made = ClassInstance(shown, t, node, scope, r.types, arguments)
    scope.instance = made
    rec = Rec(made)
    scope.values[t.name] = TypeName(rec)
    for c in node.children:
        if c.type == "base_class_clause":
            for b in c.named_children:
                if b.type in ("type_identifier", "template_type", "qualified_identifier"):
                    base = r.types.base_type(b, scope)
                    if not isinstance(base, Rec):
                        raise NotUnderstood(f"the base class {text(b)}", b)
                    made.bases.append(base.instance)
    body = node.child_by_field_name("body")
    if body is None:
        raise NotUnderstood(f"the class '{t.name}', which is only declared", node)
    for child in body.named_children:
        overlaid = _overlaid(child)
        if overlaid is None:
            r.index.one(child, scope, t.unit, None)
            continue
        r.index.one(overlaid[0], scope, t.unit, None)
        first, *others = overlaid[1]
        for name in others:
            made.aliases[name] = first
        for name in others:
            scope.decls.pop(name, None)
    for decls in scope.decls.values():
        for d in decls:
            if isinstance(d, Function):
                d.owner = made
    constructors = scope.decls.get(t.name, [])
    scope.decls[t.name] = [d for d in constructors if isinstance(d, Function)]
    return rec
