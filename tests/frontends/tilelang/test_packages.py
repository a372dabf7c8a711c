"""Whole packages as installed: kernels read without a crash into programs that print, parse back and verify, most of them whole; of every third
file, what is read whole is written back: the text of it reads as the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends.tilelang import BACKEND
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.hardware import machine
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.learning.corpus import same_program
from tests.frontends.reading import opaque

EVERY = 8
"""One file in so many is read here; `kir corpus` reads them all."""


def files(package: str) -> list[Path]:
    folder = machine.package_folder(package)
    assert folder is not None
    found = [f for f in sorted(folder.rglob("*.py")) if "/blackwell/" not in str(f) and "prim_func" in f.read_text()]
    return found[1::EVERY]


@pytest.mark.zoo
@pytest.mark.parametrize("package", ["fla", "flash_qla", "tile_kernels"])
def test_kernels_of_a_package_read_into_programs(package: str) -> None:
    reader = TileLangFrontend()
    read = clean = 0
    for number, file in enumerate(files(package)):
        assert reader.write_back(file) == file.read_bytes()
        for ref in reader.kernels(file):
            program = reader.parse(file, ref.name)
            assert parse_program(program_text(program)) == program, ref
            assert verify(program) == (), ref
            read, clean = read + 1, clean + (whole := opaque(program) == [])
            if whole and number % 3 == 0:
                assert same_program(program, reader.parse_text(file.with_stem(f"{file.stem}_again"), BACKEND.emit(program).text, ref.name)), ref
    assert read > 1
    assert clean >= 0.85 * read
