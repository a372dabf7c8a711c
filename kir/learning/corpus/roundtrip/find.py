"""Where a corpus lies: an installed package by its import name, or a folder, and the files in it that may hold kernels."""
from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import usage
from kir.hardware import machine

LARGEST = 1 << 20
"""Bytes of the largest file that is read: beyond that it is generated code, and is reported as such."""


@dataclass(frozen=True)
class Place:
    """A corpus: its name for people, and its folder (or single file)."""

    name: str
    folder: Path


def place(text: str) -> Place:
    """The corpus that a word names. Raises UsageError KIR-C110 for what is neither a folder nor an installed package."""
    path = Path(text)
    if path.exists():
        return Place(path.resolve().name, path.resolve())
    try:
        folder = machine.package_folder(text)
    except (ModuleNotFoundError, ValueError):
        folder = None
    if folder is None:
        raise usage("KIR-C110", f"'{text}' is neither a folder nor an installed package", attempt=f"pip install --no-deps {text}")
    return Place(text, folder)


def files_of(where: Place, apart: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Iterator[tuple[Path, bool]]:
    """The Python and CUDA files of a corpus in order, each with whether it matches a pattern of what is counted `apart`; those that match
    `without` are left out."""
    if where.folder.is_file():
        yield where.folder, False
        return
    for path in sorted(where.folder.rglob("*")):
        if path.suffix in (".py", ".cu", ".cuh") and path.is_file():
            inside = path.relative_to(where.folder).as_posix()
            if any(fnmatch(inside, pattern) for pattern in without):
                continue
            yield path, any(fnmatch(inside, pattern) for pattern in apart)
