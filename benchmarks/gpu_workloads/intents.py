"""Which intents of the catalogue the workloads' pipelines use: ``python -m benchmarks.gpu_workloads.intents [--write]`` prints or writes
`docs/tables/workloads-intents.md`.

A row is one of the catalogue; what uses it are steps of the stored pipelines whose problem is a workload's.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from kir.base.registry import registry
from kir.base.store import write_atomic
from kir.learning.tune.space import find_space, space_names
from kir.rewrite import pass_class
from kir.rewrite.catalog import summary

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "workloads-intents.md"
STEP = re.compile(r"(?m)^([a-z0-9-]+)(?=[{@;\n]|$)")
HOMES = {"attention": ("fmha",), "convolution": ("conv2d",), "top-k": ("topk",), "gated delta rule": ("gdn",), "GEMM": ("gemm", "bmm")}
"""How the names of a workload's problems begin."""
SURFACES = ("cuda", "tilelang", "triton")


def page() -> str:
    """The table."""
    used: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    intents: dict[int, set[str]] = defaultdict(set)
    passes: dict[int, set[str]] = defaultdict(set)
    rows = {entry.name: summary(entry).catalogue for entry in registry("kir.passes")}
    for entry in registry("kir.passes"):
        for row in summary(entry).catalogue:
            intents[row].add(pass_class(entry.name).intent)
    for name in space_names():
        space = find_space(name)
        workload = next((w for w, begins in HOMES.items() if space.home.startswith(begins)), None)
        if workload is None or space.kind != "pipeline":
            continue
        for step in STEP.findall(space.text):
            for row in rows.get(step, ()):
                used[row][workload].add(space.surface)
                passes[row].add(step)
    lines = [
        "# Intents that the workloads use",
        "",
        "Which optimizations the stored pipelines of each workload use, surface by surface.",
        "",
        "A row is one of the catalogue of intents; a cell names the surfaces of the stored pipelines that have a step of it. Written by",
        "`python -m benchmarks.gpu_workloads.intents --write`.",
        "",
        f"Each row has a pass: {len(intents)}. {len(used)} are used by a workload's pipeline; of the others none has a step (the "
        "answers of top-k and of the gated delta rule, which come whole, hold some within): "
        f"{', '.join(str(row) for row in sorted(set(intents) - set(used)))}.",
        "",
        f"| row | intents | steps | {' | '.join(HOMES)} |",
        f"| ---: | --- | --- | {' | '.join('---' for _ in HOMES)} |",
    ]
    for row in sorted(used):
        cells = [", ".join(s for s in SURFACES if s in used[row].get(w, ())) for w in HOMES]
        lines.append(f"| {row} | {', '.join(sorted(intents[row]))} | {', '.join(sorted(passes[row]))} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write_atomic(PAGE, page())
    else:
        print(page(), end="")
