"""What the code of threads may be the lowering of: tile statements that may stand next, read off its places and values."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kir.analysis.tiles.fragments import Spread
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value, is_const
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, walk
from kir.surface.lowering.inverse.nests import Nest, nest_of
from kir.surface.lowering.inverse.proposals import collectives, copied, leaf_of
from kir.surface.lowering.registers.anchors import Frame, NotRaised, Reader, counted_out, distributed_by, moving
from kir.surface.lowering.registers.element_demand import without_axis
from kir.surface.lowering.registers.state import Held, State
from kir.surface.lowering.tiles.products import scalar_accumulator

MOST_CHOICES = 60
"""Ways to order the axes of a statement that are tried."""


def _size(b: n.Buffer) -> int:
    out = 1
    for d in b.shape:
        out *= int_value(d) or 0
    return out


def _with_inner(s: n.Stmt) -> Iterator[n.Stmt]:
    yield s
    for x in getattr(s, "body", ()) or (*getattr(s, "then", ()), *getattr(s, "orelse", ())):
        yield from _with_inner(x)


def _swept(at: n.Region, index: Sequence[n.Expr], frame: Frame, s: Spread) -> n.Region:
    """The region that a store sweeps."""
    extents = iter(s.shape)
    out: list[n.Expr | n.Span] = []
    for i in index:
        m = moving(i, frame) if frame.moves(i) else None
        if m is None or m.base is None:
            out.append(i)
            continue
        steps = [step for *_, step in m.threads] + [step for _, step in m.slots]
        assert isinstance(i.type, DType)
        out.append(build.span(m.base, next(extents), const(math.gcd(*steps), i.type)))
    return build.region(at.buffer, *out)


class NextStatement:
    """Proposals for the statement that stands next. The state is that of lowering what has been raised so far."""

    def __init__(self, state: State, whole: n.Block, scratch: set[str]) -> None:
        self.state, self.whole, self.scratch = state, whole, scratch

    def _moves(self, *items: n.Node) -> bool:
        """Whether something differs between threads."""
        private = {h.buffer.name for h in self.state.held.values()}
        return any(self.state.thread.name in names_read(x) or any(
            isinstance(y, n.Load) and y.at.buffer.name in private for y in walk(x)) for x in items)

    # ------------------------------------------------------------------------------------------------------------- proposals
    def _proposals(self, rest: Sequence[n.Stmt]) -> Iterator[n.Stmt]:
        spilled: dict[str, list[n.Expr]] = {}
        before = {s.name: s.holds for s in self.state.scratch if s.holds is not None}
        at = 0
        while at < len(rest) and (nest := nest_of(rest[at])) is not None and nest.store.at.buffer.name in self.scratch:
            name = nest.store.at.buffer.name
            spilled[name] = list(self._spill(nest, before))
            if spilled[name]:
                before[name] = spilled[name][0]
            at += 1
        kept = {s.name: [s.holds] for s in self.state.scratch if s.holds is not None and s.name not in spilled}
        names = [*kept, *spilled]
        for chosen in itertools.islice(itertools.product(*(({**kept, **spilled})[name] for name in names)), MOST_CHOICES):
            yield from self._main(rest[at:], dict(zip(names, chosen, strict=True)))

    def _main(self, rest: Sequence[n.Stmt], spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        if not rest:
            return
        s = rest[0]
        following = nest_of(rest[1]) if len(rest) > 1 else None
        match s:
            case n.Alloc() if s.buffer.space == "register":
                if following is not None and following.store.at.buffer.name == s.buffer.name:
                    if s.init is not None:
                        yield from self._reductions(s, following, rest, spilled)
                    else:
                        yield from self._values(s, following, spilled)
                if s.init is not None and not s.buffer.shape and self._moves(s.init):
                    nest = Nest(n.Store(n.Region(s.buffer), s.init, label=s.label), {}, None)
                    yield from self._values(s, nest, spilled)
                if s.init is None:
                    yield from self._collectives(rest, spilled)
                if s.init is None or not self._moves(s.init):
                    if s.buffer.shape or self._differs(s.buffer):
                        yield from self._fragments(s)
                    yield s
            case n.Let() if not self._moves(s.value):
                yield s
            case n.Eval() | n.Jump() | n.View():
                yield s
            case n.If() if s.cond == build.compare("eq", self.state.lane, 0) and len(s.then) == 1 and not s.orelse:
                yield s.then[0]
            case n.For() if s.kind == "serial" and len(s.body) == 1:
                yield from self._products(s, spilled)
            case _:
                pass
        own = nest_of(s)
        if own is not None:
            yield from self._stores(own, spilled)
        yield from self._others(s, rest, spilled)

    def _others(self, s: n.Stmt, rest: Sequence[n.Stmt], spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """Copies and atomics, by their addresses; then collective calls over the values in registers."""
        leaf, slots, cond = leaf_of(s)
        match leaf:
            case n.Copy():
                one = copied(leaf, slots)
                distributed = distributed_by([i for i in one[0].index if isinstance(i, n.Expr)], self._frame(one[2])) if one is not None else None
                if one is not None and distributed is not None:
                    reader = Reader(self._frame(one[2]), distributed[0].shape, distributed[1], self._held(), spilled)
                    try:
                        source = reader.whole(one[1])
                    except NotRaised:
                        return
                    at = _swept(one[0], [i for i in one[0].index if isinstance(i, n.Expr)], self._frame(one[2]), distributed[0])
                    if isinstance(source, n.Load):
                        made = replace(leaf, src=source, dst=at)
                        yield replace(made, attrs=n.attrs(**{**dict(leaf.attrs), "vector": one[3]})) if leaf.via == "cp_async" else made
                        yield made
            case n.Eval() if leaf.call.fn.startswith("atomic_") and leaf.call.of is None:
                yield from self._atomics(leaf, slots, cond, spilled)
            case _:
                pass
        yield from self._collectives(rest, spilled)

    def _collectives(self, rest: Sequence[n.Stmt], spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """Collective calls over the values that the code ahead reads."""
        read = {b.name for x in rest[:12] for b in walk(x) if isinstance(b, n.Buffer)}
        near = [v for name, (v, _) in self._held().items() if isinstance(v, n.Var) and (name in read or v in spilled.values())]
        yield from collectives(self.state.program, rest, near)

    def _atomics(self, s: n.Eval, slots: dict[str, int], cond: n.Expr | None, spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        r = s.call.args[0]
        assert isinstance(r, n.Region)
        index = [i for i in r.index if isinstance(i, n.Expr)]
        operands = [a for a in s.call.args[1:] if isinstance(a, n.Expr)]
        frame = self._frame(slots)
        distributed = distributed_by(index, frame)
        choices = [distributed] if distributed is not None else []
        nest = Nest(n.Store(r, operands[0]), slots, cond)
        for d in (*choices, *self._axes(nest, *index, spilled=spilled)):
            reader = Reader(frame, d[0].shape, d[1], self._held(), spilled)
            try:
                at = _swept(r, index, frame, d[0]) if distributed is not None else build.region(r.buffer, *(reader.whole(i) for i in index))
                values = [build.broadcast(reader.whole(a), TileType(dtype_of(a.type), d[0].shape)) for a in operands]
                plain = [reader.whole(a) for a in operands]
                mask = [] if cond is None else [reader.whole(cond)]
            except NotRaised:
                continue
            for given in ([*values, *mask], values, [*plain, *mask], plain):
                yield replace(s, call=replace(s.call, args=(at, *given)))

    def _frame(self, slots: dict[str, int]) -> Frame:
        assert isinstance(self.state.thread, n.Var)
        return Frame(self.state.thread, self.state.team, slots)

    def _held(self) -> dict[str, tuple[n.Expr, Held]]:
        """Values in registers by the name of the registers, each as the tile that it is."""
        out: dict[str, tuple[n.Expr, Held]] = {}
        for name, h in self.state.held.items():
            shape = h.spread.shape
            fragment = self.state.fragments.get(name)
            value: n.Expr = n.Load(n.Region(fragment)) if fragment is not None else n.Var(name, TileType(h.buffer.dtype, shape))
            out[h.buffer.name] = (value, h)
        return out

    def _axes(self, nest: Nest, *also: n.Expr, spilled: Mapping[str, n.Expr] | None = None) -> Iterator[tuple[Spread, tuple[n.Expr, ...]]]:
        """How a statement may be distributed, as the indices in it tell: of one operand alone, then of several together."""
        frame, held = self._frame(nest.slots), self._held()
        single: list[n.Expr] = []
        groups: list[list[n.Expr]] = []
        for e in (nest.store.value, *also):
            for x in walk(e):
                if isinstance(x, n.Load) and x.at.buffer.name in held:
                    h = held[x.at.buffer.name][1]
                    index = dict(zip([id(d) for d in reversed(h.spread.slots) if d.extent > 1], x.at.index, strict=True))
                    slots = [i if isinstance(i := index.get(id(d), const(0)), n.Expr) else const(0) for d in h.spread.slots]
                    groups.append([c for c in h.spread.coordinates(self.state.thread, slots) if frame.moves(c)])
                elif isinstance(x, n.Load) and x.at.buffer.name in (spilled or {}) and isinstance(x.at.index[0], n.Expr):
                    shape = [d for d in shape_of((spilled or {})[x.at.buffer.name].type) if isinstance(d, int)]
                    groups.append([c for c in counted_out(x.at.index[0], shape) if frame.moves(c)])
                elif isinstance(x, n.Load) and x.at.buffer.name not in self.scratch:
                    groups.append([i for i in x.at.index if isinstance(i, n.Expr) and frame.moves(i)])
                elif isinstance(x, n.Binary) and x.op in n.COMPARISONS and dtype_of(x.a.type).is_integer:
                    single += [i for i in (x.a, x.b) if frame.moves(i)]
        whole: list[n.Expr] = []
        for e in (*(i for g in groups for i in g), *single):
            m = moving(e, frame)
            if m is not None and m.base is not None:
                bare = build.sub(e, m.base)
                bare = build.cast(bare, I32)
                if bare not in whole:
                    whole.append(bare)
        tried: set[tuple[n.Expr, ...]] = set()
        several = (list(c) for size in range(min(3, len(whole)), 0, -1) for c in itertools.permutations(whole, size))
        for g in itertools.islice(itertools.chain(sorted(groups, key=len, reverse=True), several), MOST_CHOICES):
            found = distributed_by(g, frame) if g else None
            if found is not None and found[1] not in tried and all(d.axis >= 0 for d in found[0].slots if d.extent > 1):
                tried.add(found[1])
                yield found

    def _reader(self, nest: Nest, s: Spread, coordinates: tuple[n.Expr, ...], spilled: dict[str, n.Expr]) -> Reader:
        return Reader(self._frame(nest.slots), s.shape, coordinates, self._held(), spilled)

    def _values(self, s: n.Alloc, nest: Nest, spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """A tile computed into registers."""
        for distributed, coordinates in self._axes(nest, spilled=spilled):
            try:
                value = self._reader(nest, distributed, coordinates, spilled).whole(nest.store.value)
            except NotRaised:
                continue
            label = nest.store.label
            yield n.Let((s.buffer.name,), build.broadcast(value, TileType(s.buffer.dtype, distributed.shape)), label=label)

    def _spill(self, nest: Nest, spilled: dict[str, n.Expr]) -> Iterator[n.Expr]:
        """Tiles that a nest may put into scratch memory."""
        held, v = self._held(), nest.store.value
        if isinstance(v, n.Load) and v.at.buffer.name in held:
            yield held[v.at.buffer.name][0]
        for distributed, coordinates in self._axes(nest, spilled=spilled):
            try:
                value = self._reader(nest, distributed, coordinates, spilled).whole(v)
            except NotRaised:
                continue
            yield build.broadcast(value, TileType(dtype_of(v.type), distributed.shape))

    def _stores(self, nest: Nest, spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """A tile stored to memory, or to a fragment."""
        at, frame = nest.store.at, self._frame(nest.slots)
        fragment = next((name for name, h in self.state.held.items() if h.buffer.name == at.buffer.name), None)
        if fragment is not None:
            target = self.state.fragments.get(fragment)
            h = self.state.held[fragment]
            dims = [d for d in reversed(h.spread.slots) if d.extent > 1]
            index = dict(zip([id(d) for d in dims], at.index, strict=True))
            slots = [i if isinstance(i := index.get(id(d), const(0)), n.Expr) else const(0) for d in h.spread.slots]
            found: list[tuple[n.Region, Spread, tuple[n.Expr, ...]]] = []
            if target is not None:
                found.append((n.Region(target), h.spread, h.spread.coordinates(self.state.thread, slots)))
        else:
            index_ = [i for i in at.index if isinstance(i, n.Expr)]
            distributed = distributed_by(index_, frame)
            found = [] if distributed is None else [(_swept(at, index_, frame, distributed[0]), *distributed)]
        for region, s, coordinates in found:
            try:
                reader = self._reader(nest, s, coordinates, spilled)
                value = reader.whole(nest.store.value)
                mask = None if nest.store.mask is None else reader.whole(nest.store.mask)
            except NotRaised:
                continue
            yield replace(nest.store, at=region, value=value, mask=mask)
            full = build.broadcast(value, TileType(dtype_of(value.type), s.shape))
            if full != value:
                yield replace(nest.store, at=region, value=full, mask=mask)

    def _reductions(self, s: n.Alloc, nest: Nest, rest: Sequence[n.Stmt], spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """A tile folded along an axis: the operation and the operand say the update, the name what follows."""
        old = build.load(nest.store.at)
        v = nest.store.value
        if not (isinstance(v, n.Binary) and old in (v.a, v.b)):
            return
        op = {"add": "sum", "mul": "prod"}.get(v.op, v.op)
        operand = v.b if v.a == old else v.a
        read = n.Region(s.buffer)
        name = next((x.names[0] for x in rest if isinstance(x, n.Let) and isinstance(x.value, n.Load) and x.value.at == read), None)
        inner = replace(nest, store=replace(nest.store, value=operand))
        for distributed, coordinates in self._axes(inner, spilled=spilled):
            try:
                value = self._reader(inner, distributed, coordinates, spilled).whole(operand)
            except NotRaised:
                continue
            value = build.broadcast(value, TileType(dtype_of(operand.type), distributed.shape))
            for axis in range(len(distributed.shape)):
                if len(distributed.shape) == 1 and name is not None:
                    yield n.Let((name,), build.call("reduce", value, axis=axis, op=op))
                elif len(distributed.shape) > 1:
                    yield n.Let((s.buffer.name,), build.call("reduce", value, axis=axis, op=op))
                    yield n.Let((s.buffer.name,), build.call("reduce", value, axis=axis, op=op, keep=True))

    def _differs(self, b: n.Buffer) -> bool:
        """Whether some statement gives each thread a value of its own in a register."""
        stores = [x for r in self.whole for x in _with_inner(r) if isinstance(x, n.Store) and x.at.buffer.name == b.name]
        return any(self.state.thread.name in names_read(x.value) or any(
            isinstance(y, n.Load) and y.at.buffer.space == "register" and y.at.index for y in walk(x.value)) for x in stores)

    def _fragments(self, s: n.Alloc) -> Iterator[n.Stmt]:
        """A fragment, distributed as later statements that move it to or from memory say."""
        found: list[Spread] = []
        for x in (y for r in self.whole for y in _with_inner(r)):
            nest = nest_of(x)
            if nest is None or s.buffer.name not in buffers_named(nest.store):
                continue
            for r in (nest.store.at, *(y.at for y in walk(nest.store.value) if isinstance(y, n.Load))):
                if r.buffer.space in ("register", "fragment") or r.buffer.name in self.scratch:
                    continue
                distributed = distributed_by([i for i in r.index if isinstance(i, n.Expr)], self._frame(nest.slots))
                if distributed is not None and distributed[0].size == _size(s.buffer) and distributed[0] not in found:
                    found.append(distributed[0])
        found.sort(key=lambda x: -math.prod(x.shape))
        dims = [int_value(d) for d in s.buffer.shape]
        total = _size(s.buffer) * self.state.team
        likely = [h.spread for h in self.state.held.values()]
        likely += [without_axis(x, axis) for x in likely for axis in range(len(x.shape)) if len(x.shape) > 1]
        likely += [scalar_accumulator(self.state, (m, total // m)) for m in (1 << b for b in range(total.bit_length())) if total % m == 0]
        found += [x for x in dict.fromkeys(likely) if x not in found and [d.extent for d in reversed(x.slots) if d.extent > 1] == dims]
        for spread in found:
            b = n.Buffer(s.buffer.name, s.buffer.dtype, tuple(const(d) for d in spread.shape), "fragment")
            self.state.spreads[b.name] = spread
            yield replace(s, buffer=b)
            self.state.spreads.pop(b.name, None)

    def _products(self, s: n.For, spilled: dict[str, n.Expr]) -> Iterator[n.Stmt]:
        """A product of tiles on the scalar units."""
        nest, depth = nest_of(s.body[0]), int_value(s.hi)
        if nest is None or depth is None or not is_const(s.lo, 0):
            return
        old, v = build.load(nest.store.at), nest.store.value
        if not (isinstance(v, n.Binary) and v.op == "add" and v.a == old and isinstance(v.b, n.Binary) and v.b.op == "mul"):
            return
        name = next((k for k, h in self.state.held.items() if h.buffer.name == nest.store.at.buffer.name), None)
        acc = self.state.fragments.get(name) if name is not None else None
        if name is None or acc is None:
            return
        h = self.state.held[name]
        index = dict(zip([id(d) for d in reversed(h.spread.slots) if d.extent > 1], nest.store.at.index, strict=True))
        slots = [i if isinstance(i := index.get(id(d), const(0)), n.Expr) else const(0) for d in h.spread.slots]
        coordinates = h.spread.coordinates(self.state.thread, slots)
        frame = replace(self._frame(nest.slots), slots={**nest.slots, s.var.name: depth})
        parts: list[n.Expr] = []
        for x, shape, at in ((v.b.a, (*h.spread.shape[:-1], depth), (*coordinates[:-1], s.var)),
                             (v.b.b, (*h.spread.shape[:-2], depth, h.spread.shape[-1]), (*coordinates[:-2], s.var, coordinates[-1]))):
            inner = x.x if isinstance(x, n.Cast) else x
            reader = Reader(frame, shape, at, self._held(), spilled)
            try:
                parts.append(reader.whole(inner))
            except NotRaised:
                return
        yield n.Mma(n.Region(acc), parts[0], parts[1], "fma", label=nest.store.label)
