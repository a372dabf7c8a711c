"""Recovery: from the naive program of every problem, on every surface, back to the speed of its expert, with arms that lack a part of the search.

The cost model stands for the device: the expert's time and what is found are modelled alike, and a candidate's time is known once it is gated, while the order
is the forecaster's. This compares ways to search, and promises no figure of a device.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.optimize.running import Known, ages, code, each, made, search
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.cost import DRAM_SHARE, LAUNCH, program_cost
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast import Analytic, Forecast, Pair
from kir.learning.optimize.policy import NO_POLICY, load
from kir.learning.optimize.search import SURFACES, Budget
from kir.learning.optimize.sources import LineageSource, PassSource, PipelineSource
from kir.lineage.records.folder import Folder
from kir.problem import load_problem, numpy_dtype

PROBLEMS = ("gemm", "fmha", "topk", "gdn_d128", "conv2d", "softmax", "rmsnorm", "layernorm")
WORKLOADS = PROBLEMS[:5]
"""Those that are tried with every seed, and by every arm before the others."""
SEEDS = 5
TRIES, RANDOM = tuple(f"try {k}" for k in range(SEEDS)), ("random order 0",)
"""Whole searches whose forecasts are drawn from what the forecaster thinks possible, and a search in an order that is drawn."""
ARMS = ("whole", *TRIES, "without skills", "without forecasts", "without the policy", *RANDOM)
ORDER = (*TRIES, ARMS[0], "without forecasts", "without the policy", *RANDOM, "without skills")
"""In which the arms are run: the tries, then each kind once, on the workloads first."""
ENOUGH = 0.95
"""The part of the expert's speed that counts as recovered."""
BUDGET = Budget(candidates=4, seconds=3600.0, plans=48)
"""Plans and candidates bind, so that what else a machine does changes no row; the seconds end what hangs."""


class Blind:
    """A forecaster that knows nothing: every program alike, but for a number drawn from its text with a seed where the order is to be random."""

    name = "blind"

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def __call__(self, pair: Pair) -> Forecast:
        drawn = 0.5 if self.seed is None else _share(self.seed, pair)
        return Forecast((0.5,), (0.0,), model="blind", seconds=(1.0, 1e-6 * (1.0 + drawn)))


class Drawn:
    """The analytic forecaster, of whose distribution one time is drawn for each program by a seed."""

    name = "drawn"

    def __init__(self, seed: int) -> None:
        self.seed, self.of = seed, Analytic()

    def __call__(self, pair: Pair) -> Forecast:
        said = self.of(pair)
        speedup = said.quantile(_share(self.seed, pair))
        return replace(said, seconds=(said.seconds[0], said.seconds[0] / speedup), model="drawn")


def _share(seed: int, pair: Pair) -> float:
    """A number from 0 to 1 for a program."""
    return int(sha256(f"{seed} {content_hash(pair.after)}".encode()).hexdigest()[:8], 16) / 2**32


def recovery(out: Path, only: str, seconds: float, workers: int = 1, given: str = "", named: str = "", surface: str = "") -> int:
    """Every problem on every surface (or on one) by every arm, or by those whose names have one of the words that are `named`; rows are kept as they come,
    those that this code has made are not made again, and those that nothing has made come first. Rows of a folder that is `given` take the place of those
    that are there."""
    file = out / "optimize-recovery.json"
    rows = [*({(r["problem"], r["surface"], r["arm"]): r for f in (file, *([Path(given) / file.name] if given else [])) if f.is_file()
               for r in json.loads(f.read_text(encoding="utf-8"))["rows"] if r["problem"] in PROBLEMS and r["arm"] in ARMS}).values()]
    done = {(r["problem"], r["surface"], r["arm"]) for r in rows if r.get("code") == code()}
    rest = [*((a, p) for a in ORDER[SEEDS:] for p in WORKLOADS), *((a, p) for a in ORDER[SEEDS:] for p in PROBLEMS)]
    asked = [*((TRIES, p) for p in WORKLOADS), *(((a,), p) for a, p in dict.fromkeys(rest))]
    arms_named = {a for a in ARMS if any(w in a for w in named.split(","))}
    wanted = ((p, s, tuple(a for a in arms if a in arms_named and (p, s, a) not in done)) for arms, p in asked for s in SURFACES
              if surface in ("", s) and any(w in p for w in only.split(",")))
    older = {(r["problem"], r["surface"], r["arm"]) for r in rows}
    tasks = sorted(((p, s, arms, str(out)) for p, s, arms in wanted if arms), key=lambda t: all((t[0], t[1], a) in older for a in t[2]))
    for (name, on, *_), found in each(several, tasks, workers, seconds):
        for arm, row in found.items():
            rows = [r for r in rows if (r["problem"], r["surface"], r["arm"]) != (name, on, arm)]
            rows.append({"problem": name, "surface": on, "arm": arm, **row, **made()})
        rows.sort(key=lambda r: (PROBLEMS.index(r["problem"]), SURFACES.index(r["surface"]), ARMS.index(r["arm"])))
        write_atomic(file, json.dumps({"rows": rows}, indent=1) + "\n")
    if given:
        rows.sort(key=lambda r: (PROBLEMS.index(r["problem"]), SURFACES.index(r["surface"]), ARMS.index(r["arm"])))
        write_atomic(file, json.dumps({"rows": rows}, indent=1) + "\n")
    page = "\n".join(_table(rows))  # also where no row is new: what experts take may be
    write_atomic(out / "optimize-recovery.md", page + "\n")
    print(page)
    return 0


def several(name: str, surface: str, arms: Sequence[str], folder: str) -> dict[str, Any]:
    """The rows of some arms; of more than one, what the gate said of a program, and what became of it, is theirs together."""
    known = Known() if len(arms) > 1 else None
    return {arm: one(name, surface, arm, folder, known) for arm in arms}


