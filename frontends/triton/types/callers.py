"""What the callers of a jit function in its file say of its parameters: how many axes a tile has that it is given, and what is known when it is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import libcst as cst

from kir.base.dataclass import dataclass

from ..._python.signature import is_constexpr, parameters
from ..values.values import Jit
from .inference import Inference


@dataclass(frozen=True)
class Given:
    """Parameters for which all calls are alike: tiles by their axes, and values that are compile-time ones in the caller. `numbers`: what those among them
    that each call writes as a number are in the first."""

    tiles: dict[str, int]
    metas: frozenset[str]
    numbers: dict[str, int] = field(default_factory=dict)


def given_by(inference: Inference, fn: Jit, others: Iterable[cst.FunctionDef]) -> Given:
    """What the calls of a function in other functions of its file give it."""
    axes: dict[str, set[int]] = {}
    known: dict[str, set[bool]] = {}
    numbers: dict[str, list[int | None]] = {}
    own = parameters(fn.node)
    names = [p.name.value for p in own]
    for other in others:
        if other is fn.node or fn.node.name.value not in fn.module.code(other):
            continue
        reading = inference.reading(Jit(fn.module, other))
        reading.facts.tiles.clear()  # what the caller is given itself: of a kernel never a tile
        for call in (x for x in reading.nodes if isinstance(x, cst.Call)):
            callee = inference.callee(reading.fn, call.func, reading.local)
            if not (isinstance(callee, Jit) and callee.node is fn.node) or any(a.star for a in call.args):
                continue
            places = [a.value for a in call.args if a.keyword is None]
            for name, value in [*zip(names, places), *((a.keyword.value, a.value) for a in call.args if a.keyword is not None)]:
                axes.setdefault(name, set()).add(reading.axes(value))
                known.setdefault(name, set()).add(_compiled(value, reading.params))
                numbers.setdefault(name, []).append(value.evaluated_value if isinstance(value, cst.Integer) else None)
    tiles = {name: next(iter(n)) for name, n in axes.items() if len(n) == 1 and n != {0}}
    open_ = {p.name.value for p in own if p.annotation is None and p.default is None}
    metas = frozenset(name for name, k in known.items() if k == {True} and name in open_)
    return Given(tiles, metas, {name: v[0] for name, v in numbers.items() if name in metas and v[0] is not None and None not in v})


def _compiled(e: cst.BaseExpression, params: dict[str, cst.Param]) -> bool:
    """Whether an argument is known when the caller is compiled: one of its metas, or a word or number."""
    match e:
        case cst.Name(value=name):
            return name in ("True", "False") or (name in params and is_constexpr(params[name]))
        case cst.Integer() | cst.SimpleString():
            return True
        case cst.UnaryOperation(expression=x):
            return _compiled(x, params)
        case cst.BinaryOperation(left=a, right=b):
            return _compiled(a, params) and _compiled(b, params)
    return False
