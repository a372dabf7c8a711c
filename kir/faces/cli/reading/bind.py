"""write a skeleton of a binding for a generic kernel, from what its source says

The skeleton is TOML. A "?" stands where a person must decide: shapes over the sizes, the grid, the values of scalars. What stands in a
binding, and what for: docs/using/your-own-kernel.md.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kir.faces.cli._result import Result

HEADER = """\
# {place}: put values in the places of "?" (docs/using/your-own-kernel.md).
# sizes = ["M", "N"]                 names that you choose: shapes, scalars and the grid are expressions over them;
#                                    an extent under [metas] may be named here instead, and is a size then
# facts = ["N >= 1", "N % 8 == 0"]   what callers promise of the sizes; the more, the more passes are legal
# problem = "softmax"                what it computes, where KIR has that problem (`kir run --problem`)
"""
"""What a skeleton begins with: the fields that no source can fill in."""


def command(
    file: Annotated[str, typer.Argument(help="FILE[::KERNEL] of a surface: Triton, TileLang or CUDA; package:path names a file of an installed package")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write it there")] = None,
) -> Result:
    """Write a skeleton of a binding for a generic kernel."""
    from kir.base.diagnostic import error
    from kir.base.store import write_atomic
    from kir.ir.binding import unfilled
    from kir.surface.reading import kernel_of, located

    path, kernel = located(file)
    frontend, ref = kernel_of(path, kernel)
    name = ref.name
    make = getattr(frontend, "skeleton", None)
    if make is None:
        raise error("KIR-F005", f"the frontend '{frontend.surface}' writes no skeletons of bindings", needs="a binding by hand")
    binding = make(path, name)
    text = HEADER.format(place=file) + binding.text()
    if output is not None:
        write_atomic(output, text)
        left = unfilled(binding)
        said = f"{output}: to be filled in: {', '.join(left)}" if left else f"{output}: nothing is left open"
        return Result({"kernel": name, "binding": asdict(binding), "text": text, "output": str(output)}, said)
    return Result({"kernel": name, "binding": asdict(binding), "text": text, "output": None}, text)
