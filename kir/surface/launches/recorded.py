"""Recorded calls of one kernel as one binding: numbers that differ from call to call become sizes, and the others expressions over them.

Every expression is checked against every call. What no expression fits is left open, and said.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor, plain_expression
from kir.ir.types import I32
from kir.surface.launches.assembled import Assumed, Found
from kir.surface.launches.values import evaluated

Numbers = tuple[int, ...]
"""One number of the launch, in each call."""
FACTORS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Generalized:
    """A binding for all `calls`; `left` are calls of other compile-time values, which are kernels of their own."""

    found: Found
    calls: int
    left: tuple[str, ...] = ()


def generalized(calls: Sequence[Binding], names: Sequence[str] = ()) -> Generalized:
    """One binding for recorded calls of one kernel; `names` say where each was recorded. Raises KirError KIR-F014 for calls of different kernels, or of
    tensors with different numbers of axes."""
    if not calls:
        raise error("KIR-F014", "there is no recorded call", needs="bindings that `kir capture` wrote")
    if len({c.kernel for c in calls}) > 1:
        raise error("KIR-F014", f"these are calls of different kernels: {', '.join(dict.fromkeys(c.kernel for c in calls))}", needs="calls of one kernel")
    calls = _flat(calls)
    chosen, metas, rounded = _of_one_specialization(calls)
    kept = [calls[k] for k in chosen]
    left = tuple(names[k] if k < len(names) else f"call {k + 1}" for k in range(len(calls)) if k not in chosen)
    return Generalized(_Generalization(kept, metas, rounded).found(), len(kept), left)


def _flat(calls: Sequence[Binding]) -> list[Binding]:
    """The calls, with tensors that are dense and have different numbers of axes from call to call as so many elements: the kernel is told no more."""
    shapes = {name: [c.tensors[name] for c in calls if name in c.tensors] for name in calls[0].tensors}
    flat = {name for name, each in shapes.items() if len({len(t.shape) for t in each}) > 1
            and all(t.strides is None and all(isinstance(d, int) for d in t.shape) for t in each)}
    return [replace(c, tensors={k: replace(t, shape=[math.prod(int(d) for d in t.shape)]) if k in flat else t for k, t in c.tensors.items()})
            for c in calls] if flat else [*calls]


def fits(binding: Binding, call: Binding, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What of a recorded call a binding does not give at these sizes: fields with both values."""
    wrong: list[str] = []
    names = {**sizes, **{k: v for k, v in binding.metas.items() if isinstance(v, int)}}

    def compare(what: str, told: object, seen: object) -> None:
        value = told if isinstance(told, int) else _value(str(told), names)
        if told != "?" and value != seen:
            wrong.append(f"{what}: {told} is {value}, and the call has {seen}")
    for k, (told, seen) in enumerate(zip(binding.grid, call.grid)):
        compare(f"grid[{k}]", told, seen)
    for name, t in binding.tensors.items():
        if name in call.tensors:
            for k, (told, seen) in enumerate(zip(t.shape, call.tensors[name].shape)):
                compare(f"{name}.shape[{k}]", told, seen)
    for name, scalar in binding.scalars.items():
        if isinstance(call.scalars.get(name), int):
            compare(name, scalar, call.scalars[name])
    return tuple(wrong)


def _value(text: str, names: Mapping[str, int]) -> int | None:
    e = plain_expression(text, {k: n.Var(k, I32) for k in names})
    return evaluated(e, names) if e is not None else None


def _of_one_specialization(calls: Sequence[Binding]) -> tuple[list[int], dict[str, Setting], dict[str, Numbers]]:
    """The calls of the specialization that most calls are of: by the compile-time values but for those that are a number of the call rounded up to a
    power of two, of which the largest is taken."""
    rounded: dict[str, Numbers] = {}
    for name in calls[0].metas:
        values = tuple(c.metas.get(name) for c in calls)
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            numbers = [tuple(row) for row in zip(*(_numbers(c) for c in calls))] if len({len(_numbers(c)) for c in calls}) == 1 else []
            fitting = [row for row in numbers if len(set(row)) > 1 and all(1 << max(0, x - 1).bit_length() == v for x, v in zip(row, values))]
            if fitting:
                rounded[name] = fitting[0]

    def key(c: Binding) -> str:
        tensors = [(k, t.dtype, len(t.shape)) for k, t in c.tensors.items()]
        return repr((sorted((k, v) for k, v in c.metas.items() if k not in rounded), sorted(c.absent), tensors))
    most = Counter(key(c) for c in calls).most_common(1)[0][0]
    chosen = [k for k, c in enumerate(calls) if key(c) == most]
    metas = dict(calls[chosen[0]].metas)
    metas |= {name: max(int(calls[k].metas[name]) for k in chosen) for name in rounded}
    return chosen, metas, {name: tuple(row[k] for k in chosen) for name, row in rounded.items()}


