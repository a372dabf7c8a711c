"""How large a tensor is that no host code shows: the fewest elements, of those that sizes give, at which the kernel stays inside."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from kir.base.diagnostic import KirError
from kir.interp.launch import run
from kir.interp.numerics.number import storage
from kir.interp.state.result import Result
from kir.ir import nodes as n
from kir.ir.binding import Binding, fact_expressions
from kir.ir.build import const, int_value
from kir.ir.types import DTYPES, I32, DType
from kir.ir.visit import substitute, walk
from kir.surface.launches.values import decided

MOST_ELEMENTS = 1 << 22
MOST_STEPS = 400_000
"""How large a run may be by which shapes are tried: elements of a tensor, statements."""
PRIMES = ((3, 5, 7, 11, 13, 17), (7, 3, 11, 5, 17, 13))
"""What sizes are in the two runs: no product of some is one of others."""
STRIDES = (101, 211, 431, 863, 1733, 3467)
"""What strides are: each exceeds the extent that it strides over, and rows of one end beyond those of another."""
FACTORS: Sequence[int] = (*(1 << k for k in range(10)), *range(3, 512))
"""By how much those sizes that facts speak of are enlarged until every fact holds; powers of two first."""


def open_shapes(binding: Binding) -> list[str]:
    """The tensors whose shape nobody states."""
    return [name for name, t in binding.tensors.items() if "?" in t.shape]


def with_shapes(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with a shape for each tensor that has none: the smallest of the products of sizes at which runs at small sizes never leave
    the tensor. One that leaves them all keeps its question mark. `made` gives the program under a binding."""
    left = dict.fromkeys(open_shapes(binding), 0)
    tried = [sizes for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
    if not left or len(tried) < len(PRIMES):
        return binding
    candidates = sorted(_products(binding.sizes), key=lambda c: max(math.prod(sizes[x] for x in str(c).split(" * ") if x != "1") for sizes in tried))
    while True:
        now = binding.changed(tensors={k: replace(t, shape=[candidates[left[k]]]) if k in left else t for k, t in binding.tensors.items()})
        try:
            program = made(now)
        except KirError:
            return binding
        outside = set()
        for sizes in tried:
            found = _ran(program, sizes)
            if found is None:
                return binding
            outside |= {name for name in left if _leaves(found, name, now)}
        if not outside:
            return now.changed(facts=list(dict.fromkeys([*now.facts, *_of_rows(now, made, tried[0], [name for name in left if left[name]])])))
        for name in outside:
            left[name] += 1
            if left[name] == len(candidates):
                return binding


def with_ties(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding without sizes that are an extent of one tensor and nothing else, since the host code never compares two tensors: each such extent
    is the smallest of the other sizes at which runs at small sizes stay inside. One at which none does stays a size, and so does each where data may be
    places (an index into a table reaches as far as its values do, which no small run shows)."""
    places = any(t.dtype not in DTYPES or DTYPES[t.dtype].is_integer for t in binding.tensors.values())
    for name, axis, size in () if places else _lone(binding):
        tried = [sizes for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
        others = [x for x in binding.sizes if x != size]
        for other in sorted(others, key=lambda x: max((sizes[x] for sizes in tried), default=0)):
            shape = [other if k == axis else d for k, d in enumerate(binding.tensors[name].shape)]
            now = binding.changed(sizes=others, facts=[f for f in binding.facts if not re.search(rf"\b{size}\b", f)],
                                  tensors={**binding.tensors, name: replace(binding.tensors[name], shape=shape)})
            try:
                runs = [_ran(made(now), sizes) for sizes in tried]
            except KirError:
                break
            if None in runs or not runs:
                break
            if not any(_leaves(found, name, now) for found in runs if found is not None):
                binding = now
                break
    return binding


def _lone(binding: Binding) -> list[tuple[str, int, str]]:
    """Extents that a size stands for and nothing else mentions: tensor, axis, size."""
    facts = [f for f in binding.facts if not re.fullmatch(r"\w+ >= 1", f)]
    said = " ".join(map(str, (*binding.grid, *binding.scalars.values(), *facts, *(s for t in binding.tensors.values() for s in t.strides or ()))))
    extents = [(name, axis, str(d)) for name, t in binding.tensors.items() for axis, d in enumerate(t.shape)]
    words = f"{said} {' '.join(d for _, _, d in extents)}"
    return [(name, axis, d) for name, axis, d in extents if d in binding.sizes and len(re.findall(rf"\b{d}\b", words)) == 1]


def _of_rows(binding: Binding, made: Callable[[Binding], n.Program], sizes: Mapping[str, int], names: Sequence[str]) -> Iterator[str]:
    """Facts on the strides of tensors that are as large as rows times a stride: no row runs into the next, and each begins as its length divides."""
    for name in names:
        parts = str(binding.tensors[name].shape[0]).split(" * ")
        strides = [x for x in parts if "stride" in x]
        if len(parts) != 2 or len(strides) != 1:
            continue
        one = {**sizes, **{x: 1 for x in parts if x not in strides}}  # a single row: how far does the kernel reach?
        for length in sorted((x for x in binding.sizes if x not in parts and "stride" not in x), key=lambda x: one[x]):
            now = binding.changed(tensors={**binding.tensors, name: replace(binding.tensors[name], shape=[length])})
            try:
                found = _ran(made(now), one)
            except KirError:
                break
            if found is not None and not _leaves(found, name, now):
                yield f"{strides[0]} >= {length}"
                yield from (fact.replace(length, strides[0], 1) for fact in binding.facts if re.fullmatch(rf"{length} % \d+ == 0", fact))
                break


def _products(sizes: Sequence[str]) -> Iterator[str | int]:
    """One element, and products of up to three different sizes."""
    yield 1
    for k in (1, 2, 3):
        for each in combinations_with_replacement(sizes, k):
            if len(set(each)) == k:
                yield " * ".join(each)


def _leaves(found: Result, name: str, binding: Binding) -> bool:
    """Whether a run left a tensor."""
    return any(x.kind == "bounds" and x.buffer in (name, f"{name}_flat", binding.tensors[name].name) for x in found.findings)


def _ran(program: n.Program, sizes: Mapping[str, int]) -> Result | None:
    """A run at small sizes, in checking mode; None where it cannot be made."""
    scalars: dict[str, int | float] = {
        p.name: sizes.get(p.name, 0.5 if p.of.is_float else 1) for p in program.params if isinstance(p.of, DType) and p.value is None}
    known = {p.name: const(scalars[p.name], p.of) for p in program.params if p.name in scalars and isinstance(p.of, DType)}
    random, arrays = np.random.default_rng(0), {}
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            shape = [int_value(substitute(d, known)) or 0 for d in p.of.shape]
            if np.prod(shape) > MOST_ELEMENTS:
                return None
            drawn = random.standard_normal(shape) if p.of.dtype.is_float else random.integers(0, 2, shape)
            arrays[p.name] = np.asarray(drawn).astype(storage(p.of.dtype))
    try:
        return run(program, arrays, scalars, mode="check", most_steps=MOST_STEPS)
    except KirError:
        return None


def small_sizes(binding: Binding, primes: Sequence[int] = PRIMES[0]) -> Mapping[str, int] | None:
    """Small sizes that keep the facts of a binding, no two alike: those that facts speak of and strides may be larger; None where a few tries
    find none."""
    names = {x: n.Var(x, I32) for x in binding.sizes}
    try:
        facts = fact_expressions(binding.facts, names)
    except KirError:
        return None
    strides = dict(zip((name for name in binding.sizes if "stride" in name), sorted(STRIDES, reverse=primes[0] > primes[1])))
    base = {**dict(zip(binding.sizes, [*primes, *range(19, 99, 2)])), **strides}
    told = {x.name for f in facts if not _least(f) for x in walk(f) if isinstance(x, n.Var)}
    for factor in FACTORS:
        values = {name: value * (factor if name in told or name in strides else 1) for name, value in base.items()}
        if all(decided(f, values) is not False for f in facts):
            return values
    return None


def _least(fact: n.Expr) -> bool:
    """Whether a fact only says that a size is at least so much."""
    return isinstance(fact, n.Binary) and fact.op == "ge" and isinstance(fact.a, n.Var) and isinstance(fact.b, n.Const)
