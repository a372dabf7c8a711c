"""Which stored pipelines for CUDA and Triton are programs of other architectures than Hopper's, and compile for them, as `docs/tables/architectures.md`.
TileLang's, whose compiler takes minutes for some, are asked by name.

    python -m benchmarks.surfaces.architectures [NAME ..]     # prints the rows of some pipelines
    python -m benchmarks.surfaces.architectures --write       # writes the page
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.target import Target, target
from kir.learning.tune.rank import Prefixes, built, given_of
from kir.learning.tune.space import Space, find_space, space_names
from kir.problem import load_problem
from kir.surface import Artifact, backend

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "architectures.md"
TARGETS = ("sm_80", "sm_120")
PRODUCTS = ("HGMMA", "QGMMA", "QMMA", "HMMA")
"""Matrix instructions as their names begin in SASS."""
MOST = 4
"""Points of a space that are tried."""
HEAD = """# Stored pipelines on other architectures

Each stored pipeline for CUDA and Triton over its naive program, with every precondition judged for the target, legalized for its architecture, written and
compiled: the first point of its space that goes so far, of four. The cell says the matrix instruction of the code, its registers a thread and bytes spilled;
otherwise what the first point is refused for. Nothing is run. Written by `python -m benchmarks.surfaces.architectures --write`; a test compares some of the
rows.

| pipeline | surface | sm_80 | sm_120 |
| --- | --- | --- | --- |
"""


def row(name: str) -> str:
    """A pipeline's row of the table."""
    space = find_space(name)
    return f"| {name} | {space.surface} | {' | '.join(cell(space, target(t)) for t in TARGETS)} |"


def cell(space: Space, device: Target) -> str:
    """What becomes of a pipeline on a device: of the first point that compiles, of `MOST` that its space takes."""
    problem, said, known = load_problem(space.home), list[str](), Prefixes()
    given = given_of(space, problem, problem.shapes[0], device)
    every = [space.values(point, given) for point in space.points()]
    points = [values for values in every if not space.refusal(values)]
    for values in points[:MOST]:
        try:
            program = built(space, values, problem, device, known)
            refused = legalize(program, device.architecture)
            if not refused:
                by = backend(space.surface)
                return _compiled(by.compile(by.emit(program), device))
        except KirError as stopped:
            refused = stopped.diagnostics
        said.append(f"{refused[0].id}: {refused[0].message.splitlines()[0]}".replace("|", "\\|"))
    return said[0] if said else space.refusal(every[0])


def _compiled(made: Artifact) -> str:
    if made.absent:
        return made.absent
    found = [p for p in PRODUCTS if any(word.startswith(p) for word in made.mix)]
    return f"compiles: {', '.join([*found, f'{made.registers} registers', *([f'{made.spills} bytes spilled'] if made.spills else [])])}"


def main(words: Iterable[str]) -> int:
    """0, or 2 for words that are no pipelines."""
    words = list(words)
    if unknown := [w for w in words if w != "--write" and w not in space_names()]:
        print(f"no pipeline is called {', '.join(unknown)}; there are {', '.join(space_names())}", file=sys.stderr)
        return 2
    names = [w for w in words if w != "--write"] or [n for n in space_names() if (of := find_space(n)).kind == "pipeline" and of.surface != "tilelang"]
    rows = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        for one in pool.map(row, names):
            rows.append(one)
            print(one, flush=True)
    if "--write" in words:
        write_atomic(PAGE, HEAD + "\n".join([*rows, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
