"""read a kernel from source and print it as IR text; with a binding, specialized

FILE::KERNEL names a kernel of a source file, FILE.kir a program. What a frontend does not understand is printed as `opaque`, with its
reason; such a program still prints, parses and verifies.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from kir.faces.cli._result import Result


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")],
    bind: Annotated[Path | None, typer.Option(help="specialize with this binding (TOML)")] = None,
    normal: Annotated[bool, typer.Option("--normal", help="under its binding, given or found: flat accesses raised, in normal form")] = False,
) -> Result:
    """Read a kernel from source and print it as IR text."""
    from kir.base.diagnostic import Diagnostic
    from kir.ir import nodes as n
    from kir.ir.printer import program_text
    from kir.ir.rules.generic import is_generic
    from kir.ir.rules.verify import verify
    from kir.ir.visit import statements, walk
    from kir.surface.reading import as_launched, read_source

    source = read_source(file, bind)
    if normal and bind is None:
        source = as_launched(file, source)
    program = source.specialized()
    if normal and not is_generic(program):
        from kir.analysis.normal.regions import raised

        program = raised(program)
    text = program_text(program)
    body = [s for k in program.kernels for s in statements(k.body)]
    opaque = [s for s in body if isinstance(s, n.Opaque)]
    found = verify(program)
    counts = Counter(type(x).__name__ for k in program.kernels for s in k.body for x in walk(s))
    data = {
        "program": program.name,
        "surface": source.surface,
        "generic": is_generic(program),
        "text": text,
        "nodes": dict(sorted(counts.items())),
        "statements": len(body),
        "opaque": [
            {"reason": s.reason, "text": s.text, "line": s.origin.line if s.origin is not None else None} for s in opaque
        ],
        "findings": [d.to_json() for d in found],
    }
    kept = tuple(Diagnostic("KIR-F403", f"kept as text: {s.reason}", severity="warning", origin=s.origin,
                            needs=f"words that KIR reads: kir explain reading-{s.surface}",
                            attempt="" if normal or bind else f"kir parse {quote(file)} --normal, which reads it as it is launched") for s in opaque)
    return Result(data, text, 1 if any(d.severity == "error" for d in found) else 0, diagnostics=(*found, *kept))