def one(name: str, surface: str, arm: str, folder: str, known: Known | None = None) -> dict[str, Any]:
    """The row of one search. The policy is the one that `turns` left in the folder, where it did; tries have none, and skills alone lead them."""
    sources = (PassSource(),) if arm == "without skills" else (PipelineSource(), LineageSource(), PassSource())
    seed = int(arm.rpartition(" ")[2]) if arm in (*TRIES, *RANDOM) else None
    forecaster = Drawn(seed) if arm in TRIES and seed is not None else Blind(seed) if seed is not None or arm == "without forecasts" else Analytic()
    own = Path(folder) / "optimize-policy.json"
    policy = NO_POLICY if arm == "without the policy" or arm in (*RANDOM, *TRIES) else load(own if own.is_file() else None)
    return search(name, surface, sources, BUDGET, forecaster, policy, measures=True, known=known)[1]


def experts(surface: str) -> dict[str, float]:
    """The modelled seconds of experts by problem: of those that lineages begin with, and of those written as IR."""
    out: dict[str, float] = {}
    root = Path(str(resources.files("kir.skills")))
    for folder in sorted(p for p in (root / "lineages").iterdir() if (p / "lineage.json").is_file()):
        held = Folder(folder)
        lineage = held.read()
        if lineage.header.problem and folder.name.endswith(surface):
            _modelled(out, lineage.header.problem, held.program(lineage.states[0]), surface)
    if surface == "cuda":
        for name, about in tomllib.loads((root / "experts" / "experts.toml").read_text(encoding="utf-8")).items():
            _modelled(out, about["problem"], parse_program((root / "experts" / about["file"]).read_text(encoding="utf-8"), name), surface)
    return out


def _modelled(out: dict[str, float], name: str, program: Program, surface: str) -> None:
    """The faster of what is known of a problem's experts and this one; none is thought faster than moving each tensor once."""
    problem, device = load_problem(name), target("h200")
    shape = problem.tagged("timed")[0]
    moved = sum(math.prod(problem.tensor_shape(t, shape)) * numpy_dtype(problem.tensor_dtype(t)).itemsize for t in problem.spec.tensors)
    try:
        seconds = sum(c.seconds for c in program_cost(program, shape.sizes, device, None, surface))
    except (KirError, KeyError):  # an expert whose sizes are not the problem's
        return
    key = name.partition(":")[0]
    out[key] = min(max(seconds, LAUNCH + moved / (device.device.bandwidth * DRAM_SHARE)), out.get(key, math.inf))


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Recovery from naive programs, and what each part of the search is worth"
    yield ""
    yield (
        f"Made by `python -m benchmarks.optimize recovery` on the modelled H200: {BUDGET.candidates} candidates and {BUDGET.plans} plans a search, from the "
        "problem's naive program alone. A cell is the speed over the expert's of that surface (where it has none, of the surface that is named), which is "
        f"thought no faster than moving each tensor once; an empty cell was not run, and a time stands where there is "
        f"no expert. {ENOUGH:.0%} counts as recovered. All of it is modelled: a candidate's "
        "time is known once it was gated by the interpreter. A try draws each forecast, by its number, from what the forecaster thinks possible, and has no "
        "policy."
    )
    yield ""
    yield "| problem | surface | expert | " + " | ".join(ARMS) + " |"
    yield "| --- | --- | --- | " + " | ".join("---" for _ in ARMS) + " |"
    by = {(r["problem"], r["surface"], r["arm"]): r["seconds"] for r in rows}
    known = {s: experts(s) for s in SURFACES}
    goal = dict[tuple[str, str], float]()
    whose = {p: {s: known[s][p] for s in SURFACES if p in known[s]} for p in PROBLEMS}
    for problem, surface in dict.fromkeys((r["problem"], r["surface"]) for r in rows):
        times = [by.get((problem, surface, arm)) for arm in ARMS]
        there = whose[problem]
        by_whom = surface if surface in there else min(there, key=lambda s: there[s], default="")
        goal[problem, surface] = there.get(by_whom, 0.0)
        asked = ((problem, surface, arm) in by for arm in ARMS)
        best = goal[problem, surface]
        cells = ((f"{best / t:.2f}" if best else f"{t * 1e6:.1f} us") if t else "none" if ran else "" for t, ran in zip(times, asked, strict=True))
        expert = f"{goal[problem, surface] * 1e6:.1f} us{f' ({by_whom})' * (by_whom != surface)}" if by_whom else "none"
        yield f"| {problem} | {surface} | {expert} | " + " | ".join(cells) + " |"
    yield ""
    for what, arms in (("tries", TRIES), *((a, (a,)) for a in ARMS if a not in (*TRIES, *RANDOM)), ("random order", RANDOM)):
        mine = [(p, s, a) for p, s, a in by if a in arms and goal[p, s]]
        won = sum(1 for key in mine if (t := by[key]) and t * ENOUGH <= goal[key[:2]])
        left = len(arms) * len(SURFACES) * len(WORKLOADS if arms == TRIES else PROBLEMS) - sum(1 for _, _, a in by if a in arms)
        yield f"- {what}: {won} of {len(mine)} at {ENOUGH:.0%} or more{f', {left} not run' if left else ''}"
    yield ages(rows)
    whole = [r for r in rows if r.get("took") and r["arm"] == "whole"]
    if whole:
        share = sum(r["took"] - r["gate"] for r in whole) / sum(r["took"] for r in whole)
        yield ""
        yield (
            f"Processor time of the whole search outside the gate, which compiles nothing here and measures nothing: {share:.0%}, "
            f"{sum(r['took'] - r['gate'] for r in whole) / len(whole):.1f} s a search."
        )
