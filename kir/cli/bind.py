"""write a skeleton of a binding for a generic kernel, from what its source says

The skeleton is TOML. A "?" stands where a person must decide: shapes over the sizes, the grid, the values of scalars.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kir.cli._result import Result


def command(
    file: Annotated[str, typer.Argument(help="FILE.py::KERNEL")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write it there")] = None,
) -> Result:
    """Write a skeleton of a binding for a generic kernel."""
    from kir.diagnostic import error
    from kir.lineage.source import kernel_of, located
    from kir.store import write_atomic

    path, kernel = located(file)
    frontend, ref = kernel_of(path, kernel)
    name = ref.name
    make = getattr(frontend, "skeleton", None)
    if make is None:
        raise error("KIR-F005", f"the frontend '{frontend.surface}' writes no skeletons of bindings", needs="a binding by hand")
    binding = make(path, name)
    text = binding.text()
    if output is not None:
        write_atomic(output, text)
    return Result({"kernel": name, "binding": binding.model_dump(), "text": text, "output": str(output) if output else None}, text)
