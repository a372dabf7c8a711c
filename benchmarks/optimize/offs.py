"""What forecasts were wrong by on a device: measured times of stored pipelines, all that the repository ever kept of the workloads' benchmarks, over what the
search forecasts of the same kernels at the same sizes. `python -m benchmarks.optimize offs` puts it into the policy that comes with KIR.

Beside it, how far measured times were from modelled ones, of the candidates of `kir optimize --on gpu`, which orders nothing: `offs --from FOLDER` keeps what
its logs say of it in optimize-apart.jsonl. A report of modelled times says it."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from benchmarks.gpu_workloads.history import kept
from benchmarks.optimize.instances import INSTANCES
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.learning.forecast import Analytic, Pair
from kir.learning.optimize.policy import apart, load, quartiles, save
from kir.learning.tune.rank import Prefixes, built, given_of
from kir.learning.tune.space import Point, Space, find_space, space_names
from kir.problem import Problem, load_problem

WORKLOADS, DEVICE = ("fmha", "bmm", "gemm"), "h200"
FEW, LEFT_OUT, FASTEST = 1.0, 0.25, 1
"""How many kernels' worth the mean of all of a kind of operator counts in that of a family; what is added to that mean for a family that has no time of its
own: the benchmarks measure what was not far from the fastest before; and how many kernels of a family count at each shape, the fastest of them."""


RESULTS = Path(__file__).parents[1] / "results"
"""Where measured candidates are kept."""


def offs(out: Path, logs: Sequence[Path] = ()) -> int:
    """Write the policy anew, with what forecasts of each family, and of each kind of operator on a surface, were wrong by; with logs only how far measured
    and modelled times of candidates were apart, with what these say of it."""
    if logs:
        _keep(logs)
    save(replace(load(), known={DEVICE: quartiles(_candidates())}), out / "policy.json")
    return 0 if logs else _offs(out)


def _candidates() -> Iterator[tuple[str, str, float]]:
    """Candidates that were measured: family, surface, and the logarithm of the time over the modelled one."""
    if (file := RESULTS / "optimize-apart.jsonl").is_file():
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            yield row["family"], row["surface"], row["off"]


def _keep(logs: Sequence[Path]) -> None:
    """Put what logs say of measured candidates into the file of those, in the place of what is there of the same kernels."""
    file, made = RESULTS / "optimize-apart.jsonl", dict[str, list[str]]()
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        made.setdefault(json.loads(line)["program"], []).append(line)
    for log in logs:
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        begin = next((e for e in events if e["event"] == "begin" and e["target"] == DEVICE), None)
        if begin is not None and (found := [*apart([events])]):
            made[begin["program"]] = [json.dumps({"program": begin["program"], "kernel": begin["problem"], "sizes": begin["sizes"], "family": family,
                                                  "surface": surface, "off": round(off, 4)}) for family, surface, off in found]
    write_atomic(file, "".join(f"{line}\n" for each in made.values() for line in each))


def _offs(out: Path) -> int:
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
    policy = load(out / "policy.json")
    save(replace(policy, off={**policy.off, DEVICE: said}), out / "policy.json")
    print(f"{sum(map(len, found.values()))} kernels of {len(found)} families:", json.dumps(said, indent=1))
    return 0


def _measured() -> Iterator[tuple[tuple[str, str, str], float]]:
    """By operator, family and surface the logarithm of a measured time over its forecast; nothing at the sizes of a held-out instance."""
    prefixes = dict[str, Prefixes]()
    for workload in WORKLOADS:
        rows = {row.name: row for row in importlib.import_module(f"benchmarks.gpu_workloads.{workload}").ROWS}
        for (shape, name), times in sorted(_kept(workload).items()):
            if name not in space_names() or (row := rows.get(shape)) is None:
                continue
            dtype, sizes = getattr(row, "dtype", "" if workload == "fmha" else "bf16"), dict(row.shape.sizes if workload == "gemm" else row.sizes)
            if any(sizes == dict(one.sizes) for one in INSTANCES):
                continue
            space = find_space(name)
            problem = load_problem(f"{space.home}:{dtype}" if dtype else space.home)
            for words, seconds in sorted(times.items(), key=lambda each: each[1])[:FASTEST]:
                try:
                    forecast = _forecast(space, problem, dict(w.split("=") for w in words.split(" ")), sizes, prefixes.setdefault(problem.name + name, {}))
                    yield (problem.spec.operator, name, space.surface), math.log(seconds / forecast)
                except (KirError, ValueError, StopIteration) as refused:
                    print(f"left out: {name} {words} at {shape}: {refused}", file=sys.stderr)


def _kept(workload: str) -> dict[tuple[str, str], dict[str, float]]:
    """By shape and pipeline the seconds of each point that was measured on this kind of device, the last where there are several."""
    found = dict[tuple[str, str], dict[str, float]]()
    for row in (json.loads(line) for _, _, samples in kept(workload) for line in samples.splitlines()):
        if DEVICE.upper() in row["device"]:
            ways = {**{t["way"]: t["median"] for t in row["taken"] if t["ours"] and not t["fault"]}, **row.get("tried", {})}
            for way, seconds in ways.items():
                name, _, words = way.rpartition(": ")[2].removesuffix(" early").partition(" ")
                if words and "(" not in words and seconds:
                    found.setdefault((row["shape"], name), {})[words] = seconds
    return found


def _forecast(space: Space, problem: Problem, words: Mapping[str, str], sizes: Mapping[str, int], known: Prefixes) -> float:
    """The seconds that a pipeline's kernel is forecast to take."""
    device = target(DEVICE)
    point: Point = next(p for p in space.points() if {k: str(v) for k, v in p.items()} == dict(words))
    program = built(space, space.values(point, given_of(space, problem, problem.shapes[0], device)), problem, device, known)
    return Analytic()(Pair(problem.naive, program, dict(sizes), device, surface=space.surface)).seconds[1]
