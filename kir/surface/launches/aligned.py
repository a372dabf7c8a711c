"""Sizes that are multiples of a vector's length, since threads move vectors of so many elements: `reinterpret_cast<const float4*>(&x[i * n + k])`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, fact_expressions
from kir.ir.build import int_value
from kir.ir.types import I32
from kir.ir.visit import regions

from .extents import ENDLESS, open_shapes, shaped
from .reach import PRIMES, ran, small_sizes
from .values import none_false

LENGTHS = (2, 4, 8, 16)
"""Elements of a vector that one instruction may move."""
MOST_RUNS = 48
"""Runs in which facts are looked for."""


def with_whole_vectors(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> Binding:
    """The binding with the fact that a size (or two) is a multiple of a vector's length, where runs at other sizes move vectors that are not aligned; unchanged
    where none do, or where no such fact ends that. `examples` are the sizes of a call that was seen: what they contradict is not so."""
    try:
        program = made(shaped(binding, dict.fromkeys(open_shapes(binding), (ENDLESS,))))
    except KirError:
        return binding
    lengths = sorted({length for k in program.kernels for r in regions(k) for length in _lengths(r)})
    runs = _Runs(program)
    if not lengths or _aligned(runs, binding, lengths[-1]) is not False:
        return binding
    for wanted in [*_facts(binding.sizes, lengths, examples)][:MOST_RUNS // len(PRIMES)]:
        tried = binding.changed(facts=[*binding.facts, *(f for f in wanted if f not in binding.facts)])
        if _aligned(runs, tried, lengths[-1]):
            return tried
    return binding


class _Runs:
    """What runs of a program at some sizes show, each made once: facts that are tried one after the other leave most sizes as they are."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.made: dict[tuple[tuple[str, int], ...], bool | None] = {}

    def split(self, sizes: Mapping[str, int]) -> bool | None:
        """Whether a run moves a vector that is not aligned; None where it cannot be made."""
        key = tuple(sorted(sizes.items()))
        if key not in self.made:
            run = ran(self.program, sizes, mode="check")
            self.made[key] = None if run is None else any(f.kind == "alignment" for f in run.findings)
        return self.made[key]


def _lengths(r: n.Region) -> Iterator[int]:
    last = r.index[-1] if r.index and r.buffer.space == "global" else None
    if isinstance(last, n.Span):
        extent = last.extent if isinstance(last.extent, int) else int_value(last.extent)
        if extent in LENGTHS:
            yield extent


def _facts(sizes: Sequence[str], lengths: Sequence[int], examples: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """One size, then two, each a multiple of the shortest vector that there is, then of longer ones."""
    for count in (1, 2):
        for by in lengths:
            for some in combinations([x for x in sizes if examples.get(x, 0) % by == 0], count):
                yield tuple(f"{x} % {by} == 0" for x in some)


def _aligned(runs: _Runs, binding: Binding, longest: int) -> bool | None:
    """Whether all vectors are aligned in runs at some small sizes, and at those where one size after the other is odd and larger than a few vectors; None where
    one that cannot be made leaves that open."""
    tried = [sizes for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
    if any(runs.split(sizes) for sizes in tried):
        return False
    try:
        holds = none_false(fact_expressions(binding.facts, {x: n.Var(x, I32) for x in binding.sizes}), binding.sizes)
    except KirError:
        return None
    odd = ({**tried[0], x: max(tried[0][x], 4 * longest) | 1} for x in tried[0]) if tried else ()
    if any(runs.split(sizes) for sizes in odd if holds(sizes) and sizes not in tried):
        return False
    return True if tried and all(runs.split(sizes) is not None for sizes in tried) else None


__all__ = ["with_whole_vectors"]
