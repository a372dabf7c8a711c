"""What each step of the workloads' shipped lineages brings on a GPU: `docs/tables/workloads-steps.md`.

    python -m benchmarks.surfaces.measured_steps measure [--seconds N] [LINEAGE ..]   # judges and times every state, and goes on where it was
    python -m benchmarks.surfaces.measured_steps [--write]                            # prints the page of what is kept, or writes it

Each state is judged by the gate on the device (all of its calls there, without the interpreter, which judged it when it was walked) and timed at one
shape, at which the naive program too is quick. What a surface does not say is said in CUDA. On TileLang, which compiles for each size, it is judged at the
sizes of that shape alone.
"""
from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.surfaces.crossing import lineages
from benchmarks.surfaces.workload_lineages import workload_of
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.device.client import COMMON, common
from kir.ir.nodes import Program
from kir.learning.tune.device import with_shape
from kir.lineage.records.folder import Folder, opened
from kir.lineage.records.record import Lineage
from kir.problem import Problem, Shape, load_problem
from kir.problem.problem import shape_of

if TYPE_CHECKING:
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import Shared

ROOT = Path(__file__).parents[2]
KEPT, PAGE = ROOT / "benchmarks" / "results" / "workloads-steps.jsonl", ROOT / "docs" / "tables" / "workloads-steps.md"
SURFACES = ("cuda", "triton", "tilelang")
"""Those whose compilers are quick first."""
OF_SIZES = frozenset({"tilelang"})
"""Those whose launchers take the sizes of a call, so that each size is compiled, for ten seconds of a processor or more."""
TRIES, BUSY = 3, "the host waited"
"""How often a state is asked for that is refused in these words, which a machine with other work on it brings about."""
SAMPLES = 0.3
"""Seconds that the samples of one state may take."""
SHAPES = {
    "fmha": "B=2,H=8,L=1024", "fmha_varlen": "B=4,H=8,L=1024", "conv2d": "resnet", "topk": "indexer", "gdn_d128": "B=1,L=1024,H=4,G=3", "gemm": "cube",
    "gemm_fp8": "M=1024,N=1024,K=2048", "gemm_grouped": "G=8,T=1024,N=512,K=512", "bmm": "G=8,M=512,N=512,K=512"}
"""By problem, where its states are timed: a name or sizes."""
HEAD = """# What each step of the workloads' lineages brings

Written by `python -m benchmarks.surfaces.measured_steps --write` from what `measure` kept: every state of each shipped lineage of a workload, judged by
the gate on the device and timed there, at the shape that is named. A step's factor is the time before it over the time after it, on the way forward. A step
of which a state was refused, or not reached in time, has none; *written as CUDA*: its surface says no such program. TileLang compiles for each size,
ten seconds of a processor: its states are judged at the sizes of that shape alone, with every distribution of inputs (and were at others when they were
walked). Without `tl_disable_thread_storage_sync` it puts barriers into branches that not all threads take: an answer of code of single threads asks for it
with its own step (`asks`), as a state without it never ends. On a machine with other work on it the gate refuses a state for whose calls the host waits
much longer than they take: it is asked for again, and by the next `measure`.

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


    @property
    def key(self) -> Key:
        return self.lineage, self.state, self.program, self.shape


Key = tuple[str, int, str, str]
"""A lineage, a state of it, its program and the shape at which it is timed."""
Judge = Callable[[Program, Problem, str, str], tuple[bool, str, tuple[float, float, float], str]]
"""The gate's word on a program of a problem on a surface at a shape: whether it is right, why not, its seconds, and the device."""
_WORKER: list[Judge] = []
"""What judges in this process."""


class AtOneSize(Problem):
    """A problem that is posed at the sizes of its shapes alone."""

    def admits(self, shape: Shape) -> bool:
        return any(shape.sizes == s.sizes for s in self.shapes)


def at_one_size(problem: Problem, shape: Shape) -> AtOneSize:
    """A problem posed at a shape, where it is timed, and once more at its sizes, where it is judged with every distribution."""
    posed = shape.model_copy(update={"name": "judged", "tags": ("tail",)})
    spec = problem.spec.model_copy(update={"shapes": (posed, shape)})
    given: dict[str, Any] = {f.name: getattr(problem, f.name) for f in fields(problem) if f.init}
    return AtOneSize(**{**given, "spec": spec})


@cache
def of_workloads() -> tuple[Folder, ...]:
    """The shipped lineages of the workloads, those of few states first."""
    found = [(folder, _record(folder.root)) for folder in lineages()]
    return tuple(folder for folder, record in sorted(found, key=lambda one: len(one[1].states)) if workload_of(record.header.problem))


@cache
def _record(root: Path) -> Lineage:
    return opened(root).read()


