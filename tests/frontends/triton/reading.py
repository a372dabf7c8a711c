"""Kernels written in a test, run by the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kir.analysis.normal.regions import raised
from kir.frontends.triton.frontend import TritonFrontend
from kir.interp import run
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
NAMES = {"float16": "f16", "float32": "f32", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64", "float64": "f64",
         "bfloat16": "bf16"}


def read(folder: Path, source: str, kernel: str = "kernel") -> Program:
    """The generic program of a kernel in a source text; it must print, parse back and verify."""
    file = folder / "source.py"
    file.write_text(HEAD + source)
    program = TritonFrontend().parse(file, kernel)
    assert parse_program(program_text(program)) == program
    assert verify(program) == ()
    return program


def written_back(folder: Path, source: str, kernel: str = "kernel") -> str:
    """The kernel as KIR writes it, which must read back as the same program."""
    program = read(folder, source, kernel)
    text = backend("triton").emit(program).text
    assert same_program(program, TritonFrontend().parse_text(folder / "again.py", text, kernel)), text
    return text


def execute(
    folder: Path, source: str, arrays: dict[str, np.ndarray], grid: int = 1, metas: dict[str, Any] | None = None,
    scalars: dict[str, int | float] | None = None, absent: tuple[str, ...] = (), kernel: str = "kernel",
) -> dict[str, np.ndarray]:
    """Outputs of a kernel on arrays; the raised program must give the same bits."""
    program = read(folder, source, kernel)
    assert opaque(program) == []
    binding = Binding(
        recorded=True,
        grid=[grid],
        metas=metas or {},
        scalars={**(scalars or {})},
        absent=list(absent),
        tensors={k: Tensor(shape=[int(d) for d in a.shape], dtype=NAMES[a.dtype.name]) for k, a in arrays.items()},
    )
    made = specialize(program, binding)
    assert verify(made) == ()
    # A buffer that a kernel writes in part is given its old contents.
    made = _keeping(made)
    outputs = run(made, arrays, {}).outputs
    again = run(raised(made), arrays, {}).outputs
    for name, value in outputs.items():
        np.testing.assert_array_equal(value, again[name])
    return outputs


def _keeping(program: Program) -> Program:
    from dataclasses import replace
    params = tuple(replace(p, role="inout") if p.role == "out" else p for p in program.params)
    return replace(program, params=params)
