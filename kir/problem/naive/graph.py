"""The operators of a model as a graph, every extent and every number as it is at several sizes; compound ones that torch keeps whole taken apart."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations_with_replacement
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error

Extent = tuple[int, ...]
"""An extent at each of the sizes that the model was recorded at."""


SAME = ("to", "_to_copy", "contiguous", "detach", "alias", "lift_fresh_copy", "lift_fresh", "convert_element_type", "positive", "clone", "real")
"""Operators that give what they are given, but for its dtype."""


@dataclass(frozen=True)
class Moving:
    """A number of a call that is another at other sizes."""

    values: Extent


@dataclass(frozen=True)
class Node:
    """A tensor: an input (`name`), or what the operator `op` makes of `args` (nodes by number, numbers, lists of them) and `words`."""

    number: int
    op: str
    args: tuple[Any, ...]
    shape: tuple[Extent, ...]
    dtype: str
    words: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Of:
    """A tensor as an operand."""

    number: int


@dataclass
class Graph:
    """Nodes by number, in the order of the calls; `result` is what forward returns. `text` writes an extent over the sizes, None where nothing fits."""

    nodes: dict[int, Node]
    result: int
    text: Callable[[Extent], str | None]
    where: Origin
    known: dict[Extent, str | None] = field(default_factory=dict)
    whole: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Places along several axes that are one along their product: what was parted comes together again as what it was."""
    parts: dict[str, list[tuple[Extent, str]]] = field(default_factory=dict)
    """The other way, with the extents."""
    parted: dict[str, list[tuple[Extent, str]]] = field(default_factory=dict)
    """Places that were parted, and along which extents: a loop over one may be a loop over each."""

    def _product(self, values: Extent) -> str | None:
        """A product of extents of up to three axes of some tensor, and a number."""
        single = {e: t for node in self.nodes.values() for e in node.shape if len(set(e)) > 1 and (t := self.text(e)) is not None}
        for count in (1, 2, 3):
            for chosen in combinations_with_replacement(single, count):
                pairs = [(v, math.prod(p)) for v, p in zip(values, zip(*chosen, strict=True), strict=True)]
                if all(p and v % p == 0 for v, p in pairs) and len(over := {v // p for v, p in pairs}) == 1:
                    return " * ".join([f"({single[e]})" for e in chosen] + [str(x) for x in over if x != 1])
        return None

    def refused(self, what: str) -> Exception:
        """KIR-G918, to be raised."""
        return error("KIR-G918", f"no naive program: {what}", origin=self.where, needs="a kernel to start from, or another form of the model")

    def extent(self, values: Extent) -> str:
        """An extent or another number as text over the sizes. Raises KirError KIR-G918."""
        if values not in self.known:
            self.known[values] = str(values[0]) if len(set(values)) == 1 else self.text(values) or self._product(values)
        found = self.known[values]
        if found is None:
            raise self.refused(f"the extents {', '.join(map(str, values))} are no expression over the sizes")
        return found

    def number(self, x: Any) -> str:
        """A whole number of a call as text."""
        return self.extent(x.values) if isinstance(x, Moving) else str(int(x))

    def add(self, op: str, args: Sequence[Any], shape: Sequence[Extent], dtype: str, words: Mapping[str, Any] | None = None) -> Of:
        """A further node."""
        number = max(self.nodes, default=-1) + 1
        self.nodes[number] = Node(number, op, tuple(args), tuple(shape), dtype, words or {})
        return Of(number)

    def uses(self) -> dict[int, int]:
        """How often each node is an operand of what the result needs."""
        out: dict[int, int] = {}
        left = [self.result]
        while left:
            for x in operands(self.nodes[left.pop()]):
                out[x] = out.get(x, 0) + 1
                if out[x] == 1:
                    left.append(x)
        return out


def operands(node: Node) -> Iterator[int]:
    """The nodes that one is made of."""
    def inside(x: Any) -> Iterator[int]:
        if isinstance(x, Of):
            yield x.number
        elif isinstance(x, (list, tuple)):
            for y in x:
                yield from inside(y)
    yield from inside(node.args)
    yield from inside(tuple(node.words.values()))


def graph(recordings: Sequence[Mapping[str, Any]], text: Callable[[Extent], str | None], where: Origin) -> Graph:
    """The graph of one call, recorded at several sizes. Raises KirError KIR-G918 where it calls other operators at other sizes."""
    out = Graph({}, 0, text, where)
    first = recordings[0]
    if any([c["op"] for c in r["calls"]] != [c["op"] for c in first["calls"]] for r in recordings):
        raise out.refused("it calls other operators at other sizes")
    known: dict[int, Of] = {}
    top = max([*(x["id"] for x in first["inputs"]), *(o["id"] for c in first["calls"] for o in c["out"] if o), 0])
    for k, x in enumerate(first["inputs"]):
        out.nodes[x["id"]] = Node(x["id"], "input", (), _shape([r["inputs"][k]["shape"] for r in recordings]), x["dtype"], name=x["name"])
        known[x["id"]] = Of(x["id"])
    out.nodes[top + 1] = Node(top + 1, "nothing", (), (), "f32")  # what is added is numbered after all
    for k, call in enumerate(first["calls"]):
        args, words = _merged(out, [(r["calls"][k]["args"], r["calls"][k]["words"]) for r in recordings], known)
        made = [None if o is None else _shape([r["calls"][k]["out"][i]["shape"] for r in recordings]) for i, o in enumerate(call["out"])]
        op = call["op"].removeprefix("prims.").partition(".")[0].removesuffix("_") if not call["op"].startswith("_") else call["op"].partition(".")[0]
        for o, shape, node in zip(call["out"], made, _apart(out, op, call["op"], args, words, made, call["out"]), strict=False):
            if o is not None and shape is not None:
                known[o["id"]] = node
    out.result = known[first["result"]].number
    return out


def _shape(shapes: Sequence[Sequence[int]]) -> tuple[Extent, ...]:
    return tuple(zip(*shapes, strict=True))


def _merged(g: Graph, told: Sequence[Any], known: Mapping[int, Of]) -> Any:
    """An argument as all recordings have it."""
    first = told[0]
    if isinstance(first, dict) and "tensor" in first:
        return known[first["tensor"]]
    if isinstance(first, dict):
        return {k: _merged(g, [t[k] for t in told], known) for k in first}
    if isinstance(first, (list, tuple)):
        if len({len(t) for t in told}) > 1:
            raise g.refused("a list of another length at other sizes")
        return tuple(_merged(g, [t[i] for t in told], known) for i in range(len(first)))
    if all(t == first or (t != t and first != first) for t in told):  # a NaN is the same NaN
        return first
    if all(isinstance(t, (int, float)) and float(t).is_integer() for t in told):
        return Moving(tuple(map(int, told)))
    return first if all(isinstance(t, str) for t in told) else _differs(g)


def _differs(g: Graph) -> Any:
    raise g.refused("a number that is no whole one is another at other sizes")


def axes_of(node: Node, given: Any) -> tuple[int, ...]:
    """Axes of a tensor as an operator names them, none for all, from the first one on."""
    rank = len(node.shape)
    if given is None or given == ():
        return tuple(range(rank))
    return tuple(sorted((x + rank) % rank for x in ((given,) if isinstance(given, int) else given)))


def _apart(g: Graph, op: str, whole: str, args: tuple[Any, ...], words: Mapping[str, Any], made: Sequence[tuple[Extent, ...] | None],
           outs: Sequence[Mapping[str, Any] | None]) -> list[Of]:
    """The nodes of one call, by output."""
    def source() -> Node:
        return g.nodes[args[0].number]
    dtypes = [o["dtype"] if o else "" for o in outs]
    shapes = [m or () for m in made]
    match op:
        case "sum" | "mean" | "amax" | "amin" | "prod" | "any" | "all":
            dims = args[1] if len(args) > 1 else words.get("dim")
            keep = bool(args[2]) if len(args) > 2 else bool(words.get("keepdim", False))
            axes = axes_of(source(), dims)
            return [_mean(g, args[0], axes, keep, dtypes[0]) if op == "mean" else _folded(g, op, args[0], axes, keep, dtypes[0])]
        case "argmax" | "argmin":
            if (args[1] if len(args) > 1 else words.get("dim")) is None:
                raise g.refused(f"{op} over all elements")
            return [_folded(g, op, args[0], axes_of(source(), args[1] if len(args) > 1 else words["dim"]),
                            bool(args[2]) if len(args) > 2 else bool(words.get("keepdim", False)), dtypes[0])]
        case "max" | "min" if len(outs) == 2:
            axes, keep = axes_of(source(), args[1]), bool(args[2]) if len(args) > 2 else bool(words.get("keepdim", False))
            return [_folded(g, f"a{op}", args[0], axes, keep, dtypes[0]), _folded(g, f"arg{op}", args[0], axes, keep, dtypes[1])]
        case "max" | "min" if len(args) == 1:
            return [_folded(g, f"a{op}", args[0], axes_of(source(), None), False, dtypes[0])]
        case "var" | "var_mean":
            axes = axes_of(source(), args[1] if len(args) > 1 and not isinstance(args[1], bool) else words.get("dim"))
            free = words.get("correction", 1) if whole.endswith(".correction") else int(bool(args[2] if len(args) > 2 else words.get("unbiased", True)))
            keep = bool(words.get("keepdim", args[3] if len(args) > 3 else False))
            mean = _mean(g, args[0], axes, True, dtypes[0])
            off = g.add("sub", (args[0], mean), source().shape, dtypes[0])
            square = g.add("mul", (off, off), source().shape, dtypes[0])
            var = _shared(g, square, axes, keep, dtypes[0], int(1 if free is None else free))
            flat = mean if keep else g.add("squeeze", (mean, axes), g.nodes[var.number].shape, dtypes[0])
            return [var, flat]
        case "_safe_softmax":
            axes, at, dtype = axes_of(source(), args[1]), source().shape, dtypes[0]
            top = _folded(g, "amax", args[0], axes, True, dtype)
            power = g.add("exp", (g.add("sub", (args[0], top), at, dtype),), at, dtype)
            return [g.add("div", (power, _folded(g, "sum", power, axes, True, dtype)), at, dtype)]
        case "split" | "split_with_sizes" | "unbind" | "chunk":
            axis = axes_of(source(), (args[2] if len(args) > 2 else words.get("dim", 0)) if op != "unbind" else (args[1] if len(args) > 1 else 0))[0]
            found, begin = [], [0] * len(source().shape[axis])
            for shape, dtype in zip(shapes, dtypes, strict=True):
                if op == "unbind":
                    found.append(g.add("select", (args[0], axis, begin[0]), shape, dtype))
                    begin = [b + 1 for b in begin]
                else:
                    start = begin[0] if len(set(begin)) == 1 else Moving(tuple(begin))
                    found.append(g.add("slice", (args[0], axis, start), shape, dtype))
                    begin = [b + e for b, e in zip(begin, shape[axis], strict=True)]
            return found
        case _:
            if not outs or outs[0] is None:
                return []
            if args and isinstance(args[0], Of) and (op in SAME or (op == "mul" and args[1:] == (1,))) and source().dtype == dtypes[0]:
                return [args[0]]
            each = enumerate(zip(shapes, dtypes, strict=True))
            return [g.add(op if not k else f"{op} (output {k})", args, shape, dtype, words) for k, (shape, dtype) in each]


def _folded(g: Graph, op: str, x: Of, axes: Sequence[int], keep: bool, dtype: str) -> Of:
    """A reduction. One of several axes is made along the last of them, then along the others, as one axis where they lie side by side; at once where they
    lie in one piece that a CTA may hold, and there are as many pieces as fill a device."""
    shape = g.nodes[x.number].shape
    loops = [i for i in axes if set(shape[i]) != {1}]
    row, items = (math.prod(max(shape[i]) for i in range(len(shape)) if (i in loops) is inside) for inside in (True, False))
    at_once = op in TWICE and items >= ENOUGH and row <= LONGEST
    if at_once and len(loops) > 1 and all(i in axes for i in range(min(loops), max(loops) + 1)):  # a row that lies in one piece
        first, end = min(loops), max(loops) + 1
        merged = (*shape[:first], tuple(math.prod(v) for v in zip(*shape[first:end], strict=True)), *shape[end:])
        left = [first, *(i if i < first else i - (end - first - 1) for i in axes if i not in range(first, end))]
        made = _fold(g, op, g.add("reshape", (x,), merged, g.nodes[x.number].dtype), sorted(left), False, dtype)
        return made if not keep else g.add("reshape", (made,), [(1,) * len(shape[0]) if i in axes else e for i, e in enumerate(shape)], dtype)
    finer = _finer(g, x, axes) if op in TWICE and not at_once else None
    if finer is not None:
        refined, wider = finer
        made = _folded(g, op, refined, wider, False, dtype)
        return made if not keep else g.add("reshape", (made,), [(1,) * len(shape[0]) if i in axes else e for i, e in enumerate(shape)], dtype)
    if len(loops) > 1 and op in TWICE:
        part = _fold(g, op, x, (loops[-1],), False, dtype)
        rest = [i - (i > loops[-1]) for i in axes if i != loops[-1]]
        inside = g.nodes[part.number].shape
        first, end = min(rest), max(rest) + 1
        if rest == list(range(first, end)):
            merged = (*inside[:first], tuple(math.prod(v) for v in zip(*inside[first:end], strict=True)), *inside[end:])
            made = _fold(g, op, g.add("reshape", (part,), merged, dtype), [first], False, dtype)
        else:
            made = _folded(g, op, part, rest, False, dtype)
        return made if not keep else g.add("reshape", (made,), [(1,) * len(shape[0]) if i in axes else e for i, e in enumerate(shape)], dtype)
    return _fold(g, op, x, axes, keep, dtype)


def _fold(g: Graph, op: str, x: Of, axes: Sequence[int], keep: bool, dtype: str) -> Of:
    """A reduction in one kernel."""
    shape = g.nodes[x.number].shape
    ones = (1,) * len(shape[0]) if shape else (1,)
    left = [ones if keep and i in axes else e for i, e in enumerate(shape) if keep or i not in axes]
    return g.add("fold", (x,), left, dtype, {"how": op, "axes": tuple(axes), "keep": keep})


ENOUGH = 256
"""Work items below which a row's reduction is not worth sharing with its elements: the elements alone fill a device, the rows do not."""
LONGEST = 65536
"""Elements of a row that one CTA reads again."""
TWICE = ("sum", "prod", "amax", "amin", "any", "all")
"""Reductions that may be made in parts."""


ALIKE = frozenset({"sub", "add", "mul", "div", "pow", "abs", "exp", "square", "relu", "neg", "sigmoid", "tanh", "sqrt", "rsqrt", "log"})
"""Operators of elements through which extents are looked at."""


def _finer(g: Graph, x: Of, axes: Sequence[int]) -> tuple[Of, tuple[int, ...]] | None:
    """What is folded, and along which axes, with axes that are several of the tensor that they are seen of as those; None where there are none."""
    shape = g.nodes[x.number].shape
    several: dict[int, tuple[Extent, ...]] = {}
    seen, left = {x.number}, [x.number]
    while left:
        node = g.nodes[left.pop()]
        if node.op in ("view", "reshape", "_unsafe_view", "flatten") and node.shape == shape and isinstance(node.args[0], Of):
            for new, old in grouped(shape, g.nodes[node.args[0].number].shape):
                if len(new) == 1 and len(old) > 1 and new[0] in axes:
                    several.setdefault(new[0], tuple(g.nodes[node.args[0].number].shape[i] for i in old))
        elif node.op in ALIKE:
            more = [a.number for a in node.args if isinstance(a, Of) and a.number not in seen]
            seen.update(more)
            left += more
    if not several:
        return None
    wide, wider = list[Extent](), list[int]()
    for i, e in enumerate(shape):
        wider += range(len(wide), len(wide) + len(several.get(i, (e,)))) if i in axes else ()
        wide += several.get(i, (e,))
    return _refined(g, x, several, {}), tuple(wider)


def _refined(g: Graph, x: Of, several: Mapping[int, tuple[Extent, ...]], known: dict[int, Of]) -> Of:
    """A tensor with some axes as several: its own operators of elements on operands that are so."""
    if x.number not in known:
        node = g.nodes[x.number]
        one = (1,) * len(next(iter(several.values()))[0])
        wide = list[Extent]()
        for i, e in enumerate(node.shape):
            wide += ([one] * len(several[i]) if e == one else list(several[i])) if i in several else [e]
        same = all(not isinstance(a, Of) or len(g.nodes[a.number].shape) in (0, len(node.shape)) for a in node.args)
        if node.op in ALIKE and same:
            args = [_refined(g, a, several, known) if isinstance(a, Of) and g.nodes[a.number].shape else a for a in node.args]
            known[x.number] = g.add(node.op, args, wide, node.dtype, node.words)
        else:
            known[x.number] = g.add("reshape", (x,), wide, node.dtype)
    return known[x.number]


def grouped(new: Sequence[Extent], old: Sequence[Extent]) -> list[tuple[list[int], list[int]]]:
    """Axes of two row-major shapes of one tensor that have as many elements, from the first on; [] where no such parts are found."""
    probes = len((*new, *old)[0]) if (*new, *old) else 1
    one, out = (1,) * probes, list[tuple[list[int], list[int]]]()
    mine, theirs = [i for i, e in enumerate(new) if e != one], [i for i, e in enumerate(old) if e != one]
    i = j = 0
    while i < len(mine) or j < len(theirs):
        a, b, left, right = list[int](), list[int](), one, one
        while not a or not b or left != right:
            if i >= len(mine) and j >= len(theirs):
                return []
            if j >= len(theirs) or (i < len(mine) and math.prod(left) <= math.prod(right)):
                a.append(mine[i])
                left = tuple(p * q for p, q in zip(left, new[mine[i]], strict=True))
                i += 1
            else:
                b.append(theirs[j])
                right = tuple(p * q for p, q in zip(right, old[theirs[j]], strict=True))
                j += 1
        out.append((a, b))
    return out


def _shared(g: Graph, x: Of, axes: Sequence[int], keep: bool, dtype: str, less: int = 0) -> Of:
    """The sum over axes by how many there are, less some."""
    total = _folded(g, "sum", x, axes, keep, dtype)
    shape = g.nodes[x.number].shape
    count = tuple(math.prod(v) - less for v in zip(*(shape[i] for i in axes), strict=True)) if axes else (1,)
    same = len(set(count)) == 1
    over = float(count[0]) if same else g.add("count", (), (), dtype, {"extents": tuple(shape[i] for i in axes), "less": less})
    return g.add("div", (total, over), g.nodes[total.number].shape, dtype)


def _mean(g: Graph, x: Of, axes: Sequence[int], keep: bool, dtype: str) -> Of:
    return _shared(g, x, axes, keep, dtype)
