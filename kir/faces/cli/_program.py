"""Programs that a command is given, IR text as it stands or a kernel of a source file in its normal form; and as it writes them for a surface."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kir.base.diagnostic import Diagnostic
    from kir.ir.nodes import Program
    from kir.rewrite import Trace


def read(file: str, bind: Path | None = None, problem: str = "") -> Program:
    """The program of ``FILE.kir`` (as written, when no binding is given) or ``FILE::KERNEL``; where a problem is named and no binding is
    given, under the shipped binding of that kernel for the problem, if there is one.

    Raises what the parser, the verifier, the frontend, the binding and the normal form raise.
    """
    from kir.surface.reading import binding_of, load_expert, read_text

    if file.endswith(".kir") and bind is None:
        from kir.ir.parser import parse_program
        from kir.ir.rules.verify import check

        program = parse_program(read_text(Path(file)), file)
        check(program)
        return program
    return load_expert(file, binding_of(file, bind, problem)).program


def written(done: Trace, surface: str, max_undo: int | None = None) -> tuple[Trace, str, tuple[Diagnostic, ...]]:
    """A program as a surface says it: the trace with what was undone for it, the text with the host's code after it, and a note for each
    step back. Raises KirError for holes, and for what the surface cannot say."""
    from kir.ir.rules.generic import is_generic
    from kir.lineage.carrier import must_be_filled
    from kir.surface import backend

    must_be_filled(done.program)
    by = backend(surface)
    notes: tuple[Diagnostic, ...] = ()
    if by.accepts(done.program) and not is_generic(done.program):
        from kir.analysis import normalize
        from kir.lineage.legalize_for_surface import brought
        from kir.rewrite import Trace

        after, notes = brought(Trace(normalize(done.program)), by, max_undo)
        done = after
    emitted = by.emit(done.program)
    return done, emitted.text + (f"\n{emitted.launch}" if emitted.launch else ""), notes
