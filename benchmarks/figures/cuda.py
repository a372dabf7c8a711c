"""CUDA written out: how long that takes, and what nvcc makes of the sm_80 GEMM that is written beside the one by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Figure, best_of_new
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.rewrite import apply, sites
from kir.rewrite.registry import pass_class
from kir.surface import CompiledKernel, Emitted, backend
from kir.surface.reading import load_expert

SKILLS = Path(__file__).parents[2] / "skills"
SOURCE = SKILLS / "experts" / "gemm" / "gemm_sm80.cu"
FUNCTION = "_Z9gemm_sm80ILi128ELi128ELi32ELi3EEvPK6__halfS2_PS0_iii"
"""The instantiation at the end of the file."""


def figures() -> Iterator[Figure]:
    """Emission of the GEMM; registers, spills and shared memory of what is written, held against the expert's."""
    binding = SKILLS / "bindings" / "gemm_sm80.toml"
    expert = load_expert(f"{SOURCE}::gemm_sm80", binding)
    tiles = _tiles(expert.program)
    for what, program in (("as read", expert.program), ("from its tiles", tiles)):
        seconds, emitted = best_of_new(backend("cuda").emit, program, runs=5, clock=time.process_time)
        yield Figure(f"emission of the CUDA GEMM, {what}", seconds * 1e3, "ms", 50, note=f"{emitted.text.count(chr(10))} lines; processor time")
    for name in ("sm_80", "sm_90a"):
        made, by_hand = compiled(backend("cuda").emit(tiles), name)
        for what in ("registers", "spills", "shared_bytes"):
            own, bound = getattr(made, what), getattr(by_hand, what)
            yield Figure(f"generated sm_80 GEMM on {name}: {what.replace('_bytes', ' memory')}", own, "bytes" if what != "registers" else "a thread",
                         bound, note=f"gemm_sm80.cu: {bound}")


def _tiles(program: Program) -> Program:
    """The tiles that the threads of the GEMM are raised to; the backend lowers them anew."""
    (site,) = sites(pass_class("lower-mma").with_options({}), program, "backward")
    return apply(program, site.params, site, "backward").program


def compiled(emitted: Emitted, name: str) -> tuple[CompiledKernel, CompiledKernel]:
    """What nvcc makes of the emitted GEMM, and of the expert's own text."""
    cuda = backend("cuda")
    by_hand = replace(emitted, text=SOURCE.read_text(encoding="utf-8"), entries=(replace(emitted.entries[0], function=FUNCTION),))
    (made,), (expert,) = (cuda.compile(each, target(name)).kernels for each in (emitted, by_hand))
    return made, expert