def _numbers(c: Binding) -> list[int]:
    """Every whole number of a call, in one order."""
    shapes = [int(d) for t in c.tensors.values() for d in t.shape if isinstance(d, int)]
    return [*(int(v) for v in c.scalars.values() if isinstance(v, int)), *shapes]


class _Generalization:
    def __init__(self, calls: Sequence[Binding], metas: dict[str, Setting], rounded: Mapping[str, Numbers]) -> None:
        self.calls, self.metas, self.rounded = calls, metas, rounded
        self.sizes: dict[str, Numbers] = {}
        self.assumed: list[Assumed] = []
        self.unfit: list[str] = []
        first = calls[0]
        self.scalars = {k: row for k in first.scalars if (row := self._row(lambda c, k=k: c.scalars.get(k))) is not None}  # type: ignore[misc]  # of this turn

    def _row(self, of: Callable[[Binding], object]) -> Numbers | None:
        values = [of(c) for c in self.calls]
        return tuple(int(v) for v in values if isinstance(v, int)) if all(isinstance(v, int) and not isinstance(v, bool) for v in values) else None

    def found(self) -> Found:
        """The binding, with what was taken for true beside."""
        first = self.calls[0]
        rows = {(name, axis): row for name, t in first.tensors.items() for axis in range(len(t.shape))
                if (row := self._row(lambda c, name=name, axis=axis: c.tensors[name].shape[axis])) is not None}  # type: ignore[misc]  # of this turn
        for (name, axis), row in sorted(rows.items(), key=lambda item: sum(item[1])):
            self._size(row, f"{name}_{axis}")
        for name, row in self.scalars.items():
            if "stride" not in name.lower() and self._expression(row) is None:
                self._size(row, name)
        tensors = {name: self._tensor(name, t, rows) for name, t in first.tensors.items()}
        scalars: dict[str, str | int | float] = {}
        for name, row in self.scalars.items():
            e = self._expression(row)
            if e is None:
                self.sizes[name] = row
            scalars[name] = e if e is not None else name
        grid: list[str | int] = []
        for axis in range(len(first.grid)):
            extents = self._row(lambda c, axis=axis: c.grid[axis])  # type: ignore[misc]  # of this turn
            e = self._expression(extents, grid=True) if extents is not None else None
            grid.append(e if e is not None else self._open(f"grid[{axis}]", extents))
        facts = [f"{x} >= 1" for x in self.sizes]
        facts += [f"{e} <= {self.metas[name]}" for name, row in self.rounded.items() if isinstance(e := self._expression(row), str)]
        if len(self.calls) == 1:
            self.assumed.append(Assumed("numbers that are equal in the one recorded call are the same in every call"))
        named = {**dict.fromkeys(self.sizes)}
        binding = replace(first, recorded=False, sizes=[*named], facts=facts, grid=grid, metas=self.metas, scalars=scalars, tensors=tensors,
                          dtypes={k: v for k, v in first.dtypes.items() if k not in scalars})
        examples = {name: row[0] for name, row in self.sizes.items()}
        whole = Found(binding, f"{len(self.calls)} recorded call{'s' * (len(self.calls) != 1)}", tuple(self.assumed), examples,
                      others=tuple(self.unfit))
        for k, call in enumerate(self.calls):
            wrong = fits(binding, replace(call, metas=binding.metas), {name: row[k] for name, row in self.sizes.items()})
            if wrong:
                raise error("KIR-F014", f"call {k + 1} of '{binding.kernel}' does not fit: {wrong[0]}", needs="calls that one rule gives")
        return whole

    def _open(self, what: str, row: Numbers | None) -> str:
        """The question mark in a place that no expression fits, which is said."""
        if row is not None:
            self.unfit.append(f"{what} is {', then '.join(map(str, row))}: no expression over {', '.join(self.sizes) or 'no sizes'} that is tried gives that")
        return "?"

    def _size(self, row: Numbers, hint: str) -> None:
        """A size of its own, unless known sizes give it; called as a parameter of the same numbers is."""
        constant = len(set(row)) == 1 and (len(row) > 1 or row[0] == 1)
        if constant or self._expression(row) is not None:
            return
        name = next((k for k, other in self.scalars.items() if other == row and "stride" not in k.lower()), hint)
        self.sizes[re.sub(r"\W", "_", name)] = row

    def _tensor(self, name: str, t: Tensor, rows: Mapping[tuple[str, int], Numbers]) -> Tensor:
        shape = [self._expression(rows[name, axis]) if (name, axis) in rows else None for axis in range(len(t.shape))]
        strides: list[str | int] | None = None
        if any(c.tensors[name].strides is not None for c in self.calls):
            found = [self._row(lambda c, axis=axis: _strides(c.tensors[name])[axis]) for axis in range(len(t.shape))]  # type: ignore[misc]  # of this turn
            strides = [e if row is not None and (e := self._expression(row)) is not None else self._open(f"the stride of {name} along axis {axis}", row)
                       for axis, row in enumerate(found)]
        return replace(t, shape=[x if x is not None else self._open(f"axis {axis} of {name}", rows.get((name, axis))) for axis, x in enumerate(shape)],
                       strides=strides, align=min(c.tensors[name].align for c in self.calls))

    def _expression(self, row: Numbers, grid: bool = False) -> str | int | None:
        """An expression over the sizes that gives these numbers in every call; None where none of those that are tried does."""
        if len(set(row)) == 1 and (len(row) > 1 or row[0] == 1):
            return row[0]
        for text in self._tried(grid):
            if all(_value(text, self._at(k)) == row[k] for k in range(len(row))):
                return text
        return row[0] if len(set(row)) == 1 and grid else None

    def _elements(self) -> list[Numbers]:
        """How many elements each tensor has, in each call."""
        return [tuple(math.prod(int(d) for d in c.tensors[name].shape) for c in self.calls) for name, t in self.calls[0].tensors.items()
                if all(isinstance(d, int) for c in self.calls for d in c.tensors[name].shape)]

    def _at(self, k: int) -> dict[str, int]:
        return {**{name: row[k] for name, row in self.sizes.items()}, **{m: v for m, v in self.metas.items() if isinstance(v, int) and not isinstance(v, bool)}}

    def _tried(self, grid: bool) -> Iterator[str]:
        names = list(self.sizes)
        tiles = [m for m, v in self.metas.items() if isinstance(v, int) and not isinstance(v, bool) and v > 1]
        if grid:  # a kernel that is told how many elements a tensor has goes over them in tiles, also where as many CTAs are something else in these calls
            yield from (f"ceildiv({e}, {m})" for row in self.scalars.values() if row in self._elements() and (e := self._expression(row)) is not None
                        for m in tiles)
        yield from names
        parts = [f"ceildiv({a}, {m})" for a in names for m in sorted(tiles, key=lambda m: a.lower() not in m.lower())]  # N in tiles of BN
        if grid:
            yield from parts
            yield from (f"{a} * {b}" for a, b in combinations(parts, 2))
            yield from (f"{a} * {b}" for a, b in product(parts, names))
        yield from (f"{a} * {b}" for a, b in combinations(names, 2))
        yield from (f"{a} * {b} * {c}" for a, b, c in combinations(names, 3))
        for a in names:
            yield from (f"{a} * {c}" for c in FACTORS)
            yield from (f"ceildiv({a}, {c})" for c in FACTORS)
            yield from (f"{a} + {c}" for c in (1, 2, 3, 4))
            yield from (f"{a} - {c}" for c in (1, 2, 3, 4))
        if grid:
            yield from (f"ceildiv({a} * {b}, {m})" for a, b in combinations(names, 2) for m in [*tiles, *map(str, FACTORS)])


def _strides(t: Tensor) -> list[int]:
    if t.strides is not None:
        return [int(s) for s in t.strides]
    out, step = [], 1
    for d in reversed(t.shape):
        out.append(step)
        step *= int(d)
    return out[::-1]
