"""What forecasts were wrong by on a device: measured times of stored pipelines, as the workloads' benchmarks keep them, over what the search forecasts of the
same kernels at the same sizes. `python -m benchmarks.optimize offs` puts it into the policy that comes with KIR."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from benchmarks.optimize.instances import INSTANCES
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.learning.forecast import Analytic, Pair
from kir.learning.optimize.policy import load, save
from kir.learning.tune.rank import Prefixes, built, given_of
from kir.learning.tune.space import Point, Space, find_space, space_names
from kir.problem import Problem, load_problem

RESULTS = Path(__file__).parents[1] / "results"
WORKLOADS, DEVICE = ("fmha", "bmm", "gemm"), "h200"
FEW, LEFT_OUT = 1.0, 0.25
"""How many kernels' worth the mean of all of a kind of operator counts in that of a family; and what is added to that mean for a family that has no time
of its own: the benchmarks measure what was not far from the fastest before."""


def offs(out: Path) -> int:
    """Write the policy anew, with what forecasts of each family, and of each kind of operator on a surface, were wrong by."""
    found = dict[tuple[str, str, str], list[float]]()
    for key, off in sorted(_measured()):
        found.setdefault(key, []).append(off)
    kinds = dict[tuple[str, str], list[float]]()
    for (operator, _, surface), each in sorted(found.items()):
        kinds.setdefault((operator, surface), []).append(fmean(each))
    means = {key: fmean(each) for key, each in kinds.items()}
    said = {f"operator={operator} {surface}": round(mean + LEFT_OUT, 3) for (operator, surface), mean in means.items()}
    for (operator, family, surface), each in found.items():
        said[f"{family} {surface}"] = round((sum(each) + FEW * means[operator, surface]) / (len(each) + FEW), 3)
    policy = load()
    save(replace(policy, off={**policy.off, DEVICE: said}), out / "policy.json")
    print(f"{sum(map(len, found.values()))} kernels of {len(found)} families:", json.dumps(said, indent=1))
    return 0


def _measured() -> Iterator[tuple[tuple[str, str, str], float]]:
    """By operator, family and surface the logarithm of a measured time over its forecast; nothing at the sizes of a held-out instance."""
    prefixes = dict[str, Prefixes]()
    for workload in WORKLOADS:
        rows = {row.name: row for row in importlib.import_module(f"benchmarks.gpu_workloads.{workload}").ROWS}
        for line in (RESULTS / f"gpu-workloads-{workload}.jsonl").read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            row = rows.get(told["shape"])
            times = {**{t["way"]: t["median"] for t in told["taken"] if t["ours"]}, **told["tried"]}
            for way, seconds in sorted(times.items()):
                name, *words = way.rpartition(": ")[2].removesuffix(" early").split(" ")
                if row is None or name not in space_names() or not words or "(" in way or not seconds:
                    continue
                try:
                    space = find_space(name)
                    dtype, sizes = getattr(row, "dtype", "" if workload == "fmha" else "bf16"), dict(row.shape.sizes if workload == "gemm" else row.sizes)
                    if any(sizes == dict(one.sizes) for one in INSTANCES):
                        continue
                    problem = load_problem(f"{space.home}:{dtype}" if dtype else space.home)
                    forecast = _forecast(space, problem, dict(w.split("=") for w in words), sizes, prefixes.setdefault(f"{name} {problem.name}", {}))
                    yield (problem.spec.operator, name, space.surface), math.log(seconds / forecast)
                except (KirError, ValueError, KeyError) as refused:
                    print(f"left out: {way} at {told['shape']}: {refused}", file=sys.stderr)


def _forecast(space: Space, problem: Problem, words: Mapping[str, str], sizes: Mapping[str, int], known: Prefixes) -> float:
    """The seconds that a pipeline's kernel is forecast to take."""
    device = target(DEVICE)
    point: Point = next(p for p in space.points() if {k: str(v) for k, v in p.items()} == dict(words))
    program = built(space, space.values(point, given_of(space, problem, problem.shapes[0], device)), problem, device, known)
    return Analytic()(Pair(problem.naive, program, dict(sizes), device, surface=space.surface)).seconds[1]
