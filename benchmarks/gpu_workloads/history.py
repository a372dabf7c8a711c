"""How far the kernels of each workload came, by the samples that the repository kept: ``python -m benchmarks.gpu_workloads.history [WORKLOAD [ROW]]``.

A line for each commit that changed a workload's samples: how many times as fast as the fastest reference of its run the fastest kernel of a surface was, as a
geometric mean over rows, and in the slowest row. With a part of a row's name: a line for each kernel that was ever measured at such rows.

``python -m benchmarks.gpu_workloads.history gather`` keeps all ways that rows were ever computed in, with what was tried beside them, in a file of the results;
``python -m benchmarks.gpu_workloads.history --write`` writes the page of limits: every cell, a workload on a surface, with the figure asked and reached, and of
those that miss it what binds (``benchmarks/results/workloads-limits.toml``) and the ways that were measured at their slowest rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.gpu_workloads.running.asking import EARLY
from benchmarks.gpu_workloads.table import WORKLOADS
from kir.base.store import write_atomic

RESULTS = "benchmarks/results"
ROOT = Path(__file__).parents[2]
PAGE, WAYS, LIMITS = ROOT / "docs" / "tables" / "workloads-limits.md", ROOT / RESULTS / "workloads-ways.jsonl", ROOT / RESULTS / "workloads-limits.toml"
SURFACES = {"cuda": "CUDA", "tilelang": "TileLang", "triton": "Triton"}
FIGURES: dict[str, tuple[float, float, float]] = {
    "fmha": (1.0, 0.97, 0.9), "fmha_varlen": (1.0, 0.97, 0.9), "conv2d": (1.2, 1.2, 1.2), "topk": (1.3, 1.3, 1.3), "gdn": (1.1, 1.1, 1.1),
    "gemm": (1.0, 0.99, 0.98), "gemm_fp8": (1.0, 1.0, 1.0), "gemm_grouped": (1.2, 1.2, 1.2), "bmm": (1.0, 0.99, 0.98)}
"""What the geometric mean of a workload is to reach on each surface."""
FLOORS = {("conv2d", "cuda"): 1.0, ("gemm", "cuda"): 0.93, ("topk", "cuda"): 1.0}
"""What no row may be below."""
ALONE = {("gemm", "tilelang"): "4096 x 4096 x 4096", ("gemm", "triton"): "4096 x 4096 x 4096"}
"""The one row that a figure is asked of."""
ASKED_OF = {"gemm_grouped": "loop of torch.mm"}
"""The reference that a figure is asked of, where it is one of several; rows and means are of the fastest all the same."""
ASKED_AT = {("bmm", "tilelang"): "4 of 4096 x 4096 x 4096", ("bmm", "triton"): "4 of 4096 x 4096 x 4096"}
"""The row at which a figure is asked, where others are measured all the same."""
SLOWEST, SHOWN = 4, 5
"""Rows of a missed cell that the page shows, and other ways of each."""


def main(words: list[str]) -> int:
    """0, or 2 for words that are no workload."""
    if words == ["gather"]:
        write_atomic(WAYS, "".join(json.dumps(way) + "\n" for way in gathered()))
        return 0
    if words == ["--write"]:
        write_atomic(PAGE, written())
        return 0
    if words and words[0] not in WORKLOADS:
        print(f"no workload {words[0]}; there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    for line in ways(words[0], " ".join(words[1:])) if len(words) > 1 else (x for name in words or WORKLOADS for x in course(name)):
        print(line)
    return 0


def written() -> str:
    """The page from what is kept."""
    said = tomllib.loads(LIMITS.read_text())
    return page(_lines(WAYS), said["limit"], said["notes"])


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


def gathered() -> Iterator[dict[str, Any]]:
    """The fastest ways in which a row was ever computed on a surface, each once: how many times as fast as the fastest reference of its run it was at its
    best; what a run tried and did not keep counts as well, by the time that it took then."""
    best: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name in WORKLOADS:
        for _, _, samples in kept(name):
            for row in map(json.loads, samples.splitlines()):
                theirs = [t["median"] for t in row["taken"] if not t["ours"] and not t["fault"]]
                took = {t["way"]: t["median"] for t in row["taken"] if t["ours"] and not t["fault"]}
                for way, seconds in ({**row.get("tried", {}), **took} if theirs else {}).items():
                    key = name, row["shape"], way
                    ratio = round(min(theirs) / seconds, 3)
                    one = {"workload": name, "row": row["shape"], "surface": surface(way), "way": way, "ratio": ratio, "when": row["when"]}
                    if key not in best or one["ratio"] > best[key]["ratio"]:
                        best[key] = one
    many: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for one in sorted(best.values(), key=lambda one: -one["ratio"]):
        of = many[one["workload"], one["row"], one["surface"]]
        if len(of) <= SHOWN:
            of.setdefault(one["way"].removesuffix(EARLY), one)
    yield from (one for _, of in sorted(many.items()) for one in of.values())


def cells(asked: bool = False) -> dict[tuple[str, str], dict[str, tuple[float, str]]]:
    """Of each workload on a surface: of each row how many times as fast as the fastest reference KIR's fastest kernel is, and which; `asked`: as the one that
    the figure is asked of, at the rows at which it is. Code for sm_80 is no cell: it runs on another device's behalf."""
    out: dict[tuple[str, str], dict[str, tuple[float, str]]] = {}
    for name in WORKLOADS:
        of = ASKED_OF.get(name, "") if asked else ""
        for row in _lines(ROOT / RESULTS / f"gpu-workloads-{name}.jsonl"):
            theirs = [t["median"] for t in row["taken"] if not t["ours"] and not t["fault"] and of in t["way"]]
            for t in row["taken"] if theirs else ():
                cell = name, surface(t["way"])
                at = ALONE.get(cell, ASKED_AT.get(cell, "") if asked else "")
                if t["ours"] and not t["fault"] and "sm80" not in t["way"] and row["shape"].startswith(at):
                    rows = out.setdefault(cell, {})
                    rows[row["shape"]] = max(rows.get(row["shape"], (0.0, "")), (min(theirs) / t["median"], t["way"]))
    return out


