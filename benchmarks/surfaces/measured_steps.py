"""What each step of the workloads' shipped lineages brings on a GPU: `docs/tables/workloads-steps.md`.

    python -m benchmarks.surfaces.measured_steps measure [--seconds N] [LINEAGE ..]   # judges and times every state, and goes on where it was
    python -m benchmarks.surfaces.measured_steps [--write]                            # prints the page of what is kept, or writes it

Each state is judged by the gate on the device (all of its calls there, without the interpreter, which judged it when it was walked) and timed at one
shape, at which the naive program too is quick. What a surface does not say is said in CUDA.
"""
from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.surfaces.crossing import lineages
from benchmarks.surfaces.workload_lineages import workload_of
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.ir.nodes import Program
from kir.learning.tune.device import with_shape
from kir.lineage.records.folder import Folder, opened
from kir.problem import Problem, load_problem
from kir.problem.problem import shape_of

if TYPE_CHECKING:
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import Shared

ROOT = Path(__file__).parents[2]
KEPT, PAGE = ROOT / "benchmarks" / "results" / "workloads-steps.jsonl", ROOT / "docs" / "tables" / "workloads-steps.md"
SAMPLES = 0.3
"""Seconds that the samples of one state may take."""
SHAPES = {
    "fmha": "B=2,H=8,L=1024", "fmha_varlen": "B=4,H=8,L=1024", "conv2d": "resnet", "topk": "indexer", "gdn_d128": "B=1,L=1024,H=4,G=3", "gemm": "cube",
    "gemm_fp8": "M=1024,N=1024,K=2048", "gemm_grouped": "G=8,T=2048,N=1024,K=1024", "bmm": "G=8,M=512,N=512,K=512"}
"""By problem, where its states are timed: a name or sizes."""
HEAD = """# What each step of the workloads' lineages brings

Written by `python -m benchmarks.surfaces.measured_steps --write` from what `measure` kept: every state of each shipped lineage of a workload, judged by
the gate on the device and timed there, at the shape that is named. A step's factor is the time before it over the time after it, on the way forward. A step
of which a state was refused, or not reached in time, has none; *written as CUDA*: its surface says no such program.

"""


@dataclass(frozen=True)
class Judged:
    """A state on the device: whether it was right, the median of its samples in seconds and the ends of its interval."""

    lineage: str
    state: int
    program: str
    shape: str
    accepted: bool
    reason: str = ""
    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    surface: str = ""
    device: str = ""
    when: str = ""


Judge = Callable[[Program, Problem, str, str], tuple[bool, str, tuple[float, float, float], str]]
"""The gate's word on a program of a problem on a surface at a shape: whether it is right, why not, its seconds, and the device."""


def of_workloads() -> list[Folder]:
    """The shipped lineages of the workloads, those of few states first."""
    found = [(folder, folder.read()) for folder in lineages()]
    return [folder for folder, record in sorted(found, key=lambda one: len(one[1].states)) if workload_of(record.header.problem)]


def measured(folder: Folder, judge: Judge, done: Collection[tuple[str, int, str]], told: Callable[[Judged], None], until: float = math.inf) -> None:
    """Each state of a lineage that is not done yet, the expert first."""
    record, name = folder.read(), folder.root.name
    shape = shape_of(load_problem(record.header.problem), SHAPES[record.header.problem])
    problem = with_shape(load_problem(record.header.problem), shape)
    for number, state in enumerate(record.states):
        key, program = (name, number, state.content), folder.program(state)
        if key in done or time.monotonic() > until:
            continue
        for surface in dict.fromkeys((record.header.surface, "cuda")):
            try:
                accepted, reason, seconds, device = judge(program, problem, surface, shape.name)
            except KirError as refused:
                accepted, reason, seconds, device = False, f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}", (0.0, 0.0, 0.0), ""
            if accepted or not reason.startswith(("KIR-B", "KIR-V")):
                break
        told(Judged(*key, shape.name, accepted, reason, *seconds, surface, device, time.strftime("%Y-%m-%d %H:%M", time.gmtime())))


def on_device(gpu: Gpu, shared: Shared, program: Program, problem: Problem, surface: str, shape: str) -> tuple[bool, str, tuple[float, float, float], str]:
    """The gate's word on the device at hand, one shape timed."""
    from kir.gate.gpu import Options, gate_gpu

    options = Options(shapes=(shape,), panel=False, sanitize=False, budget=SAMPLES, interpret=False, replay=False, shared=shared, reuse=True)
    verdict = gate_gpu(gpu, program, problem, surface, options=options)
    row = next((r for r in verdict.profile if r.kind == "measured" and r.shape == shape), None)
    seconds = (row.seconds, *row.interval) if row is not None and row.interval is not None else (0.0, 0.0, 0.0)
    return verdict.accepted and row is not None, verdict.reason, seconds, str(gpu.about["name"])


