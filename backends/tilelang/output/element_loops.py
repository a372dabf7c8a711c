"""Statements on tiles that have names, as the body of one loop over their elements.

A named tile is a number of each element in TileLang, known inside the loop that works it out. So what uses it stands in that loop: the
statements become those of one element, and axes that a name is picked at are axes of the loop. Only statements that keep to their own
element may share a loop: what one writes, the others touch at the same place or not at all.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeVar

from kir.analysis.elements import NotElementwise, element, element_region
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.printer import expr_text
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import children, names_read, substitute, transform, walk

from ..form.reducers import JOINED, is_neutral, peeled, reads

Extent = int | n.Expr
P = TypeVar("P", n.Expr, n.Region)
LOOPS = frozenset({"serial", "unroll", "vectorize", "static"})


class NoLoop(Exception):
    """Statements that have no common loop."""


@dataclass
class Together:
    """The statements of one element, and the loop's axes with their extents."""

    axes: list[tuple[n.Var, Extent]]
    body: n.Block
    count: int
    """How many statements they stand for."""


def together(rest: Sequence[n.Stmt], fresh: Callable[[], Callable[[int], n.Var]], one: Callable[[str, str], bool]) -> list[Together]:
    """The shortest run of statements from a named tile on after which nothing uses its names, as one loop; as several, each of which works out the tiles
    that it uses, where they share none; none where that has no form. `fresh()` makes the variables of a loop, each of its k-th axis; `one` says whether
    two names may mean the same memory."""
    names: set[str] = set()
    for count, s in enumerate(rest, 1):
        if isinstance(s, n.Let):
            names |= set(s.names)
        if isinstance(s, n.Alloc):
            names.add(s.buffer.name)
        if not any(names & _mentioned(x) for x in rest[count:]):
            whole = _joined(rest[:count], fresh)
            return [whole] if whole is not None else _in_several(rest[:count], fresh, one)
    return []


def _joined(run: Sequence[n.Stmt], fresh: Callable[[], Callable[[int], n.Var]]) -> Together | None:
    try:
        return _Lanes(fresh()).joined(run)
    except (NoLoop, NotElementwise):
        return None


def _in_several(run: Sequence[n.Stmt], fresh: Callable[[], Callable[[int], n.Var]], one: Callable[[str, str], bool]) -> list[Together]:
    """A run as loops in order, each of as many of its statements as share one, with the tiles that they use worked out in it. None of what those are made of
    may be written before: a tile is what it was where it got its name. Empty where that cannot be."""
    lets: dict[str, n.Let] = {}
    out: list[Together] = []
    held: Together | None = None
    group: list[n.Stmt] = []
    written: set[str] = set()

    def stale(s: n.Stmt) -> bool:
        return any(one(x, y) for x in _touched(s) for y in written)

    def needed(group: Sequence[n.Stmt]) -> list[n.Stmt]:
        names, before = set[str](), {x for s in group for x in names_read(s)}
        while before - names:
            names |= before
            before = {x for k in names if k in lets for x in names_read(lets[k])}
        return [s for k, s in lets.items() if k in names]

    for s in run:
        if isinstance(s, n.Let) and len(s.names) == 1:
            if stale(s):
                return []
            lets[s.names[0]] = s
            continue
        if isinstance(s, (n.Alloc, n.View, n.Let)):
            return []
        more = _joined([*needed([*group, s]), *group, s], fresh) if group else None
        if more is not None:
            group, held = [*group, s], more
        else:
            if held is not None:
                out.append(held)
                written |= {x for t in group for x in ({t.at.buffer.name} if isinstance(t, n.Store) else _touched(t))}
            group = [s]
            if any(map(stale, needed(group))):
                return []
            held = _joined([*needed(group), s], fresh)
            if held is None:
                return []
    if held is None:
        return []
    out.append(held)
    return [replace(x, count=len(run)) for x in out]


