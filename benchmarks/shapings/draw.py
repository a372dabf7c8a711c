"""Random kernels with random shapings, and what came of each."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from kir.base.diagnostic import KirError
from kir.interp import Result
from kir.ir import nodes as n

from . import cuda_kernels, recorded, tilelang_kernels, triton_kernels, walks
from .compare import difference, flat_accesses, memories, ran, read, written
from .kernel import Kernel, shaping
from .recorded import Recorded, recordings

Family = Callable[[Random], Kernel]
FAMILIES: Mapping[str, Family] = {"triton walk": walks.triton, "cuda walk": walks.cuda, **triton_kernels.FAMILIES, **cuda_kernels.FAMILIES,
                                 **tilelang_kernels.FAMILIES}
"""What draws a kernel, by surface and name."""
SHAPINGS = 4
"""How many shapings a kernel is read under."""
PACKAGES = "packages"
"""The family of kernels of installed packages: every third shaping is of one."""


@dataclass(frozen=True)
class Outcome:
    """A shaping of a kernel: what differs ("" nothing), whether the kernel is refused, or undefined, under every shape alike, and whether accesses
    stayed flat."""

    surface: str
    family: str
    said: str
    refused: bool
    flat: bool
    source: str
    binding: str

    def line(self) -> str:
        return f"{self.surface} {self.family}: {'refused: ' if self.refused else ''}{self.said}"


def drawn(family: str, seed: int, k: int) -> Kernel:
    """The k-th kernel of a family."""
    return FAMILIES[family](Random(f"{seed} {family} {k}"))


def outcomes(seed: int, count: int, workers: int, only: str = "") -> Iterator[Outcome]:
    """So many shapings, family by family in turn, and those of packages, as many as there are, between them. The same whatever the workers are."""
    found = (outcome for some in _in_turn(partial(shapings_of, seed), kernels(seed, only), workers) for outcome in some)
    yield from islice(found, count)


def kernels(seed: int, only: str) -> Iterator[tuple[str, int]]:
    """Which kernels: a family and a number, without end unless only those of packages are wanted."""
    names = [name for name in FAMILIES if only in name]
    rest = list(range(len(packages()))) if only in PACKAGES else []
    Random(f"packages {seed}").shuffle(rest)
    for k in count_up():
        for name in names:
            yield name, k
            for _ in range(min(2, len(rest))):
                yield PACKAGES, rest.pop()
        if not names:
            yield from ((PACKAGES, i) for i in rest)
            return


def shapings_of(seed: int, which: tuple[str, int]) -> list[Outcome]:
    """The shapings of one kernel."""
    name, k = which
    rng = Random(f"shapes {seed} {name} {k}")
    if name == PACKAGES:
        return list(of_recorded(packages()[k], rng, 2))
    with TemporaryDirectory() as folder:
        return list(of_kernel(drawn(name, seed, k), rng, SHAPINGS, Path(folder)))


def _in_turn(work: Callable[[tuple[str, int]], list[Outcome]], items: Iterator[tuple[str, int]], workers: int) -> Iterator[list[Outcome]]:
    """What work makes of the items, in their order, with a few more under way than there are workers."""
    with ProcessPoolExecutor(workers) as pool:
        waiting = deque(pool.submit(work, item) for item in islice(items, 4 * workers))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(items, 1))


@cache
def packages() -> tuple[Recorded, ...]:
    """The recorded kernels."""
    return recordings()


def of_kernel(kernel: Kernel, rng: Random, count: int, folder: Path) -> Iterator[Outcome]:
    """Some shapings of one kernel."""
    path = written(kernel, folder)
    try:
        plain = read(kernel, path, kernel.flat())
        ran(plain, memories(kernel, kernel.sizes[0], 0), kernel.sizes[0])
    except KirError as fault:
        yield Outcome(kernel.surface, kernel.family, str(fault), True, False, kernel.source, kernel.flat().text())
        return
    for _ in range(count):
        binding = kernel.binding(shaping(rng, kernel))
        out = Outcome(kernel.surface, kernel.family, "", False, False, kernel.source, binding.text())
        try:
            other = read(kernel, path, binding)
            yield replace(out, said=difference(plain, other, kernel), flat=bool(flat_accesses(other)))
        except Exception as fault:  # whatever it is, the other shape has none
            yield replace(out, said=f"{type(fault).__name__}: {fault}")


def of_recorded(kernel: Recorded, rng: Random, count: int) -> Iterator[Outcome]:
    """The recorded shapes of a package's kernel, and random ones, each beside its memory as one axis."""
    try:
        sizes = kernel.sizes(rng)
        if sizes is None:
            return
        plain = kernel.read(kernel.flat())
        arrays = recorded.memory_of(plain, sizes, 0)
        right = recorded.ran(plain, arrays, sizes)
    except KirError as fault:
        yield Outcome("triton", PACKAGES, str(fault), True, False, kernel.source, kernel.text)
        return
    own = {name: tuple(t.shape) for name, t in kernel.binding.tensors.items() if name in kernel.memories()}
    for k in range(count):
        binding = kernel.declared(kernel.shaping(rng) if k else own)
        out = Outcome(kernel.surface, PACKAGES, "", False, False, kernel.source, binding.text())
        try:
            other = kernel.read(binding)
            said, refused = _beside(plain, other, arrays, sizes, right), False
            if said and recorded.ran(plain, arrays, sizes, True).errors:
                said, refused = f"drawn numbers lead outside of its tensors: {said}", True
            yield replace(out, said=said, refused=refused, flat=bool(flat_accesses(other)))
        except Exception as fault:  # whatever it is, the other shape has none
            yield replace(out, said=f"{type(fault).__name__}: {fault}")


def _beside(plain: n.Program, other: n.Program, arrays: recorded.Arrays, sizes: Mapping[str, int], right: Result) -> str:
    """Where a recorded kernel differs from itself under another shape: values, and, for what is short, findings."""
    found = recorded.ran(other, arrays, sizes)
    for name, a in right.outputs.items():
        if a.tobytes() != found.outputs[name].tobytes():
            first, second = a.reshape(-1), found.outputs[name].reshape(-1)
            at = int(np.flatnonzero(first.view(np.uint8) != second.view(np.uint8))[0]) // a.itemsize
            return f"at {dict(sizes)}: element {at} of {name} is {second[at]}, not {first[at]}"
    if right.counters.steps > recorded.CHECKED:
        return ""
    false = recorded.ran(other, arrays, sizes, True).errors
    return f"a false finding: {false[0].id} {false[0].message}" if false and not recorded.ran(plain, arrays, sizes, True).errors else ""
