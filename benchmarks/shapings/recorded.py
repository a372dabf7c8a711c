"""Kernels of installed packages under recorded and shipped bindings, whose tensors are declared in other shapes."""
from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from numpy.typing import NDArray

from kir.analysis.heuristics import settled
from kir.analysis.normal.regions import raised
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.rules.verify import check
from kir.ir.types import DType
from kir.learning.corpus.rank import launched
from kir.rewrite.meaning import draw
from kir.surface.reading import kernel_of, located

from .compare import extents
from .kernel import Factors, product, shaped

ROOT = Path(__file__).parents[2]
STEPS = 400_000
"""Most statements that one run may take."""
CHECKED = 2000
"""Most statements of a kernel that is also checked."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Recorded:
    """A kernel of a package (`package:path::kernel`), with the text of a binding."""

    source: str
    text: str
    surface: str = "triton"

    @property
    def binding(self) -> Binding:
        return settled(Binding.parse(self.text))

    def flat(self) -> Binding:
        """The binding with every row-major tensor as one axis."""
        return self.declared({name: (product(factors),) for name, factors in self.memories().items()})

    def declared(self, shapes: Mapping[str, tuple[str | int, ...]]) -> Binding:
        own = self.binding
        return replace(own, tensors={name: replace(t, shape=list(shapes[name])) if name in shapes else t for name, t in own.tensors.items()})

    def memories(self) -> dict[str, Factors]:
        """The factors of each tensor that is row-major and no tensor map's."""
        own = self.binding
        mapped = {m.of for m in own.maps.values()}
        return {name: tuple(f if isinstance(f, int) or f.isidentifier() else f"({f})" for f in t.shape) for name, t in own.tensors.items()
                if t.shape and t.strides is None and name not in mapped and not _is_exact(t)}

    def shaping(self, rng: Random) -> dict[str, tuple[str | int, ...]]:
        """A shape for each memory."""
        return {name: shaped(rng, _taken_apart(rng, factors)) for name, factors in self.memories().items()}

    def read(self, binding: Binding) -> n.Program:
        path, kernel = located(self.source)
        found, ref = kernel_of(path, kernel)
        instantiate = getattr(found, "instantiate", None)
        made = specialize(instantiate(path, kernel or ref.name, binding) if instantiate is not None else _generic(str(path), ref.name), binding)
        check(made)
        return raised(made)

    def sizes(self, rng: Random) -> dict[str, int] | None:
        """Sizes that keep the binding's facts, small ones; None where none were found."""
        own = self.binding
        for tries in range(4000):
            some = {name: rng.choice((1, 2, 3, 5, 8, 16, 24, 64, 100, 128, 256)[:3 + tries // 400]) * rng.choice((1, 1, 8, 64)[:1 + tries // 1000])
                    for name in own.sizes}
            if all(eval(fact, {"ceildiv": lambda a, b: -(-a // b), "min": min, "max": max}, dict(some)) for fact in own.facts):
                return some
        return None


def _is_exact(t: Tensor) -> bool:
    """Whether the binding promises what holds in this one shape only."""
    return t.exact


@cache
def _generic(path: str, kernel: str) -> n.Program:
    found, _ = kernel_of(Path(path), kernel)
    return found.parse(Path(path), kernel)


def _taken_apart(rng: Random, factors: Factors) -> Factors:
    """Factors with some numbers split in two."""
    out: list[str | int] = []
    for f in factors:
        if isinstance(f, int) and f > 3 and rng.random() < 0.5:
            inner = rng.choice([k for k in range(1, f + 1) if f % k == 0])
            out += [f // inner, inner]
        else:
            out.append(f)
    return tuple(out)


def recordings() -> tuple[Recorded, ...]:
    """Of skills/packages, and of tests/zoo.toml with the shipped bindings."""
    out = []
    for row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8")).values():
        out.append(Recorded(f"{row['file']}::{row['kernel']}", (ROOT / row["binding"]).read_text(encoding="utf-8"),
                            row.get("surface", "triton")))
    for file in sorted((ROOT / "skills" / "packages").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            out.append(Recorded(row["kernel"], launched(row["binding"])))
    return tuple(out)


def memory_of(program: n.Program, sizes: Mapping[str, int], seed: int) -> Arrays:
    """What its tensors hold: drawn numbers."""
    return draw(program, sizes, seed)


def ran(program: n.Program, arrays: Arrays, sizes: Mapping[str, int], checked: bool = False) -> Result:
    """A program run on memories, each in the shape that it declares; scalars that nothing gives are one half, or 1."""
    scalars: dict[str, int | float] = {}
    for p in program.params:
        if isinstance(p.of, DType) and p.value is None:
            scalars[p.name] = sizes.get(p.name, 0.5 if p.of.is_float else 1)
    given = {p.name: arrays[p.name].reshape(extents(p.of, sizes)).copy() for p in program.params if isinstance(p.of, n.Buffer)}
    return run(program, given, scalars, mode="check" if checked else "fast", most_steps=STEPS)
