"""The result as people want it: an edit of their own file, a kernel on another surface, IR text; for all sizes that the input took."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.ir.binding import Binding
from kir.ir.nodes import Param, Program
from kir.ir.printer import program_text
from kir.ir.types import DType
from kir.learning.optimize.inputs import Subject
from kir.learning.optimize.search import Candidate
from kir.rewrite.guard import with_otherwise
from kir.surface import backend
from kir.surface.edits import SourceEdit, edit_source
from kir.surface.reading import kernel_of, located


@dataclass(frozen=True)
class Written:
    """A result as text: the form it has (`patch`, `kernel`, `kir`), and what a reader must know."""

    text: str
    form: str
    notes: tuple[str, ...] = ()
    edit: SourceEdit | None = None


def for_all_sizes(best: Candidate, given: Program, surface: str) -> tuple[Program, tuple[str, ...]]:
    """The result where its facts hold and the kernel as given elsewhere, in one launch plan, where the surface says both; else the result alone, with a
    sentence that says so."""
    if all(f in given.facts for f in best.program.facts):
        return best.program, ()
    try:
        both = with_otherwise(best.program, replace(given, params=_called_alike(given, best.program)))
        if refused := backend(surface).accepts(both):
            return best.program, (f"for sizes at which its facts hold only: beside it, {refused[0].message}",)
        return both, ("for other sizes the kernel as given is launched",)
    except KirError as bad:
        return best.program, (f"for sizes at which its facts hold only: {bad.diagnostics[0].message}",)


def _called_alike(given: Program, other: Program) -> tuple[Param, ...]:
    """Parameters of the kernel as given, its tensors aligned as the result asks."""
    known = {p.name: p for p in other.params}
    return tuple(known.get(p.name, p) if not isinstance(p.of, DType) else p for p in given.params)


def edited(one: Subject, best: Candidate) -> SourceEdit:
    """The edit of the user's file that makes its kernel the result. Raises KirError KIR-C101 to KIR-C103, KIR-C105 where there is none."""
    if not one.file or one.binding is None:
        raise error("KIR-C105", "there is no source to edit", needs="FILE::KERNEL of a source file, and --bind BINDING.toml")
    path, name = located(one.file)
    binding = one.binding if isinstance(one.binding, Binding) else Binding.read(one.binding)
    _, ref = kernel_of(path, name)
    if best.surface != ref.surface:
        raise error("KIR-C102", f"the result is written for {best.surface}, and the file is {ref.surface}", attempt=f"--surface {ref.surface}, or -o OUT")
    return edit_source(ref.surface, path, ref.name, binding, one.program, best.program)


def written(one: Subject, best: Candidate, out: Path) -> Written:
    """What is written to `out`: a patch for `.patch`, IR text for `.kir`, else the kernel as its surface says it. Raises KirError."""
    if out.suffix == ".patch":
        edit = edited(one, best)
        return Written(edit.diff(), "patch", edit.passed_over, edit)
    program, notes = for_all_sizes(best, one.program, best.surface)
    if out.suffix == ".kir":
        return Written(program_text(program), "kir", notes)
    emitted = backend(best.surface).emit(program)
    return Written(emitted.text + (f"\n{emitted.launch}" if emitted.launch else ""), "kernel", notes)
