"""``python -m benchmarks.forecast.points [--every N] [--rows I ..]``: where the cost model's first among points of GEMM's spaces stands that were all measured.

`benchmarks/data/gemm-points.json` names 210 points of four pipelines and 26 layers with few rows, and has microseconds of points at layers, each with its
operands from memory. ``measure`` takes all of them again, on the GPU of this machine (``--workers`` compile, ``--seconds``), and writes ``--out``. The costs of
clusters were fitted to layers at even places in the file, and not to those at odd places; which costs are counted was chosen with both in view. For each
layer: the place of the model's first among the measured, how many times as long as the fastest it took, and the same of the fastest of its first eight.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.effects.group import Group
from benchmarks.effects.pack import write
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.cost import program_cost
from kir.hardware.target import Target, target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.tune.rank import assumed, given_of
from kir.learning.tune.space import find_space
from kir.problem import Shape, load_problem
from kir.rewrite import Context, Pipeline, run

DATA = Path(__file__).parents[1] / "data" / "gemm-points.json"
FIRST = 8
TOGETHER = 7
"""Points that are compiled into one file and timed in turns."""


@dataclass(frozen=True)
class Standing:
    """Of one row: the place of the model's first among `of` points, and its seconds and those of the fastest of the first eight over the fastest of all."""

    layer: str
    sizes: tuple[int, int, int]
    place: int
    of: int
    loss: float
    of_eight: float


def standings(rows: Sequence[int], every: int = 1, file: Path = DATA) -> list[Standing]:
    """Of rows by number, of every so many points of each."""
    data = json.loads(file.read_text())
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
    """The program of a point."""
    name, *settings = point.split()
    space, problem, device = find_space(name), load_problem("gemm_nt:bf16"), target("h200")
    chosen = {key: int(value) for key, value in (x.split("=") for x in settings)}
    text = space.filled(space.values(chosen, given_of(space, problem, problem.shapes[0], device)))
    return run(assumed(problem.naive, space), Pipeline.parse(text, str(space.file)), Context(device)).program


class Points(Group):
    """Points side by side, each at the layers that `wanted` has it at, whatever the model says of it."""

    wanted: frozenset[tuple[str, str]] = frozenset()

    def modelled(self, program: Program, shape: Shape, target: Target) -> float:
        """Nothing to wait for where a point is wanted at a layer, for ever elsewhere."""
        return 0.0 if (content_hash(program), shape.name) in self.wanted else math.inf


def prepared(points: Sequence[str], layers: Mapping[str, Mapping[str, int]], wanted: Mapping[str, Sequence[str]], file: str) -> dict[str, str]:
    """Points compiled into a file, for layers by name with their sizes, each for those of `wanted`; their names by the hashes of their programs. A point that
    its space no longer has is left out."""
    shapes = [Shape(name=name, tags=("timed",), sizes=dict(sizes)) for name, sizes in layers.items()]
    group = Points(f"points/{points[0]}", "gemm", "cuda", load_problem("gemm_nt:bf16"), shapes)
    names: dict[str, str] = {}
    for point in points:
        try:
            names[group.add(built(point))] = point
        except KirError:
            continue
    group.wanted = frozenset((key, layer) for key, point in names.items() for layer in wanted[point])
    write(group, Path(file))
    return names


def measure(data: Mapping[str, Any], workers: int, seconds: float) -> dict[str, Any]:
    """The same points at the same layers, timed on the GPU of this machine as far as the seconds go."""
    from benchmarks.effects.device import measured

    until = time.monotonic() + seconds
    layers = {str(i): dict(zip("MNK", row["sizes"], strict=True)) for i, row in enumerate(data["rows"])}
    wanted: dict[str, list[str]] = {point: [] for point in data["points"]}
    for i, row in enumerate(data["rows"]):
        for point, _ in row["microseconds"]:
            wanted[data["points"][point]].append(str(i))
    parts = [data["points"][i:i + TOGETHER] for i in range(0, len(data["points"]), TOGETHER)]
    names: dict[str, str] = {}
    found: dict[str, dict[str, float]] = {i: {} for i in layers}
    device = ""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers) as pool:
        asked = {pool.submit(prepared, part, layers, {p: wanted[p] for p in part}, f"{folder}/{i}.pack"): i for i, part in enumerate(parts)}

        def files() -> Iterator[Path]:
            for each in as_completed(asked):
                names.update(each.result())
                yield Path(f"{folder}/{asked[each]}.pack")
        for row in measured(files(), until):
            if row["kind"] == "time" and not row["fault"] and row["cold"]:
                device = row["device"]
                found[row["shape"]][names[row["program"]]] = statistics.median(row["cold"])
        for each in asked:
            each.cancel()
    place = {point: i for i, point in enumerate(data["points"])}
    rows = [{"layer": row["layer"], "sizes": row["sizes"],
             "microseconds": sorted(([place[p], round(s * 1e6, 2)] for p, s in found[str(i)].items()), key=lambda each: each[1])}
            for i, row in enumerate(data["rows"])]
    return {"device": "h200" if "H200" in device else "h100-sxm", "measured": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "command": "python -m benchmarks.forecast.points measure", "points": data["points"], "rows": rows}


def written(data: Mapping[str, Any]) -> str:
    """The file: a line a layer."""
    head = "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in data.items() if k != "rows")
    return "{\n" + head + '"rows": [\n' + ",\n".join(json.dumps(row) for row in data["rows"]) + "\n]\n}\n"


def _seconds(program: Program, sizes: Mapping[str, int], device: Any) -> float:
    return sum(c.seconds for c in program_cost(program, sizes, device, warm=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("command", nargs="?", choices=("stand", "measure"), default="stand")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=DATA, help="measure: the file")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    data = json.loads(given.data.read_text())
    if given.command == "measure":
        made = measure(data, given.workers, given.seconds)
        write_atomic(given.out, written(made))
        print(f"{sum(len(row['microseconds']) for row in made['rows'])} of {sum(len(row['microseconds']) for row in data['rows'])}", file=sys.stderr)
        return
    rows = given.rows if given.rows is not None else range(len(data["rows"]))
    found = standings(rows, given.every, given.data)
    for s in found:
        print(f"{' x '.join(map(str, s.sizes))} ({s.layer}): {s.place} of {s.of}, {s.loss:.3f}; of the first {FIRST} {s.of_eight:.3f}")
    for name, some in (("fitted", found[::2]), ("not fitted", found[1::2])) if given.rows is None else ():
        losses = [s.loss for s in some]
        print(f"{name}: mean {math.exp(statistics.mean(map(math.log, losses))):.3f}, largest {max(losses):.3f}")


if __name__ == "__main__":
    main()
