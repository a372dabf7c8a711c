"""How far the kernels of each workload came, by the samples that the repository kept: ``python -m benchmarks.gpu_workloads.history [WORKLOAD [ROW]]``.

A line for each commit that changed a workload's samples: how many times as fast as the fastest reference of its run the fastest kernel of a surface was, as a
geometric mean over rows, and in the slowest row. With a part of a row's name: a line for each kernel that was ever measured at such rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from math import exp, log
from pathlib import Path

from benchmarks.gpu_workloads.table import WORKLOADS

RESULTS = "benchmarks/results"
ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    """0, or 2 for words that are no workload."""
    if words and words[0] not in WORKLOADS:
        print(f"no workload {words[0]}; there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    for line in ways(words[0], " ".join(words[1:])) if len(words) > 1 else (x for name in words or WORKLOADS for x in course(name)):
        print(line)
    return 0


def course(name: str) -> Iterator[str]:
    """A workload's means at each commit."""
    for commit, when, samples in kept(name):
        said = "  ".join(f"{of} {mean:.3f} (least {least:.3f}, {rows} rows)" for of, mean, least, rows in means(samples))
        yield f"{name} {commit} {when}  {said}"


def ways(name: str, part: str) -> Iterator[str]:
    """What was measured at the rows whose names contain a text: each kernel once for each run."""
    seen = set[tuple[str, ...]]()
    for commit, _, samples in kept(name):
        for row in map(json.loads, samples.splitlines()):
            taken = [t for t in row["taken"] if not t["fault"]]
            theirs = min((t["median"] for t in taken if not t["ours"]), default=0.0)
            for t in taken if part in row["shape"] else ():
                key = row["shape"], t["way"], row["when"]
                if t["ours"] and key not in seen:
                    seen.add(key)
                    yield f"{commit} {row['device']} {row['when']}  {row['shape']}  {t['way']}  {t['median'] * 1e6:.1f} us  {theirs / t['median']:.3f}"


def kept(name: str) -> Iterator[tuple[str, str, str]]:
    """The commits that changed a workload's samples, oldest first: its short name, when it was made, and the samples."""
    file = f"{RESULTS}/gpu-workloads-{name}.jsonl"
    for line in reversed(_git("log", "--format=%h %ad", "--date=format:%Y-%m-%d %H:%M", "--", file).splitlines()):
        commit, _, when = line.partition(" ")
        yield commit, when, _git("show", f"{commit}:{file}")


def means(samples: str) -> list[tuple[str, float, float, int]]:
    """Of each surface the geometric mean of its rows, the least of them, and how many there are."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for line in samples.splitlines():
        taken = [t for t in json.loads(line)["taken"] if not t["fault"]]
        theirs = [t["median"] for t in taken if not t["ours"]]
        ours: dict[str, list[float]] = defaultdict(list)
        for t in taken:
            if t["ours"]:
                ours[surface(t["way"])].append(t["median"])
        for of, times in ours.items() if theirs else ():
            ratios[of].append(min(theirs) / min(times))
    return [(of, exp(sum(map(log, x)) / len(x)), min(x), len(x)) for of, x in sorted(ratios.items())]


def surface(way: str) -> str:
    """Of one of KIR's ways, by what a row calls it."""
    return next((of for of in ("tilelang", "triton") if of in way), "cuda")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
