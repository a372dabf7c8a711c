"""Functions that choose among their arguments: whether folding by one gives the same in any grouping."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from kir.ir import nodes as n
from kir.ir.types import DType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    Array = NDArray[np.float64]

MOST = 64
"""Values of one element (a tuple of numbers) that are tried against each other, at most."""
FLOATS = (math.nan, -1.0, -0.0, 0.0, 1.0, 2.0)
"""Every order that three numbers can stand in, with the two that are equal and not alike, and the one that is no number."""
COMPARED = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
JOINED = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}
"""NumPy's functions for the operations."""


class NoChoice(Exception):
    """The function does more than compare its arguments and choose among them."""


def three_that_tell(f: n.Function) -> str | None:
    """Three elements for which a function that combines two gives different values in either grouping; None where there are none, which then holds for
    all elements: what such a function gives follows from the order of its arguments alone. Raises NoChoice."""
    import numpy as np
    kinds = [p.of for p in f.params[:len(f.params) // 2] if isinstance(p, n.Var) and isinstance(p.of, DType)]
    if 2 * len(kinds) != len(f.params) or [*kinds, *kinds] != [p.of for p in f.params if isinstance(p, n.Var)] or list(f.results) != kinds:
        raise NoChoice("it does not combine two elements to one")
    each = [FLOATS if k.is_float else (0.0, 1.0) if k.is_bool else (0.0, 1.0, 2.0) for k in kinds]
    if math.prod(map(len, each)) > MOST:
        raise NoChoice("its elements have too many parts")
    items = np.array(list(product(*each)), np.float64)
    at = np.indices((len(items),) * 3).reshape(3, -1)
    a, b, c = ([items[i, k] for k in range(len(kinds))] for i in at)
    with np.errstate(all="ignore"):
        left, right = _called(f, [*_called(f, [*a, *b]), *c]), _called(f, [*a, *_called(f, [*b, *c])])
    other = np.flatnonzero(np.any([~(((x == y) & (np.signbit(x) == np.signbit(y))) | ((x != x) & (y != y))) for x, y in zip(left, right, strict=True)], axis=0))
    if not len(other):
        return None
    return "; ".join(str(tuple(items[i[other[0]]].tolist())) for i in at)


def _called(f: n.Function, values: Sequence[Array]) -> list[Array]:
    import numpy as np
    known = {p.name: v for p, v in zip(f.params, values, strict=True)}
    for s in f.body:
        match s:
            case n.Let(names=(name,)):
                known[name] = _value(s.value, known)
            case n.Jump(kind="return"):
                return [np.broadcast_to(_value(v, known), values[0].shape) for v in s.values]
            case _:
                raise NoChoice("it has other statements than names for values")
    raise NoChoice("it gives nothing")


def _value(e: n.Expr, known: Mapping[str, Array]) -> Array:
    import numpy as np
    match e:
        case n.Var() if e.name in known:
            return known[e.name]
        case n.Const(dtype=dtype) if dtype.is_bool:
            return np.array(float(e.value))
        case n.Unary(op="not") if isinstance(e.type, DType) and e.type.is_bool:
            return np.asarray(1.0 - _value(e.x, known))
        case n.Binary(op=op) if op in COMPARED and e.a.type == e.b.type:
            return np.asarray(getattr(np, COMPARED[op])(_value(e.a, known), _value(e.b, known)), np.float64)
        case n.Binary(op=op) if op in JOINED and isinstance(e.type, DType) and e.type.is_bool:
            return np.asarray(getattr(np, JOINED[op])(_value(e.a, known) != 0, _value(e.b, known) != 0), np.float64)
        case n.Select():
            return np.where(_value(e.cond, known) != 0, _value(e.a, known), _value(e.b, known))
        case _:
            raise NoChoice("it computes more than comparisons and choices")
