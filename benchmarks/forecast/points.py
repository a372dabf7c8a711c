"""``python -m benchmarks.forecast.points [--every N] [--rows I ..]``: where the cost model's first among points of GEMM's spaces stands that were all measured.

`benchmarks/data/gemm-points.json` has seconds of up to 206 points of four pipelines at 26 layers with few rows (H100, each with its operands from memory), of
which the costs of clusters were fitted to those at even places in the file, and not to those at odd places; which costs are counted was chosen with both in
view. They were taken once, on 28 November 2026, each point compiled and timed by itself; no command here takes them again. When they were measured, split-K
over a cluster did not add its parts in registers yet; that step is left out. For each row: the place of the model's first among the measured, how many times
as long as the fastest it took, and the same of the fastest of the model's first eight.
"""
from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.gate.cost import program_cost
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.tune.rank import assumed, given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.rewrite import Context, Pipeline, run

DATA = Path(__file__).parents[1] / "data" / "gemm-points.json"
SINCE = "stage-epilogue{space=fragment}"
"""The step that was not there when the points were measured."""
FIRST = 8


@dataclass(frozen=True)
class Standing:
    """Of one row: the place of the model's first among `of` points, and its seconds and those of the fastest of the first eight over the fastest of all."""

    layer: str
    sizes: tuple[int, int, int]
    place: int
    of: int
    loss: float
    of_eight: float


def standings(rows: Sequence[int], every: int = 1) -> list[Standing]:
    """Of rows by number, of every so many points of each."""
    data = json.loads(DATA.read_text())
    device, programs, out = target(data["device"]), dict[str, Program](), list[Standing]()
    for row in (data["rows"][i] for i in rows):
        sizes = dict(zip("MNK", row["sizes"], strict=True))
        taken = {data["points"][i]: seconds for i, seconds in row["microseconds"][::every]}
        programs |= {p: built(p) for p in taken if p not in programs}
        modelled = {p: _seconds(programs[p], sizes, device) for p in taken}
        order, best = sorted(taken, key=modelled.__getitem__), min(taken.values())
        place = sorted(taken.values()).index(taken[order[0]]) + 1
        out.append(Standing(row["layer"], tuple(row["sizes"]), place, len(taken), taken[order[0]] / best, min(taken[p] for p in order[:FIRST]) / best))
    return out


def built(point: str) -> Program:
    """The program of a point as it was measured."""
    name, *settings = point.split()
    space, problem, device = find_space(name), load_problem("gemm_nt:bf16"), target("h200")
    chosen = {key: int(value) for key, value in (x.split("=") for x in settings)}
    text = space.filled(space.values(chosen, given_of(space, problem, problem.shapes[0], device)))
    steps = tuple(s for s in Pipeline.parse(text, str(space.file)).steps if not str(s).startswith(SINCE))
    return run(assumed(problem.naive, space), Pipeline(steps), Context(device)).program


def _seconds(program: Program, sizes: Mapping[str, int], device: Any) -> float:
    return sum(c.seconds for c in program_cost(program, sizes, device, warm=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="*")
    given = parser.parse_args()
    rows = given.rows if given.rows is not None else range(len(json.loads(DATA.read_text())["rows"]))
    found = standings(rows, given.every)
    for s in found:
        print(f"{' x '.join(map(str, s.sizes))} ({s.layer}): {s.place} of {s.of}, {s.loss:.3f}; of the first {FIRST} {s.of_eight:.3f}")
    for name, some in (("fitted", found[::2]), ("not fitted", found[1::2])) if given.rows is None else ():
        losses = [s.loss for s in some]
        print(f"{name}: mean {math.exp(statistics.mean(map(math.log, losses))):.3f}, largest {max(losses):.3f}")


if __name__ == "__main__":
    main()
