"""The passes that CUDA makes visible, as `docs/tables/cuda-passes.md`: their cases, what catches each forced mistake, and what nvcc makes of them.

    python -m benchmarks.surfaces.cuda_passes    # compiles the box of each pass before and after (some minutes), writes docs/tables/cuda-passes.md
"""
from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate import realized
from kir.hardware.target import target
from kir.lineage.records.folder import opened
from kir.rewrite import Pass, passes
from kir.rewrite.conformance.box import box_of
from kir.surface import backend

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "cuda-passes.md"
TARGETS = ("sm_80", "sm_90a")
ASKED = {
    "vectorize-shared": ("vectorize-shared",),
    "pack-stores": ("pack-stores",),
    "read-only-load": ("read-only-load",),
    "cache-policy": ("cache-policy",),
    "programmatic-dependent-launch": ("programmatic-dependent-launch",),
    "warp-scan": ("warp-scan", "shuffle-scan"),
    "leader-broadcast": ("leader-broadcast", "warp-leader"),
    "atomic privatization": ("privatize-atomics", "atomic-update"),
    "packed convert and arithmetic": ("packed-arithmetic", "cache-converted-value"),
    "approximate intrinsic": ("approximate-intrinsic",),
    "operand reuse": ("reuse-operand",),
    "split-phase details of pipelines": ("split-phase", "overlap-products", "defer-store-wait"),
    "alias-shared-lifetimes": ("alias-shared-lifetimes",),
    "promote and demote scratch": ("share-scratch", "localize-workspace"),
}
"""What CUDA makes visible, and the passes that are it."""
HEAD = """# The passes that CUDA makes visible

Written by `python -m benchmarks.surfaces.cuda_passes`. Each pass goes both ways: its box is run forward, its cases are run as they say, and what they
make is undone exactly by the other direction (`tests/passes/test_cases.py`). *Forced* names each validity precondition and who catches the step
when it is forced where the precondition is refuted. *In the machine code*: the box before and after, written by the CUDA backend and
compiled; what differs. *Used*: steps of shipped lineages.

| what | pass | cases forward, backward | forced, caught by | in the machine code, sm_80 | sm_90a | used |
| --- | --- | --- | --- | --- | --- | --- |
"""


def case_file(name: str) -> dict[str, Any]:
    """The cases of a pass."""
    return tomllib.loads((ROOT / "tests" / "passes" / "cases" / f"{name.replace('-', '_')}.toml").read_text(encoding="utf-8"))


def directions(name: str) -> tuple[int, int]:
    """How often a pass is run forward, its box included, and backward, in its case file."""
    steps = [c.get("pipeline", "") for c in case_file(name).get("case", [])]
    back = sum(f"~{name}" in s for s in steps)
    return 1 + len(steps) - back, back


def forced(cls: type[Pass]) -> dict[str, str]:
    """For each validity precondition who catches the forced step ("" for a precondition without a case)."""
    caught = {e["id"]: str(e["caught_by"]) for e in case_file(cls.name).get("error", []) if "caught_by" in e}
    return {p.id: caught.get(p.id, "") for p in cls.preconditions if p.kind == "validity"}


def machine_code(cls: type[Pass], on: str) -> str:
    """What nvcc makes of the box, before against after."""
    box, cuda, chosen = box_of(sys.modules[cls.__module__].__doc__ or "", cls.name), backend("cuda"), target(on)
    illegal = next((d for p in (box.before, box.after) for d in legalize(p, chosen.architecture)), None)
    if illegal is not None:
        return f"refused: {illegal.id} {illegal.message}"
    try:
        before, after = (cuda.compile(cuda.emit(p), chosen) for p in (box.before, box.after))
    except KirError as refused:
        return f"refused: {refused.diagnostics[0].id} {refused.diagnostics[0].message}"
    found = realized(before, after)
    return found.reason if found else f"the same: {found.reason}"


def rows() -> Iterator[str]:
    """The rows of the table."""
    every = {cls.name: cls for cls in passes()}
    steps = [s.forward for f in sorted((ROOT / "skills" / "lineages").glob("*/lineage.json")) for s in opened(f).read().accepted]
    for what, names in ASKED.items():
        for name in names:
            cls = every[name]
            ahead, back = directions(name)
            mistakes = "<br>".join(f"{i}: {by or 'NO CASE'}" for i, by in forced(cls).items()) or "none to force"
            code = [machine_code(cls, t) for t in TARGETS]
            used = sum(s.partition("{")[0].partition("@")[0] == name for s in steps)
            yield f"| {what} | `{name}` | {ahead}, {back} | {mistakes} | {code[0]} | {code[1]} | {used or ''} |"


def main() -> int:
    """Write the page."""
    made = []
    for row in rows():
        print(row, flush=True)
        made.append(row)
    write_atomic(PAGE, HEAD + "\n".join(made) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
