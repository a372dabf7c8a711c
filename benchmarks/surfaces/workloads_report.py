"""The shipped lineages of all workloads side by side in one HTML page, with what was measured of them: `kir report` with figures beside it.

    python -m benchmarks.surfaces.workloads_report [FILE]     # build/workloads.html

Of each lineage the page says how long its naive program and its expert took on a GPU (`workloads-steps.jsonl`), and of each workload on a surface how many
times as fast as the fastest reference of the same run its kernels are (`gpu-workloads-*.jsonl`). Nothing is measured or walked.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_workloads.history import SURFACES, cells
from benchmarks.gpu_workloads.table import WORKLOADS
from benchmarks.surfaces.measured_steps import kept, of_workloads
from kir.base.store import write_atomic
from kir.faces.report.surfaces import surfaces
from kir.ir.changes.diff import diff, render_html
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage

OUT = Path(__file__).parents[2] / "build" / "workloads.html"


def figures(lineages: Sequence[tuple[Lineage, Folder]]) -> dict[str, list[str]]:
    """By the name of each lineage's folder what was measured of it; of a workload on a surface once, with its first lineage there."""
    rows, beside = {(r.lineage, r.state): r for r in kept() if r.accepted}, cells()
    said: dict[str, list[str]] = {}
    for record, folder in lineages:
        name, last = folder.root.name, len(record.states) - 1
        fast, slow = rows.get((name, 0)), rows.get((name, last))
        if fast is not None and slow is not None and (fast.program, slow.program) == (record.states[0].content, record.states[last].content):
            device = fast.device.removeprefix("NVIDIA ")
            said.setdefault(name, []).append(f"measured at {fast.shape}: {slow.seconds * 1e6:,.1f} us naive, {fast.seconds * 1e6:,.1f} us, "
                                             f"{slow.seconds / fast.seconds:,.0f} times as fast ({device})")
        workload = max((w for w in WORKLOADS if record.header.problem.startswith(w)), key=len)
        if found := beside.pop((workload, record.header.surface), None):
            ratios = sorted(ratio for ratio, _ in found.values())
            said.setdefault(name, []).append(f"kernels in {SURFACES[record.header.surface]} beside the fastest reference of the same run: as fast or faster "
                                             f"in {sum(r >= 1 for r in ratios)} of {len(ratios)} rows, {ratios[0]:.2f} to {ratios[-1]:.2f} times as fast, "
                                             f"{ratios[len(ratios) // 2]:.2f} in the middle")
    return said


def main(words: list[str]) -> int:
    """0, or 2 for words that are no file."""
    if len(words) > 1 or any(w.startswith("-") for w in words):
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(words[0]) if words else OUT
    shipped = sorted(((folder.read(), folder) for folder in of_workloads()), key=lambda one: (one[0].header.problem, one[0].header.surface))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, surfaces(shipped, lambda a, b: render_html(diff(a, b)), figures(shipped)))
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
