"""What a place of a program says in whole numbers (tile extents, bytes of an element, threads, trips of loops), and relations between them
and a step's parameters."""
from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, names_mentioned, walk
from kir.rewrite.edit import Path, Place, block_at, node_at

Facts = Mapping[str, int]
CONSTANTS = (2, 4, 8, 16, 32, 64, 128, 256)
"""What extents and their bytes are compared with: widths of vectors, of warps, of rows of banks and of swizzles."""
SAYS = {"threads": "the number of threads of a CTA", "axes": "the number of axes of the grid", "itemsize": "the number of bytes of an element",
        "m": "the number of rows of the product", "n": "the number of columns of the product", "k": "the length of the product's sums",
        "trips": "the number of iterations", "power": "the least power of two from the number of iterations on",
        "extent0": "the first extent of the tile or buffer",
        "extent1": "the second extent of the tile or buffer", "extent2": "the third extent of the tile or buffer",
        "extent3": "the fourth extent of the tile or buffer"}
"""The facts of a place, and what each says."""
MOST_EXTENTS = 4
MOST_STATEMENTS = 4
"""Statements from a place on whose expressions a parameter may be drawn from."""


def kind(node: Place) -> str:
    """The kind of a place: `kernel`, `for`, `mma`, `store`, .."""
    return type(node).__name__.lower()


def expressions(program: n.Program, path: Path) -> Iterator[tuple[str, str]]:
    """The expressions of the statement at a place and of those that follow it in its block, as kind and text: nearest statement first, of one statement the
    longest first, each once; of statements within one those that are the same wherever it begins: they name nothing that is bound inside it."""
    last = path[-1]
    rest = block_at(program, path)[int(last):][:MOST_STATEMENTS] if isinstance(last, int) else (node_at(program, path),)
    seen: set[str] = set()
    for node in rest:
        if isinstance(node, (n.Kernel, n.For, n.While, n.If, n.Roles)):
            parts: list[n.Node] = [x for x in (getattr(node, name, None) for name in ("lo", "hi", "cond")) if isinstance(x, n.Node)]
        else:
            parts = [node]
        own = {expr_text(x): type(x).__name__.lower() for part in parts for x in walk(part) if isinstance(x, n.Expr) and not isinstance(x, (n.Const, n.Var))}
        for found in (own, {} if isinstance(node, n.Kernel) else _outer(node)):
            for text, kind_ in sorted(found.items(), key=lambda row: (-len(row[0]), row[0])):
                if text not in seen:
                    seen.add(text)
                    yield kind_, text


def _outer(node: n.Stmt) -> dict[str, str]:
    """Of what stands within a statement, the expressions that name nothing bound in there, by text, with their kinds."""
    blocks = blocks_of(node)
    if not blocks:
        return {}
    bound = {name for block in blocks for name in bound_names(block)} | ({node.var.name} if isinstance(node, n.For) else set())
    return {expr_text(x): type(x).__name__.lower() for block in blocks for s in block for x in walk(s)
            if isinstance(x, n.Expr) and not isinstance(x, (n.Const, n.Var)) and names_mentioned(x).isdisjoint(bound)}


