"""Nodes of the syntax tree: their text, the names that declarators declare, and what stands below."""

from __future__ import annotations

from ..types.errors import NotUnderstood
from .source import Node


def text(node: Node) -> str:
    """The (preprocessed) text of a node."""
    return (node.text or b"").decode(errors="replace")


def function_declarator(node: Node) -> Node:
    """The function declarator below a definition or declaration. Raises NotUnderstood when there is none."""
    d = node.child_by_field_name("declarator")
    while d is not None and d.type not in ("function_declarator", "abstract_function_declarator"):
        d = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator")), None)
    if d is None:
        raise NotUnderstood("a function of unusual form", node)
    return d


def declared_name(node: Node) -> Node | None:
    """The name node of a declarator."""
    d: Node | None = node
    while d is not None and d.type not in NAMES:
        d = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator") or c.type in NAMES), None)
    return d


def initial_value(node: Node, declarator: Node) -> Node | None:
    """What one declarator of a declaration begins with: of several members in one line (`int a = 1, b = 2;`) each has its own."""
    if declarator.type == "init_declarator":
        return declarator.child_by_field_name("value")
    found = False
    for k, c in enumerate(node.children):
        field = node.field_name_for_child(k)
        if field == "declarator":
            found = c == declarator
        elif field == "default_value" and found:
            return c
    return None


NAMES = frozenset(
    {"identifier", "field_identifier", "type_identifier", "qualified_identifier", "operator_name", "template_function", "destructor_name",
     "operator_cast", "structured_binding_declarator", "template_method"}
)  # fmt: skip


def contains(node: Node, kind: str) -> bool:
    """Whether a statement of a kind stands below, outside lambdas."""
    stack = [node]
    while stack:
        top = stack.pop()
        if top.type == kind:
            return True
        stack += [c for c in top.named_children if c.type != "lambda_expression"]
    return False
