"""Anti-unification: the most special pattern that several places have in common (Plotkin 1970), to be read by people.

A place becomes a term of what matters for a pattern: kinds of statements, operators, spaces of memory. Names and types are left out.
"""
from __future__ import annotations

from collections.abc import Sequence

from kir.ir import nodes as n
from kir.rewrite.edit import Place

Term = str | tuple["Term", ...]
"""A leaf, or a head and its arguments."""
MOST_DEPTH = 5
MOST_ARGUMENTS = 6


def term(node: object, depth: int = MOST_DEPTH) -> Term:
    """The term of a place; what lies deeper than `depth` is a leaf `..`."""
    if depth == 0:
        return ".."
    match node:
        case n.Const():
            return str(node.value)
        case n.Var():
            return "index"
        case n.Region():
            return (node.buffer.space, *(term(i, depth - 1) for i in node.index))
        case n.Span():
            return ("tile", str(node.extent) if isinstance(node.extent, int) else term(node.extent, depth - 1))
        case n.Load():
            return ("load", term(node.at, depth), *(("masked",) if node.mask is not None else ()))
        case n.Binary() | n.Unary():
            return (node.op, *(term(x, depth - 1) for x in ((node.a, node.b) if isinstance(node, n.Binary) else (node.x,))))
        case n.Cast():
            return ("cast", term(node.x, depth - 1))
        case n.Select():
            return ("select", *(term(x, depth - 1) for x in (node.cond, node.a, node.b)))
        case n.Call():
            return (node.fn, *(term(x, depth - 1) for x in node.args[:MOST_ARGUMENTS]))
        case n.Stmt() | n.Kernel():
            return _statement(node, depth)
        case _:
            return type(node).__name__.lower()


def _statement(node: Place, depth: int) -> Term:
    match node:
        case n.Kernel():
            many, threads = len(node.grid), str(term(node.threads))
            return ("kernel", f"{many} ax{'i' if many == 1 else 'e'}s", f"{threads} thread{'s' * (threads != '1')}")
        case n.Store():
            return ("store", term(node.at, depth - 1), term(node.value, depth - 1))
        case n.Copy():
            return ("copy", term(node.src, depth - 1), term(node.dst, depth - 1), node.via)
        case n.Mma():
            return ("mma", term(node.a, depth - 1), term(node.b, depth - 1), node.via)
        case n.Let():
            return ("let", term(node.value, depth - 1))
        case n.Alloc():
            return ("alloc", node.buffer.space, *(term(d, 1) for d in node.buffer.shape))
        case n.For():
            body = (term(s, depth - 2) if depth > 2 else ".." for s in node.body[:MOST_ARGUMENTS])
            return ("for", node.kind, term(node.lo, 2), term(node.hi, 2), ("body", *body))
        case _:
            return type(node).__name__.lower()


def unified(terms: Sequence[Term]) -> Term:
    """The most special term of which all are instances. What differs is `?1`, `?2`, ..: the same name where the same things differ."""
    names: dict[tuple[Term, ...], str] = {}
    return _unified(tuple(terms), names)


def _unified(terms: tuple[Term, ...], names: dict[tuple[Term, ...], str]) -> Term:
    first = terms[0]
    if all(each == first for each in terms):
        return first
    if all(isinstance(each, tuple) and isinstance(first, tuple) and each[0] == first[0] and len(each) == len(first) for each in terms):
        return (first[0], *(_unified(tuple(each[k] for each in terms), names) for k in range(1, len(first))))
    heads = {each[0] for each in terms if isinstance(each, tuple)}
    if len(heads) == 1 and all(isinstance(each, tuple) for each in terms):
        return (next(iter(heads)), "..")  # of different length
    return names.setdefault(terms, f"?{len(names) + 1}")


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
         "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
"""How operators are written between their operands."""


def shown(found: Term) -> str:
    """A term as a line of text, much like the IR's own."""
    if isinstance(found, str):
        return found
    head, *rest = found
    told = [_bare(shown(each)) if head not in INFIX else shown(each) for each in rest]
    match str(head), told:
        case op, [a, b] if op in INFIX:
            return f"({a} {INFIX[op]} {b})"
        case "let", [value]:
            return f"let .. = {_bare(value)}"
        case "store", [at, value]:
            return f"{at} = {_bare(value)}"
        case "copy", [src, dst, *via]:
            return f"copy {src} -> {dst}{f' via {via[0]}' if via and via[0] != 'plain' else ''}"
        case "mma", [a, b, *via]:
            return f"mma acc += {a} * {b}{f' via {via[0]}' if via and via[0] != 'auto' else ''}"
        case "for", [kind, lo, hi, body]:
            return f"{'' if kind == 'serial' else kind + ' '}for {lo}..{hi}: {body}"
        case "body", _:
            return "; ".join(told)
        case "load", [at, *masked]:
            return f"{at}{' masked' if masked else ''}"
        case ("global" | "shared" | "fragment" | "register" | "constant") as space, _:
            return f"{space}[{', '.join(told)}]"
        case "alloc", [space, *extents]:
            return f"{space} buffer" + (f"[{', '.join(extents)}]" if extents else "")
        case "tile", [extent]:
            return f"+: {extent}"
        case "kernel", _:
            return f"kernel of {', '.join(told)}"
        case name, _:
            return f"{name}({', '.join(told)})"


def _bare(text: str) -> str:
    """A text without the parentheses around all of it."""
    depth = [text[:k + 1].count("(") - text[:k + 1].count(")") for k in range(len(text))]
    return text[1:-1] if text.startswith("(") and depth.index(0) == len(text) - 1 else text


def generality(found: Term) -> int:
    """How many variables and ellipses a term has."""
    if isinstance(found, str):
        return 1 if found.startswith("?") or found == ".." else 0
    return sum(generality(each) for each in found)