def _one(root: str, done: frozenset[tuple[str, int, str]], until: float) -> list[Judged]:
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import sharing

    out: list[Judged] = []
    with sharing() as shared, Gpu.open(ROOT / "build" / "steps-cache") as gpu:
        measured(opened(Path(root)), partial(on_device, gpu, shared), done, out.append, until)
    return out


def measure(names: Collection[str], seconds: float) -> None:
    """All lineages, or those named, as many at a time as there are processors; what is found is kept as each ends."""
    until = time.monotonic() + seconds
    done = frozenset((r.lineage, r.state, r.program) for r in kept() if r.accepted)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_one, str(f.root), done, until) for f in of_workloads() if not names or f.root.name in names]
        for one in as_completed(asked):
            found = one.result()
            again = {(r.lineage, r.state) for r in found}
            rows = [*(r for r in kept() if (r.lineage, r.state) not in again), *found]
            write_atomic(KEPT, "".join(json.dumps(asdict(r)) + "\n" for r in sorted(rows, key=lambda r: (r.lineage, r.state))))
            print(*(f"{r.lineage} {r.state}: {r.seconds * 1e6:.1f} us {'' if r.accepted else r.reason[:120]}" for r in found), sep="\n", flush=True)


def kept() -> list[Judged]:
    """What was measured."""
    return [Judged(**json.loads(line)) for line in KEPT.read_text(encoding="utf-8").splitlines()] if KEPT.exists() else []


def page(rows: Sequence[Judged]) -> str:
    """The page: a table of lineages, and one of steps for each."""
    head = ["| lineage | of | surface | at | states | right on the device | the naive program | the expert | times as fast | measured |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    steps, left = list[str](), list[str]()
    for folder in of_workloads():
        record, name = folder.read(), folder.root.name
        own = {r.state: r for r in rows if r.lineage == name and r.program == record.states[r.state].content}
        if not own:
            left.append(f"`{name}`")
            continue
        right = {number: r for number, r in own.items() if r.accepted}
        first, last = right.get(len(record.states) - 1), right.get(0)
        whole = f"{first.seconds / last.seconds:,.0f}" if first is not None and last is not None else ""
        some = next(iter(own.values()))
        head.append(f"| `{name}` | {record.header.problem} | {record.header.surface} | {some.shape} | {len(record.states)} | {len(right)} | "
                    f"{_time(first)} | {_time(last)} | {whole} | {some.device.removeprefix('NVIDIA ')}, {some.when} |")
        steps += ["", f"## {name}", "", "| step | intent | before | after | times as fast |", "| --- | --- | ---: | ---: | ---: |"]
        for number, step in record.transitions():
            state = len(record.states) - number
            before, after = right.get(state), right.get(state - 1)
            factor = f"{before.seconds / after.seconds:.3g}" if before is not None and after is not None else _why(own, state, state - 1)
            steps.append(f"| `{step.forward}` | {step.intent} | {_time(before)} | {_time(after)} | {factor} |")
    missing = ["", f"Not measured there: {', '.join(left)}."] if left else []
    return "\n".join([HEAD + head[0], *head[1:], *missing, *steps, ""])


def _time(r: Judged | None) -> str:
    return "" if r is None else f"{r.seconds * 1e6:,.1f} us" + (" (written as CUDA)" if r.surface == "cuda" and _other(r) else "")


def _other(r: Judged) -> bool:
    return any(word in r.lineage for word in ("tilelang", "triton"))


def _why(own: dict[int, Judged], *states: int) -> str:
    refused = [own[s].reason for s in states if s in own and not own[s].accepted]
    return refused[0][:160].replace("|", "/").replace("\n", " ") if refused else "not measured"


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words[:1] == ["measure"]:
        seconds, names = (float(words[2]), words[3:]) if words[1:2] == ["--seconds"] and words[2:] else (math.inf, words[1:])
        if not set(names) - {f.root.name for f in of_workloads()}:
            measure(names, seconds)
            return 0
    elif words in ([], ["--write"]):
        if words:
            write_atomic(PAGE, page(kept()))
        else:
            print(page(kept()))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    from benchmarks.surfaces import measured_steps

    sys.exit(measured_steps.main(sys.argv[1:]))  # by its own name: what is kept is read by other processes
