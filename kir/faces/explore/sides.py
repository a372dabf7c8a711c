"""The sides of a kernel as lines, each with the statement that it belongs to: source, IR, emitted code, and SASS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.paths import paths
from kir.ir.printer import program_text
from kir.surface import DisassemblingBackend, Emitted, backend

MOST_LINES = 20_000
"""Lines of a source file that are shown."""
Side = dict[str, Any]
"""`lines`: each with its `text`, the `path` of its statement ("" for none) and, of IR, the `source` line; `refused`: why there are none."""


def source_side(file: Path, surface: str) -> Side:
    """The file that a kernel was read from; without lines where it is IR text, or cannot be read any more."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[:MOST_LINES] if surface != "kir" else []
    except (OSError, UnicodeDecodeError):
        lines = []
    return {"file": str(file), "lines": lines}


def ir_side(program: Program, file: Path) -> list[dict[str, Any]]:
    """The program's text, each line with the path of its statement and the line of the source file that it came from."""
    text = program_text(program)
    held = {line: path for path, s in reversed(list(paths(parse_program(text, "ir")))) if s.origin is not None for line in (s.origin.line,)}
    source = {path: s.origin.line for path, s in paths(program) if s.origin is not None and Path(s.origin.file).resolve() == file}
    return [{"text": row, "path": _text(held.get(k)), "source": source.get(held[k]) if k in held else None} for k, row in enumerate(text.splitlines(), 1)]


def code_side(program: Program, surface: str) -> Side:
    """The program on a surface, or why it cannot be said there."""
    try:
        emitted = backend(surface).emit(normalize(program))
    except KirError as refused:
        return _refused(refused)
    of = _statements(emitted)
    return {"lines": [{"text": row, "path": of.get(k, "")} for k, row in enumerate(emitted.text.splitlines(), 1)], "refused": []}


def machine_side(program: Program, surface: str, device: Target) -> Side:
    """The SASS of the program as it is emitted for a surface: its lines belong to the statements of the emitted lines that they were compiled from. What
    this machine lacks, and what a compiler refuses, is said."""
    by = backend(surface)
    try:
        emitted = by.emit(normalize(program))
        if isinstance(by, DisassemblingBackend) and (found := by.machine_code(emitted, device)):
            of = _statements(emitted)
            return {"lines": [{"text": m.text, "path": of.get(m.line, "")} for m in found], "refused": []}
        made = by.compile(emitted, device)
    except KirError as refused:
        return _refused(refused)
    rows = [row for kernel in made.kernels for row in (f"{kernel.kernel}:", *kernel.texts.get("sass", "").splitlines())]
    if made.absent or not any(kernel.texts.get("sass") for kernel in made.kernels):
        return {"lines": [], "refused": [made.absent or "there is no disassembler (nvdisasm, cuobjdump) here"]}
    return {"lines": [{"text": row, "path": ""} for row in rows], "refused": []}


def _refused(refused: KirError) -> Side:
    return {"lines": [], "refused": [d.message for d in refused.diagnostics[:5]]}


def _statements(emitted: Emitted) -> dict[int, str]:
    """The statement of each line of an emitted text."""
    return {each.line: _text(each.path) for each in reversed(emitted.source_map)}


def _text(path: tuple[int | str, ...] | None) -> str:
    return "/".join(map(str, path)) if path is not None else ""
