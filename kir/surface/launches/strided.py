"""The extents of a tensor of which host code shows the strides alone: how far a kernel reaches along each of its axes.

A cache or a state is often handed on with `x.stride(0)`, `x.stride(1)` and nothing of its shape. Runs in which these strides are far apart tell the axes
from one another: the last place that is reached, in digits of the strides, says how many of each axis are. Where rows are a stride apart, how far one of them
reaches is what the stride is at least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kir.analysis.access import offset_tables
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.types import I32
from kir.surface.launches.alike import as_seen, parts_as_seen
from kir.surface.launches.extents import ENDLESS, MORE_PLACES, shaped, without
from kir.surface.launches.reach import PLACES, PRIMES, leaves, ran, small_sizes
from kir.surface.launches.reached_by import sizes_reached_by
from kir.surface.launches.values import evaluated

APART = ((2, 32), (4, 48))
"""How many times the largest size the last stride is in the two runs, and how many times the stride behind it each further one."""


def with_reached_axes(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with a size, or a number, for each axis of such tensors along which the kernel reaches so far at both of two sets of small sizes. An axis
    that is looked up by numbers of another tensor, or of which one place is reached, keeps a size of its own."""
    first = sorted(binding.tensors.values(), key=lambda t: not t.dtype.startswith(("i", "u")))  # what others are looked up by
    for shape in dict.fromkeys(tuple(t.shape) for t in first if t.strides is None and len(t.shape) > 1):
        names = [name for name, t in binding.tensors.items() if tuple(t.shape) == shape]
        strides = _strides(binding, names, shape)
        if strides is not None and not (len(shape) == 2 and "stride" in str(shape[1])):  # rows a stride apart, which may be longer than what is in them
            binding = _reached(binding, made, names, shape, strides)
    return binding


