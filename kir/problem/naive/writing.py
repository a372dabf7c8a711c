"""A kernel of a naive program while it is written: its lines, its axes, and the places of tensors under fewer or more of them."""
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.problem.naive import operators as ops
from kir.problem.naive.graph import ENOUGH, LONGEST, Extent, Graph, Node


@dataclass
class Body:
    """Lines of a block, and what is named in it."""

    lines: list[str] = field(default_factory=list)
    known: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict)

    def ended(self, *last: str) -> list[str]:
        """The block with its last lines: what was named and is used once stands where it is used."""
        out = [*self.lines, *last]
        for k in reversed(range(len(self.lines))):
            name, _, value = out[k].removeprefix("let ").partition(" = ")
            word = re.compile(rf"\b{re.escape(name)}\b")
            used = [i for i in range(k + 1, len(out)) for _ in word.finditer(out[i])]
            if out[k].startswith("let ") and len(used) == 1:
                before, after = word.split(out[used[0]], maxsplit=1)
                out[used[0]] = f"{before}({value}){after}"
                del out[k]
        return out


@dataclass
class Writing:
    """One kernel while it is written: `axes` by name, `shared` those that its reductions depend on."""

    number: int
    axes: dict[str, Extent]
    before: Body = field(default_factory=Body)
    shared: frozenset[str] | None = None
    product: bool = False
    filters: str = ""
    """The axis of a convolution's filters, where each sums over channels."""
    made: set[int] = field(default_factory=set)
    """Contractions that it computes."""
    flat: set[str] = field(default_factory=set)
    """Places along several axes at once, of loops over a row in one piece."""
    finer: dict[str, list[Extent]] = field(default_factory=dict)
    """Axes of which reductions depend on a part only, and the extents of their parts."""
    views: dict[str, str] = field(default_factory=dict)
    """Names of tensors under fewer axes, by what they are."""
    names: int = 0
    loops: int = 0

    def name(self, what: str) -> str:
        """A name that the kernel does not have yet."""
        self.names += 1
        return f"{what}{self.names}"


def begun(g: Graph, number: int, node: Node, flat: int | None, finer: Mapping[str, list[Extent]]) -> tuple[Writing, tuple[str, ...]]:
    """A kernel for the elements of a node, and the place of one by its axes: of some as several, of those after the first `flat` as one."""
    parts = [[(e, f"i{k}")] if f"i{k}" not in finer else [(x, f"i{k}_{m}") for m, x in enumerate(finer[f"i{k}"])] for k, e in enumerate(node.shape)]
    axes = {name: e for each in parts for e, name in each if set(e) != {1}}
    w, places = Writing(number, axes), {name: name if name in axes else "0" for each in parts for _, name in each}
    if flat is not None:
        row = [*axes][flat:]
        extents = [axes[x] for x in row]
        w = Writing(number, {**{x: axes[x] for x in [*axes][:flat]}, row[0]: tuple(math.prod(v) for v in zip(*extents, strict=True))}, flat={row[0]})
        places |= zip(row, ops.parted(g, row[0], extents), strict=True)
    return w, tuple(ops.together(g, [(e, places[x]) for e, x in each]) for each in parts)


def placed(g: Graph, w: Writing, name: str, node: Node, index: Sequence[str]) -> str:
    """An element in memory, under other axes where some of its places are parts of one along a row in one piece."""
    groups = [part for given in zip(node.shape, index, strict=True) for part in g.parts.get(given[1], [given])]
    more = True
    while more:  # parts of parts first
        more = False
        for k, end in [(a, b) for a in range(len(groups)) for b in range(a + 2, len(groups) + 1)]:
            whole = g.whole.get(tuple(x for _, x in groups[k:end]), "")
            if more := g.parted.get(whole) == groups[k:end]:
                groups[k:end] = [(tuple(math.prod(v) for v in zip(*(e for e, _ in groups[k:end]), strict=True)), whole)]
                break
    if not any(text in w.flat and text not in index for _, text in groups):
        return f"{name}[{', '.join(index) or '0'}]"
    for e, text in zip(node.shape, index, strict=True):  # what became part of no row stays one axis
        parts = g.parts.get(text, [])
        at = next((k for k in range(len(groups)) if parts and groups[k:k + len(parts)] == parts), None)
        if at is not None:
            groups[at:at + len(parts)] = [(e, text)]
    extents = [g.extent(e) for e, _ in groups]
    view = f"global {{}}: {node.dtype}[{', '.join(extents)}] at {name}"
    w.views.setdefault(view, f"{name}_flat{len(w.views) or ''}")
    return f"{w.views[view]}[{', '.join(text for _, text in groups)}]"


def parted_of(w: Writing, lines: Sequence[str]) -> bool:
    """Whether lines still part a place along several axes at once: what depends on one of them (the weight of a channel) is no part of a row."""
    return any(re.search(rf"\b{re.escape(x)}\)* (//|%) ", line) for x in w.flat if x in w.axes for line in lines)


def names_of(g: Graph, w: Writing, place: str) -> list[str]:
    """The kernel's axes that a place runs along: itself, or all of which it is put together."""
    parts = g.parts.get(place, [])
    return [x for _, x in parts] if parts and all(w.axes.get(x) == e for e, x in parts) else [place]


def finer_of(g: Graph, w: Writing, named: Sequence[str]) -> dict[str, list[Extent]]:
    """Axes of which places are the first parts (groups of channels), and the extents of their parts, where a row of the rest is one that a kernel keeps."""
    first = {several[0][1]: (axis, [e for e, _ in several]) for axis in w.axes if (several := g.parted.get(axis)) is not None}
    if len(set(named)) != len(named) or not all(x in w.axes or x in first for x in named):
        return {}
    items = math.prod(max(w.axes[x] if x in w.axes else first[x][1][0]) for x in named)
    row = math.prod(max(e) for e in w.axes.values()) // items
    return dict(first[x] for x in named if x in first) if items >= ENOUGH and row <= LONGEST else {}
