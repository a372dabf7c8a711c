"""Which stored pipelines for CUDA and Triton are programs of other architectures than Hopper's: compiled for them, interpreted and modelled, as
`docs/tables/architectures.md`. TileLang's, whose compiler takes minutes for some, are asked by name.

    python -m benchmarks.surfaces.architectures [NAME ..]     # prints the rows of some pipelines, each as it is done
    python -m benchmarks.surfaces.architectures --write [NAME ..]   # writes the rows of all, or of some, into the page
    .. --next ..                                              # the same of the table of the next architecture
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.checked import cases, checked, named
from kir.gate.cost import profile
from kir.gate.cpu import profiled
from kir.hardware.target import Target, target
from kir.ir.nodes import Program
from kir.learning.tune.rank import Prefixes, built, given_of, holds
from kir.learning.tune.space import Space, find_space, space_names
from kir.problem import Problem, load_problem
from kir.surface import Artifact, backend

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "architectures.md"
TARGETS, NEXT = ("sm_80", "sm_120"), ("sm_100a",)
PRODUCTS = ("UTCHMMA", "UTCQMMA", "HGMMA", "QGMMA", "QMMA", "HMMA")
"""Matrix instructions as their names begin in SASS."""
DESCRIPTORS = ("tma-load", "tma-store", "surface-option{option=host_descriptors ")
"""How steps begin that only make copies go by tensor descriptors."""
MOST, CASES = 4, 5
"""Points of a space that are tried; and sizes at which one is interpreted."""
HEAD = """# Stored pipelines on other architectures

Each stored pipeline for CUDA and Triton over its naive program, with every precondition judged for the target, legalized for its architecture, written and
compiled: the first point of its space that goes so far, of four. The cell says the matrix instruction of the code, its registers a thread and bytes spilled; at
how many sizes of its problem the interpreter, looking for hazards, found its outputs right (the quickest of those of `kir run --check`); and the modelled time
at the first shape that the problem profiles. Otherwise it says what the first point is refused for. *By addresses*: the target has no TMA, and the steps that
only make copies go by tensor descriptors are left out (`tma-load`, `tma-store`), so that Triton's compiler makes them by cp.async. None of it ran on a GPU.
Written by `python -m benchmarks.surfaces.architectures --write`; a test compares some of the rows.

| pipeline | surface | sm_80 | sm_120 |
| --- | --- | --- | --- |
"""
AFTER = """
## The next architecture

The same for sm_100a, by `--next`. Of pipelines for CUDA `gemm_sm100` has products into tensor memory ([why so](../decisions/0039-tensor-memory.md)), and what
was made for sm_80 compiles as it is; Triton's compiler chooses by itself.

| pipeline | surface | sm_100a |
| --- | --- | --- |
"""


def row(name: str, targets: tuple[str, ...] = TARGETS) -> str:
    """A pipeline's row of the table, or of that of other targets."""
    space = find_space(name)
    return f"| {name} | {space.surface} | {' | '.join(cell(space, target(t)) for t in targets)} |"


def by_addresses(space: Space, device: Target) -> Space:
    """A pipeline for Triton without its steps to tensor descriptors, where the device has none."""
    if space.surface != "triton" or device.architecture.has("tma"):
        return space
    steps = space.text.split(";")
    return replace(space, text=";".join(s for s in steps if not s.strip().startswith(DESCRIPTORS)))


def cell(space: Space, device: Target) -> str:
    """What becomes of a pipeline on a device: of the first point that compiles, of `MOST` that its space takes."""
    given_space, space = space, by_addresses(space, device)
    how = "by addresses, " if space is not given_space and space.text != given_space.text else ""
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
                made = by.compile(by.emit(program), device)
                return made.absent or f"{how}{_compiled(made)}; {_interpreted(program, problem)}; {_modelled(program, problem, device, space.surface)}"
        except KirError as stopped:
            refused = stopped.diagnostics
        said.append(f"{refused[0].id}: {refused[0].message.splitlines()[0]}".replace("|", "\\|"))
    return said[0] if said else space.refusal(every[0])


def _compiled(made: Artifact) -> str:
    found = [p for p in PRODUCTS if any(word.startswith(p) for word in made.mix)]
    return f"compiles: {', '.join([*found, f'{made.registers} registers', *([f'{made.spills} bytes spilled'] if made.spills else [])])}"


def _interpreted(program: Program, problem: Problem) -> str:
    """Whether a program is right, and free of hazards, at its tail and the quickest of the sizes that `kir run --check` takes."""
    chosen = [case for case in cases(program, problem)[0][:CASES] if holds(program, case.at)]
    ran = list(checked(program, chosen))
    wrong = next((each for each in ran if not each.ok), None)
    if wrong is None:
        return f"right at {len(ran)}" if ran else "**not interpreted**"
    return f"**wrong at {named(wrong.case)}: {wrong.diagnostics[0].id}**"


def _modelled(program: Program, problem: Problem, device: Target, surface: str) -> str:
    shapes = profiled(program, problem)[:1]
    return ", ".join(f"modelled {1e6 * each.seconds:.3g} us at {each.shape}" for each in profile(program, shapes, device, None, surface))


def written(rows: Iterable[str], names: Sequence[str], text: str, further: bool = False) -> str:
    """The page with these rows in the place of what it says of their pipelines, in the order of names: in its first table, or in the one `further` down."""
    tables = [*text.split(AFTER.split("\n\n", maxsplit=1)[0]), ""][:2]
    tables[further] += "\n".join(["", *rows])
    found = [{line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if line.startswith("| ")} for table in tables]
    first, second = ("\n".join([*(at[n] for n in names if n in at), ""]) for at in found)
    return HEAD + first + (AFTER + second if second else "")


def main(words: Iterable[str]) -> int:
    """0, or 2 for words that are no pipelines."""
    words = list(words)
    every = [n for n in space_names() if (of := find_space(n)).kind == "pipeline" and of.surface != "tilelang"]
    if unknown := [w for w in words if w not in ("--write", "--next") and w not in space_names()]:
        print(f"no pipeline is called {', '.join(unknown)}; there are {', '.join(space_names())}", file=sys.stderr)
        return 2
    names, further = [w for w in words if not w.startswith("--")] or every, "--next" in words
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        for made in as_completed([pool.submit(row, name, NEXT if further else TARGETS) for name in names]):
            one = made.result()
            print(one, flush=True)
            if "--write" in words:
                write_atomic(PAGE, written([one], every, PAGE.read_text(encoding="utf-8"), further))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