def with_inner_axes(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> Binding:
    """The binding without sizes that stand for one extent and for the strides over it alone (`_, _, n = b.shape`): each is the size with which exactly the
    whole tensor is reached at both of two sets of small sizes. `examples` are the sizes in a call that was seen: what they contradict is not so."""
    extents = [(name, axis, d) for name, t in binding.tensors.items() for axis, d in enumerate(t.shape) if isinstance(d, str) and d in binding.sizes]
    told = [str(v).split(" * ") for v in binding.scalars.values()]
    for name, axis, d in sorted(extents, key=lambda e: sum(e[2] in each for each in told)):  # what is spoken of least is what another one is
        t = binding.tensors[name]
        bare = binding.changed(scalars={k: v for k, v in binding.scalars.items() if d not in str(v).split(" * ")})
        alone = [d] in told  # a number that is passed itself is one of the author's, or the rows of a matrix that nothing tells from it
        if alone or t.strides is not None or [*map(str, t.shape)].count(d) != 1 or _mentioned(shaped(bare, {name: [x for x in t.shape if x != d]}), [], d):
            continue
        if len(bare.scalars) == len(binding.scalars):  # whose strides are not passed: a compile-time value, as the call that is seen has it
            if axis and examples.get(d) in [v for v in binding.metas.values() if type(v) is int]:
                now = shaped(without(binding, d), {name: [*t.shape[:axis], examples[d], *t.shape[axis + 1:]]})
                binding = now if _all_reached(now, made, name) else binding
            continue
        for other in (x for x in binding.sizes if x != d and as_seen(examples, [d], [x])):
            words = {k: " * ".join(other if x == d else x for x in str(v).split(" * ")) if k not in bare.scalars else v for k, v in binding.scalars.items()}
            now = shaped(without(binding, d).changed(scalars=words), {name: [*t.shape[:axis], other, *t.shape[axis + 1:]]})
            rows, first = [now], str(t.shape[0])
            if axis and first in now.sizes and not _mentioned(now, [name], first):  # of as many rows as another size is, where nothing speaks of them either
                rows += [shaped(without(now, first), {name: [x, *now.tensors[name].shape[1:]]}) for x in now.sizes
                         if x != first and as_seen(examples, [first], [x])]
            found = next((each for each in rows if _all_reached(each, made, name)), None)
            if found is not None:
                binding = found
                break
    return binding


def _all_reached(binding: Binding, made: Callable[[Binding], n.Program], name: str) -> bool:
    """Whether the kernel reaches a tensor to its end, and never leaves it, at both sets of small sizes."""
    try:
        program = made(binding)
        held = {x: n.Var(x, I32) for x in binding.sizes}
        parts = list(expressions({str(k): d for k, d in enumerate(binding.tensors[name].shape)}, held, "extent").values())
    except KirError:
        return False
    at = [small_sizes(binding, primes) for primes in PRIMES]
    ends = ["", *(binding.sizes if offset_tables(program) else ())]  # where tables of parts are, of parts up to the end of something
    return any(all(_whole_at(program, binding, name, parts, sizes, end) for sizes in at) for end in ends)


def _whole_at(program: n.Program, binding: Binding, name: str, parts: Sequence[n.Expr], sizes: Mapping[str, int] | None, end: str) -> bool:
    found = ran(program, sizes, parts=sizes[end] if end else 0) if sizes is not None else None
    return found is not None and sizes is not None and not leaves(found, name, binding) and (
        found.ends.get(name) == math.prod(evaluated(e, sizes) or 0 for e in parts))


def with_row_lengths(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> Binding:
    """The binding with facts on the strides of tensors that are as large as rows times a stride: no row runs into the next, and each begins as its length
    divides. `examples` are the sizes in a call that was seen: of what fits, what a stride is there comes first, part of a size as well (eight numbers in
    a word)."""
    facts = [fact for name in binding.tensors for fact in _row_length(binding, made, name, examples)]
    return binding.changed(facts=list(dict.fromkeys([*binding.facts, *facts])))


def _row_length(binding: Binding, made: Callable[[Binding], n.Program], name: str, examples: Mapping[str, int]) -> Iterator[str]:
    parts = [x for x in " * ".join(map(str, binding.tensors[name].shape)).split(" * ") if x != "1"]
    strides = [x for x in parts if "stride" in x and x in binding.sizes]
    tried = [{**sizes, **{x: 1 for x in parts if x in sizes and x not in strides}}  # a single row: how far does the kernel reach?
             for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
    known = any(re.match(rf"{x} >=? [^01]", f) for x in strides for f in binding.facts)
    if len(strides) != 1 or known or not tried or len(parts) < 2 or not (len(parts) == 2 or set(parts) <= {*binding.sizes}):
        return
    (stride,) = strides
    try:
        own = sizes_reached_by(made(binding), name, binding.sizes) or binding.sizes
        lengths = sorted((x for x in binding.sizes if x in own and x not in parts and "stride" not in x), key=lambda x: tried[0][x])
        seen = [x for x in (*lengths, *parts_as_seen(examples, lengths, strides)) if as_seen(examples, strides, [x])] if stride in examples else []
        for length in dict.fromkeys((*_whole(binding, made, name, tried, lengths), *seen, *lengths)):
            now = shaped(binding, {name: [length]})
            program = made(now)
            if all((found := ran(program, sizes)) is not None and not leaves(found, name, now) for sizes in tried):
                yield f"{stride} >= {length}"
                yield from (fact.replace(length, stride, 1) for fact in binding.facts if re.fullmatch(rf"{re.escape(length)} % \d+ == 0", fact))
                return
    except KirError:
        return


def _whole(binding: Binding, made: Callable[[Binding], n.Program], name: str, tried: Sequence[Mapping[str, int]], lengths: Sequence[str]) -> list[str]:
    """The number of elements that a row has where it is the same at all sizes, and none of these lengths is."""
    program = made(shaped(binding, {name: (ENDLESS,)}))
    ends = {found.ends.get(name, 0) if (found := ran(program, sizes)) is not None else 0 for sizes in tried}
    return [str(end) for end in ends if end > 1 and len(ends) == 1 and not any({sizes[x] for sizes in tried} == ends for x in lengths)]


def _strides(binding: Binding, names: Sequence[str], shape: Sequence[str | int]) -> list[list[str]] | None:
    """The scalars that hold the stride of each axis but the last, where the extents of these tensors are in nothing else; None where they are."""
    held = {x: n.Var(x, I32) for x in binding.sizes}
    own = {str(d) for d in shape[1:]} & held.keys()
    if not own or not all(d in held for d in shape[1:]) or len({*shape}) < len(shape):
        return None
    try:
        products = expressions({str(k): " * ".join(map(str, shape[k + 1:])) for k in range(len(shape) - 1)}, held, "extent")
        scalars = expressions({k: v for k, v in binding.scalars.items() if isinstance(v, str)}, held, "scalar")
    except KirError:
        return None
    found = [[name for name, e in scalars.items() if build.polynomial(e) == build.polynomial(p)] for p in products.values()]
    bare = binding.changed(scalars={k: v for k, v in binding.scalars.items() if not any(k in each for each in found)})
    return found if all(found) and not any(_mentioned(bare, names, d) for d in own) else None


def _mentioned(binding: Binding, names: Sequence[str], size: str | int) -> bool:
    """Whether anything of a binding speaks of a size beside the shapes of these tensors, and that it is one at least."""
    said = [*binding.grid, *binding.scalars.values(), *(f for f in binding.facts if not re.fullmatch(r"\w+ >= 1", f)), *binding.metas.values(),
            *binding.heuristics.values(), *(x for name, t in binding.tensors.items() if name not in names for x in (*t.shape, *(t.strides or ())))]
    return any(re.search(rf"\b{size}\b", str(x)) for x in said)


def _reached(binding: Binding, made: Callable[[Binding], n.Program], names: Sequence[str], shape: Sequence[str | int], strides: list[list[str]]) -> Binding:
    bare = binding
    for d in shape[1:] if _mentioned(binding, names, shape[0]) else shape:
        bare = without(bare, str(d))
    apart = [f"stride_{k}_of_{names[0]}" for k in range(len(strides))]
    wide = shaped(bare, dict.fromkeys(names, (ENDLESS,))).changed(
        sizes=[*bare.sizes, *apart], scalars={**bare.scalars, **{s: apart[k] for k, each in enumerate(strides) for s in each}})
    tried = [sizes for primes in PRIMES if (sizes := small_sizes(bare, primes)) is not None]
    if len(tried) < len(PRIMES) or set(apart) & set(bare.sizes):
        return binding
    try:
        program = made(wide)
    except KirError:
        return binding
    ends = [_digits(program, wide, names, sizes, apart, far) for sizes, far in zip(tried, APART, strict=True)]
    found: list[str | int] = list(shape)
    for k in range(len(shape)):
        seen = [None if each is None else each[k] for each in ends]
        if None in seen or not isinstance(shape[k], str):  # a number is one that the host code says
            continue
        same = next((x for x in bare.sizes if [sizes[x] for sizes in tried] == seen), None)
        if same is not None:
            found[k] = same
        elif len(set(seen)) == 1 and seen[0] is not None and seen[0] > 1:
            found[k] = seen[0]
    now = _with(binding, names, shape, found, strides)
    at = [sizes for primes in PRIMES if (sizes := small_sizes(now, primes)) is not None]
    try:
        runs = [ran(made(now), sizes) for sizes in at]
    except KirError:
        return binding
    return binding if None in runs or any(leaves(run, name, now) for run in runs if run is not None for name in names) else now


FARTHEST = 1 << 12
"""Compile-time values from here on are taken for no extent of a row."""


def _digits(program: n.Program, binding: Binding, names: Sequence[str], sizes: Mapping[str, int], apart: Sequence[str],
            far: tuple[int, int]) -> list[int | None] | None:
    """How many places are reached along each axis by a run whose strides are far apart; None for an axis that a table decides, and where no run can be made."""
    wide = max((v for v in binding.metas.values() if type(v) is int and v < FARTHEST), default=1) + far[0]
    steps = [max(far[0] * max(sizes.values(), default=1), wide)]
    for _ in apart[1:]:
        steps.append(steps[-1] * max(far[1], wide))
    steps.reverse()
    most: list[list[int]] = []
    for places in (PLACES, MORE_PLACES):
        run = ran(program, {**sizes, **dict(zip(apart, steps, strict=True))}, places)
        if run is None or any(leaves(run, name, binding) for name in names) or not max(run.ends.get(name, 0) for name in names):
            return None
        last, digits = max(run.ends.get(name, 0) for name in names) - 1, []
        for step in (*steps, 1):
            digits.append(last // step + 1)
            last %= step
        most.append(digits)
    return [a if a == b else None for a, b in zip(*most, strict=True)]


def _with(binding: Binding, names: Sequence[str], shape: Sequence[str | int], found: Sequence[str | int], strides: list[list[str]]) -> Binding:
    """The binding with these extents instead, and with the strides that they make."""
    for old, new in zip(shape, found, strict=True):
        if old != new and isinstance(old, str):
            binding = without(binding, old)
    scalars = {s: _product(found[k + 1:]) for k, each in enumerate(strides) for s in each}
    return shaped(binding, dict.fromkeys(names, found)).changed(scalars={**binding.scalars, **scalars})


def _product(parts: Sequence[str | int]) -> str | int:
    left = [str(x) for x in parts]
    return int(left[0]) if len(left) == 1 and left[0].isdigit() else " * ".join(left)
