"""Kernels written in a test, or installed ones, specialized and run by the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from kir.analysis.normal.regions import raised
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.hardware import machine
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify

HEAD = "import tilelang\nimport tilelang.language as T\nimport torch\nimport math\n\n"
ROOT = Path(__file__).parents[3]


def written(folder: Path, source: str) -> Path:
    """A file with a source text under TileLang's imports."""
    file = folder / "source.py"
    file.write_text(HEAD + source)
    return file


def installed(text: str) -> Path:
    """`package:path/in/it.py` as a path."""
    package, _, inside = text.partition(":")
    folder = machine.package_folder(package)
    assert folder is not None
    return folder / inside


def read(file: Path, kernel: str = "kernel") -> Program:
    """The generic program of a kernel; it must print, parse back and verify."""
    program = TileLangFrontend().parse(file, kernel)
    assert parse_program(program_text(program)) == program
    assert verify(program) == ()
    return program


def bound(file: Path, binding: Binding, kernel: str = "kernel") -> Program:
    """A kernel whose factory runs with a binding, specialized."""
    made = specialize(TileLangFrontend().instantiate(file, kernel, binding), binding)
    assert verify(made, specialized=True) == ()
    return made


def execute(
    file: Path, arrays: dict[str, np.ndarray], metas: dict[str, Any] | None = None, scalars: dict[str, int | float] | None = None,
    kernel: str = "kernel", mode: Literal["fast", "check"] = "fast", **more: Any,
) -> dict[str, np.ndarray]:
    """Outputs of a kernel on arrays. The raised program, and the one specialized without running the factory on the values, give the
    same bits."""
    binding = Binding(metas=metas or {}, **more)
    made = bound(file, binding, kernel)
    result = run(made, arrays, scalars or {}, mode=mode)
    if mode == "check":
        assert [str(x) for x in result.findings if x.severity == "error"] == []
    normal = raised(made)
    assert parse_program(program_text(normal)) == normal
    assert raised(normal) == normal
    again = run(normal, arrays, scalars or {}).outputs
    for name, value in result.outputs.items():
        np.testing.assert_array_equal(value, again[name])
    return result.outputs
