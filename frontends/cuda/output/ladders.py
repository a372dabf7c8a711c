"""Ladders of shuffles that are written out, as recursive templates write them, step for step: one loop over the steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType
from kir.ir.visit import substitute, transform, walk

LEAST = 2
"""Steps of which a ladder has at least so many."""


@dataclass(frozen=True)
class _Step:
    """`other = shuffle(value, distance)`, and what is made of the two: a value with a name, or one that a scalar holds from then on."""

    near: n.Let
    shuffle: n.Call
    value: n.Expr
    distance: int
    made: n.Expr
    into: str | n.Region


def rolled(body: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The block, and those inside, with each such ladder as a loop."""
    out = [_inside(s, fresh) for s in body]
    k = 0
    while k < len(out):
        found = _ladder(tuple(out), k)
        if found is not None and _is_alone(found, tuple(out[k + 2 * len(found):])):
            made, rest = _loop(found, tuple(out[k + 2 * len(found):]), fresh)
            out[k:] = [*made, *rest]
            k += len(made)
        else:
            k += 1
    return tuple(out)


def _inside(s: n.Stmt, fresh: Callable[[str], str]) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return replace(s, body=rolled(s.body, fresh))
        case n.If():
            return replace(s, then=rolled(s.then, fresh), orelse=rolled(s.orelse, fresh))
        case _:
            return s


def _step(block: n.Block, k: int) -> _Step | None:
    near, update = (block[j] if j < len(block) else None for j in (k, k + 1))
    call = near.value if isinstance(near, n.Let) and len(near.names) == 1 else None
    if not (isinstance(near, n.Let) and isinstance(call, n.Call) and call.fn in ("shfl_xor", "shfl_down") and len(call.args) == 2):
        return None
    value, distance = call.args[0], build.int_value(call.args[1]) if isinstance(call.args[1], n.Expr) else None
    if distance is None or not isinstance(value, n.Expr) or not isinstance(value.type, DType):
        return None
    if isinstance(update, n.Let) and len(update.names) == 1:
        return _Step(near, call, value, distance, update.value, update.names[0])
    if isinstance(update, n.Store) and update.mask is None and not update.clip and update.at.buffer.space == "register" and not update.at.buffer.shape:
        return _Step(near, call, value, distance, update.value, update.at)
    return None


def _ladder(block: n.Block, k: int) -> tuple[_Step, ...] | None:
    """The steps that begin at a statement: each goes on with what the one before has made, and they differ in nothing but the distance."""
    steps: list[_Step] = []
    while (step := _step(block, k + 2 * len(steps))) is not None:
        before = steps[-1] if steps else None
        if before is not None and (not isinstance(before.into, str) or step.value != n.Var(before.into, step.value.type) or _form(step) != _form(steps[0])):
            break
        steps.append(step)
    while len(steps) >= LEAST:
        found = [s.distance for s in steps]
        if found in ([1 << x for x in range(len(steps))], [1 << x for x in reversed(range(len(steps)))]):
            form = steps[0].made
            return tuple(steps) if not isinstance(form.type, TileType) and steps[0].value in tuple(walk(form)) else None
        steps.pop()
    return None


def _form(s: _Step) -> tuple[n.Expr, n.Call]:
    """What a step makes, and how it asks for the other lane's value, whatever names it uses."""
    own, other = n.Var("%own", s.value.type), n.Var("%other", s.near.value.type)
    made = substitute(transform(s.made, lambda _, x: own if x == s.value else x), {s.near.names[0]: other})
    return made, replace(s.shuffle, args=(own, build.const(0)))


def _is_alone(steps: tuple[_Step, ...], rest: n.Block) -> bool:
    """Whether nothing but the ladder uses what its steps make on the way."""
    between = {s.near.names[0] for s in steps} | {s.into for s in steps[:-1] if isinstance(s.into, str)}
    return not any(isinstance(x, n.Var) and x.name in between for s in rest for x in walk(s))


def _loop(steps: tuple[_Step, ...], rest: n.Block, fresh: Callable[[str], str]) -> tuple[n.Block, n.Block]:
    """The ladder as a loop, and what follows it."""
    first, last = steps[0], steps[-1]
    before: n.Block = ()
    if isinstance(last.into, str):
        assert isinstance(first.value.type, DType)
        held = n.Region(n.Buffer(last.into, first.value.type, (), "register"))
        before = (n.Alloc(held.buffer, first.value, origin=first.near.origin),)
        rest = tuple(substitute(s, {last.into: n.Load(held)}) for s in rest)
    else:
        held = last.into
        before = () if first.value == n.Load(held) else (n.Store(held, first.value, origin=first.near.origin),)
    s, own = n.Var(fresh("s"), I32), n.Load(held)
    rises = first.distance == 1
    distance = build.binary("shl", build.const(1), s) if rises else build.binary("shr", build.const(first.distance), s)
    near = replace(first.near, value=replace(first.shuffle, args=(own, distance)))
    made = transform(first.made, lambda _, x: own if x == first.value else x)
    body = (near, n.Store(held, made, origin=first.near.origin))
    return (*before, n.For(s, build.const(0), build.const(len(steps)), build.const(1), body, origin=first.near.origin)), rest