def _touched(s: n.Stmt) -> set[str]:
    return {x.buffer.name for x in walk(s) if isinstance(x, n.Region)}


def _mentioned(s: n.Stmt) -> frozenset[str]:
    return names_read(s) | {x.buffer.name for x in walk(s) if isinstance(x, n.Region)}


@dataclass
class _Lanes:
    fresh: Callable[[int], n.Var]
    extents: dict[str, Extent] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    tiles: dict[str, list[n.Var]] = field(default_factory=dict)
    own: dict[str, tuple[n.Buffer, list[n.Var]]] = field(default_factory=dict)
    """Fragments of which each element is a variable of its round."""
    sums: dict[str, tuple[n.Expr, list[n.Var], list[int], str]] = field(default_factory=dict)
    """Named reductions: what they are over, its axes, those that stay, the operator."""
    joined_to: set[str] = field(default_factory=set)
    stores: list[list[n.Var]] = field(default_factory=list)

    def joined(self, run: Sequence[n.Stmt]) -> Together:
        """The run as one loop. Raises NoLoop, NotElementwise."""
        body = self.block(run)
        if not self.stores:
            raise NoLoop
        self.aligned()
        order = [self.root(v.name) for v in self.stores[0]]
        for axes in (*self.tiles.values(), *(own for _, own in self.own.values())):
            named = [self.root(v.name) for v in axes]
            if set(named) == set(order) and len(named) == len(order):
                order = named  # its axes stand in the loop's order
                break
        if len(set(order)) != len(order) or any({self.root(v.name) for v in axes} != set(order) for axes in self.stores):
            raise NoLoop
        loop = [(self.fresh(k), self.extents[x]) for k, x in enumerate(order)]
        own = dict(zip(order, (v for v, _ in loop), strict=True))
        values: dict[str, n.Expr] = {}
        for x in self.extents:
            if self.root(x) not in own:
                raise NoLoop
            values[x] = own[self.root(x)]
        made: n.Block = tuple(substitute(s, values) for s in body)
        self.apart(made)
        return Together(loop, made, len(run))

    # ------------------------------------------------------------------------------------------------------------------- axes
    def new(self, shape: Sequence[Extent]) -> list[n.Var]:
        """An axis for each dimension."""
        out = []
        for d in shape:
            v = n.Var(f"%lane {len(self.extents)}", I32)
            self.extents[v.name] = d
            self.same[v.name] = v.name
            out.append(v)
        return out

    def root(self, name: str) -> str:
        """The first of the axes that are one with this."""
        while self.same[name] != name:
            name = self.same[name]
        return name

    def unite(self, a: str, b: str) -> None:
        """Makes two axes one. Raises NoLoop where their extents differ."""
        x, y = sorted((self.root(a), self.root(b)), key=lambda v: int(v.rpartition(" ")[2]))
        if self.extents[x] != self.extents[y]:
            raise NoLoop
        self.same[y] = x

    def aligned(self) -> None:
        """Statements go over the same elements where their shape is the same and no name says otherwise."""
        first = self.stores[0]
        for axes in self.stores[1:]:
            mine, others = [self.root(v.name) for v in axes], [self.root(v.name) for v in first]
            if len(mine) == len(others) and all(a == b or (a not in others and b not in mine) for a, b in zip(mine, others, strict=True)):
                for a, b in zip(first, axes, strict=True):
                    self.unite(a.name, b.name)

    # ------------------------------------------------------------------------------------------------------------- statements
    def block(self, block: Sequence[n.Stmt]) -> n.Block:
        """Statements for one element; a named reduction stands where it is joined to a place."""
        out: list[n.Stmt] = []
        for s in block:
            if isinstance(s, n.Let) and len(s.names) == 1 and (found := peeled(s.value)) is not None:
                self.sums[s.names[0]] = found[0], self.new(shape_of(found[0].type)), found[1], found[2]
            else:
                out.append(self.stmt(s))
        return tuple(out)

    def stmt(self, s: n.Stmt) -> n.Stmt:
        """A statement for one element."""
        match s:
            case n.Store() if any(isinstance(x, n.Var) and x.name in self.sums for x in walk(s.value)):
                return self.part(s)
            case n.Let(names=(name,)) if isinstance(s.value.type, TileType):
                axes = self.new(shape_of(s.value.type))
                value = self.value(s.value, axes)
                self.tiles[name] = axes
                return replace(s, value=value)
            case n.Let():
                return replace(s, value=self.uniform(s.value))
            case n.Alloc() if s.buffer.space == "fragment" and s.buffer.shape and s.buffer.layout is None:
                axes = self.new(shape_of(n.Region(s.buffer).type))
                init = None if s.init is None else self.value(s.init, axes)
                self.own[s.buffer.name] = n.Buffer(s.buffer.name, s.buffer.dtype, (), "register"), axes
                return replace(s, buffer=self.own[s.buffer.name][0], init=init)
            case n.Store() if isinstance(s.at.type, TileType) and not s.cache:
                axes = self.new(shape_of(s.at.type))
                if s.at.buffer.name not in self.own:
                    self.stores.append(axes)
                mask = None if s.mask is None else self.value(s.mask, axes)
                return replace(s, at=self.picked(element_region(s.at, axes)), value=self.value(s.value, axes), mask=mask)
            case n.Eval(call=n.Call(fn="assume" | "assertion", args=(n.Expr() as cond,))) if isinstance(cond.type, TileType):
                axes = self.new(shape_of(cond.type))
                self.stores.append(axes)
                return replace(s, call=replace(s.call, args=(self.value(cond, axes),)))
            case n.Eval(call=n.Call(args=(n.Region() as at, *values))) if s.call.fn.startswith("atomic_") and isinstance(at.type, TileType):
                axes = self.new(shape_of(at.type))
                self.stores.append(axes)
                args = [self.value(v, axes) if isinstance(v, n.Expr) else v for v in values]
                return replace(s, call=replace(s.call, args=(self.picked(element_region(at, axes)), *args)))
            case n.For() if s.kind in LOOPS:
                return replace(s, lo=self.uniform(s.lo), hi=self.uniform(s.hi), step=self.uniform(s.step), body=self.block(s.body))
            case n.If():
                return replace(s, cond=self.uniform(s.cond), then=self.block(s.then), orelse=self.block(s.orelse))
            case _:
                raise NoLoop

    def part(self, s: n.Store) -> n.Store:
        """One element's part of a sum, joined to its place. Raises NoLoop."""
        axes = self.new(shape_of(s.at.type))
        at: n.Region = self.picked(element_region(s.at, axes) if axes else s.at)
        value = element(s.value, axes) if axes else s.value
        if not isinstance(value, n.Binary) or s.mask is not None or n.Load(at) not in (value.a, value.b):
            raise NoLoop
        reduction = value.b if value.a == n.Load(at) else value.a
        name, index = (reduction.args[0], reduction.args[1:]) if isinstance(reduction, n.Call) and reduction.fn == "pick" else (reduction, ())
        if not isinstance(name, n.Var) or name.name not in self.sums:
            raise NoLoop
        over, every, kept, op = self.sums[name.name]
        if JOINED.get(value.op) != op:
            raise NoLoop
        self.at([every[k] for k in kept], index)
        self.stores.append(every)
        self.joined_to.add(s.at.buffer.name)
        part, mask = self.value(over, every), None
        if isinstance(part, n.Select) and is_neutral(part.b, op):
            mask, part = part.cond, part.a
        return replace(s, at=at, value=build.binary(value.op, n.Load(at), part), mask=mask)

    def uniform(self, e: n.Expr) -> n.Expr:
        """A value that is the same for all elements. Raises NoLoop for another."""
        if isinstance(e.type, TileType) or any(isinstance(x, n.Var) and (x.name in self.tiles or x.name in self.sums) for x in walk(e)):
            raise NoLoop
        return e

    def value(self, e: n.Expr, axes: Sequence[n.Var]) -> n.Expr:
        """The element of a value at the last axes; an axis of one element stands still."""
        shape = shape_of(e.type)
        own = axes[len(axes) - len(shape):]
        made: n.Expr = element(e, [build.const(0) if d == 1 else v for d, v in zip(shape, own, strict=True)])
        return self.picked(made)

    def picked(self, item: P) -> P:
        """What reads elements of named tiles, with their names in place of those."""
        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in self.own:
                buffer, axes = self.own[new.buffer.name]
                self.at(axes, new.index)
                return n.Region(buffer)
            if not (isinstance(new, n.Call) and new.fn == "pick" and isinstance(new.args[0], n.Var)):
                return new
            tile = new.args[0]
            if tile.name not in self.tiles:
                raise NoLoop  # a reduction that is not joined to a place, or a tile of another loop
            self.at(self.tiles[tile.name], new.args[1:])
            return n.Var(tile.name, dtype_of(tile.type))
        made: P = transform(item, leave)
        return made

    def at(self, axes: Sequence[n.Var], index: Sequence[object]) -> None:
        """Makes the axes of a tile those that it is picked at. Raises NoLoop where it is picked elsewhere."""
        if len(axes) != len(index):
            raise NoLoop
        for axis, at in zip(axes, index, strict=True):
            if isinstance(at, n.Var) and at.name in self.same:
                self.unite(axis.name, at.name)
            elif not (isinstance(at, n.Expr) and is_const(at, 0) and self.extents[axis.name] == 1):
                raise NoLoop

    def apart(self, body: n.Block) -> None:
        """Raises NoLoop where one element's statements touch what another's write."""
        written = {x.at.buffer.name for s in body for x in walk(s) if isinstance(x, n.Store)} - set(self.own)
        if any(reads(s, x) for s in body for x in self.joined_to):
            raise NoLoop
        written -= self.joined_to
        places = [(at, arms) for at, arms in _accesses(body, (), False) if at.buffer.name in written]
        for k, (at, arms) in enumerate(places):
            for other, others in places[:k]:
                if other.buffer == at.buffer and not _same_element(at, other) and not _exclude(arms, others):
                    raise NoLoop(f"{expr_text(n.Load(at))} and {expr_text(n.Load(other))}")


