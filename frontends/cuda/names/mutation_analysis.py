"""Which names a piece of source may change: what is assigned to, and what goes somewhere by address or reference."""

from __future__ import annotations

from ..source.source import Node
from ..source.syntax import text
from ..symbols.symbols import Function, Scope
from ..values.reading import Reading


def function_body(node: Node) -> Node | None:
    """The body of the function or lambda that a node stands in."""
    at: Node | None = node
    while at is not None and not (at.type == "compound_statement" and at.parent is not None and at.parent.type in ("function_definition", "lambda_expression")):
        at = at.parent
    return at


def mutated(r: Reading, body: Node | None, scope: Scope) -> frozenset[str]:
    """Names in a piece of source that are assigned to, or whose address or reference goes somewhere."""
    if body is None:
        return frozenset()
    if body.id in r.mutable:
        return r.mutable[body.id]
    out: set[str] = set()
    stack = [body]
    while stack:
        node = stack.pop()
        match node.type:
            case "assignment_expression":
                _base(node.child_by_field_name("left"), out)
                _decayed(node.child_by_field_name("right"), out)
            case "update_expression":
                _base(node.child_by_field_name("argument"), out)
            case "pointer_expression" if node.children and text(node.children[0]) == "&":
                _base(node.child_by_field_name("argument"), out)
            case "lambda_capture_initializer" if text(node).startswith("&"):
                _base(node.named_children[-1], out)
            case "gnu_asm_output_operand":
                _base(node.child_by_field_name("value"), out)
            case "call_expression":
                _called(r, node, scope, out)
            case "init_declarator" if (d := node.child_by_field_name("declarator")) is not None and d.type == "reference_declarator":
                _base(node.child_by_field_name("value"), out)
            case "init_declarator" | "cast_expression":
                _decayed(node.child_by_field_name("value"), out)
            case _:
                pass
        stack += node.named_children
    r.mutable[body.id] = frozenset(out)
    return r.mutable[body.id]


def _base(node: Node | None, out: set[str]) -> None:
    """The variable that a place belongs to; as `name[]` where it is reached through a subscript, which leaves a pointer alone."""
    through = ""
    while node is not None:
        if node.type == "identifier":
            out.add(text(node) + through)
            return
        if node.type in ("subscript_expression", "field_expression"):
            op = node.child_by_field_name("operator")
            if node.type == "subscript_expression" or (op is not None and text(op) == "->"):
                through = "[]"
            node = node.child_by_field_name("argument")
        elif node.type in ("parenthesized_expression",):
            node = node.named_children[0] if node.named_children else None
        elif node.type == "cast_expression":
            node = node.child_by_field_name("value")
        else:
            return


def _decayed(node: Node | None, out: set[str]) -> None:
    """The object of a member whose address goes somewhere if it is an array: `float* p = v.data;`."""
    while node is not None and node.type in ("parenthesized_expression", "binary_expression"):
        node = node.named_children[0] if node.named_children else None
    if node is None or node.type != "field_expression":
        return
    found: set[str] = set()
    _base(node, found)
    out |= {f"{name.removesuffix('[]')}[]" for name in found}


def _called(r: Reading, node: Node, scope: Scope, out: set[str]) -> None:
    fn, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if fn is None or listed is None:
        return
    if fn.type == "field_expression":
        _base(fn.child_by_field_name("argument"), out)
    if fn.type == "template_function" and (shown := fn.child_by_field_name("name")) is not None and text(shown) == "reinterpret_cast":
        targs = fn.child_by_field_name("arguments")
        if targs is not None and text(targs).rstrip("> ").endswith("&"):
            _base(listed.named_children[0] if listed.named_children else None, out)
    args = [a for a in listed.named_children if a.type != "comment"]
    for a in args:
        _decayed(a, out)
    if not any(a.type in ("identifier", "subscript_expression", "field_expression") for a in args):
        return
    name = fn
    while name.type in ("qualified_identifier", "template_function", "field_expression", "dependent_name", "template_method"):
        inner = name.child_by_field_name("field") if name.type == "field_expression" else name.child_by_field_name("name")
        if inner is None:
            inner = name.named_children[0] if name.named_children else None
        if inner is None:
            return
        name = inner
    functions = _functions_named(r, text(name), fn, scope)
    for k, a in enumerate(args):
        if a.type in ("identifier", "subscript_expression", "field_expression") and any(_takes_reference(f, k) for f in functions):
            _base(a, out)


def _functions_named(r: Reading, name: str, fn: Node, scope: Scope) -> list[Function]:
    found = scope.find(name) if fn.type != "field_expression" else None
    if isinstance(found, list):
        return [d for d in found if isinstance(d, Function)]
    if found is not None and type(found).__name__ in ("Lambda", "Members", "Located"):
        return []
    return [*r.index.functions.get(name, ()), *(r.index.methods(name) if fn.type == "field_expression" else ())]


def _takes_reference(f: Function, k: int) -> bool:
    params = f.parameters()
    if not params:
        return False
    p = params[min(k, len(params) - 1)]
    if k >= len(params) and p.type != "variadic_parameter_declaration":
        return False
    d = p.child_by_field_name("declarator")
    const = any(c.type == "type_qualifier" and text(c) == "const" for c in p.children)
    return d is not None and "reference" in d.type and not const
