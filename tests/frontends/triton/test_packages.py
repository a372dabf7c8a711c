"""Whole packages as installed: every kernel tried reads without a crash into a program that prints, parses back and verifies; and what is read whole is
written back: the text of it reads as the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends.triton import BACKEND
from kir.frontends.triton.frontend import TritonFrontend
from kir.hardware import machine
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.learning.corpus import same_program

EVERY = 24
"""One file in so many is read here; `kir corpus` reads them all."""


def files(package: str) -> list[Path]:
    folder = machine.package_folder(package)
    assert folder is not None
    found = [f for f in sorted(folder.rglob("*.py")) if "backend" not in str(f.relative_to(folder)) and "@triton.jit" in f.read_text()]
    return found[::EVERY]


@pytest.mark.zoo
@pytest.mark.parametrize(("package", "share"), [("liger_kernel", 0.9), ("fla", 0.85), ("flag_gems", 0.85)])
def test_kernels_of_a_package_read_into_programs(package: str, share: float) -> None:
    reader = TritonFrontend()
    read = clean = 0
    for file in files(package):
        for ref in reader.kernels(file):
            program = reader.parse(file, ref.name)
            text = program_text(program)
            assert parse_program(text) == program, ref
            assert verify(program) == (), ref
            left = [s for k in program.kernels for s in statements(k.body) if isinstance(s, n.Opaque)]
            assert all(s.reason and s.text for s in left)
            read, clean = read + 1, clean + (not left)
            assert left or same_program(program, reader.parse_text(file.with_stem(f"{file.stem}_again"), BACKEND.emit(program).text, ref.name)), ref
    assert read > 3
    assert clean >= share * read
