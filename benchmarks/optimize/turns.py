"""Search, learn, search: a policy is trained on searches of some problems, and the second turn is compared with the first on others.

Both turns search under the same small budget of plans; the time is modelled on the CPU, where candidates are interpreted and not compiled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.policy import NO_POLICY, Policy, save, trained
from kir.learning.optimize.search import Budget, Search
from kir.learning.optimize.sources import LineageSource, PipelineSource
from kir.learning.optimize.starts import Start
from kir.problem import load_problem

LEARNED_ON = ("softmax", "rmsnorm", "gemm", "fmha")
TESTED_ON = ("layernorm", "addmm", "bmm", "fmha_gqa", "gemm_nt")
"""Problems that are in no training, in no stored pipeline but one, and in no lineage."""
TRAINING = Budget(candidates=6, seconds=600.0, plans=60)
TURN = Budget(candidates=2, seconds=600.0, plans=6)


def turns(out: Path) -> int:
    """Train on the first problems, compare on the others; writes the policy, a table and its rows."""
    logs = [list(_search(name, NO_POLICY, TRAINING)[2]) for name in LEARNED_ON]
    policy = trained(logs)
    save(policy, out / "optimize-policy.json")
    rows = []
    for name in TESTED_ON:
        first, second = (_search(name, p, TURN)[:2] for p in (NO_POLICY, policy))
        rows.append({"problem": name, "given": first[0], "first": first[1], "second": second[1]})
        print(json.dumps(rows[-1]), flush=True)
    write_atomic(out / "optimize-turns.json", json.dumps({"rows": rows}, indent=1) + "\n")
    write_atomic(out / "optimize-turns.md", "\n".join(_table(rows)) + "\n")
    return 0


def _search(name: str, policy: Policy, budget: Budget) -> tuple[float, float, Any]:
    """Seconds of the naive program and of the best, and the events."""
    problem = load_problem(name)
    setting = Setting(problem, problem.tagged("timed")[0], target("h200"), "")
    found = Search(problem.naive, setting, CpuJudge(setting, compiles=False), (PipelineSource(), LineageSource()), policy=policy, budget=budget,
                   recorder=Recorder(), from_starts=[Start("the naive program", problem.naive)]).run()
    best = found.best.measured.seconds if found.best is not None and found.best.measured is not None else found.baseline.seconds
    return found.baseline.seconds, best, found.events


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# The second turn beside the first"
    yield ""
    yield (f"Made by `python -m benchmarks.optimize turns`: a policy trained on searches of {', '.join(LEARNED_ON)}, tried on problems that were in none "
           f"of them. Each search builds {TURN.plans} plans and gates {TURN.candidates}; seconds are modelled for an H200.")
    yield ""
    yield "| problem | naive | first turn | second turn | times as fast |"
    yield "| --- | --- | --- | --- | --- |"
    for r in rows:
        yield f"| {r['problem']} | {r['given'] * 1e6:.1f} us | {r['first'] * 1e6:.1f} us | {r['second'] * 1e6:.1f} us | {r['first'] / r['second']:.2f} |"