def missed(name: str, of: str, rows: Mapping[str, tuple[float, str]]) -> str:
    """What a cell misses; "" where it misses nothing."""
    said = []
    if (mean := _mean(rows)) < _figure(name, of):
        said.append(f"mean {mean:.3f}")
    if (least := min(rows.values())[0]) < FLOORS.get((name, of), 0.0):
        said.append(f"a row at {least:.3f}")
    return ", ".join(said)


def page(every: list[dict[str, Any]], limits: list[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """The page: all cells, then what binds."""
    found, wanted = cells(), cells(asked=True)
    out = ["# What binds where a figure of the workloads is not reached", "",
           "Written by `python -m benchmarks.gpu_workloads.history --write` from the samples of [gpu-workloads](../../benchmarks/results/gpu-workloads.md), "
           "from `workloads-ways.jsonl` beside them (the fastest ways that a row was ever computed in, by their best samples, or by what they took when they "
           "were tried) and from `workloads-limits.toml`, which says what binds, by measured rates of units ([micro-benchmarks](micro-benchmarks.md)) and by "
           "instructions of compiled kernels ([workloads-sass](workloads-sass.md)). A ratio is how many times as fast as the fastest reference of the run; "
           "where a figure is asked of one reference alone, or at one row, what is reached there stands in brackets.",
           "", "| workload | surface | asked of the mean | mean | rows | rows from 1.0 on | least | misses |",
           "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for (name, of), rows in sorted(found.items()):
        floor = f", no row below {FLOORS[name, of]}" if (name, of) in FLOORS else ""
        least, (ratio, _) = min(rows.items(), key=lambda one: one[1])
        alone = f", of the {ASKED_OF[name]}" if name in ASKED_OF else f", at {ASKED_AT[name, of]}" if (name, of) in ASKED_AT else ""
        mean = f"{_mean(rows):.3f}{f' ({_mean(wanted[name, of]):.3f})' if alone else ''}"
        out.append(f"| {name} | {SURFACES[of]} | {_figure(name, of)}{floor}{alone} | {mean} | {len(rows)} | {sum(r >= 1.0 for r, _ in rows.values())} | "
                   f"{ratio:.3f} ({least}) | {missed(name, of, wanted[name, of])} |")
    for limit in limits:
        out += ["", f"## {limit['of']}", "", f"**What binds.** {limit['binds']}", "", f"**What was tried.** {limit['tried']}"]
        for name, of in (cell.split() for cell in limit["cells"]):
            if (name, of) in found:
                out += ["", *_slowest(name, of, found[name, of], every)]
    return "\n".join([*out, *(line for note in notes for line in ("", note.strip())), ""])


def _slowest(name: str, of: str, rows: Mapping[str, tuple[float, str]], every: list[dict[str, Any]]) -> Iterator[str]:
    """The slowest rows of a cell with other ways that were measured there."""
    yield f"| {name} on {SURFACES[of]}: slowest rows | reached | other ways that were measured there |"
    yield "| --- | --- | --- |"
    for row, (ratio, way) in sorted(rows.items(), key=lambda one: one[1])[:SLOWEST]:
        others: dict[str, dict[str, Any]] = {}
        for w in sorted((w for w in every if (w["workload"], w["row"], w["surface"]) == (name, row, of)), key=lambda w: -w["ratio"]):
            others.setdefault(w["way"].removesuffix(EARLY), w)
        others.pop(way.removesuffix(EARLY), None)
        said = "; ".join(f"`{w['way']}` {w['ratio']:.3f} ({w['when'][:10]})" for w in list(others.values())[:SHOWN])
        yield f"| {row} | `{way}` {ratio:.3f} | {said} |"


def _figure(name: str, of: str) -> float:
    return FIGURES[name][list(SURFACES).index(of)]


def _mean(rows: Mapping[str, tuple[float, str]]) -> float:
    return exp(sum(log(ratio) for ratio, _ in rows.values()) / len(rows))


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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
