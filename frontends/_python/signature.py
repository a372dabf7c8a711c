"""What the signature of a kernel says of its parameters."""
from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from .project import parts


def nodes_below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Every node below, parents first, without layout."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(tuple(parts(top))))


def parameters(f: cst.FunctionDef) -> tuple[cst.Param, ...]:
    """All parameters, in order."""
    return (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params)


def literal_value(e: cst.Integer | cst.Float | cst.SimpleString | cst.ConcatenatedString) -> int | float | str | bytes | None:
    """The value of a number, or of a text, as it is written; None of one that is put together of others in part (`"a" f"{b}"`)."""
    parts: list[cst.BaseExpression] = [e]
    while parts:
        part = parts.pop()
        if isinstance(part, cst.ConcatenatedString):
            parts += [part.left, part.right]
        elif not isinstance(part, (cst.Integer, cst.Float, cst.SimpleString)):
            return None
    try:
        return e.evaluated_value
    except (SyntaxError, ValueError):  # an escape of no character: Python refuses the file
        return None


def annotation_text(p: cst.Param) -> str:
    """The last word of a parameter's annotation, "" without one."""
    if p.annotation is None:
        return ""
    a = p.annotation.annotation
    if isinstance(a, cst.SimpleString):
        return str(a.evaluated_value).split(".")[-1]
    while isinstance(a, cst.Subscript):
        a = a.value
    if isinstance(a, cst.Attribute):
        return a.attr.value
    return a.value if isinstance(a, cst.Name) else ""


def is_constexpr(p: cst.Param) -> bool:
    """Whether a parameter is a meta."""
    return annotation_text(p).partition("[")[0] == "constexpr"


def stated_kind(p: cst.Param) -> str:
    """The kind that an annotation `"constexpr[int]"`, `"integer"`, `"scalar"` or `"pointer"` states, "" without one. Triton reads these as `constexpr` and
    as no type at all; they tell a reader what the body of a kernel need not show."""
    word = annotation_text(p)
    if word in ("integer", "scalar", "pointer"):
        return word
    return word.partition("[")[2].rstrip("]")


def tile_extents(p: cst.Param) -> tuple[str, ...]:
    """The names of the extents of a tile that a parameter states itself to be, "" for one without: `"tile[2]"`, or `"tile[M, N]"` where others have them
    too, `"tile[M, =1]"` for one that is a number. () for a parameter that states nothing of that kind."""
    if not annotation_text(p).startswith("tile["):
        return ()
    said = stated_kind(p)
    return ("",) * int(said) if said.isdigit() else tuple(x.strip() for x in said.split(","))


def is_none(s: cst.BaseSlice) -> bool:
    """Whether an expression is `None`."""
    return isinstance(s, cst.Index) and isinstance(s.value, cst.Name) and s.value.value == "None"


def sizes_of_calls(node: cst.FunctionDef, words: Collection[str]) -> set[str]:
    """The names that stand alone as the one argument of calls of these words, or as an extent in it: `unroll(n)`, `alloc_local((n,))`, not `unroll(n // 8)`."""
    out = set[str]()
    for x in nodes_below(node):
        if isinstance(x, cst.Call) and isinstance(x.func, cst.Attribute) and x.func.attr.value in words:
            for first in [each.value for each in x.args if each.keyword is None][:1]:
                extents = [e.value for e in first.elements] if isinstance(first, (cst.Tuple, cst.List)) else [first] if _only(x) else []
                out |= {e.value for e in extents if isinstance(e, cst.Name)}
    return out


def _only(call: cst.Call) -> bool:
    return sum(each.keyword is None for each in call.args) == 1


def first_name(e: cst.BaseExpression) -> str:
    """The name that a sum begins with; "" where that is no name."""
    while isinstance(e, cst.BinaryOperation) and isinstance(e.operator, (cst.Add, cst.Subtract)):
        e = e.left
    return e.value if isinstance(e, cst.Name) else ""


def extents_given(args: list[cst.BaseExpression]) -> int:
    """How many extents a shape has that is given as a tuple or one argument each; 0 for one in a name."""
    return len(args[0].elements) if len(args) == 1 and isinstance(args[0], (cst.Tuple, cst.List)) else len(args) if len(args) > 1 else 0
