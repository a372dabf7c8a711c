"""What the page shows of a kernel, as data: lines with the statement that each belongs to, sites with their verdicts, the last difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.faces.api.kernels import Kernel, apply, check, read, sites, undo
from kir.ir.changes.diff import diff, render_html
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.paths import paths
from kir.ir.printer import program_text
from kir.surface import backend

MOST_LINES = 5000
"""Lines of a source file that are shown."""


class Session:
    """One kernel that is explored. Paths of statements are texts: `main/0/2`."""

    def __init__(self, file: str, binding: Path | None = None) -> None:
        self.kernel: Kernel = read(file, binding)
        self.file = Path(file.partition("::")[0])
        self._sites: dict[str, list[dict[str, Any]]] = {}

    def state(self) -> dict[str, Any]:
        """All that the page shows but for the sites, which take longer."""
        program = self.kernel.program
        return {"name": self.kernel.name, "surface": self.kernel.surface, "pipeline": self.kernel.pipeline if self.kernel.trace.steps else "",
                "steps": len(self.kernel.trace.steps), "hash": self.kernel.hash[:16], "source": self._source(), "ir": _ir_lines(program, self.file.resolve()),
                "code": {entry.name: _code(program, entry.name) for entry in registry("kir.backends")}, "diff": self._last()}

    def sites(self) -> list[dict[str, Any]]:
        """Where passes apply now: those that nothing refuses first. Worked out once for each program."""
        if self.kernel.hash not in self._sites:
            found = [{"step": s.step, "pass": s.pass_name, "anchor": s.anchor, "refused": list(s.refused),
                      "verdicts": [{"id": id_, **v} for id_, v in s.verdicts.items()]} for s in sites(self.kernel)]
            self._sites[self.kernel.hash] = sorted(found, key=lambda s: (bool(s["refused"]), str(s["step"])))
        return self._sites[self.kernel.hash]

    def apply(self, step: str) -> dict[str, Any]:
        """The state after a step. Raises KirError, and nothing is changed, for one that is refused."""
        self.kernel = apply(self.kernel, step)
        return self.state()

    def undo(self) -> dict[str, Any]:
        """The state without the last step."""
        if self.kernel.trace.steps:
            self.kernel = undo(self.kernel)
        return self.state()

    def hazards(self) -> dict[str, Any]:
        """A run in checking mode at small sizes."""
        ran = check(self.kernel)
        return {"ok": ran.ok, "sizes": dict(ran.scalars), "findings": [str(f) for f in ran.findings]}

    def _source(self) -> dict[str, Any]:
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()[:MOST_LINES] if self.kernel.surface != "kir" else []
        except (OSError, UnicodeDecodeError):
            lines = []
        return {"file": str(self.file), "lines": lines}

    def _last(self) -> str:
        trace = self.kernel.trace
        return str(render_html(diff(undo(self.kernel).program, trace.program))) if trace.steps else ""


def _ir_lines(program: Program, file: Path) -> list[dict[str, Any]]:
    """The program's text, each line with the path of its statement and the line of the source that it came from."""
    text = program_text(program)
    held = {line: path for path, s in reversed(list(paths(parse_program(text, "ir")))) if s.origin is not None for line in (s.origin.line,)}
    source = {path: s.origin.line for path, s in paths(program) if s.origin is not None and Path(s.origin.file).resolve() == file}
    return [{"text": row, "path": _text(held.get(k)), "source": source.get(held[k]) if k in held else None} for k, row in enumerate(text.splitlines(), 1)]


def _code(program: Program, surface: str) -> dict[str, Any]:
    """The program on a surface, or why it cannot be said there."""
    try:
        emitted = backend(surface).emit(normalize(program))
    except KirError as refused:
        return {"lines": [], "refused": [d.message for d in refused.diagnostics[:5]]}
    return {"lines": [{"text": row, "path": _text(emitted.statement_of(k))} for k, row in enumerate(emitted.text.splitlines(), 1)], "refused": []}


def _text(path: tuple[int | str, ...] | None) -> str:
    return "/".join(map(str, path)) if path is not None else ""
