"""What operators compute of one element, as text of the IR, and how the places that they only name are those of their operands."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kir.problem.naive.graph import SAME as AS_GIVEN
from kir.problem.naive.graph import Extent, Graph, Moving, Node, grouped

COMPUTED = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "i32", "i16": "i32"}
"""What is computed in, where it is not the dtype itself."""
RANK = {"bool": 0, "u8": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f32": 5, "f64": 6}

Text = Callable[..., str]
SAME: Mapping[str, Text] = {
    "neg": "-({0})".format, "abs": "abs({0})".format, "exp": "exp({0})".format, "exp2": "exp2({0})".format, "expm1": "expm1({0})".format,
    "log": "log({0})".format, "log2": "log2({0})".format, "log1p": "log1p({0})".format, "sqrt": "sqrt({0})".format, "rsqrt": "rsqrt({0})".format,
    "sin": "sin({0})".format, "cos": "cos({0})".format, "tan": "tan({0})".format, "tanh": "tanh({0})".format, "erf": "erf({0})".format,
    "sigmoid": "1.0 / (1.0 + exp(-({0})))".format, "floor": "floor({0})".format, "ceil": "ceil({0})".format, "trunc": "trunc({0})".format,
    "atan": "atan({0})".format, "asin": "asin({0})".format, "acos": "acos({0})".format, "sinh": "sinh({0})".format, "cosh": "cosh({0})".format,
    "reciprocal": "1.0 / ({0})".format, "square": "({0}) * ({0})".format,
    "mul": "({0}) * ({1})".format, "maximum": "max_nan({0}, {1})".format, "minimum": "min_nan({0}, {1})".format,
    "fmax": "max({0}, {1})".format, "fmin": "min({0}, {1})".format, "fmod": "fmod({0}, {1})".format, "atan2": "atan2({0}, {1})".format,
    "clamp_min": "max_nan({0}, {1})".format, "clamp_max": "min_nan({0}, {1})".format,
    "multiply": "({0}) * ({1})".format, "sgn": "select(({0}) > 0.0, 1.0, select(({0}) < 0.0, -1.0, 0.0))".format,
    "sign": "select(({0}) > 0.0, 1.0, select(({0}) < 0.0, -1.0, 0.0))".format,
}
"""Operators whose operands and result are of one dtype. (A float's literals here are of f32, in which all of these are computed.)"""
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL: Mapping[str, Text] = {"logical_not": "~({0})".format, "logical_and": "({0}) & ({1})".format, "logical_or": "({0}) | ({1})".format,
                               "logical_xor": "({0}) ^ ({1})".format, "bitwise_not": "~({0})".format, "bitwise_and": "({0}) & ({1})".format,
                               "bitwise_or": "({0}) | ({1})".format}
MADE = ("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor", "empty", "empty_like", "new_zeros", "new_ones", "new_full",
        "arange", "iota", "eye", "count")
TURNS = ("permute", "t", "transpose", "movedim", "numpy_T", "mT", "swapaxes")
RESHAPES = ("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as")
VIEWS = (*TURNS, *RESHAPES, "expand", "expand_as", "broadcast_to", "select", "slice", "narrow", "flip")
KNOWN_POINTWISE = frozenset({*SAME, *COMPARED, *LOGICAL, *AS_GIVEN, *MADE, "add", "sub", "subtract", "div", "divide", "true_divide", "pow", "relu", "clamp",
                             "clip", "where", "masked_fill", "isnan", "isinf", "rsub", "remainder", "isfinite"})


def computed(dtype: str) -> str:
    """The dtype in which a value of one is computed."""
    return COMPUTED.get(dtype, dtype)


def literal(value: Any, dtype: str) -> str:
    """A number as text of the dtype."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype.startswith("f"):
        x = float(value)
        told = "nan" if math.isnan(x) else ("-inf" if x < 0 else "inf") if math.isinf(x) else repr(x)
        told = told if "." in told or "e" in told or told.endswith(("inf", "nan")) else f"{told}.0"
        return f"({told}{'' if dtype == 'f32' else ':' + dtype})" if told.startswith("-") else f"{told}{'' if dtype == 'f32' else ':' + dtype}"
    told = str(int(value)) + ("" if dtype == "i32" else f":{dtype}")
    return f"({told})" if told.startswith("-") else told


def cast(text: str, given: str, wanted: str) -> str:
    """A value in another dtype."""
    if given == wanted:
        return text
    if wanted == "bool":
        return f"({text}) != {literal(0, given)}"
    if given == "bool":
        return f"select({text}, {literal(1, wanted)}, {literal(0, wanted)})"
    return f"cast({text}, {wanted})"


def pointwise(g: Graph, node: Node, of: Callable[[Any, str], str], dtype_of: Callable[[Any], str], index: Sequence[str]) -> str:
    """The element of a pointwise operator at `index`, computed in the dtype of its result; `of` gives an operand's element in a dtype. Raises KirError
    KIR-G918."""
    own, op, args = computed(node.dtype), node.op, node.args

    def together(*xs: Any) -> str:
        kinds = [computed(dtype_of(x)) for x in xs if not isinstance(x, (int, float))]
        best = max(kinds, key=lambda d: RANK.get(d, 5), default=own)
        return "f32" if any(isinstance(x, float) for x in xs) and RANK.get(best, 5) < RANK["f32"] else best

    if op in AS_GIVEN:
        return of(args[0], own)
    if op in ("add", "sub", "subtract", "rsub"):
        a, b = (of(x, own) for x in args[:2])
        scale = node.words.get("alpha", args[2] if len(args) > 2 else 1)
        first, second = (a, b if scale == 1 else f"({b}) * {literal(scale, own)}")
        if op == "rsub":
            first, second = b, a
        return f"({first}) {'+' if op == 'add' else '-'} ({second})"
    if op in ("div", "divide", "true_divide"):
        a, b = (of(x, own) for x in args[:2])
        how = node.words.get("rounding_mode")
        plain = f"({a}) / ({b})" if own.startswith("f") else f"({a}) // ({b})"
        return plain if how is None else f"{how}({plain})" if own.startswith("f") else plain
    if op == "pow":
        a, power = args
        if isinstance(power, (int, float)):
            base = of(a, own)
            if power == 2:
                return f"({base}) * ({base})"
            if power == 3:
                return f"({base}) * ({base}) * ({base})"
            if power in (0.5, -0.5, 1, -1):
                return {0.5: f"sqrt({base})", -0.5: f"rsqrt({base})", 1: base, -1: f"1.0 / ({base})"}[power]
        return f"pow({of(a, own)}, {of(power, own)})"
    if op == "relu":
        x, nothing = of(args[0], own), literal(0, own)
        return f"select(({x}) < {nothing}, {nothing}, {x})"  # a negative zero stays one
    if op in ("clamp", "clip"):
        low = args[1] if len(args) > 1 else node.words.get("min")
        high = args[2] if len(args) > 2 else node.words.get("max")
        x = of(args[0], own)
        x = x if low is None else f"max_nan({x}, {of(low, own)})"
        return x if high is None else f"min_nan({x}, {of(high, own)})"
    if op == "where":
        return f"select({of(args[0], 'bool')}, {of(args[1], own)}, {of(args[2], own)})"
    if op == "masked_fill":
        return f"select({of(args[1], 'bool')}, {of(args[2], own)}, {of(args[0], own)})"
    if op in ("isnan", "isinf", "isfinite"):
        return f"{op}({of(args[0], computed(dtype_of(args[0])))})"
    if op == "remainder":
        a, b = (of(x, own) for x in args[:2])
        return f"({a}) % ({b})" if not own.startswith("f") else f"({a}) - floor(({a}) / ({b})) * ({b})"
    if op in COMPARED:
        kind = together(*args[:2])
        return f"({of(args[0], kind)}) {COMPARED[op]} ({of(args[1], kind)})"
    if op in LOGICAL:
        kind = "bool" if op.startswith("logical") else own
        return LOGICAL[op](*(of(x, kind) for x in args[:2]))
    if op in MADE:
        return _made(g, node, own, index)
    if op in SAME:
        return SAME[op](*(of(x, own) for x in args[: 1 if len(args) == 1 else 2]))
    raise g.refused(f"nothing is known of the operator {op}")


def _made(g: Graph, node: Node, own: str, index: Sequence[str]) -> str:
    match node.op:
        case "arange" | "iota":
            first, step = (node.args[0] if len(node.args) > 1 else 0, node.args[2] if len(node.args) > 2 else 1)
            if isinstance(first, (Moving, float)) or isinstance(step, (Moving, float)):
                raise g.refused("arange of other than whole numbers")
            return cast(f"({index[0]}) * {int(step)} + {int(first)}", "i32", own)
        case "eye":
            return f"select({index[0]} == {index[1]}, {literal(1, own)}, {literal(0, own)})"
        case "count":
            told = " * ".join(f"cast({g.extent(e)}, {own})" for e in node.words["extents"])
            return f"({told} - {literal(node.words['less'], own)})" if node.words["less"] else f"({told})"
        case "full" | "full_like" | "new_full":
            return literal(node.args[1], own)
        case "scalar_tensor":
            return literal(node.args[0], own)
        case "ones" | "ones_like" | "new_ones":
            return literal(1, own)
        case _:
            return literal(0, own)


def written(g: Graph, node: Node, index: Sequence[str]) -> list[str] | None:
    """The place in a view of what its operand has at `index`; None for a view that has not each element once."""
    source = g.nodes[node.args[0].number]
    if node.op in TURNS:
        return [index[k] for k in _order(node, len(source.shape))]
    return reshaped(g, index, source.shape, node.shape) if node.op in RESHAPES else None


def seen(g: Graph, node: Node, index: Sequence[str]) -> list[str]:
    """The place in a view's operand of its element at `index`."""
    source = g.nodes[node.args[0].number]
    args, rank = node.args[1:], len(source.shape)

    def axis(x: int) -> int:
        return (int(x) + rank) % rank

    match node.op:
        case x if x in TURNS:
            order = _order(node, rank)
            out = [""] * rank
            for i, at in zip(order, index, strict=True):
                out[i] = at
            return out
        case "expand" | "expand_as" | "broadcast_to":
            return fitted(source.shape, index)
        case "select":
            place = list(index)
            place.insert(axis(args[0]), _counted(g, source, axis(args[0]), args[1]))
            return place
        case "slice" | "narrow":
            where = axis(args[0] if args else 0)
            begin = _counted(g, source, where, (args[1] if len(args) > 1 else node.words.get("start")) or 0)
            step = args[3] if len(args) > 3 and node.op == "slice" else 1
            return [f"({x}) * {step} + {begin}" if i == where and step != 1 else f"{x} + {begin}" if i == where and begin != "0" else x
                    for i, x in enumerate(index)]
        case "flip":
            turned = {axis(x) for x in args[0]}
            return [f"{g.extent(source.shape[i])} - 1 - ({x})" if i in turned else x for i, x in enumerate(index)]
        case _:
            return reshaped(g, index, node.shape, source.shape)


def _counted(g: Graph, source: Node, axis: int, begin: Any) -> str:
    if isinstance(begin, Moving):
        values = tuple(b + e if b < 0 else b for b, e in zip(begin.values, source.shape[axis], strict=True))
        return g.extent(values)
    return g.extent(tuple(begin + e for e in source.shape[axis])) if begin < 0 else str(begin)


def _order(node: Node, rank: int) -> list[int]:
    args = node.args[1:]
    match node.op:
        case "permute":
            return [(x + rank) % rank for x in args[0]]
        case "transpose" | "swapaxes":
            out, (a, b) = list(range(rank)), ((x + rank) % rank for x in args[:2])
            out[a], out[b] = b, a
            return out
        case "movedim":
            moved, to = ((x,) if isinstance(x, int) else x for x in args[:2])
            pairs = {(t + rank) % rank: (f + rank) % rank for f, t in zip(moved, to, strict=True)}
            rest = iter(i for i in range(rank) if i not in pairs.values())
            return [pairs[i] if i in pairs else next(rest) for i in range(rank)]
        case "mT":
            return [*range(rank - 2), rank - 1, rank - 2]
        case _:
            return list(reversed(range(rank)))


def fitted(shape: Sequence[Extent], index: Sequence[str]) -> list[str]:
    """The place in an operand that is stretched to a longer shape: its own axes are the last ones, those of extent 1 stay at 0."""
    own = index[len(index) - len(shape):] if shape else []
    return ["0" if set(e) == {1} else x for e, x in zip(shape, own, strict=True)]


def reshaped(g: Graph, index: Sequence[str], new: Sequence[Extent], old: Sequence[Extent]) -> list[str]:
    """The place of an element of a row-major tensor under its older extents."""
    fresh = [part for given in zip(new, index, strict=True) for part in g.parts.get(given[1], [given])]
    out, groups = ["0"] * len(old), grouped([e for e, _ in fresh], old)
    if not groups and any(math.prod(e) != 1 for e in (*new, *old)):
        raise g.refused("a view that no rule of row-major places says")
    for mine, theirs in groups:
        flat = together(g, [fresh[i] for i in mine])
        for k, x in zip(theirs, [flat] if len(theirs) == 1 else parted(g, flat, [old[k] for k in theirs]), strict=True):
            out[k] = x
    return out


def together(g: Graph, mine: Sequence[tuple[Extent, str]]) -> str:
    """Places along several axes as one along their product."""
    names = tuple(x for _, x in mine)
    if len(mine) == 1 or names in g.whole:
        return names[0] if len(mine) == 1 else g.whole[names]
    flat = names[0]
    for e, x in mine[1:]:
        flat = f"({flat}) * ({g.extent(e)}) + {x}"
    flat = f"({flat})"
    g.parts[flat] = list(mine)
    g.whole[names] = flat
    return flat


def parted(g: Graph, flat: str, extents: Sequence[Extent]) -> list[str]:
    """A place along a product of axes as one along each."""
    out, left = list[str](), flat
    for e in reversed(extents[1:]):
        out.insert(0, f"(({left}) % ({g.extent(e)}))")
        left = f"({left}) // ({g.extent(e)})"
    out.insert(0, f"({left})")
    g.whole[tuple(out)] = flat
    g.parted.setdefault(flat, list(zip(extents, out, strict=True)))
    return out
