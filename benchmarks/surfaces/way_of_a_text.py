"""Which rooms a source text passes on its way to printed IR: `docs/tables/way-of-a-text.md`.

    python -m benchmarks.surfaces.way_of_a_text

Reads one kernel of each surface as `kir parse FILE --bind BINDING` does, and notes each call of a function of KIR by its room. A stage is over
when the next one begins: a function of an earlier stage that is called later is named on the page, and the test fails.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from kir.ir.printer import program_text
from kir.surface.reading import normal_form, read_source

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "way-of-a-text.md"
KERNELS = (
    ("cuda", "skills/experts/softmax/softmax.cu", "skills/bindings/cuda_softmax.toml"),
    ("triton", "skills/experts/gemm/triton.py::gemm_persistent", "skills/bindings/triton_gemm.toml"),
    ("tilelang", "skills/experts/softmax/tilelang.py::softmax_row", "skills/bindings/tilelang_softmax.toml"),
)
STAGES = (("frontends.", ""), ("kir.ir.bindings.specialize", "specialize"), ("kir.analysis.normal.regions", "raised"))
"""What a text goes through before it is printed: a frontend, the binding, the normal form. A stage begins with a call of its function."""


@dataclass
class Way:
    """The rooms of one text in the order of their first calls, each with the function that was called first; and functions of a stage that were
    called after it was over."""

    surface: str
    rooms: dict[str, str] = field(default_factory=dict)
    back: list[str] = field(default_factory=list)


def room_of(module: str) -> str:
    """The room of a module: its package, as a path in the repository."""
    return module.removeprefix("kir.") if module.startswith(("kir.frontends.", "kir.passes.", "kir.backends.")) else module


def way(surface: str, file: str, binding: str) -> Way:
    """One kernel, read and printed, with its calls noted."""
    found, reached = Way(surface), 0
    name, _, kernel = file.partition("::")

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal reached
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        if event != "call" or not module.startswith("kir.") or "<" in code.co_name + code.co_filename or not code.co_flags & CO_OPTIMIZED:
            return
        place = room_of(module)
        room = place.rpartition(".")[0]
        found.rooms.setdefault(room, f"{place.rpartition('.')[2]}.{code.co_qualname}")
        for stage, (prefix, first) in enumerate(STAGES):
            if place.startswith(prefix):
                reached = max(reached, stage) if code.co_name == first else reached
                if stage < reached and f"{place}.{code.co_qualname}" not in found.back:
                    found.back.append(f"{place}.{code.co_qualname}")
    for noted in (False, True):  # once before, so that what is needed is imported: what is noted is what is called
        with TemporaryDirectory() as folder:  # a copy of another text each time, as what was read is kept
            copy = Path(folder) / Path(name).name
            copy.write_text((ROOT / name).read_text(encoding="utf-8") + "\n" * (1 + noted), encoding="utf-8")
            sys.setprofile(note if noted else None)
            try:
                text = program_text(normal_form(read_source(f"{copy}::{kernel}" if kernel else str(copy), ROOT / binding)))
            finally:
                sys.setprofile(None)
            assert text
    return found


def page(ways: Iterator[Way]) -> str:
    lines = ["# The way of a text", "",
             "Written by `python -m benchmarks.surfaces.way_of_a_text`. One kernel of each surface is read as `kir parse FILE --bind BINDING` does.",
             "Each room is listed where it is first entered, with the function that is called first.", ""]
    for found in ways:
        lines += [f"## {found.surface}", "", "| room | first function |", "| --- | --- |"]
        lines += [f"| `{room}` | `{first}` |" for room, first in found.rooms.items()]
        said = ", ".join(f"`{each}`" for each in found.back) if found.back else "none"
        lines += ["", f"Called after their stage (frontend, binding, normal form) was over: {said}.", ""]
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(way(*kernel) for kernel in KERNELS), encoding="utf-8")


if __name__ == "__main__":
    main()
