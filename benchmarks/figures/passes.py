"""How long a pass takes, and how that grows with the program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Figure, best_of_new
from benchmarks.programs import copies, tile_gemm
from kir.ir.nodes import Program
from kir.ir.visit import walk
from kir.rewrite import Step, apply, find_site

BACKWARD = ("mma@main/k_loop/mma", "pipeline@main/k_loop", "multi-threaded-block@main")


def figures() -> Iterator[Figure]:
    """Finding the site and applying one pass with all its checks (preconditions, anchors, verifier), without the gate."""
    for text in BACKWARD:
        program = tile_gemm()
        seconds, _ = best_of_new(partial(_once, text=text), program, runs=7)
        yield Figure(f"`~{text}` on the tile-level GEMM", seconds * 1e3, "ms", 20, note=f"{_size(program)} IR nodes")
    base = None
    for factor in (1, 4, 16):
        program = copies(tile_gemm(), factor)
        seconds, _ = best_of_new(partial(_once, text="mma@main/k_loop/mma"), program, runs=5)
        base = base or seconds
        yield Figure(f"one pass at {factor}x", seconds * 1e3, "ms", None, note=f"{_size(program)} IR nodes, {seconds / base:.2g}x the time")


def _once(program: Program, text: str) -> Program:
    name, _, at = text.partition("@")
    step = Step(name, at=at, direction="backward")
    item, site = find_site(program, step)
    return apply(program, item, site, "backward").program


def _size(program: Program) -> int:
    return sum(1 for kernel in program.kernels for _ in walk(kernel))
