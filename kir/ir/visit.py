"""Walking and rebuilding trees. Rebuilding goes through `kir.ir.build`, so that results stay in normal form."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

from kir.base.dataclass import replace
from kir.ir import build
from kir.ir.nodes import (
    Axis,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Node,
    Opaque,
    Program,
    Region,
    Role,
    Roles,
    Select,
    Span,
    Stmt,
    Unary,
    Var,
    View,
    While,
)
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import DType, TileType

N = TypeVar("N", bound=Node)
V = TypeVar("V")


_PLAIN = frozenset({str, int, bool, float, type(None), DType})
"""Types of values that hold no node."""
_NOTHING: tuple[()] = ()


def children(n: Node) -> Iterator[Node]:
    """The nodes directly below, in reading order (buffers referred to by regions included)."""
    return iter(_below(n))


def _below(n: Node) -> tuple[Node, ...]:
    """The nodes directly below, worked out once for each node."""
    kept: dict[str, Any] = n.__dict__
    below: tuple[Node, ...] | None = kept.get("_below")
    if below is None:
        out: list[Node] = []
        for name in n.tree_fields:
            value = kept[name]
            if isinstance(value, Node):
                out.append(value)
            elif type(value) not in _PLAIN:
                _gather(value, out)
        below = kept["_below"] = tuple(out)
    return below


def _gather(value: Any, out: list[Node]) -> None:
    if isinstance(value, Node):
        out.append(value)
    elif isinstance(value, tuple):
        for v in value:
            if isinstance(v, Node):
                out.append(v)
            elif type(v) not in _PLAIN:
                _gather(v, out)
    elif isinstance(value, TileType):
        _gather(value.shape, out)


def walk(n: Node) -> Iterator[Node]:
    """`n` and everything below it, parents first. What is below is kept in a row by who is asked a second time."""
    kept = n.__dict__
    row: tuple[Node, ...] | None = kept.get("_row")
    if row is None:
        kept["_row"] = ()
        return _walk((n,))
    if not row:
        row = kept["_row"] = tuple(_walk(_below(n)))
    return chain((n,), row)


def _walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    stack = [*nodes[::-1]]
    while stack:
        top = stack.pop()
        yield top
        below = top.__dict__.get("_below")
        if below is None:
            below = _below(top)
        if below:
            stack += below[::-1]


def once(n: Node, key: str, make: Callable[[], V]) -> V:
    """A value that follows from a node alone, worked out when it is first asked for; it lives as long as the node. Labels and origins, which
    two equal nodes need not share, may go into it."""
    kept: dict[str, Any] = n.__dict__
    if key not in kept:
        kept[key] = make()
    value: V = kept[key]
    return value


def once_for_each(make: Callable[..., V]) -> Callable[..., V]:
    """A function of a program, and perhaps of one of its kernels, that follows from these alone: worked out once for each (see `once`)."""
    key = f"_{make.__module__}.{make.__name__}"

    def found(program: Node, *kernel: Any) -> V:
        return once(program, f"{key} {kernel[0].name}" if kernel else key, lambda: make(program, *kernel))
    return found


@once_for_each
def with_own_statements(program: Program) -> Program:
    """The program with a statement of its own at each place, as its text would be read; the program itself where it is so. Passes that write a part twice
    (two versions of a kernel, a loop and its first round) let both share it, and what is known of a place goes by its statement."""
    seen = set[int]()

    def stmt(s: Stmt) -> Stmt:
        again = id(s) in seen
        seen.add(id(s))
        for steps, inner in child_blocks(s):
            made = block(inner)
            if made is not inner:
                s, again = with_block(s, steps, made), False
        return replace(s) if again else s  # type: ignore[type-var]  # every Stmt is a dataclass

    def block(of: Block) -> Block:
        made = tuple(stmt(s) for s in of)
        return of if all(new is old for new, old in zip(made, of, strict=True)) else made

    bodies = [block(k.body) for k in program.kernels]
    if all(body is k.body for k, body in zip(program.kernels, bodies, strict=True)):
        return program
    return replace(program, kernels=tuple(k if body is k.body else replace(k, body=body) for k, body in zip(program.kernels, bodies, strict=True)))


def updated(old: N, **fields: Any) -> N:
    """`old` with fields replaced; `old` itself where none of them differs, so that what was worked out for it stays with it."""
    if all(_is_same(old.__dict__[name], value) for name, value in fields.items()):
        return old
    made: N = replace(old, **fields)  # type: ignore[type-var]  # every concrete node is a dataclass
    return made


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values of a field are one, labels included."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or (not isinstance(a, Stmt) and bool(a == b))


def rebuild(old: Node, changes: Mapping[str, Any]) -> Node:
    """`old` with some fields replaced; expressions are built anew in normal form."""
    if not changes:
        return old
    def at(name: str) -> Any:
        return changes.get(name, getattr(old, name))
    match old:
        case Binary():
            return build.binary(old.op, at("a"), at("b"))
        case Unary():
            return build.unary(old.op, at("x"))
        case Select():
            return build.select(at("cond"), at("a"), at("b"))
        case Cast():
            return build.cast(at("x"), at("dtype"), old.rounding)
        case Load():
            return build.load(at("at"), at("mask"), at("other"), old.clip, old.cache)
        case Region():
            return build.region(at("buffer"), *at("index"))
        case Span():
            return build.span(at("lo"), at("extent"), at("step"))
        case _:
            return replace(old, **changes)  # type: ignore[type-var]  # every concrete node is a dataclass


def transform(n: N, leave: Callable[[Node, Node], Any], enter: Callable[[Node], bool] | None = None) -> Any:
    """Bottom-up rewriting: `leave(original, updated)` gives the replacement of each node; in a tuple a replacement may be a tuple
    (spliced) or None (removed). `enter` may keep a subtree untouched by returning False. Unchanged subtrees are shared."""
    if enter is not None and not enter(n):
        return n
    kept: dict[str, Any] = n.__dict__
    if kept.get("_below") == ():
        return leave(n, n)
    changes: dict[str, Any] | None = None
    for name in n.tree_fields:
        old = kept[name]
        if isinstance(old, Node):
            new = transform(old, leave, enter)
        elif type(old) in _PLAIN or old is _NOTHING:
            continue
        else:
            new = transform_value(old, leave, enter)
        if new is not old:
            if changes is None:
                changes = {}
            changes[name] = new
    return leave(n, n if changes is None else rebuild(n, changes))


def transform_value(value: Any, leave: Callable[[Node, Node], Any], enter: Callable[[Node], bool] | None = None) -> Any:
    """`transform` of a field's value: a node, a tuple, a type with dimensions, or what holds no node."""
    if isinstance(value, Node):
        return transform(value, leave, enter)
    if isinstance(value, tuple):
        out: list[Any] = []
        changed = False
        for v in value:
            if isinstance(v, Node):
                new = transform(v, leave, enter)
                if new is v:
                    out.append(v)
                    continue
                changed = True
                if isinstance(new, tuple):
                    out.extend(new)
                elif new is not None:
                    out.append(new)
            elif type(v) in _PLAIN:
                out.append(v)
            else:
                new = transform_value(v, leave, enter)
                changed = changed or new is not v
                out.append(new)
        return tuple(out) if changed else value
    if isinstance(value, TileType):
        shape = transform_value(value.shape, leave, enter)
        return value if shape is value.shape else TileType(value.dtype, tuple(
            d if (i := build.int_value(d)) is None else i for d in shape))
    return value