def waiting(done: Collection[Key], refused: Collection[Key] = (), names: Collection[str] = ()) -> list[tuple[Folder, int]]:
    """The states that are not done yet, of all lineages or those named: those of which compilers are quick first, those that were refused before last."""
    found = [(key in refused, SURFACES.index(record.header.surface), len(record.states), folder, number)
             for folder, record in ((f, _record(f.root)) for f in of_workloads() if not names or f.root.name in names)
             for number, state in enumerate(record.states)
             if (key := (folder.root.name, number, state.content, _shape(record.header.problem))) not in done]
    return [one[3:] for one in sorted(found, key=lambda one: (*one[:3], one[3].root.name, one[4]))]


def _shape(problem: str) -> str:
    return _timed_at(load_problem(problem)).name


def _timed_at(problem: Problem) -> Shape:
    return shape_of(problem, SHAPES[problem.spec.name])


def judged(folder: Folder, number: int, judge: Judge) -> Judged:
    """A state on its surface, or in CUDA where that does not say it."""
    record = _record(folder.root)
    state, problem, program = record.states[number], load_problem(record.header.problem), folder.program(record.states[number])
    shape = _timed_at(problem)
    for surface in dict.fromkeys((record.header.surface, "cuda")):
        posed = at_one_size(problem, shape) if surface in OF_SIZES else with_shape(problem, shape)
        try:
            accepted, reason, seconds, device = judge(program, posed, surface, shape.name)
        except KirError as refused:
            accepted, reason, seconds, device = False, f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}", (0.0, 0.0, 0.0), ""
        if accepted or not reason.startswith(("KIR-B", "KIR-V")):
            break
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    return Judged(folder.root.name, number, state.content, shape.name, accepted, reason, *seconds, surface, device, when)


def on_device(gpu: Gpu, shared: Shared, program: Program, problem: Problem, surface: str, shape: str) -> tuple[bool, str, tuple[float, float, float], str]:
    """The gate's word on the device at hand, one shape timed."""
    from kir.gate.gpu import Options, gate_gpu

    options = Options(shapes=(shape,), panel=False, sanitize=False, budget=SAMPLES, interpret=False, secret=shared.secret, replay=False, shared=shared,
                      reuse=True)
    verdict = gate_gpu(gpu, program, problem, surface, options=options)
    row = next((r for r in verdict.profile if r.kind == "measured" and r.shape == shape), None)
    seconds = (row.seconds, *row.interval) if row is not None and row.interval is not None else (0.0, 0.0, 0.0)
    return verdict.accepted and row is not None, verdict.reason, seconds, str(gpu.about["name"])


def _ready(shared: Shared, servers: str) -> None:
    """A worker has one device until it ends, and its servers, which have the compilers loaded, in common with the others."""
    from kir.gate.gpu import Gpu

    os.environ[COMMON] = servers
    gpu = Gpu.open(ROOT / "build" / "steps-cache")
    Finalize(None, gpu.close, exitpriority=0)
    _WORKER.append(partial(on_device, gpu, shared))


def _one(root: str, number: int, until: float) -> Judged | None:
    return judged(opened(Path(root)), number, _WORKER[0]) if time.monotonic() < until else None


def measure(names: Collection[str], seconds: float) -> None:
    """All lineages, or those named, as many states at a time as there are processors; each is kept as it comes. All states of a problem are judged on the
    same inputs, so that what is right is computed once."""
    from kir.gate.gpu.oracle import sharing

    until = time.monotonic() + seconds
    known = {(r.lineage, r.state): r for r in kept()}
    done, refused = ({r.key for r in known.values() if r.accepted is right} for right in (True, False))
    left = waiting(done, refused, names)
    with sharing(every=True) as shared, common() as servers, \
            ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"), _ready, (shared, servers)) as pool:
        for _ in range(TRIES):
            asked = {pool.submit(_one, str(folder.root), number, until): (folder, number) for folder, number in left}
            left = []
            for one in as_completed(asked):
                if (r := one.result()) is not None:
                    known[r.lineage, r.state] = r
                    write_atomic(KEPT, "".join(json.dumps(asdict(known[key])) + "\n" for key in sorted(known)))
                    print(f"{r.lineage} {r.state}: {r.seconds * 1e6:.1f} us {'' if r.accepted else r.reason[:120]}", flush=True)
                    left += [asked[one]] if BUSY in r.reason else []


def kept() -> list[Judged]:
    """What was measured of states that a lineage has now, by the numbers that they have there: recorded again with a step more, it has most of them still."""
    rows = [Judged(**json.loads(line)) for line in KEPT.read_text(encoding="utf-8").splitlines()] if KEPT.exists() else []
    numbers = {(f.root.name, state.content): number for f in of_workloads() for number, state in enumerate(_record(f.root).states)}
    return [replace(r, state=numbers[r.lineage, r.program]) for r in rows if (r.lineage, r.program) in numbers]


def page(rows: Sequence[Judged]) -> str:
    """The page: a table of lineages, and one of steps for each."""
    head = ["| lineage | of | surface | at | states | right on the device | the naive program | the expert | times as fast | measured |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    steps, left = list[str](), list[str]()
    for folder in of_workloads():
        record, name = _record(folder.root), folder.root.name
        at = _shape(record.header.problem)
        own = {r.state: r for r in rows if (r.lineage, r.shape) == (name, at) and r.program == record.states[r.state].content}
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
