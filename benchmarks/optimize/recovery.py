"""Recovery: from the naive program of every problem, on every surface, back to the speed of its expert, with arms that lack a part of the search.

The expert's time and what is found are modelled alike on the CPU: this compares ways to search, and promises no figure of a device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.learning.forecast import Analytic, Forecast, Pair
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import PlanSource, Setting
from kir.learning.optimize.policy import NO_POLICY, load
from kir.learning.optimize.search import SURFACES, Budget, Search
from kir.learning.optimize.sources import LineageSource, PassSource, PipelineSource
from kir.learning.optimize.starts import Start
from kir.problem import load_problem

PROBLEMS = ("gemm", "softmax", "rmsnorm", "layernorm", "fmha", "fmha_causal")
ARMS = ("whole", "without skills", "without forecasts", "without the policy", "random order")
ENOUGH = 0.95
"""The part of the best known speed that counts as recovered."""
BUDGET = Budget(candidates=4, seconds=60.0)


class Blind:
    """A forecaster that knows nothing: every program alike, but for a number drawn from its text with a seed where the order is to be random."""

    name = "blind"

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def __call__(self, pair: Pair) -> Forecast:
        from hashlib import sha256

        from kir.ir.canonical import content_hash

        drawn = 0.5 if self.seed is None else int(sha256(f"{self.seed} {content_hash(pair.after)}".encode()).hexdigest()[:8], 16) / 2**32
        return Forecast((0.5,), (0.0,), model="blind", seconds=(1.0, 1e-6 * (1.0 + drawn)))


def recovery(out: Path, only: str, seconds: float) -> int:
    """Every problem on every surface by every arm; rows are kept as they come, and those that are there are not made again."""
    file = out / "optimize-recovery.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    done = {(r["problem"], r["surface"], r["arm"]) for r in rows}
    import time

    until = time.monotonic() + seconds
    for name, surface, arm in ((p, s, a) for p in PROBLEMS for s in SURFACES for a in ARMS):
        if (name, surface, arm) in done or not any(w in name for w in only.split(",")) or time.monotonic() > until:
            continue
        rows.append({"problem": name, "surface": surface, "arm": arm, **_one(name, surface, arm)})
        write_atomic(file, json.dumps({"rows": rows}, indent=1) + "\n")
        write_atomic(out / "optimize-recovery.md", "\n".join(_table(rows)) + "\n")
    print("\n".join(_table(rows)))
    return 0


def _one(name: str, surface: str, arm: str) -> dict[str, Any]:
    problem = load_problem(name)
    setting = Setting(problem, problem.tagged("timed")[0], target("h200"), surface)
    sources: tuple[PlanSource, ...] = (PassSource(),) if arm == "without skills" else (PipelineSource(), LineageSource(), PassSource())
    forecaster = Blind() if arm == "without forecasts" else Blind(1) if arm == "random order" else Analytic()
    policy = NO_POLICY if arm == "without the policy" else load()
    search = Search(problem.naive, setting, CpuJudge(setting, compiles=False), sources, forecaster, policy, BUDGET,
                    from_starts=[Start("the naive program", problem.naive)])
    try:
        found = search.run()
    except KirError as refused:
        return {"seconds": None, "remark": refused.diagnostics[0].message}
    best = found.best.measured.seconds if found.best is not None and found.best.measured is not None else None
    return {"seconds": best, "gated": len(found.tried), "built": found.built, "remark": "" if best else found.ended}


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Recovery from naive programs, and what each part of the search is worth"
    yield ""
    yield (f"Made by `python -m benchmarks.optimize recovery` on the modelled H200: {BUDGET.candidates} candidates and {BUDGET.seconds:g} s a search, from the "
           f"problem's naive program alone. A cell is the speed over the best that any arm found on that surface; {ENOUGH:.0%} counts as recovered.")
    yield ""
    yield "| problem | surface | " + " | ".join(ARMS) + " |"
    yield "| --- | --- | " + " | ".join("---" for _ in ARMS) + " |"
    by = {(r["problem"], r["surface"], r["arm"]): r["seconds"] for r in rows}
    for problem, surface in dict.fromkeys((r["problem"], r["surface"]) for r in rows):
        times = [by.get((problem, surface, arm)) for arm in ARMS]
        best = min((t for t in times if t), default=None)
        yield f"| {problem} | {surface} | " + " | ".join(f"{best / t:.2f}" if t and best else "none" for t in times) + " |"
    yield ""
    for arm in ARMS:
        mine = [(p, s) for p, s, a in by if a == arm]
        won = sum(1 for p, s in mine if (t := by[p, s, arm]) and t * ENOUGH <= min(x for a in ARMS if (x := by.get((p, s, a)))))
        yield f"- {arm}: {won} of {len(mine)} at {ENOUGH:.0%} or more"
