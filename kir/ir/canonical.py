"""Alpha-normal form and content hash.

Local names (lets, loop variables, grid axes, buffers of a kernel, function parameters) leave the hash: they are numbered in the order in
which they are bound. What callers see stays: parameters, sizes, kernel names and their order.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import is_not
from typing import Any, TypeVar

from kir.base.dataclass import replace
from kir.ir import nodes as n
from kir.ir.printer import program_text
from kir.ir.visit import blocks_of, names_mentioned, once, rebuild, transform, transform_value

N = TypeVar("N", bound=n.Node)


def bound_names(body: n.Block) -> Iterator[str]:
    """Names that a block binds, in reading order."""
    for s in body:
        yield from once(s, "_binds", partial(_binds, s))


def _binds(s: n.Stmt) -> tuple[str, ...]:
    """Names that a statement binds, those of statements inside it after its own; worked out once for each statement."""
    own: tuple[str, ...] = ()
    match s:
        case n.Let():
            own = s.names
        case n.Alloc():
            own = (s.buffer.name,)
        case n.View():
            own = (*s.axes, s.buffer.name)
        case n.For():
            own = (s.var.name,)
        case _:
            pass
    return (*own, *(name for block in blocks_of(s) for name in bound_names(block)))


def rename(item: N, names: Mapping[str, str], labels: bool = True) -> N:
    """`item` with local names replaced, wherever they are bound or used; without labels and origins, unless they are to stay."""
    if labels and all(old == new for old, new in names.items()):
        return item
    changed = frozenset(old for old, new in names.items() if old != new)
    result: N = transform(item, _renaming(names, labels), (lambda x: not changed.isdisjoint(names_mentioned(x))) if labels else None)
    return result


def _renaming(names: Mapping[str, str], labels: bool) -> Callable[[n.Node, n.Node], n.Node]:
    """What `transform` does to a node whose parts are renamed."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var() | n.Axis() | n.Buffer():
                name = names.get(new.name, new.name)
                return new if name == new.name else replace(new, name=name)
            case n.Expr() | n.Region() | n.Span():
                return new
            case n.Let() if not names.keys().isdisjoint(new.names):
                new = replace(new, names=tuple(names.get(x, x) for x in new.names))
            case n.View() if not names.keys().isdisjoint(new.axes):
                new = replace(new, axes=tuple(names.get(x, x) for x in new.axes))
            case n.Opaque():
                new = replace(new, reads=tuple(names.get(x, x) for x in new.reads), writes=tuple(names.get(x, x) for x in new.writes))
            case _:
                pass
        return new if labels else _bare(new)
    return leave


FORMS = 4
"""Anonymous forms that a node keeps, each under other numbers of its names."""


def _anonymous(item: N, names: Mapping[str, str]) -> N:
    """`rename` without labels. Statements and what stands right in them keep their forms: a program and what a rewrite made of it share most of both."""
    leave = _renaming(names, labels=False)

    def form(x: n.Node) -> n.Node:
        forms = once(x, "_forms", dict[tuple[str, ...], n.Node])
        key = tuple([names.get(name, name) for name in once(x, "_mentioned", lambda: tuple(names_mentioned(x)))])
        found = forms.get(key)
        if found is None:
            if len(forms) == FORMS:
                del forms[next(iter(forms))]
            found = forms[key] = within(x) if isinstance(x, (n.Stmt, n.Role, n.Kernel, n.Function)) else transform(x, leave)
        return found

    def within(x: n.Node) -> n.Node:
        changes = {field: new for field in x.tree_fields if (new := part(old := x.__dict__[field])) is not old}
        return leave(x, rebuild(x, changes))

    def part(value: Any) -> Any:
        if isinstance(value, n.Node):
            return form(value)
        if isinstance(value, tuple):
            made = tuple(map(part, value))
            return made if any(map(is_not, made, value)) else value
        return transform_value(value, leave)
    result = form(item)
    assert isinstance(result, type(item))
    return result


def _bare(new: n.Node) -> n.Node:
    if isinstance(new, (n.Stmt, n.Kernel)) and (new.label or new.origin):
        return replace(new, label=None, origin=None)  # type: ignore[type-var]  # every Stmt is a dataclass
    return replace(new, origin=None) if isinstance(new, n.Function) and new.origin else new


def outer_names(p: n.Program) -> set[str]:
    """Names that a program's kernels and functions see from outside: metas, parameters, workspaces, tensor maps."""
    return {*(m.name for m in p.metas), *(q.name for q in p.params), *(w.buffer.name for w in p.workspaces),
            *(t.name for t in p.tensor_maps)}


def _numbered(order: Iterable[str], outer: set[str]) -> dict[str, str]:
    """A fresh name for each local one: `_0`, `_1`, .., with more underscores where an outer name looks alike."""
    prefix = "_"
    while any(name.startswith(prefix) and name.removeprefix(prefix).isdigit() for name in outer):
        prefix += "_"
    return {old: f"{prefix}{i}" for i, old in enumerate(dict.fromkeys(order))}


def canonical_kernel(k: n.Kernel, outer: set[str]) -> n.Kernel:
    """The kernel with its local names numbered and its labels gone; `outer` are the names that it sees from outside. A rewrite leaves most kernels
    of a program as they are, so the last form of each is kept with it."""
    kept, seen = once(k, "_canonical_kernels", dict[frozenset[str], n.Kernel]), frozenset(outer)
    if seen not in kept:
        kept.clear()
        kept[seen] = _anonymous(k, _numbered((*(a.name for a in k.grid), *bound_names(k.body)), outer))
    return kept[seen]


def without_labels(item: N) -> N:
    """A kernel or function with labels and origins removed."""
    return rename(item, {}, labels=False)


def canonical(p: n.Program) -> n.Program:
    """The program in alpha-normal form, without labels."""
    return once(p, "_canonical", lambda: _canonical(p))


def _canonical(p: n.Program) -> n.Program:
    outer = outer_names(p)
    functions = tuple(_anonymous(f, _numbered((*(x.name for x in f.params), *bound_names(f.body)), outer)) for f in p.functions)
    return replace(p, kernels=tuple(canonical_kernel(k, outer) for k in p.kernels), functions=functions)


def alpha_equal(a: n.Program, b: n.Program) -> bool:
    """Equal up to local names and labels."""
    return a == b or canonical(a) == canonical(b)


def content_hash(p: n.Program) -> str:
    """sha256, in hex, of the text of the alpha-normal form (the schema version is its first line); cached on the node."""
    return once(p, "_content", lambda: hashlib.sha256(program_text(canonical(p)).encode()).hexdigest())
