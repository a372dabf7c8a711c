"""The kernels that identifiers are renamed in: shipped experts and problems with their bindings, and those of installed packages."""
from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kir.hardware import machine
from kir.ir.binding import Binding
from kir.learning.corpus.rank import launched

ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "skills"
LARGEST = 60_000
"""Bytes of the largest file that is read again and again."""


@dataclass(frozen=True)
class Kernel:
    """A kernel: its corpus, surface, file, name, and the binding under which it is compared (None: as the generic program)."""

    corpus: str
    surface: str
    file: Path
    name: str
    binding: Binding | None = None

    @property
    def place(self) -> str:
        return f"{self.corpus}: {self.file.name}::{self.name}"


def shipped() -> Iterator[Kernel]:
    """Experts and naive kernels of `skills`, and the kernels of packages that `tests/zoo.toml` names, each under its binding."""
    bindings = {p.stem: Binding.read(p) for p in sorted((SKILLS / "bindings").glob("*.toml"))}
    for file in sorted((*(SKILLS / "experts").rglob("*"), *(SKILLS / "problems").rglob("naive*"))):
        if file.suffix in (".cu", ".py"):
            for stem, b in bindings.items():
                if (surface := _has(file, b.kernel)) and _same_problem(file, surface, stem):
                    yield Kernel("shipped", surface, file, b.kernel, b)
    for _, row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8")).items():
        package, _, inside = str(row["file"]).partition(":")
        folder = machine.package_folder(package) if inside else None
        if folder is not None and (folder / inside).exists() and row.get("binding"):
            b = Binding.read(ROOT / row["binding"])
            if surface := _has(folder / inside, str(row["kernel"])):
                yield Kernel(f"{package} (bound)", surface, folder / inside, str(row["kernel"]), b)


PACKAGES = ("liger_kernel", "fla", "flag_gems", "tile_kernels", "flash_qla", "flashinfer")
MARKS = (b"triton.jit", b"prim_func", b"tilelang.jit", b"__global__")


def packages(names: tuple[str, ...] = PACKAGES) -> Iterator[Kernel | tuple[str, Path]]:
    """Kernels of packages under their recorded bindings, and, with its corpus, each file that may hold kernels to be read as generic programs."""
    for package in names:
        folder = machine.package_folder(package)
        if folder is None:
            continue
        recorded = SKILLS / "packages" / f"{package}.jsonl"
        for line in recorded.read_text(encoding="utf-8").splitlines() if recorded.exists() else ():
            row = json.loads(line)
            file, _, kernel = row["kernel"].partition("::")
            path = folder / file.partition(":")[2]
            if row["binding"] and path.exists():
                yield Kernel(f"{package} (bound)", "triton", path, kernel, Binding.parse(launched(row["binding"])))
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".cu", ".cuh") and file.is_file() and file.stat().st_size <= LARGEST and "/test" not in str(file):
                data = file.read_bytes()
                if any(mark in data for mark in MARKS):
                    yield package, file


@cache
def _kernels(file: Path) -> tuple[tuple[str, str], ...]:
    from kir.base.diagnostic import KirError
    from kir.learning.corpus.roundtrip.one import kernels_in

    try:
        return tuple((reader.surface, ref.name) for reader, ref, role in kernels_in(file) if role == "kernel")
    except KirError:
        return ()


def generic(corpus: str, file: Path) -> Iterator[Kernel]:
    """The kernels of a file, as generic programs."""
    for surface, name in _kernels(file):
        yield Kernel(corpus, surface, file, name)


def _has(file: Path, kernel: str) -> str:
    text, name = file.read_text(encoding="utf-8"), kernel.partition("<")[0]
    if file.suffix != ".py":
        return "cuda" if f"{name}(" in text and "__global__" in text else ""
    return "" if f"def {name}(" not in text else "triton" if "triton.jit" in text else "tilelang"


def _same_problem(file: Path, surface: str, binding: str) -> bool:
    return "naive" not in file.name or binding == f"{file.parent.name}_naive_{surface}"
