"""Random kernels with random shapings, and what came of each."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kir.diagnostic import KirError

from . import cuda_kernels, tilelang_kernels, triton_kernels, walks
from .compare import difference, flat_accesses, memories, ran, read, written
from .kernel import Kernel, shaping

Family = Callable[[Random], Kernel]
FAMILIES: Mapping[str, Family] = {"triton walk": walks.triton, "cuda walk": walks.cuda, **triton_kernels.FAMILIES, **cuda_kernels.FAMILIES,
                                 **tilelang_kernels.FAMILIES}
"""What draws a kernel, by surface and name."""
SHAPINGS = 4
"""How many shapings a kernel is read under."""


@dataclass(frozen=True)
class Outcome:
    """A shaping of a kernel: what differs ("" nothing), whether the kernel is refused under every shape alike, and whether accesses stayed flat."""

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


def outcomes(seed: int, count: int, folder: Path, only: str = "") -> Iterator[Outcome]:
    """So many shapings, family by family in turn."""
    names = [name for name in FAMILIES if only in name]
    done = k = 0
    while done < count:
        for name in names:
            rng = Random(f"shapes {seed} {name} {k}")
            for outcome in of_kernel(drawn(name, seed, k), rng, min(SHAPINGS, count - done), folder):
                done += 1
                yield outcome
            if done >= count:
                return
        k += 1


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
