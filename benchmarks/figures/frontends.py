"""How fast sources are read."""

from __future__ import annotations

import ast
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from kir.base.diagnostic import KirError
from kir.hardware import machine
from kir.surface import KernelRef, frontend

PACKAGES = ("liger_kernel", "fla", "flag_gems")
"""Import names of the packages whose kernels are read, when they are installed."""
TILELANG_PACKAGES = ("tile_kernels", "flash_qla")
"""The same, of TileLang's kernels."""

MOST_SECONDS = 60.0
"""A package is read no longer than this; the rate is over what was read until then."""


def figures() -> Iterator[Figure]:
    """Lines of kernel source a minute, from a cold start of the frontend to the generic program, over whole packages."""
    for package in PACKAGES:
        yield _python("triton", f"Triton frontend over `{package}`", package, "@triton.jit", _lengths)
    for package in TILELANG_PACKAGES:
        yield _python("tilelang", f"TileLang frontend over `{package}`", package, "tilelang", _factories)
    yield from _cuda()


def _python(surface: str, what: str, package: str, mark: str, count: Callable[[Path, tuple[KernelRef, ...]], int]) -> Figure:
    """The rate over the files of a package that hold `mark`, whose lines of kernels `count` gives."""
    reader = frontend(surface)
    folder = machine.package_folder(package)
    if folder is None:
        return Figure(what, None, "lines/min", 60_000, False, "the package is not installed")
    lines = kernels = failed = 0
    gc.freeze()  # what packages before this one have left is not gone through again and again
    start = time.perf_counter()
    for file in sorted(folder.rglob("*.py")):
        if time.perf_counter() - start > MOST_SECONDS:
            break
        if mark not in file.read_text(encoding="utf-8", errors="replace"):
            continue
        refs = reader.kernels(file)
        lines += count(file, refs)
        for ref in refs:
            kernels += 1
            try:
                reader.parse(file, ref.name)
            except KirError:
                failed += 1
    minutes = (time.perf_counter() - start) / 60
    return Figure(what, lines / minutes, "lines/min", 60_000, False, f"{kernels} kernels, {lines:,} lines{f', {failed} refused' if failed else ''}")


def _factories(file: Path, refs: tuple[KernelRef, ...]) -> int:
    """Lines of the factories that TileLang's kernels stand in, each once, however many it holds."""
    tops = [(s.lineno, s.end_lineno or s.lineno) for s in (ast.parse(file.read_text(encoding="utf-8")).body if refs else ())]
    return sum(last - first + 1 for first, last in tops if any(first <= ref.line <= last for ref in refs))


def _lengths(file: Path, refs: tuple[KernelRef, ...]) -> int:
    """Lines of the kernels themselves."""
    return sum(_length(file, ref) for ref in refs)


def _cuda() -> Iterator[Figure]:
    """Lines of CUDA source a minute, includes and instantiation with it, from a cold start, over the files of FlashInfer without CUTLASS."""
    reader: Any = frontend("cuda")
    folder = machine.package_folder("flashinfer")
    what = "CUDA frontend over `flashinfer`"
    if folder is None:
        yield Figure(what, None, "lines/min", 30_000, False, "the package is not installed")
        return
    lines = kernels = refused = 0
    start = time.perf_counter()
    for file in sorted((folder / "data" / "include" / "flashinfer").rglob("*.cuh")):
        text = file.read_text(encoding="utf-8", errors="replace")
        if "__global__" not in text or any(word in text for word in ("cutlass", "cute::", "cub/")) or time.perf_counter() - start > MOST_SECONDS:
            continue
        opened = reader.open(file)
        lines += sum(unit.mapped.source.count("\n") for unit in opened.sources.units)
        for ref in reader.kernels(file):
            kernels += 1
            try:
                reader.parse(file, reader.samples(file, ref.name)[0])
            except KirError:
                refused += 1
    minutes = (time.perf_counter() - start) / 60
    yield Figure(what, lines / minutes, "lines/min", 30_000, False, f"{kernels} kernels, {lines:,} lines with includes, {refused} refused")


def _length(file: Path, ref: KernelRef) -> int:
    """Lines from a kernel's definition to the end of its indented body."""
    rows = file.read_text(encoding="utf-8", errors="replace").split("\n")[ref.line - 1 :]
    count = 0
    body = False
    for row in rows:
        inside = row[:1] in (" ", "\t", ")", "#", "") or (not body and row.startswith(("def ", "@")))
        if not inside:
            break
        body = body or row[:1] in (" ", "\t")
        count += 1
    while count and not rows[count - 1].strip():
        count -= 1
    return max(1, count)
