"""Classes instantiated: a template under arguments becomes a class with bases and declarations of its own."""

from __future__ import annotations

from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import ClassInstance, Rec
from ..symbols.symbols import ClassTemplate, Function, Scope
from ..types.errors import NotUnderstood
from ..values.reading import Reading
from ..values.values import TypeName


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
        r.index.one(child, scope, t.unit, None)
    for decls in scope.decls.values():
        for d in decls:
            if isinstance(d, Function):
                d.owner = made
    constructors = scope.decls.get(t.name, [])
    scope.decls[t.name] = [d for d in constructors if isinstance(d, Function)]
    return rec