def facts_at(program: n.Program, path: Path) -> Facts:
    """The facts of a place: `threads` of the CTA, `axes` of its grid and their extents where they are numbers; of the first tile there its
    extents, `itemsize` in bytes and `elements`; of a product m, n, k; of a loop its `trips`, and the power of two that they, or what a fact says they
    are at most, do not exceed (`power`); of a buffer its extents."""
    node = node_at(program, path)
    kernel = next((k for k in program.kernels if k.name == str(path[0])), None)
    found: dict[str, int | None] = {}
    if kernel is not None:
        found |= {"threads": int_value(kernel.threads), "axes": len(kernel.grid)}
    if isinstance(node, n.Mma):
        found |= _product(node)
    elif isinstance(node, n.Alloc):
        found |= {**{f"extent{k}": int_value(d) for k, d in enumerate(node.buffer.shape[-MOST_EXTENTS:])}, "itemsize": node.buffer.dtype.bytes}
    else:
        found |= _first_tile(node)
    if isinstance(node, n.For):
        ends = int_value(node.lo), int_value(node.hi), int_value(node.step)
        if ends[0] is not None and ends[1] is not None and ends[2]:
            found["trips"] = max(0, -(-(ends[1] - ends[0]) // ends[2]))
        most = found.get("trips") or (_at_most(program, node.hi) if ends[0] == 0 and ends[2] == 1 else None)
        found["power"] = 1 << (most - 1).bit_length() if most else None
    return {name: value for name, value in found.items() if value is not None}


def _at_most(program: n.Program, size: n.Expr) -> int | None:
    """The least number that a fact of a program bounds a size by; None where there is none."""
    found = (int_value(f.b) for f in program.facts if isinstance(f, n.Binary) and f.op == "le" and f.a == size)
    return min((each for each in found if each is not None), default=None)


def _product(node: n.Mma) -> dict[str, int | None]:
    a, b = node.a.type, node.b.type
    if not (isinstance(a, TileType) and isinstance(b, TileType)):
        return {}
    (m, k), cols = (_number(d) for d in a.shape[-2:]), _number(b.shape[-1])
    return {"m": m, "n": cols, "k": k, "itemsize": a.dtype.bytes}


def _first_tile(node: Place) -> dict[str, int | None]:
    types = (x.type for x in walk(node) if isinstance(x, (n.Load, n.Region)))
    tile = next((t for t in types if isinstance(t, TileType)), None)
    if tile is None:
        scalar = next((x for x in walk(node) if isinstance(x, n.Load)), None)
        return {} if scalar is None else {"itemsize": scalar.at.buffer.dtype.bytes}
    extents = [_number(d) for d in tile.shape[-MOST_EXTENTS:]]
    return {**{f"extent{k}": d for k, d in enumerate(extents)}, "itemsize": tile.dtype.bytes}


def _number(d: object) -> int | None:
    return d if isinstance(d, int) else int_value(d) if isinstance(d, n.Expr) else None


# ------------------------------------------------------------------------------------------------------------------------ relations

_FORM = re.compile(r"^(\w+)(?: \* (\w+))? (==|%|<=) (?:(\w+) \* )?(\w+)(?: == 0)?$")
"""`a == b`, `a * b == c`, `a == b * c`, `a % b == 0`, `a * b % c == 0`, `a <= b`."""


def holds(relation: str, values: Facts) -> bool | None:
    """Whether a relation holds; None where a name of it has no value. Raises ValueError for what is no relation."""
    op, words = _form(relation)
    known = [w if isinstance(w, int) else values.get(w) for w in words]
    if None in known:
        return None
    left, right = known[0] * known[1], known[2] * known[3]  # type: ignore[operator]  # none is None here
    if op == "%":
        return right != 0 and left % right == 0
    compare: Callable[[int, int], bool] = operator.eq if op == "==" else operator.le
    return compare(left, right)


@lru_cache(maxsize=1 << 14)
def _form(relation: str) -> tuple[str, tuple[int | str, ...]]:
    """The operator of a relation, and its four factors, two on each side: names or numbers."""
    form = _FORM.match(relation)
    if form is None:
        raise ValueError(f"'{relation}' is no relation")
    a, times, op, more, b = form.groups()
    return op, tuple(int(w) if w.isdigit() else w for w in (a, times or "1", more or "1", b))


def words_of(relation: str) -> tuple[str, ...]:
    """The names of parameters and facts in a relation. Raises ValueError for what is no relation."""
    return tuple(dict.fromkeys(w for w in _form(relation)[1] if isinstance(w, str)))


def relations(parameters: tuple[str, ...], facts: tuple[str, ...]) -> Iterator[str]:
    """The relations of a small grammar over names of parameters and facts: equalities, products that are equal, divisibilities, bytes of
    a row against the hardware's widths; the stronger ones first."""
    names = [f for f in facts if f not in ("itemsize", "axes")]
    for p in parameters:
        yield from (f"{p} == {f}" for f in names)
        if "itemsize" in facts:
            yield from (f"{p} * itemsize == {c}" for c in CONSTANTS)
        yield from (f"{p} == {c} * {f}" for f in names for c in (2, 4, 8))
        yield from (f"{p} * {c} == {f}" for f in names for c in (2, 4, 8, 16, 32))
        yield from (f"{p} == {f} * {g}" for f, g in combinations(names, 2))
        yield from (f"{p} * {f} == {g}" for f in names for g in names if f != g)
        yield from (f"{f} % {p} == 0" for f in names)
        yield from (f"{p} <= {f}" for f in names)
    for p, q in combinations(parameters, 2):
        yield from (f"{p} * {q} == {f}" for f in names)
        yield f"{p} == {q}"
    for f in names:
        if "itemsize" in facts:
            yield from (f"{f} * itemsize == {c}" for c in reversed(CONSTANTS))
            yield from (f"{f} * itemsize % {c} == 0" for c in reversed(CONSTANTS))
        yield from (f"{f} % {c} == 0" for c in reversed(CONSTANTS))


def solved(relation: str, parameter: str, values: Facts) -> int | None:
    """The value of a parameter with which a relation of equality holds, where it can be read off: `p == ..`, `p * a == ..`."""
    form = _FORM.match(relation)
    if form is None or form[3] != "==" or form[1] != parameter or relation.endswith("== 0"):
        return None
    known = [int(w) if w.isdigit() else values.get(w) for w in (form[2] or "1", form[4] or "1", form[5])]
    if any(v is None for v in known) or not known[0]:
        return None
    times, right = known[0], known[1] * known[2]  # type: ignore[operator]  # none is None here
    return right // times if right % times == 0 else None
