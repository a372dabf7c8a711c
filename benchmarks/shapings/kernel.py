"""A kernel that addresses its tensors flat, and the ways in which a binding may shape their memory."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from kir.ir.binding import Binding, Setting, Tensor

Factors = tuple[str | int, ...]
"""What the number of elements of a tensor is the product of: names of sizes, and numbers."""


@dataclass(frozen=True)
class Memory:
    """A tensor of a kernel: factors of its number of elements, its dtype, and whether it is written (it then holds something before). `below` is
    for indices: a product that its values stay below."""

    factors: Factors
    dtype: str = "f32"
    written: bool = False
    below: Factors = ()


@dataclass(frozen=True)
class Kernel:
    """A source text of a surface, with everything that a binding says but the shapes; `sizes` are those to run it at."""

    surface: str
    family: str
    source: str
    name: str
    memories: Mapping[str, Memory]
    grid: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]
    facts: tuple[str, ...] = ()
    metas: Mapping[str, Setting] = field(default_factory=dict)
    scalars: Mapping[str, str | int | float] = field(default_factory=dict)
    arrays: Mapping[str, int] = field(default_factory=dict)
    """Flat arrays of shared memory, with their elements."""

    def binding(self, shapes: Mapping[str, Sequence[str | int]]) -> Binding:
        """The binding that declares these shapes."""
        tensors = {name: Tensor(shape=list(shapes[name]), dtype=m.dtype, role="inout" if m.written else "in") for name, m in self.memories.items()}
        names = list(dict.fromkeys(name for size in self.sizes for name in size))
        return Binding(kernel=self.name, recorded=True, sizes=names, facts=list(self.facts), grid=list(self.grid), metas=dict(self.metas),
                       scalars=dict(self.scalars), tensors=tensors, arrays={name: [int(d) for d in shapes[name]] for name in self.arrays if name in shapes})

    def flat(self) -> Binding:
        """The binding that declares each memory as one axis."""
        return self.binding({name: (product(m.factors),) for name, m in self.memories.items()})


def product(factors: Sequence[str | int]) -> str | int:
    """A product as a binding writes it."""
    if all(isinstance(f, int) for f in factors):
        out = 1
        for f in factors:
            out *= int(f)
        return out
    return " * ".join(map(str, (f for f in factors if f != 1)))


def value(factors: Sequence[str | int], sizes: Mapping[str, int]) -> int:
    """A product at given sizes."""
    out = 1
    for f in factors:
        out *= sizes[f] if isinstance(f, str) else f
    return out


def grouped(rng: Random, factors: Factors, most: int = 4) -> tuple[Factors, ...]:
    """Factors put together in their order to at most so many groups."""
    cuts = sorted(rng.sample(range(1, len(factors)), min(len(factors) - 1, rng.randrange(most)))) if len(factors) > 1 else []
    return tuple(factors[a:b] for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True))


def shaped(rng: Random, factors: Factors) -> tuple[str | int, ...]:
    """A shape of a memory: factors in their order or, sometimes, another, numbers split, put together to axes, some of one element beside them."""
    parts: list[str | int] = []
    for f in factors:
        if isinstance(f, int) and f > 3 and rng.random() < 0.4:
            inner = rng.choice([k for k in range(1, f + 1) if f % k == 0])
            parts += [f // inner, inner]
        else:
            parts.append(f)
    if rng.random() < 0.3:
        rng.shuffle(parts)
    shape = [product(g) for g in grouped(rng, tuple(parts))]
    while rng.random() < 0.2:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return tuple(shape)


def shaping(rng: Random, kernel: Kernel) -> dict[str, tuple[str | int, ...]]:
    """A shape for each memory of a kernel; half of the time those with the same factors have the same shape."""
    together, made = rng.random() < 0.5, dict[Factors, tuple[str | int, ...]]()
    out = {}
    for name, m in kernel.memories.items():
        shape = shaped(rng, m.factors)
        out[name] = made.setdefault(m.factors, shape) if together else shape
    return out | {name: shaped(rng, (count // 4, 4)) for name, count in kernel.arrays.items()}


def sized(rng: Random, names: Sequence[str], most: Mapping[str, int], of: Mapping[str, int] | None = None) -> tuple[Mapping[str, int], ...]:
    """Sizes to run at: three draws, the first with something of each; `of` are numbers that divide some."""
    steps = of or {}

    def one(least: int) -> dict[str, int]:
        return {name: step * rng.randint(min(least, most[name] // step) or 1, max(most[name] // step, 1)) for name in names for step in [steps.get(name, 1)]}
    return (one(2), one(1), one(1))


def bounded(rng: Random, names: Sequence[str], of: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Facts that callers may promise: sizes from 1 on, mostly with an upper bound; and what divides them."""
    steps = of or {}
    high = rng.random() < 0.8
    return tuple(f for name in names for f in (f"{name} >= 1", *([f"{name} <= {rng.choice((512, 1024, 4096))}"] if high else []),
                                               *([f"{name} % {steps[name]} == 0"] if name in steps else [])))