def substitute(n: N, values: Mapping[str, Expr]) -> Any:
    """`n` with each reference to a name replaced by an expression of the same type."""
    if not values:
        return n
    named = values.keys()
    return transform(n, lambda old, new: values.get(old.name, new) if type(old) is Var else new, lambda x: not named.isdisjoint(names_read(x)))


def substitute_buffers(n: N, buffers: Mapping[str, Buffer]) -> Any:
    """`n` with each buffer of that name (declaration and uses) replaced."""
    if not buffers:
        return n
    named = buffers.keys()
    return transform(n, lambda old, new: buffers.get(old.name, new) if type(old) is Buffer else new,
                     lambda x: not named.isdisjoint(buffers_named(x)))


def blocks_of(s: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    found = _BLOCKS.get(type(s))
    return () if found is None else found(s)


_BLOCKS: Mapping[type[Stmt], Callable[[Any], tuple[Block, ...]]] = {
    For: lambda s: (s.body,), While: lambda s: (s.body,), If: lambda s: (s.then, s.orelse), Roles: lambda s: tuple([r.body for r in s.roles])}


def statements(block: Block) -> Iterator[Stmt]:
    """All statements of a block and below, in reading order."""
    stack = [*block[::-1]]
    while stack:
        s = stack.pop()
        yield s
        if (found := _BLOCKS.get(type(s))) is not None:
            for inner in reversed(found(s)):
                stack += inner[::-1]


def own_nodes(s: Stmt) -> Iterator[Node]:
    """A statement and what it consists of, without the statements inside it, roles, and the buffers that it names."""
    inner = {id(x) for block in blocks_of(s) for x in block}
    waiting: list[Node] = [s]
    while waiting:
        x = waiting.pop()
        yield x
        waiting += [c for c in children(x) if id(c) not in inner and not isinstance(c, (Buffer, Role))]


def names_read(n: Node) -> frozenset[str]:
    """Names of all variables referred to below `n`; worked out once for each node."""
    return _names(n, "_names_read", _of_variable)


def buffers_named(n: Node) -> frozenset[str]:
    """Names of all buffers declared or referred to below `n`; worked out once for each node."""
    return _names(n, "_buffers_named", _of_buffer)


def names_mentioned(n: Node) -> frozenset[str]:
    """Local names of any kind below `n`, bound or used; worked out once for each node."""
    return _names(n, "_names_mentioned", _of_anything)


def _of_variable(n: Node) -> tuple[str, ...]:
    return (n.name,) if type(n) is Var else ()


def _of_buffer(n: Node) -> tuple[str, ...]:
    return (n.name,) if type(n) is Buffer else ()


def _of_anything(n: Node) -> tuple[str, ...]:
    kind = type(n)
    if kind is Var or kind is Buffer or kind is Axis:
        return (n.name,)  # type: ignore[attr-defined]  # one of these three
    if kind is Opaque:
        return (*n.reads, *n.writes)  # type: ignore[attr-defined]  # it has both
    return n.names if kind is Let else n.axes if kind is View else ()  # type: ignore[attr-defined]  # each has its own


def _names(n: Node, kept: str, own: Callable[[Node], tuple[str, ...]]) -> frozenset[str]:
    """Names at and below `n`. A node shares the set of what is below it where it adds nothing to that."""
    found: frozenset[str] | None = n.__dict__.get(kept)
    if found is None:
        found, grown = frozenset(own(n)), None
        for below in _below(n):
            more = below.__dict__.get(kept)
            if more is None:
                more = _names(below, kept, own)
            if more <= (found if grown is None else grown):
                continue
            if grown is not None:
                grown |= more
            elif found <= more:
                found = more
            else:
                grown = set(found | more)
        found = n.__dict__[kept] = found if grown is None else frozenset(grown)
    return found


def regions(n: Node) -> Iterator[Region]:
    """All places mentioned below `n`."""
    return (m for m in walk(n) if isinstance(m, Region))


def divides(e: Node) -> bool:
    """Whether a quotient or a rest stands in it by what is no literal."""
    return any(isinstance(x, Binary) and x.op in build.DIVISIONS and not isinstance(x.b, Const) for x in walk(e))


def unshared(n: N) -> N:
    """A copy of a tree in which no node stands twice: analyses that tell occurrences apart by identity see two where a pass wrote two."""
    def fresh(value: Any) -> Any:
        if isinstance(value, Node):
            return unshared(value) if not isinstance(value, Buffer) else value
        return tuple(map(fresh, value)) if isinstance(value, tuple) else value
    return type(n)(**{f: fresh(getattr(n, f)) for f in n.all_fields})
