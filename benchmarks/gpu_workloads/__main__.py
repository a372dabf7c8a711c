"""``python -m benchmarks.gpu_workloads [--out DIR] [--seconds N] [--known TEXTS] [--rows TEXTS] WORKLOAD ..``; without names, all workloads.

`--rows`: those whose names contain one of these texts, with commas between. `--known`: only candidates that were the fastest of a row that is kept, and
those whose names contain one of these texts; with `row` among them only those of the row itself, and such that begin early; with `ways` those as well
that were among the fastest of the row before; with `named` only those whose names contain another of the texts. A workload's module compiles ahead:
``python -m benchmarks.gpu_workloads.WORKLOAD [ROWS] [--known TEXTS]``.

``python -m benchmarks.gpu_workloads take DIR`` puts rows that another machine measured with ``--out DIR`` in the place of those kept, where they are newer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gpu_workloads.running.watched import run
from benchmarks.gpu_workloads.table import RESULTS, WORKLOADS, take


def main(words: list[str]) -> int:
    """0, or 1 where one of KIR's kernels was wrong or did not run, or 2 for words that are none."""
    given = {"--out": str(RESULTS), "--seconds": "inf", "--known": "", "--rows": ""}
    while len(words) > 1 and words[0] in given:
        option, value, *words = words
        given[option] = value
    if len(words) == 2 and words[0] == "take":
        print(f"{take(Path(words[1]), Path(given['--out']))} rows taken")
        return 0
    if unknown := [w for w in words if w not in WORKLOADS]:
        print(f"no workload {unknown[0]}; there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    rows = tuple(x for x in given["--rows"].split(",") if x)
    faults = run(words or list(WORKLOADS), Path(given["--out"]), float(given["--seconds"]), rows, tuple(x for x in given["--known"].split(",") if x))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
