"""Shared by the tests of the CUDA frontend: kernels of a text, read, bound and brought to normal form."""
from __future__ import annotations

from pathlib import Path

from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.surface import frontend

KERNELS = Path(__file__).parent / "kernels"


def read(source: Path, kernel: str, binding: str = "") -> n.Program:
    """The kernel, in normal form when a binding (TOML) is given."""
    bound = Binding.parse(binding) if binding else None
    program = frontend("cuda").instantiate(source, kernel, bound)  # type: ignore[attr-defined]  # beyond the protocol
    assert verify(program) == ()
    return program if bound is None else raised(specialize(program, bound))


def text_of(tmp_path: Path, source: str, kernel: str = "k", binding: str = "") -> str:
    """The IR text of a kernel in a source text."""
    file = tmp_path / "source.cu"
    file.write_text(source)
    return program_text(read(file, kernel, binding))


def body_of(text: str) -> str:
    """The lines below the kernel's own, without indentation that all share."""
    lines = text.split("kernel ", 1)[1].splitlines()[1:]
    return "\n".join(line[2:] for line in lines)
