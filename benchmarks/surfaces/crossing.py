"""The crossing table: the shipped lineages replayed on the naive kernel of each surface, as `docs/tables/crossing.md`.

    python -m benchmarks.surfaces.crossing            # writes docs/tables/crossing.md
    python -m benchmarks.surfaces.crossing --check    # fails when the table is not what the lineages give

Nothing is compiled or run: what is carried, adapted or left out is decided by the preconditions and by what each backend can say.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kir.lineage.crossing import Crossed, cross
from kir.lineage.records.folder import Folder, opened
from kir.surface import backend
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "skills"
PAGE = ROOT / "docs" / "tables" / "crossing.md"
HEAD = """# Crossing

What was learned on one surface, applied on another: each shipped lineage (`skills/lineages/`), replayed step by step on the naive kernel of each
surface, as `kir replay LINEAGE --on FILE --emit SURFACE` does. Written by `python -m benchmarks.surfaces.crossing`; a test compares.

A step is *carried* when it applies at the same place, or at the one that matches best, with its preconditions judged there anew; *adapted* when the
surface cannot say it as it is but can say it with another parameter, or by another pass of the same intent; else it is left out.

| problem | from | to | carried | adapted | left out, and why |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Kernel:
    """A naive kernel: where it is, how it is bound, and the surface that is written."""

    problem: str
    file: Path
    binding: Path | None
    surface: str


def lineages() -> Iterator[Folder]:
    """The shipped lineages, by name."""
    for each in sorted((SKILLS / "lineages").glob("*/lineage.json")):
        yield opened(each)


def naive_kernels(problem: str) -> Iterator[Kernel]:
    """The naive kernels of a problem, one a surface."""
    for name, surface in (("naive.cu", "cuda"), ("naive_triton.py", "triton"), ("naive_tilelang.py", "tilelang")):
        file = SKILLS / "problems" / problem / name
        if file.exists():
            yield Kernel(problem, file, SKILLS / "bindings" / f"{problem}_naive_{surface}.toml", surface)


def crossed(folder: Folder, kernel: Kernel) -> Crossed:
    """One lineage on one kernel."""
    return cross(folder.read(), folder, load_expert(str(kernel.file), kernel.binding).program, backend(kernel.surface).accepts)


def row(folder: Folder, kernel: Kernel) -> str:
    """A line of the table."""
    lineage, done = folder.read(), crossed(folder, kernel)
    adapted = [f"{x.number} {x.step.intent}" for x in done.steps if x.outcome == "adapted"]
    carried = sum(x.carried for x in done.steps) - len(adapted)
    reasons = Counter(" ".join(x.reason.split("; left out before it")[0].split()) for x in done.steps if not x.carried)
    why = "; ".join(f"{count}x {reason}" for reason, count in reasons.most_common())
    cells = (kernel.problem, f"{lineage.header.surface} `{lineage.header.expert}`", kernel.surface, f"{carried} of {len(done.steps)}", ", ".join(adapted), why)
    return "| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |"


def page() -> str:
    """The whole page."""
    rows = [row(folder, kernel) for folder in lineages() for kernel in naive_kernels(folder.read().header.problem)]
    return HEAD + "\n".join(rows) + "\n"


def main(words: list[str]) -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in words:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
