"""Search, learn, search: a policy is trained on searches of some problems, and the second turn is compared with the first on others.

Both turns search under the same small budget of plans; the time is modelled on the CPU, where candidates are interpreted and not compiled.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.optimize.running import ages, each, made, search
from kir.base.store import write_atomic
from kir.learning.optimize.policy import NO_POLICY, load, save, trained
from kir.learning.optimize.search import Budget
from kir.learning.optimize.sources import LineageSource, PipelineSource

LEARNED_ON = ("softmax", "rmsnorm", "gemm", "fmha", "gemm_tn", "topk")
TESTED_ON = ("layernorm", "addmm", "bmm", "fmha_gqa", "fmha_causal", "gemm_nt", "fused_add_rmsnorm")
"""Problems that are in no training. Two have stored pipelines of their own."""
TRAINING = Budget(candidates=5, seconds=3600.0, plans=48)
TURN = Budget(candidates=2, seconds=3600.0, plans=6)


def turns(out: Path, seconds: float = 1e9, workers: int = 1) -> int:
    """Train on the first problems, compare on the others; writes the policy, a table and its rows. Searches are kept in the folder `turns` as they end, and
    those that are there are not made again; 1 while some are left."""
    until, kept, policy = time.monotonic() + seconds, out / "turns", out / "optimize-policy.json"
    logs = _made([(name, "", asdict(TRAINING), "") for name in LEARNED_ON], kept, workers, until)
    if len(logs) < len(LEARNED_ON):
        print(f"{len(logs)} of {len(LEARNED_ON)} searches to learn from")
        return 1
    save(replace(trained([log["events"] for log in logs.values()]), off=load().off), policy)
    tried = _made([(name, "", asdict(TURN), which) for name in TESTED_ON for which in ("", str(policy))], kept, workers, until)
    rows = [
        {"problem": name, "given": a["given"], "first": a["seconds"] or a["given"], "second": b["seconds"] or b["given"], **{k: b[k] for k in made() if k in b}}
        for name in TESTED_ON
        if "given" in (a := tried.get((name, ""), {})) and "given" in (b := tried.get((name, str(policy)), {}))
    ]
    write_atomic(out / "optimize-turns.json", json.dumps({"rows": rows}, indent=1) + "\n")
    write_atomic(out / "optimize-turns.md", "\n".join(_table(rows)) + "\n")
    print("\n".join(_table(rows)))
    return 0 if len(rows) == len(TESTED_ON) else 1


def _made(tasks: Sequence[tuple[Any, ...]], kept: Path, workers: int, until: float) -> dict[tuple[str, str], dict[str, Any]]:
    """What searches came to, by problem and policy: those that are kept, and as many of the others as end in time."""
    def place(task: tuple[Any, ...]) -> Path:
        return kept / f"{task[0]}-{task[2]['plans']}{'-again' * bool(task[3])}.json"

    out = {(task[0], task[3]): json.loads(place(task).read_text(encoding="utf-8")) for task in tasks if place(task).is_file()}
    left = [task for task in tasks if not place(task).is_file()]
    for task, row in each(one, left, workers, max(0.0, until - time.monotonic())):
        write_atomic(place(task), json.dumps(row) + "\n")
        out[task[0], task[3]] = row
    return out


def one(name: str, surface: str, budget: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """The row of a search with a policy ("": none), and its events."""
    found, row = search(name, surface, (PipelineSource(), LineageSource()), Budget(**budget), policy=load(Path(policy)) if policy else NO_POLICY)
    return {**row, **made(), "events": [dict(e) for e in found.events] if found is not None else []}


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# The second turn beside the first"
    yield ""
    yield (
        f"Made by `python -m benchmarks.optimize turns`: a policy trained on searches of {', '.join(LEARNED_ON)}, tried on problems that were in none "
        f"of them. Each search builds {TURN.plans} plans and gates {TURN.candidates}; seconds are modelled for an H200."
    )
    yield ""
    yield "| problem | naive | first turn | second turn | times as fast |"
    yield "| --- | --- | --- | --- | --- |"
    both = [r for r in rows if r["first"] < r["given"]]
    for r in rows:
        first, times = (f"{r['first'] * 1e6:.1f} us", f"{r['first'] / r['second']:.2f}") if r in both else ("none", "")
        yield f"| {r['problem']} | {r['given'] * 1e6:.1f} us | {first} | {r['second'] * 1e6:.1f} us | {times} |"
    if both:
        won = sum(r["second"] < r["given"] for r in rows if r not in both)
        yield ""
        yield (f"Geometric mean: {math.exp(sum(math.log(r['first'] / r['second']) for r in both) / len(both)):.2f} over the {len(both)} where the first turn "
               f"found something faster than the naive program{f'; the second found something for {won} of the others' if len(both) < len(rows) else ''}.")
        yield ""
        yield ages(rows)
