"""Kernels in TileLang with what they compute, said in NumPy."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from kir.analysis.normal.normal_form import normalize
from kir.backends.tilelang.form.form import form
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.ir.rules.verify import verify
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import HEAD
from tests.programs import from_source
from tests.round_trips import TILELANG

F16, F32, I32 = np.float16, np.float32, np.int32
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kernel:
    """A source text, its binding, inputs, and what it must give."""

    source: str
    inputs: Callable[[np.random.Generator], Arrays]
    outputs: Callable[[Arrays], Arrays]
    binding: Binding = field(default_factory=Binding)


def between(*sizes: str) -> list[str]:
    return [f for s in sizes for f in (f"{s} >= 1", f"{s} <= 65536")]


def loaded(folder: Path, source: str, binding: Binding) -> Program:
    """The function `kernel` of a source text under a binding, without a statement that is not understood."""
    program = from_source(folder, "source.py", HEAD + source, "kernel", replace(binding, kernel="kernel").text())
    assert opaque(program) == []
    return program


def means_what_it_says_and_is_read_back(case: Kernel, folder: Path) -> None:
    program = loaded(folder, case.source, case.binding)
    assert verify(program, specialized=True) == ()
    arrays = case.inputs(np.random.default_rng(0))
    result = run(program, dict(arrays), mode="check")
    assert [str(x) for x in result.findings if x.severity == "error"] == []
    for key, want in case.outputs(arrays).items():
        np.testing.assert_allclose(result.outputs[key].astype(F32), want.astype(F32), rtol=1e-2, atol=1e-2)
    TILELANG.is_read_back(form(normalize(program)), folder, 1)
