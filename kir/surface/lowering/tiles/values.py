"""Values: what takes several threads is computed first, under a name of its own; the rest into registers, or kept as a formula."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.tiles.fragments import Spread
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import transform, walk
from kir.surface.lowering.registers.choice import matching, rows_of_a_product, suggested
from kir.surface.lowering.registers.element_demand import without_axis
from kir.surface.lowering.registers.elements import addressed, element
from kir.surface.lowering.registers.plan import is_collective
from kir.surface.lowering.registers.state import State, refuse, shape_known
from kir.surface.lowering.tiles import reductions, scans, scattered
from kir.surface.lowering.tiles.binding import bind, bind_elements, named


def hoisted(state: State, e: n.Expr) -> n.Expr:
    """`e` with single elements of tiles and fragments, which every thread gets, read before the statement."""
    done: dict[n.Expr, n.Expr] = {}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.mask is not None and new.at.buffer.name in state.held and not isinstance(new.type, TileType):
            raise refuse(f"one element of the fragment '{new.at.buffer.name}' is read under a mask", "a select of what is read")
        found = single(new)
        if found is None or not isinstance(new, n.Expr) or (isinstance(new, n.Load) and new.at.buffer.name not in state.held):
            return new
        if new not in done:
            name = state.fresh("picked")
            state.put(n.Let((name,), addressed(state, found[0])(found[1])))
            done[new] = n.Var(name, new.type)
        return done[new]
    made = transform(e, leave)
    assert isinstance(made, n.Expr)
    return made


def single(e: n.Node) -> tuple[n.Expr, list[n.Expr]] | None:
    """The tile that `e` is one element of, for the whole team, and its index there."""
    match e:
        case n.Call(fn="pick", of=None) if not isinstance(e.type, TileType):
            x, *index = [a for a in e.args if isinstance(a, n.Expr)]
            return x, index
        case n.Load(mask=None) if e.at.buffer.space == "fragment" and e.at.index and not isinstance(e.type, TileType):
            return n.Load(n.Region(e.at.buffer)), [i for i in e.at.index if isinstance(i, n.Expr)]
        case _:
            return None


def let(state: State, s: n.Let) -> None:
    """Lowers a let: collectives by their own rules, tiles element by element, scalars as they are."""
    value = s.value
    if isinstance(value, n.Call) and is_collective(value):
        args = tuple(hoisted(state, a) if isinstance(a, n.Expr) else a for a in value.args)
        collective(state, s.names, replace(value, args=args))
        return
    if isinstance(value, n.Call) and value.of is None and value.fn == "split":
        x = value.args[0]
        assert isinstance(x, n.Expr)
        x = named(state, hoisted(state, x))
        for k, name in enumerate(s.names):
            _bind_part(state, name, x, k)
        return
    if isinstance(value, n.Call) and value.of is None and value.fn.startswith("atomic_"):
        scattered.atomic(state, s.names[0], ready(state, value), s.label)
        return
    if len(s.names) != 1:
        raise refuse("a value with several results")
    value = hoisted(state, value)
    if not isinstance(value.type, TileType):
        state.touch_all(value)
        state.put(replace(s, value=value))
        if state.loops == 0:
            state.constant.add(s.names[0])
        return
    bind(state, s.names[0], value, _by_rows(state, s.names[0], value) or suggested(state, value), s.label)


def _by_rows(state: State, name: str, value: n.Expr) -> Spread | None:
    """The distribution of a tile from memory that is stretched along the rows of a product's accumulator: as those rows are."""
    shape = shape_known(value)
    if len(shape) != 1 or matching(state, value, shape) or not any(
            isinstance(x, n.Call) and x.fn == "expand" and x.args[0] == n.Var(name, value.type) and dict(x.attrs).get("axis") == 1
            for x in walk(state.kernel)):
        return None
    return rows_of_a_product(state, shape[0])


def ready(state: State, c: n.Call) -> n.Call:
    """A collective call with its operands hoisted to values that threads hold."""
    return replace(c, args=tuple(hoisted(state, a) if isinstance(a, n.Expr) else a for a in c.args))


def _bind_part(state: State, name: str, x: n.Expr, k: int) -> None:
    """Element `k` of the last axis."""
    shape = shape_known(x)
    if len(shape) == 1:
        value = addressed(state, x)([const(k)])
        state.put(n.Let((name,), value))
        return
    whole = suggested(state, x)
    s = without_axis(whole, len(shape) - 1)
    bind_elements(state, name, dtype_of(x.type), s, lambda need: element(state, x, need.with_axis(len(shape) - 1, 2, const(k))))


def collective(state: State, names: tuple[str, ...], c: n.Call) -> None:
    """A collective call as the value of names."""
    match c.fn:
        case "reduce":
            reductions.reduce(state, names, c)
        case "scan":
            scans.scan(state, names, c)
        case "gather":
            scattered.gather(state, names[0], c)
        case "cat":
            scattered.cat(state, names[0], c)
        case "histogram":
            scattered.histogram(state, names[0], c)
        case _:
            raise refuse(f"'{c.fn}' of a tile over several threads", "another algorithm: a scan, or a selection")
