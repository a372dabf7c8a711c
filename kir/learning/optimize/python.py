"""Whole-number expressions of a launch plan in Python."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir import nodes as n
from kir.ir.printer import expr_text

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
             "and": "and", "or": "or"}
"""How Python writes operators."""


def python_expression(e: n.Expr, names: Mapping[str, str], ceildiv: str = "") -> str:
    """The expression, with these names for its variables, and one for a function that divides and rounds up. Raises KeyError for what is no arithmetic of
    whole numbers."""
    match e:
        case n.Const():
            return repr(e.value)
        case n.Var():
            return names[e.name]
        case n.Cast():
            return python_expression(e.x, names, ceildiv)
        case n.Binary(op="ceildiv") if ceildiv:
            return f"{ceildiv}({python_expression(e.a, names, ceildiv)}, {python_expression(e.b, names, ceildiv)})"
        case n.Binary(op="ceildiv"):
            return f"-(-({python_expression(e.a, names)}) // {python_expression(e.b, names)})"
        case n.Binary(op="min" | "max"):
            return f"{e.op}({python_expression(e.a, names, ceildiv)}, {python_expression(e.b, names, ceildiv)})"
        case n.Binary() if e.op in OPERATORS:
            sides = [python_expression(x, names, ceildiv) for x in (e.a, e.b)]
            for k, x in enumerate((e.a, e.b)):
                if isinstance(x, n.Binary) and x.op in OPERATORS and not (k == 0 and x.op == e.op == "and"):
                    sides[k] = f"({sides[k]})"
            return f" {OPERATORS[e.op]} ".join(sides)
        case _:
            raise KeyError(expr_text(e))
