"""Programs that a command is given: IR text as it stands, or a kernel of a source file in its normal form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kir.ir.nodes import Program


def read(file: str, bind: Path | None = None, problem: str = "") -> Program:
    """The program of ``FILE.kir`` (as written, when no binding is given) or ``FILE::KERNEL``; where a problem is named and no binding is
    given, under the shipped binding of that kernel for the problem, if there is one.

    Raises what the parser, the verifier, the frontend, the binding and the normal form raise.
    """
    from kir.lineage.source import binding_of, load_expert, read_text

    if file.endswith(".kir") and bind is None:
        from kir.ir.parser import parse_program
        from kir.ir.verify import check

        program = parse_program(read_text(Path(file)), file)
        check(program)
        return program
    return load_expert(file, binding_of(file, bind, problem)).program
