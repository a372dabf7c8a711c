"""Lengths of tensors that only a call tells, taken to be those sizes of the host code that are as long in that call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.types import I32
from kir.ir.visit import walk
from kir.surface.launches.values import Array, Known, evaluated, is_number, variables

AS_SEEN = "as it is in the call that the host code shows"
"""What is said of each of them."""


def as_the_call_has_them(known: Known, arrays: Mapping[str, Array], told: Iterable[object], grid: Iterable[object]) -> list[str]:
    """The tensors of which an axis that the host code never speaks of was found to be one of the sizes that it names or launches by: the only one that is as
    long in the call that was seen; a power of two, and one of several, only where it is the same axis of another tensor. What is as long by chance in that
    call is told from nothing else, so that each is to be said. `told` is what the launch passes, `grid` how many CTAs it has."""
    shapes = {k: a.shape for k, a in arrays.items() if a.shape is not None}
    ctas, passed = ([known.resolved(e) for e in each if isinstance(e, n.Expr) and is_number(e)] for each in (grid, told))
    alone = {e.name for e in passed if isinstance(e, n.Var)} | {x for e in ctas for x in variables(e)}  # the launch tells those, be it by no name
    named: dict[str, n.Var] = {}
    for e in (*passed, *ctas, *(known.resolved(d) for shape in shapes.values() for d in shape)):
        for name in variables(e):
            if (known.names.get(name, (9, ""))[0] == 0 or name in alone) and name in known.examples:
                named.setdefault(name, n.Var(name, e.type))
    out = dict.fromkeys([*_counted_out(known, shapes, ctas), *_alike_in_memory(known, arrays)])
    for name, shape in shapes.items():
        for axis in range(len(shape)):
            d = known.resolved(shape[axis])
            if not isinstance(d, n.Var) or known.names.get(d.name, (9, ""))[0] < 2 or d.name not in known.examples or d.name in alone:
                continue
            value = known.examples[d.name]
            same = [v for v in named.values() if known.examples[v.name] == value]
            if len(same) > 1 and axis < max(1, len(shape) - 1):
                continue  # how far the kernel reaches says which
            if value & (value - 1) == 0 or (len(same) > 1 and len(shape) > 2):  # powers of two meet by chance
                there = {known.resolved(e) for k, other in shapes.items() if k != name for e in _there(other, axis, len(shape))}
                same = [v for v in same if v in there]
            if len(same) == 1:
                known.same(d, same[0])
                out[name] = None
    return list(out)


def _counted_out(known: Known, shapes: Mapping[str, Sequence[n.Expr]], ctas: Sequence[n.Expr]) -> Iterator[str]:
    """Tensors with as many rows as the launch has CTAs by a number that is written out: partial sums, one for each."""
    counts = {int(e.value) for e in ctas if isinstance(e, n.Const) and isinstance(e.value, int) and e.value > 1}
    for name, shape in shapes.items():
        d = known.resolved(shape[0]) if shape else None
        if isinstance(d, n.Var) and known.names.get(d.name, (9, ""))[0] >= 2 and known.examples.get(d.name) in counts:
            known.same(d, build.const(known.examples[d.name]))
            yield name


def _alike_in_memory(known: Known, arrays: Mapping[str, Array]) -> Iterator[str]:
    """Tensors that are views of memory of a shape that another one's has, too, in the call that was seen, along axes that nobody names: `a.view(-1, n)` of
    three tensors that are as large."""
    owners: list[tuple[n.Expr, ...]] = []
    for name, a in arrays.items():
        shape = a.memory.shape or ()
        for other in owners:
            if len(other) == len(shape) > 1 and all(known.example(d) == known.example(e) is not None for d, e in zip(shape, other)):
                parted = False
                for d, e in zip(shape, other):
                    d, e = known.resolved(d), known.resolved(e)
                    if any(known.example(x) == known.example(e) and known.resolved(x) != e for x in other):
                        continue  # square: how far the kernel reaches says which
                    if d != e and isinstance(d, n.Var) and known.names.get(d.name, (9, ""))[0] >= 2:
                        known.same(d, e)
                        parted = True
                if parted and a.of is not None:
                    yield name
                break
        else:
            owners.append(shape)


def _there(other: Sequence[n.Expr], axis: int, rank: int) -> Sequence[n.Expr]:
    """The same axis of another tensor: of as many axes, or the last of both."""
    if len(other) == rank:
        return other[axis:axis + 1]
    return other[-1:] if axis == rank - 1 and min(rank, len(other)) > 1 else ()


def shared_out(known: Known, e: n.Expr, value: int) -> None:
    """A quotient of two sizes that is a compile-time value, without a rest in the call that was seen: heads that so many share are as many times their
    number, and a head of which the half is one is twice as long."""
    match known.resolved(e):
        case n.Binary(op="floordiv", a=n.Var() as whole, b=n.Var() as part) if whole != part and known.example(whole) == value * (known.example(part) or 0) > 0:
            names = [known.names.get(x.name, (9, "a size"))[1] for x in (whole, part)]
            known.same(whole, build.mul(part, build.const(value)))
            known.remarks.append(f"{names[0]} is {value} times {names[1]}, {AS_SEEN}")
        case n.Binary(op="floordiv", a=n.Var() as whole, b=n.Const(value=int() as by)) if known.example(whole) == value * by > 0 and by > 1:
            name = known.names.get(whole.name, (9, "a size"))[1]
            known.same(whole, build.const(value * by))
            known.remarks.append(f"{name} is {value * by}, {AS_SEEN}")


def as_seen(examples: Mapping[str, int], shape: Sequence[str | int], other: Sequence[str | int]) -> bool:
    """Whether two shapes have as many elements in the call that was seen, as far as that says how many."""
    held = {x: n.Var(x, I32) for x in examples}
    try:
        counts = [[evaluated(e, examples) for e in expressions({str(k): d for k, d in enumerate(each)}, held, "extent").values()] for each in (shape, other)]
    except KirError:
        return True
    one, two = (math.prod(c for c in each if c is not None) if None not in each else None for each in counts)
    return one is None or two is None or one == two


def parts_as_seen(examples: Mapping[str, int], sizes: Iterable[str], lone: Iterable[str]) -> Iterator[str]:
    """Parts of sizes that lengths of which nothing speaks are in the call that was seen: eight numbers in a word, one scale for so many."""
    for value in dict.fromkeys(examples[x] for x in lone if x in examples):
        for size in (x for x in sizes if x in examples):
            ratio, rest = divmod(examples[size], value)
            if not rest and ratio > 1 and not ratio & (ratio - 1):
                yield f"ceildiv({size}, {ratio})"


def whole_parts(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> list[str]:
    """That a size is a multiple of another one by which the kernel divides it, or of a number by which it divides it to step from row to row, as facts that
    the binding does not have, where it is so in the call that was seen: query heads that share those of keys, channels of groups; words of eight numbers."""
    try:
        program = made(binding)
    except KirError:
        return []
    pairs, rows = dict[tuple[str, str], None](), dict[str, set[int]]()
    for x in (x for k in program.kernels for x in walk(k) if isinstance(x, n.Binary)):
        if x.op in ("floordiv", "tdiv") and isinstance(x.a, n.Var) and isinstance(x.b, n.Var):
            pairs[x.a.name, x.b.name] = None
        for part, other in ((x.a, x.b), (x.b, x.a)) if x.op == "mul" else ():
            while isinstance(part, n.Cast):
                part = part.x
            by = build.int_value(part.b) if isinstance(part, n.Binary) and part.op in ("floordiv", "tdiv") else None
            if by and by > 1 and isinstance(part, n.Binary) and isinstance(part.a, n.Var) and build.int_value(other) is None:
                rows.setdefault(part.a.name, set()).add(by)
    facts = [f"{a} % {b} == 0" for a, b in pairs if a in binding.sizes and b in binding.sizes and b in examples and examples.get(a, 1) % examples[b] == 0]
    for a, found in rows.items():
        whole = [by for by in sorted(found, reverse=True) if a in binding.sizes and a in examples and examples[a] % by == 0]
        facts += [f"{a} % {by} == 0" for k, by in enumerate(whole) if all(more % by for more in whole[:k])]
    return [fact for fact in facts if fact not in binding.facts]