Arms = tuple[tuple[int, bool], ...]
"""The branches that a statement stands in, each with its side."""


def _accesses(block: n.Block, arms: Arms, repeated: bool) -> Iterator[tuple[n.Region, Arms]]:
    """Every place that a block mentions, with the branches around it that are taken the same way for as long as the loop runs."""
    for s in block:
        for inner in [x for x in children(s) if not isinstance(x, n.Stmt)]:
            yield from ((x, arms) for x in walk(inner) if isinstance(x, n.Region))
        match s:
            case n.If():
                steady = s.static or not repeated
                yield from _accesses(s.then, (*arms, (id(s), True)) if steady else arms, repeated)
                yield from _accesses(s.orelse, (*arms, (id(s), False)) if steady else arms, repeated)
            case n.For():
                yield from _accesses(s.body, arms, True)
            case _:
                pass


def _exclude(a: Arms, b: Arms) -> bool:
    """Whether two statements stand in different sides of one branch."""
    return any(x == y and side != other for x, side in a for y, other in b)


def _same_element(a: n.Region, b: n.Region) -> bool:
    """Whether two places belong to one element of the loop: they differ in numbers at most."""
    return len(a.index) == len(b.index) and all(x == y or (
        isinstance(x, n.Expr) and isinstance(y, n.Expr) and int_value(x) is not None and int_value(y) is not None)
        for x, y in zip(a.index, b.index, strict=True))


__all__ = ["Together", "together"]
