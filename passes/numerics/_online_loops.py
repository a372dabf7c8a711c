"""The two forms of `online-normalize`, taken apart: a loop that finds a maximum and one that sums what is scaled by it, or one loop for both."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite.match import fresh_var, from_zero, matched_as
from kir.rewrite.match.materialize import buffers_written, is_pure


@dataclass(frozen=True)
class Growth:
    """How a maximum that grows rescales: by `base(old * scale - new * scale)`."""

    base: str
    scale: float = 1.0

    def factor(self, old: n.Expr, new: n.Expr) -> n.Expr:
        """The factor from an old maximum to a new one."""
        return build.call(self.base, build.binary("sub", self.scaled(old), self.scaled(new)))

    def scaled(self, top: n.Expr) -> n.Expr:
        """A maximum as it stands under the function."""
        return top if self.scale == 1.0 else build.binary("mul", top, build.const(self.scale, dtype_of(top.type)))


@dataclass(frozen=True)
class TwoLoops:
    """The first loop, whose last statement raises `top`; the declarations between; the second loop."""

    first: n.For
    between: n.Block
    second: n.For
    top: n.Region

    @property
    def folded(self) -> n.Expr:
        """What an iteration of the first loop folds into the maximum."""
        last = matched_as(self.first.body[-1], n.Store)
        assert isinstance(last.value, n.Binary)
        return last.value.b

    @property
    def count(self) -> int:
        """Statements that the parts take in their block."""
        return 2 + len(self.between)


def two_loops(block: n.Block, i: int) -> TwoLoops | str:
    """The two-loop form that starts at statement `i`, or why there is none ("" where nothing looks like it)."""
    first = block[i]
    if not (isinstance(first, n.For) and first.kind == "serial" and first.body):
        return ""
    last = first.body[-1]
    if not (isinstance(last, n.Store) and isinstance(last.value, n.Binary) and last.value.op == "max" and last.value.a == n.Load(last.at)
            and not last.at.index and last.mask is None and _is_own(first.body[:-1])):
        return ""
    k = i + 1
    while k < len(block) and isinstance(block[k], n.Alloc):
        k += 1
    second = block[k] if k < len(block) else None
    if not (isinstance(second, n.For) and (second.kind, second.lo, second.hi, second.step) == (first.kind, first.lo, first.hi, first.step)):
        return "no loop over the same range follows"
    if not any(n.Load(last.at) in (x,) for s in second.body for x in walk(s)):
        return "the second loop does not use the maximum"
    return TwoLoops(first, block[i + 1:k], second, last.at)


def declared_in(block: n.Block) -> set[str]:
    """The buffers that a block declares."""
    return {s.buffer.name for s in block if isinstance(s, n.Alloc)}


def _is_own(block: n.Block) -> bool:
    """Whether statements only define values, and write nothing but memory that they declare."""
    own = declared_in(block)
    return all(is_pure(s.value) if isinstance(s, n.Let) else isinstance(s, (n.Alloc, n.Store, n.Mma, n.For)) and buffers_written((s,)) <= own
               for s in block)


@dataclass(frozen=True)
class Sum:
    """An addition to something that outlives the iteration: where, what is added (of a product, its left operand), and the loop over the
    elements of the place, if there is one."""

    at: n.Region
    factor: n.Expr


def sum_of(s: n.Stmt) -> Sum | None:
    """The sum that a statement adds to: a store, a product, or a loop that adds to each element of an array once."""
    match s:
        case n.Mma():
            return Sum(s.acc, s.a)
        case n.Store() if s.at.buffer.dtype.is_float and s.mask is None and isinstance(s.value, n.Binary) and s.value.op == "add" and (
                s.value.a == n.Load(s.at)):
            return Sum(s.at, s.value.b)
        case n.For() if len(s.body) == 1 and isinstance(s.body[0], n.Store) and _is_sweep(s, s.body[0].at):
            return sum_of(s.body[0])
        case _:
            return None


def _is_sweep(loop: n.For, at: n.Region) -> bool:
    """Whether a loop visits each element of an array once."""
    return (loop.kind in ("serial", "unroll", "vectorize") and from_zero(loop)
            and at.index == (loop.var,) and at.buffer.shape == (loop.hi,))


def scaled(s: n.Stmt, scale: n.Var) -> n.Block:
    """A statement that adds to a sum, with the sum scaled first."""
    match s:
        case n.Mma():
            return n.Store(s.acc, build.binary("mul", n.Load(s.acc), _as_factor(scale, s.acc))), s
        case n.Store() if isinstance(s.value, n.Binary):
            return (replace(s, value=build.binary("add", build.binary("mul", s.value.a, _as_factor(scale, s.at)), s.value.b)),)
        case n.For():
            return (replace(s, body=scaled(s.body[0], scale)),)
        case _:
            raise TypeError(type(s).__name__)


def _as_factor(scale: n.Var, at: n.Region) -> n.Expr:
    """The factor, stretched over the axes that a sum has beyond those of the maximum."""
    out: n.Expr = scale
    for axis in range(len(shape_of(scale.type)), len(shape_of(at.type)) if isinstance(scale.type, TileType) else 0):
        out = build.expand(out, axis)
    return out


def unscaled(s: n.Stmt, scale: str) -> n.Stmt | None:
    """A statement without the rescaling; None when rescaling is all that it does."""
    if isinstance(s, n.For) and len(s.body) == 1:
        inner = unscaled(s.body[0], scale)
        return None if inner is None else s if inner is s.body[0] else replace(s, body=(inner,))
    if not (isinstance(s, n.Store) and scale in names_read(s.value)):
        return s
    v = s.value
    if isinstance(v, n.Binary) and v.op == "mul" and v.a == n.Load(s.at):
        return None
    if isinstance(v, n.Binary) and v.op == "add" and isinstance(v.a, n.Binary) and v.a.op == "mul" and v.a.a == n.Load(s.at):
        return replace(s, value=build.binary("add", n.Load(s.at), v.b))
    return s


# ---------------------------------------------------------------------------------------------------------- one loop, from two

def merged(loops: TwoLoops, growth: Growth, taken: set[str]) -> n.Block:
    """The body of the one loop: what the maximum needs, the maximum and the factor, then the sums. What both loops compute stands once."""
    own, last = loops.first.body[:-1], matched_as(loops.first.body[-1], n.Store)
    grown = fresh_var("grown", taken, last.value.type)
    scale = fresh_var("scale", taken, last.value.type)
    head = (*own, n.Let((grown.name,), last.value),
            n.Let((scale.name,), growth.factor(n.Load(loops.top), grown)), replace(last, value=grown))
    body: Any = tuple(substitute(s, {loops.second.var.name: loops.first.var}) for s in loops.second.body)
    left, local = _without_shared(own, body), declared_in(body)
    out: list[n.Stmt] = []
    for s in left:
        made: Any = transform(s, lambda old, new: grown if new == n.Load(loops.top) else new)
        found = sum_of(made)
        out.extend((made,) if found is None or found.at.buffer.name in local else scaled(made, scale))
    return (*head, *out)


def _without_shared(own: n.Block, body: n.Block) -> n.Block:
    """The statements of `body` without those that compute what statements of `own` compute already, whose names are used instead."""
    refused: set[tuple[str, str]] = set()
    while True:
        same: dict[str, str] = {}
        pairs: dict[str, str] = {}
        matched: dict[str, int] = {}
        left: list[n.Stmt] = []
        for s in body:
            t = rename(s, same)
            twin = next((x for x in own if _is_twin(x, t, pairs, refused)), None)
            if twin is None:
                left.append(t)
            elif isinstance(t, n.Let) and isinstance(twin, n.Let):
                same.update(zip(t.names, twin.names, strict=True))
            elif isinstance(t, n.Alloc) and isinstance(twin, n.Alloc):
                same[t.buffer.name] = pairs[t.buffer.name] = twin.buffer.name
            else:
                for name in buffers_written((t,)):
                    matched[name] = matched.get(name, 0) + 1
        wrong = {(b, a) for b, a in pairs.items() if matched.get(a, 0) != _writers(own, a) or _writers(left, a)}
        if not wrong:
            return tuple(left)
        refused |= wrong


def _writers(block: n.Block | list[n.Stmt], name: str) -> int:
    return sum(name in buffers_written((s,)) for s in block)


def _is_twin(x: n.Stmt, t: n.Stmt, pairs: dict[str, str], refused: set[tuple[str, str]]) -> bool:
    """Whether `x` computes what `t` computes, and may stand for it."""
    match x, t:
        case n.Let(), n.Let():
            return x.value == t.value and len(x.names) == len(t.names)
        case n.Alloc(), n.Alloc():
            pair = (t.buffer.name, x.buffer.name)
            return replace(x.buffer, name=t.buffer.name) == t.buffer and x.init == t.init and pair not in refused and pair[1] not in pairs.values()
        case (n.Store() | n.Mma() | n.For()), (n.Store() | n.Mma() | n.For()):
            names, others = list(bound_names((t,))), list(bound_names((x,)))
            return buffers_written((t,)) <= set(pairs.values()) and len(names) == len(others) and rename(t, dict(zip(names, others, strict=True))) == x
        case _:
            return False


# ---------------------------------------------------------------------------------------------------------- two loops, from one

@dataclass(frozen=True)
class Split:
    """One loop taken apart: the bodies of the two (names that both bind are still the same), and the buffers that sums are in."""

    first: n.Block
    second: n.Block
    sums: frozenset[str]


def split(loop: n.For, growth: Growth) -> Split | None:
    """The two bodies of a loop that raises a maximum and rescales sums by how much it grew; None for other loops."""
    return next((found for at in range(len(loop.body)) if (found := _split_at(loop.body, at, growth)) is not None), None)


def _split_at(body: n.Block, at: int, growth: Growth) -> Split | None:
    grown = body[at]
    if not (isinstance(grown, n.Let) and len(grown.names) == 1 and isinstance(grown.value, n.Binary) and grown.value.op == "max"
            and isinstance(grown.value.a, n.Load) and not grown.value.a.at.index and grown.value.a.mask is None):
        return None
    held, new = grown.value.a, n.Var(grown.names[0], grown.value.type)
    factor = growth.factor(held, new)
    scale = next((k for k, s in enumerate(body) if isinstance(s, n.Let) and s.value == factor), None)
    top = next((k for k, s in enumerate(body) if isinstance(s, n.Store) and s.at == held.at and s.value == new and s.mask is None), None)
    if scale is None or top is None or not at < scale < top or held.at.buffer.name in declared_in(body):
        return None
    by = matched_as(body[scale], n.Let)
    rest: list[n.Stmt] = []
    for k, s in enumerate(body):
        plain = unscaled(s, by.names[0]) if k not in (at, scale, top) else None
        if plain is not None:
            rest.append(plain)
    if any(by.names[0] in names_read(s) or held in walk(s) or held.at.buffer.name in buffers_written((s,)) for s in rest):
        return None
    lasting = [s for s in rest if buffers_written((s,)) - declared_in(body)]
    needs_top = [s for s in rest if new.name in names_read(s)]
    of_max = _needed(rest, [grown.value.b])
    of_sums = _needed(rest, lasting)
    if any(s in lasting or s in needs_top for s in of_max) or len({*of_max, *of_sums}) != len({*rest}):
        return None
    raised = replace(body[top], value=grown.value)  # type: ignore[type-var]  # a Store, found above
    sums = tuple(transform(s, lambda old, x: held if isinstance(x, n.Var) and x.name == new.name else x) for s in of_sums)
    return Split((*of_max, raised), sums, frozenset().union(*(buffers_written((s,)) for s in lasting)))


def _needed(block: list[n.Stmt], roots: list[Any]) -> list[n.Stmt]:
    """The statements of a block that compute what `roots` read, and those of the roots that stand in it, in order."""
    wanted = {name for x in roots for name in _mentioned(x)}
    out: list[n.Stmt] = []
    for s in reversed(block):
        defined = set(s.names) if isinstance(s, n.Let) else {s.buffer.name} if isinstance(s, n.Alloc) else buffers_written((s,))
        if defined & wanted:
            out.append(s)
            wanted |= set(_mentioned(s))
    return out[::-1]


def _mentioned(x: n.Node) -> Iterator[str]:
    return (y.name for y in walk(x) if isinstance(y, (n.Var, n.Buffer)))
