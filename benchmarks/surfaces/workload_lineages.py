"""Which workloads have a naive program, stored pipelines and a lineage back to naive, on which surface: `docs/tables/workloads-lineages.md`.

    python -m benchmarks.surfaces.workload_lineages            # prints the page
    python -m benchmarks.surfaces.workload_lineages --write    # writes it

Read from what is shipped; nothing is walked. `tests/skills/test_lineages.py` replays each lineage that the page names, and compares the page.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.surfaces.crossing import lineages
from kir.base.store import write_atomic
from kir.learning.tune.space import find_space, space_names
from kir.lineage.records.record import Lineage

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "workloads-lineages.md"
SURFACES = ("cuda", "tilelang", "triton")
WORKLOADS = {
    "attention": ("fmha",),
    "attention, uneven lengths": ("fmha_varlen",),
    "convolution": ("conv2d",),
    "top-k": ("topk",),
    "gated delta rule": ("gdn",),
    "GEMM": ("gemm",),
    "GEMM, fp8": ("gemm_fp8",),
    "GEMM, groups": ("gemm_grouped",),
    "GEMM, batches": ("bmm",),
}
"""How the names of a workload's problems begin. A problem is of the workload whose word is the longest."""
HEAD = """# Lineages of the workloads

For each workload and surface: how many stored pipelines over the naive program there are (`skills/pipelines/`), and each shipped lineage
(`skills/lineages/`), with its steps back to naive, the intents among them, the steps that change the compiled code, and the gate that judged each.
A step that is *an answer* undoes a whole program that a carrier holds, which only the carrier's tests say is right; the other steps of that lineage are of
what was added to the answer. Every lineage here ends in a program of which predicate N holds, and is replayed to the letter by
`tests/skills/test_lineages.py`. Written by `python -m benchmarks.surfaces.workload_lineages --write`; a test compares.

| workload | surface | pipelines | lineage | of | steps | intents | realized | gate |
| --- | --- | ---: | --- | --- | ---: | ---: | ---: | --- |
"""


@dataclass(frozen=True)
class Shipped:
    """A shipped lineage by the name of its folder."""

    name: str
    record: Lineage


@cache
def shipped() -> tuple[Shipped, ...]:
    """All shipped lineages, by name."""
    return tuple(Shipped(folder.root.name, folder.read()) for folder in lineages())


@cache
def pipelines() -> Counter[tuple[str, str]]:
    """How many stored pipelines each workload has on each surface."""
    spaces = [space for name in space_names() if (space := find_space(name)).kind == "pipeline"]
    return Counter((workload_of(space.home), space.surface) for space in spaces)


def workload_of(problem: str) -> str:
    """The workload of a problem, "" of one that belongs to none."""
    begins = [(len(begin), workload) for workload, words in WORKLOADS.items() for begin in words if problem.startswith(begin)]
    return max(begins)[1] if begins else ""


def rows(workload: str, surface: str) -> list[str]:
    """The lines of a workload on a surface: one a lineage, one where there is none."""
    found = [each for each in shipped() if each.record.header.surface == surface and workload_of(each.record.header.problem) == workload]
    first = f"| {workload} | {surface} | {pipelines()[workload, surface]} "
    return [f"{first}| {_told(each)} |" for each in found] or [f"{first}| none | | | | | |"]


def _told(each: Shipped) -> str:
    record = each.record
    steps = record.accepted
    answers = sum("{answer=" in step.forward for step in steps)
    count = f"{len(steps)}{' (an answer)' if answers == len(steps) else ' (one an answer)' if answers else ''}"
    realized = sum(step.realization is not None and step.realization.realized for step in steps)
    return " | ".join([f"`{each.name}`", record.header.problem, count, str(len({step.intent for step in steps})), str(realized), record.header.gate])


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join([*(line for workload in WORKLOADS for surface in SURFACES for line in rows(workload, surface)), ""])


def main(words: Sequence[str]) -> int:
    """Print the page, or with `--write` write it."""
    if words == ["--write"]:
        write_atomic(PAGE, page())
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
